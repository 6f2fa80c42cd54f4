"""A signal that ends the chat ends it also where its event loop hangs: in a write to a terminal or a pipe that nobody
reads any more.

Used by both faces, for signals to which the loop listens already.
"""

import os
import signal
from collections.abc import Callable
from types import FrameType

GRACE_SECONDS = 10.0
"""After the signal, for an end in good order."""


def force_exit_after(number: int, restore: Callable[[], object] = lambda: None) -> None:
    """Call it after `add_signal_handler`, which hears of the signal all the same. `restore`: before the hard end."""

    def heard(_: int, __: FrameType | None) -> None:
        signal.signal(signal.SIGALRM, leave)
        signal.setitimer(signal.ITIMER_REAL, GRACE_SECONDS)

    def leave(_: int, __: FrameType | None) -> None:
        try:
            restore()
        finally:
            os._exit(128 + number)

    signal.signal(number, heard)


def cancel_forced_exit() -> None:
    """It has ended in good order."""
    signal.setitimer(signal.ITIMER_REAL, 0)
