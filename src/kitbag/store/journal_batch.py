"""Records to be written together: what a caller gives to the journal, and the result of writing it.

Used by the journal on a file and on PostgreSQL.
"""

import asyncio
from typing import NamedTuple

from kitbag.store.fencing import FencedError, StreamFencedError, current_fences
from kitbag.store.private_files import StoreError


class JournalEntry(NamedTuple):
    """A record to be written."""

    stream: str
    kind: str
    body: object
    key: str | None = None
    """Besides the first of several entries only if a fence makes sure that no record has it."""


class Batch:
    """The records of one caller, and the result of writing them."""

    __slots__ = ("done", "error", "fences", "future", "has_stream_fence", "rows", "seqs")

    def __init__(self, rows: list[tuple[str, str, str, str, str | None]], stream_fences: set[str]) -> None:
        self.rows = rows
        self.fences = (*current_fences(), *stream_fences)
        self.has_stream_fence = bool(stream_fences)
        self.seqs: list[int | None] = []
        self.error: StoreError | None = None
        self.done = False
        self.future: asyncio.Future[None] | None = None

    def fenced_error(self) -> StoreError:
        return StreamFencedError() if self.has_stream_fence else FencedError()

    def result(self) -> list[int | None]:
        if self.error is not None:
            # A new exception each time: the same failure is raised in several tasks.
            raise type(self.error)(self.error.problem, self.error.fix) from self.error
        return self.seqs


class CommitFailure(NamedTuple):
    error: StoreError
    busy: bool


def check_name(text: str) -> str:
    """Stream and kind names come from our own code."""
    if not text or not text.isprintable():
        raise ValueError(f"invalid stream or kind name {text!r}")
    return text
