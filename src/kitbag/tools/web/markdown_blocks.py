"""Markdown as it is written block by block: paragraphs, headings, lists, quotations, code, and tables of such.

Used by web_page, which reads HTML and says what begins and ends. Everything that could grow by nesting is bounded.
"""

import html
import re
from typing import Final, NamedTuple

MOST_CONTAINERS: Final = 10
"""Quotations and list items around a line; what is deeper is written as if it were not."""
MOST_MARKS: Final = 16
NOWHERE: Final = "#"
"""The address of a link within the page."""
_MOST_COLUMNS = 60
_MOST_SPAN = 1_000
_LONGEST_CELL = 1_000
_LONGEST_REPEATED = 60
_LONGEST_TABLE = 1_000_000
_BLANKS = re.compile(r"[ \t\r\f\v\u00a0]+")
_AROUND_BREAK = re.compile(r" ?\n ?")
_OTHER_BLANKS = re.compile(r"[ \t\n\r\f\v\u00a0]+")


class Container:
    """What stands before each line of what is in it: `> `, or the sign of a list item and then as many blanks."""

    __slots__ = ("first", "is_item", "is_pending", "rest")

    def __init__(self, first: str, rest: str, is_item: bool) -> None:
        self.first = first
        self.rest = rest
        self.is_item = is_item
        self.is_pending = True
        """Nothing has been written in it."""


class Mark(NamedTuple):
    """Emphasis, code or a link that has begun and not ended."""

    name: str
    at: int
    """Where it begins in the line."""
    sign: str
    address: str = ""


class Blocks:
    """A page, or a cell of a table."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.size = 0
        self.containers: list[Container] = []
        self.marks: list[Mark] = []
        self.heading = 0
        self.has_structure = False
        """Whether there is something that does not fit into one line."""
        self._line: list[str] = []
        self._in_list = False

    # Within a line

    def write(self, raw: str) -> None:
        """Text of the page."""
        text = html.unescape(raw) if "&" in raw else raw
        self._line.append(_OTHER_BLANKS.sub(" ", text))

    def add(self, text: str) -> None:
        """Text of ours."""
        self._line.append(text)

    def break_line(self) -> None:
        self._line.append(" " if self.heading else "\n")

    def open_mark(self, name: str, sign: str, address: str = "") -> None:
        is_code = any(mark.sign == "`" for mark in self.marks)
        if len(self.marks) < MOST_MARKS and not is_code:  # code is shown as it is
            self.marks.append(Mark(name, len(self._line), sign, address))

    def close_mark(self, name: str) -> None:
        for at in range(len(self.marks) - 1, -1, -1):
            if self.marks[at].name == name:
                for mark in reversed(self.marks[at:]):
                    self._wrap(mark)
                del self.marks[at:]
                return

    def _wrap(self, mark: Mark) -> None:
        inside = "".join(self._line[mark.at :])
        del self._line[mark.at :]
        stripped = inside.strip()
        if not stripped or (mark.address and stripped in ("¶", "#", "§", "🔗")):
            self._line.append(" " if inside else "")
            return
        before = " " if inside[0] in " \n" else ""
        after = " " if inside[-1] in " \n" else ""
        self._line.append(f"{before}{_marked(stripped, mark)}{after}")

    def end_line(self) -> None:
        """Writes what there is as a block; what is open goes on in the next one."""
        if not self._line:
            return
        for mark in reversed(self.marks):
            self._wrap(mark)
        text = _AROUND_BREAK.sub("\n", _BLANKS.sub(" ", "".join(self._line))).strip()
        self._line.clear()
        self.marks = [mark._replace(at=0) for mark in self.marks]
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
            self._line_out("".join(one.rest for one in self.containers if not one.is_pending).rstrip())
        first = "".join(one.first if one.is_pending else one.rest for one in self.containers)
        rest = "".join(one.rest for one in self.containers)
        for container in pending:
            container.is_pending = False
        self._line_out(f"{first}{lines[0]}" if lines[0] else first.rstrip())
        for line in lines[1:]:
            self._line_out(f"{rest}{line}" if line else rest.rstrip())
        self._in_list = any(container.is_item for container in self.containers)

    def leave_list(self) -> None:
        """What follows is no longer part of one."""
        self._in_list = False

    def _line_out(self, line: str) -> None:
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

    def write_table(self, table: "Table") -> None:
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


def _marked(text: str, mark: Mark) -> str:
    if mark.address == NOWHERE:
        return text
    if mark.address:
        return f"[{text.replace(chr(10), ' ')}]({mark.address})"
    if mark.sign != "`":
        return f"{mark.sign}{text}{mark.sign}"
    text = text.replace("\n", " ")
    if "`" not in text:
        return f"`{text}`"
    fence = "`" * (1 + max(len(run) for run in re.findall("`+", text)))
    return f"{fence} {text} {fence}"


class Cell(NamedTuple):
    text: str
    has_structure: bool
    is_header: bool
    columns: int
    rows: int


class Table:
    def __init__(self) -> None:
        self._rows: list[list[Cell]] = []
        self.size = 0

    def start_row(self) -> None:
        if not self._rows or self._rows[-1]:
            self._rows.append([])

    def add(self, cell: Cell) -> None:
        if not self._rows:
            self._rows.append([])
        self._rows[-1].append(cell)
        self.size += len(cell.text)

    def cells(self) -> list[Cell]:
        return [cell for row in self._rows for cell in row]

    @property
    def is_data(self) -> bool:
        """And not something that only lays a page out."""
        cells = self.cells()
        if max((len(row) for row in self._rows), default=0) < 2:
            return False
        if any(cell.has_structure or len(cell.text) > _LONGEST_CELL for cell in cells):
            return False
        return any(cell.is_header for cell in cells) or not any("\n\n" in cell.text for cell in cells)

    def markdown(self) -> list[str]:
        rows = self._spread()
        width = max(map(len, rows))
        lines = [f"| {' | '.join([*row, *[''] * (width - len(row))])} |" for row in rows]
        return [lines[0], f"|{' --- |' * width}", *lines[1:]]

    def _spread(self) -> list[list[str]]:
        """Cells that reach over several columns leave the others empty; over several rows, they are said again."""
        below: dict[int, tuple[int, str]] = {}
        rows: list[list[str]] = []
        room = _LONGEST_TABLE
        for row in self._rows:
            made: list[str] = []
            for cell in row:
                _fill(made, below)
                text = re.sub(r"\n+", "<br>", cell.text).replace("|", "\\|")
                for column in range(max(1, min(cell.columns, _MOST_COLUMNS))):
                    if cell.rows > 1:
                        again = "" if column or len(text) > _LONGEST_REPEATED else text
                        below[len(made)] = (min(cell.rows, _MOST_SPAN) - 1, again)
                    made.append("" if column else text)
                if len(made) >= _MOST_COLUMNS:
                    break
            _fill(made, below)
            if made:
                rows.append(made[:_MOST_COLUMNS])
            room -= sum(map(len, made)) + 3 * len(made)
            if room < 0:
                break
        return rows


def _fill(row: list[str], below: dict[int, tuple[int, str]]) -> None:
    while len(row) < _MOST_COLUMNS and len(row) in below:
        column = len(row)
        left, text = below.pop(column)
        if left > 1:
            below[column] = (left - 1, text)
        row.append(text)
