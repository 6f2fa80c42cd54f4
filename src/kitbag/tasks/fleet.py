"""The workers that share a journal, and their queues: who is there, what runs and waits, and draining them.

Workers announce themselves in the journal's `fleet` stream; whether one is alive is known by its process or its lease.
Used by the worker and `kitbag fleet`.
"""

import time
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final

import msgspec

from kitbag.errors import NotFoundError
from kitbag.models.model_selection import BUILT_IN_MODELS
from kitbag.store.journal import Journal
from kitbag.tasks.board import Board
from kitbag.tasks.owner import Owner, parse_owner
from kitbag.tasks.queue_counts import QueueCount, count_ends, count_queues, queued_versions, running_count
from kitbag.tasks.task import Task, TaskStatus, timestamp
from kitbag.tasks.version import is_newer, kitbag_version, version_numbers
from kitbag.tasks.worker_lock import WorkerRecord

STREAM: Final = "fleet"
_RECENT_SECONDS: Final = 3_600


class WorkerStatus(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    machine: str
    pid: int
    version: str
    queues: tuple[str, ...]
    concurrency: int
    started: str
    running: int
    """Background agents."""
    is_draining: bool
    providers: tuple[str, ...] = ()
    """Model providers that it can use."""
    limits: Mapping[str, int] = {}
    """How many tasks of a queue it lets run at once over all workers."""


class QueueStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The background agents of one queue."""

    name: str
    queued: int
    """Without the scheduled ones."""
    scheduled: int
    running: int
    waiting: int
    """For an approval."""
    oldest_seconds: int
    """How long the oldest queued task has waited."""
    waits_for: str
    """What the oldest queued task waits for."""
    ended: int
    """In the last hour."""
    failed: int
    """Of those."""
    per_minute: float
    """Ends in the last hour."""
    last_minute: int
    """Ends in the last minute."""
    needs_version: str = ""
    """Queued tasks wait for a worker of this Kitbag version; empty: workers of this one can run all."""


class FleetStatus(msgspec.Struct, frozen=True, kw_only=True):
    workers: tuple[WorkerStatus, ...]
    queues: tuple[QueueStatus, ...]

    def to_json(self) -> dict[str, Any]:
        return msgspec.to_builtins(self)


class _Announced(msgspec.Struct):
    owner: Owner
    body: dict[str, Any]
    at: str
    is_draining: bool = False


def worker_id(owner: Owner) -> str:
    """Short, for users: the host and the process."""
    return f"{owner.machine.partition('/')[0]}:{owner.pid}"


def queue_label(name: str) -> str:
    """For users; of a Kitbag home: the machine and the directory."""
    kind, _, rest = name.partition(":")
    return (rest if kind == "home" else name) or "this machine"


async def announce_worker(
    journal: Journal,
    owner: Owner,
    *,
    queues: Iterable[str],
    concurrency: int,
    providers: Iterable[str] = (),
    limits: Mapping[str, int] | None = None,
) -> int:
    """Returns the number of the record: later requests to drain concern this worker."""
    body = {
        "owner": owner.to_record(),
        "version": kitbag_version(),
        "queues": sorted(queues),
        "at_once": concurrency,
        "providers": list(providers),
        "limits": dict(limits or {}),
    }
    return await journal.write(STREAM, "worker", body)


async def announce_exit(journal: Journal, owner: Owner) -> None:
    await journal.write(STREAM, "left", {"owner": owner.to_record()})


class SharedLimits:
    """How many tasks of a queue run at once over all workers: the lowest limit of those that are there."""

    def __init__(self, board: Board, own: Mapping[str, int]) -> None:
        self._board = board
        self._own = own
        self._last_seq = 0
        self._announced: list[_Announced] = []
        """Workers that have limits."""

    def read(self) -> dict[str, int]:
        last = self._board.journal.last(STREAM)
        if last is not None and last.seq != self._last_seq:
            self._last_seq = last.seq
            self._announced = [one for one in _announced(self._board.journal) if one.body.get("limits")]
        found = dict(self._own)
        for one in self._announced:
            if self._board.check_alive(one.owner) is not False:
                found |= {name: min(limit, found.get(name, limit)) for name, limit in one.body["limits"].items()}
        return found


def is_drained(journal: Journal, owner: Owner, since: int) -> bool:
    name = worker_id(owner)
    return any(record.body.get("worker") in ("", name) for record in journal.read(STREAM, since, kind="drain"))


async def drain(board: Board, names: Iterable[str], local: WorkerRecord | None = None) -> list[WorkerStatus]:
    """These workers finish what they run, start nothing more and exit. Without names: all. Raises NotFoundError."""
    workers = {worker.id: worker for worker in read_fleet(board, local).workers}
    chosen = list(names)
    for name in chosen:
        if name not in workers:
            raise NotFoundError(f"no worker named {name[:80]!r}", "list them with `kitbag fleet status`")
    for name in chosen or [""]:
        await board.journal.write(STREAM, "drain", {"worker": name})
    return [workers[name] for name in chosen or workers]


def read_fleet(board: Board, local: WorkerRecord | None = None) -> FleetStatus:
    """`local`: the worker of this Kitbag home; where a file is the journal, no other exists."""
    counts = count_queues(board.journal)
    running = Counter(task.owner for name in {name for name, _ in counts} for task in board.running_in_queue(name))
    workers = _read_workers(board, local, running)
    recent = count_ends(board.journal, timestamp(time.time() - _RECENT_SECONDS), timestamp(time.time() - 60))
    named = {name for one in workers for name in one.queues}
    names = sorted({name for name, _ in (*counts, *recent)} | named)
    return FleetStatus(
        workers=workers, queues=tuple(_queue_status(board, name, counts, recent, workers) for name in names)
    )


def _read_workers(board: Board, local: WorkerRecord | None, running: Counter[Owner | None]) -> tuple[WorkerStatus, ...]:
    # In a file, they are those of a database from which it was copied.
    announced = _announced(board.journal) if board.journal.is_shared else []
    if local is not None and local.owner not in [one.owner for one in announced]:
        announced.append(_Announced(local.owner, {"version": local.version}, ""))
    alive = [one for one in announced if board.check_alive(one.owner) is not False]
    return tuple(_worker_status(one, running[one.owner]) for one in alive)


def waiting_reason(board: Board, task: Task) -> str:
    """What a queued task waits for; empty if it is not queued, or will start soon."""
    if task.status != "queued":
        return ""
    workers = _read_workers(board, None, Counter(one.owner for one in board.running_in_queue(task.queue)))
    return _waiting_reason(board, task, workers)


def _waiting_reason(board: Board, task: Task, workers: Iterable[WorkerStatus]) -> str:
    if task.is_scheduled(timestamp(board.journal.now())):
        return f"its start at {task.not_before[:19]}Z"
    serving = [one for one in workers if task.queue in one.queues and not one.is_draining]
    if not board.journal.is_shared:
        return ""
    if not serving:
        name = task.queue if task.queue not in ("", board.journal.home_queue) else ""
        return f"a worker of its queue; start one with `kitbag worker{' --queue ' + name if name else ''}`"
    if is_newer(task.version, max((one.version for one in serving), key=version_numbers)):
        return f"a worker of Kitbag {task.version} or newer"
    lacking = [
        name for name in task.providers if all(name not in (*one.providers, *BUILT_IN_MODELS) for one in serving)
    ]
    if lacking:
        return f"a worker with an API key for {', '.join(lacking)}"
    limit = min((one.limits[task.queue] for one in serving if task.queue in one.limits), default=0)
    if limit and running_count(board.journal, task.queue, task.depth) >= limit:
        return f"another task to end: the queue runs {limit} at once (`tasks.queue_limits`)"
    if all(one.concurrency and one.running >= one.concurrency for one in serving):
        return "a free worker"
    return ""


def old_announcements(board: Board, before: str) -> list[int]:
    """Records before this time that no worker needs any more: those of workers that are gone, and requests to drain
    that no process is left to follow."""
    old: list[int] = []
    remaining: set[str] = {
        one.owner.name for one in _announced(board.journal) if board.check_alive(one.owner) is not False
    }
    is_needed = False
    for record in board.journal.read(STREAM):
        if record.at >= before:
            break
        owner = record.body.get("owner")
        if record.kind == "worker" and " ".join(map(str, owner or ())) in remaining:
            is_needed = True
        elif record.kind != "drain" or not is_needed:
            old.append(record.seq)
    return old


def _announced(journal: Journal) -> list[_Announced]:
    found: dict[str, _Announced] = {}
    for record in journal.read(STREAM):
        body: dict[str, Any] = record.body
        if record.kind == "drain":
            for one in found.values():
                one.is_draining = one.is_draining or body["worker"] in ("", worker_id(one.owner))
            continue
        try:
            owner = parse_owner(body.get("owner"))
        except ValueError:  # of another version
            continue
        if record.kind == "worker":
            found[owner.name] = _Announced(owner, body, record.at)
        elif record.kind == "left":
            found.pop(owner.name, None)
    return list(found.values())


def _worker_status(one: _Announced, running: int) -> WorkerStatus:
    return WorkerStatus(
        id=worker_id(one.owner),
        machine=one.owner.machine.partition("/")[0],
        pid=one.owner.pid,
        version=str(one.body.get("version", "")),
        queues=tuple(name for name in one.body.get("queues", ()) if name),
        concurrency=int(one.body.get("at_once", 0)),
        started=one.at,
        running=running,
        is_draining=one.is_draining,
        providers=tuple(one.body.get("providers", ())),
        limits=one.body.get("limits", {}),
    )


def _queue_status(
    board: Board,
    name: str,
    counts: Mapping[tuple[str, str], QueueCount],
    recent: Mapping[tuple[str, str], tuple[int, int]],
    workers: Iterable[WorkerStatus],
) -> QueueStatus:
    def count(status: TaskStatus) -> int:
        return counts[name, status].tasks if (name, status) in counts else 0

    oldest = board.get(counts[name, "queued"].oldest) if count("queued") else None
    ended = {status: numbers for (queue, status), numbers in recent.items() if queue == name}
    total = sum(hour for hour, _ in ended.values())
    return QueueStatus(
        name=name,
        queued=count("queued"),
        scheduled=counts[name, "queued"].scheduled if (name, "queued") in counts else 0,
        running=count("running"),
        waiting=count("waiting-approval"),
        # Not below 0: the clock of the machine that created it may be ahead.
        oldest_seconds=int(seconds_between(oldest.not_before or oldest.created, timestamp())) if oldest else 0,
        waits_for=_waiting_reason(board, oldest, workers) if oldest else "",
        ended=total,
        failed=sum(hour for status, (hour, _) in ended.items() if status not in ("completed", "cancelled")),
        per_minute=round(total / (_RECENT_SECONDS / 60), 2),
        last_minute=sum(minute for _, minute in ended.values()),
        needs_version=_newest_version(queued_versions(board.journal, name)),
    )


def seconds_between(start: str, end: str) -> float:
    return max((datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds(), 0.0)


def _newest_version(versions: Iterable[str]) -> str:
    """The newest of those that are newer than this Kitbag."""
    newest = ""
    for version in versions:
        if is_newer(version, newest or kitbag_version()):
            newest = version
    return newest
