"""Watches the background work of a conversation for the chat: how much there is, what has ended, what it asks.

Used by chat, which shows what it tells, and by status. Looks at the journal a few times a second, and reads it only
when it has grown; sees to it that somebody does what is to be done. It runs only while `follow` is waited for.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from typing import Final

from kitbag.chat.blocks import Block, Remark
from kitbag.errors import KitbagError
from kitbag.permissions.approval_queue import ApprovalQueue, Waiting
from kitbag.runtime.agent import Agent
from kitbag.runtime.notifications import ended_below
from kitbag.runtime.open_sessions import held_open
from kitbag.runtime.task_questions import questions_of
from kitbag.runtime.task_spending import Spending
from kitbag.runtime.task_views import seconds_since
from kitbag.runtime.worker_process import look_after
from kitbag.tasks.board import Board
from kitbag.tasks.model import Task
from kitbag.text.in_words import duration

LOOK_SECONDS: Final = 0.25
_CARE_SECONDS: Final = 2.0
"""How often somebody is looked for who does what runs."""
_LONGEST_CARE: Final = 60.0
"""Where a worker is started again and again, and does not stay."""
_TROUBLE_SECONDS: Final = 5.0


class Background:
    def __init__(self, agent: Agent, kitbag_home: str) -> None:
        self.running = 0
        """Tasks of this conversation at work in the background."""
        self.questions = 0
        """Of them, waiting for the person."""
        self.cost: float | None = 0.0
        """Of all that this conversation began, in US dollars; None where a price is not known."""
        self._agent = agent
        self._home = kitbag_home
        self._root = agent.session.id
        self._board = Board(agent.journal)
        self._queue = ApprovalQueue(agent.journal)
        self._spending = Spending(agent.journal)
        self._is_read = False
        self._seen = -1
        self._has_untold = False
        self._announced: set[tuple[str, int]] = set()
        """Ends, by task and beginning."""
        self._asked: set[str] = set()
        self._problems: set[str] = set()
        self._blocks: list[Block] = []
        self._told: tuple[object, ...] = (0, 0, 0.0, False)
        self._next_care = 0.0
        self._care_seconds = _CARE_SECONDS

    async def follow(self) -> AsyncIterator[tuple[Block, ...]]:
        """What to show, perhaps nothing: then only a figure has changed. As long as it is followed, other windows know
        that this conversation is open here."""
        with held_open(self._home, self._root):
            while True:
                yield await self.wait_for_news()

    async def wait_for_news(self) -> tuple[Block, ...]:
        """Until something has ended, asks, or went wrong, or a figure has changed; what there is to show of it."""
        while True:
            pause = await self._look()
            state = (self.running, self.questions, self.cost, self._has_untold)
            if self._blocks or state != self._told:
                blocks, self._blocks, self._told = tuple(self._blocks), [], state
                return blocks
            await asyncio.sleep(pause)

    def has_news(self) -> bool:
        """Whether something has ended of which the model has not been told, and which is worth its while: what was
        stopped waits until the person speaks."""
        delegation = self._agent.delegation
        try:
            return self._has_untold and delegation is not None and delegation.has_news()
        except KitbagError:
            return False

    def count_again(self) -> None:
        """At once, after work in front."""
        if self._is_read:
            try:
                self._take_in()
            except KitbagError as error:
                self._tell_once(f"background work can't be watched: {error.problem}", error.fix)

    # Looking

    async def _look(self) -> float:
        """How long to wait until the next look."""
        try:
            if not self._is_read:
                await self._read_all()
            if self._agent.journal.last_seq() != self._seen:
                self._take_in()
            if self.running and time.monotonic() >= self._next_care:
                await self._care()
        except (KitbagError, OSError) as error:
            problem, fix = (error.problem, error.fix) if isinstance(error, KitbagError) else (str(error), "")
            self._tell_once(f"background work can't be watched: {problem}", fix)
            return _TROUBLE_SECONDS
        return LOOK_SECONDS

    async def _read_all(self) -> None:
        """In a thread: there may be years of it."""
        await asyncio.to_thread(self._board.refresh)
        await asyncio.to_thread(self._queue.pending)
        self._is_read = True
        # What the model was told of, the person was told of too.
        self._announced = {(task.id, task.ended_run) for task in ended_below(self._board, self._root) if task.notified}
        await self._care()

    async def _care(self) -> None:
        """What nobody does is done, also where a worker has vanished meanwhile."""
        hosting = await look_after(self._board, self._home)
        self._care_seconds = min(self._care_seconds * 2, _LONGEST_CARE) if hosting.started else _CARE_SECONDS
        self._next_care = time.monotonic() + self._care_seconds
        if hosting.problem:
            self._tell_once(hosting.problem)

    def _take_in(self) -> None:
        self._seen = self._agent.journal.last_seq()
        self._board.refresh()
        begun = self._board.below(self._root)
        self.running = sum(task.background and not task.is_finished for task in begun)
        costs = [self._spending.of(task) for task in begun]
        known = [cost for cost in costs if cost is not None]
        self.cost = sum(known) if len(known) == len(costs) else None
        ended = ended_below(self._board, self._root)
        self._has_untold = any(not task.notified and task.status != "cancelled" for task in ended)
        for task in ended:
            if (task.id, task.ended_run) not in self._announced:
                self._announced.add((task.id, task.ended_run))
                self._blocks.append(_told_end(task))
        waiting = questions_of(self._queue, begun)
        self.questions = len(waiting)
        for task, one in waiting:
            if one.question.id not in self._asked:
                self._asked.add(one.question.id)
                self._blocks.append(_told_question(task, one))

    def _tell_once(self, text: str, fix: str = "") -> None:
        if text not in self._problems:
            self._problems.add(text)
            self._blocks.append(Remark("warning", text, fix))


def _told_end(task: Task) -> Remark:
    end = task.end
    is_fine = task.status in ("completed", "empty", "cancelled")
    about = f" ({task.description})" if task.description else ""
    seconds = seconds_since(task.started, task.ended) if task.started else 0.0
    error = f": {end.error}" if end is not None and end.error else ""
    text = f"{task.agent or 'Bash'} {task.id}{about} has ended after {duration(seconds)}: {task.status}{error}"
    return Remark("info" if is_fine else "warning", text, f"/tasks show {task.id}")


def _told_question(task: Task, waiting: Waiting) -> Remark:
    from kitbag.agent.execute import title

    question = waiting.question
    try:
        what = title(question.tool, json.loads(question.arguments))
    except (ValueError, AttributeError):
        what = question.tool
    return Remark("warning", f"{task.agent} {task.id} asks whether it may: {what}", f"/tasks answer {task.id}")
