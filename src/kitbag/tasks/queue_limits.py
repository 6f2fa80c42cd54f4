"""The limits of a queue: how many of its tasks run at once over all processes, and how many may wait.

Used by the board, which creates and claims tasks.
"""

import asyncio
import contextlib
from typing import Final

from kitbag.errors import QueueFullError
from kitbag.store.fencing import FencedError, fenced_by
from kitbag.store.journal import Journal, JournalEntry
from kitbag.tasks.queue_counts import queued_count, running_count
from kitbag.tasks.task import Task

QUEUE_STREAM_PREFIX: Final = "queue/"
"""Per-queue streams with the numbers of claims, for queues with a limit."""
MAX_ATTEMPTS: Final = 10
"""How often a write is decided anew because another process was faster."""


async def begin_within_limit(journal: Journal, limit: int, task: Task, key: str, begun: JournalEntry) -> list[int]:
    """Writes the record that claims the task, which has this key, unless as many tasks of its queue and depth are
    running. The claims of a queue with a limit are numbered, and each is written only if its number is free: so the
    tasks that are running were counted after the claim before it."""
    stream = QUEUE_STREAM_PREFIX + task.queue
    for _ in range(MAX_ATTEMPTS):
        last = journal.last(stream)
        number = int(last.body["number"]) + 1 if last is not None else 1
        if running_count(journal, task.queue, task.depth) >= limit:
            return []
        turn = f"claim:{task.queue}:{number}"
        claim = JournalEntry(stream, "claim", {"number": number}, turn)
        with fenced_by(turn), contextlib.suppress(FencedError):
            return await journal.write_all_once(key, [begun, claim])
        await asyncio.to_thread(journal.catch_up)
    return []


def old_claims(journal: Journal, before: str) -> list[int]:
    """Records of claims before this time, except the last of each queue, whose number the next one continues."""
    old: list[int] = []
    for stream in journal.streams(QUEUE_STREAM_PREFIX):
        last = journal.last(stream)
        for record in journal.read(stream, page=1_000):
            if record.at >= before or last is None or record.seq == last.seq:
                break
            old.append(record.seq)
    return old


def check_room(journal: Journal, queue: str, max_queued: int) -> None:
    """Tasks that are created at the same moment may exceed it by their number. Raises QueueFullError."""
    if (count := queued_count(journal, queue)) >= max_queued:
        raise QueueFullError(
            f"the queue is full: {count:,} background agents are waiting (`tasks.max_queued` is {max_queued:,})",
            "wait until some have ended, or let the user raise `tasks.max_queued`",
        )
