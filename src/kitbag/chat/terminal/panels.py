"""Panels in place of the input line: PanelState has the cursor, keys and drawing of one, PanelRunner runs them.

Used by terminal_ui, key_bindings and layout.
"""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final

from kitbag.chat.terminal.text_fragments import STYLES, FragmentLine, cut_line, styled_fragments, visible_range
from kitbag.chat.ui import Panel, PanelRow
from kitbag.errors import KitbagError
from kitbag.text.terminal_width import truncate_to_width
from kitbag.views.blocks import Block, NoticeBlock, Span

_REFRESH_SECONDS: Final = 1.0
_ESCAPE: Final = "escape"


class PanelState:
    def __init__(self, panel: Panel) -> None:
        self.panel = panel
        self.rows: tuple[PanelRow, ...] = ()
        self.cursor = 0
        self.page = 10
        """Number of visible rows."""
        self.running_action = ""
        """Label of the running action."""
        self._selected_id = ""
        self.refresh()

    def refresh(self) -> None:
        """Keeps the cursor on its row, or at its position if the row is gone."""
        self.rows = self.panel.rows()
        ids = [row.id for row in self.rows]
        if self._selected_id in ids:
            self.cursor = ids.index(self._selected_id)
        self._move_cursor(self.cursor)

    def _move_cursor(self, at: int) -> None:
        self.cursor = min(max(at, 0), max(len(self.rows) - 1, 0))
        self._selected_id = self.selected_id

    @property
    def selected_id(self) -> str:
        """The id of the row at the cursor."""
        return self.rows[self.cursor].id if self.rows else ""

    def handle_key(self, name: str) -> str:
        """Returns the key of the action to run, or an empty string. `name`: `enter`, `space`, `up`, `pagedown`, a
        character …"""
        if any(action.key == name for action in self.panel.actions):
            return name if self.rows and not self.running_action else ""
        moves = {
            "up": self.cursor - 1,
            "k": self.cursor - 1,
            "down": self.cursor + 1,
            "j": self.cursor + 1,
            "pageup": self.cursor - self.page,
            "pagedown": self.cursor + self.page,
            "home": 0,
            "g": 0,
            "end": len(self.rows),
            "G": len(self.rows),
        }
        if name in moves:
            self._move_cursor(moves[name])
        return ""

    def is_close_key(self, name: str) -> bool:
        return name == "q" and all(action.key != "q" for action in self.panel.actions)

    def lines(self, width: int, height: int, clean: Callable[[str], str]) -> list[FragmentLine]:
        """At most `height` lines."""
        header: list[FragmentLine] = (
            [[("bold", truncate_to_width(clean(self.panel.title), width))]] if height > 2 else []
        )
        footer = [self._footer(width, clean)] if height > 1 else []
        room = max(height - len(header) - len(footer), 1)
        self.page = room
        if not self.rows:
            return [*header, [("dim", truncate_to_width(f"  {clean(self.panel.empty_message)}", width))], *footer][
                :height
            ]
        shown = visible_range(len(self.rows), self.cursor, room)
        lines = [self._row(at, width, clean) for at in shown]
        return [*header, *lines, *footer][:height]

    def _row(self, at: int, width: int, clean: Callable[[str], str]) -> FragmentLine:
        is_selected = at == self.cursor
        line = tuple(Span(clean(span.text), span.tone) for span in self.rows[at].line)
        cursor = (f"bold {STYLES['accent']}", "› ") if is_selected else ("", "  ")
        return cut_line([cursor, *styled_fragments(line, "bold" if is_selected else "")], width)

    def _footer(self, width: int, clean: Callable[[str], str]) -> FragmentLine:
        if self.running_action:
            return [("dim", truncate_to_width(f"  {clean(self.running_action)} … Esc to interrupt", width))]
        hints = (
            [f"{_key_name(action.key)} to {clean(action.label)}" for action in self.panel.actions] if self.rows else []
        )
        count = f"{self.cursor + 1}/{len(self.rows)} · " if len(self.rows) > self.page else ""
        return [("dim", truncate_to_width(f"  {count}{' · '.join([*hints, 'Esc to close'])}", width))]


def _key_name(key: str) -> str:
    return key.capitalize() if len(key) > 1 else key


class PanelRunner:
    """Refreshes panels every second and runs their actions; Esc cancels an action or closes the panel."""

    def __init__(self, show: Callable[[Block], None], changed: Callable[[], None]) -> None:
        self._show = show
        self._changed = changed
        self._open: list[tuple[PanelState, asyncio.Queue[str]]] = []
        self._is_closed = False

    @property
    def state(self) -> PanelState | None:
        """The topmost panel."""
        return self._open[-1][0] if self._open else None

    def press(self, name: str) -> None:
        """`escape`, `enter`, `space`, `up`, …, or a character."""
        if self._open:
            self._open[-1][1].put_nowait(name)

    def close(self) -> None:
        self._is_closed = True
        for _, keys in self._open:
            keys.put_nowait(_ESCAPE)
            keys.put_nowait(_ESCAPE)

    async def open(self, panel: Panel) -> None:
        if self._is_closed:
            return
        state, keys = PanelState(panel), asyncio.Queue[str]()
        entry = (state, keys)
        self._open.append(entry)
        self._changed()
        try:
            await self._run(state, keys)
        finally:
            self._open.remove(entry)
            self._changed()

    async def _run(self, state: PanelState, keys: "asyncio.Queue[str]") -> None:
        running: asyncio.Task[None] | None = None
        key = asyncio.ensure_future(keys.get())
        try:
            while True:
                awaited = {key, running} if running else {key}
                await asyncio.wait(awaited, timeout=_REFRESH_SECONDS, return_when=asyncio.FIRST_COMPLETED)
                if running is not None and running.done():
                    ended, running, state.running_action = running, None, ""
                    self._show_error(ended)
                if key.done():
                    name, key = key.result(), asyncio.ensure_future(keys.get())
                    if name == _ESCAPE or state.is_close_key(name):
                        if running is None:
                            return
                        running.cancel()
                    elif action := state.handle_key(name):
                        state.running_action = next(one.label for one in state.panel.actions if one.key == action)
                        running = asyncio.ensure_future(state.panel.run_action(action, state.selected_id))
                    self._changed()
                    continue
                state.refresh()
                self._changed()
        finally:
            key.cancel()
            if running is not None:
                running.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await running

    def _show_error(self, ended: "asyncio.Task[None]") -> None:
        """Shows user errors; raises others."""
        if ended.cancelled():
            return
        try:
            ended.result()
        except KitbagError as error:
            self._show(NoticeBlock("error", error.problem, error.fix))
