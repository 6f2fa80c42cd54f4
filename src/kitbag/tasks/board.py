"""The board: every task there ever was, who does it and how it ended, as records that many processes share.

A view of one stream of the journal, taken in as it grows. What is written is durable when the method returns, and a
key decides where two processes want the same: one claims a beginning, one writes an end. Used by the worker, the tools,
the commands, and whoever shows tasks. A fleet may stand behind the same methods.
"""

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator, Callable, Iterable
from difflib import get_close_matches
from typing import Any, Final

from kitbag.errors import AmbiguousError, NotFoundError
from kitbag.store.fault_points import point
from kitbag.store.journal import Entry, Journal
from kitbag.store.private_files import StoreError
from kitbag.tasks.owner import Owner, this_process
from kitbag.tasks.task import END, TASK_REQUEST, End, Kind, Task, Wish, apply
from kitbag.tasks.task_processes import end_processes
from kitbag.tasks.version import this_version

STREAM: Final = "tasks"
WISHES: Final = "task/"
"""Streams with what was asked for and long answers: read by those who need them, and by nobody else."""
ENDED_WITH_OWNER: Final = "the process that ran it ended before it did"
SHOWN: Final = 4_000
"""Characters of an answer that everybody who looks at the board has in memory."""
_PIECE = 500_000
_LOOK_SECONDS = 1.0
"""How often an owner that may have vanished is looked for."""


class Board:
    """For one event loop at most; every process has its own."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self._seen = 0
        self._tasks: dict[str, Task] = {}
        self._children: dict[str, list[str]] = {}
        self._open: dict[str, None] = {}
        """Those that have not ended, so that looking after them costs nothing for the others."""
        self._buried_at = 0.0

    # Looking

    def refresh(self) -> list[str]:
        """Takes in what is new; the tasks it was about."""
        changed: dict[str, None] = {}
        for record in self.journal.read(STREAM, self._seen, 1_000):
            self._seen = record.seq
            with contextlib.suppress(LookupError, TypeError, ValueError, ArithmeticError):  # of another version
                known = len(self._tasks)
                task_id = apply(self._tasks, record)
                changed[task_id] = None
                task = self._tasks[task_id]
                if len(self._tasks) > known:
                    self._children.setdefault(task.parent or task.root, []).append(task_id)
                if task.is_finished:
                    self._open.pop(task_id, None)
                else:
                    self._open[task_id] = None
        return list(changed)

    @property
    def seen(self) -> int:
        """The last record that was taken in."""
        return self._seen

    def open_now(self) -> list[Task]:
        """Those that have not ended, as far as is known without a look at the journal."""
        return [self._tasks[task_id] for task_id in list(self._open)]

    def all(self) -> list[Task]:
        """In the order in which they were created."""
        self.refresh()
        return list(self._tasks.values())

    def of(self, root: str) -> list[Task]:
        """All that a session has begun, its agents' included."""
        return [task for task in self.all() if task.root == root]

    def unfinished(self) -> list[Task]:
        """The oldest first."""
        self.refresh()
        return sorted((self._tasks[task_id] for task_id in self._open), key=lambda task: task.created)

    def get(self, task_id: str) -> Task | None:
        self.refresh()
        return self._tasks.get(task_id)

    def find(self, name: str, among: Callable[[Task], bool] | None = None) -> Task:
        """By its id, or what that begins with. Raises NotFoundError with what is close, and AmbiguousError.

        `among`: the others are as if they were not there.
        """
        self.refresh()
        known = self._tasks if among is None else {task.id: task for task in self._tasks.values() if among(task)}
        if name in known:
            return known[name]
        found = [task_id for task_id in known if len(name) >= 3 and task_id.startswith(name)]
        if len(found) > 1:
            raise AmbiguousError(f"several tasks begin with {name[:80]!r}", f"write one of {', '.join(found[:10])}")
        if found:
            return known[found[0]]
        close = get_close_matches(name[:80], known, 3, 0.6)
        fix = f"did you mean {' or '.join(close)}?" if close else "`kitbag tasks list` shows those there are"
        raise NotFoundError(f"there is no task {name[:80]!r}", fix)

    def begun_by(self, parent: str) -> list[Task]:
        """By a task or a session itself, without those that these began."""
        self.refresh()
        return [self._tasks[child] for child in self._children.get(parent, ())]

    def below(self, task_id: str) -> list[Task]:
        """The tasks that it began, theirs too."""
        self.refresh()
        found: list[Task] = []
        left = list(reversed(self._children.get(task_id, ())))
        while left:
            child = left.pop()
            found.append(self._tasks[child])
            left += reversed(self._children.get(child, ()))
        return found

    def wish(self, task_id: str) -> Wish:
        """What was asked for last. Raises NotFoundError."""
        return self.last_wish(task_id)[0]

    def last_wish(self, task_id: str) -> tuple[Wish, int]:
        """With the number of its record: what its session holds after that answers it."""
        wish: Wish | None = None
        seq = 0
        for record in self.journal.read(WISHES + task_id):
            if record.kind == "wish":
                found = TASK_REQUEST.read(record.body)
                wish, seq = found._replace(skills=tuple(found.skills)), record.seq
        if wish is None:
            raise NotFoundError(f"what task {task_id} was asked for is not in the journal", "begin another one")
        return wish, seq

    def answer(self, task: Task) -> str:
        """All of what it ended with."""
        end = task.end
        if end is None or not end.rest:
            return end.text if end is not None else ""
        pieces = [
            str(record.body["text"])
            for record in self.journal.read(WISHES + task.id)
            if record.kind == "answer" and record.body["name"] == end.rest
        ]
        return "".join(pieces)

    async def changed(self, seconds: float | None = None) -> bool:
        """Until the journal grows, whoever writes to it; False when the time is over."""
        return await self.journal.changed(max(self._seen, self.journal.last_seq()), seconds)

    async def until(self, is_so: Callable[[Task], bool], task_id: str, seconds: float | None = None) -> Task | None:
        """The task when that is so; None when the time is over."""
        try:
            async with asyncio.timeout(seconds):
                while True:
                    seen = self.journal.last_seq()
                    task = self.find(task_id)
                    if is_so(task):
                        return task
                    # An owner may vanish without a word, so it is looked for from time to time.
                    await self.journal.changed(seen, _LOOK_SECONDS)
                    if time.monotonic() - self._buried_at >= _LOOK_SECONDS:
                        await self.bury()
        except TimeoutError:
            return None

    async def follow(self) -> AsyncIterator[list[Task]]:
        """Those that changed, again and again."""
        after = self._seen
        while True:
            seen = self.journal.last_seq()
            changed: dict[str, None] = {}
            self.refresh()
            if self._seen > after:
                for record in self.journal.read(STREAM, after, 1_000):  # others may have taken it in already
                    if record.seq > self._seen:
                        break
                    after = record.seq
                    changed[str(record.body.get("id"))] = None
            yield [self._tasks[task_id] for task_id in changed if task_id in self._tasks]
            await self.journal.changed(seen)

    # Writing

    async def create(
        self, task_id: str, kind: Kind, wish: Wish, *, root: str, parent: str, depth: int, background: bool
    ) -> Task:
        body: dict[str, Any] = {
            "id": task_id,
            "kind": kind,
            "agent": wish.agent,
            "description": wish.description,
            "root": root,
            "parent": parent,
            "depth": depth,
            "background": background,
            "directory": wish.directory,
            "version": this_version(),
            "owner": [] if background else list(this_process()),
        }
        await self.journal.write_all([_wish_entry(task_id, wish), Entry(STREAM, "created", body)])
        point("task-created")
        return self.find(task_id)

    async def claim(
        self,
        task: Task,
        owner: Owner | None = None,
        *,
        again: bool = False,
        recovered: bool = False,
        in_front: bool = False,
    ) -> bool:
        """Begins it. False when somebody else was first, or has ended it meanwhile. `again`: also when it had ended
        before, which is for a person to want; `recovered`: it was begun before, and got nowhere; `in_front`: whoever
        begins it waits for its answer, so nobody is told of that later."""
        run = task.run + 1
        body = {
            "id": task.id,
            "run": run,
            "owner": list(owner or this_process()),
            "again": again,
            "recovered": recovered,
            "in_front": in_front,
        }
        if await self.journal.write_once(f"begun:{task.id}:{run}", STREAM, "begun", body) is None:
            return False
        point("task-claimed")
        begun = self.find(task.id)
        return begun.run == run and not begun.is_finished

    async def queue_again(self, task: Task, wish: Wish) -> bool:
        """For a worker: it goes on from where it was. False when somebody else was first; then nothing is asked."""
        body = {"id": task.id, "run": task.run, "version": this_version()}
        entries = [_wish_entry(task.id, wish), Entry(STREAM, "queued", body)]
        return await self.journal.write_all_once(f"queued:{task.id}:{task.run}", entries)

    async def ask_again(self, task: Task, wish: Wish, session: str = "") -> None:
        """`session`: where its conversation is from now on, if elsewhere."""
        entries = [_wish_entry(task.id, wish)]
        if session:
            entries.append(Entry(STREAM, "session", {"id": task.id, "session": session}))
        await self.journal.write_all(entries)

    async def end(self, task_id: str, run: int, end: End) -> bool:
        """False when it had ended before: the first end counts."""
        end = await self._put_away(task_id, end)
        body = {"id": task_id, "run": run, **END.write(end)}
        point("end-unwritten")
        if await self.journal.write_once(f"ended:{task_id}:{run}", STREAM, "ended", body) is None:
            return False
        point("end-written")
        ended = self.get(task_id)
        return ended is not None and ended.ended_run == run  # whoever came too late has a later number

    async def _put_away(self, task_id: str, end: End) -> End:
        """A long answer is on the disk before the end that tells of it, and not in everybody's memory."""
        if len(end.text) <= SHOWN:
            return end
        name = os.urandom(6).hex()
        pieces = [end.text[start : start + _PIECE] for start in range(0, len(end.text), _PIECE)]
        await self.journal.write_all(
            [Entry(WISHES + task_id, "answer", {"name": name, "text": piece}) for piece in pieces]
        )
        return end._replace(text=end.text[:SHOWN], length=len(end.text), rest=name)

    async def want_stop(self, tasks: Iterable[Task], by: str = "") -> None:
        await self.journal.write_all([Entry(STREAM, "stop", {"id": task.id, "by": by}) for task in tasks])

    async def warn(self, task_id: str, text: str) -> None:
        await self.journal.write(STREAM, "warning", {"id": task_id, "text": text})

    async def wait_for_answer(self, task_id: str, question: str, *, over: bool = False) -> None:
        await self.journal.write(STREAM, "answered" if over else "waiting", {"id": task_id, "question": question})

    async def mark_notified(self, task_id: str, run: int) -> bool:
        """False when another has told it."""
        body = {"id": task_id, "run": run}
        return await self.journal.write_once(f"notified:{task_id}:{run}", STREAM, "notified", body) is not None

    async def bury(self) -> list[Task]:
        """Ends what ran in front in a process that is gone, with the processes it left. Background work is left to a
        worker, who recovers it."""
        self._buried_at = time.monotonic()
        dead = [task for task in self.unfinished() if not task.background and _lost_its_owner(task)]
        if not dead:
            return []
        await asyncio.to_thread(end_processes, *(task.id for task in dead))
        buried: list[Task] = []
        for task in dead:
            with contextlib.suppress(StoreError):
                status = "cancelled" if task.stop_wanted else "interrupted"
                if await self.end(task.id, task.run, End(status, error=ENDED_WITH_OWNER)):
                    buried.append(task)
        return buried

    def orphans(self) -> list[Task]:
        """Background work that nobody does: it waits, or its process is gone."""
        return [
            task for task in self.unfinished() if task.background and (task.status == "queued" or _lost_its_owner(task))
        ]


def _lost_its_owner(task: Task) -> bool:
    return task.owner is not None and not task.owner.is_alive()


def _wish_entry(task_id: str, wish: Wish) -> Entry:
    plain = wish._replace(options=dict(wish.options), contract=dict(wish.contract))
    return Entry(WISHES + task_id, "wish", TASK_REQUEST.write(plain))
