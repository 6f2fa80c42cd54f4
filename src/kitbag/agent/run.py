"""A run: one request from start to end, as a context manager that is also a stream of events.

    async with agent.run("...") as run:
        async for event in run: ...

Leaving the block early cancels the work and waits until it has stopped; every run ends with exactly one RunEnded.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from types import TracebackType
from typing import Self

from kitbag.agent.ask_model import Emit
from kitbag.agent.session import Session
from kitbag.errors import KitbagError
from kitbag.events import Event, RunEnded, RunStarted
from kitbag.messages import Usage

Work = Callable[[Emit], Awaitable[RunEnded]]


class Run:
    def __init__(self, session: Session, started: RunStarted, work: Work) -> None:
        self.session = session
        self._started = started
        self._work = work
        self._events: asyncio.Queue[Event | None] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None
        self._end: RunEnded | None = None
        self._failure: BaseException | None = None
        self.error: KitbagError | None = None
        """What ended it, where that was an error with a name of its own."""

    @property
    def ended(self) -> RunEnded:
        """How it ended; there once the stream is at its end."""
        if self._end is None:
            raise RuntimeError("the run has not ended: read its events, or await wait()")
        return self._end

    def cancel(self) -> None:
        """Asks the work to stop; RunEnded with status `cancelled` follows."""
        if self._task is not None and self._end is None:
            self._task.cancel()

    async def wait(self) -> RunEnded:
        """To the end, for those who don't care for the events."""
        async for _ in self:
            pass
        return self.ended

    async def __aenter__(self) -> Self:
        self._events.put_nowait(self._started)
        self._task = asyncio.create_task(self._supervise())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cancel()
        if self._task is not None:
            await asyncio.wait([self._task])
        if self._failure is not None and error is None:
            raise self._failure

    async def __aiter__(self) -> AsyncIterator[Event]:
        while (event := await self._events.get()) is not None:
            yield event
        self._events.put_nowait(None)  # a second reader ends at once, too

    async def _supervise(self) -> None:
        try:
            end = await self._work(self._events.put_nowait)
        except asyncio.CancelledError:
            end = self._broken_off("cancelled", "", "")
        except KitbagError as error:
            self.error = error
            end = self._broken_off("failed", error.problem, error.fix)
        except Exception as error:  # noqa: BLE001 - told by RunEnded and raised to whoever holds the run
            self._failure = error
            end = self._broken_off("failed", f"{type(error).__name__}: {error}", "this is a fault of Kitbag")
        end = await self._write_end(end)
        self._end = end
        self._events.put_nowait(end)
        self._events.put_nowait(None)

    def _broken_off(self, status: str, problem: str, fix: str) -> RunEnded:
        totals = self.session.totals
        known = "cancelled" if status == "cancelled" else "failed"
        usage: Usage = totals.usage
        return RunEnded(known, "", totals.turns, usage, None if totals.unpriced else totals.cost, problem, fix)

    async def _write_end(self, end: RunEnded) -> RunEnded:
        try:
            await self.session.end(end.status, end.error)
        except KitbagError as error:  # the disk is full, say: then that is what the person has to know
            return end._replace(status="failed", error=end.error or error.problem, fix=end.fix or error.fix)
        return end
