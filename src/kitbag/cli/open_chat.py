"""Opens the chat with the options of the root command: draws the UI first, then loads what it needs to answer."""

import asyncio
import gc
import importlib
import os
import signal
from typing import TYPE_CHECKING, Any, Final

from kitbag.chat.select_ui import draw_first_frame, make_ui
from kitbag.cli.error_output import install_log
from kitbag.cli.run_options import CHOOSE_SESSION, build_run_options, check_options
from kitbag.errors import UsageError
from kitbag.library.scopes import find_places

if TYPE_CHECKING:
    from types import FrameType

    from kitbag.runtime.agent import Agent

_EXIT_TIMEOUT: Final = 2.0
"""For threads that still run after everything is closed, e.g. on a disk that does not respond."""
_INTERRUPTED: Final = 130


def open_chat(options: dict[str, Any], message: str | None = None) -> int:
    """`message`: sent as the first one. Returns the exit code. Raises KitbagError if the chat can't start."""
    check_options(options)
    # Startup leaves no garbage worth collecting, and a session may be long.
    gc.freeze()
    gc.enable()
    install_log()
    try:
        return asyncio.run(_run_chat(options, _first_messages(options, message)))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _first_messages(options: dict[str, Any], message: str | None) -> list[str]:
    """Raises UsageError for an empty message."""
    if message is not None and not message.strip():
        raise UsageError("the message is empty", 'usage: kitbag "MESSAGE"')
    return [*(["/resume"] if options["resume"] == CHOOSE_SESSION else []), *([message] if message is not None else [])]


async def _run_chat(options: dict[str, Any], messages: list[str]) -> int:
    places = find_places(options["cwd"] or None)
    agents: list[Agent] = []
    ui = make_ui(places, lambda: agents[-1] if agents else None, plain=options["plain"])
    try:
        await draw_first_frame(ui, places.cwd)
        # In a thread, so that the UI echoes what is typed meanwhile.
        start = await asyncio.to_thread(importlib.import_module, "kitbag.chat.start")
        code: int = await start.run_chat(ui, places, build_run_options(options), agents.append, messages)
    finally:
        await ui.close()
        _exit_on_signal(signal.SIGINT, _INTERRUPTED)  # everything is closed: another Ctrl-C exits cleanly
    _exit_on_signal(signal.SIGALRM, code)
    signal.setitimer(signal.ITIMER_REAL, _EXIT_TIMEOUT)
    return code


def _exit_on_signal(number: int, code: int) -> None:
    def leave(_: int, __: "FrameType | None") -> None:
        os._exit(code)

    signal.signal(number, leave)
