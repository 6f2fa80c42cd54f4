"""Reads one plugin's directory and its `plugin.json`, where each tool puts it; problems become diagnostics.

Used by installed, store, lock and marketplace. A path in the manifest must start with `./` and stay inside
the plugin with links resolved. A known key of the wrong type is reported and ignored.
"""

import os
import re
from typing import NamedTuple, cast

from kitbag.errors import Diagnostic, Severity
from kitbag.library.dialects.field_spelling import FieldSpelling
from kitbag.text.frontmatter import normalize_key
from kitbag.text.hidden_characters import (
    collapse_whitespace,
    escape_for_terminal,
    find_disguises,
    format_code_points,
    remove_hidden,
)
from kitbag.text.source_files import PathBoundary, SourceError, directory_boundary, read_text

MANIFEST = ".claude-plugin/plugin.json"
GEMINI_MANIFEST = "gemini-extension.json"
MANIFESTS = (MANIFEST, ".plugin/plugin.json", ".github/plugin/plugin.json", ".codex-plugin/plugin.json", "plugin.json")
"""Where Claude Code, Copilot and Codex have the manifest, in order of precedence."""
MARKETPLACES = (
    ".claude-plugin/marketplace.json",
    ".github/plugin/marketplace.json",
    ".plugin/marketplace.json",
    ".agents/plugins/marketplace.json",
    "marketplace.json",
)
MAX_JSON = 1 << 20
_MAX_PATHS = 1000
_NAME_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_RESERVED = frozenset(("kitbag", "builtin", "built-in", "plugins"))

_WORD, _FLAG, _LIST, _MAP = (str,), (bool,), (list,), (dict,)
MANIFEST_TYPES: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("name", "displayName", "version", "description", "homepage", "license"), _WORD),
    **dict.fromkeys(("author", "repository"), (str, dict)),
    **dict.fromkeys(("defaultEnabled", "strict"), _FLAG),
    **dict.fromkeys(("keywords", "dependencies"), _LIST),
    **dict.fromkeys(("metadata", "userConfig"), _MAP),
    **dict.fromkeys(("skills", "agents", "workflows", "outputStyles"), (str, list)),
    **dict.fromkeys(("commands", "hooks", "mcpServers", "lspServers", "monitors"), (str, list, dict)),
}
_MANIFEST_SPELLINGS = {normalize_key(key): key for key in MANIFEST_TYPES}
_KEYS = FieldSpelling(
    {key: (key,) for key in MANIFEST_TYPES},
    (),
    ("defaultEnabled", "skills", "agents", "commands", "hooks", "mcpServers", "lspServers"),
)
_TYPE_NAMES = {str: "a text", bool: "true or false", list: "a list", dict: "an object"}
_EXECUTABLE_PARTS: dict[str, tuple[str, ...]] = {
    "hooks": ("hooks",),
    "mcpServers": (".mcp.json",),
    "lspServers": (".lsp.json",),
    "monitors": ("monitors",),
    "workflows": ("workflows",),
    "bin": ("bin",),
}
COMPONENTS = frozenset(("skills", "agents", "commands", *_EXECUTABLE_PARTS)) - {"bin"}
"""Manifest keys that list the plugin's components."""
_PLUGIN_PARTS = frozenset(("skills", "agents", "commands", "SKILL.md", "outputStyles", "output-styles"))


class Plugin(NamedTuple):
    name: str
    """Its directory's name, and the prefix in the full names of its items."""
    display_name: str
    version: str
    description: str
    path: str
    enabled: bool
    source: str
    """Where it was installed from."""
    digest: str
    """The digest of all files when it was installed; empty if unknown."""
    installed_at: str
    skill_dirs: tuple[str, ...]
    """Folders of skills, or skills themselves. All paths here are absolute and inside `path`."""
    agent_paths: tuple[str, ...]
    """Folders of agent files, or single files."""
    command_paths: tuple[str, ...]
    root_skill: bool
    """The plugin is a single skill: SKILL.md at the top and no other skills."""
    brings: tuple[str, ...]
    """Components that other tools would execute and Kitbag does not run."""
    author: str
    license: str
    default_enabled: bool

    def to_json(self) -> dict[str, object]:
        """The keys are the field names, in order."""
        return {
            **self._asdict(),
            "skill_dirs": list(self.skill_dirs),
            "agent_paths": list(self.agent_paths),
            "command_paths": list(self.command_paths),
            "brings": list(self.brings),
        }


def plugin_name_problem(name: str) -> str:
    """Why this is not a valid plugin name; empty if it is."""
    if not _NAME_PATTERN.fullmatch(name):
        return "a plugin name has up to 64 characters (a-z, 0-9, `.`, `_`, `-`) and starts with a letter or digit"
    lower = name.lower()
    if lower in _RESERVED or lower.startswith("plugins.lock"):
        return f"{name!r} is reserved"
    return ""


def read_plugin(path: str, name: str | None = None, is_listed: bool = False) -> tuple[Plugin | None, list[Diagnostic]]:
    """The plugin in a directory, disabled and without a source; `name` overrides the manifest.

    `is_listed`: a marketplace lists its components, so the directory needs no manifest or component folders.
    None if the directory can't be read, is not a plugin, or has no valid name.
    """
    return _PluginReader(path, name).read(is_listed)


def read_json_file(path: str, boundary: PathBoundary | None) -> tuple[object, str, list[Diagnostic]]:
    """The value, its source text, and diagnostics; the value is None if it could not be read."""
    import json

    def failure(code: str, line: int, problem: str, fix: str) -> tuple[object, str, list[Diagnostic]]:
        return None, "", [Diagnostic(severity="error", code=code, file=path, line=line, problem=problem, fix=fix)]

    try:
        text, _, problems = read_text(path, boundary, MAX_JSON)
    except SourceError as error:
        return failure(error.code, 0, error.problem, error.fix)
    if any(problem.code == "file-too-large" for problem in problems):
        return failure("file-too-large", 0, f"larger than {MAX_JSON // 1024} KiB; ignored", "shorten it")
    try:
        return json.loads(text), text, []
    except json.JSONDecodeError as error:
        return failure("json", error.lineno, f"not valid JSON: {error.msg.lower()}", "fix the file at this line")
    except (ValueError, RecursionError):
        return failure("json", 0, "nested too deeply, or contains a number that is too long", "simplify the file")


def find_manifest(directory: str) -> str:
    """The path of the plugin's manifest, relative to its directory; empty without one.

    A plugin.json at the top may belong to something else: it counts only if it has a name.
    """
    for path in MANIFESTS:
        if os.path.lexists(os.path.join(directory, path)) and (path != "plugin.json" or _names_plugin(directory)):
            return path
    return GEMINI_MANIFEST if os.path.lexists(os.path.join(directory, GEMINI_MANIFEST)) else ""


def _names_plugin(directory: str) -> bool:
    value, _, problems = read_json_file(os.path.join(directory, "plugin.json"), directory_boundary(directory))
    return bool(problems) or isinstance(as_map(value).get("name"), str)


def component_names(path: str) -> tuple[str, ...]:
    """The files that a component's path may mean: Copilot lists `agents/x.md` for `agents/x.agent.md`."""
    return (path, f"{path.removesuffix('.md')}.agent.md") if path.endswith(".md") else (path,)


def as_map(value: object) -> dict[str, object]:
    return cast("dict[str, object]", value) if isinstance(value, dict) else {}


def as_list(value: object) -> list[object]:
    return cast("list[object]", value) if isinstance(value, list) else []


class _PluginReader:
    def __init__(self, path: str, name: str | None) -> None:
        self.path = path if "\0" in path else os.path.realpath(path)
        self.requested_name = name
        self.diagnostics: list[Diagnostic] = []
        self.manifest: dict[str, object] = {}
        self.file = os.path.join(self.path, MANIFEST)
        self.text = ""
        self.entries: frozenset[str] = frozenset()

    def read(self, described: bool) -> tuple[Plugin | None, list[Diagnostic]]:
        try:
            self.entries = frozenset(os.listdir(self.path))
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            self._report("error", "unreadable", "", f"cannot list directory: {reason}", "check the path")
            return None, self.diagnostics
        has_manifest = self._read_manifest() or described
        if not has_manifest and not (self.entries & _PLUGIN_PARTS or self._executable_parts()):
            problem = "not a plugin: no manifest, skills, agents or commands"
            self._report("error", "not-a-plugin", "", problem, f"add {MANIFEST} or a skills/ directory")
            return None, self.diagnostics
        name = self._plugin_name()
        return (None if name is None else self._build_plugin(name)), self.diagnostics

    def _build_plugin(self, name: str) -> Plugin:
        skills, agents, commands = (self._component_paths(key) for key in ("skills", "agents", "commands"))
        root_skill = "SKILL.md" in self.entries
        if root_skill and skills:
            root_skill = self.path in skills
            if not root_skill:
                problem = "SKILL.md at the top level is ignored: the plugin has skill directories"
                self._report("info", "root-skill", "", problem, "move it to a directory below skills/")
        author = self.manifest.get("author")
        return Plugin(
            name=name,
            display_name=self._read_text("displayName") or name,
            version=self._read_text("version"),
            description=self._read_text("description"),
            path=self.path,
            enabled=False,
            source="",
            digest="",
            installed_at="",
            skill_dirs=tuple(path for path in skills if not (root_skill and path == self.path)),
            agent_paths=agents,
            command_paths=commands,
            root_skill=root_skill,
            brings=self._executable_parts(),
            author=self._clean("author", as_map(author).get("name", author)),
            license=self._read_text("license"),
            default_enabled=self.manifest.get("defaultEnabled") is not False,
        )

    def _report(self, severity: Severity, code: str, key: str, problem: str, fix: str) -> None:
        """About a key of the manifest, or about the plugin's directory if `key` is empty."""
        line = self.text.count("\n", 0, max(self.text.find(f'"{key}"'), 0)) + 1 if key else 0
        self.diagnostics.append(
            Diagnostic(
                severity=severity, code=code, file=self.file if key else self.path, line=line, problem=problem, fix=fix
            )
        )

    # --- the manifest -----------------------------------------------------------------------------

    def _read_manifest(self) -> bool:
        """Whether there is a manifest, readable or not."""
        found = find_manifest(self.path)
        if not found:
            return False
        self.file = os.path.join(self.path, found)
        if self._resolve_inside(self.file) is None:
            self._report(
                "error",
                "path-outside",
                "",
                "the manifest is a symbolic link to a file outside the plugin",
                "replace it with a copy of the file",
            )
            return True
        value, self.text, problems = read_json_file(self.file, directory_boundary(self.path))
        self.diagnostics += problems
        fields = as_map(value)
        if not problems and value != fields:
            self._report("error", "json", "{", "the manifest is not a JSON object", 'write { "name": "…" }')
        for spelling, content in sorted(fields.items(), key=lambda field: field[0] not in MANIFEST_TYPES):
            key = _MANIFEST_SPELLINGS.get(normalize_key(spelling), spelling)
            allowed = MANIFEST_TYPES.get(key)
            if key not in MANIFEST_TYPES and (slip := _KEYS.near_miss(key)):
                self._report("warning", slip.code, spelling, slip.problem, slip.fix)
            if content is None or (allowed and not isinstance(content, allowed)):
                if allowed:
                    kinds = " or ".join(_TYPE_NAMES[kind] for kind in allowed)
                    self._report("error", "wrong-type", spelling, f"`{spelling}` must be {kinds}; ignored", "fix it")
                continue
            self.manifest.setdefault(key, content)
        return True

    def _plugin_name(self) -> str | None:
        declared = self.manifest.get("name")
        if isinstance(declared, str):
            problem = plugin_name_problem(declared)
            if not problem:
                return self.requested_name or declared
            safe_name = escape_for_terminal(collapse_whitespace(declared[:80]))
            self._report("error", "bad-name", "name", f"invalid `name` {safe_name!r}: {problem}", "choose another name")
        name = self.requested_name or os.path.basename(self.path)
        problem = plugin_name_problem(name)
        if problem:
            self._report("error", "bad-name", "", problem, f"rename the directory, or add a name to {MANIFEST}")
            return None
        return name

    def _read_text(self, key: str) -> str:
        return self._clean(key, self.manifest.get(key))

    def _clean(self, key: str, value: object) -> str:
        if not isinstance(value, str):
            return ""
        hidden = find_disguises(value)
        if hidden:
            problem = f"`{key}` contains hidden characters, removed: {format_code_points(hidden)}"
            self._report("warning", "hidden-characters", key, problem, "remove them")
        return collapse_whitespace(remove_hidden(value))

    # --- components -------------------------------------------------------------------------------

    def _executable_parts(self) -> tuple[str, ...]:
        return tuple(
            key
            for key, files in _EXECUTABLE_PARTS.items()
            if (key != "bin" and self.manifest.get(key)) or not self.entries.isdisjoint(files)
        )

    def _resolve_inside(self, path: str) -> str | None:
        """The resolved path if it is inside the plugin's directory, else None."""
        try:
            real = os.path.realpath(path)
        except (OSError, ValueError):
            return None
        return real if real == self.path or real.startswith(self.path.rstrip("/") + "/") else None

    def _component_paths(self, key: str) -> tuple[str, ...]:
        """`skills` adds to the default folder, the other keys replace theirs; duplicates are dropped."""
        declared = self.manifest.get(key)
        listed_paths = [declared] if isinstance(declared, str) else as_list(declared)
        listed_paths = listed_paths or self._named_files(key, as_map(declared))
        paths: list[str] = []
        # With `strict: false` the marketplace entry is complete: default folders it does not list are ignored.
        is_complete = self.manifest.get("strict") is False and any(
            component in self.manifest for component in ("skills", "agents", "commands")
        )
        if key in self.entries and not is_complete and (key == "skills" or declared is None):
            default = self._resolve_inside(os.path.join(self.path, key))
            if default is None:
                problem = f"{key}/ is a symbolic link to a directory outside the plugin; ignored"
                self._report("error", "path-outside", "", problem, "replace it with a copy of the directory")
            elif os.path.isdir(default):
                paths.append(default)
        for value in listed_paths[:_MAX_PATHS]:
            path = self._component_path(key, value)
            if path and not any(path == other or path.startswith(other + "/") for other in paths):
                paths.append(path)
        return tuple(paths)

    def _named_files(self, key: str, entries: dict[str, object]) -> list[object]:
        """The files of `{"name": {"source": "./file.md"}}`; Kitbag names each item after its file."""
        files: list[object] = []
        for name, entry in entries.items():
            path = as_map(entry).get("source", entry)
            safe_name = escape_for_terminal(collapse_whitespace(name[:80]))
            if not isinstance(path, str):
                problem = f"`{key}`: {safe_name!r} has no file (`source`); ignored"
                self._report("info", "inline-content", key, problem, "put its content in a file")
                continue
            files.append(path)
            stem = os.path.splitext(os.path.basename(path))[0]
            if stem != name:
                problem = (
                    f"`{key}`: {safe_name!r} is named after its file,"
                    f" {escape_for_terminal(collapse_whitespace(stem[:80]))!r}"
                )
                self._report("info", "called-by-file", key, problem, "rename the file")
        return files

    def _component_path(self, key: str, value: object) -> str | None:
        if (
            isinstance(value, str)
            and not self.file.endswith(f"/{MANIFEST}")
            and re.match(r"(?!\.?\.(?:/|$))[^/]", value)
        ):
            value = f"./{value}"  # Copilot and Codex allow `skills/` and `.github/skills`
        if not isinstance(value, str) or not (value == "." or value.startswith("./")):
            safe_path = escape_for_terminal(collapse_whitespace(str(value)[:80]))
            self._report(
                "error", "bad-path", key, f"`{key}`: {safe_path!r} does not start with ./", "write ./directory"
            )
            return None
        safe_path = escape_for_terminal(collapse_whitespace(value[:80]))
        path = os.path.join(self.path, value)
        real = self._resolve_inside(next(filter(os.path.lexists, component_names(path)), path))
        if real is None:
            problem = f"`{key}`: {safe_path!r} is outside the plugin; ignored"
            self._report("error", "path-outside", key, problem, "move the files into the plugin")
            return None
        if os.path.isdir(real) or (key != "skills" and os.path.isfile(real) and real.endswith(".md")):
            return real
        kind = "directory" if key == "skills" else "directory or .md file"
        self._report("warning", "missing-path", key, f"`{key}`: {safe_path!r} is not a {kind}", "fix the path")
        return None
