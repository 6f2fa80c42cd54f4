"""Monitors the background tasks of a session: how many run, which ended, what they ask, what they cost.

Used by chat, which shows the blocks, and by status. Polls the journal only while `follow` is awaited. background_watch
reads the records; it is slow to import and loads after start-up.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Final

from kitbag.errors import KitbagError
from kitbag.runtime.agent import Agent
from kitbag.views.blocks import Block, NoticeBlock

if TYPE_CHECKING:
    from kitbag.chat.background_watch import BackgroundWatcher

_POLL_SECONDS: Final = 0.25
_RETRY_SECONDS: Final = 5.0


class BackgroundMonitor:
    def __init__(self, agent: Agent, kitbag_home: str, earlier: "BackgroundMonitor | None" = None) -> None:
        """`earlier`: of the session before, whose tasks are monitored until they end."""
        self.running = 0
        """Background tasks of this session, and of those before it, that are running."""
        self.questions = 0
        """Their questions that wait for the user."""
        self.cost: float | None = 0.0
        """Of all tasks of this session, in US dollars; None if a price is unknown."""
        self._agent = agent
        self._home = kitbag_home
        self._watcher: BackgroundWatcher | None = None
        self._earlier = earlier._watcher or earlier._earlier if earlier is not None else None
        self._has_unreported = False
        self._reported: set[str] = set()
        self._blocks: list[Block] = []
        self._last_state: tuple[object, ...] = (0, 0, 0.0, False)

    async def follow(self) -> AsyncIterator[tuple[Block, ...]]:
        """Yields blocks to show; none if only a number changed."""
        while True:
            yield await self.wait_for_change()

    async def wait_for_change(self) -> tuple[Block, ...]:
        """Waits until a task ends, asks or fails, or a number changes; returns the blocks to show."""
        while True:
            pause = await self._poll()
            state = (self.running, self.questions, self.cost, self._has_unreported)
            if self._blocks or state != self._last_state:
                blocks, self._blocks, self._last_state = tuple(self._blocks), [], state
                return blocks
            await asyncio.sleep(pause)

    @property
    def sessions(self) -> list[str]:
        """This session, and those before it whose tasks are monitored."""
        return self._watcher.sessions if self._watcher is not None else [self._agent.session.id]

    def has_news(self) -> bool:
        """Whether a task ended whose result the model should get now. Canceled tasks wait for the user's next
        message."""
        delegation = self._agent.delegation
        try:
            return self._has_unreported and delegation is not None and delegation.has_notifications()
        except KitbagError:
            return False

    def refresh(self) -> None:
        """Updates the numbers at once, after a foreground task."""
        if self._watcher is None:
            return
        try:
            self._update(self._watcher)
        except KitbagError as error:
            self._report_error(error)

    async def _poll(self) -> float:
        """Returns the seconds until the next poll."""
        try:
            if self._watcher is None:
                self._watcher = await asyncio.to_thread(self._open_watcher)
                self._report_once(await self._watcher.ensure_worker())
            if self._watcher.has_new_records():
                self._update(self._watcher)
            if self.running and self._watcher.is_worker_check_due():
                self._report_once(await self._watcher.ensure_worker())
        except Exception as error:  # noqa: BLE001 - shown, and retried later
            self._report_error(error)
            return _RETRY_SECONDS
        return _POLL_SECONDS

    def _open_watcher(self) -> "BackgroundWatcher":
        """In a thread: the journal may be long."""
        from kitbag.chat.background_watch import BackgroundWatcher

        return BackgroundWatcher(self._agent.journal, self._agent.session.id, self._home, self._earlier)

    def _update(self, watcher: "BackgroundWatcher") -> None:
        snapshot = watcher.snapshot()
        self.running, self.questions, self.cost = snapshot.running, snapshot.questions, snapshot.cost
        self._has_unreported = snapshot.has_unreported
        self._blocks += snapshot.blocks

    def _report_error(self, error: Exception) -> None:
        problem, fix = (error.problem, error.fix) if isinstance(error, KitbagError) else (str(error), "")
        self._report_once(f"can't monitor background tasks: {problem}", fix)

    def _report_once(self, problem: str, fix: str = "") -> None:
        if problem and problem not in self._reported:
            self._reported.add(problem)
            self._blocks.append(NoticeBlock("warning", problem, fix))
