"""One agent file as fields, whatever its format: Markdown with a head, YAML, TOML or JSON.

Used by agents. Fields are taken out by any of their spellings; what is wrong with one is noted with
the line it stands on, for which the file is read again.
"""

import os
import re
from typing import Final, NamedTuple, cast

from kitbag.errors import Diagnostic, Severity
from kitbag.library.dialects.field_names import AGENT_FIELDS, AGENT_SPELLINGS, KNOWN_FIELDS
from kitbag.library.skills import as_text
from kitbag.text.frontmatter import first_paragraph, line_of, read_body, read_head, read_metadata, split
from kitbag.text.hidden_characters import code_points, find_hidden, remove_hidden
from kitbag.text.plain_frontmatter import Metadata, Value
from kitbag.text.source_files import Boundary, Problem, SourceError, Stamp, read_text

FILE_LIMIT = 256 * 1024
_MAX_DEPTH = 40
_TRUE = frozenset(("true", "yes", "on", "1"))
_FALSE = frozenset(("false", "no", "off", "0"))
_BLANK = frozenset(("", "null", "~"))
_DOUBTFUL = frozenset(
    (
        "yaml-invalid",
        "yaml-limit",
        "yaml-recovered",
        "head-unclosed",
        "head-too-long",
        "head-not-fields",
        "file-too-large",
    )
)
_REMOTE = frozenset(("agent_card_url", "agent_card_json"))
_SPEAKS_OF_TOOLS = re.compile(r"(?i)(?<![\w-])([\w-]{0,20}tools|permissions?)[\"']?\s*[:=]")
_KEY_ENDS = re.compile(r"[={},]")


def _collapse(key: str) -> str:
    """One form for `max-turns`, `max_turns` and `maxTurns`."""
    return key.lower().replace("-", "").replace("_", "")


_COLLAPSED: Final = {
    field: tuple(dict.fromkeys(map(_collapse, spellings))) for field, spellings in AGENT_SPELLINGS.items()
}


class Taken(NamedTuple):
    key: str
    """As the file spells it; empty when the file does not have it."""
    value: Value | None


_ABSENT: Final = Taken("", None)


class Document:
    """The fields of a file, and a place for what is wrong with them."""

    __slots__ = ("_head", "_keys", "boundary", "metadata", "notes", "opening", "path", "present", "stamp", "used")

    def __init__(
        self, path: str, boundary: Boundary | None, metadata: Metadata, stamp: Stamp, present: bool, opening: str
    ) -> None:
        self.path = path
        self.boundary = boundary
        self.metadata = metadata
        self.stamp = stamp
        self.present = present
        self.opening = opening
        self.notes: list[Diagnostic] = []
        self.used: set[str] = set()
        self._head: tuple[str, int] | None = None
        self._keys: dict[str, list[str]] = {}
        for key in sorted(metadata, key=lambda key: key not in AGENT_FIELDS):  # `name` before `Name`
            self._keys.setdefault(_collapse(key), []).append(key)

    @property
    def is_data(self) -> bool:
        return is_data_file(self.path)

    def note(self, severity: Severity, code: str, key: str, problem: str, fix: str) -> None:
        self.notes.append(Diagnostic(severity, code, self.path, self.line(key), problem, fix))

    def adopt(self, problems: "list[Problem] | tuple[Problem, ...]", key: str = "") -> None:
        """Problems that do not know their file, and perhaps not their line."""
        for found in problems:
            line = found.line or self.line(key)
            severity = cast("Severity", found.severity)
            self.notes.append(Diagnostic(severity, found.code, self.path, line, found.problem, found.fix))

    def head(self) -> tuple[str, int]:
        """The text with the fields, and the line it starts on."""
        if self._head is None:
            try:
                text = read_text(self.path, self.boundary)[0]
            except SourceError:
                text = ""
            parts = split(text)
            self._head = (text, 1) if self.is_data else (parts.head or "", parts.head_line)
        return self._head

    def line(self, key: str) -> int:
        """Where a field stands, as well as can be told."""
        head, first = self.head()
        if not self.is_data:
            return line_of(head, key, first)
        # In TOML also `key.more = 1`, `[key]`, `[key.more]` and `[[key.more]]`.
        before, after = (r"\s*\[*\s*", r"[=.\]]") if self.path.lower().endswith(".toml") else (r"\s*", "[:=]")
        field = re.compile(rf"{before}[\"']?{re.escape(key)}[\"']?\s*{after}")
        lines = enumerate(head.split("\n"), first)
        return next((at for at, line in lines if field.match(line)), 1) if key else 1

    def take(self, field: str) -> Taken:
        """The first spelling that is there; the others count as used too."""
        found = self.take_all(field)
        return found[0] if found else _ABSENT

    def take_all(self, field: str) -> list[Taken]:
        keys = [key for spelling in _COLLAPSED[field] for key in self._keys.get(spelling, ())]
        self.used.update(keys)
        return [Taken(key, self.metadata[key]) for key in keys]

    def flag(self, field: str, default: bool, doubt: bool | None = None) -> bool:
        """`doubt`: what an unreadable value counts as, if not the default."""
        key, value = self.take(field)
        word = value.strip().lower() if isinstance(value, str) else "?"
        if value is None or word in _BLANK:
            return default
        if word in _TRUE or word in _FALSE:
            return word in _TRUE
        result = default if doubt is None else doubt
        what = f"`{key}` is neither true nor false; taken as {str(result).lower()}"
        self.note("warning", "not-a-boolean", key, what, f"write `{key}: true` or `{key}: false`")
        return result

    def word(self, field: str, known: frozenset[str]) -> str:
        """One of the known words, or none."""
        key, value = self.take(field)
        word = value.strip().lower() if isinstance(value, str) else "?"
        if value is None or word in known or word in _BLANK:
            return word if word in known else ""
        what = f"`{key}` is not one of {', '.join(sorted(known))}; ignored"
        self.note("warning", f"{field}-unknown", key, what, "correct it, or remove the line")
        return ""

    def text(self, field: str) -> str:
        """What a person or a model will be shown: hidden characters are left out, and named."""
        key, value = self.take(field)
        return self.visible(as_text(value).strip(), key) if value else ""

    def visible(self, text: str, key: str) -> str:
        hidden = find_hidden(text)
        if not hidden:
            return text
        what = f"`{key}` has hidden characters, left out: {code_points(hidden)}"
        self.note("warning", "hidden-characters", key, what, "remove them")
        return remove_hidden(text).strip()

    def extra(self) -> Metadata:
        return {key: value for key, value in self.metadata.items() if key not in self.used}

    def first_paragraph(self) -> str:
        """Of the body; it may lie beyond what was read with the head."""
        if self.is_data:
            return first_paragraph(as_text(self.take("prompt").value or ""))
        try:
            return first_paragraph(self.opening) or first_paragraph(read_body(self.path, self.boundary)[0])
        except SourceError:
            return ""

    def is_remote(self) -> bool:
        """An agent that runs elsewhere and is called by its A2A card (Gemini)."""
        return _is_remote(self.metadata)

    def lists_remotes(self) -> bool:
        """The head is a list of such agents, which Gemini allows; no note about the head is left then."""
        if not any(note.code == "head-not-fields" for note in self.notes):
            return False
        from kitbag.text.safe_yaml import YamlError, read_yaml

        try:
            value, _ = read_yaml(self.head()[0] + "\n")
        except YamlError:
            return False
        if not isinstance(value, list) or not all(isinstance(item, dict) and _is_remote(item) for item in value):
            return False
        self.notes[:] = [note for note in self.notes if note.code != "head-not-fields"]
        return True

    def lost_tools(self) -> bool:
        """The file was not read as it was meant, says something about tools, and none were found."""
        if not any(note.code in _DOUBTFUL for note in self.notes):
            return False
        try:
            text, _, problems = read_text(self.path, self.boundary)
        except SourceError:
            return True
        head = text if self.is_data else split(text).head
        unclosed = any(note.code == "head-unclosed" for note in self.notes)
        spoken_of = _SPEAKS_OF_TOOLS.findall(text if unclosed or head is None else head)
        return bool(problems) or any(_collapse(key) not in self._keys for key in spoken_of)


def _is_remote(fields: Metadata) -> bool:
    return fields.get("kind") == "remote" or not _REMOTE.isdisjoint(fields)


def is_data_file(path: str) -> bool:
    """No Markdown: its prompt is one of its fields."""
    return path.lower().endswith((".yaml", ".yml", ".toml", ".json"))


def read_document(path: str, boundary: Boundary | None) -> tuple[Document | None, list[Diagnostic]]:
    """None with the reason when nothing can be made of the file."""
    try:
        if is_data_file(path):
            text, stamp, problems = read_text(path, boundary, FILE_LIMIT)
            metadata = _DATA_READERS[os.path.splitext(path)[1].lower()](text, problems)
            document = Document(path, boundary, metadata, stamp, True, "")
        else:
            stamp, head = read_head(path, KNOWN_FIELDS, boundary)
            problems = head.problems
            document = Document(path, boundary, head.metadata, stamp, head.present, head.opening)
    except SourceError as error:
        return None, [Diagnostic("error", error.code, path, 0, error.problem, error.fix)]
    document.adopt(problems)
    return document, document.notes


def _from_yaml(text: str, problems: list[Problem]) -> Metadata:
    return read_metadata(text, 1, KNOWN_FIELDS, problems)


def _from_toml(text: str, problems: list[Problem]) -> Metadata:
    import tomllib

    for at, line in enumerate(text.split("\n"), 1):
        # tomllib's time and memory grow with the square of the parts of a key.
        keys = [line] if line.lstrip().startswith("[") else _KEY_ENDS.split(line)[:-1]
        if len(line) > _MAX_DEPTH and any(key.count(".") > _MAX_DEPTH for key in keys):
            what = f"a key of more than {_MAX_DEPTH} parts"
            problems.append(Problem("error", "toml-limit", at, what, "make it shorter"))
            return {}
    try:
        value: object = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        return _unparsable("TOML", error, problems)
    return _as_metadata(value, problems)


def _from_json(text: str, problems: list[Problem]) -> Metadata:
    import json

    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError) as error:
        return _unparsable("JSON", error, problems)
    return _as_metadata(value, problems)


_DATA_READERS: Final = {".yaml": _from_yaml, ".yml": _from_yaml, ".toml": _from_toml, ".json": _from_json}


def _unparsable(language: str, error: Exception, problems: list[Problem]) -> Metadata:
    place = re.search(r"line (\d+)", str(error))
    what = f"not valid {language}: {str(error)[:200] or type(error).__name__}"
    fix = f"correct the {language} at that place"
    problems.append(Problem("error", f"{language.lower()}-invalid", int(place[1]) if place else 1, what, fix))
    return {}


def _as_metadata(value: object, problems: list[Problem]) -> Metadata:
    plain = _as_value(value, 0)
    if isinstance(plain, dict):
        return plain
    what = "the file is not a map of fields"
    problems.append(Problem("error", "head-not-fields", 1, what, "write `name`, `description` and the prompt"))
    return {}


def _as_value(value: object, depth: int) -> Value:
    """All scalars as strings, as YAML is read: one form for the readers above."""
    if isinstance(value, str):
        return value
    if value is None or depth > _MAX_DEPTH:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return [_as_value(item, depth + 1) for item in cast("list[object]", value)]
    if isinstance(value, dict):
        return {str(key): _as_value(item, depth + 1) for key, item in cast("dict[object, object]", value).items()}
    return str(value)
