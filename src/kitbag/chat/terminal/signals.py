"""Handles signals in the event loop while the terminal UI runs. Used by terminal_ui."""

import asyncio
import contextlib
import signal
import termios
import threading
from collections.abc import Callable, Generator, Mapping
from typing import Final

from prompt_toolkit.input import Input

from kitbag.chat.forced_exit import cancel_forced_exit, force_exit_after

_EXIT_SIGNALS: Final = (signal.SIGTERM, signal.SIGHUP)


def terminal_restorer(input_: Input) -> Callable[[], object]:
    """Returns a function that restores the terminal's current mode."""
    try:
        descriptor = input_.fileno()
        settings = termios.tcgetattr(descriptor)
    except (termios.error, OSError, ValueError, NotImplementedError):
        return lambda: None
    return lambda: termios.tcsetattr(descriptor, termios.TCSANOW, settings)


@contextlib.contextmanager
def signal_handlers(handlers: Mapping[int, Callable[[], object]], restore: Callable[[], object]) -> Generator[None]:
    """Restores the previous handlers at the end. `restore` resets the terminal if the event loop hangs. Only the main
    thread gets signals; no effect in others."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    before = {number: signal.getsignal(number) for number in handlers}
    for number, handler in handlers.items():
        loop.add_signal_handler(number, handler)
        if number in _EXIT_SIGNALS:
            force_exit_after(number, restore)
    try:
        yield
    finally:
        cancel_forced_exit()
        for number, handler in before.items():
            loop.remove_signal_handler(number)
            if handler is not None:  # otherwise it was not set from Python
                signal.signal(number, handler)
