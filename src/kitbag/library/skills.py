"""A skill as it is known at start: what its head says to the catalog and the visibility rule.

`read_skill` is the hot path of every scan: it reads the start of one file and keeps only what the
catalog and the visibility rule need. Used by discover and the registry.
"""

from typing import NamedTuple

from kitbag.errors import Diagnostic, Severity
from kitbag.library.dialects.field_names import KNOWN_FIELDS
from kitbag.library.names import MAX_NAME, usable_name
from kitbag.library.scopes import Root
from kitbag.text.frontmatter import Head, field_line, first_paragraph, read_head
from kitbag.text.hidden_characters import code_points, find_hidden, remove_hidden
from kitbag.text.plain_frontmatter import Metadata, Value
from kitbag.text.source_files import Boundary, Problem, SourceError

NO_MODEL, NO_USER, COMMAND, FLAT, REQUIRED, HAS_PATHS, NO_DESCRIPTION = (1 << bit for bit in range(7))

_TRUE = frozenset(("true", "yes", "on", "1"))
_FALSE = frozenset(("false", "no", "off", "0"))
_WHEN = ("when_to_use", "when-to-use", "whenToUse")
_HINT = ("argument-hint", "argument_hint", "argumentHint")
_EXTRAS = frozenset(_WHEN + _HINT)
_NOTHING = ("", "null", "~", "Null", "NULL")


class Skill(NamedTuple):
    """What is known without opening the file again. Commands are skills with the COMMAND flag."""

    root: Root
    location: str
    """The file, relative to the root; absolute for one that only a manifest leads to."""
    stamp: int
    """The hash of the file's stamp: two that differ are two files."""
    changed: int
    """When the file last changed in any way (ctime), in nanoseconds."""
    name: str
    full_name: str
    """`plugin:name`, `team/name`, or the name itself."""
    description: str
    when_to_use: str
    argument_hint: str
    flags: int
    team: str
    group: str
    """Inside a team folder: `core`, or the folder's name (a persona's when it is called so)."""
    subagents: tuple[str, ...]

    @property
    def path(self) -> str:
        return f"{self.root.path}/{self.location}" if self.location[:1] != "/" else self.location

    @property
    def directory(self) -> str:
        return self.path.rpartition("/")[0]

    @property
    def kind(self) -> str:
        return "command" if self.flags & COMMAND else "skill"

    @property
    def summary(self) -> str:
        """What the catalog says of it: description and when to use."""
        if not self.when_to_use:
            return self.description
        return f"{self.description} {self.when_to_use}" if self.description else self.when_to_use


def waits_for_files(skill: Skill) -> bool:
    """It is told of when a file is used that its `paths` match. Commands have no such field."""
    return bool(skill.flags & HAS_PATHS) and not skill.flags & COMMAND


def read_skill(
    root: Root, location: str, path: str, fallback_name: str, team: str = "", group: str = "", flags: int = 0
) -> tuple[Skill | None, list[Diagnostic]]:
    """Never raises for content. FileNotFoundError means that there is no such file."""
    try:
        stamp, head = read_head(path, KNOWN_FIELDS, root.boundary)
    except SourceError as error:
        if isinstance(error.__cause__, FileNotFoundError | NotADirectoryError):
            raise error.__cause__ from None
        return None, [Diagnostic("error", error.code, path, 0, error.problem, error.fix)]
    if flags & FLAT and not head.present:
        return None, []
    metadata = head.metadata
    problems: list[Problem] = [*head.problems] if head.problems else []
    written = None if flags & COMMAND else metadata.get("name")
    if written == fallback_name and _is_plain_name(fallback_name):
        name = fallback_name
    else:
        name = _name(written, fallback_name, flags, problems)
    description, flags = _description(head, flags, problems)
    when, hint = ("", "") if _EXTRAS.isdisjoint(metadata) else _extras(metadata, problems)
    flags |= _flags(metadata, problems)
    full_name = f"{root.plugin}:{name}" if root.plugin else f"{team}/{name}" if team else name
    skill = Skill(
        root, location, hash(stamp), stamp[1], name, full_name, description, when, hint, flags, team, group,
        string_list(metadata["subagents"]) if "subagents" in metadata else (),
    )  # fmt: skip
    return skill, [diagnostic(path, problem, root.boundary) for problem in problems]


def diagnostic(path: str, problem: Problem, boundary: Boundary | None) -> Diagnostic:
    severity: Severity = (
        "error" if problem.severity == "error" else "warning" if problem.severity == "warning" else "info"
    )
    line = field_line(path, problem.field, boundary) if problem.field else problem.line
    return Diagnostic(severity, problem.code, path, line, problem.problem, problem.fix)


def _is_plain_name(name: str) -> bool:
    return name.isascii() and name.replace("-", "").replace("_", "").isalnum() and len(name) <= MAX_NAME


def _name(written: Value | None, fallback: str, flags: int, problems: list[Problem]) -> str:
    name, wrong = usable_name(written, fallback)
    if flags & COMMAND:  # `:` stands between the folders that it lies in
        name = ":".join(usable_name(None, part)[0] for part in fallback.split(":"))
    if wrong:
        what = f"{wrong}; it is called {name!r}"
        problems.append(Problem("warning", "name-unusable", 2, what, "use lower-case letters, digits and `-`", "name"))
    elif written is not None and name != fallback and not flags & FLAT:
        what = f"called {name!r} but its folder is {fallback!r}"
        problems.append(Problem("info", "name-not-folder", 2, what, "give the folder and `name` one name", "name"))
    hidden = find_hidden(fallback)
    if hidden:
        what = f"the file's or folder's name has hidden characters: {code_points(hidden)}"
        problems.append(Problem("warning", "hidden-characters", 0, what, "rename it"))
    return name


def _description(head: Head, flags: int, problems: list[Problem]) -> tuple[str, int]:
    description = text_of(head.metadata, "description")
    if description:
        return _visible(description, "description", problems), flags
    paragraph = first_paragraph(head.opening)
    if not head.present:
        what = "no head (`---`) at the start"
    else:
        what = "no `description`"
    instead = "its first paragraph is used" if paragraph else "a model can't know when to use it"
    problems.append(
        Problem(
            "warning",
            "no-description",
            1,
            f"{what}; {instead}",
            "add `description:` with what it does and when",
        )
    )
    return _visible(paragraph, "description", problems), flags | NO_DESCRIPTION


def _visible(text: str, field: str, problems: list[Problem]) -> str:
    if text.isascii() and text.isprintable():
        return text
    hidden = find_hidden(text)
    if not hidden:
        return text
    what = f"`{field}` has hidden characters, left out: {code_points(hidden)}"
    problems.append(Problem("warning", "hidden-characters", 2, what, "remove them", field))
    return remove_hidden(text)


def _flags(metadata: Metadata, problems: list[Problem]) -> int:
    flags = 0
    if boolean(metadata, "disable-model-invocation", False, problems):
        flags |= NO_MODEL
    if not boolean(metadata, "user-invocable", True, problems):
        flags |= NO_USER
    if metadata.get("activation") == "required":
        flags |= REQUIRED
    if metadata.get("paths"):
        flags |= HAS_PATHS
    return flags


def boolean(metadata: Metadata, key: str, default: bool, problems: list[Problem]) -> bool:
    value = metadata.get(key, metadata.get(key.replace("-", "_")) if "-" in key else None)
    if value is None or value in _NOTHING:
        return default
    word = value.strip().lower() if isinstance(value, str) else ""
    if word in _TRUE:
        return True
    if word in _FALSE:
        return False
    what = f"`{key}` is neither true nor false; taken as {str(default).lower()}"
    fix = f"write `{key}: true` or `{key}: false`"
    problems.append(Problem("warning", "not-a-boolean", 2, what, fix, key))
    return default


def text_of(metadata: Metadata, key: str) -> str:
    value = metadata.get(key)
    if value is None:
        return ""
    return as_text(value).strip()


def _extras(metadata: Metadata, problems: list[Problem]) -> tuple[str, str]:
    """When to use it and the hint for its arguments, which few have."""
    when = next((text for key in _WHEN if (text := text_of(metadata, key))), "")
    hint = next((value for key in _HINT if (value := metadata.get(key))), "")
    return _visible(when, _WHEN[0], problems), _visible(_hint(hint), _HINT[0], problems)


def as_text(value: Value) -> str:
    """One text for whatever YAML made of it."""
    if isinstance(value, str):
        return "" if value in _NOTHING else value
    if isinstance(value, list):
        return " ".join(as_text(item) for item in value)
    return " ".join(f"{key}: {as_text(item)}" for key, item in value.items())


def _hint(value: Value) -> str:
    """`[file]` is a list to YAML and a hint to a person."""
    if isinstance(value, list):
        return "[" + ", ".join(as_text(item) for item in value) + "]"
    return as_text(value).strip()


def string_list(value: Value | None) -> tuple[str, ...]:
    """A list, or a comma-separated string; nothing else."""
    if isinstance(value, str):
        parts = value.strip("[] ").split(",") if "," in value else value.strip("[] ").split()
        return tuple(part.strip(" '\"") for part in parts if part.strip(" '\""))
    if isinstance(value, list):
        return tuple(text for item in value if (text := as_text(item).strip()))
    return ()
