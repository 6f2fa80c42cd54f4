"""Selects the UI of a chat, terminal or plain, and draws its first frame before the rest of the program loads.

Used by cli/open_chat and cli/setup. Imports only what draws; start imports the rest.
"""

import asyncio
import os
import sys
import time
from collections.abc import Callable
from io import TextIOBase
from typing import TYPE_CHECKING

from kitbag.chat.ui import ChatStatus, ChatUI, LiveState
from kitbag.library.scopes import Places
from kitbag.settings import load_settings

if TYPE_CHECKING:
    from kitbag.runtime.agent import Agent


def make_ui(places: Places, get_agent: "Callable[[], Agent | None]", *, plain: bool) -> ChatUI:
    """Plain if stdin or stdout is no usable terminal, or if the user asks for it."""
    streams: tuple[object, ...] = (sys.stdin, sys.stdout)  # None if closed
    is_terminal = all(isinstance(one, TextIOBase) and one.isatty() for one in streams)
    settings = load_settings(places.kitbag_home, ())
    if plain or settings.get("chat.plain") == "on" or not is_terminal or os.environ.get("TERM", "dumb") == "dumb":
        from kitbag.chat.plain.plain_ui import PlainUI

        return PlainUI(sys.stdin, sys.stdout)
    from kitbag.chat.terminal.make_terminal import make_terminal

    return make_terminal(places, get_agent, settings)


async def draw_first_frame(ui: ChatUI, directory: str) -> None:
    """Returns once the input line is visible."""
    if ui.is_plain:
        return
    from kitbag.chat.terminal.terminal_ui import TerminalUI

    ui.draw(LiveState(activity="starting", started_at=time.monotonic()), ChatStatus(directory=directory))
    while isinstance(ui, TerminalUI) and not ui.is_drawn:
        await asyncio.sleep(0)
