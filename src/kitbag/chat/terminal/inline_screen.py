"""A prompt_toolkit application drawn below the scrollback: new text is printed above it in the same write as the next
frame.

Used by terminal_ui. Printed text is never redrawn, so it scrolls and can be selected like any text.
"""

import asyncio
import os
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from prompt_toolkit.application import Application
from prompt_toolkit.cursor_shapes import ModalCursorShapeConfig
from prompt_toolkit.data_structures import Point, Size
from prompt_toolkit.enums import EditingMode
from prompt_toolkit.input import Input
from prompt_toolkit.key_binding import KeyBindings
from prompt_toolkit.keys import Keys
from prompt_toolkit.layout import Layout
from prompt_toolkit.output import ColorDepth, Output
from prompt_toolkit.renderer import CPR_Support, Renderer
from prompt_toolkit.styles import BaseStyle, Style

from kitbag.chat.terminal.reflow import Reflow, guess_reflow
from kitbag.chat.terminal.terminal_queries import is_remote

QUERY_KEYBOARD: Final = "\x1b[?u"
"""Only terminals that distinguish Shift-Enter from Enter respond to this."""
_KEYBOARD_ON: Final = "\x1b[>1u"
_KEYBOARD_OFF: Final = "\x1b[<u"
_STABLE_SECONDS: Final = 0.25
_BEGIN_UPDATE: Final = "\x1b[?2026h"
_END_UPDATE: Final = "\x1b[?2026l"
"""Between these (synchronized output) a terminal shows no partial frame; others ignore them."""


class ReportedSize:
    """Overrides the size of an output with what the terminal reported, until the kernel reports another one."""

    def __init__(self, output: Output) -> None:
        self._measure = output.get_size
        self._measured = self._reported = self._at_query = Size(rows=0, columns=0)
        output.get_size = self._get_size

    def _get_size(self) -> Size:
        size = self._measure()
        return self._reported if size == self._measured else size

    def record_query(self) -> None:
        self._at_query = self._measure()

    def set(self, size: Size) -> None:
        """What the terminal reported; ignored if the kernel reports another size than at the query, so a later one."""
        self._measured = self._measure()
        self._reported = size if self._measured == self._at_query else self._measured

    @property
    def is_ahead(self) -> bool:
        """The kernel does not know the reported size yet."""
        return self._measure() == self._measured != self._reported


class InlineRenderer(Renderer):
    reflow = Reflow()
    has_extended_keys = False
    """The terminal reported the extended keyboard protocol."""
    _keyboard_is_on = False

    def __init__(self, style: BaseStyle, output: Output) -> None:
        self._widest: dict[int, int] = {}
        """The greatest width of each row since it was erased."""
        super().__init__(style, output)

    def print_above(self, text: str) -> None:
        """Prints where the application is drawn; the caller redraws it below in the same write."""
        self.output.write_raw(_BEGIN_UPDATE)
        self._erase_up(self._cursor_pos.y)
        self.output.write_raw(text.replace("\n", "\r\n"))
        self.output.reset_attributes()

    def end_update(self) -> None:
        self.output.write_raw(_END_UPDATE)
        self.output.flush()

    @property
    def cursor_row(self) -> int:
        """Within the last frame."""
        return self._cursor_pos.y

    def is_outdated_in_tmux(self, size: Size) -> bool:
        return self.reflow.is_tmux and self._last_size is not None and size != self._last_size

    def erase_if_resized(self) -> None:
        """A frame may be due before the signal of a new size arrives."""
        if self._last_size is not None and self.output.get_size() != self._last_size:
            self._erase_after_resize()

    def _erase_after_resize(self) -> None:
        """Erases the last frame after the terminal was resized."""
        rows = self._cursor_pos.y
        columns = self.output.get_size().columns
        if self.reflow.rewraps and self._last_size is not None and columns < self._last_size.columns:
            keeps_erased = self.reflow.is_tmux
            widths = [self._widest.get(row, 0) if keeps_erased else self._row_width(row) for row in range(rows)]
            rows = sum(-(-max(width, 1) // columns) for width in widths)
            rows += self._cursor_pos.x // columns
        self._erase_up(rows)

    def erase_moved(self) -> None:
        """Narrow rows will be where wide ones were, and tmux would rewrap them like those."""
        if self.reflow.is_tmux and self._last_screen is not None:
            self._erase_up(self._cursor_pos.y)

    def clear_screen(self) -> None:
        self.output.cursor_goto(0, 0)
        self._erase_up(0)

    def _row_width(self, row: int) -> int:
        if self._last_screen is None:
            return 0
        cells = self._last_screen.data_buffer[row]
        return max((at + max(cell.width, 1) for at, cell in cells.items() if cell.char not in (" ", "")), default=0)

    def _erase_up(self, rows: int) -> None:
        self.output.write_raw("\r")
        self.output.cursor_up(rows)
        # Move by one column: tmux would save what is erased from the first cell of the screen to its scrollback.
        self.output.write_raw(" ")
        self.output.erase_down()
        self.output.write_raw("\r")
        self.output.erase_end_of_line()
        self.output.reset_attributes()
        self.output.enable_autowrap()
        self._cursor_pos = Point(x=0, y=0)
        self._last_screen = None
        self._last_size = None
        self._widest = {}
        self._last_style = None

    def render(self, app: Application[Any], layout: Layout, is_done: bool = False) -> None:
        if self.has_extended_keys and not self._keyboard_is_on:
            self.output.write_raw(_KEYBOARD_ON)
            self._keyboard_is_on = True
        super().render(app, layout, is_done)
        if self.reflow.is_tmux and self._last_screen is not None:
            for row in range(self._last_screen.height):
                self._widest[row] = max(self._widest.get(row, 0), self._row_width(row))

    def reset(self, _scroll: bool = False, leave_alternate_screen: bool = True) -> None:
        if self._keyboard_is_on:
            self.output.write_raw(_KEYBOARD_OFF)
            self._keyboard_is_on = False
        super().reset(_scroll, leave_alternate_screen)


class InlineApplication(Application[None]):
    def __init__(
        self,
        *,
        layout: Layout,
        style: Style,
        bindings: KeyBindings,
        is_colored: bool,
        input: Input | None,  # noqa: A002 - prompt_toolkit's name
        output: Output | None,
        take_printed: Callable[[int], str],
        draw_soon: Callable[[], None],
        on_terminal_gone: Callable[[], None],
        environment: Mapping[str, str] = os.environ,
        vim: bool = False,
    ) -> None:
        """`take_printed` returns new text to print above, once; `draw_soon` calls `draw_now` once the size is known;
        `on_terminal_gone` is called when writing fails."""
        self._take_printed = take_printed
        self._draw_soon = draw_soon
        self._knows_size = False
        self._on_terminal_gone = on_terminal_gone
        self._new_size = (Size(rows=0, columns=0), 0.0)
        """A size that differs from the last frame's, and when it was first seen; 0: it does not differ."""
        super().__init__(
            layout=layout,
            style=style,
            key_bindings=bindings,
            include_default_pygments_style=False,
            full_screen=False,
            editing_mode=EditingMode.VI if vim else EditingMode.EMACS,
            cursor=ModalCursorShapeConfig() if vim else None,
            erase_when_done=True,
            color_depth=None if is_colored else ColorDepth.DEPTH_1_BIT,
            terminal_size_polling_interval=None,
            input=input,
            output=output,
        )
        self.reported_size = ReportedSize(self.output)
        self.inline_renderer = InlineRenderer(self._merged_style, self.output)
        self.inline_renderer.reflow = guess_reflow(environment)
        # The cursor position is not needed, and a late response would be taken for keys.
        self.inline_renderer.cpr_support = CPR_Support.NOT_SUPPORTED
        self.renderer = self.inline_renderer
        # A timeout distinguishes Esc from the start of an arrow key; it must be longer over a network.
        self.ttimeoutlen = 0.1 if is_remote(environment) else 0.05

    @property
    def timeoutlen(self) -> float:  # pyright: ignore[reportIncompatibleVariableOverride] - a variable in Application
        """Seconds to wait for the rest of a key sequence: brief after Esc, which interrupts; Vim's default for its
        commands of two keys, such as `dd`."""
        keys = self.key_processor.key_buffer
        return 0.05 if not keys or keys[0].key is Keys.Escape else 1.0

    @timeoutlen.setter
    def timeoutlen(self, seconds: float | None) -> None:
        """Set by Application itself, only at the start."""

    @property
    def can_draw(self) -> bool:
        return self._is_running and not self._running_in_terminal

    def draw_now(self) -> None:
        """tmux was just asked for its size."""
        self._knows_size = True
        try:
            self._redraw()
        finally:
            self._knows_size = False

    def _redraw(self, render_as_done: bool = False) -> None:
        if not render_as_done and self._is_resizing():
            return
        try:
            if self.can_draw:
                self.inline_renderer.erase_if_resized()
            printed = self._take_printed(self.output.get_size().columns) if self.can_draw else ""
            if printed:
                self.inline_renderer.print_above(printed)
            try:
                super()._redraw(render_as_done)
            finally:
                if printed:
                    self.inline_renderer.end_update()
        except OSError:
            self._on_terminal_gone()

    def _is_resizing(self) -> bool:
        """A frame at every step of a drag would leave rows behind: tmux moves as many rows to its scrollback as a
        narrower size adds, even above blank rows. So the last frame stays until the size is stable, and tmux itself
        has reported it: the kernel may still know an earlier one."""
        size = self.output.get_size()
        if not self.can_draw or not self.inline_renderer.is_outdated_in_tmux(size):
            self._new_size = (size, 0.0)
            return False
        if self._new_size[0] != size or not self._new_size[1]:
            self._new_size = (size, time.monotonic())
        left = self._new_size[1] + _STABLE_SECONDS - time.monotonic()
        if left <= 0 and self._knows_size:
            return False
        asyncio.get_running_loop().call_later(left, self._draw_soon)
        return True

    def _on_resize(self) -> None:
        if self.can_draw:
            self._redraw()
