"""Lists the sessions of a journal and finds the newest of a directory.

Used for --continue, by `kitbag sessions` and by the chat. Reads only the first and the last record of a session that
ended normally.
"""

from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any

import msgspec

from kitbag.agent.resume import resume
from kitbag.agent.session import STREAM_PREFIX
from kitbag.agent.session_records import HEADER_FIELDS, SessionHeader
from kitbag.errors import AmbiguousError, KitbagError, NotFoundError
from kitbag.library.registry import NO_PERSONA
from kitbag.store.journal import Journal, JournalRecord


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


def list_sessions(journal: Journal, directory: str = "") -> list[SessionSummary]:
    """Newest first, of one directory or of all. Sessions of subagents are listed as tasks instead."""
    numbered: list[tuple[int, SessionSummary]] = []
    for stream in journal.streams(STREAM_PREFIX):
        last, summary = _read_summary(journal, stream)
        if not summary.task and (not directory or summary.directory == directory):
            numbered.append((last, summary))
    return [summary for _, summary in sorted(numbered, key=lambda pair: pair[0], reverse=True)]


def find_session(summaries: Sequence[SessionSummary], name: str) -> SessionSummary:
    """By id or id prefix. Raises AmbiguousError, or NotFoundError with similar ids."""
    matches = [summary for summary in summaries if summary.id == name]
    matches = matches or [summary for summary in summaries if len(name) >= 3 and summary.id.startswith(name)]
    if len(matches) > 1:
        ids = ", ".join(summary.id for summary in matches[:10])
        raise AmbiguousError(f"several sessions start with {name[:80]!r}", f"use one of {ids}")
    if matches:
        return matches[0]
    close = get_close_matches(name[:80], [summary.id for summary in summaries], 3, 0.6)
    fix = f"did you mean {' or '.join(close)}?" if close else "list sessions with `kitbag sessions`"
    raise NotFoundError(f"no session named {name[:80]!r}", fix)


def newest_session(journal: Journal, directory: str) -> str:
    """The id of the session in this directory with the newest record. Raises NotFoundError."""
    newest: tuple[int, str] = (0, "")
    for stream in journal.streams(STREAM_PREFIX):
        try:
            header = _read_header(journal, stream)
            if header.directory == directory and not header.task and (last := journal.last(stream)):
                newest = max(newest, (last.seq, stream.removeprefix(STREAM_PREFIX)))
        except KitbagError:
            continue  # a damaged session must not hide the others
    if not newest[1]:
        raise NotFoundError("no sessions in this directory yet", "start one with `kitbag`")
    return newest[1]


def _read_header(journal: Journal, stream: str) -> SessionHeader:
    first = next(iter(journal.read(stream, page=1)), None)
    body: dict[str, Any] = first.body if first is not None and first.kind == "session" else {}
    return msgspec.structs.replace(SessionHeader(directory="", model="", mode=""), **HEADER_FIELDS.known_fields(body))


def _read_summary(journal: Journal, stream: str) -> tuple[int, SessionSummary]:
    name = stream.removeprefix(STREAM_PREFIX)
    seq, about = (
        0,
        SessionSummary(id=name, started="", last="", directory="", model="", status="", turns=0, cost=None, about=""),
    )
    try:
        header, last = _read_header(journal, stream), journal.last(stream)
        if last is None:
            return seq, about
        seq = last.seq
        about = msgspec.structs.replace(
            about,
            started=header.started,
            last=last.at,
            directory=header.directory,
            model=header.model,
            forked_from=header.forked_from,
            task=header.task,
            persona=_persona_name(header.persona),
            mode=header.mode,
        )
        return seq, _summary_from_last(about, last) if _has_summary(last) else _summary_from_all(about, journal)
    except (KitbagError, KeyError, TypeError, ValueError, AttributeError) as error:
        return seq, msgspec.structs.replace(
            about, problem=error.problem if isinstance(error, KitbagError) else "damaged"
        )


def _has_summary(last: JournalRecord) -> bool:
    return last.kind in ("ended", "switched") and "about" in last.body


def _summary_from_last(about: SessionSummary, last: JournalRecord) -> SessionSummary:
    body = last.body
    # Records from before switching existed have these only in the header.
    current = {name: str(body[name]) for name in ("model", "mode") if name in body}
    return msgspec.structs.replace(
        about,
        status=str(body["status"]),
        turns=int(body["turns"]),
        cost=body["cost"],
        about=str(body["about"]),
        persona=_persona_name(str(body.get("persona", about.persona))),
        **current,
    )


def _persona_name(persona: str) -> str:
    """Empty for `none`, chosen or not."""
    return "" if persona == NO_PERSONA else persona


def _summary_from_all(about: SessionSummary, journal: Journal) -> SessionSummary:
    session = resume(journal, about.id)
    cost = None if session.totals.unpriced else session.totals.cost
    header = session.header
    return msgspec.structs.replace(
        about,
        status=session.status,
        turns=session.totals.turns,
        cost=cost,
        about=session.about,
        model=header.model,
        mode=header.mode,
        persona=_persona_name(header.persona),
    )
