"""Monitors the background tasks of a session: how many run, which ended, what they ask, what they cost.

Used by chat, which shows the blocks, and by status. Polls the journal only while `follow` is awaited. background_watch
reads the records; it is slow to import and loads after start-up.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Final

from kitbag.errors import KitbagError
from kitbag.runtime.agent import Agent
from kitbag.runtime.session_locks import hold_session
from kitbag.views.blocks import Block, NoticeBlock

if TYPE_CHECKING:
    from kitbag.chat.background_watch import BackgroundWatcher

_LOOK_SECONDS: Final = 0.25
_TROUBLE_SECONDS: Final = 5.0


class BackgroundMonitor:
    def __init__(self, agent: Agent, kitbag_home: str) -> None:
        self.running = 0
        """Background tasks of this session that are running."""
        self.questions = 0
        """Their questions that wait for the user."""
        self.cost: float | None = 0.0
        """Of all tasks of this session, in US dollars; None if a price is unknown."""
        self._agent = agent
        self._home = kitbag_home
        self._watch: BackgroundWatcher | None = None
        self._has_untold = False
        self._problems: set[str] = set()
        self._blocks: list[Block] = []
        self._told: tuple[object, ...] = (0, 0, 0.0, False)

    async def follow(self) -> AsyncIterator[tuple[Block, ...]]:
        """Yields blocks to show; none if only a number changed. Meanwhile other processes see this session as open."""
        with hold_session(self._home, self._agent.session.id):
            while True:
                yield await self.wait_for_change()

    async def wait_for_change(self) -> tuple[Block, ...]:
        """Waits until a task ends, asks or fails, or a number changes; returns the blocks to show."""
        while True:
            pause = await self._look()
            state = (self.running, self.questions, self.cost, self._has_untold)
            if self._blocks or state != self._told:
                blocks, self._blocks, self._told = tuple(self._blocks), [], state
                return blocks
            await asyncio.sleep(pause)

    def has_news(self) -> bool:
        """Whether a task ended whose result the model should get now. Canceled tasks wait for the user's next
        message."""
        delegation = self._agent.delegation
        try:
            return self._has_untold and delegation is not None and delegation.has_notifications()
        except KitbagError:
            return False

    def refresh(self) -> None:
        """Updates the numbers at once, after a foreground task."""
        if self._watch is None:
            return
        try:
            self._take_in(self._watch)
        except KitbagError as error:
            self._tell_problem(error)

    async def _look(self) -> float:
        """Returns the seconds until the next poll."""
        try:
            if self._watch is None:
                self._watch = await asyncio.to_thread(self._begin)
                self._tell_once(await self._watch.ensure_worker())
            if self._watch.has_new_records():
                self._take_in(self._watch)
            if self.running and self._watch.is_worker_check_due():
                self._tell_once(await self._watch.ensure_worker())
        except Exception as error:  # noqa: BLE001 - shown, and retried later
            self._tell_problem(error)
            return _TROUBLE_SECONDS
        return _LOOK_SECONDS

    def _begin(self) -> "BackgroundWatcher":
        """In a thread: the journal may be long."""
        from kitbag.chat.background_watch import BackgroundWatcher

        return BackgroundWatcher(self._agent.journal, self._agent.session.id, self._home)

    def _take_in(self, watch: "BackgroundWatcher") -> None:
        found = watch.snapshot()
        self.running, self.questions, self.cost = found.running, found.questions, found.cost
        self._has_untold = found.has_unreported
        self._blocks += found.blocks

    def _tell_problem(self, error: Exception) -> None:
        problem, fix = (error.problem, error.fix) if isinstance(error, KitbagError) else (str(error), "")
        self._tell_once(f"background work can't be watched: {problem}", fix)

    def _tell_once(self, problem: str, fix: str = "") -> None:
        if problem and problem not in self._problems:
            self._problems.add(problem)
            self._blocks.append(NoticeBlock("warning", problem, fix))
