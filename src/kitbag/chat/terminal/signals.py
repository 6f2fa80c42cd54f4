"""Signals as calls in the loop, for as long as the terminal is ours.

Used by terminal.
"""

import asyncio
import contextlib
import signal
import threading
from collections.abc import Callable, Generator, Mapping


@contextlib.contextmanager
def handled(handlers: Mapping[int, Callable[[], object]]) -> Generator[None]:
    """The handlers of before come back at the end. Only the main thread gets signals; elsewhere this does nothing."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    before = {number: signal.getsignal(number) for number in handlers}
    for number, handler in handlers.items():
        loop.add_signal_handler(number, handler)
    try:
        yield
    finally:
        for number, handler in before.items():
            loop.remove_signal_handler(number)
            if handler is not None:  # else it was not set from Python
                signal.signal(number, handler)
