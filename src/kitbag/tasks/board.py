"""The board: every task, its owner and its result, as journal records that many processes share.

An in-memory view of one journal stream, refreshed as the stream grows. A write is durable when its method returns. A
journal key decides races: one process claims a run, one writes its result. Used by the worker, the task tools, the CLI
and the chat.
"""

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator, Callable, Iterable
from difflib import get_close_matches
from typing import Any, Final, NamedTuple, cast

import msgspec

from kitbag.errors import AmbiguousError, NotFoundError
from kitbag.store.fault_points import point
from kitbag.store.journal import Journal, JournalEntry, JournalRecord
from kitbag.store.private_files import StoreError
from kitbag.tasks.owner import Owner, this_process
from kitbag.tasks.task import (
    TASK_REQUEST_FIELDS,
    TASK_RESULT_FIELDS,
    Task,
    TaskKind,
    TaskRequest,
    TaskResult,
    apply_record,
    hold_after_damage,
)
from kitbag.tasks.task_processes import kill_processes
from kitbag.tasks.version import kitbag_version

TASKS_STREAM: Final = "tasks"
TASK_STREAM_PREFIX: Final = "task/"
"""Per-task streams with the request and long answers: read only when needed."""
OWNER_ENDED: Final = "its process ended before the task did"
MAX_INLINE_TEXT: Final = 4_000
"""Characters of an answer that the board keeps in memory."""
_CHUNK_CHARACTERS = 500_000
_POLL_SECONDS = 1.0
"""How often the board checks for owners that have died."""


class UnreadableRecord(NamedTuple):
    """A record that could not be applied: damaged, or written by another version."""

    seq: int
    kind: str
    problem: str


class Board:
    """For one event loop; each process has its own."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self._last_applied_seq = 0
        self._tasks: dict[str, Task] = {}
        self._children: dict[str, list[str]] = {}
        self._unfinished: dict[str, None] = {}
        """Unfinished tasks, so that scanning them does not cost a pass over all tasks."""
        self._dead_checked_at = 0.0
        self._damages: list[JournalRecord] | None = None
        self.unreadable: list[UnreadableRecord] = []

    # Reading

    def refresh(self) -> list[str]:
        """Applies new records and returns the ids of the tasks that changed."""
        if self._damages is None:
            self._damages = self.journal.damages()
        changed: dict[str, None] = {}
        for record in self.journal.read(TASKS_STREAM, self._last_applied_seq, 1_000):
            self._hold_tasks(record.seq)
            self._last_applied_seq = record.seq
            known = len(self._tasks)
            try:
                task_id = apply_record(self._tasks, record)
            except (LookupError, TypeError, ValueError, ArithmeticError) as error:
                self.unreadable.append(
                    UnreadableRecord(record.seq, record.kind, f"{type(error).__name__}: {error}"[:200])
                )
                continue
            changed[task_id] = None
            task = self._tasks[task_id]
            if len(self._tasks) > known:
                self._children.setdefault(task.parent or task.root, []).append(task_id)
            if task.is_finished:
                self._unfinished.pop(task_id, None)
            else:
                self._unfinished[task_id] = None
        self._hold_tasks(None)
        return list(changed)

    def _hold_tasks(self, before: int | None) -> None:
        """Tasks that had not ended when the journal was damaged wait for a person."""
        while self._damages and (before is None or self._damages[0].seq < before):
            damage = self._damages.pop(0)
            for task_id in self._unfinished:
                self._tasks[task_id] = hold_after_damage(self._tasks[task_id], damage.at)
            self._unfinished.clear()

    def unreadable_notice(self) -> str:
        """What the user should know about unreadable records; empty if there are none."""
        if not self.unreadable:
            return ""
        count, first = len(self.unreadable), self.unreadable[0]
        subject = "1 task record" if count == 1 else f"{count:,} task records"
        return (
            f"can't read {subject} in the journal, so tasks may be missing or out of date; another version of Kitbag "
            f"may have written {'it' if count == 1 else 'them'} (record {first.seq}, {first.kind!r}: {first.problem})"
        )

    @property
    def last_applied_seq(self) -> int:
        """The sequence number of the last record that was applied."""
        return self._last_applied_seq

    def known_unfinished(self) -> list[Task]:
        """Unfinished tasks as of the last refresh, without reading the journal."""
        return [self._tasks[task_id] for task_id in list(self._unfinished)]

    def all(self) -> list[Task]:
        """In order of creation."""
        self.refresh()
        return list(self._tasks.values())

    def of_session(self, session_id: str) -> list[Task]:
        """All tasks of a session, including those that its agents started."""
        return [task for task in self.all() if task.root == session_id]

    def unfinished(self) -> list[Task]:
        """Oldest first."""
        self.refresh()
        return sorted((self._tasks[task_id] for task_id in self._unfinished), key=lambda task: task.created)

    def get(self, task_id: str) -> Task | None:
        self.refresh()
        return self._tasks.get(task_id)

    def find(self, name: str, visible: Callable[[Task], bool] | None = None) -> Task:
        """Finds a task by its id or a prefix of it. Raises NotFoundError with close matches, or AmbiguousError.

        `visible`: only these tasks are considered.
        """
        self.refresh()
        known = self._tasks if visible is None else {task.id: task for task in self._tasks.values() if visible(task)}
        if name in known:
            return known[name]
        matches = [task_id for task_id in known if len(name) >= 3 and task_id.startswith(name)]
        if len(matches) > 1:
            raise AmbiguousError(f"several tasks start with {name[:80]!r}", f"use one of {', '.join(matches[:10])}")
        if matches:
            return known[matches[0]]
        close = get_close_matches(name[:80], known, 3, 0.6)
        fix = f"did you mean {' or '.join(close)}?" if close else "list tasks with `kitbag tasks`"
        raise NotFoundError(f"no task named {name[:80]!r}", fix)

    def started_by(self, parent_id: str) -> list[Task]:
        """The direct children of a task or a session."""
        self.refresh()
        return [self._tasks[child] for child in self._children.get(parent_id, ())]

    def descendants(self, task_id: str) -> list[Task]:
        """All tasks below this one, at any depth."""
        self.refresh()
        descendants: list[Task] = []
        pending = list(reversed(self._children.get(task_id, ())))
        while pending:
            child = pending.pop()
            descendants.append(self._tasks[child])
            pending += reversed(self._children.get(child, ()))
        return descendants

    def request(self, task_id: str) -> TaskRequest:
        """The latest request. Raises NotFoundError."""
        return self.latest_request(task_id)[0]

    def latest_request(self, task_id: str) -> tuple[TaskRequest, int]:
        """The request and the sequence number of its record: later records of the session respond to it."""
        request: TaskRequest | None = None
        seq = 0
        for record in self.journal.read(TASK_STREAM_PREFIX + task_id):
            if record.kind == "wish":
                stored = TASK_REQUEST_FIELDS.read(record.body)
                request, seq = msgspec.structs.replace(stored, skills=tuple(stored.skills)), record.seq
        if request is None:
            raise NotFoundError(f"the prompt of task {task_id} is missing from the journal", "start a new task")
        return request, seq

    def answer(self, task: Task) -> str:
        """The complete final answer."""
        result = task.result
        if result is None or not result.stored_name:
            return result.text if result is not None else ""
        chunks = [
            str(record.body["text"])
            for record in self.journal.read(TASK_STREAM_PREFIX + task.id)
            if record.kind == "answer" and record.body["name"] == result.stored_name
        ]
        return "".join(chunks)

    async def wait_for_change(self, timeout: float | None = None) -> bool:
        """Waits until any process writes to the journal. False on timeout."""
        return await self.journal.wait_async(max(self._last_applied_seq, self.journal.last_seq()), timeout)

    async def wait_until(
        self, condition: Callable[[Task], bool], task_id: str, timeout: float | None = None
    ) -> Task | None:
        """The task once the condition holds; None on timeout."""
        try:
            async with asyncio.timeout(timeout):
                while True:
                    seen = self.journal.last_seq()
                    task = self.find(task_id)
                    if condition(task):
                        return task
                    # An owner can die without writing anything, so check from time to time.
                    await self.journal.wait_async(seen, _POLL_SECONDS)
                    if time.monotonic() - self._dead_checked_at >= _POLL_SECONDS:
                        await self.end_dead_foreground_tasks()
        except TimeoutError:
            return None

    async def follow(self) -> AsyncIterator[list[Task]]:
        """Yields the tasks that changed, indefinitely."""
        after = self._last_applied_seq
        while True:
            seen = self.journal.last_seq()
            changed: dict[str, None] = {}
            self.refresh()
            if self._last_applied_seq > after:
                for record in self.journal.read(TASKS_STREAM, after, 1_000):  # others may have refreshed it
                    if record.seq > self._last_applied_seq:
                        break
                    after = record.seq
                    if isinstance(record.body, dict):
                        changed[str(cast("dict[str, Any]", record.body).get("id"))] = None
            yield [self._tasks[task_id] for task_id in changed if task_id in self._tasks]
            await self.journal.wait_async(seen)

    # Writing

    async def create(
        self,
        task_id: str,
        kind: TaskKind,
        request: TaskRequest,
        *,
        root: str,
        parent: str,
        depth: int,
        background: bool,
    ) -> Task:
        body: dict[str, Any] = {
            "id": task_id,
            "kind": kind,
            "agent": request.agent,
            "description": request.description,
            "root": root,
            "parent": parent,
            "depth": depth,
            "background": background,
            "directory": request.directory,
            "version": kitbag_version(),
            "owner": [] if background else this_process().to_record(),
        }
        await self.journal.write_all([_request_entry(task_id, request), JournalEntry(TASKS_STREAM, "created", body)])
        point("task-created")
        return self.find(task_id)

    async def claim(
        self,
        task: Task,
        owner: Owner | None = None,
        *,
        restart: bool = False,
        recovered: bool = False,
        foreground: bool = False,
    ) -> bool:
        """Starts a run of the task. False if another process was first or the task has finished meanwhile. `restart`:
        also start a finished task, which only a user may ask for; `recovered`: the previous run made no progress;
        `foreground`: the caller waits for the answer, so no notification is sent later."""
        run = task.run + 1
        body = {
            "id": task.id,
            "run": run,
            "owner": (owner or this_process()).to_record(),
            "again": restart,
            "recovered": recovered,
            "in_front": foreground,
        }
        if await self.journal.write_once(f"begun:{task.id}:{run}", TASKS_STREAM, "begun", body) is None:
            return False
        point("task-claimed")
        claimed = self.find(task.id)
        return claimed.run == run and not claimed.is_finished

    async def requeue(self, task: Task, request: TaskRequest) -> bool:
        """Queues a finished task for a worker, which resumes it. False if another process was first; nothing is written
        then."""
        body = {"id": task.id, "run": task.run, "version": kitbag_version()}
        entries = [_request_entry(task.id, request), JournalEntry(TASKS_STREAM, "queued", body)]
        return await self.journal.write_all_once(f"queued:{task.id}:{task.run}", entries)

    async def update_request(self, task: Task, request: TaskRequest, session: str = "") -> None:
        """`session`: the id of its new session, if it changes."""
        entries = [_request_entry(task.id, request)]
        if session:
            entries.append(JournalEntry(TASKS_STREAM, "session", {"id": task.id, "session": session}))
        await self.journal.write_all(entries)

    async def finish(self, task_id: str, run: int, result: TaskResult) -> bool:
        """False if it had finished before: the first result counts."""
        result = await self._store_long_answer(task_id, result)
        body = {"id": task_id, "run": run, **TASK_RESULT_FIELDS.write(result)}
        point("end-unwritten")
        if await self.journal.write_once(f"ended:{task_id}:{run}", TASKS_STREAM, "ended", body) is None:
            return False
        point("end-written")
        finished = self.get(task_id)
        return finished is not None and finished.ended_run == run  # a claim that came too late has a later run number

    async def _store_long_answer(self, task_id: str, result: TaskResult) -> TaskResult:
        """A long answer is on disk before the result that refers to it, and is not kept in memory."""
        if len(result.text) <= MAX_INLINE_TEXT:
            return result
        name = os.urandom(6).hex()
        chunks = [
            result.text[start : start + _CHUNK_CHARACTERS] for start in range(0, len(result.text), _CHUNK_CHARACTERS)
        ]
        await self.journal.write_all(
            [JournalEntry(TASK_STREAM_PREFIX + task_id, "answer", {"name": name, "text": chunk}) for chunk in chunks]
        )
        return msgspec.structs.replace(
            result, text=result.text[:MAX_INLINE_TEXT], full_length=len(result.text), stored_name=name
        )

    async def request_stop(self, tasks: Iterable[Task], by: str = "") -> None:
        await self.journal.write_all([JournalEntry(TASKS_STREAM, "stop", {"id": task.id, "by": by}) for task in tasks])

    async def warn(self, task_id: str, text: str) -> None:
        await self.journal.write(TASKS_STREAM, "warning", {"id": task_id, "text": text})

    async def record_question(self, task_id: str, question: str, *, answered: bool = False) -> None:
        await self.journal.write(
            TASKS_STREAM, "answered" if answered else "waiting", {"id": task_id, "question": question}
        )

    async def mark_notified(self, task_id: str, run: int) -> bool:
        """False if another process has sent the notification."""
        body = {"id": task_id, "run": run}
        return await self.journal.write_once(f"notified:{task_id}:{run}", TASKS_STREAM, "notified", body) is not None

    async def end_dead_foreground_tasks(self) -> list[Task]:
        """Ends foreground tasks whose process has died, and kills their leftover processes. A worker recovers
        background tasks."""
        self._dead_checked_at = time.monotonic()
        dead = [task for task in self.unfinished() if not task.background and _is_owner_gone(task)]
        if not dead:
            return []
        await asyncio.to_thread(kill_processes, *(task.id for task in dead))
        ended: list[Task] = []
        for task in dead:
            with contextlib.suppress(StoreError):
                status = "cancelled" if task.stop_requested else "interrupted"
                if await self.finish(task.id, task.run, TaskResult(status=status, error=OWNER_ENDED)):
                    ended.append(task)
        return ended

    def unhosted_background_tasks(self) -> list[Task]:
        """Background tasks that are queued or whose owner has died."""
        return [
            task for task in self.unfinished() if task.background and (task.status == "queued" or _is_owner_gone(task))
        ]


def _is_owner_gone(task: Task) -> bool:
    return task.owner is not None and not task.owner.is_alive()


def _request_entry(task_id: str, request: TaskRequest) -> JournalEntry:
    stored = msgspec.structs.replace(request, options=dict(request.options), contract=dict(request.contract))
    return JournalEntry(TASK_STREAM_PREFIX + task_id, "wish", TASK_REQUEST_FIELDS.write(stored))
