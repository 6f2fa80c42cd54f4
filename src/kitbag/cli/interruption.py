"""Signals that end a run: cancels the work, and leaves behind what does not stop.

Used by `kitbag -p` and by commands that ask. Handlers are Python's own, so they work even while a write to a full pipe
blocks. Two seconds after the signal, or at a second one, the process exits; the journal survives that like a crash.
"""

import asyncio
import atexit
import contextlib
import os
import signal
import socket
import sys
from collections.abc import Callable, Coroutine, Generator
from types import FrameType
from typing import Any, Final, Self, TypeVar

from kitbag.cli.error_output import install_log
from kitbag.processes.process_table import child_pids
from kitbag.processes.signals import kill_child

GRACE_SECONDS: Final = 1.8
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
T = TypeVar("T")


@contextlib.contextmanager
def wake_on_signals() -> Generator[None, None, None]:
    """Lets signals wake the running event loop. Otherwise a signal right before the loop waits is not handled until
    something else happens."""
    loop = asyncio.get_running_loop()
    inner, outer = socket.socketpair()
    with inner, outer:
        inner.setblocking(False)
        outer.setblocking(False)
        loop.add_reader(inner, inner.recv, 4096)
        before = signal.set_wakeup_fd(outer.fileno(), warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.set_wakeup_fd(before)
            loop.remove_reader(inner)


def run_interruptible(work: Coroutine[Any, Any, T]) -> T:
    """asyncio.run that loses no signal."""

    async def hearing() -> T:
        with wake_on_signals():
            return await work

    install_log()
    return asyncio.run(hearing())


class InterruptedRunError(BaseException):
    """Raised if no event loop runs yet. Not an Exception: only the command itself may catch it."""


class Interruption:
    """`signal_number` is the signal that was received; 0 if none was."""

    def __init__(self) -> None:
        self.signal_number = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._cancel: Callable[[], object] = lambda: None

    @property
    def exit_code(self) -> int:
        return 128 + self.signal_number

    def __enter__(self) -> Self:
        for number in _SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:  # the parent may have asked to ignore it
                signal.signal(number, self._handle)
        signal.signal(signal.SIGALRM, self._force_exit)
        atexit.register(self._end_grace)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop = None
        if not self.signal_number:
            for number in (*_SIGNALS, signal.SIGALRM):
                if signal.getsignal(number) is not signal.SIG_IGN:
                    usual = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
                    signal.signal(number, usual)

    def on_signal(self, cancel: Callable[[], object]) -> None:
        """Sets what a signal calls from now on, in the running event loop."""
        self._loop, self._cancel = asyncio.get_running_loop(), cancel
        if self.signal_number:
            self._loop.call_soon(cancel)

    def _handle(self, number: int, _: FrameType | None) -> None:
        if self.signal_number:
            self._force_exit()
        self.signal_number = number
        signal.setitimer(signal.ITIMER_REAL, GRACE_SECONDS)
        if self._loop is None or self._loop.is_closed():
            raise InterruptedRunError
        self._loop.call_soon_threadsafe(self._cancel)

    def _end_grace(self) -> None:
        """The interpreter removes the handlers when it exits; the alarm would then change the exit code."""
        if self.signal_number:
            for stream in (sys.stdout, sys.stderr):
                with contextlib.suppress(OSError, ValueError):
                    stream.flush()
            signal.setitimer(signal.ITIMER_REAL, 0)

    def _force_exit(self, *_: object) -> None:
        for pid in child_pids():
            kill_child(pid)
        os._exit(self.exit_code)
