"""A session that is in the journal already, read again to go on with it, or to go on in a copy.

Used by runtime and by whoever looks at a session from outside. The session itself says what a record means.
"""

from collections.abc import Iterator

from kitbag.agent.session import STREAM_PREFIX, Session, new_session_id
from kitbag.agent.session_records import SessionHeader
from kitbag.errors import KitbagError, NotFoundError
from kitbag.store.journal import Journal, JournalRecord
from kitbag.store.private_files import StoreError


def resume(journal: Journal, session_id: str, until: int | None = None) -> Session:
    """From the records, as far as they can be read. Raises NotFoundError, and StoreError where not one can be."""
    session = Session(journal, session_id)
    found = 0
    try:
        for record in read_session_records(journal, session_id, until):
            session.apply(record)
            found += 1
    except (KitbagError, KeyError, TypeError, ValueError, IndexError, AttributeError, RecursionError) as error:
        if not found and isinstance(error, StoreError):
            raise
        what = f"record {found + 1} of session {session_id} is damaged; what follows it is left out, and kept"
        session.warnings.append(what)
        found += 1
    if not found:
        raise NotFoundError(f"there is no session {session_id!r}", "`kitbag sessions list` shows them")
    session.messages()
    return session


def read_session_records(journal: Journal, session_id: str, until: int | None = None) -> Iterator[JournalRecord]:
    """Of a fork, first those of the session that it was forked from, which is older than all of its own."""
    for record in journal.read(STREAM_PREFIX + session_id):
        if until is not None and record.seq > until:
            return
        origin = record.body.get("forked_from") if record.kind == "session" else ""
        if origin:
            yield from read_session_records(journal, str(origin), min(int(record.body["forked_at"]), record.seq - 1))
        yield record


async def fork(journal: Journal, session: Session, header: SessionHeader) -> Session:
    """A session that goes on from here; the other one stays as it is."""
    copy = Session(journal, new_session_id())
    last = journal.last(session.stream)
    await copy.start(header._replace(forked_from=session.id, forked_at=last.seq if last else 0))
    return resume(journal, copy.id)
