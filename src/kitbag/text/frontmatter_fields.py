"""Parses the fields of frontmatter text, however malformed: as YAML, after small repairs, or each field on its own.

Used by frontmatter, and by readers of whole YAML files. Tries plain_frontmatter first, then safe_yaml. Reports what
was recovered and how as problems.
"""

import contextlib
import re

from kitbag.text.plain_frontmatter import Metadata, parse_plain_frontmatter
from kitbag.text.safe_yaml import YamlError, YamlProblem, parse_yaml
from kitbag.text.source_files import FileProblem

KEY_LINE = re.compile(r"([A-Za-z_][\w-]*):(?=\s|$)")
SQUEEZED_KEY = r"([A-Za-z_][\w-]*)(?::(?!//)(?=\S)|\uff1a| *=(?= ))"
"""A key without a space after its colon, with a full-width colon, or with `=`. `http://` is not one."""
_TAB_INDENT = r"(?m)^ *\t[ \t]*"
_SQUEEZED_ITEM = r"([ \t]*)-(?=[A-Za-z_@*\"'])"
_BLOCK_INDICATOR = r"[|>][-+0-9]*[ \t]*\n"
_TRANSCRIPT_LABELS = frozenset(
    ("user", "assistant", "human", "system", "context", "commentary", "example", "examples", "note")
)
_PROSE_FIELDS = frozenset(
    ("description", "when_to_use", "when-to-use", "whenToUse", "prompt", "system", "instructions")
)
_MAX_UNKNOWN_FIELDS = 200


def parse_metadata(text: str, first_line: int, known_fields: frozenset[str], problems: list[FileProblem]) -> Metadata:
    """Parses the fields of frontmatter text; appends to `problems`."""
    plain = parse_plain_frontmatter(text)
    if plain is not None:
        return plain
    try:
        value, yaml_problems = parse_yaml(text + "\n")
        error = None
    except YamlError as raised:
        value, yaml_problems, error = "", [], raised.problem
    if not isinstance(value, dict):
        repaired = _repair_spacing(text, first_line, known_fields, problems)
        if repaired != text:
            return parse_metadata(repaired, first_line, known_fields, problems)
    if error is not None:
        return _recover_fields(error, text, first_line, known_fields, problems)
    if yaml_problems and yaml_problems[-1].code == "yaml-documents":
        # A user means fields after YAML's own document marker as fields too; a tool list there must not be lost.
        return _recover_fields(yaml_problems[-1], text, first_line, known_fields, problems)
    problems += [FileProblem("warning", o.code, first_line + o.line, o.problem, o.fix) for o in yaml_problems]
    if isinstance(value, dict):
        return value
    if not value:
        return {}
    problem = "the frontmatter is not a list of `key: value` lines"
    problems.append(FileProblem("warning", "head-not-fields", first_line, problem, "add `name:` and `description:`"))
    return _parse_fields_separately(text, known_fields)


def _repair_spacing(text: str, first_line: int, known_fields: frozenset[str], problems: list[FileProblem]) -> str:
    """Adds the space after the colon of a known field, and indents with spaces instead of tabs."""
    lines = text.split("\n")
    squeezed = {at: match for at, line in enumerate(lines) if (match := re.match(SQUEEZED_KEY, line))}
    if any(match[1] in known_fields for match in squeezed.values()):
        for at, match in squeezed.items():
            key, rest = match[1], lines[at][match.end() :].lstrip(" \t=")
            if key in known_fields or key[0].islower():
                lines[at] = f"{key}: {rest}"
                problem = f"no `: ` after `{key}`; read as a field"
                fix = f"write `{key}: ` with a space"
                problems.append(FileProblem("warning", "yaml-recovered", first_line + at, problem, fix))
    _separate_dashes(lines, first_line, problems)
    _dedent_fields(lines, first_line, known_fields, problems)
    tab = re.search(_TAB_INDENT, "\n".join(lines))
    if tab:
        lines = [re.sub(_TAB_INDENT, lambda indent: indent[0].replace("\t", "  "), line) for line in lines]
        line = first_line + text.count("\n", 0, tab.start())
        problem = "not valid YAML: indented with a tab; read as spaces"
        problems.append(FileProblem("warning", "yaml-recovered", line, problem, "indent with spaces, not tabs"))
    return "\n".join(lines)


def _separate_dashes(lines: list[str], first_line: int, problems: list[FileProblem]) -> None:
    """Adds the space after the dash of `-item` where the line above is an item or a key that ends there."""
    above = ""
    for at, line in enumerate(lines):
        match = re.match(_SQUEEZED_ITEM, line)
        indent = match[1] if match else ""
        if match and (above.startswith(f"{indent}- ") or (above[-1:] == ":" and KEY_LINE.match(above))):
            lines[at] = f"{indent}- {line[match.end() :]}"
            problem = f"no space after `-` in `{line.strip()[:20]}`; read as an item of a list"
            problems.append(
                FileProblem("warning", "yaml-recovered", first_line + at, problem, "write `- ` with a space")
            )
        if lines[at].strip():
            above = lines[at].rstrip()


def _dedent_fields(
    lines: list[str], first_line: int, known_fields: frozenset[str], problems: list[FileProblem]
) -> None:
    """Moves indented known fields to the left where the field above is complete: its value is on its own line and is
    no prose that could continue. Fields after it with the same indentation move as well."""
    dedented = ""
    for at in range(1, len(lines)):
        field = lines[at].lstrip(" \t")
        indent = lines[at][: len(lines[at]) - len(field)]
        match = KEY_LINE.match(field)
        if not indent or not match or match[1] not in known_fields:
            dedented = dedented if indent else ""
            continue
        key, _, value = lines[at - 1].partition(":")
        is_complete = (
            key in known_fields and key not in _PROSE_FIELDS and value.strip() and value.strip()[0] not in "|>"
        )
        if indent != dedented and not is_complete:
            continue
        if not dedented:
            problem = f"not valid YAML: `{match[1]}` is indented; read as a field"
            problems.append(
                FileProblem("warning", "yaml-recovered", first_line + at, problem, "remove the indentation")
            )
        dedented = indent
        lines[at] = field


def _recover_fields(
    reason: YamlProblem, text: str, first_line: int, known_fields: frozenset[str], problems: list[FileProblem]
) -> Metadata:
    metadata = _parse_fields_separately(text, known_fields)
    line = first_line + reason.line
    if not metadata:
        problems.append(FileProblem("error", reason.code, line, reason.problem, reason.fix))
        return metadata
    key, problem = _explain_yaml_problem(reason, text.split("\n"))
    fix = reason.fix
    if reason.code == "yaml-invalid":
        fix = "put the value in double quotes, or write it as an indented block after `key: |`"
    # `argument-hint: [a] [b]` is common, and recovering it loses nothing.
    severity = "info" if key == "argument-hint" else "warning"
    problems.append(FileProblem(severity, "yaml-recovered", line, f"{problem}; parsed field by field instead", fix))
    return metadata


def _explain_yaml_problem(reason: YamlProblem, lines: list[str]) -> tuple[str, str]:
    """The field that made YAML fail, and the problem in plain words."""
    above = (match[1] for line in reversed(lines[: reason.line + 1]) if (match := KEY_LINE.match(line)))
    key = next(above, "")
    if key and "mapping values are not allowed" in reason.problem:
        return key, f"not valid YAML: the value of `{key}` contains `: `"
    if key and "alias" in reason.problem and reason.code == "yaml-invalid":
        return key, f"not valid YAML: the value of `{key}` starts with `*` and needs quotes"
    return key, reason.problem


def _parse_fields_separately(text: str, known_fields: frozenset[str]) -> Metadata:
    """Splits the text at lines that start a field and parses each field alone. After prose, only known fields count."""
    metadata: Metadata = {}
    key, start = "", 0
    lines = text.split("\n")
    before_fields: list[bool] = []
    for at, line in enumerate([*lines, "end:"]):
        match = KEY_LINE.match(line)
        if not match:
            continue
        if at < len(lines) and match[1] not in known_fields:
            if len(metadata) >= _MAX_UNKNOWN_FIELDS:
                continue
            if key in _PROSE_FIELDS:
                before_fields = before_fields or _possible_field_starts(lines, known_fields)
                if not before_fields[at]:
                    continue
        if key:
            for field, value in _parse_field(key, lines[start:at]).items():
                metadata.setdefault(field, value)
        key, start = match[1], at
    return metadata


def _possible_field_starts(lines: list[str], known_fields: frozenset[str]) -> list[bool]:
    """For each line, whether an unknown field may start there after prose: only if no prose follows it.

    Goes backwards, so that each line is examined once.
    """
    possible = [True] * (len(lines) + 1)
    for at in range(len(lines) - 1, -1, -1):
        match = KEY_LINE.match(lines[at])
        if match and match[1] in known_fields:
            continue
        is_field = match and match[1].islower() and match[1] not in _TRANSCRIPT_LABELS
        if is_field or lines[at][:1] in (" ", "\t"):  # an indented line belongs to the one above it
            possible[at] = possible[at + 1]
        else:
            possible[at] = not lines[at].strip()
    return possible


def _parse_field(key: str, lines: list[str]) -> Metadata:
    """Parses one field; for prose fields, also the unknown fields after it."""
    text = "\n".join(lines)
    try:
        value, _ = parse_yaml(text + "\n")
    except YamlError:
        pass
    else:
        if isinstance(value, dict) and next(iter(value), None) == key and not any(k[:1].isupper() for k in value):
            return value
    return {key: _literal_value(text[len(key) + 1 :])}


def _literal_value(text: str) -> str:
    """The value a user meant by text that YAML can't parse."""
    raw = "\n".join(line for line in text.split("\n") if line[:2] not in ("#", "# ")).strip()
    if re.match(_BLOCK_INDICATOR, raw):
        import textwrap

        raw = textwrap.dedent(raw.partition("\n")[2]).strip()
    elif len(raw) > 1 and raw[0] == raw[-1] and raw[0] in "\"'" and not _closes_early(raw):
        if raw[0] == '"' and "\\u" in raw:
            import json

            with contextlib.suppress(ValueError):  # from a JSON encoder: an emoji is a surrogate pair of escapes
                return str(json.loads(raw, strict=False))
        raw = raw[1:-1]
    return raw.replace("\\n", "\n")


def _closes_early(raw: str) -> bool:
    """True for `"a" or "b"`, which is not one quoted string; false for `"say "hi" now"`, which is."""
    at = raw.index(raw[0], 1)
    return at < len(raw) - 1 and not raw[at - 1].isspace() and not raw[at + 1].isalnum()
