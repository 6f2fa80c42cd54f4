"""The board: every task, its owner and its result, as journal records that many processes share.

Reads the table of tasks that the journal derives from those records. A write is durable when its method returns. A
journal key decides races: one process claims a run, one writes its result. Used by the worker, the task tools, the CLI
and the chat.
"""

import asyncio
import contextlib
import functools
import hashlib
import os
import time
from collections.abc import AsyncIterator, Callable, Iterable
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from kitbag.errors import AmbiguousError, NotFoundError
from kitbag.library.scopes import find_places
from kitbag.permissions.workspace_identity import WorkspaceIdentity
from kitbag.store.fault_points import point
from kitbag.store.fencing import FencedError, fenced_by
from kitbag.store.journal import Journal, JournalEntry
from kitbag.store.private_files import StoreError
from kitbag.tasks.owner import Owner, this_process
from kitbag.tasks.queue_counts import RUNNING_IN_QUEUE
from kitbag.tasks.queue_limits import MAX_ATTEMPTS, begin_within_limit, check_room
from kitbag.tasks.task import (
    SNAPSHOT_KEY,
    SUBMITTED_RULES_KEY,
    TASK_REQUEST_FIELDS,
    TASK_RESULT_FIELDS,
    WORKSPACE_KEY,
    Task,
    TaskKind,
    TaskRequest,
    TaskResult,
    timestamp,
)
from kitbag.tasks.task_processes import kill_processes
from kitbag.tasks.task_table import TASK_TABLE, TASKS_STREAM, decode_tasks
from kitbag.tasks.version import kitbag_version
from kitbag.tools.delegation import QueueOptions

if TYPE_CHECKING:
    from kitbag.tasks.submission import Submissions

TASK_STREAM_PREFIX: Final = "task/"
"""Per-task streams with the request and long answers: read only when needed."""
OWNER_ENDED: Final = "its process ended before the task did"
MAX_INLINE_TEXT: Final = 4_000
"""Characters of an answer that the board keeps in memory."""
RETRY: Final = "retry; Kitbag rebuilds it from the records"
MAX_WARNING_CHARACTERS: Final = 1_000
_REQUEST_KIND: Final = "wish"
"""Of the record with a task's request, as in the first records that were stored."""
_MAX_SIMILAR: Final = 200
"""Newest tasks among which a similar id is looked for."""
_CHUNK_CHARACTERS = 500_000
_POLL_SECONDS = 1.0
"""How often the board checks for owners that have died."""


def begin_key(task_id: str, run: int) -> str:
    """The process that writes the record with this key runs the task."""
    return f"begun:{task_id}:{run}"


def end_key(task_id: str, run: int) -> str:
    return f"ended:{task_id}:{run}"


def _requeue_key(task_id: str, run: int) -> str:
    return f"queued:{task_id}:{run}"


class UnreadableRecord(NamedTuple):
    """A record that could not be applied: damaged, or written by another version."""

    seq: int
    kind: str
    problem: str


class Board:
    """For one event loop; each process has its own."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        journal.identify(this_process().name)
        self._last_applied_seq = -1
        self._unfinished: dict[str, Task] = {}
        """As of the last refresh."""
        self._dead_checked_at = 0.0
        self.on_change: Callable[[Task], None] | None = None
        """Called for each task that a refresh finds changed; the first time, for each unfinished one."""

    # Reading

    def refresh(self) -> list[str]:
        """Returns the ids of the tasks that changed since the last time."""
        self.journal.ensure_table(TASK_TABLE)
        if self._last_applied_seq < 0:  # the first time: only those that are still to end
            [[last]] = self.journal.select("SELECT coalesce(max(changed), 0) FROM task_states")
            rows = self.journal.select("SELECT id, state, checksum, changed FROM task_states WHERE finished = 0")
            self._last_applied_seq = int(last)
        else:
            rows = self._select_changed(self._last_applied_seq)
        for task in self._decode([row[:3] for row in rows]):
            if task.is_finished:
                self._unfinished.pop(task.id, None)
            else:
                self._unfinished[task.id] = task
            if self.on_change is not None:
                self.on_change(task)
        self._last_applied_seq = max([self._last_applied_seq, *(int(row[3]) for row in rows)])
        return [str(row[0]) for row in rows]

    def _select_changed(self, after: int) -> list[Any]:
        self.journal.ensure_table(TASK_TABLE)
        return self.journal.select(
            "SELECT id, state, checksum, changed FROM task_states WHERE changed > ? ORDER BY changed", after
        )

    def _select(self, condition: str, *values: object) -> list[Task]:
        self.journal.ensure_table(TASK_TABLE)
        return self._decode(
            self.journal.select(f"SELECT id, state, checksum FROM task_states {condition}", *values)  # noqa: S608
        )

    def _decode(self, rows: list[tuple[str, str, int]]) -> list[Task]:
        try:
            return decode_tasks(rows)
        except (ValueError, TypeError, msgspec.MsgspecError) as error:
            self.journal.drop_tables()
            raise StoreError(f"the table of tasks in {self.journal.path} is damaged: {error}", RETRY) from error

    @property
    def unreadable(self) -> list[UnreadableRecord]:
        self.journal.ensure_table(TASK_TABLE)
        rows = self.journal.select(
            "SELECT seq, kind, problem FROM derived_problems WHERE name = ? ORDER BY seq", TASK_TABLE.name
        )
        return [UnreadableRecord(*row) for row in rows]

    def unreadable_notice(self) -> str:
        """What the user should know about unreadable records; empty if there are none."""
        unreadable = self.unreadable
        if not unreadable:
            return ""
        count, first = len(unreadable), unreadable[0]
        subject = "1 task record" if count == 1 else f"{count:,} task records"
        return (
            f"can't read {subject} in the journal, so tasks may be missing or out of date; another version of Kitbag "
            f"may have written {'it' if count == 1 else 'them'} (record {first.seq}, {first.kind!r}: {first.problem})"
        )

    @property
    def last_applied_seq(self) -> int:
        """The sequence number of the last record that changed a task, as of the last refresh."""
        return max(self._last_applied_seq, 0)

    def known_unfinished(self) -> list[Task]:
        """Unfinished tasks as of the last refresh, without reading the journal."""
        return list(self._unfinished.values())

    def all(self) -> list[Task]:
        """In order of creation."""
        return self._select("ORDER BY number")

    def newest(self, directory: str = "", limit: int = -1, *, unfinished: bool = False) -> list[Task]:
        """Newest first, of one directory or of all."""
        conditions = [*(["directory = ?"] if directory else []), *(["finished = 0"] if unfinished else [])]
        where = f"WHERE {' AND '.join(conditions)} " if conditions else ""
        return self._select(f"{where}ORDER BY number DESC LIMIT ?", *([directory] if directory else []), limit)

    def count(self, directory: str = "", session_id: str = "") -> int:
        """All tasks, or those of a directory or a session."""
        self.journal.ensure_table(TASK_TABLE)
        if not directory:
            return int(self.journal.select("SELECT count(*) FROM task_states")[0][0])
        query = "SELECT count(*) FROM task_states WHERE directory = ? OR (root = ? AND root <> '')"
        return int(self.journal.select(query, directory, session_id)[0][0])

    def changed_since(self, seq: int) -> list[Task]:
        """Tasks with a record after this one."""
        return self._decode([row[:3] for row in self._select_changed(seq)])

    def running_in_queue(self, queue: str) -> list[Task]:
        """Background agents, of any process."""
        return self._select(f"WHERE {RUNNING_IN_QUEUE}", queue)

    def of_session(self, session_id: str) -> list[Task]:
        """All tasks of a session, including those that its agents started."""
        return self._select("WHERE root = ? ORDER BY number", session_id)

    def unfinished(self) -> list[Task]:
        """Oldest first."""
        self.refresh()
        return sorted(self._unfinished.values(), key=lambda task: task.created)

    def get(self, task_id: str) -> Task | None:
        return next(iter(self._select("WHERE id = ?", task_id)), None)

    def find(self, name: str, visible: Callable[[Task], bool] | None = None) -> Task:
        """Finds a task by its id or a prefix of it. Raises NotFoundError with close matches, or AmbiguousError.

        `visible`: only these tasks are considered.
        """
        found = self.get(name)
        if found is not None and (visible is None or visible(found)):
            return found
        matches: list[Task] = []
        if len(name) >= 3:
            matches = self._select("WHERE id > ? AND substr(id, 1, ?) = ? ORDER BY id", name, len(name), name)
        matches = [task for task in matches if visible is None or visible(task)]
        if len(matches) > 1:
            ids = ", ".join(task.id for task in matches[:10])
            raise AmbiguousError(f"several tasks start with {name[:80]!r}", f"use one of {ids}")
        if matches:
            return matches[0]
        recent = [task.id for task in self.newest(limit=_MAX_SIMILAR) if visible is None or visible(task)]
        close = get_close_matches(name[:80], recent, 3, 0.6)
        fix = f"did you mean {' or '.join(close)}?" if close else "list tasks with `kitbag tasks list --all`"
        raise NotFoundError(f"no task named {name[:80]!r}", fix)

    def started_by(self, parent_id: str) -> list[Task]:
        """The direct children of a task or a session."""
        return self._select("WHERE started_by = ? ORDER BY number", parent_id)

    def descendants(self, task_id: str) -> list[Task]:
        """All tasks below this one, at any depth."""
        descendants: list[Task] = []
        pending = self.started_by(task_id)[::-1]
        while pending:
            child = pending.pop()
            descendants.append(child)
            pending += self.started_by(child.id)[::-1]
        return descendants

    def request(self, task_id: str) -> TaskRequest:
        """The latest request. Raises NotFoundError."""
        return self.latest_request(task_id)[0]

    def latest_request(self, task_id: str) -> tuple[TaskRequest, int]:
        """The request and the sequence number of its record: later records of the session respond to it."""
        request: TaskRequest | None = None
        seq = 0
        for record in self.journal.read(TASK_STREAM_PREFIX + task_id):
            if record.kind == _REQUEST_KIND:
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
        """Yields the tasks that changed since the last refresh, indefinitely."""
        if self._last_applied_seq < 0:
            self.refresh()
        after = self._last_applied_seq
        while True:
            seen = self.journal.last_seq()
            rows = self._select_changed(after)
            after = max([after, *(int(row[3]) for row in rows)])
            yield self._decode([row[:3] for row in rows])
            await self.journal.wait_async(seen)

    # Writing

    @functools.cached_property
    def _submissions(self) -> "Submissions":
        from kitbag.tasks.submission import Submissions

        return Submissions(self.journal)

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
        queueing: QueueOptions | None = None,
        max_queued: int = 0,
    ) -> Task:
        """If `queueing` has a key and an unfinished task of the queue has it too, that task is returned and nothing is
        written. `max_queued`: raises QueueFullError if as many tasks wait in its queue; 0: no limit."""
        starter = self.get(parent) if parent else None
        queue = self._choose_queue(kind, starter)
        entries: list[JournalEntry] = []
        if queue == self.journal.home_queue:
            request = _with_workspace(request)
        else:  # another machine has another directory there
            origin = self._submissions.describe(task_id, request, is_child=bool(parent), is_background=background)
            request, entries = await origin
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
            "queue": queue,
            "repository": str(request.options.get("git", {}).get("url", "")),
        }
        if snapshot := str(request.options.get(SNAPSHOT_KEY, "")):
            body["snapshot"] = snapshot
        body |= self._queue_fields(queueing or QueueOptions(), starter) if background and kind == "agent" else {}
        existing = await self._create_once([*entries, _request_entry(task_id, request)], body, max_queued)
        point("task-created")
        return existing or self.find(task_id)

    def _choose_queue(self, kind: TaskKind, starter: Task | None) -> str:
        """A command runs where the agent that started it runs; an agent in the queue of its parent."""
        if kind == "command":
            return self.journal.home_queue
        return starter.queue if starter is not None else self.journal.queue

    def _queue_fields(self, queueing: QueueOptions, starter: Task | None) -> dict[str, Any]:
        inherited = starter.priority if starter is not None else 0
        fields = {
            "priority": inherited if queueing.priority is None else queueing.priority,
            "key": self.journal.redactor.redact_text(queueing.key) if queueing.key else "",
            "not_before": timestamp(self.journal.now() + queueing.delay) if queueing.delay else queueing.not_before,
            "providers": list(queueing.providers),
        }
        return {name: value for name, value in fields.items() if value}

    async def _create_once(self, request: Iterable[JournalEntry], body: dict[str, Any], max_queued: int) -> Task | None:
        """Writes the new task, or returns an unfinished one that has its key."""
        entries = [*request, JournalEntry(TASKS_STREAM, "created", body)]
        queue, key = str(body["queue"]), str(body.get("key", ""))
        for _ in range(MAX_ATTEMPTS):
            previous = self.with_key(queue, key) if key else None
            if previous is not None and not previous.is_finished:
                return previous
            if max_queued and body["background"]:
                check_room(self.journal, queue, max_queued)
            if not key:
                await self.journal.write_all(entries)
                return None
            # It is free until another process uses it, or starts the previous task again.
            name, run = (previous.id, previous.run) if previous is not None else ("", 0)
            digest = hashlib.sha256(f"{queue}\0{key}".encode("utf-8", "surrogatepass")).hexdigest()[:32]
            with fenced_by(begin_key(name, run + 1), _requeue_key(name, run)), contextlib.suppress(FencedError):
                if await self.journal.write_all_once(f"created:{digest}:{name}:{run}", entries):
                    return None
            await asyncio.to_thread(self.journal.catch_up)
        raise StoreError(f"other processes keep starting tasks with the key {key[:80]!r}", "retry")

    def with_key(self, queue: str, key: str) -> Task | None:
        """The newest task with this key."""
        condition = "WHERE queue = ? AND dedup_key = ? AND dedup_key <> '' ORDER BY number DESC LIMIT 1"
        found = self._select(condition, queue, key)
        return found[0] if found else None

    async def claim(
        self,
        task: Task,
        owner: Owner | None = None,
        *,
        restart: bool = False,
        recovered: bool = False,
        foreground: bool = False,
        limit: int = 0,
    ) -> bool:
        """Starts a run of the task. False if another process was first or the task has finished meanwhile. `restart`:
        also start a finished task, which only a user may ask for; `recovered`: the previous run made no progress;
        `foreground`: the caller waits for the answer, so no notification is sent later. `limit`: false if as many tasks
        of its queue and depth are running, in any process."""
        run = task.run + 1
        body = {
            "id": task.id,
            "run": run,
            "owner": (owner or this_process()).to_record(),
            "again": restart,
            "recovered": recovered,
            "in_front": foreground,
        }
        begun = JournalEntry(TASKS_STREAM, "begun", body)
        written = (
            await begin_within_limit(self.journal, limit, task, begin_key(task.id, run), begun)
            if limit
            else await self.journal.write_all_once(begin_key(task.id, run), [begun])
        )
        if not written:
            return False
        point("task-claimed")
        claimed = self.find(task.id)
        return claimed.run == run and not claimed.is_finished

    async def move_to_background(self, task_id: str) -> bool:
        """Its process continues, and its end is announced. False if it does not run."""
        task = self.find(task_id)
        if task.is_finished or task.status == "queued":
            return False
        await self.journal.write(TASKS_STREAM, "moved", {"id": task_id})
        return not self.find(task_id).is_finished

    async def requeue(self, task: Task, request: TaskRequest) -> bool:
        """Queues a finished task for a worker, which resumes it. False if another process was first; nothing is written
        then."""
        body = {"id": task.id, "run": task.run, "version": kitbag_version()}
        entries = [_request_entry(task.id, request), JournalEntry(TASKS_STREAM, "queued", body)]
        return bool(await self.journal.write_all_once(_requeue_key(task.id, task.run), entries))

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
        with fenced_by(begin_key(task_id, run + 1)):
            if await self.journal.write_once(end_key(task_id, run), TASKS_STREAM, "ended", body) is None:
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
        """Once: a restart or another process may find the same problem."""
        text = text if len(text) <= MAX_WARNING_CHARACTERS else f"{text[: MAX_WARNING_CHARACTERS - 1]}…"
        task = self.get(task_id)
        if task is None or text not in task.warnings:
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
        self.refresh()
        dead = [task for task in self._unfinished.values() if not task.background and self._is_owner_gone(task)]
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
        """Background tasks of this machine's queues that are queued or whose owner has died. In a file: of all."""
        return [
            task
            for task in self.unfinished()
            if task.background
            and (not self.journal.is_shared or task.queue in ("", self.journal.home_queue, self.journal.queue))
            and (task.status == "queued" or self._is_owner_gone(task))
        ]

    def check_alive(self, owner: Owner) -> bool | None:
        """By its process if it is on this machine, and by its lease if it holds one; None if unknown."""
        is_running = owner.check_alive()
        if is_running is False:
            return False
        holds_lease = self.journal.is_process_alive(owner.name)
        return is_running if holds_lease is None else holds_lease

    def _is_owner_gone(self, task: Task) -> bool:
        return task.owner is not None and self.check_alive(task.owner) is False


def _with_workspace(request: TaskRequest) -> TaskRequest:
    """The task runs in this directory, and not in another one that has taken its place, with the rules
    of this home as they are then."""
    options = {name: value for name, value in request.options.items() if name != SUBMITTED_RULES_KEY}
    if request.directory and WORKSPACE_KEY not in options:
        identity = WorkspaceIdentity.of_directory(os.path.realpath(find_places(request.directory).project))
        options[WORKSPACE_KEY] = identity.to_record() if identity is not None else []
    return msgspec.structs.replace(request, options=options)


def _request_entry(task_id: str, request: TaskRequest) -> JournalEntry:
    stored = msgspec.structs.replace(
        request,
        options=dict(request.options),
        contract=dict(request.contract),
        output_schema=dict(request.output_schema),
    )
    return JournalEntry(TASK_STREAM_PREFIX + task_id, _REQUEST_KIND, TASK_REQUEST_FIELDS.write(stored))
