"""Which queued task a worker starts next: by priority, then of the session with the fewest running tasks, then the
oldest.

Kept in memory and updated with each change on the board, so a choice takes the same time among ten tasks and among
100,000. Used by the worker, which claims what is chosen here.
"""

import heapq
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from kitbag.tasks.task import Task, timestamp
from kitbag.tasks.version import is_newer, kitbag_version

COMMAND_LANE: Final = -1


def lane_of(task: Task) -> int:
    """Agents are counted by depth, so that those that wait for their children never block their start; commands are
    counted separately: a server that runs for days takes no agent's slot."""
    return COMMAND_LANE if task.kind == "command" else task.depth


class _Head(NamedTuple):
    """The next task of a session, as the sessions of one priority are compared."""

    running: int
    created: str
    session: str


class _Lane:
    """The tasks of one queue and one lane."""

    def __init__(self) -> None:
        self.running: Counter[str] = Counter()
        """By session."""
        self._queued: dict[str, Task] = {}
        self._lines: dict[tuple[int, str], list[tuple[str, str]]] = {}
        """Per priority and session a heap of (created, id); ids that are no longer queued are dropped when they come
        to the top."""
        self._heads: dict[int, list[_Head]] = {}
        """Per priority a heap of sessions; outdated entries are dropped when they come to the top."""
        self._current: dict[tuple[int, str], _Head] = {}

    @property
    def running_count(self) -> int:
        return self.running.total()

    def add(self, task: Task) -> None:
        self._queued[task.id] = task
        line = (task.priority, task.root)
        heapq.heappush(self._lines.setdefault(line, []), (task.created, task.id))
        self._update_head(line)

    def discard(self, task: Task) -> None:
        if self._queued.pop(task.id, None) is not None:
            self._update_head((task.priority, task.root))

    def count_running(self, session: str, change: int) -> None:
        self.running[session] += change
        if not self.running[session]:
            del self.running[session]
        for priority in self._heads:
            if (priority, session) in self._lines:
                self._update_head((priority, session))

    def _update_head(self, line: tuple[int, str]) -> None:
        waiting = self._lines[line]
        while waiting and waiting[0][1] not in self._queued:
            heapq.heappop(waiting)
        priority, session = line
        if not waiting:
            del self._lines[line]
            self._current.pop(line, None)
            return
        head = _Head(self.running[session], waiting[0][0], session)
        if self._current.get(line) != head:
            self._current[line] = head
            heapq.heappush(self._heads.setdefault(priority, []), head)

    def first(self) -> tuple[tuple[int, _Head], Task] | None:
        """The next task, and how it compares with those of other queues."""
        for priority in sorted(self._heads, reverse=True):
            heads = self._heads[priority]
            while heads and self._current.get((priority, heads[0].session)) != heads[0]:
                heapq.heappop(heads)
            if heads:
                return (-priority, heads[0]), self._queued[self._lines[priority, heads[0].session][0][1]]
            del self._heads[priority]
        return None


class QueueOrder:
    """The unfinished background tasks of some queues."""

    def __init__(
        self,
        queues: frozenset[str],
        limits: Mapping[str, int],
        obstacle: Callable[[Task], str],
        now: Callable[[], float] = time.time,
    ) -> None:
        """`limits`: how many tasks of a queue run at once, per lane, over all workers. `obstacle`: what this worker
        lacks for a task, empty if nothing; the same text for all tasks that lack the same. `now`: the clock of
        scheduled starts."""
        self._now = now
        self._queues = queues
        self._limits = limits
        self._obstacle = obstacle
        self._tasks: dict[str, Task] = {}
        self._removals: dict[str, Callable[[], None]] = {}
        """Per task, how to take it out of where it is."""
        self._lanes: defaultdict[tuple[str, int], _Lane] = defaultdict(_Lane)
        self._scheduled: list[tuple[str, str]] = []
        """A heap of (time, id)."""
        self._claimed: dict[str, int] = {}
        """Tasks that this worker claims, and the run it wants; they count as running."""
        self._lost: set[str] = set()
        """Those of them that another process claimed first; soon the board will say so."""
        self._set_aside: dict[str, dict[str, Task]] = {}
        """By what this worker lacks for them."""
        self.stopped: dict[str, Task] = {}
        """Queued tasks that are to be cancelled."""
        self.newer: dict[str, Task] = {}
        """Queued tasks that need a newer Kitbag."""
        self.running: dict[str, Task] = {}
        """Including those of other workers."""

    def update(self, task: Task) -> None:
        """Call it for each task that changed."""
        self._remove(task.id)
        if task.is_finished or not task.background or task.queue not in self._queues:
            self._claimed.pop(task.id, None)
            return
        if task.status != "queued" or task.run >= self._claimed.get(task.id, task.run + 1):
            self._claimed.pop(task.id, None)
        self._tasks[task.id] = task
        self._place(task)

    def _remove(self, task_id: str) -> None:
        self._tasks.pop(task_id, None)
        if removal := self._removals.pop(task_id, None):
            removal()

    def _place(self, task: Task) -> None:
        lane = self._lanes[task.queue, lane_of(task)]
        if task.status != "queued" or task.id in self._claimed:
            lane.count_running(task.root, 1)
            if task.status != "queued":
                self.running[task.id] = task
            self._removals[task.id] = lambda: self._end(lane, task)
        elif task.stop_requested or is_newer(task.version, kitbag_version()):
            found = self.stopped if task.stop_requested else self.newer
            found[task.id] = task
            self._removals[task.id] = lambda: _drop(found, task.id)
        elif task.not_before and task.is_scheduled(timestamp(self._now())):
            heapq.heappush(self._scheduled, (task.not_before, task.id))
        else:
            lane.add(task)
            self._removals[task.id] = lambda: lane.discard(task)

    def _end(self, lane: _Lane, task: Task) -> None:
        lane.count_running(task.root, -1)
        self.running.pop(task.id, None)

    @property
    def has_scheduled(self) -> bool:
        self._start_due()
        return bool(self._scheduled)

    def _start_due(self) -> None:
        now = timestamp(self._now()) if self._scheduled else ""
        while self._scheduled:
            at, task_id = self._scheduled[0]
            task = self._tasks.get(task_id)
            is_waiting = task is not None and task.not_before == at and task_id not in self._removals
            if is_waiting and at > now:
                return
            heapq.heappop(self._scheduled)
            if task is not None and is_waiting:
                self._place(task)

    def lose(self, task_id: str) -> None:
        """Another process claimed it first, or it could not be claimed."""
        self._lost.add(task_id)

    def retry(self) -> None:
        """Call it now and then: lost claims are tried again unless the board says who runs the task, and tasks for
        which this worker lacked something are considered again."""
        for task_id in self._lost:
            if self._claimed.pop(task_id, None) and (task := self._tasks.get(task_id)):
                self.update(task)
        self._lost.clear()
        for reason, tasks in list(self._set_aside.items()):
            if self._obstacle(next(iter(tasks.values()))) != reason:
                del self._set_aside[reason]
                for task in list(tasks.values()):
                    self.update(task)

    def choose(self, has_room: Callable[[int], bool]) -> Task | None:
        """The next task that this worker can run; it counts as claimed then. `has_room`: whether this worker has a free
        slot in the lane."""
        self._start_due()
        while True:
            heads = [
                found
                for (queue, lane), tasks in self._lanes.items()
                if has_room(lane) and not self._is_full(queue, lane) and (found := tasks.first())
            ]
            if not heads:
                return None
            task = min(heads, key=lambda head: head[0])[1]
            if reason := self._obstacle(task):
                self._put_aside(task, reason)
                continue
            self._claimed[task.id] = task.run + 1
            self.update(task)
            return task

    def limit_of(self, task: Task) -> int:
        """0: none."""
        return self._limits.get(task.queue, 0) if task.is_in_queue else 0

    def _is_full(self, queue: str, lane: int) -> bool:
        limit = self._limits.get(queue, 0) if lane != COMMAND_LANE else 0
        return bool(limit) and self._lanes[queue, lane].running_count >= limit

    def _put_aside(self, task: Task, reason: str) -> None:
        self._removals.pop(task.id)()
        aside = self._set_aside.setdefault(reason, {})
        aside[task.id] = task

        def remove() -> None:
            aside.pop(task.id, None)
            if not aside and self._set_aside.get(reason) is aside:
                del self._set_aside[reason]

        self._removals[task.id] = remove


def _drop(tasks: dict[str, Task], task_id: str) -> None:
    tasks.pop(task_id, None)
