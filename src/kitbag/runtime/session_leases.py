"""Keeps two machines from writing to the same session: in a journal that machines share, records say who opened it.

An opened session belongs to its process as long as that has a lease (`Journal.identify`). A process that takes over a
session whose process has none writes the next number, which fences what the earlier process would still write. Used by
Agent, after the lock on its own machine (session_locks).
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Any, Final

from kitbag.agent.session import Session
from kitbag.runtime.session_in_use import in_use_error
from kitbag.store.journal import Journal, JournalEntry, JournalRecord
from kitbag.store.private_files import StoreError

if TYPE_CHECKING:
    from kitbag.tasks.owner import Owner

LEASE_STREAM_PREFIX: Final = "open/"
"""Followed by the id of the session."""
_CLOSE_SECONDS: Final = 2.0
"""If the server can't be reached, the lease ends by itself."""
_held: dict[tuple[str, str], tuple[int, int]] = {}
"""By journal and session: the number, and how many agents of this process share it."""


@contextlib.asynccontextmanager
async def lease_session(session: Session) -> AsyncGenerator[None, None]:
    """Raises SessionInUseError. Agents of one process share it."""
    journal, place = session.journal, (session.journal.path, session.id)
    number, count = _held.get(place, (0, 0))
    if not count:
        number = await asyncio.to_thread(_acquire, session)
    _held[place] = number, _held.get(place, (0, 0))[1] + 1
    journal.fence_stream(session.stream, _key(session.id, number + 1))
    try:
        yield
    finally:
        number, count = _held.pop(place)
        if count > 1:
            _held[place] = number, count - 1
        elif journal.last(LEASE_STREAM_PREFIX + session.id) is not None:
            with contextlib.suppress(StoreError, TimeoutError):
                async with asyncio.timeout(_CLOSE_SECONDS):
                    await journal.write(LEASE_STREAM_PREFIX + session.id, "closed", {"number": number})


def _acquire(session: Session) -> int:
    journal, stream = session.journal, LEASE_STREAM_PREFIX + session.id
    journal.identify(this_process().name)
    if journal.last(session.stream) is None:  # no other process can know it before its first message
        session.defer(JournalEntry(stream, "opened", _opened_body(1)))
        return 1
    while True:
        journal.catch_up()
        last = journal.last(stream)
        if last is not None and (holder := _find_holder(last)) is not None and _is_alive(journal, holder, wait=True):
            raise in_use_error(session.id, _describe(holder, last))
        number = int(last.body["number"]) + 1 if last is not None else 1
        if journal.append_once(_key(session.id, number), stream, "opened", _opened_body(number)) is not None:
            return number


def _opened_body(number: int) -> dict[str, Any]:
    return {"number": number, "owner": this_process().to_record(), "since": time.strftime("%Y-%m-%d %H:%M:%S")}


def this_process() -> "Owner":
    from kitbag.tasks import owner  # not needed by a journal of one machine

    return owner.this_process()


def _key(session_id: str, number: int) -> str:
    return f"{LEASE_STREAM_PREFIX}{session_id}/{number}"


def _find_holder(last: JournalRecord) -> "Owner | None":
    """None if it was closed, or this process has it."""
    if last.kind != "opened":
        return None
    from kitbag.tasks.owner import GONE_OWNER, parse_owner

    try:
        owner = parse_owner(last.body.get("owner"))
    except ValueError:
        owner = GONE_OWNER
    return None if owner == this_process() else owner


def _is_alive(journal: Journal, owner: "Owner", *, wait: bool) -> bool:
    """Unknown counts as alive. `wait`: for an answer of the server."""
    if owner.check_alive() is False:
        return False
    lease = journal.check_lease(owner.name) if wait else journal.is_process_alive(owner.name)
    return lease is not False


def _describe(owner: "Owner", opened: JournalRecord) -> str:
    host = owner.machine.partition("/")[0]
    return f"process {owner.pid} on {host}, since {opened.body.get('since', '')}"


def is_open_elsewhere(journal: Journal, session_id: str, *, wait: bool) -> bool:
    """Whether a process of another Kitbag home has the session open. `wait`: not on an event loop."""
    last = journal.last(LEASE_STREAM_PREFIX + session_id)
    holder = _find_holder(last) if last is not None else None
    return holder is not None and _is_alive(journal, holder, wait=wait)
