"""Lists the sessions of a journal and finds the newest of a directory.

Used for --continue, by `kitbag sessions` and by the chat. Reads the table that the journal derives from the records.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from kitbag.agent.session_table import SESSION_TABLE, decode_summary
from kitbag.agent.session_table import SessionSummary as SessionSummary
from kitbag.errors import AmbiguousError, NotFoundError
from kitbag.store.journal import Journal
from kitbag.store.private_files import StoreError

_MAX_SIMILAR: Final = 200
"""Newest sessions among which a similar id is looked for."""


def list_sessions(journal: Journal, directory: str = "", limit: int = -1) -> list[SessionSummary]:
    """Newest first, of one directory or of all. Sessions of subagents are listed as tasks instead."""
    journal.ensure_table(SESSION_TABLE)
    columns = "SELECT id, state, checksum FROM session_states WHERE task = ''"
    if directory:
        rows = journal.select(f"{columns} AND directory = ? ORDER BY last DESC LIMIT ?", directory, limit)
    else:
        rows = journal.select(f"{columns} ORDER BY last DESC LIMIT ?", limit)
    return [read_summary(journal, row) for row in rows]


def count_sessions(journal: Journal, directory: str = "") -> int:
    journal.ensure_table(SESSION_TABLE)
    query = "SELECT count(*) FROM session_states WHERE task = ''"
    rows = journal.select(f"{query} AND directory = ?", directory) if directory else journal.select(query)
    return int(rows[0][0])


def named_sessions(journal: Journal, name: str) -> list[SessionSummary]:
    """Those whose id starts with this, or else the newest, among which a similar one may be."""
    journal.ensure_table(SESSION_TABLE)
    query = "SELECT id, state, checksum FROM session_states WHERE id >= ? AND substr(id, 1, ?) = ? AND task = ''"
    rows = journal.select(query, name, len(name), name) if name else []
    return [read_summary(journal, row) for row in rows] or list_sessions(journal, limit=_MAX_SIMILAR)


def read_summary(journal: Journal, row: tuple[str, str, int]) -> SessionSummary:
    try:
        return decode_summary(*row)
    except (ValueError, TypeError, msgspec.MsgspecError) as error:
        journal.drop_tables()
        problem = f"the table of sessions in {journal.path} is damaged: {error}"
        raise StoreError(problem, "retry; Kitbag rebuilds it from the records") from error


def find_session(summaries: Sequence[SessionSummary], name: str) -> SessionSummary:
    """By id or id prefix. Raises AmbiguousError, or NotFoundError with similar ids."""
    matches = [summary for summary in summaries if summary.id == name]
    matches = matches or [summary for summary in summaries if len(name) >= 3 and summary.id.startswith(name)]
    if len(matches) > 1:
        ids = ", ".join(summary.id for summary in matches[:10])
        raise AmbiguousError(f"several sessions start with {name[:80]!r}", f"use one of {ids}")
    if matches:
        return matches[0]
    from difflib import get_close_matches

    close = get_close_matches(name[:80], [summary.id for summary in summaries], 3, 0.6)
    fix = f"did you mean {' or '.join(close)}?" if close else "list sessions with `kitbag sessions list --all`"
    raise NotFoundError(f"no session named {name[:80]!r}", fix)


def newest_session(journal: Journal, directory: str) -> str:
    """The id of the session in this directory with the newest message. Raises NotFoundError."""
    journal.ensure_table(SESSION_TABLE)
    rows = journal.select(
        "SELECT id FROM session_states WHERE task = '' AND directory = ? ORDER BY last DESC LIMIT 1", directory
    )
    if not rows:
        raise NotFoundError("no sessions in this directory yet", "start one with `kitbag`")
    return str(rows[0][0])
