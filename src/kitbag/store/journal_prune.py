"""Deletes records from the journal so that their bytes are gone from its files.

Used by runtime/retention, which decides what is deleted. Deleted numbers are noted, so that a check does not take them
for damage.
"""

import contextlib
import sqlite3
import time
from collections.abc import Iterable
from typing import Any, Final

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
    """Deletes whole streams and single records, in one transaction with the records that are left instead. `tables`:
    rows of derived tables to delete, as (table, id). Returns how many records were deleted."""
    with journal.transaction(left) as writer:
        writer.execute("INSERT INTO pruning VALUES (1)")
        deleted = list(seqs)
        for stream in streams:
            deleted += [int(row[0]) for row in writer.execute("SELECT seq FROM records WHERE stream = ?", (stream,))]
        for seq in deleted:
            writer.execute("DELETE FROM records WHERE seq = ?", (seq,))
        for table, key in tables:
            writer.execute(f"DELETE FROM {table} WHERE id = ?", (key,))  # noqa: S608 - a name from our own code
        _note_ranges(writer, sorted(deleted))
        writer.execute("DELETE FROM pruning")
        point("prune-records")
    point("prune-committed")
    return len(deleted)


def _note_ranges(writer: sqlite3.Connection, seqs: list[int]) -> None:
    """Merges them with the ranges before and after them."""
    runs: list[list[int]] = []
    for seq in seqs:
        if runs and runs[-1][1] == seq - 1:
            runs[-1][1] = seq
        else:
            runs.append([seq, seq])
    for start, end in runs:
        before: Any = writer.execute("SELECT first FROM pruned_ranges WHERE last = ?", (start - 1,)).fetchone()
        after: Any = writer.execute("SELECT last FROM pruned_ranges WHERE first = ?", (end + 1,)).fetchone()
        first, last = before[0] if before else start, after[0] if after else end
        writer.execute("DELETE FROM pruned_ranges WHERE first IN (?, ?)", (first, end + 1))
        writer.execute("INSERT INTO pruned_ranges VALUES (?, ?)", (first, last))


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
