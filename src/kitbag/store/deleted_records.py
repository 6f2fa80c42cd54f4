"""Deletes records from the journal's SQLite file, and notes their numbers, so that no check takes them for damage.

Used by the journal and by its mirror, inside their transactions.
"""

import sqlite3
from collections.abc import Iterable
from typing import Any


def stream_seqs(writer: sqlite3.Connection, stream: str) -> list[int]:
    return [int(row[0]) for row in writer.execute("SELECT seq FROM records WHERE stream = ?", (stream,))]


def delete_rows(writer: sqlite3.Connection, seqs: Iterable[int]) -> None:
    deleted = sorted(seqs)
    writer.execute("INSERT INTO pruning VALUES (1)")
    for seq in deleted:
        writer.execute("DELETE FROM records WHERE seq = ?", (seq,))
    note_ranges(writer, number_ranges(deleted))
    writer.execute("DELETE FROM pruning")


def number_ranges(seqs: Iterable[int]) -> list[tuple[int, int]]:
    """The first and last of each run of consecutive numbers. `seqs` are sorted."""
    runs: list[tuple[int, int]] = []
    for seq in seqs:
        if runs and runs[-1][1] == seq - 1:
            runs[-1] = (runs[-1][0], seq)
        else:
            runs.append((seq, seq))
    return runs


def note_ranges(writer: sqlite3.Connection, ranges: Iterable[tuple[int, int]]) -> None:
    """Merges them with the ranges before and after them."""
    for start, end in ranges:
        before: Any = writer.execute("SELECT first FROM pruned_ranges WHERE last = ?", (start - 1,)).fetchone()
        after: Any = writer.execute("SELECT last FROM pruned_ranges WHERE first = ?", (end + 1,)).fetchone()
        first, last = before[0] if before else start, after[0] if after else end
        writer.execute("DELETE FROM pruned_ranges WHERE first IN (?, ?)", (first, end + 1))
        writer.execute("INSERT INTO pruned_ranges VALUES (?, ?)", (first, last))
