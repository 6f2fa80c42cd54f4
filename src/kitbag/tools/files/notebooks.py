"""Renders notebooks (`.ipynb`) as text: the cells in order, each with its type, source and outputs.

Used by Read, which numbers the lines and passes on some of the images. Decodes only what is shown, part by part, so
that a notebook full of images, or of nothing, takes little memory.
"""

import base64
import binascii
from collections.abc import Iterator
from typing import Any, Final, cast

import msgspec
from msgspec import Raw

from kitbag.processes.command_runner import clean_output

MAX_BYTES: Final = 32 << 20
MAX_OUTPUT_CHARS: Final = 8_000
"""Characters of one output."""
_MAX_VALUES = 500_000
"""Commas, braces and brackets, each of which may cost a hundred bytes of memory."""
_MAX_TEXT_BYTES = 2 << 20
"""Bytes of one source or output; of a larger one only its size is shown."""
_MAX_IMAGE_BYTES = 6 << 20
_IMAGE_TYPES: Final = ("image/png", "image/jpeg", "image/gif", "image/webp")
_NULL = Raw(b"null")


class NotebookError(ValueError):
    """The file can't be shown as a notebook; says why."""


class _Cell(msgspec.Struct):
    cell_type: Raw = _NULL
    id: Raw = _NULL
    source: Raw = _NULL
    input: Raw = _NULL
    """The source in an older format."""
    execution_count: Raw = _NULL
    prompt_number: Raw = _NULL
    outputs: Raw = _NULL


class _Sheet(msgspec.Struct):
    cells: list[_Cell] = []


class _Notebook(msgspec.Struct):
    cells: list[_Cell] | None = None
    worksheets: list[_Sheet] = []


class _Output(msgspec.Struct):
    output_type: Raw = _NULL
    text: Raw = _NULL
    data: dict[str, Raw] = {}
    ename: Raw = _NULL
    evalue: Raw = _NULL
    traceback: Raw = _NULL


class Notebook:
    def __init__(self, data: bytes) -> None:
        """Raises NotebookError."""
        if data.count(b",") + data.count(b"{") + data.count(b"[") > _MAX_VALUES:
            raise NotebookError("it is too complex")
        try:
            read = msgspec.json.decode(data.removeprefix(b"\xef\xbb\xbf"), type=_Notebook)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise NotebookError(str(error)) from error
        if read.cells is None and not read.worksheets:
            raise NotebookError("it has no cells")
        older = [cell for sheet in read.worksheets for cell in sheet.cells]
        self._cells = older if read.cells is None else read.cells
        self.images: dict[bytes, tuple[str, Raw]] = {}
        """By the placeholder line of an image: its media type and its data."""

    def render_cells(self) -> Iterator[bytes]:
        """The notebook as UTF-8, cell by cell."""
        if not self._cells:
            yield b"[The notebook has no cells.]\n"
        for number, cell in enumerate(self._cells, 1):
            lines = [self._cell_title(number, cell), _decode_text(cell.source if cell.source != _NULL else cell.input)]
            for output in _decode_outputs(cell.outputs):
                lines += ["--- output ---", *self._render_output(output)]
            yield "".join(f"{line}\n" for line in [*lines, ""]).encode("utf-8", "replace")

    def _cell_title(self, number: int, cell: _Cell) -> str:
        execution_count = cell.execution_count if cell.execution_count != _NULL else cell.prompt_number
        run_number = _short_text(execution_count)
        cell_id = _short_text(cell.id)
        kind = _short_text(cell.cell_type) or "unknown type"
        run = f", run {run_number}" if run_number else ""
        return f"--- cell {number}: {kind}{run}{f', id {cell_id}' if cell_id else ''} ---"

    def _render_output(self, output: _Output) -> Iterator[str]:
        kind = _short_text(output.output_type)
        if kind in ("error", "pyerr"):
            trace = _decode_text(output.traceback)
            yield _truncate_output(
                clean_output(trace) or f"{_decode_text(output.ename)}: {_decode_text(output.evalue)}"
            )
            return
        if output.text != _NULL:
            yield _truncate_output(clean_output(_decode_text(output.text)))
        others: list[str] = []
        has_image = any(name in _IMAGE_TYPES for name in output.data)
        for name, value in output.data.items():
            if name in _IMAGE_TYPES:
                placeholder = f"[image {len(self.images) + 1}: {name}]"
                self.images[placeholder.encode()] = name, value
                yield placeholder
            elif name == "text/plain":
                if not has_image:  # beside an image it is just `<Figure size 640x480>`
                    yield _truncate_output(clean_output(_decode_text(value)))
            elif name in ("text/markdown", "application/json") and "text/plain" not in output.data:
                yield _truncate_output(clean_output(_decode_text(value)))
            else:
                others.append(name[:60])
        if others and not has_image and "text/plain" not in output.data:
            yield f"[omitted: {', '.join(others[:5])}]"


def decode_image(value: Raw) -> bytes:
    """Decode an image of a notebook; empty if it is damaged or too large."""
    if len(memoryview(value)) > _MAX_IMAGE_BYTES:
        return b""
    value_json = _decode_json(value)
    encoded = (
        "".join(str(one) for one in cast("list[object]", value_json))
        if isinstance(value_json, list)
        else str(value_json)
    )
    try:
        return base64.b64decode("".join(encoded.split()), validate=True)
    except (binascii.Error, ValueError):
        return b""


def _decode_outputs(value: Raw) -> list[_Output]:
    try:
        return msgspec.json.decode(value, type=list[_Output] | None) or []
    except (msgspec.DecodeError, RecursionError):
        return [_Output(text=Raw(b'"[invalid outputs]"'))]


def _decode_text(value: Raw) -> str:
    """A string, or a list of strings, as notebooks store lines."""
    size = len(memoryview(value))
    if size > _MAX_TEXT_BYTES:
        return f"[{size / 1e6:.1f} MB, too long to show]"
    found = _decode_json(value)
    if isinstance(found, list):
        lines = [str(one) for one in cast("list[object]", found)]
        # The lines of a source have line ends, those of a traceback do not.
        return ("" if any(line.endswith("\n") for line in lines[:-1]) else "\n").join(lines)
    return "" if found is None else str(found)


def _decode_json(value: Raw) -> Any:
    try:
        return msgspec.json.decode(value)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return "[damaged]"


def _short_text(value: Raw) -> str:
    """A short value for a title."""
    if len(memoryview(value)) > 300:
        return "?"
    found = _decode_json(value)
    return " ".join(str(found).split()) if isinstance(found, str | int) and found != "" else ""


def _truncate_output(text: str) -> str:
    if len(text) <= MAX_OUTPUT_CHARS:
        return text
    return f"{text[:MAX_OUTPUT_CHARS]}\n[{len(text) - MAX_OUTPUT_CHARS:,} more characters of output]"
