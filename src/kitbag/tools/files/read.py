"""Read: a text file with line numbers, a notebook, the text of a PDF, or an image. Memory use does not depend on the
size of the file.

Used by the agent loop. paths authorizes the path and permissions/safe_open opens it, so that what is read is what was
allowed. Uses lines, notebooks and pdf_text.
"""

import base64
import os
import stat
import threading
import time
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
from msgspec import Meta, structs

from kitbag.errors import InvalidError
from kitbag.messages import Image
from kitbag.permissions.safe_open import open_for_reading
from kitbag.processes.run_process import run_in_thread
from kitbag.text.hidden_characters import find_hidden, reveal_hidden
from kitbag.text.human_format import format_count
from kitbag.tools.base import Arguments, Tool, ToolContext, ToolOutput, error_output, load_description, text_output
from kitbag.tools.files.lines import TextLine, decode_utf8, is_binary, read_chunks, skip_lines, split_lines
from kitbag.tools.files.paths import authorize_path, display_path, error_to_output, missing_path_output, visible_line

if TYPE_CHECKING:  # imported when such a file is read
    from kitbag.tools.files.notebooks import Notebook

MAX_LINES: Final = 2_000
MAX_LINE_CHARS: Final = 2_000
MAX_CHARS: Final = 50_000
MAX_NOTEBOOK_IMAGES: Final = 4
"""Of one notebook."""
MAX_IMAGE_BYTES: Final = 3_750_000
"""As base64 it is 5 MB, the most that providers accept."""
TIMEOUT_SECONDS: Final = 1.5
"""For reaching the first line, and for the end of a very long line."""
_LINE_NUMBER_CHARS = 7
"""Characters before each line."""
_HEADER_BYTES = 1 << 13
_PDF_SIGNATURE = b"%PDF-"
_MAX_COUNTED_BYTES = 16 << 20
"""How much is read beyond the window to count lines."""
_BINARY_SIGNATURES: Final = (
    (b"PK\x03\x04", "a ZIP archive"),
    (b"\x1f\x8b", "gzip data"),
    (b"\x7fELF", "a program"),
    (b"SQLite format 3\0", "an SQLite database"),
)


class ReadArguments(Arguments, frozen=True):
    file_path: Annotated[str, Meta(min_length=1, max_length=4_096)]
    offset: Annotated[int, Meta(ge=0, le=10**12)] = 1
    limit: Annotated[int, Meta(ge=1, le=10**6)] = MAX_LINES
    pages: Annotated[str, Meta(max_length=500, description="3, 1-5, 2,7 or 10-")] = ""


async def _read(arguments: ReadArguments, context: ToolContext) -> ToolOutput:
    return await run_in_thread(lambda stop: _read_blocking(arguments, context, stop))


def _read_blocking(arguments: ReadArguments, context: ToolContext, stop: threading.Event) -> ToolOutput:
    try:
        facts = authorize_path(context, "Read", {"file_path": arguments.file_path}, arguments.file_path).facts
        path = display_path(facts.requested, context)
        try:
            status = os.lstat(facts.resolved)
        except (FileNotFoundError, NotADirectoryError):
            return missing_path_output(context, facts)
        if stat.S_ISDIR(status.st_mode):
            return error_output(f"{path} is a directory", f'Use Glob with path "{path}" to list it.')
        descriptor = open_for_reading(facts.resolved, context.workspace, expected_resolved=facts.resolved)
    except InvalidError as error:
        return error_to_output(error)
    with open(descriptor, "rb", buffering=0):
        if context.seen_files is not None:
            context.seen_files.record_open_file(facts.resolved, descriptor)
        return _read_opened(descriptor, path, arguments, stop)


def _read_opened(descriptor: int, path: str, arguments: ReadArguments, stop: threading.Event) -> ToolOutput:
    size = os.fstat(descriptor).st_size
    head = os.pread(descriptor, _HEADER_BYTES, 0)
    if not head:
        return text_output(f"{path} is empty.", f"{path} is empty")
    media_type = image_type(head)
    if media_type:
        return _image_output(descriptor, path, media_type, size)
    if head.startswith(_PDF_SIGNATURE) or (path.lower().endswith(".pdf") and _PDF_SIGNATURE in head[:1024]):
        from kitbag.tools.files.pdf_text import read_pdf

        return read_pdf(descriptor, path, arguments.pages, stop)
    kind = next((kind for magic, kind in _BINARY_SIGNATURES if head.startswith(magic)), "")
    if kind or is_binary(head):
        return error_output(
            f"{path} is {kind or 'a binary file'} of {format_size(size)}, not text",
            "Read supports text, PDF and images.",
        )
    notes = ["[pages was ignored: this is not a PDF.]"] if arguments.pages else []
    first = max(1, arguments.offset)
    notebook = _parse_notebook(descriptor, size, notes) if path.lower().endswith(".ipynb") else None
    text = _TextReader(read_chunks(descriptor) if notebook is None else notebook.render_cells(), stop)
    window = text.read_window(first, arguments.limit)
    if not window:
        return _no_such_line_output(text, path, first, size)
    return _numbered_output(window, text, path, first, size, notes, notebook)


def _parse_notebook(descriptor: int, size: int, notes: list[str]) -> "Notebook | None":
    """None if it is shown as plain text; then a note says why."""
    from kitbag.tools.files.notebooks import MAX_BYTES, Notebook, NotebookError

    try:
        if size > MAX_BYTES:
            raise NotebookError(f"it is too large ({format_size(size)})")
        with open(descriptor, "rb", closefd=False) as file:
            data = file.read(MAX_BYTES + 1)
        return Notebook(data)
    except NotebookError as error:
        os.lseek(descriptor, 0, os.SEEK_SET)
        notes.append(
            f"[Shown as plain text, because it cannot be parsed as a notebook: {visible_line(str(error))[:300]}.]"
        )
        return None


def image_type(head: bytes) -> str:
    if head.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if head.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if head.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    return "image/webp" if head[:4] == b"RIFF" and head[8:12] == b"WEBP" else ""


def format_size(size: int) -> str:
    """`512 bytes`, `1.5 MB`."""
    if size < 1_000:
        return format_count(size, "byte")
    value, units = size / 1_000, ["KB", "MB", "GB", "TB"]
    while value >= 999.5 and len(units) > 1:
        value, units = value / 1_000, units[1:]
    return f"{value:.1f} {units[0]}"


def _image_output(descriptor: int, path: str, media_type: str, size: int) -> ToolOutput:
    with open(descriptor, "rb", closefd=False) as file:
        data = file.read(MAX_IMAGE_BYTES + 1)
    if len(data) > MAX_IMAGE_BYTES:
        limit = f"the maximum is {format_size(MAX_IMAGE_BYTES)}"
        return error_output(f"{path} is an image of {format_size(size)}; {limit}", "Create a smaller copy.")
    return ToolOutput(
        content=(Image(media_type=media_type, data=base64.b64encode(data).decode()),),
        summary=f"{path}, {media_type}, {format_size(len(data))}",
    )


class _TextReader:
    """Reads a file as lines and counts them on the way."""

    def __init__(self, chunks: Iterator[bytes], stop: threading.Event) -> None:
        self._stop = stop
        self._deadline = time.monotonic() + TIMEOUT_SECONDS
        self._chunks = self._count_chunks(chunks)
        self._newlines = 0
        self._last = b"\n"
        self.bytes = 0
        self.timed_out = False
        """Stopped before the end of the file."""
        self.has_more = False
        """There are lines after the window."""

    def _count_chunks(self, chunks: Iterator[bytes]) -> Iterator[bytes]:
        for chunk in chunks:
            self._newlines += chunk.count(b"\n")
            self._last = chunk[-1:] or self._last
            self.bytes += len(chunk)
            yield chunk
            if self._stop.is_set() or time.monotonic() >= self._deadline:
                self.timed_out = True
                return

    @property
    def line_count(self) -> int:
        """Of the whole file, unless timed_out."""
        return self._newlines + (self._last != b"\n")

    def read_window(self, first: int, limit: int) -> list[TextLine]:
        remaining_lines = split_lines(skip_lines(self._chunks, first - 1), 4 * MAX_LINE_CHARS + 4)
        window: list[TextLine] = []
        size = 0
        for line in islice(remaining_lines, limit):
            window.append(line)
            # A lower bound of the characters with the line number: what can't fit need not be rendered.
            size += _LINE_NUMBER_CHARS + (len(line.data) if line.data.isascii() else len(line.data) // 4)
            if size > MAX_CHARS:
                break
        # Not by asking for the next line, which may be very long.
        self.has_more = self.line_count > first - 1 + len(window) or bool(next(self._chunks, b""))
        return window

    def count_remaining(self) -> None:
        for _ in self._chunks:
            if self.bytes > _MAX_COUNTED_BYTES:
                self.timed_out = True
                return


def _no_such_line_output(text: _TextReader, path: str, first: int, size: int) -> ToolOutput:
    if text.timed_out:
        problem = f"timed out after {TIMEOUT_SECONDS} s before reaching line {first:,} of {path} ({format_size(size)})"
        return error_output(
            f"{problem}; reading stopped at line {text.line_count:,}", "Use Grep to find what you need."
        )
    count = format_count(text.line_count, "line")
    return error_output(f"{path} has {count}, so there is no line {first:,}", f"Use an offset up to {text.line_count}.")


class _RenderedRows(msgspec.Struct, frozen=True, kw_only=True):
    rows: list[str]
    last: int
    truncated_rows: int
    """How many rows are not complete lines."""
    encoding_note: str
    """Says that the file is not UTF-8."""


def _numbered_output(
    window: list[TextLine],
    text: _TextReader,
    path: str,
    first: int,
    size: int,
    notes: list[str],
    notebook: "Notebook | None",
) -> ToolOutput:
    unfinished = text.timed_out and not text.has_more
    body = _render_rows(window, first, unfinished)
    notes = [*notes, body.encoding_note] if body.encoding_note else notes
    truncation = [f"{format_count(body.truncated_rows, 'long line')} truncated"] if body.truncated_rows else []
    if text.has_more or body.last < first + len(window) - 1:
        text.count_remaining()
        whole = (
            f"more than {text.line_count:,} lines in {format_size(size)}"
            if text.timed_out
            else f"{text.line_count:,} lines"
        )
        truncation.append(f"lines {first:,}-{body.last:,} of {whole}")
        notes.append(f"[Showing {truncation[-1]}. Continue with offset={body.last + 1}.]")
    pictures = _notebook_images(notebook, window[: body.last - first + 1], notes) if notebook else []
    summary = f"{format_count(body.last - first + 1, 'line')} of {path}"
    shown_text = text_output("\n".join([*body.rows, *notes]), summary, "; ".join(truncation))
    return structs.replace(shown_text, content=(*shown_text.content, *pictures))


def _notebook_images(notebook: "Notebook", window: list[TextLine], notes: list[str]) -> list[Image]:
    """The first images among the lines shown."""
    from kitbag.tools.files.notebooks import decode_image

    found = [notebook.images[line.data] for line in window if line.data in notebook.images]
    images: list[Image] = []
    remaining_bytes = MAX_IMAGE_BYTES
    for media_type, value in found[:MAX_NOTEBOOK_IMAGES]:
        data = decode_image(value)
        if image_type(data) == media_type and len(data) <= remaining_bytes:
            images.append(Image(media_type=media_type, data=base64.b64encode(data).decode()))
            remaining_bytes -= len(data)
    if omitted := len(found) - len(images):
        notes.append(f"[{format_count(omitted, 'image')} omitted from the notebook: damaged, too large or too many.]")
    return images


def _render_rows(window: list[TextLine], first: int, unfinished: bool) -> _RenderedRows:
    texts, note = _decode_lines(window)
    plain = not find_hidden("\n".join(texts))  # the usual case, and one check is faster
    rows: list[str] = []
    remaining_chars, truncated = MAX_CHARS, 0
    for number, (line, text) in enumerate(zip(window, texts, strict=True), first):
        missing_here = line.missing_chars + max(0, len(text) - MAX_LINE_CHARS)
        shown_text = text[:MAX_LINE_CHARS] if plain else reveal_hidden(text[:MAX_LINE_CHARS])
        row = f"{number:6d}\t{shown_text}"
        if missing_here:
            least = "at least " if unfinished and number == first + len(window) - 1 else ""
            row += f" [{least}{missing_here:,} more characters in this line]"
        remaining_chars -= len(row) + 1
        if remaining_chars < 0 and rows:
            return _RenderedRows(rows=rows, last=number - 1, truncated_rows=truncated, encoding_note=note)
        rows.append(row)
        truncated += missing_here > 0
    return _RenderedRows(rows=rows, last=first + len(window) - 1, truncated_rows=truncated, encoding_note=note)


def _decode_lines(window: list[TextLine]) -> tuple[list[str], str]:
    try:
        return [decode_utf8(line.data, line.missing_chars > 0) for line in window], ""
    except UnicodeDecodeError:
        texts = [line.data.decode("cp1252", "replace") for line in window]
        return texts, "[The file is not UTF-8; decoded as Windows-1252.]"


READ = Tool(name="Read", description=load_description("Read"), arguments=ReadArguments, run=_read, read_only=True)
