"""Ends the program after a signal even if its event loop hangs, such as in a write to a terminal or pipe that nothing
reads.

Used by both UIs, for signals that the event loop already handles.
"""

import os
import signal
from collections.abc import Callable
from types import FrameType

GRACE_SECONDS = 10.0
"""Time after the signal for an orderly exit."""


def force_exit_after(number: int, restore: Callable[[], object] = lambda: None) -> None:
    """Call after `add_signal_handler`, which still gets the signal. `restore` runs before the forced exit."""

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
    """Call after an orderly exit."""
    signal.setitimer(signal.ITIMER_REAL, 0)
