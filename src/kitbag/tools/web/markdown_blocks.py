"""Writes Markdown block by block: paragraphs, headings, lists, quotes, code and tables.

Used by html_to_markdown, which reports what starts and ends. Everything that could grow by nesting is bounded.
"""

import html
import re
from typing import Final

import msgspec
from msgspec import structs

MAX_CONTAINERS: Final = 10
"""Quotes and list items around a line; deeper ones are ignored."""
MAX_MARKS: Final = 16
PAGE_ANCHOR: Final = "#"
"""The URL of a link within the page."""
_MAX_COLUMNS = 60
_MAX_ROWSPAN = 1_000
_MAX_CELL_CHARS = 1_000
_MAX_REPEATED_CHARS = 60
_MAX_TABLE_CHARS = 1_000_000
_BLANKS = re.compile(r"[ \t\r\f\v\u00a0]+")
_AROUND_BREAK = re.compile(r" ?\n ?")
_WHITESPACE = re.compile(r"[ \t\n\r\f\v\u00a0]+")


class Container:
    """The prefix of each line in a block: `> `, or a list marker and then spaces."""

    __slots__ = ("first", "is_item", "is_pending", "rest")

    def __init__(self, first: str, rest: str, is_item: bool) -> None:
        self.first = first
        self.rest = rest
        self.is_item = is_item
        self.is_pending = True
        """Nothing has been written in it yet."""


class InlineMark(msgspec.Struct, frozen=True, kw_only=True):
    """Open emphasis, code or link."""

    name: str
    at: int
    """Its start in the current line."""
    sign: str
    url: str = ""


class MarkdownWriter:
    """Writes a page or a table cell."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.size = 0
        self.containers: list[Container] = []
        self.marks: list[InlineMark] = []
        self.heading = 0
        self.has_structure = False
        """Whether it contains something that does not fit on one line."""
        self._line: list[str] = []
        self._in_list = False

    # Within a line

    def write_text(self, raw: str) -> None:
        """Text of the page."""
        text = html.unescape(raw) if "&" in raw else raw
        self._line.append(_WHITESPACE.sub(" ", text))

    def add_markup(self, text: str) -> None:
        """Text that Kitbag adds."""
        self._line.append(text)

    def break_line(self) -> None:
        self._line.append(" " if self.heading else "\n")

    def open_mark(self, name: str, sign: str, url: str = "") -> None:
        is_code = any(mark.sign == "`" for mark in self.marks)
        if len(self.marks) < MAX_MARKS and not is_code:  # code is shown unchanged
            self.marks.append(InlineMark(name=name, at=len(self._line), sign=sign, url=url))

    def close_mark(self, name: str) -> None:
        for at in range(len(self.marks) - 1, -1, -1):
            if self.marks[at].name == name:
                for mark in reversed(self.marks[at:]):
                    self._wrap_mark(mark)
                del self.marks[at:]
                return

    def _wrap_mark(self, mark: InlineMark) -> None:
        inside = "".join(self._line[mark.at :])
        del self._line[mark.at :]
        stripped = inside.strip()
        if not stripped or (mark.url and stripped in ("¶", "#", "§", "🔗")):
            self._line.append(" " if inside else "")
            return
        before = " " if inside[0] in " \n" else ""
        after = " " if inside[-1] in " \n" else ""
        self._line.append(f"{before}{_render_mark(stripped, mark)}{after}")

    def end_line(self) -> None:
        """Write the current line as a block; open marks continue in the next one."""
        if not self._line:
            return
        for mark in reversed(self.marks):
            self._wrap_mark(mark)
        text = _AROUND_BREAK.sub("\n", _BLANKS.sub(" ", "".join(self._line))).strip()
        self._line.clear()
        self.marks = [structs.replace(mark, at=0) for mark in self.marks]
        if not text:
            return
        if self.heading:
            text = f"{'#' * self.heading} {text}"
            self.has_structure = True
        self.write_block(re.sub("\n{2,}", "\n", text).split("\n"))

    # Whole blocks

    def write_block(self, lines: list[str]) -> None:
        pending = [container for container in self.containers if container.is_pending]
        follows_item = self._in_list and any(container.is_item for container in pending)
        if self.lines and not follows_item:
            self._append_line("".join(one.rest for one in self.containers if not one.is_pending).rstrip())
        first = "".join(one.first if one.is_pending else one.rest for one in self.containers)
        rest = "".join(one.rest for one in self.containers)
        for container in pending:
            container.is_pending = False
        self._append_line(f"{first}{lines[0]}" if lines[0] else first.rstrip())
        for line in lines[1:]:
            self._append_line(f"{rest}{line}" if line else rest.rstrip())
        self._in_list = any(container.is_item for container in self.containers)

    def leave_list(self) -> None:
        """What follows is not part of the list."""
        self._in_list = False

    def _append_line(self, line: str) -> None:
        self.lines.append(line)
        self.size += len(line) + 1

    def write_code(self, code: str, language: str) -> None:
        lines = [line.rstrip() for line in code.strip("\n").split("\n")]
        if not any(lines):
            return
        longest = max((len(found) for found in re.findall("`{3,}", code)), default=0)
        fence = "`" * max(3, longest + 1)
        self.has_structure = True
        self.write_block([f"{fence}{language}", *lines, fence])

    def write_table(self, table: "HtmlTable") -> None:
        if table.is_data:
            self.has_structure = True
            self.write_block(table.markdown())
            return
        for cell in table.cells():
            if cell.text:
                self.has_structure = self.has_structure or cell.has_structure
                self.write_block(cell.text.split("\n"))

    def text(self) -> str:
        self.end_line()
        return "\n".join(self.lines)


def _render_mark(text: str, mark: InlineMark) -> str:
    if mark.url == PAGE_ANCHOR:
        return text
    if mark.url:
        return f"[{text.replace(chr(10), ' ')}]({mark.url})"
    if mark.sign != "`":
        return f"{mark.sign}{text}{mark.sign}"
    text = text.replace("\n", " ")
    if "`" not in text:
        return f"`{text}`"
    fence = "`" * (1 + max(len(run) for run in re.findall("`+", text)))
    return f"{fence} {text} {fence}"


class HtmlTableCell(msgspec.Struct, frozen=True, kw_only=True):
    text: str
    has_structure: bool
    is_header: bool
    colspan: int
    rowspan: int


class HtmlTable:
    def __init__(self) -> None:
        self._rows: list[list[HtmlTableCell]] = []
        self.size = 0

    def start_row(self) -> None:
        if not self._rows or self._rows[-1]:
            self._rows.append([])

    def add(self, cell: HtmlTableCell) -> None:
        if not self._rows:
            self._rows.append([])
        self._rows[-1].append(cell)
        self.size += len(cell.text)

    def cells(self) -> list[HtmlTableCell]:
        return [cell for row in self._rows for cell in row]

    @property
    def is_data(self) -> bool:
        """Whether it is a data table and not page layout."""
        cells = self.cells()
        if max((len(row) for row in self._rows), default=0) < 2:
            return False
        if any(cell.has_structure or len(cell.text) > _MAX_CELL_CHARS for cell in cells):
            return False
        return any(cell.is_header for cell in cells) or not any("\n\n" in cell.text for cell in cells)

    def markdown(self) -> list[str]:
        rows = self._expand_spans()
        width = max(map(len, rows))
        lines = [f"| {' | '.join([*row, *[''] * (width - len(row))])} |" for row in rows]
        return [lines[0], f"|{' --- |' * width}", *lines[1:]]

    def _expand_spans(self) -> list[list[str]]:
        """A cell that spans columns leaves the others empty; one that spans rows is repeated."""
        below: dict[int, tuple[int, str]] = {}
        rows: list[list[str]] = []
        remaining_chars = _MAX_TABLE_CHARS
        for row in self._rows:
            cells: list[str] = []
            for cell in row:
                _fill_spanned(cells, below)
                text = re.sub(r"\n+", "<br>", cell.text).replace("|", "\\|")
                for column in range(max(1, min(cell.colspan, _MAX_COLUMNS))):
                    if cell.rowspan > 1:
                        repeated = "" if column or len(text) > _MAX_REPEATED_CHARS else text
                        below[len(cells)] = (min(cell.rowspan, _MAX_ROWSPAN) - 1, repeated)
                    cells.append("" if column else text)
                if len(cells) >= _MAX_COLUMNS:
                    break
            _fill_spanned(cells, below)
            if cells:
                rows.append(cells[:_MAX_COLUMNS])
            remaining_chars -= sum(map(len, cells)) + 3 * len(cells)
            if remaining_chars < 0:
                break
        return rows


def _fill_spanned(row: list[str], below: dict[int, tuple[int, str]]) -> None:
    while len(row) < _MAX_COLUMNS and len(row) in below:
        column = len(row)
        left, text = below.pop(column)
        if left > 1:
            below[column] = (left - 1, text)
        row.append(text)
