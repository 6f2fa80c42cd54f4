"""Waits on an event loop until the journal has a record after a given one.

Used by the journal. Records of this process are noticed immediately, those of others by looking every 20 ms.
"""

import asyncio
from collections.abc import Callable

from kitbag.store.private_files import StoreError

POLL_SECONDS = 0.02
"""The delay for records of another process; records of this process are noticed immediately."""


class JournalWatch:
    """Belongs to one event loop."""

    __slots__ = ("_last_seq", "_loop", "_timer", "_waiters")

    def __init__(self, loop: asyncio.AbstractEventLoop, last_seq: Callable[[], int]) -> None:
        self._loop = loop
        self._last_seq = last_seq
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_idle(self) -> bool:
        return not self._waiters

    async def wait(self, after: int, timeout: float | None) -> bool:
        """Whether a record after `after` appears within the timeout."""
        waiter = (after, self._loop.create_future())
        self._waiters.append(waiter)
        try:
            self.check()
            async with asyncio.timeout(timeout):
                await waiter[1]
            return True
        except TimeoutError:
            return False
        finally:
            self._waiters.remove(waiter)
            if not self._waiters and self._timer is not None:
                self._timer.cancel()
                self._timer = None

    def check(self, written: int | None = None) -> None:
        """`written`: the number of a record known to exist, which saves a query."""
        open_waiters = [(after, future) for after, future in self._waiters if not future.done()]
        if not open_waiters:
            return
        try:
            last = self._last_seq() if written is None else written
        except StoreError as error:
            for _, future in open_waiters:
                future.set_exception(StoreError(error.problem, error.fix))
            return
        for after, future in open_waiters:
            if last > after:
                future.set_result(None)
        if self._timer is None:
            self._timer = self._loop.call_later(POLL_SECONDS, self._poll)

    def _poll(self) -> None:
        self._timer = None
        self.check()
