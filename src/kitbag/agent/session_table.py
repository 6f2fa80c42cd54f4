"""The table of all sessions with what a listing shows of each, derived from their records.

Used by session_list; session writes the records.
"""

import json
import sqlite3
from typing import Any, Final

import msgspec

from kitbag.agent.session_records import HEADER_FIELDS, SessionHeader, about_message
from kitbag.errors import KitbagError
from kitbag.library.registry import NO_PERSONA
from kitbag.messages import Message, Text, message_from_json, message_to_json
from kitbag.store.briefs import register_briefs
from kitbag.store.derived_tables import (
    UNREADABLE,
    DerivedTable,
    JournalRecord,
    fields_version,
    register_table,
    state_checksum,
)

STREAM_PREFIX: Final = "session/"
"""Journal streams of sessions start with this."""
_UPSERT = (
    "INSERT INTO session_states (id, last, task, directory, state, checksum) VALUES (?, ?, ?, ?, ?, ?)"
    " ON CONFLICT (id) DO UPDATE SET last = excluded.last, task = excluded.task, directory = excluded.directory,"
    " state = excluded.state, checksum = excluded.checksum"
)


class SessionSummary(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    started: str
    last: str
    """Time of the last record."""
    directory: str
    model: str
    status: str
    """How the last run ended; empty while one is running and after a crash."""
    turns: int
    cost: float | None
    about: str
    """The start of the first user message."""
    forked_from: str = ""
    problem: str = ""
    task: str = ""
    """The task, if another agent started the session."""
    persona: str = ""
    """With its team; empty: none."""
    mode: str = ""

    def to_json(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "started": self.started,
            "last": self.last,
            "directory": self.directory,
            "model": self.model,
            "status": self.status,
            "turns": self.turns,
            "cost": self.cost,
            "about": self.about,
            "forked_from": self.forked_from,
            "problem": self.problem,
            "task": self.task,
            "persona": self.persona,
            "mode": self.mode,
        }


def decode_summary(session_id: str, state: str, checksum: int) -> SessionSummary:
    """Raises ValueError for a row that is not what was written."""
    if state_checksum(session_id, state) != checksum:
        raise ValueError(f"the state of session {session_id} is damaged")
    return msgspec.convert(json.loads(state), SessionSummary)


def apply_session_record(writer: sqlite3.Connection, record: JournalRecord) -> None:
    session_id = record.stream.removeprefix(STREAM_PREFIX)
    before = _read(writer, session_id)
    try:
        after = _apply(writer, before or _empty(session_id), record)
    except (KitbagError, *UNREADABLE) as error:
        problem = error.problem if isinstance(error, KitbagError) else "damaged"
        after = msgspec.structs.replace(before or _empty(session_id), problem=problem)
    after = msgspec.structs.replace(after, last=record.at)
    state = json.dumps(msgspec.to_builtins(after))  # ASCII only: text may have half characters
    values = (after.id, record.seq, after.task, after.directory, state, state_checksum(after.id, state))
    writer.execute(_UPSERT, values)


def _empty(session_id: str) -> SessionSummary:
    return SessionSummary(
        id=session_id, started="", last="", directory="", model="", status="", turns=0, cost=0.0, about=""
    )


def _read(writer: sqlite3.Connection, session_id: str) -> SessionSummary | None:
    query = "SELECT id, state, checksum FROM session_states WHERE id = ?"
    row = writer.execute(query, (session_id,)).fetchone()
    return decode_summary(*row) if row is not None else None


def _apply(writer: sqlite3.Connection, before: SessionSummary, record: JournalRecord) -> SessionSummary:
    body: dict[str, Any] = record.body
    match record.kind:
        case "session":
            return _start(writer, before, HEADER_FIELDS.read(body))
        case "user":
            about = before.about or about_message(message_from_json(body["message"]))
            return msgspec.structs.replace(before, about=about, status="")
        case "reply":
            turns = before.turns + (0 if body.get("incomplete") else 1)
            return msgspec.structs.replace(before, turns=turns, cost=_add_cost(before, body.get("cost")))
        case "compacted":
            return msgspec.structs.replace(before, cost=_add_cost(before, body.get("cost", 0.0)))
        case "ended" | "switched" if "about" in body:
            # Records from before switching existed have these only in the header.
            current = {name: str(body[name]) for name in ("model", "mode") if name in body}
            return msgspec.structs.replace(
                before,
                status=str(body["status"]),
                turns=int(body["turns"]),
                cost=body["cost"],
                about=str(body["about"]),
                persona=_persona_name(str(body.get("persona", before.persona))),
                problem="",
                **current,
            )
        case "ended":
            return msgspec.structs.replace(before, status=str(body.get("status", "")))
        case "switched":
            now = body["now"]
            persona = _persona_name(str(now.get("persona", before.persona)))
            current = {name: str(now[name]) for name in ("model", "mode") if name in now}
            return msgspec.structs.replace(before, persona=persona, **current)
        case _:
            return before


def _start(writer: sqlite3.Connection, before: SessionSummary, header: SessionHeader) -> SessionSummary:
    """A fork starts with the messages of its origin."""
    history = (_read(writer, header.forked_from) if header.forked_from else None) or before
    return SessionSummary(
        id=before.id,
        started=header.started,
        last="",
        directory=header.directory,
        model=header.model,
        status=history.status,
        turns=history.turns,
        cost=history.cost,
        about=history.about,
        forked_from=header.forked_from,
        task=header.task,
        persona=_persona_name(header.persona),
        mode=header.mode,
    )


def _add_cost(before: SessionSummary, cost: float | None) -> float | None:
    return None if before.cost is None or cost is None else before.cost + cost


def _persona_name(persona: str) -> str:
    """Empty for `none`, chosen or not."""
    return "" if persona == NO_PERSONA else persona


_BRIEF_FIELDS: Final[dict[str, tuple[str, ...]]] = {
    "user": ("suggested", "one_turn", "steering"),
    "note": (),
    "reply": ("usage", "cost", "model", "incomplete"),
    "intent": ("call",),
    "prompt": (),
    "compacted": ("usage", "cost"),
    "skill": ("name", "tokens", "at", "by", "digest", "call_id", "found"),
    "result": (),
}
"""What machines that don't open a session get of its large records. Other kinds are sent whole."""


def shorten_record(kind: str, body: dict[str, Any]) -> dict[str, Any] | None:
    """The fields from which the table of sessions, totals, skill usage and undo are derived."""
    names = _BRIEF_FIELDS.get(kind)
    if names is None:
        return None
    brief = {name: body[name] for name in names if name in body}
    try:
        if kind == "user":
            about = about_message(message_from_json(body["message"]))
            brief["message"] = message_to_json(Message("user", (Text(about),)))
        elif kind == "result":
            brief["result"] = {name: body["result"][name] for name in ("type", "call_id", "is_error")}
    except (KitbagError, *UNREADABLE):
        return None  # of another version
    return brief


def register_session_briefs() -> None:
    """Done when this module is imported; for processes that write records of sessions without reading them."""
    register_briefs(STREAM_PREFIX, shorten_record)


register_session_briefs()
SESSION_TABLE: Final = register_table(
    DerivedTable(
        name="session_states",
        version=fields_version(1, SessionSummary),
        streams=(STREAM_PREFIX,),
        kinds=frozenset(("session", "user", "note", "reply", "compacted", "switched", "ended")),
        apply=apply_session_record,
    )
)
