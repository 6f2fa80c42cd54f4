"""Restores a session from the journal, to resume or to fork it.

Used by assembly and by everything that inspects sessions. Session itself interprets the records.
"""

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import NamedTuple

import msgspec

from kitbag.agent.session import CONVERSATION_KINDS, REWOUND, STREAM_PREFIX, Session, new_session_id
from kitbag.agent.session_records import SessionHeader, SessionTotals
from kitbag.agent.undo.change_records import REDOING, REDONE, UNDOING, UNDONE
from kitbag.errors import KitbagError, NotFoundError
from kitbag.store.journal import Journal, JournalRecord
from kitbag.store.private_files import StoreError

DAMAGE_ERRORS = (KitbagError, KeyError, TypeError, ValueError, IndexError, AttributeError, RecursionError)


def _damage_warning(number: int, session_id: str) -> str:
    return f"record {number} of session {session_id} is damaged; later records are ignored but kept"


def resume(journal: Journal, session_id: str, until: int | None = None) -> Session:
    """Reads as many records as are readable. Raises NotFoundError, and StoreError if none is readable."""
    session = Session(journal, session_id)
    count, unfinished = 0, dict[int, str]()
    try:
        kept = _find_kept(journal, session_id, until)
        for record in _read_all_records(journal, session_id, until):
            if _is_kept(record, kept):
                session.apply(record)
            else:
                session.apply_dropped(record)
            _note_undo(record, unfinished)
            count += 1
    except DAMAGE_ERRORS as error:
        if not count and isinstance(error, StoreError):
            raise
        session.warnings.append(_damage_warning(count + 1, session_id))
        count += 1
    if not count:
        raise NotFoundError(f"no session named {session_id!r}", "list sessions with `kitbag sessions list --all`")
    session.warnings += [_unfinished_warning(number, kind) for number, kind in unfinished.items()]
    session.messages()
    return session


def _note_undo(record: JournalRecord, unfinished: dict[int, str]) -> None:
    """`unfinished`: by message, the undo or rewind that has begun to restore files and has not recorded its end."""
    if record.kind in (UNDOING, REDOING):
        unfinished[int(record.body["turn"])] = record.kind
    elif record.kind in (UNDONE, REDONE):
        unfinished.pop(int(record.body["turn"]), None)


def _unfinished_warning(number: int, kind: str) -> str:
    state = f"restoring files to before message {number}" if kind == UNDOING else f"re-applying message {number}"
    fix = f"/rewind {number}" if kind == UNDOING else "/rewind undo"
    return (
        f"{state} was interrupted: the files may be changed, the conversation is not; review and finish it with {fix}"
    )


def read_totals(journal: Journal, session_id: str) -> SessionTotals:
    """What a session has spent, up to a damaged record; nothing if it has not started. Fetches no messages."""
    session = Session(journal, session_id)
    with contextlib.suppress(*DAMAGE_ERRORS):
        for record in _read_all_records(journal, session_id, brief=True):
            session.apply_spending(record)
    return session.totals


class SessionReplay:
    """Goes through the records of a session. For a fork, first those of the original."""

    def __init__(self, journal: Journal, session_id: str) -> None:
        self.session = Session(journal, session_id)
        """As it was before the current record; after the last one, as it is now."""
        self.is_damaged = False
        """The last record could not be read."""

    def records(self) -> Iterator[JournalRecord]:
        """Also those that a later rewind dropped. Ends at a damaged record with a warning in the session."""
        count = 0
        try:
            for record in _read_all_records(self.session.journal, self.session.id):
                count += 1
                yield record
                if record.kind == REWOUND:
                    session_id = self.session.id
                    self.session = resume(self.session.journal, record.stream.removeprefix(STREAM_PREFIX), record.seq)
                    self.session.id = session_id
                else:
                    self.session.apply(record)
        except DAMAGE_ERRORS as error:
            if not count and isinstance(error, StoreError):
                raise
            self.is_damaged = True
            self.session.warnings.append(_damage_warning(count + (not count), self.session.id))


def read_session_records(journal: Journal, session_id: str) -> Iterator[JournalRecord]:
    """For a fork, first the records of the session it was forked from. Without what a rewind dropped."""
    kept = _find_kept(journal, session_id)
    return (record for record in _read_all_records(journal, session_id) if _is_kept(record, kept))


def _read_all_records(
    journal: Journal, session_id: str, until: int | None = None, *, brief: bool = False
) -> Iterator[JournalRecord]:
    for record in journal.read(STREAM_PREFIX + session_id, brief=brief):
        if until is not None and record.seq > until:
            return
        if origin := _find_origin(record):
            yield from _read_all_records(journal, *origin, brief=brief)
        yield record


def _find_origin(record: JournalRecord) -> tuple[str, int] | None:
    """The session that this one was forked from and the last record that belongs to the fork, if this is its header."""
    origin = record.body.get("forked_from") if record.kind == "session" else ""
    return (str(origin), min(int(record.body["forked_at"]), record.seq - 1)) if origin else None


# Rewinding


def find_rewinds(journal: Journal, session_id: str, until: int | None = None) -> list[JournalRecord]:
    """In order; for a fork, first those of the session it was forked from."""
    stream, end = STREAM_PREFIX + session_id, sys.maxsize if until is None else until
    header = next((record for record in journal.read(stream, page=1) if record.seq <= end), None)
    origin = _find_origin(header) if header is not None else None
    found = [record for record in journal.read(stream, kind=REWOUND) if record.seq <= end]
    return [*(find_rewinds(journal, *origin) if origin else ()), *found]


class KeptRange(NamedTuple):
    """Records whose number is after `start` and before `end` are part of the conversation."""

    start: int
    end: int


def _find_kept(journal: Journal, session_id: str, until: int | None = None) -> list[KeptRange]:
    """From the last rewind back: after it everything counts, and before it what counted before its target. The target
    may itself lie before or after an earlier rewind."""
    kept: list[KeptRange] = []
    end = sys.maxsize
    for rewind in reversed(find_rewinds(journal, session_id, until)):
        if rewind.seq < end:
            kept.append(KeptRange(rewind.seq, end))
            end = int(rewind.body["to"])
    return [*kept, KeptRange(0, end)]


def _is_kept(record: JournalRecord, kept: list[KeptRange]) -> bool:
    return record.kind not in CONVERSATION_KINDS or any(one.start < record.seq < one.end for one in kept)


def is_in_conversation(journal: Journal, session_id: str) -> Callable[[int], bool]:
    """Whether a record of the conversation is still part of it, by its number."""
    kept = _find_kept(journal, session_id)
    return lambda seq: any(one.start < seq < one.end for one in kept)


async def fork(journal: Journal, session: Session, header: SessionHeader) -> Session:
    """A copy of the session to continue in; the original stays unchanged."""
    copy = Session(journal, new_session_id())
    last = journal.last(session.stream)
    await copy.start(msgspec.structs.replace(header, forked_from=session.id, forked_at=last.seq if last else 0))
    return resume(journal, copy.id)
