"""Reads the frontmatter and the body of a file.

Used by every loader in `library`. The common case is parsed here and by plain_frontmatter; frontmatter_fences and
frontmatter_fields read everything else, and are imported only then. Never raises for content.
"""

import os
import re
from typing import NamedTuple

from kitbag.text.plain_frontmatter import Metadata, parse_plain_frontmatter
from kitbag.text.source_files import (
    FRONTMATTER_LIMIT,
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

_CHUNK = 4096
_OPENING_FENCE = rb"(?:-{3,}|\+{3,})[^\r\n]*"
_CLOSING_FENCE = rb"[\r\n](?:-{3,}|\+{3,})[ \t]*[\r\n]"
_EMPTY_VALUES = (" ", "null", "Null", "NULL", "~")
_NO_PROBLEMS: tuple[FileProblem, ...] = ()


class Frontmatter(NamedTuple):
    metadata: Metadata
    problems: tuple[FileProblem, ...]
    present: bool
    """The file has frontmatter, closed or not."""
    body_prefix: str
    """The part of the body that was read anyway; the fallback for a missing description."""


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
    opening = re.search(_OPENING_FENCE, data)
    if opening is None and b"\0" not in data[:8]:  # not in UTF-16 either
        return data
    start = opening.end() if opening else 0
    while len(data) < FRONTMATTER_LIMIT:
        closed = re.compile(_CLOSING_FENCE).search(data, start)
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
    from kitbag.text.frontmatter_fences import split_frontmatter
    from kitbag.text.frontmatter_fields import parse_metadata

    parts = split_frontmatter(text, truncated)
    problems = [*problems, *parts.problems]
    if parts.frontmatter is None:
        return Frontmatter({}, tuple(problems), False, parts.body)
    metadata = parse_metadata(parts.frontmatter, parts.frontmatter_line, known_fields, problems)
    return Frontmatter(metadata, tuple(problems), True, parts.body)


def read_body(path: str, boundary: PathBoundary | None) -> tuple[str, int, FileStamp, list[FileProblem]]:
    """The body, the line it starts on, the stamp of the file, and problems."""
    from kitbag.text.frontmatter_fences import split_frontmatter

    text, stamp, problems = read_text(path, boundary)
    parts = split_frontmatter(text)
    return parts.body, parts.body_line, stamp, [*problems, *parts.problems]


def find_field_line(path: str, field: str, boundary: PathBoundary | None, value: str = "") -> int:
    """The line of a field in a file, or of one of its values, for a diagnostic; 1 if not found. A YAML file has no
    fences: all of it is frontmatter."""
    from kitbag.text.frontmatter_fences import split_frontmatter

    try:
        text = read_text(path, boundary, FRONTMATTER_LIMIT)[0]
    except SourceError:
        return 0
    if path.endswith((".yaml", ".yml")):  # the whole file
        return key_line(text, field, 1, value)
    parts = split_frontmatter(text)
    return key_line(parts.frontmatter, field, parts.frontmatter_line, value) if parts.frontmatter is not None else 1


def normalize_key(key: str) -> str:
    """The same text for `max-turns`, `max_turns`, `maxTurns` and `Max Turns`."""
    return key.lower().replace("-", "").replace("_", "").replace(" ", "")


def key_line(text: str, key: str, first_line: int = 2, value: str = "") -> int:
    """The line of a field in frontmatter text, in any spelling, or of a value in it, for a diagnostic; the opening
    fence if not found."""
    wanted = normalize_key(key)
    lines = text.split("\n")
    for at, line in enumerate(lines):
        name, colon, _ = line.partition(":")
        if colon and wanted and name[:1] not in (" ", "\t") and normalize_key(name).strip("'\"") == wanted:
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
