"""Read: a text file with line numbers, a notebook, the text of a PDF, or an image. However large the file is, little of
it is held at a time.

Used by the loop. What the path leads to is settled by places and opened through permissions.beneath, so that what is
read is what was allowed; lines come from lines, cells from notebooks, pages from pdf_text.
"""

import base64
import os
import stat
import threading
import time
from collections.abc import Iterator
from itertools import islice
from typing import Annotated, Final, NamedTuple

from msgspec import Meta

from kitbag.errors import InvalidError
from kitbag.messages import Image
from kitbag.permissions.safe_open import open_to_read
from kitbag.processes.run_process import in_thread
from kitbag.text.hidden_characters import find_hidden, reveal_hidden
from kitbag.tools.base import Arguments, Context, Outcome, Tool, answer, description, failure
from kitbag.tools.files.lines import Line, after_lines, chunks, decoded, is_binary, lines
from kitbag.tools.files.notebooks import MOST_BYTES as MOST_NOTEBOOK_BYTES
from kitbag.tools.files.notebooks import Notebook, NotebookError, picture_bytes
from kitbag.tools.files.paths import missing, number_of, refused, settle, shown, visible
from kitbag.tools.files.pdf_text import read_pdf

MOST_LINES: Final = 2_000
LONGEST_LINE: Final = 2_000
MOST_CHARACTERS: Final = 50_000
MOST_PICTURES: Final = 4
"""Of a notebook."""
MOST_IMAGE_BYTES: Final = 3_750_000
"""As base64 it is 5 MB, the most that providers take."""
SECONDS: Final = 1.5
"""For getting to a line, and for the end of one that is very long."""
_NUMBER = 7
"""Characters before each line."""
_HEAD = 1 << 13
_PDF = b"%PDF-"
_COUNTED = 16 << 20
"""So much of the rest is read to say how many lines there are."""
_BINARY: Final = (
    (b"PK\x03\x04", "a ZIP archive"),
    (b"\x1f\x8b", "gzip data"),
    (b"\x7fELF", "a program"),
    (b"SQLite format 3\0", "an SQLite database"),
)


class ReadArguments(Arguments, frozen=True):
    file_path: Annotated[str, Meta(min_length=1, max_length=4_096, description="Absolute, or relative.")]
    offset: Annotated[int, Meta(ge=0, le=10**12, description="First line, from 1.")] = 1
    limit: Annotated[int, Meta(ge=1, le=10**6, description="Number of lines.")] = MOST_LINES
    pages: Annotated[str, Meta(max_length=500, description="Of a PDF: 3, 1-5, 2,7 or 10-")] = ""


async def _read(arguments: ReadArguments, context: Context) -> Outcome:
    return await in_thread(lambda stop: _read_now(arguments, context, stop))


def _read_now(arguments: ReadArguments, context: Context, stop: threading.Event) -> Outcome:
    try:
        facts = settle(context, "Read", {"file_path": arguments.file_path}, arguments.file_path).facts
        path = shown(facts.requested, context)
        try:
            status = os.lstat(facts.resolved)
        except (FileNotFoundError, NotADirectoryError):
            return missing(context, facts)
        if stat.S_ISDIR(status.st_mode):
            return failure(f"{path} is a folder", f'Use Glob with path "{path}" to list it.')
        descriptor = open_to_read(facts.resolved, context.workspace, expected_resolved=facts.resolved)
    except InvalidError as error:
        return refused(error)
    with open(descriptor, "rb", buffering=0):
        if context.seen is not None:
            context.seen.note_open(facts.resolved, descriptor)
        return _opened(descriptor, path, arguments, stop)


def _opened(descriptor: int, path: str, arguments: ReadArguments, stop: threading.Event) -> Outcome:
    size = os.fstat(descriptor).st_size
    head = os.pread(descriptor, _HEAD, 0)
    if not head:
        return answer(f"{path} is empty.", f"{path} is empty")
    media_type = image_type(head)
    if media_type:
        return _image(descriptor, path, media_type, size)
    if head.startswith(_PDF) or (path.lower().endswith(".pdf") and _PDF in head[:1024]):
        return read_pdf(descriptor, path, arguments.pages, stop)
    kind = next((kind for magic, kind in _BINARY if head.startswith(magic)), "")
    if kind or is_binary(head):
        return failure(
            f"{path} is {kind or 'a binary file'} of {amount(size)}, not text", "Read shows text, PDF and images."
        )
    notes = ["[pages are for PDF documents; this is none.]"] if arguments.pages else []
    first = max(1, arguments.offset)
    notebook = _notebook(descriptor, size, notes) if path.lower().endswith(".ipynb") else None
    text = _Text(chunks(descriptor) if notebook is None else notebook.pieces(), stop)
    window = text.window(first, arguments.limit)
    if not window:
        return _nothing_there(text, path, first, size)
    return _numbered(window, text, path, first, size, notes, notebook)


def _notebook(descriptor: int, size: int, notes: list[str]) -> Notebook | None:
    """None when it is shown as the text that it is; then a note says why."""
    try:
        if size > MOST_NOTEBOOK_BYTES:
            raise NotebookError(f"it has {amount(size)}")
        with open(descriptor, "rb", closefd=False) as file:
            data = file.read(MOST_NOTEBOOK_BYTES + 1)
        return Notebook(data)
    except NotebookError as error:
        os.lseek(descriptor, 0, os.SEEK_SET)
        notes.append(f"[It can't be shown as a notebook, so this is its text: {visible(str(error))[:300]}.]")
        return None


def image_type(head: bytes) -> str:
    if head.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if head.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if head.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    return "image/webp" if head[:4] == b"RIFF" and head[8:12] == b"WEBP" else ""


def amount(size: int) -> str:
    """`512 bytes`, `1.5 MB`."""
    if size < 1_000:
        return number_of(size, "byte")
    value, units = size / 1_000, ["KB", "MB", "GB", "TB"]
    while value >= 999.5 and len(units) > 1:
        value, units = value / 1_000, units[1:]
    return f"{value:.1f} {units[0]}"


def _image(descriptor: int, path: str, media_type: str, size: int) -> Outcome:
    with open(descriptor, "rb", closefd=False) as file:
        data = file.read(MOST_IMAGE_BYTES + 1)
    if len(data) > MOST_IMAGE_BYTES:
        limit = f"images may have {amount(MOST_IMAGE_BYTES)}"
        return failure(f"{path} is an image of {amount(size)}; {limit}", "Make a smaller copy of it.")
    return Outcome((Image(media_type, base64.b64encode(data).decode()),), f"{path}, {media_type}, {amount(len(data))}")


class _Text:
    """A file as lines, and what became known about it while they were read."""

    def __init__(self, pieces: Iterator[bytes], stop: threading.Event) -> None:
        self._stop = stop
        self._deadline = time.monotonic() + SECONDS
        self._pieces = self._counted(pieces)
        self._newlines = 0
        self._last = b"\n"
        self.bytes = 0
        self.late = False
        """The time was over before the end was reached."""
        self.more = False
        """There are lines after the window."""

    def _counted(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        for piece in pieces:
            self._newlines += piece.count(b"\n")
            self._last = piece[-1:] or self._last
            self.bytes += len(piece)
            yield piece
            if self._stop.is_set() or time.monotonic() >= self._deadline:
                self.late = True
                return

    @property
    def line_count(self) -> int:
        """Of what was read: of the whole file unless it is late."""
        return self._newlines + (self._last != b"\n")

    def window(self, first: int, most: int) -> list[Line]:
        found = lines(after_lines(self._pieces, first - 1), 4 * LONGEST_LINE + 4)
        taken: list[Line] = []
        size = 0
        for line in islice(found, most):
            taken.append(line)
            # At least so many characters, with the number before them: what does not fit need not be looked at.
            size += _NUMBER + (len(line.data) if line.data.isascii() else len(line.data) // 4)
            if size > MOST_CHARACTERS:
                break
        # Not by asking for the next line, which may be a very long one.
        self.more = self.line_count > first - 1 + len(taken) or bool(next(self._pieces, b""))
        return taken

    def count_the_rest(self) -> None:
        for _ in self._pieces:
            if self.bytes > _COUNTED:
                self.late = True
                return


def _nothing_there(text: _Text, path: str, first: int, size: int) -> Outcome:
    if text.late:
        problem = f"line {first:,} of {path} ({amount(size)}) was not reached in {SECONDS} s"
        return failure(f"{problem}; it is after line {text.line_count:,}", "Use Grep to find what you need in it.")
    count = number_of(text.line_count, "line")
    return failure(f"{path} has {count}, so there is no line {first:,}", f"Use an offset up to {text.line_count}.")


class _Shown(NamedTuple):
    rows: list[str]
    last: int
    cut: int
    """How many rows are not whole lines."""
    note: str
    """About the encoding."""


def _numbered(
    window: list[Line], text: _Text, path: str, first: int, size: int, notes: list[str], notebook: Notebook | None
) -> Outcome:
    unfinished = text.late and not text.more
    body = _rows(window, first, unfinished)
    notes = [*notes, body.note] if body.note else notes
    cut = [f"{number_of(body.cut, 'long line')} cut"] if body.cut else []
    if text.more or body.last < first + len(window) - 1:
        text.count_the_rest()
        whole = f"more than {text.line_count:,} lines in {amount(size)}" if text.late else f"{text.line_count:,} lines"
        cut.append(f"lines {first:,}-{body.last:,} of {whole}")
        notes.append(f"[These are {cut[-1]}. Go on with offset={body.last + 1}.]")
    pictures = _pictures(notebook, window[: body.last - first + 1], notes) if notebook else []
    summary = f"{number_of(body.last - first + 1, 'line')} of {path}"
    shown_text = answer("\n".join([*body.rows, *notes]), summary, "; ".join(cut))
    return shown_text._replace(content=(*shown_text.content, *pictures))


def _pictures(notebook: Notebook, window: list[Line], notes: list[str]) -> list[Image]:
    """Of the lines that are shown: the first few."""
    found = [notebook.pictures[line.data] for line in window if line.data in notebook.pictures]
    taken: list[Image] = []
    room = MOST_IMAGE_BYTES
    for media_type, value in found[:MOST_PICTURES]:
        data = picture_bytes(value)
        if image_type(data) == media_type and len(data) <= room:
            taken.append(Image(media_type, base64.b64encode(data).decode()))
            room -= len(data)
    if left := len(found) - len(taken):
        notes.append(f"[{number_of(left, 'picture')} of the notebook left out: damaged, too large, or too many.]")
    return taken


def _rows(window: list[Line], first: int, unfinished: bool) -> _Shown:
    texts, note = _decoded(window)
    plain = not find_hidden("\n".join(texts))  # most files are, and asking once is faster
    rows: list[str] = []
    room, cut = MOST_CHARACTERS, 0
    for number, (line, text) in enumerate(zip(window, texts, strict=True), first):
        missing_here = line.cut + max(0, len(text) - LONGEST_LINE)
        shown_text = text[:LONGEST_LINE] if plain else reveal_hidden(text[:LONGEST_LINE])
        row = f"{number:6d}\t{shown_text}"
        if missing_here:
            least = "at least " if unfinished and number == first + len(window) - 1 else ""
            row += f" [{least}{missing_here:,} more characters in this line]"
        room -= len(row) + 1
        if room < 0 and rows:
            return _Shown(rows, number - 1, cut, note)
        rows.append(row)
        cut += missing_here > 0
    return _Shown(rows, first + len(window) - 1, cut, note)


def _decoded(window: list[Line]) -> tuple[list[str], str]:
    try:
        return [decoded(line.data, line.cut > 0) for line in window], ""
    except UnicodeDecodeError:
        texts = [line.data.decode("cp1252", "replace") for line in window]
        return texts, "[The file is not UTF-8; it is shown as Windows-1252.]"


READ = Tool("Read", description("Read"), ReadArguments, _read, reads_only=True)
