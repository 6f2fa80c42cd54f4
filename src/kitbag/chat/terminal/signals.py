"""Signals as calls in the loop, for as long as the terminal is ours.

Used by terminal.
"""

import asyncio
import contextlib
import signal
import termios
import threading
from collections.abc import Callable, Generator, Mapping
from typing import Final

from prompt_toolkit.input import Input

from kitbag.chat.forced_exit import cancel_forced_exit, force_exit_after

_ENDING: Final = (signal.SIGTERM, signal.SIGHUP)


def terminal_restorer(input_: Input) -> Callable[[], object]:
    """What puts the terminal back to how it is now."""
    try:
        descriptor = input_.fileno()
        settings = termios.tcgetattr(descriptor)
    except (termios.error, OSError, ValueError, NotImplementedError):
        return lambda: None
    return lambda: termios.tcsetattr(descriptor, termios.TCSANOW, settings)


@contextlib.contextmanager
def signal_handlers(handlers: Mapping[int, Callable[[], object]], restore: Callable[[], object]) -> Generator[None]:
    """The handlers of before come back at the end. `restore`: puts the terminal right where the loop can't any more.
    Only the main thread gets signals; elsewhere this does nothing."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    before = {number: signal.getsignal(number) for number in handlers}
    for number, handler in handlers.items():
        loop.add_signal_handler(number, handler)
        if number in _ENDING:
            force_exit_after(number, restore)
    try:
        yield
    finally:
        cancel_forced_exit()
        for number, handler in before.items():
            loop.remove_signal_handler(number)
            if handler is not None:  # else it was not set from Python
                signal.signal(number, handler)
