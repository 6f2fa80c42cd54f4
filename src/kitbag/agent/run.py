"""A run: one request from start to end, as a context manager that is also a stream of events.

    async with agent.run("...") as run:
        async for event in run: ...

Leaving the block early cancels the work and waits until it has stopped; every run ends with exactly one RunEnded.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from types import TracebackType
from typing import Literal, Self

import msgspec

from kitbag.agent.ask_model import Emit
from kitbag.agent.inbox import Inbox, InboxMessage
from kitbag.agent.session import Session
from kitbag.agent.shield import run_to_completion
from kitbag.errors import KitbagError, UsageError
from kitbag.events import Event, MessageAdded, RunEnded, RunStarted, TurnEnded
from kitbag.messages import Image

Work = Callable[[Emit], Awaitable[RunEnded]]


class Run:
    def __init__(
        self,
        session: Session,
        started: RunStarted,
        work: Work,
        inbox: Inbox | None = None,
        observe: Callable[[Event], None] | None = None,
    ) -> None:
        """`inbox`: that of the agent; by default the session's own. `observe`: gets each event at once."""
        self.session = session
        self._inbox = inbox or Inbox(session.journal, session.id)
        self._started = started
        self._work = work
        self._observe: Callable[[Event], object] = observe or _ignore
        self._events: asyncio.Queue[Event | None] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None
        self._state: Literal["new", "working", "ending"] = "new"
        self._cancelled = False
        self._text = ""
        self._turns = 0
        self._end: RunEnded | None = None
        self._failure: Exception | None = None
        self.error: KitbagError | None = None
        """The error that ended the run, if it was a KitbagError."""

    @property
    def ended(self) -> RunEnded:
        """How the run ended; available at the end of the event stream."""
        if self._end is None:
            raise RuntimeError("the run has not ended; read its events or await wait()")
        return self._end

    def cancel(self) -> None:
        """Asks the work to stop; RunEnded with status `cancelled` follows. Safe to call at any time, repeatedly."""
        if self._task is None or self._state == "ending":
            return
        if self._state == "working" and not self._cancelled:
            self._task.cancel()
        self._cancelled = True  # cancelling a task before its first step would skip its cleanup

    async def steer(self, text: str, images: Iterable[Image] = ()) -> InboxMessage:
        """Sends a message to the working agent, which gets it after its running tool calls, or instead of ending. It
        is on disk when this returns; MessageDelivered follows. If the run is cancelled or fails first, the session's
        next run delivers it. Raises UsageError if the run has ended."""
        if self._state == "ending":
            raise UsageError("the run has ended", "start another run")
        return await self._inbox.send(text, images)

    async def wait(self) -> RunEnded:
        """Reads all events and returns how the run ended."""
        async for _ in self:
            pass
        return self.ended

    async def __aenter__(self) -> Self:
        if self._task is not None:
            raise RuntimeError("a run handles one prompt; start another run")
        self._observe(self._started)
        self._events.put_nowait(self._started)
        self._task = asyncio.create_task(self._supervise())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cancel()
        if self._task is not None:
            await run_to_completion(_wait_for_task(self._task))
        if self._failure is not None and error is None:
            raise self._failure

    async def drain(self) -> None:
        """Waits until the reader has handled all events so far."""
        await self._events.join()

    async def __aiter__(self) -> AsyncIterator[Event]:
        while (event := await self._events.get()) is not None:
            yield event
            self._events.task_done()
        self._events.task_done()
        self._events.put_nowait(None)  # ends a second reader, too

    def _emit(self, event: Event) -> None:
        if isinstance(event, MessageAdded):
            self._text = event.message.text or self._text
        self._turns += isinstance(event, TurnEnded)
        self._observe(event)
        self._events.put_nowait(event)

    async def _supervise(self) -> None:
        try:
            self._state = "working"
            if self._cancelled:
                raise asyncio.CancelledError
            end = await self._work(self._emit)
        except asyncio.CancelledError:
            end = self._aborted("cancelled", "", "resume with --continue")
        except KitbagError as error:
            self.error = error
            end = self._aborted("failed", error.problem, error.fix)
        except Exception as error:  # noqa: BLE001 - reported by RunEnded and raised by __aexit__
            self._failure = error
            end = self._aborted(
                "failed", f"{type(error).__name__}: {error}", "this is a bug in Kitbag; report it to the maintainers"
            )
        self._state = "ending"
        try:
            with contextlib.suppress(asyncio.CancelledError):  # the event loop is shutting down: still report the end
                await run_to_completion(self._write_end(end))
        finally:
            self._end = self._end or end
            self._observe(self._end)
            self._events.put_nowait(self._end)
            self._events.put_nowait(None)

    def _aborted(self, status: Literal["cancelled", "failed"], problem: str, fix: str) -> RunEnded:
        totals = self.session.totals
        cost = None if totals.unpriced else totals.cost
        return RunEnded(
            status=status, text=self._text, turns=self._turns, usage=totals.usage, cost=cost, error=problem, fix=fix
        )

    async def _write_end(self, end: RunEnded) -> None:
        try:
            await self.session.record_end(end.status, end.error)
        except KitbagError as error:  # such as a full disk: the user must know
            self.error = self.error or error
            problem, fix = (end.error, end.fix) if end.error else (error.problem, error.fix)
            end = msgspec.structs.replace(end, status="failed", error=problem, fix=fix)
        self._end = end


def _ignore(_: Event) -> None:
    pass


async def _wait_for_task(task: "asyncio.Task[None]") -> None:
    await asyncio.wait([task])
