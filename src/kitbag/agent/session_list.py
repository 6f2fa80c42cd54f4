"""The sessions that are in a journal: which there are, and which is the newest of a directory.

Used by runtime for --continue, by `kitbag sessions` and by the chat. Reads only the first and the last record of a
session that ended as it should.
"""

from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any, NamedTuple

from kitbag.agent.resume import resume
from kitbag.agent.session import STREAM_PREFIX
from kitbag.agent.session_records import HEADER_FIELDS, SessionHeader
from kitbag.errors import AmbiguousError, KitbagError, NotFoundError
from kitbag.library.registry import NO_PERSONA
from kitbag.store.journal import Journal, JournalRecord


class SessionSummary(NamedTuple):
    id: str
    started: str
    last: str
    """When something was written last."""
    directory: str
    model: str
    status: str
    """How it ended last; empty while it runs, and after a crash."""
    turns: int
    cost: float | None
    about: str
    """The first words of the person."""
    forked_from: str = ""
    problem: str = ""
    task: str = ""
    """Of an agent that another one started."""
    persona: str = ""
    """With its team; empty: none."""
    mode: str = ""


def list_sessions(journal: Journal, directory: str = "") -> list[SessionSummary]:
    """The newest first; of one directory, or of all. What other agents did is on the board of tasks."""
    found: list[tuple[int, SessionSummary]] = []
    for stream in journal.streams(STREAM_PREFIX):
        last, summary = _read_summary(journal, stream)
        if not summary.task and (not directory or summary.directory == directory):
            found.append((last, summary))
    return [summary for _, summary in sorted(found, key=lambda pair: pair[0], reverse=True)]


def find_session(summaries: Sequence[SessionSummary], name: str) -> SessionSummary:
    """By its id, or what that begins with. Raises NotFoundError with what is close, and AmbiguousError."""
    found = [one for one in summaries if one.id == name]
    found = found or [one for one in summaries if len(name) >= 3 and one.id.startswith(name)]
    if len(found) > 1:
        ids = ", ".join(one.id for one in found[:10])
        raise AmbiguousError(f"several conversations begin with {name[:80]!r}", f"write one of {ids}")
    if found:
        return found[0]
    close = get_close_matches(name[:80], [one.id for one in summaries], 3, 0.6)
    fix = f"did you mean {' or '.join(close)}?" if close else "`kitbag sessions list` shows those there are"
    raise NotFoundError(f"there is no conversation {name[:80]!r}", fix)


def newest_session(journal: Journal, directory: str) -> str:
    """The id of the session of this directory in which something happened last. Raises NotFoundError."""
    newest: tuple[int, str] = (0, "")
    for stream in journal.streams(STREAM_PREFIX):
        try:
            header = _read_header(journal, stream)
            if header.directory == directory and not header.task and (last := journal.last(stream)):
                newest = max(newest, (last.seq, stream.removeprefix(STREAM_PREFIX)))
        except KitbagError:
            continue  # a damaged one is no reason not to find the others
    if not newest[1]:
        raise NotFoundError("there is no session in this directory yet", "start one: kitbag -p …")
    return newest[1]


def _read_header(journal: Journal, stream: str) -> SessionHeader:
    first = next(iter(journal.read(stream, page=1)), None)
    body: dict[str, Any] = first.body if first is not None and first.kind == "session" else {}
    return SessionHeader("", "", "")._replace(**HEADER_FIELDS.known_fields(body))


def _read_summary(journal: Journal, stream: str) -> tuple[int, SessionSummary]:
    name = stream.removeprefix(STREAM_PREFIX)
    seq, about = 0, SessionSummary(name, "", "", "", "", "", 0, None, "")
    try:
        header, last = _read_header(journal, stream), journal.last(stream)
        if last is None:
            return seq, about
        seq = last.seq
        about = about._replace(
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
        return seq, about._replace(problem=error.problem if isinstance(error, KitbagError) else "it is damaged")


def _has_summary(last: JournalRecord) -> bool:
    return last.kind in ("ended", "switched") and "about" in last.body


def _summary_from_last(about: SessionSummary, last: JournalRecord) -> SessionSummary:
    body = last.body
    # What it is now; before there were changes, only the header said it.
    now = {name: str(body[name]) for name in ("model", "mode") if name in body}
    return about._replace(
        status=str(body["status"]),
        turns=int(body["turns"]),
        cost=body["cost"],
        about=str(body["about"]),
        persona=_persona_name(str(body.get("persona", about.persona))),
        **now,
    )


def _persona_name(persona: str) -> str:
    """Chosen or not: nobody is nobody."""
    return "" if persona == NO_PERSONA else persona


def _summary_from_all(about: SessionSummary, journal: Journal) -> SessionSummary:
    session = resume(journal, about.id)
    cost = None if session.totals.unpriced else session.totals.cost
    header = session.header
    return about._replace(
        status=session.status,
        turns=session.totals.turns,
        cost=cost,
        about=session.about,
        model=header.model,
        mode=header.mode,
        persona=_persona_name(header.persona),
    )
