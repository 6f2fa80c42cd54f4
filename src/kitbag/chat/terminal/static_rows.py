"""Lines without focus, written directly to prompt_toolkit's screen.

Used by layout for what changes many times a second. An unchanged line costs almost nothing, whereas a Window measures
and copies each of its characters.
"""

from collections.abc import Callable
from typing import Final

from prompt_toolkit.layout import Container, Dimension
from prompt_toolkit.layout.mouse_handlers import MouseHandlers
from prompt_toolkit.layout.screen import Char, Screen, WritePosition
from prompt_toolkit.utils import get_cwidth

from kitbag.chat.terminal.text_fragments import FragmentLine

_Cells = dict[int, Char]
_Line = tuple[tuple[str, str], ...]
_NO_CELL: Final = ""


class StaticRows(Container):
    def __init__(self, lines: Callable[[], list[FragmentLine]]) -> None:
        self._lines = lines
        self._cells: dict[_Line, _Cells] = {}
        """Of the previous frame."""

    def reset(self) -> None:
        self._cells = {}

    def get_children(self) -> list[Container]:
        return []

    def preferred_width(self, max_available_width: int) -> Dimension:
        return Dimension(preferred=max_available_width)

    def preferred_height(self, width: int, max_available_height: int) -> Dimension:
        return Dimension.exact(len(self._lines()))

    def write_to_screen(
        self,
        screen: Screen,
        mouse_handlers: MouseHandlers,
        write_position: WritePosition,
        parent_style: str,
        erase_bg: bool,
        z_index: int | None,
    ) -> None:
        top, width = write_position.ypos, write_position.width
        before, self._cells = self._cells, {}
        for at, line in enumerate(self._lines()[: write_position.height]):
            key = (*line, ("", str(width)))
            cells = before.get(key) or self._cells.get(key) or _cells(line, width)
            self._cells[key] = cells
            screen.data_buffer[top + at].update(cells)
        screen.width = max(screen.width, width)
        screen.height = max(screen.height, top + write_position.height)


def _cells(line: FragmentLine, width: int) -> _Cells:
    """A zero-width character joins the one before it; what exceeds the width is cut off."""
    cells: _Cells = {}
    column, last = 0, -1
    for style, text in line:
        for letter in text:
            cell = Char(letter, style)  # Char makes control characters visible
            size = get_cwidth(cell.char)
            if size == 0:
                if last >= 0:
                    cells[last] = Char(cells[last].char + letter, cells[last].style)
                continue
            if column + size > width:
                return cells
            cells[column] = cell
            for more in range(1, size):
                cells[column + more] = Char(_NO_CELL, style)
            last, column = column, column + size
    return cells
