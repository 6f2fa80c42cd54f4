"""Deletes records from the journal so that their bytes are gone from its files.

Used by runtime/retention, which decides what is deleted. Deleted numbers are noted, so that a check does not take them
for damage.
"""

import contextlib
import sqlite3
import time
from collections.abc import Iterable
from typing import Final

from kitbag.store.fault_points import point
from kitbag.store.journal import Journal, JournalEntry

_DAY: Final = 86_400
_MIN_FREE_SHARE: Final = 0.2
"""Free pages from which on it is worth rewriting the file."""


def is_pruning_due(journal: Journal, days: int) -> bool:
    """Once a day, if the oldest record is older than this. 0: never."""
    if not days:
        return False
    now = time.time()
    oldest = journal.select("SELECT at FROM records ORDER BY seq LIMIT 1")
    before = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now - days * _DAY))
    if not oldest or str(oldest[0][0]) >= before:
        return False
    rows = journal.select("SELECT value FROM journal_facts WHERE name = 'pruned_at'")
    return not rows or now - int(rows[0][0]) >= _DAY


def note_pruning(journal: Journal) -> None:
    with journal.transaction() as writer:
        writer.execute("DELETE FROM journal_facts WHERE name = 'pruned_at'")
        writer.execute("INSERT INTO journal_facts VALUES ('pruned_at', ?)", (int(time.time()),))


def delete_records(
    journal: Journal,
    streams: Iterable[str],
    seqs: Iterable[int],
    left: Iterable[JournalEntry],
    tables: Iterable[tuple[str, str]],
) -> int:
    """As `Journal.delete`."""
    deleted = journal.delete(streams, seqs, left, tables)
    point("prune-committed")
    return deleted


def compact_file(journal: Journal) -> bool:
    """Removes deleted bytes from the log, and rewrites the file if much of it is free. False if another process uses
    the log, which empties it later."""
    with journal.exclusive() as writer:
        pages, free = (int(writer.execute(f"PRAGMA {name}").fetchone()[0]) for name in ("page_count", "freelist_count"))
        if free > pages * _MIN_FREE_SHARE:
            with contextlib.suppress(sqlite3.OperationalError):  # another process uses it
                writer.execute("VACUUM")
        busy = int(writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0])
    point("prune-compacted")
    return not busy
