"""Restores a session from the journal, to resume or to fork it.

Used by assembly and by everything that inspects sessions. Session itself interprets the records.
"""

from collections.abc import Iterator

import msgspec

from kitbag.agent.session import STREAM_PREFIX, Session, new_session_id
from kitbag.agent.session_records import SessionHeader
from kitbag.errors import KitbagError, NotFoundError
from kitbag.store.journal import Journal, JournalRecord
from kitbag.store.private_files import StoreError


def resume(journal: Journal, session_id: str, until: int | None = None) -> Session:
    """Reads as many records as are readable. Raises NotFoundError, and StoreError if none is readable."""
    session = Session(journal, session_id)
    count = 0
    try:
        for record in read_session_records(journal, session_id, until):
            session.apply(record)
            count += 1
    except (KitbagError, KeyError, TypeError, ValueError, IndexError, AttributeError, RecursionError) as error:
        if not count and isinstance(error, StoreError):
            raise
        warning = f"record {count + 1} of session {session_id} is damaged; later records are ignored but kept"
        session.warnings.append(warning)
        count += 1
    if not count:
        raise NotFoundError(f"no session named {session_id!r}", "list sessions with `kitbag sessions list --all`")
    session.messages()
    return session


def read_session_records(journal: Journal, session_id: str, until: int | None = None) -> Iterator[JournalRecord]:
    """For a fork, first the records of the session it was forked from."""
    for record in journal.read(STREAM_PREFIX + session_id):
        if until is not None and record.seq > until:
            return
        origin = record.body.get("forked_from") if record.kind == "session" else ""
        if origin:
            yield from read_session_records(journal, str(origin), min(int(record.body["forked_at"]), record.seq - 1))
        yield record


async def fork(journal: Journal, session: Session, header: SessionHeader) -> Session:
    """A copy of the session to continue in; the original stays unchanged."""
    copy = Session(journal, new_session_id())
    last = journal.last(session.stream)
    await copy.start(msgspec.structs.replace(header, forked_from=session.id, forked_at=last.seq if last else 0))
    return resume(journal, copy.id)
