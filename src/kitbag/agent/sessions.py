"""The sessions that are in a journal: which there are, and which is the newest of a directory.

Used by runtime for --continue and by `kitbag sessions`. Reads only the first and the last record of a session that
ended as it should.
"""

from typing import Any, NamedTuple

from kitbag.agent.records import Header
from kitbag.agent.session import PREFIX, resume
from kitbag.errors import KitbagError, NotFoundError
from kitbag.store.journal import Journal, Record


class Summary(NamedTuple):
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


def list_sessions(journal: Journal, directory: str = "") -> list[Summary]:
    """The newest first; of one directory, or of all. What other agents did is on the board of tasks."""
    found: list[tuple[int, Summary]] = []
    for stream in journal.streams(PREFIX):
        last, summary = _summary(journal, stream)
        if not summary.task and (not directory or summary.directory == directory):
            found.append((last, summary))
    return [summary for _, summary in sorted(found, key=lambda pair: pair[0], reverse=True)]


def newest_session(journal: Journal, directory: str) -> str:
    """The id of the session of this directory in which something happened last. Raises NotFoundError."""
    newest: tuple[int, str] = (0, "")
    for stream in journal.streams(PREFIX):
        try:
            header = _header(journal, stream)
            if header.directory == directory and not header.task and (last := journal.last(stream)):
                newest = max(newest, (last.seq, stream.removeprefix(PREFIX)))
        except KitbagError:
            continue  # a damaged one is no reason not to find the others
    if not newest[1]:
        raise NotFoundError("there is no session in this directory yet", "start one: kitbag -p …")
    return newest[1]


def _header(journal: Journal, stream: str) -> Header:
    first = next(iter(journal.read(stream, page=1)), None)
    body: dict[str, Any] = first.body if first is not None and first.kind == "session" else {}
    known = {name: body[name] for name in Header._fields if name in body}
    return Header("", "", "")._replace(**known)


def _summary(journal: Journal, stream: str) -> tuple[int, Summary]:
    name = stream.removeprefix(PREFIX)
    seq, empty = 0, Summary(name, "", "", "", "", "", 0, None, "")
    try:
        header, last = _header(journal, stream), journal.last(stream)
        if last is None:
            return seq, empty
        seq = last.seq
        about = empty._replace(
            started=header.started,
            last=last.at,
            directory=header.directory,
            model=header.model,
            forked_from=header.forked_from,
            task=header.task,
        )
        return seq, _from_end(about, last) if _says_all(last) else _from_all(about, journal)
    except (KitbagError, KeyError, TypeError, ValueError, AttributeError) as error:
        return seq, empty._replace(problem=error.problem if isinstance(error, KitbagError) else "it is damaged")


def _says_all(last: Record) -> bool:
    return last.kind == "ended" and "about" in last.body


def _from_end(about: Summary, last: Record) -> Summary:
    body = last.body
    return about._replace(
        status=str(body["status"]), turns=int(body["turns"]), cost=body["cost"], about=str(body["about"])
    )


def _from_all(about: Summary, journal: Journal) -> Summary:
    session = resume(journal, about.id)
    cost = None if session.totals.unpriced else session.totals.cost
    return about._replace(turns=session.totals.turns, cost=cost, about=session.about)
