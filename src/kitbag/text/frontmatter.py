"""The head of a file (`---`, YAML, `---`) and the body after it, from whatever a person produced.

Used by every loader in `library`. Order of trials: a line reader for plain heads, YAML, pieces at
known keys, nothing. Never raises for content; what was recovered and how is a list of problems.
"""

import contextlib
import os
import re
from typing import NamedTuple

from kitbag.text.plain_frontmatter import Metadata, read_plain
from kitbag.text.safe_yaml import YamlError, YamlProblem, read_yaml
from kitbag.text.source_files import (
    Boundary,
    Problem,
    SourceError,
    Stamp,
    decode,
    open_regular,
    os_problem,
    read_text,
    stamp_of,
)

HEAD_LIMIT = 256 * 1024
_CHUNK = 4096
_BEFORE_HEAD = b"\xef\xbb\xbf\xff\xfe \t\r\n\0"
_CLOSED = re.compile(rb"[\r\n]-{3,}[ \t]*[\r\n]")
_KEY_LINE = re.compile(r"([A-Za-z_][\w-]*):(?=\s|$)")
_BLOCK_MARK = r"[|>][-+0-9]*[ \t]*\n"
_SPEAKERS = frozenset(("user", "assistant", "human", "system", "context", "commentary", "example", "examples", "note"))
_PROSE_FIELDS = frozenset(
    ("description", "when_to_use", "when-to-use", "whenToUse", "prompt", "system", "instructions")
)
_MOST_UNKNOWN = 200
_NO_TEXT = (" ", "null", "Null", "NULL", "~")
_NO_PROBLEMS: tuple[Problem, ...] = ()


class Head(NamedTuple):
    metadata: Metadata
    problems: tuple[Problem, ...]
    present: bool
    """There was a head, closed or not."""
    opening: str
    """As much of the body as happened to be read: for a description where none is given."""


class Parts(NamedTuple):
    """A text cut at its fences."""

    head: str | None
    head_line: int
    body: str
    body_line: int
    problems: list[Problem]


def read_head(path: str, known: frozenset[str], boundary: Boundary | None) -> tuple[Stamp, Head]:
    """Only the start of the file is read. Raises SourceError when it is no readable text file."""
    descriptor, status = open_regular(path, boundary)
    try:
        data = os.read(descriptor, _CHUNK)
        head = _fast_head(data)
        if head is not None:
            return stamp_of(status), head
        data = _whole_head(descriptor, data)
    except OSError as error:
        raise os_problem(error) from error
    finally:
        os.close(descriptor)
    cut = len(data) < status.st_size
    return stamp_of(status), parse_head(*decode(data, cut), known=known, cut=cut)


def _whole_head(descriptor: int, data: bytes) -> bytes:
    """Reads on until the head is closed, and enough of the body to describe it."""
    if not data.lstrip(_BEFORE_HEAD).startswith(b"-"):
        return data
    start = data.find(b"-")
    while len(data) < HEAD_LIMIT:
        closed = _CLOSED.search(data, start)
        if closed and len(data) - closed.end() >= _CHUNK // 2:
            break
        chunk = os.read(descriptor, _CHUNK if closed else 65536)
        if not chunk:
            break
        data += chunk
    return data[:HEAD_LIMIT]


def _fast_head(data: bytes) -> Head | None:
    """The common case: LF, UTF-8, a plain head inside the first block, something after it."""
    if not data.startswith(b"---\n"):
        return None
    end = data.find(b"\n---", 3)
    if end < 0 or data[end + 4 : end + 5] != b"\n":
        return None
    try:
        metadata = read_plain(data[4:end].decode())
    except UnicodeDecodeError:
        return None
    if metadata is None:
        return None
    description = metadata.get("description")
    if not description or description in _NO_TEXT:
        return None
    return Head(metadata, _NO_PROBLEMS, True, "")


def parse_head(text: str, problems: list[Problem], known: frozenset[str], cut: bool = False) -> Head:
    """`cut`: the file has more than `text`."""
    parts = split(text, cut)
    problems = [*problems, *parts.problems]
    if parts.head is None:
        return Head({}, tuple(problems), False, parts.body)
    metadata = read_metadata(parts.head, parts.head_line, known, problems)
    return Head(metadata, tuple(problems), True, parts.body)


def read_body(path: str, boundary: Boundary | None) -> tuple[str, int, Stamp, list[Problem]]:
    """What follows the head, the line it starts on, and the stamp of the file it came from."""
    text, stamp, problems = read_text(path, boundary)
    parts = split(text)
    return parts.body, parts.body_line, stamp, [*problems, *parts.problems]


def split(text: str, cut: bool = False) -> Parts:
    """Cut at a first line `---` and the next line that is just `---` (or more of them)."""
    stripped = text.lstrip("\n \t")
    if not stripped.startswith("---"):
        return Parts(None, 0, text, 1, [])
    skipped = text[: len(text) - len(stripped)].count("\n")
    lines = stripped.split("\n")
    if lines[0].rstrip().strip("-"):
        return Parts(None, 0, text, 1, [])
    problems: list[Problem] = []
    if skipped or not text.startswith("---"):
        problems.append(
            Problem(
                "info",
                "head-not-first",
                1,
                "the head does not start on the first line",
                "move `---` to line 1",
            )
        )
    close = _closing_line(lines)
    if close is not None:
        body = "\n".join(lines[close + 1 :])
        return Parts("\n".join(lines[1:close]), skipped + 2, body, skipped + close + 2, problems)
    end = _unclosed_end(lines)
    problems.append(_too_long() if cut and end == len(lines) else _unclosed(skipped + 1, skipped + end))
    return Parts("\n".join(lines[1:end]), skipped + 2, "\n".join(lines[end:]), skipped + end + 1, problems)


def _unclosed(line: int, last: int) -> Problem:
    what = "the head is never closed; lines that look like fields were taken for it"
    return Problem("warning", "head-unclosed", line, what, f"add a line `---` after line {last}")


def _too_long() -> Problem:
    """To whoever relies on the head it is the same: fields may be missing."""
    what = f"the head is longer than {HEAD_LIMIT // 1024} KiB; only that much of it is used"
    return Problem("warning", "head-unclosed", 1, what, "move what is not a field below the closing `---`")


def _closing_line(lines: list[str]) -> int | None:
    for at in range(1, len(lines)):
        if lines[at].startswith("---") and not lines[at].rstrip().strip("-"):
            return at
    return None


def _unclosed_end(lines: list[str]) -> int:
    at = 1
    while at < len(lines):
        line = lines[at]
        if not (_KEY_LINE.match(line) or line[:1] == " " or line.startswith("- ")) or not line.strip():
            break
        at += 1
    return at


def read_metadata(head: str, first_line: int, known: frozenset[str], problems: list[Problem]) -> Metadata:
    """The fields of a head's text; `problems` grows by what was wrong."""
    plain = read_plain(head)
    if plain is not None:
        return plain
    try:
        value, odd = read_yaml(head + "\n")
    except YamlError as error:
        return _recovered(error.problem, head, first_line, known, problems)
    if odd and odd[-1].code == "yaml-documents":
        # Fields behind a mark of YAML's own are fields to a person; a tool list must not get lost there.
        return _recovered(odd[-1], head, first_line, known, problems)
    problems += [Problem("warning", o.code, first_line + o.line, o.problem, o.fix) for o in odd]
    if isinstance(value, dict):
        return value
    if not value:
        return {}
    what = "the head is not a list of `key: value` lines"
    problems.append(Problem("warning", "head-not-fields", first_line, what, "write `name:` and `description:`"))
    return _pieces(head, known)


def _recovered(
    reason: YamlProblem, head: str, first_line: int, known: frozenset[str], problems: list[Problem]
) -> Metadata:
    metadata = _pieces(head, known)
    line = first_line + reason.line
    if not metadata:
        problems.append(Problem("error", reason.code, line, reason.problem, reason.fix))
        return metadata
    key, what = _in_words(reason, head.split("\n"))
    fix = reason.fix
    if reason.code == "yaml-invalid":
        fix = "put the value in double quotes, or below `key: |` with two spaces before each line"
    # `argument-hint: [a] [b]` is what everybody writes, and nothing is lost by it.
    severity = "info" if key == "argument-hint" else "warning"
    problems.append(Problem(severity, "yaml-recovered", line, f"{what}; read field by field instead", fix))
    return metadata


def _in_words(reason: YamlProblem, lines: list[str]) -> tuple[str, str]:
    """The field that YAML stumbled over, and what is wrong with it for somebody who does not know YAML."""
    above = (match[1] for line in reversed(lines[: reason.line + 1]) if (match := _KEY_LINE.match(line)))
    key = next(above, "")
    if key and "mapping values are not allowed" in reason.problem:
        return key, f"not valid YAML: `{key}` has `: ` in it"
    if key and "alias" in reason.problem and reason.code == "yaml-invalid":
        return key, f"not valid YAML: `{key}` starts with `*`, which needs quotes"
    return key, reason.problem


def _pieces(head: str, known: frozenset[str]) -> Metadata:
    """The head cut at lines that start a field, each piece read alone. In prose only known fields count."""
    metadata: Metadata = {}
    key, start = "", 0
    lines = head.split("\n")
    before_fields: list[bool] = []
    for at, line in enumerate([*lines, "end:"]):
        match = _KEY_LINE.match(line)
        if not match:
            continue
        if at < len(lines) and match[1] not in known:
            if len(metadata) >= _MOST_UNKNOWN:
                continue
            if key in _PROSE_FIELDS:
                before_fields = before_fields or _before_fields(lines, known)
                if not before_fields[at]:
                    continue
        if key:
            for field, value in _piece(key, lines[start:at]).items():
                metadata.setdefault(field, value)
        key, start = match[1], at
    return metadata


def _before_fields(lines: list[str], known: frozenset[str]) -> list[bool]:
    """For each line, whether a field that nobody knows may begin there behind prose: only if no prose follows it.

    From the last line to the first, so that each is looked at once, however many there are."""
    found = [True] * (len(lines) + 1)
    for at in range(len(lines) - 1, -1, -1):
        match = _KEY_LINE.match(lines[at])
        if match and match[1] in known:
            continue
        is_field = match and match[1].islower() and match[1] not in _SPEAKERS
        found[at] = found[at + 1] if is_field else not lines[at].strip()
    return found


def _piece(key: str, lines: list[str]) -> Metadata:
    """One field; behind prose also those that nobody knows."""
    text = "\n".join(lines)
    try:
        value, _ = read_yaml(text + "\n")
    except YamlError:
        pass
    else:
        if isinstance(value, dict) and next(iter(value), None) == key and not any(k[:1].isupper() for k in value):
            return value
    return {key: _raw(text[len(key) + 1 :])}


def _raw(text: str) -> str:
    """What a person meant by a value that YAML can't read."""
    raw = "\n".join(line for line in text.split("\n") if line[:2] not in ("#", "# ")).strip()
    if re.match(_BLOCK_MARK, raw):
        import textwrap

        raw = textwrap.dedent(raw.partition("\n")[2]).strip()
    elif len(raw) > 1 and raw[0] == raw[-1] and raw[0] in "\"'" and not _closes_early(raw):
        if raw[0] == '"' and "\\u" in raw:
            import json

            with contextlib.suppress(ValueError):  # written by a JSON encoder: an emoji is a pair of escapes
                return str(json.loads(raw, strict=False))
        raw = raw[1:-1]
    return raw.replace("\\n", "\n")


def _closes_early(raw: str) -> bool:
    """`"a" or "b"` is not one quoted text, `"say "hi" now"` is."""
    at = raw.index(raw[0], 1)
    return at < len(raw) - 1 and not raw[at - 1].isspace() and not raw[at + 1].isalnum()


def field_line(path: str, field: str, boundary: Boundary | None) -> int:
    """Where a field stands in a file, for a diagnostic; 1 when it is not found."""
    try:
        parts = split(read_text(path, boundary, HEAD_LIMIT)[0])
    except SourceError:
        return 0
    return line_of(parts.head, field, parts.head_line) if parts.head is not None else 1


def line_of(head: str, key: str, first_line: int = 2) -> int:
    """The line a field stands on, for a diagnostic; the head's first line when it is not found."""
    for at, line in enumerate(head.split("\n")):
        if line.startswith(f"{key}:"):
            return first_line + at
    return max(first_line - 1, 1)


_NOT_PROSE = r"\s*(#{1,6}(\s|$)|```|~~~|<!--|!\[|\[!\[|-{3,}\s*$|={3,}\s*$|\||>\s*$)"


def first_paragraph(body: str, limit: int = 1024) -> str:
    """The first lines of prose in a Markdown text, else its first heading."""
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
    found = " ".join(words) or heading
    return found if len(found) <= limit else found[: limit - 1].rstrip() + "…"
