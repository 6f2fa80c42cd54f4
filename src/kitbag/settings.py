"""Settings and their sources: defaults, then the user's file, then project files, the closest last.

Reads TOML: `settings.toml` in the Kitbag home and `.kitbag/settings.toml` in a project. A project can
choose and tighten, never loosen: user-only keys in a project file are ignored with a diagnostic.
Used by nearly every package above; uses text/source_files.
"""

import os
import re
import time
from typing import Any, Final, Literal, NamedTuple, cast

from kitbag.errors import Diagnostic, InvalidError, UsageError
from kitbag.setting_list import SETTINGS as SETTINGS
from kitbag.setting_list import Setting as Setting
from kitbag.text.source_files import FileStamp, PathBoundary, SourceError, directory_boundary, file_stamp, read_bytes
from kitbag.text.unicode_forms import fold

ItemState = Literal["on", "name-only", "user-only", "off"]
ITEM_STATES: tuple[ItemState, ...] = ("on", "name-only", "user-only", "off")
"""From least to most restrictive; the most restrictive one that applies wins."""


PERMISSION_KEYS = ("permissions.mode", "permissions.allow", "permissions.ask", "permissions.deny")
"""Keys that permissions/rules/load reads from each file separately."""
_BY_KEY = {setting.key: setting for setting in SETTINGS}
STATE_GROUPS = ("skills", "agents")
"""`skills.NAME` and `agents.NAME` hold an ItemState."""
TABLE_GROUPS = ("providers", "models", "mcp_servers")
"""`[providers.NAME]`, `[models."provider/model"]`, `[mcp_servers.NAME]`: read from the user's file only, by
assembly/model_sources and tools/mcp_client."""
VARIABLES_GROUP = "vars"
"""`vars.NAME` holds the value of `{{NAME}}` in packed text."""
_LIST_EXAMPLES: Final = {
    "rules": '["Bash(git log:*)", "Read(./docs/**)"]',
    "paths": '["~/out"]',
    "places": '["localhost:8000"]',
    "names": '["GITHUB_TOKEN"]',
}
"""List kinds, each with an example."""
_MAX_KEY_PARTS: Final = 64
_MAX_BYTES: Final = 1 << 20
_MIN_FILE_AGE_NS: Final = 2_000_000_000
"""A file modified this recently before it was read may change again without changing its stamp."""


class SourcedValue(NamedTuple):
    value: Any
    source: str
    """A file, or `default`."""


class PermissionEntry(NamedTuple):
    """One value of a permission setting in one file."""

    key: str
    value: Any
    """A mode, a rule, or a table with a rule and its examples; not validated."""
    file: str
    line: int
    is_user: bool


class _ParsedFile(NamedTuple):
    stamp: FileStamp
    text: str
    content: dict[str, Any]
    """Shared by all Settings objects: never modified."""


_parsed_files: dict[tuple[str, PathBoundary | None], _ParsedFile] = {}
"""Parsed once per process, and again when the stamp changes. The boundary belongs to the key because it is checked
when the file is opened. Files modified within the last two seconds are not cached."""


class Settings:
    """All settings files, read once. `diagnostics` lists what was ignored."""

    def __init__(
        self,
        user_file: str,
        project_files: tuple[str, ...] = (),
        boundary: PathBoundary | None = None,
        snapshot_file: str = "",
    ) -> None:
        """`boundary`: links in project files must not lead out of it. `snapshot_file`: what another machine's user
        wants for a task (tasks/library_snapshot), after the user's own."""
        self.user_file = user_file
        self.project_files = project_files
        self._boundary = boundary
        self.diagnostics: list[Diagnostic] = []
        self.permission_entries: list[PermissionEntry] = []
        """Every permission value of every file, the user's first."""
        self.unreadable_files: list[str] = []
        """Files whose permissions can't be read: the whole file is unreadable, or `permissions` is not a table."""
        self._values: dict[str, SourcedValue] = {}
        self._states: dict[str, dict[str, SourcedValue]] = {group: {} for group in STATE_GROUPS}
        self._variables: dict[str, SourcedValue] = {}
        self._tables: dict[str, dict[str, dict[str, Any]]] = {group: {} for group in TABLE_GROUPS}
        self._stamps: dict[str, FileStamp | None] = {}
        """The stamp each file had when it was read; None if it did not exist."""
        self._is_settled = True
        """Whether all stamps were old enough to detect any later change."""
        user_files = (user_file, snapshot_file) if snapshot_file else (user_file,)
        for path in (*user_files, *reversed(project_files)):
            if os.path.lexists(path) or not _is_missing(path):
                self._read_file(path, is_user=path in user_files)
            else:
                self._stamps[path] = None

    def is_current(self) -> bool:
        """Whether the files are unchanged since they were read; costs one stat per file."""
        return self._is_settled and all(_stat_stamp(path) == stamp for path, stamp in self._stamps.items())

    def get(self, key: str) -> Any:
        return self.get_sourced(key).value

    def get_sourced(self, key: str) -> SourcedValue:
        if key not in _BY_KEY:
            raise UsageError(*_unknown_key(key))
        return self._values.get(key) or SourcedValue(_BY_KEY[key].default, "default")

    def states(self, group: str) -> dict[str, SourcedValue]:
        """Normalized name to state; where user and project differ, the more restrictive one."""
        return self._states[group]

    def tables(self, group: str) -> dict[str, dict[str, Any]]:
        """The user's tables of a group (providers, models, servers) by name; not validated."""
        return self._tables[group]

    def variables(self) -> dict[str, str]:
        """Values of `{{NAME}}` in packed text."""
        return {name: value.value for name, value in self._variables.items()}

    def sourced_variables(self) -> dict[str, SourcedValue]:
        return self._variables

    def _warn(self, path: str, line: int, problem: str, fix: str) -> None:
        self.diagnostics.append(
            Diagnostic(severity="warning", code="setting", file=path, line=line, problem=problem, fix=fix)
        )

    def _read_file(self, path: str, is_user: bool) -> None:
        boundary = None if is_user else self._boundary
        stamp = _stat_stamp(path)
        self._record_stamp(path, stamp)
        parsed = _parsed_files.get((path, boundary))
        try:
            if parsed is None or parsed.stamp != stamp:
                data, stamp, is_truncated = read_bytes(path, boundary, _MAX_BYTES)
                self._record_stamp(path, stamp)
                if is_truncated:
                    self._reject_file(path, 0, f"file too large (over {_MAX_BYTES:,} bytes); ignored")
                    return
                text = data.decode()
                parsed = _ParsedFile(stamp, text, parse_toml(text))
                if _is_old_enough(stamp):
                    _parsed_files[path, boundary] = parsed
        except SourceError as error:
            self._reject_file(path, 0, error.problem)
            return
        except UnicodeDecodeError as error:
            self._reject_file(path, 0, f"cannot read file: {error}; ignored")
            return
        except (ValueError, RecursionError) as error:
            self._reject_file(path, _parse_error_line(str(error)), f"not valid TOML: {error}; the file is ignored")
            return
        text = parsed.text
        for key, value in _flatten(parsed.content):
            line = _find_key_line(text, key)
            group, dot, name = key.partition(".")
            if key in PERMISSION_KEYS:
                self._read_permission(path, text, key, value, is_user)
            elif key == "permissions":
                self._reject_file(path, line, "`permissions` must be a table; its rules are ignored")
            elif dot and group in STATE_GROUPS:
                self._read_state(path, line, group, name, value)
            elif dot and group == VARIABLES_GROUP:
                self._variables[name] = SourcedValue(str(value), path)
            elif dot and group in TABLE_GROUPS:
                self._read_table(path, line, group, name, value, is_user)
            elif key not in _BY_KEY:
                self._warn(path, line, *_unknown_key(key))
            elif not is_user and not _BY_KEY[key].project_may_set:
                self._reject_project_key(path, line, key)
            else:
                problem = check_value(key, value)
                if problem:
                    self._warn(path, line, f"{problem}; the default is used", "fix the value")
                else:
                    self._values[key] = SourcedValue(value, path)

    def _record_stamp(self, path: str, stamp: FileStamp | None) -> None:
        self._stamps[path] = stamp
        if stamp is not None:
            self._is_settled = self._is_settled and _is_old_enough(stamp)

    def _reject_file(self, path: str, line: int, problem: str) -> None:
        self.unreadable_files.append(path)
        self.diagnostics.append(
            Diagnostic(severity="error", code="setting", file=path, line=line, problem=problem, fix="fix the file")
        )

    def _read_permission(self, path: str, text: str, key: str, value: Any, is_user: bool) -> None:
        """Records the values for permissions, which parse them. Keys that can only loosen are rejected in a project."""
        values: list[Any] = (
            cast("list[Any]", value) if isinstance(value, list) and key != PERMISSION_KEYS[0] else [value]
        )
        for item in values:
            self.permission_entries.append(
                PermissionEntry(key=key, value=item, file=path, line=_find_rule_line(text, key, item), is_user=is_user)
            )
        earlier = self._values.get(key)
        if key == PERMISSION_KEYS[0]:
            if is_user:
                self._values[key] = SourcedValue(value, path)
        elif is_user or _BY_KEY[key].project_may_set:
            combined: list[Any] = [*earlier.value, *values] if earlier else values
            self._values[key] = SourcedValue(combined, f"{earlier.source}, {path}" if earlier else path)
        else:
            self._reject_project_key(path, _find_key_line(text, key), key)

    def _read_table(self, path: str, line: int, group: str, name: str, value: Any, is_user: bool) -> None:
        if not is_user:
            self._reject_project_key(path, line, f"{group}.{name}")
        elif not isinstance(value, dict):
            self._warn(path, line, f"`{group}.{name}` must be a table", f"write `[{group}.{name}]` with its keys below")
        else:
            self._tables[group][name] = cast("dict[str, Any]", value)

    def _reject_project_key(self, path: str, line: int, key: str) -> None:
        problem = f"`{key}` cannot be set by a project; ignored"
        self._warn(path, line, problem, "move it to your user settings")

    def _read_state(self, path: str, line: int, group: str, name: str, value: Any) -> None:
        if value not in ITEM_STATES:
            self._warn(
                path, line, f"invalid value for `{group}.{name}`: {value!r}", f"use one of {', '.join(ITEM_STATES)}"
            )
            return
        key = fold(name.strip())
        earlier = self._states[group].get(key)
        if earlier is None or ITEM_STATES.index(value) >= ITEM_STATES.index(earlier.value):
            self._states[group][key] = SourcedValue(value, path)


def load_settings(kitbag_home: str, project_dirs: tuple[str, ...], snapshot: str = "") -> Settings:
    """`snapshot`: as in `Places`."""
    project_files = tuple(os.path.join(directory, ".kitbag", "settings.toml") for directory in project_dirs)
    boundary = directory_boundary(project_dirs[-1]) if project_dirs else None
    snapshot_file = os.path.join(snapshot, "kitbag", "settings.toml") if snapshot else ""
    return Settings(os.path.join(kitbag_home, "settings.toml"), project_files, boundary, snapshot_file)


def _stat_stamp(path: str) -> FileStamp | None:
    """None if the path does not exist. An unreachable path, such as a broken link, gets a stamp."""
    try:
        return file_stamp(os.stat(path))
    except OSError as error:
        return None if _is_missing(path) else (-1, -1, -1, error.errno or 0)


def _is_old_enough(stamp: FileStamp) -> bool:
    """Whether a file read now with this stamp can't change later without changing the stamp."""
    return time.time_ns() - max(stamp[:2]) > _MIN_FILE_AGE_NS


def _is_missing(path: str) -> bool:
    """False for a path that may exist but can't be reached."""
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return False


def parse_toml(text: str) -> dict[str, Any]:
    """Raises ValueError, also for a dotted key with too many parts: tomllib takes quadratic time for those."""
    import tomllib

    bare = text
    if '"""' not in text and "'''" not in text:  # multi-line strings are not stripped
        bare = re.sub(r""""(?:[^"\\\n]|\\.)*"|'[^'\n]*'""", "", text)
    if any(part.count(".") > _MAX_KEY_PARTS for part in re.split(r"[=\n\[\]{},#]", bare)):
        raise ValueError(f"key with more than {_MAX_KEY_PARTS} parts")
    return tomllib.loads(text)


def check_value(key: str, value: Any) -> str:
    """The problem with a value; empty if it is valid."""
    kind = _BY_KEY[key].kind
    if kind in _LIST_EXAMPLES:
        items = cast("list[object]", value) if isinstance(value, list) else [None]
        is_valid = all(isinstance(item, str) or (kind == "rules" and isinstance(item, dict)) for item in items)
        return "" if is_valid else f"`{key}` must be a list of strings"
    if kind == "text":
        return "" if isinstance(value, str) else f"`{key}` must be a string"
    if kind == "count":
        is_valid = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 10_000_000
        return "" if is_valid else f"`{key}` must be a non-negative integer"
    if kind == "amount":
        is_valid = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1e12
        return "" if is_valid else f"`{key}` must be a non-negative number"
    if kind == "percent":
        is_valid = isinstance(value, int) and not isinstance(value, bool) and 0 < value <= 100
        return "" if is_valid else f"`{key}` must be an integer from 1 to 100"
    if kind == "budget":
        text = str(value)
        digits = text.removesuffix("%")
        is_plain = digits.isascii() and len(digits) <= 8
        is_share = is_plain and text.endswith("%") and digits.replace(".", "", 1).isdigit() and 0 < float(digits) <= 100
        is_count = is_plain and text.isdigit()
        return "" if is_share or is_count else f"`{key}` must be a number of characters or a percentage such as `2%`"
    return "" if value in kind.split("|") else f"`{key}` must be one of {kind.replace('|', ', ')}"


def parse_value(key: str, text: str) -> Any:
    """Parses a value typed on the command line. Raises UsageError."""
    group, dot, name = key.partition(".")
    if dot and group in STATE_GROUPS and name:
        if text not in ITEM_STATES:
            raise UsageError(f"invalid state {text!r}", f"use one of {', '.join(ITEM_STATES)}")
        return text
    if dot and group == VARIABLES_GROUP and name:
        return text
    if key not in _BY_KEY:
        raise UsageError(*_unknown_key(key))
    if _BY_KEY[key].kind in _LIST_EXAMPLES:
        return _parse_list(key, text)
    value: Any = text
    if _BY_KEY[key].kind in ("count", "percent", "amount") and text.isascii() and text.isdigit():
        value = int(text)
    elif _BY_KEY[key].kind == "amount" and re.fullmatch(r"[0-9]{1,12}\.[0-9]{1,6}", text):
        value = float(text)
    problem = check_value(key, value)
    if problem:
        raise UsageError(problem, f"{_BY_KEY[key].description}")
    return value


def _parse_list(key: str, text: str) -> list[Any]:
    """Requires the whole list as TOML, so that setting it never silently adds or drops items."""
    import tomllib

    example = _LIST_EXAMPLES[_BY_KEY[key].kind]
    try:
        value: Any = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = None
    problem = check_value(key, value)
    if problem:
        raise UsageError(problem, f"write the whole list as TOML, such as '{example}'")
    return cast("list[Any]", value)


def write_setting(path: str, key: str, value: Any) -> bool:
    """Sets one key, or removes it if `value` is None. Keeps the rest of the file, including comments, and the settings
    that other processes write meanwhile. Returns whether the file had the key."""
    from kitbag.store.toml_file import edit_toml

    if os.path.islink(os.path.dirname(path)) or os.path.islink(path):
        raise InvalidError(
            f"{path} is a symbolic link or is inside a symlinked directory; nothing was written",
            "replace the link with a regular file or directory",
        )
    had_key = False

    def edit(document: Any) -> None:
        nonlocal had_key
        had_key = _set_key(document, key, value)

    edit_toml(path, edit)
    return had_key


def _set_key(document: Any, key: str, value: Any) -> bool:
    import tomlkit

    group, dot, name = key.partition(".")
    if dot and not isinstance(document.get(group), dict):
        if value is None:
            return False
        if group in document:
            raise TypeError(f"`{group}` must be a table")
        document[group] = tomlkit.table()
    table: Any = document[group] if dot else document
    # States apply to names in any letter case and normalization form: the new value replaces each of them.
    spellings = {name or group}
    if group in STATE_GROUPS:
        spellings |= {one for one in table if fold(one) == fold(name)}
    old = [one for one in spellings if one in table]
    for spelling in old:
        if value is None or spelling != (name or group):
            table.pop(spelling)
    if value is not None:
        table[name or group] = value
    elif dot and old and not table.as_string().strip():
        document.pop(group)
    return bool(old)


def _unknown_key(key: str) -> tuple[str, str]:
    import difflib

    matches = difflib.get_close_matches(key, _BY_KEY, n=1)
    fix = f"did you mean `{matches[0]}`?" if matches else "run `kitbag config list` to list all settings"
    return f"unknown setting `{key}`", fix


def _flatten(content: dict[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    items: list[tuple[str, Any]] = []
    for key, value in content.items():
        if isinstance(value, dict) and not prefix:
            items += _flatten(cast("dict[str, Any]", value), f"{key}.")
        else:
            items.append((prefix + key, cast(Any, value)))
    return items


def _find_key_line(text: str, key: str) -> int:
    name = key.rpartition(".")[2]
    for number, line in enumerate(text.split("\n"), 1):
        if line.split("=")[0].strip().strip("\"'").endswith(name) and "=" in line:
            return number
    return 0


def _find_rule_line(text: str, key: str, value: Any) -> int:
    """The line of a rule; the line of its list if the rule can't be located."""
    rule: Any = cast("dict[str, Any]", value).get("rule") if isinstance(value, dict) else value
    lines = text.split("\n")
    tables = [number for number, line in enumerate(lines, 1) if line.replace(" ", "").startswith(f"[[{key}]]")]
    first = tables[0] if tables else _find_key_line(text, key)
    for number in range(max(first, 1), len(lines) + 1):
        if f'"{rule}"' in lines[number - 1] or f"'{rule}'" in lines[number - 1]:
            return number
    return first


def _parse_error_line(message: str) -> int:
    _, separator, rest = message.partition("line ")
    digits = rest.split(",")[0].split(")")[0].strip() if separator else ""
    return int(digits) if digits.isdigit() else 0
