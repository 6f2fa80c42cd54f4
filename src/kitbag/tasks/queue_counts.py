"""How many background agents wait, run and ended in each queue, counted in the table of tasks without reading them.

Used by the board, which enforces limits, and by the fleet's status.
"""

from typing import Final, NamedTuple

from kitbag.store.journal import Journal
from kitbag.tasks.task import timestamp
from kitbag.tasks.task_table import TASK_TABLE

RUNNING_IN_QUEUE: Final = "finished = 0 AND queue = ? AND status IN ('running', 'waiting-approval')"
_MAX_QUEUED: Final = 1_000
_MAX_RECENT: Final = 100_000
"""Ends that are looked at, from the last one."""


class QueueCount(NamedTuple):
    tasks: int
    scheduled: int
    """Besides those."""
    oldest: str
    """The id of the oldest that is not scheduled."""


def queued_count(journal: Journal, queue: str) -> int:
    """Including scheduled ones."""
    journal.ensure_table(TASK_TABLE)
    query = "SELECT count(*) FROM task_states WHERE finished = 0 AND queue = ? AND status = 'queued'"
    return int(journal.select(query, queue)[0][0])


def running_count(journal: Journal, queue: str, depth: int) -> int:
    journal.ensure_table(TASK_TABLE)
    query = f"SELECT count(*) FROM task_states WHERE {RUNNING_IN_QUEUE} AND depth = ?"  # noqa: S608 - our own text
    return int(journal.select(query, queue, depth)[0][0])


def queued_versions(journal: Journal, queue: str) -> list[str]:
    """The Kitbag versions that the last queued ones were created with."""
    journal.ensure_table(TASK_TABLE)
    rows = journal.select(
        "SELECT DISTINCT json_extract(state, '$.version') FROM (SELECT state, queue, status FROM task_states"
        " WHERE finished = 0 ORDER BY number DESC LIMIT ?) WHERE queue = ? AND status = 'queued'",
        *(_MAX_QUEUED, queue),
    )
    return [str(row[0]) for row in rows]


def count_queues(journal: Journal) -> dict[tuple[str, str], QueueCount]:
    """Unfinished ones, by queue and status."""
    journal.ensure_table(TASK_TABLE)
    now = timestamp(journal.now())
    rows = journal.select(
        "SELECT queue, status, sum(not_before <= ?), sum(not_before > ?),"
        " min(CASE WHEN not_before <= ? THEN number END) FROM task_states"
        " WHERE finished = 0 AND queue IS NOT NULL GROUP BY queue, status",
        *(now, now, now),
    )
    found: dict[tuple[str, str], QueueCount] = {}
    for queue, status, tasks, scheduled, number in rows:
        oldest = journal.select("SELECT id FROM task_states WHERE number = ?", number) if number else []
        found[queue, status] = QueueCount(tasks, scheduled, str(oldest[0][0]) if oldest else "")
    return found


def count_ends(journal: Journal, since: str, later: str) -> dict[tuple[str, str], tuple[int, int]]:
    """How many ended since each of two times, by queue and status."""
    journal.ensure_table(TASK_TABLE)
    rows = journal.select(
        "SELECT queue, status, count(*), sum(ended >= ?) FROM (SELECT queue, status, ended FROM task_states"
        " WHERE finished = 1 ORDER BY changed DESC LIMIT ?) WHERE ended >= ? AND queue IS NOT NULL"
        " GROUP BY queue, status",
        *(later, _MAX_RECENT, since),
    )
    return {(queue, status): (hour, minute) for queue, status, hour, minute in rows}
