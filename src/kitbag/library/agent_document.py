"""An agent file as fields, whatever its format: Markdown with frontmatter, YAML, TOML or JSON.

Used by agents and agent_servers. `take` reads a field by any of its spellings; problems become diagnostics
with a line number, for which the file is read again.
"""

import os
import re
from typing import Final, NamedTuple, cast

from kitbag.errors import Diagnostic, Severity
from kitbag.library.dialects.field_names import AGENT_FIELDS, AGENT_SPELLINGS, IGNORED_AGENT_FIELDS, KNOWN_FIELDS
from kitbag.library.dialects.field_spelling import FieldSpelling
from kitbag.library.skills import to_text
from kitbag.text.frontmatter import first_paragraph, key_line, normalize_key, read_body, read_frontmatter
from kitbag.text.frontmatter_fences import split_frontmatter
from kitbag.text.frontmatter_fields import parse_metadata
from kitbag.text.hidden_characters import find_disguises, find_hidden, format_code_points, remove_hidden
from kitbag.text.plain_frontmatter import Metadata, YamlValue
from kitbag.text.source_files import FileProblem, FileStamp, PathBoundary, SourceError, read_text

FILE_LIMIT = 256 * 1024
_MAX_KEY_DEPTH = 40
_TRUE = frozenset(("true", "yes", "on", "1"))
_FALSE = frozenset(("false", "no", "off", "0"))
_BLANK = frozenset(("", "null", "~"))
_PARSE_PROBLEM_CODES = frozenset(
    (
        "yaml-invalid",
        "yaml-limit",
        "yaml-recovered",
        "head-unclosed",
        "head-fence",
        "head-too-long",
        "head-not-fields",
        "file-too-large",
    )
)
_REMOTE_FIELDS = frozenset(("agent_card_url", "agent_card_json"))
_TOOLS_KEY = re.compile(r"(?i)(?<![\w-])([\w-]{0,20}tools|permissions?)[\"']?\s*[:=]")
_KEY_END = re.compile(r"[={},]")


_NORMALIZED_SPELLINGS: Final = {
    field: tuple(dict.fromkeys(map(normalize_key, spellings))) for field, spellings in AGENT_SPELLINGS.items()
}


_SPELLING: Final = FieldSpelling(
    AGENT_SPELLINGS,
    IGNORED_AGENT_FIELDS,
    (
        "tools",
        "denied",
        "permission_mode",
        "permission",
        "readonly",
        "sandbox_mode",
        "disabled",
        "disable_model_invocation",
        "user_invocable",
        "mcp_servers",
        "isolation",
        "max_turns",
    ),
)


class TakenField(NamedTuple):
    key: str
    """As spelled in the file; empty if the field is missing."""
    value: YamlValue | None


_MISSING_FIELD: Final = TakenField("", None)


class AgentDocument:
    """The fields of a file, and the diagnostics about them."""

    __slots__ = (
        "_frontmatter",
        "_keys",
        "body_start",
        "boundary",
        "diagnostics",
        "has_frontmatter",
        "metadata",
        "path",
        "stamp",
        "used",
    )

    def __init__(
        self,
        path: str,
        boundary: PathBoundary | None,
        metadata: Metadata,
        stamp: FileStamp,
        present: bool,
        opening: str,
    ) -> None:
        self.path = path
        self.boundary = boundary
        self.metadata = metadata
        self.stamp = stamp
        self.has_frontmatter = present
        self.body_start = opening
        self.diagnostics: list[Diagnostic] = []
        self.used: set[str] = set()
        self._frontmatter: tuple[str, int] | None = None
        self._keys: dict[str, list[str]] = {}
        for key in sorted(metadata, key=lambda key: key not in AGENT_FIELDS):  # `name` before `Name`
            self._keys.setdefault(normalize_key(key), []).append(key)

    @property
    def is_data(self) -> bool:
        return is_data_file(self.path)

    def add_diagnostic(self, severity: Severity, code: str, key: str, problem: str, fix: str) -> None:
        self.diagnostics.append(
            Diagnostic(severity=severity, code=code, file=self.path, line=self.find_line(key), problem=problem, fix=fix)
        )

    def add_problems(self, problems: "list[FileProblem] | tuple[FileProblem, ...]", key: str = "") -> None:
        """Adds problems that lack a file, and possibly a line."""
        for problem in problems:
            line = problem.line or self.find_line(key)
            severity = cast("Severity", problem.severity)
            self.diagnostics.append(
                Diagnostic(
                    severity=severity,
                    code=problem.code,
                    file=self.path,
                    line=line,
                    problem=problem.problem,
                    fix=problem.fix,
                )
            )

    def frontmatter(self) -> tuple[str, int]:
        """The text that contains the fields, and its first line number."""
        if self._frontmatter is None:
            try:
                text = read_text(self.path, self.boundary)[0]
            except SourceError:
                text = ""
            parts = split_frontmatter(text)
            self._frontmatter = (text, 1) if self.is_data else (parts.frontmatter or "", parts.frontmatter_line)
        return self._frontmatter

    def find_line(self, key: str) -> int:
        """The line of a field; 1 if it can't be found."""
        text, first = self.frontmatter()
        if not self.is_data:
            return key_line(text, key, first)
        # In TOML also `key.more = 1`, `[key]`, `[key.more]` and `[[key.more]]`.
        before, after = (r"\s*\[*\s*", r"[=.\]]") if self.path.lower().endswith(".toml") else (r"\s*", "[:=]")
        field = re.compile(rf"{before}[\"']?{re.escape(key)}[\"']?\s*{after}")
        lines = enumerate(text.split("\n"), first)
        return next((number for number, line in lines if field.match(line)), 1) if key else 1

    def take(self, field: str) -> TakenField:
        """The first spelling present; the others count as used too."""
        fields = self.take_all(field)
        return fields[0] if fields else _MISSING_FIELD

    def take_all(self, field: str) -> list[TakenField]:
        keys = [key for spelling in _NORMALIZED_SPELLINGS[field] for key in self._keys.get(spelling, ())]
        self.used.update(keys)
        return [TakenField(key, self.metadata[key]) for key in keys]

    def take_flag(self, field: str, default: bool, if_unreadable: bool | None = None) -> bool:
        """`if_unreadable`: the result for an invalid value, if not the default."""
        key, value = self.take(field)
        text = value.strip().lower() if isinstance(value, str) else "?"
        if value is None or text in _BLANK:
            return default
        if text in _TRUE or text in _FALSE:
            return text in _TRUE
        result = default if if_unreadable is None else if_unreadable
        problem = f"`{key}` must be true or false; {str(result).lower()} is used"
        self.add_diagnostic("warning", "not-a-boolean", key, problem, f"write `{key}: true` or `{key}: false`")
        return result

    def take_choice(self, field: str, choices: frozenset[str]) -> str:
        """One of the choices, or empty."""
        key, value = self.take(field)
        choice = value.strip().lower() if isinstance(value, str) else "?"
        if value is None or choice in choices or choice in _BLANK:
            return choice if choice in choices else ""
        problem = f"`{key}` is not one of {', '.join(sorted(choices))}; ignored"
        self.add_diagnostic("warning", f"{field}-unknown", key, problem, "fix or remove the line")
        return ""

    def take_text(self, field: str) -> str:
        """Text to display to users or models: hidden characters are removed and reported."""
        key, value = self.take(field)
        return self.strip_hidden(to_text(value).strip(), key) if value else ""

    def strip_hidden(self, text: str, key: str) -> str:
        if not find_hidden(text):
            return text
        if hidden := find_disguises(text):
            problem = f"`{key}` contains hidden characters, removed: {format_code_points(hidden)}"
            self.add_diagnostic("warning", "hidden-characters", key, problem, "remove them")
        return remove_hidden(text).strip()

    def unused_fields(self) -> Metadata:
        """The fields that nothing took; reports those that were meant as others."""
        for key in self.metadata:
            if key not in self.used and (problem := _SPELLING.near_miss(key)):
                self.add_diagnostic("warning", problem.code, key, problem.problem, problem.fix)
        unused = {key: value for key, value in self.metadata.items() if key not in self.used}
        for problem in _SPELLING.misplaced(unused):
            self.add_diagnostic("warning", problem.code, problem.field, problem.problem, problem.fix)
        return unused

    def first_paragraph(self) -> str:
        """The first paragraph of the body, which may start after the part read with the frontmatter."""
        if self.is_data:
            return first_paragraph(to_text(self.take("prompt").value or ""))
        try:
            return first_paragraph(self.body_start) or first_paragraph(read_body(self.path, self.boundary)[0])
        except SourceError:
            return ""

    def is_remote(self) -> bool:
        """A remote agent with an A2A card (Gemini)."""
        return _is_remote(self.metadata)

    def is_remote_list(self) -> bool:
        """The frontmatter is a list of remote agents, which Gemini allows; removes the diagnostic about it."""
        if not any(diagnostic.code == "head-not-fields" for diagnostic in self.diagnostics):
            return False
        from kitbag.text.safe_yaml import YamlError, parse_yaml

        try:
            value, _ = parse_yaml(self.frontmatter()[0] + "\n")
        except YamlError:
            return False
        if not isinstance(value, list) or not all(isinstance(item, dict) and _is_remote(item) for item in value):
            return False
        self.diagnostics[:] = [diagnostic for diagnostic in self.diagnostics if diagnostic.code != "head-not-fields"]
        return True

    def has_unreadable_tools(self) -> bool:
        """The file has parse problems and mentions tools that were not parsed."""
        if not any(diagnostic.code in _PARSE_PROBLEM_CODES for diagnostic in self.diagnostics):
            return False
        try:
            text, _, problems = read_text(self.path, self.boundary)
        except SourceError:
            return True
        frontmatter = text if self.is_data else split_frontmatter(text).frontmatter
        codes = {diagnostic.code for diagnostic in self.diagnostics}
        mentioned = _TOOLS_KEY.findall(text if "head-unclosed" in codes or frontmatter is None else frontmatter)
        if "head-fence" in codes:  # a field after a line that was read as the closing fence
            mentioned += re.findall(rf"(?m)^{_TOOLS_KEY.pattern.removeprefix('(?i)')}", text)
        return bool(problems) or any(normalize_key(key) not in self._keys for key in mentioned)


def _is_remote(fields: Metadata) -> bool:
    return fields.get("kind") == "remote" or not _REMOTE_FIELDS.isdisjoint(fields)


def is_data_file(path: str) -> bool:
    """A data file, not Markdown: its prompt is a field."""
    return path.lower().endswith((".yaml", ".yml", ".toml", ".json"))


def read_document(path: str, boundary: PathBoundary | None) -> tuple[AgentDocument | None, list[Diagnostic]]:
    """None, with diagnostics, if the file is unreadable."""
    try:
        if is_data_file(path):
            text, stamp, problems = read_text(path, boundary, FILE_LIMIT)
            metadata = _DATA_PARSERS[os.path.splitext(path)[1].lower()](text, problems)
            document = AgentDocument(
                path=path, boundary=boundary, metadata=metadata, stamp=stamp, present=True, opening=""
            )
        else:
            stamp, frontmatter = read_frontmatter(path, KNOWN_FIELDS, boundary)
            problems = frontmatter.problems
            document = AgentDocument(
                path=path,
                boundary=boundary,
                metadata=frontmatter.metadata,
                stamp=stamp,
                present=frontmatter.present,
                opening=frontmatter.body_prefix,
            )
    except SourceError as error:
        return None, [
            Diagnostic(severity="error", code=error.code, file=path, line=0, problem=error.problem, fix=error.fix)
        ]
    document.add_problems(problems)
    return document, document.diagnostics


def _parse_yaml(text: str, problems: list[FileProblem]) -> Metadata:
    return parse_metadata(text, 1, KNOWN_FIELDS, problems)


def _parse_toml(text: str, problems: list[FileProblem]) -> Metadata:
    import tomllib

    for number, line in enumerate(text.split("\n"), 1):
        # tomllib's time and memory are quadratic in the number of key parts.
        keys = [line] if line.lstrip().startswith("[") else _KEY_END.split(line)[:-1]
        if len(line) > _MAX_KEY_DEPTH and any(key.count(".") > _MAX_KEY_DEPTH for key in keys):
            problem = f"key with more than {_MAX_KEY_DEPTH} parts"
            problems.append(
                FileProblem(severity="error", code="toml-limit", line=number, problem=problem, fix="shorten it")
            )
            return {}
    try:
        value: object = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        return _report_parse_error("TOML", error, problems)
    return _to_metadata(value, problems)


def _parse_json(text: str, problems: list[FileProblem]) -> Metadata:
    import json

    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError) as error:
        return _report_parse_error("JSON", error, problems)
    return _to_metadata(value, problems)


_DATA_PARSERS: Final = {".yaml": _parse_yaml, ".yml": _parse_yaml, ".toml": _parse_toml, ".json": _parse_json}


def _report_parse_error(language: str, error: Exception, problems: list[FileProblem]) -> Metadata:
    match = re.search(r"line (\d+)", str(error))
    problem = f"not valid {language}: {str(error)[:200] or type(error).__name__}"
    fix = f"fix the {language} at that line"
    problems.append(
        FileProblem(
            severity="error",
            code=f"{language.lower()}-invalid",
            line=int(match[1]) if match else 1,
            problem=problem,
            fix=fix,
        )
    )
    return {}


def _to_metadata(value: object, problems: list[FileProblem]) -> Metadata:
    converted = _to_value(value, 0)
    if isinstance(converted, dict):
        return converted
    problem = "the file is not a mapping of fields"
    problems.append(
        FileProblem(
            severity="error",
            code="head-not-fields",
            line=1,
            problem=problem,
            fix="add `name`, `description` and the prompt",
        )
    )
    return {}


def _to_value(value: object, depth: int) -> YamlValue:
    """Converts all scalars to strings, as for YAML."""
    if isinstance(value, str):
        return value
    if value is None or depth > _MAX_KEY_DEPTH:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return [_to_value(item, depth + 1) for item in cast("list[object]", value)]
    if isinstance(value, dict):
        return {str(key): _to_value(item, depth + 1) for key, item in cast("dict[object, object]", value).items()}
    return str(value)
