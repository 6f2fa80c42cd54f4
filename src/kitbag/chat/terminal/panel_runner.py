"""Runs panels: refreshes them every second and runs their actions; Esc cancels an action or closes the panel.

Used by terminal_ui. panel_state holds the state of one panel, layout draws it.
"""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final

from kitbag.chat.terminal.panel_state import PanelState
from kitbag.chat.ui import Panel
from kitbag.errors import KitbagError
from kitbag.views.blocks import Block, NoticeBlock

_REFRESH_SECONDS: Final = 1.0
_ESCAPE: Final = "escape"


class PanelRunner:
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
