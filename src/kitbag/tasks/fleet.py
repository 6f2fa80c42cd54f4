"""The workers that share a journal, and their queues: who is there, what runs and waits, and draining them.

Workers announce themselves in the journal's `fleet` stream; whether one is alive is known by its process or its lease.
Used by the worker and `kitbag fleet`.
"""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from kitbag.errors import NotFoundError
from kitbag.store.journal import Journal
from kitbag.tasks.board import Board
from kitbag.tasks.owner import Owner, parse_owner
from kitbag.tasks.task import Task
from kitbag.tasks.version import is_newer, kitbag_version
from kitbag.tasks.worker_lock import WorkerRecord

STREAM: Final = "fleet"
_RECENT_SECONDS: Final = 3_600
_MAX_RECENT: Final = 100_000


class WorkerStatus(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    machine: str
    pid: int
    version: str
    queues: tuple[str, ...]
    concurrency: int
    started: str
    running: int
    is_draining: bool


class QueueStatus(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    queued: int
    running: int
    waiting: int
    """For an approval."""
    oldest_seconds: int
    """How long the oldest queued task has waited."""
    ended: int
    """In the last hour."""
    failed: int
    """Of those."""
    per_minute: float
    """Ends in the last hour."""
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


async def announce_worker(journal: Journal, owner: Owner, queues: Iterable[str], concurrency: int) -> int:
    """Returns the number of the record: later requests to drain concern this worker."""
    body = {"owner": owner.to_record(), "version": kitbag_version(), "queues": sorted(queues), "at_once": concurrency}
    return await journal.write(STREAM, "worker", body)


async def announce_exit(journal: Journal, owner: Owner) -> None:
    await journal.write(STREAM, "left", {"owner": owner.to_record()})


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
    unfinished = board.unfinished()
    announced = _announced(board.journal)
    if local is not None and local.owner not in [one.owner for one in announced]:
        announced.append(_Announced(local.owner, {"version": local.version}, ""))
    workers = [_worker_status(one, unfinished) for one in announced if board.check_alive(one.owner) is not False]
    recent = board.ended_since(_seconds_ago(_RECENT_SECONDS), _MAX_RECENT)
    names = sorted({task.queue for task in (*unfinished, *recent)} | {name for one in workers for name in one.queues})
    queues = [_queue_status(name, unfinished, recent) for name in names]
    return FleetStatus(workers=tuple(workers), queues=tuple(queues))


def old_announcements(board: Board, before: str) -> list[int]:
    """Records before this time that no worker needs any more: those of workers that are gone, and requests to drain
    that nobody is left to follow."""
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


def _worker_status(one: _Announced, unfinished: Iterable[Task]) -> WorkerStatus:
    return WorkerStatus(
        id=worker_id(one.owner),
        machine=one.owner.machine.partition("/")[0],
        pid=one.owner.pid,
        version=str(one.body.get("version", "")),
        queues=tuple(name for name in one.body.get("queues", ()) if name),
        concurrency=int(one.body.get("at_once", 0)),
        started=one.at,
        running=sum(1 for task in unfinished if task.owner == one.owner),
        is_draining=one.is_draining,
    )


def _queue_status(name: str, unfinished: Iterable[Task], recent: Iterable[Task]) -> QueueStatus:
    own = [task for task in unfinished if task.queue == name and task.background]
    ended = [task for task in recent if task.queue == name and task.background]
    queued = [task for task in own if task.status == "queued"]
    oldest = min((task.created for task in queued), default="")
    return QueueStatus(
        name=name,
        queued=len(queued),
        running=sum(task.status == "running" for task in own),
        waiting=sum(task.status == "waiting-approval" for task in own),
        # Not below 0: the clock of the machine that created it may be ahead.
        oldest_seconds=max(0, int((datetime.now(UTC) - datetime.fromisoformat(oldest)).total_seconds()))
        if oldest
        else 0,
        ended=len(ended),
        failed=sum(task.status not in ("completed", "cancelled") for task in ended),
        per_minute=round(len(ended) / (_RECENT_SECONDS / 60), 2),
        needs_version=_newest_version(task.version for task in queued),
    )


def _newest_version(versions: Iterable[str]) -> str:
    """The newest of those that are newer than this Kitbag."""
    newest = ""
    for version in versions:
        if is_newer(version, newest or kitbag_version()):
            newest = version
    return newest


def _seconds_ago(seconds: float) -> str:
    then = datetime.fromtimestamp(datetime.now(UTC).timestamp() - seconds, UTC)
    return then.isoformat(timespec="microseconds").replace("+00:00", "Z")
