"""Splits a file into frontmatter (`---`, YAML, `---`) and body, and parses the frontmatter, however malformed.

Used by every loader in `library`. Tries plain_frontmatter first, then safe_yaml, then each known field on its own.
Never raises for content; reports what was recovered and how as a list of problems.
"""

import contextlib
import os
import re
from typing import NamedTuple

from kitbag.text.plain_frontmatter import Metadata, parse_plain_frontmatter
from kitbag.text.safe_yaml import YamlError, YamlProblem, parse_yaml
from kitbag.text.source_files import (
    FileProblem,
    FileStamp,
    PathBoundary,
    SourceError,
    decode_text,
    file_stamp,
    open_regular_file,
    read_text,
    source_error_from_os,
)

FRONTMATTER_LIMIT = 256 * 1024
_CHUNK = 4096
_OPENING_DASHES = re.compile(rb"-{3,}[^\r\n]*")
_CLOSING_FENCE = re.compile(rb"[\r\n]-{3,}[ \t]*[\r\n]")
_KEY_LINE = re.compile(r"([A-Za-z_][\w-]*):(?=\s|$)")
_SQUEEZED_KEY = r"([A-Za-z_][\w-]*)(?::(?!//)(?=\S)|\uff1a)"
"""A key without a space after its colon, or with a full-width colon. `http://` is not one."""
_TAB_INDENT = r"(?m)^ *\t[ \t]*"
_CLOSING_LOOKALIKE = r"\.{3}|\*{3,}|_{3,}|={3,}|\+{3,}|--| {1,3}-{3,}|[-\u2013\u2014\u2212]*[\u2013\u2014\u2212]-*"
_HEADING = re.compile(r"#{1,6} +\S")
_BLOCK_INDICATOR = r"[|>][-+0-9]*[ \t]*\n"
_TRANSCRIPT_LABELS = frozenset(
    ("user", "assistant", "human", "system", "context", "commentary", "example", "examples", "note")
)
_PROSE_FIELDS = frozenset(
    ("description", "when_to_use", "when-to-use", "whenToUse", "prompt", "system", "instructions")
)
_MAX_UNKNOWN_FIELDS = 200
_EMPTY_VALUES = (" ", "null", "Null", "NULL", "~")
_NO_PROBLEMS: tuple[FileProblem, ...] = ()


class Frontmatter(NamedTuple):
    metadata: Metadata
    problems: tuple[FileProblem, ...]
    present: bool
    """The file has frontmatter, closed or not."""
    body_prefix: str
    """The part of the body that was read anyway; the fallback for a missing description."""


class SplitDocument(NamedTuple):
    """A text split at the `---` fences."""

    frontmatter: str | None
    frontmatter_line: int
    body: str
    body_line: int
    problems: list[FileProblem]


def read_frontmatter(
    path: str, known_fields: frozenset[str], boundary: PathBoundary | None
) -> tuple[FileStamp, Frontmatter]:
    """Reads only the start of the file. Raises SourceError if it is not a readable text file."""
    descriptor, status = open_regular_file(path, boundary)
    try:
        data = os.read(descriptor, _CHUNK)
        frontmatter = _fast_frontmatter(data)
        if frontmatter is not None:
            return file_stamp(status), frontmatter
        data = _read_full_frontmatter(descriptor, data)
    except OSError as error:
        raise source_error_from_os(error) from error
    finally:
        os.close(descriptor)
    truncated = len(data) < status.st_size
    return file_stamp(status), parse_frontmatter(
        *decode_text(data, truncated), known_fields=known_fields, truncated=truncated
    )


def _read_full_frontmatter(descriptor: int, data: bytes) -> bytes:
    """Reads on until the frontmatter is closed, plus enough of the body for a description."""
    if b"-" not in data:
        return data
    opening = _OPENING_DASHES.search(data)
    start = opening.end() if opening else 0
    while len(data) < FRONTMATTER_LIMIT:
        closed = _CLOSING_FENCE.search(data, start)
        if closed and len(data) - closed.end() >= _CHUNK // 2:
            break
        chunk = os.read(descriptor, _CHUNK if closed else 65536)
        if not chunk:
            break
        data += chunk
    return data[:FRONTMATTER_LIMIT]


def _fast_frontmatter(data: bytes) -> Frontmatter | None:
    """The common case: LF, UTF-8, plain frontmatter within the first chunk, followed by more text."""
    if not data.startswith(b"---\n"):
        return None
    end = data.find(b"\n---", 3)
    if end < 0 or data[end + 4 : end + 5] != b"\n":
        return None
    try:
        metadata = parse_plain_frontmatter(data[4:end].decode())
    except UnicodeDecodeError:
        return None
    if metadata is None:
        return None
    description = metadata.get("description")
    if not description or description in _EMPTY_VALUES:
        return None
    return Frontmatter(metadata, _NO_PROBLEMS, True, "")


def parse_frontmatter(
    text: str, problems: list[FileProblem], known_fields: frozenset[str], truncated: bool = False
) -> Frontmatter:
    """`truncated`: the file is longer than `text`."""
    parts = split_frontmatter(text, truncated)
    problems = [*problems, *parts.problems]
    if parts.frontmatter is None:
        return Frontmatter({}, tuple(problems), False, parts.body)
    metadata = parse_metadata(parts.frontmatter, parts.frontmatter_line, known_fields, problems)
    return Frontmatter(metadata, tuple(problems), True, parts.body)


def read_body(path: str, boundary: PathBoundary | None) -> tuple[str, int, FileStamp, list[FileProblem]]:
    """The body, the line it starts on, the stamp of the file, and problems."""
    text, stamp, problems = read_text(path, boundary)
    parts = split_frontmatter(text)
    return parts.body, parts.body_line, stamp, [*problems, *parts.problems]


_PREAMBLE = (
    r"(?:[ \t]*\n|#[^\n]*\n|//[^\n]*\n|<!--(?:(?!-->)[\s\S]){0,4000}-->[ \t]*\n"
    r"|[ ]{0,3}(?:`{3,}|~{3,})[\w+-]*[ \t]*\n){1,20}"
    r"(?=[ ]{0,3}---[ \t]*\n(?:[^\n]*\n){0,10}?(?:name|description):[^\n]*\n(?:[^\n]*\n){0,200}?---"
    r"|(?:name|description):)"
)
"""What may precede frontmatter: comments, and the code fence that editors put around a whole file."""
_CODE_FENCE = r"(?m)^ {0,3}(`{3,}|~{3,})"
_ODD_OPENING = r"-{3,}[ \t]*(?:#.*|ya?ml)|[-\u2013\u2014\u2212]*[\u2013\u2014\u2212][-\u2013\u2014\u2212]*"


def split_frontmatter(text: str, truncated: bool = False) -> SplitDocument:
    """Splits at `---` on the first line and the next line of three or more dashes, or what was meant as one.

    Whatever is assumed is reported; no text is in neither part except the fences and what precedes the first.
    """
    problems: list[FileProblem] = []
    lines, skipped = _find_opening(text, problems)
    if not lines:
        return SplitDocument(None, 0, text, 1, [])
    end, body = _find_end(lines, truncated, skipped, problems)
    frontmatter = "\n".join(lines[1:end])
    if body is None:
        return SplitDocument(frontmatter, skipped + 2, "\n".join(lines[end + 1 :]), skipped + end + 2, problems)
    return SplitDocument(frontmatter, skipped + 2, "\n".join(lines[end:])[body:], skipped + end + 1, problems)


def _find_opening(text: str, problems: list[FileProblem]) -> tuple[list[str], int]:
    """The lines from the opening fence on, and how many precede it; no lines without frontmatter.

    A missing fence is added where the text starts with the fields of an item.
    """
    preamble = re.match(_PREAMBLE, text) if text.lstrip()[:1] in ("#", "/", "<", "`", "~") else None
    rest = text[preamble.end() :] if preamble else text.lstrip("\n \t")
    before = text[: len(text) - len(rest)]
    lines = rest.split("\n")
    skipped = before.count("\n")
    indent = before.rpartition("\n")[2] if not preamble else ""
    if indent:
        lines = [lines[0], *(line.removeprefix(indent) for line in lines[1:])]
    first = lines[0].strip()
    if first.strip("-") or len(first) < 3:
        is_field = re.match(r"(?:name|description):", first)
        if is_field and _has_name_and_description(lines):
            problem, fix = "the opening `---` is missing; the fields are read anyway", "add a line `---` before it"
            problems.append(FileProblem("warning", "head-unopened", skipped + 1, problem, fix))
            lines.insert(0, "---")
            skipped -= 1
        elif not is_field and re.fullmatch(_ODD_OPENING, first) and _has_name_and_description(lines[1:]):
            problem, fix = f"`{first[:20]}` is read as the opening `---`", "put `---` on a line of its own"
            problems.append(FileProblem("warning", "head-unopened", skipped + 1, problem, fix))
        else:
            return [], 0
    elif before and not re.search(_CODE_FENCE, before):
        problem = "the frontmatter does not start on line 1"
        problems.append(FileProblem("info", "head-not-first", 1, problem, "move `---` to line 1"))
    for mark in re.findall(_CODE_FENCE, before):
        problems.append(FileProblem("warning", "head-wrapped", 1, f"the code fence {mark} is ignored", "remove it"))
        _remove_wrapper_end(lines, mark, has_opening=skipped == before.count("\n"))
    return lines, skipped


def _has_name_and_description(lines: list[str]) -> bool:
    fields = {match[1] for line in lines[: _find_unclosed_end(["", *lines])] if (match := _KEY_LINE.match(line))}
    return {"name", "description"} <= fields


def _remove_wrapper_end(lines: list[str], mark: str, has_opening: bool) -> None:
    """Replaces the line that closes a code fence around the file or around its frontmatter."""
    close = _find_closing_fence(lines)
    fences = [at for at, line in enumerate(lines) if line.startswith(mark)]
    if not has_opening and fences and (close is None or fences[0] < close):
        lines[fences[0]] = "---"
    elif close is not None and close + 1 in fences and lines[close + 1].rstrip() == mark:
        lines[close + 1] = ""
    elif len(fences) % 2 and lines[fences[-1]].rstrip() == mark:
        lines[fences[-1]] = ""


def _find_end(lines: list[str], truncated: bool, skipped: int, problems: list[FileProblem]) -> tuple[int, int | None]:
    """The line that ends the frontmatter, and where the body starts on it; None: on the next line."""
    close = _find_closing_fence(lines)
    start = _find_body_heading(lines, close)
    what = "heading"
    if start is None:
        start, what = _find_body_prose(lines, close), "text"
    if start is not None and _is_mapping(lines[1:close]):
        return close or 0, None
    unclosed_end = _find_unclosed_end(lines) if close is None else 0
    if unclosed_end > 1 and _is_mapping(lines[1:]):
        unclosed_end = len(lines)
    lookalike = _find_closing_lookalike(lines, close, unclosed_end)
    if start is not None and (lookalike is None or start < lookalike[0]):
        start = _first_body_line(lines, start)
        problem = f"the frontmatter is not closed; the {what} on line {skipped + start + 1} is read as body"
        fix = f"add `---` after line {skipped + start}"
        problems.append(FileProblem("warning", "head-unclosed", max(skipped, 0) + 1, problem, fix))
        return start, 0
    if lookalike is not None:
        at, body = lookalike
        problem = (
            f"`{lines[at].strip()[:20]}` is read as the closing `---`"
            if body is None
            else "text after the closing `---` is read as the start of the body"
        )
        fix = "put `---` on a line of its own"
        problems.append(FileProblem("warning", "head-fence", skipped + at + 1, problem, fix))
        return lookalike
    if close is not None:
        return close, None
    is_too_long = truncated and unclosed_end == len(lines)
    problems.append(_too_long_problem() if is_too_long else _unclosed_problem(skipped + 1, skipped + unclosed_end))
    return unclosed_end, 0


def _unclosed_problem(line: int, last: int) -> FileProblem:
    problem = "the frontmatter is not closed; lines that look like fields were used"
    return FileProblem("warning", "head-unclosed", line, problem, f"add `---` after line {last}")


def _too_long_problem() -> FileProblem:
    """Reported like unclosed frontmatter, because the effect is the same: fields may be missing."""
    problem = f"the frontmatter is longer than {FRONTMATTER_LIMIT // 1024} KiB; the rest is ignored"
    return FileProblem(
        "warning", "head-unclosed", 1, problem, "move everything that is not a field below the closing `---`"
    )


def _find_closing_fence(lines: list[str]) -> int | None:
    """The first line after the opening one that consists of three or more dashes."""
    for at in range(1, len(lines)):
        if lines[at].startswith("---") and not lines[at].rstrip().strip("-"):
            return at
    return None


def _find_body_heading(lines: list[str], close: int | None) -> int | None:
    """The heading that starts the body where the first `---` is a rule inside the body, not the closing fence.

    Only a heading after a blank line, with prose and no further field after it: elsewhere `# x` is a comment.
    """
    for at in range(2, close or 0):
        if lines[at][:1] != "#" or lines[at - 1].strip() or not _HEADING.match(lines[at]):
            continue
        following = next((lines[below] for below in range(at + 1, close or 0) if lines[below].strip()), "")
        if following and not _is_field_line(following) and following[0] != "#":
            return at if _last_field(lines[:close]) < at else None
    return None


def _find_body_prose(lines: list[str], close: int | None) -> int | None:
    """The prose that starts the body where the first `---` is a rule inside the body, not the closing fence.

    Only after a blank line, with no further field after it. `Note: text` may start it, prose without a colon must be
    part of it.
    """
    for at in range(2, close or 0):
        line = lines[at]
        if (
            lines[at - 1].strip()
            or line[:1] in ("", " ", "\t", "#", "-")
            or (line[0].islower() and _is_field_line(line))
        ):
            continue
        has_prose = any(
            below[:1] not in ("", " ", "\t", "#", "-") and not _is_field_line(below) for below in lines[at:close]
        )
        return at if has_prose and 0 < _last_field(lines[:close]) < at else None
    return None


def _first_body_line(lines: list[str], start: int) -> int:
    """The line after the last field, where unclosed frontmatter goes over to the body; at most `start`."""
    last = _last_field(lines[:start])
    is_valid = _is_mapping(lines[1:start])
    for at in range(last + 1, start):
        line = lines[at]
        # In valid YAML these are comments; elsewhere a list may belong to the last field.
        is_field = (
            line[:1] != "#"
            if is_valid
            else line[:1] in (" ", "\t") or (line[:1] == "-" and lines[last].rstrip()[-1:] == ":")
        )
        if line.strip() and not is_field:
            return at
    return start


def _find_closing_lookalike(lines: list[str], close: int | None, unclosed_end: int) -> tuple[int, int | None] | None:
    """A line meant as the closing fence (`---## Text`, `...`, `***`), and where the body starts on it, as in _find_end.

    It is not one if the frontmatter goes on after it, or, in unclosed frontmatter, if it comes after prose.
    """
    above = ""
    last_field = -1
    for at in range(1, len(lines) if close is None else close):
        line = lines[at]
        has_text = line.startswith("---")
        if has_text or _resembles_fence(line, above):
            if close is None:
                between = lines[unclosed_end:at]
                goes_on = any(line.strip() and not _is_field_line(line) for line in between)
            elif has_text:
                goes_on = not line.lstrip("-").startswith("##") and _are_fields(lines, at + 1, close)
                if not goes_on and _is_mapping(lines[1:close]):
                    return None
            else:
                last_field = last_field if last_field >= 0 else _last_field(lines[:close])
                goes_on = last_field > at
            if not goes_on:
                return at, (len(line) - len(line.lstrip("-").lstrip()) if has_text else None)
            if close is None:
                return None
        if line.strip():
            above = line
    return None


def _is_mapping(lines: list[str]) -> bool:
    """Whether this is valid YAML as it is: then what resembles a heading or a fence is inside a quoted value."""
    try:
        value, problems = parse_yaml("\n".join(lines) + "\n")
    except YamlError:
        return False
    return isinstance(value, dict) and not problems


def _resembles_fence(line: str, above: str) -> bool:
    """`above`: the last line before it that is not blank."""
    if not line or line[0].isalnum() or not re.fullmatch(_CLOSING_LOOKALIKE, line.rstrip()):
        return False
    # An indented line may continue the field above it.
    return line[0] != " " or not (above[:1] in (" ", "\t") or re.search(r":\s*([|>][-+0-9]*\s*)?$", above))


def _are_fields(lines: list[str], start: int, end: int) -> bool:
    """Whether these are all lines of fields, and the first one starts a field."""
    return start < end and lines[start][:1].islower() and all(_is_field_line(lines[at]) for at in range(start, end))


def _is_field_line(line: str) -> bool:
    """A line that starts or continues a field."""
    if line[:1] == " ":
        return bool(line.strip())
    if line.startswith("- ") or _KEY_LINE.match(line):
        return True
    return line[:1].islower() and re.match(_SQUEEZED_KEY, line) is not None


def _last_field(lines: list[str]) -> int:
    """The last line that starts a field, outside of code blocks; 0 if there is none."""
    fence = ""
    last = 0
    for at, line in enumerate(lines):
        mark = line.lstrip()[:3]
        if mark in ("```", "~~~"):
            fence = "" if fence == mark else fence or mark
        elif not fence and line[:1].islower() and _KEY_LINE.match(line):
            last = at
    return last


def _find_unclosed_end(lines: list[str]) -> int:
    at = 1
    while at < len(lines) and _is_field_line(lines[at]):
        at += 1
    return at


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
    for at, line in enumerate(lines):
        squeezed = re.match(_SQUEEZED_KEY, line)
        if squeezed and squeezed[1] in known_fields:
            lines[at] = f"{squeezed[1]}: {line[squeezed.end() :].lstrip()}"
            problem = f"no space after `{line[: squeezed.end()]}`; read as the field `{squeezed[1]}`"
            fix = f"write `{squeezed[1]}: ` with a space"
            problems.append(FileProblem("warning", "yaml-recovered", first_line + at, problem, fix))
    _dedent_fields(lines, first_line, known_fields, problems)
    tab = re.search(_TAB_INDENT, "\n".join(lines))
    if tab:
        lines = [re.sub(_TAB_INDENT, lambda indent: indent[0].replace("\t", "  "), line) for line in lines]
        line = first_line + text.count("\n", 0, tab.start())
        problem = "not valid YAML: indented with a tab; read as spaces"
        problems.append(FileProblem("warning", "yaml-recovered", line, problem, "indent with spaces, not tabs"))
    return "\n".join(lines)


def _dedent_fields(
    lines: list[str], first_line: int, known_fields: frozenset[str], problems: list[FileProblem]
) -> None:
    """Moves indented known fields to the left where the field above is complete: its value is on its own line and is
    no prose that could continue. Fields after it with the same indentation move as well."""
    dedented = ""
    for at in range(1, len(lines)):
        field = lines[at].lstrip(" \t")
        indent = lines[at][: len(lines[at]) - len(field)]
        match = _KEY_LINE.match(field)
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
    above = (match[1] for line in reversed(lines[: reason.line + 1]) if (match := _KEY_LINE.match(line)))
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
        match = _KEY_LINE.match(line)
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
        match = _KEY_LINE.match(lines[at])
        if match and match[1] in known_fields:
            continue
        is_field = match and match[1].islower() and match[1] not in _TRANSCRIPT_LABELS
        possible[at] = possible[at + 1] if is_field else not lines[at].strip()
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


def find_field_line(path: str, field: str, boundary: PathBoundary | None, value: str = "") -> int:
    """The line of a field in a file, or of one of its values, for a diagnostic; 1 if not found. A YAML file has no
    fences: all of it is frontmatter."""
    try:
        text = read_text(path, boundary, FRONTMATTER_LIMIT)[0]
    except SourceError:
        return 0
    if path.endswith((".yaml", ".yml")):  # the whole file
        return key_line(text, field, 1, value)
    parts = split_frontmatter(text)
    return key_line(parts.frontmatter, field, parts.frontmatter_line, value) if parts.frontmatter is not None else 1


def normalize_key(key: str) -> str:
    """The same text for `max-turns`, `max_turns` and `maxTurns`."""
    return key.lower().replace("-", "").replace("_", "")


def key_line(text: str, key: str, first_line: int = 2, value: str = "") -> int:
    """The line of a field in frontmatter text, in any spelling, or of a value in it, for a diagnostic; the opening
    fence if not found."""
    wanted = normalize_key(key)
    lines = text.split("\n")
    for at, line in enumerate(lines):
        name, colon, _ = line.partition(":")
        if colon and wanted and normalize_key(name).strip("'\"") == wanted:
            return first_line + at + (_value_offset(lines[at:], value) if value else 0)
    return max(first_line - 1, 1)


def _value_offset(field_lines: list[str], value: str) -> int:
    """Lines between the start of a field and the first line that has the value as a word of its own; 0 if there is
    none."""
    word = re.compile(rf"(?<![\w./:-]){re.escape(value)}(?![\w./:-])")
    for offset, line in enumerate(field_lines):
        if offset and line[:1] not in ("", " ", "\t", "-", "#", "]"):
            return 0  # the next field
        if word.search(line.partition(":")[2] if not offset else line.partition(" #")[0]) and line[:1] != "#":
            return offset
    return 0


_NOT_PROSE = r"\s*(#{1,6}(\s|$)|```|~~~|<!--|!\[|\[!\[|-{3,}\s*$|={3,}\s*$|\||>\s*$)"


def first_paragraph(body: str, limit: int = 1024) -> str:
    """The first paragraph of prose in a Markdown text, else its first heading."""
    words: list[str] = []
    heading = ""
    fence = ""
    for line in body.split("\n"):
        text = line.strip()
        if fence:
            if text.startswith(fence) or (fence == "-->" and fence in text):
                fence = ""
            continue
        if text[:3] in ("```", "~~~"):
            fence = text[:3]
            text = ""
        elif text.startswith("<!--") and "-->" not in text:
            fence = "-->"
        if not text or re.match(_NOT_PROSE, line):
            if words:
                break
            if text.startswith("#") and not heading:
                heading = text.strip("# ")
            continue
        words.append(text)
        if sum(map(len, words)) > limit:
            break
    text_found = " ".join(words) or heading
    return text_found if len(text_found) <= limit else text_found[: limit - 1].rstrip() + "…"
