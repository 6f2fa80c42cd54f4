"""Notebooks (`.ipynb`) as text: their cells in order, each with its kind, its source and what it printed.

Used by Read, which numbers the lines of what is made here and passes a few of the pictures on. Only what is shown is
taken out of the JSON, piece by piece, so that a notebook full of pictures, or of nothing at all, takes little memory.
"""

import base64
import binascii
from collections.abc import Iterator
from typing import Any, Final, cast

import msgspec
from msgspec import Raw

from kitbag.processes.command_runner import clean_output

MOST_BYTES: Final = 32 << 20
MOST_OUTPUT: Final = 8_000
"""Characters of one output."""
_MOST_VALUES = 500_000
"""Commas, braces and brackets, each of which may cost a hundred bytes of memory."""
_LARGEST_TEXT = 2 << 20
"""Bytes of one source or output; a larger one is only said to be there."""
_LARGEST_PICTURE = 6 << 20
_PICTURES: Final = ("image/png", "image/jpeg", "image/gif", "image/webp")
_NONE = Raw(b"null")


class NotebookError(ValueError):
    """It can't be shown as a notebook; says why."""


class _Cell(msgspec.Struct):
    cell_type: Raw = _NONE
    id: Raw = _NONE
    source: Raw = _NONE
    input: Raw = _NONE
    """The source in an older format."""
    execution_count: Raw = _NONE
    prompt_number: Raw = _NONE
    outputs: Raw = _NONE


class _Sheet(msgspec.Struct):
    cells: list[_Cell] = []


class _Notebook(msgspec.Struct):
    cells: list[_Cell] | None = None
    worksheets: list[_Sheet] = []


class _Output(msgspec.Struct):
    output_type: Raw = _NONE
    text: Raw = _NONE
    data: dict[str, Raw] = {}
    ename: Raw = _NONE
    evalue: Raw = _NONE
    traceback: Raw = _NONE


class Notebook:
    def __init__(self, data: bytes) -> None:
        """Raises NotebookError."""
        if data.count(b",") + data.count(b"{") + data.count(b"[") > _MOST_VALUES:
            raise NotebookError("it has too many parts")
        try:
            read = msgspec.json.decode(data.removeprefix(b"\xef\xbb\xbf"), type=_Notebook)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise NotebookError(str(error)) from error
        if read.cells is None and not read.worksheets:
            raise NotebookError("it has no cells")
        older = [cell for sheet in read.worksheets for cell in sheet.cells]
        self._cells = older if read.cells is None else read.cells
        self.pictures: dict[bytes, tuple[str, Raw]] = {}
        """The line that stands for a picture: its media type and its data."""

    def pieces(self) -> Iterator[bytes]:
        """The whole as UTF-8, cell by cell."""
        if not self._cells:
            yield b"[The notebook has no cells.]\n"
        for number, cell in enumerate(self._cells, 1):
            lines = [self._title(number, cell), _text(cell.source if cell.source != _NONE else cell.input)]
            for output in _outputs(cell.outputs):
                lines += ["--- output ---", *self._shown(output)]
            yield "".join(f"{line}\n" for line in [*lines, ""]).encode("utf-8", "replace")

    def _title(self, number: int, cell: _Cell) -> str:
        ran = cell.execution_count if cell.execution_count != _NONE else cell.prompt_number
        run = _plain(ran)
        known = _plain(cell.id)
        kind = _plain(cell.cell_type) or "unknown kind"
        return f"--- cell {number}: {kind}{f', run {run}' if run else ''}{f', id {known}' if known else ''} ---"

    def _shown(self, output: _Output) -> Iterator[str]:
        kind = _plain(output.output_type)
        if kind in ("error", "pyerr"):
            trace = _text(output.traceback)
            yield _bounded(clean_output(trace) or f"{_text(output.ename)}: {_text(output.evalue)}")
            return
        if output.text != _NONE:
            yield _bounded(clean_output(_text(output.text)))
        others: list[str] = []
        pictured = any(name in _PICTURES for name in output.data)
        for name, value in output.data.items():
            if name in _PICTURES:
                mark = f"[picture {len(self.pictures) + 1}: {name}]"
                self.pictures[mark.encode()] = name, value
                yield mark
            elif name == "text/plain":
                if not pictured:  # beside a picture it is no more than `<Figure size 640x480>`
                    yield _bounded(clean_output(_text(value)))
            elif name in ("text/markdown", "application/json") and "text/plain" not in output.data:
                yield _bounded(clean_output(_text(value)))
            else:
                others.append(name[:60])
        if others and not pictured and "text/plain" not in output.data:
            yield f"[left out: {', '.join(others[:5])}]"


def picture_bytes(value: Raw) -> bytes:
    """Of what stands in a notebook for a picture; empty when it is damaged or very large."""
    if len(memoryview(value)) > _LARGEST_PICTURE:
        return b""
    found = _decoded(value)
    written = "".join(str(one) for one in cast("list[object]", found)) if isinstance(found, list) else str(found)
    try:
        return base64.b64decode("".join(written.split()), validate=True)
    except (binascii.Error, ValueError):
        return b""


def _outputs(value: Raw) -> list[_Output]:
    try:
        return msgspec.json.decode(value, type=list[_Output] | None) or []
    except (msgspec.DecodeError, RecursionError):
        return [_Output(text=Raw(b'"[these outputs are damaged]"'))]


def _text(value: Raw) -> str:
    """A text, or a list of texts, which is how notebooks keep their lines."""
    size = len(memoryview(value))
    if size > _LARGEST_TEXT:
        return f"[{size / 1e6:.1f} MB, too long to be shown]"
    found = _decoded(value)
    if isinstance(found, list):
        lines = [str(one) for one in cast("list[object]", found)]
        # The lines of a source have their ends, those of a traceback have none.
        return ("" if any(line.endswith("\n") for line in lines[:-1]) else "\n").join(lines)
    return "" if found is None else str(found)


def _decoded(value: Raw) -> Any:
    try:
        return msgspec.json.decode(value)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return "[damaged]"


def _plain(value: Raw) -> str:
    """Of something short that stands in a title."""
    if len(memoryview(value)) > 300:
        return "?"
    found = _decoded(value)
    return " ".join(str(found).split()) if isinstance(found, str | int) and found != "" else ""


def _bounded(text: str) -> str:
    if len(text) <= MOST_OUTPUT:
        return text
    return f"{text[:MOST_OUTPUT]}\n[{len(text) - MOST_OUTPUT:,} more characters of output]"
