"""What fills a session's window: the pieces of its next request, grouped, with sums.

Of a stored session for `kitbag context`, which starts nothing and asks no model; of a live one for `/context`. Both by
the same code: Counted says what it is counted from. Blocks: a caller with a loop uses a thread.
"""

import os
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from kitbag.agent.context_ledger import (
    AtThisMoment,
    Carried,
    Piece,
    Turn,
    before_last_reply,
    pieces_of,
    request_bytes,
    turns_of,
)
from kitbag.agent.model_config import Room
from kitbag.agent.resume import resume
from kitbag.agent.session import Session
from kitbag.agent.session_list import newest_session
from kitbag.assembly.model_sources import model_sources
from kitbag.assembly.switch_notices import seen_in
from kitbag.assembly.tool_list import every_tool
from kitbag.library.registry import Registry
from kitbag.library.scopes import Places
from kitbag.library.skill_files import read_skill_body
from kitbag.models.catalog import Known, look_up
from kitbag.models.provider import ToolSpec
from kitbag.packing.catalog import listed_in
from kitbag.store.journal import Journal, journal_path
from kitbag.store.redaction import Redactor
from kitbag.text.tokens import estimate_tokens

if TYPE_CHECKING:
    from kitbag.runtime.agent import Agent


class Counted(NamedTuple):
    session: Session
    """Its records and its name; what it carries now is in `carried`."""
    carried: Carried
    library: Registry
    model: str
    known: Known
    specs: Sequence[ToolSpec]
    turns: list[Turn]
    before: Session | None
    """As it was when the last request was sent that the provider counted."""


def context_of(places: Places, session_id: str = "") -> dict[str, Any]:
    """Of a stored session. Raises NotFoundError where there is no such session, or none in this directory."""
    with Journal.open(journal_path(places.kitbag_home), Redactor.of_environment(os.environ)) as journal:
        session = resume(journal, session_id or newest_session(journal, places.cwd))
        turns = turns_of(session)
        before = before_last_reply(session)
    header = session.header
    library = Registry(
        places,
        team=header.team,
        persona=header.persona,
        leave_out_project=not session.made_for.get("trusted", False),
    )
    sources, _ = model_sources(library.settings, probe=False)
    known = look_up(header.model, sources.models)
    return _told(Counted(session, session, library, header.model, known, _specs(session), turns, before))


def context_of_agent(agent: "Agent") -> Callable[[], dict[str, Any]]:
    """Of a live session: takes hold of what stands in it now, and gives what counts it, for another thread."""
    session = agent.session
    carried, specs = AtThisMoment(session), agent.toolset.specs()
    library, chosen = agent.ground.library, agent.chosen

    def count() -> dict[str, Any]:
        turns, before = turns_of(session), before_last_reply(session)
        return _told(Counted(session, carried, library, chosen.name, chosen.known, specs, turns, before))

    return count


def _told(counted: Counted) -> dict[str, Any]:
    session, carried, specs = counted.session, counted.carried, counted.specs
    messages = carried.messages()
    replies = sum(message.role == "assistant" for message in messages)
    pieces = pieces_of(carried, specs, max(len(counted.turns) - replies, 0) + 1)
    system = [str(entry["text"]) for entry in carried.prompt]
    return {
        "session": session.id,
        "directory": session.header.directory,
        "model": counted.model,
        "mode": session.header.mode,
        "persona": seen_in(session.header),
        **_room(counted.known, pieces),
        "tokens": _tokens(pieces),
        "bytes": sum(piece.bytes for piece in pieces),
        "request_bytes": request_bytes(system, specs, messages),
        "groups": _groups(pieces),
        "skills": _skills(counted.library, carried, pieces),
        "tools": _tools(pieces),
        "agents": _named(pieces, "agent"),
        "memory": _named(pieces, "memory"),
        "turns": [{**turn._asdict(), **_standing(pieces, turn)} for turn in counted.turns],
        "last_request": _last_request(counted),
        "pieces": [piece.to_json() for piece in pieces],
        "warnings": list(session.warnings),
    }


def _specs(session: Session) -> list[ToolSpec]:
    names = session.made_for.get("tools", [])
    return [tool.spec for tool in every_tool() if tool.name in names]


def _tokens(pieces: Iterable[Piece]) -> int:
    return sum(piece.tokens for piece in pieces)


def _room(known: Known, pieces: list[Piece]) -> dict[str, int]:
    """The window, where the conversation is compacted, and what is left until then."""
    prefix = _tokens(piece for piece in pieces if not piece.turn)
    full = Room(known.window, known.max_output).full_at(prefix)
    return {"window": known.window, "compacted_at": full, "left": max(full - _tokens(pieces), 0)}


def _skills(library: Registry, session: Carried, pieces: list[Piece]) -> dict[str, Any]:
    """What skills cost as they are listed, as they are loaded, and what they would cost if all were loaded."""
    catalog = next((str(one["text"]) for one in session.prompt if (one["kind"], one["source"]) == _CATALOG), "")
    listed = {name: estimate_tokens(line) for name, line in listed_in(catalog).items()}
    loaded: dict[str, int] = {}
    for piece in pieces:
        if piece.kind in ("skill", "one-turn"):
            loaded[piece.name] = loaded.get(piece.name, 0) + piece.tokens
    possible = {
        skill.full_name: estimate_tokens(read_skill_body(skill).text)
        for skill in library.skills
        if library.judge(skill).model
    }
    names = dict.fromkeys((*loaded, *possible))
    return {
        "listed": _tokens(piece for piece in pieces if (piece.kind, piece.name) == _CATALOG),
        "loaded": sum(loaded.values()),
        "possible": sum(possible.values()),
        "each": [
            {
                "name": name,
                "listed": listed.get(name, 0),
                "loaded": loaded.get(name, 0),
                "possible": possible.get(name, 0),
            }
            for name in names
        ],
    }


_CATALOG = ("catalog", "skills")


def _tools(pieces: list[Piece]) -> list[dict[str, Any]]:
    """For each tool what its description costs, and what calling it has cost so far."""
    rows: dict[str, dict[str, Any]] = {}
    for piece in pieces:
        if piece.kind in ("tool", "call", "result"):
            empty = {"name": piece.name, "described": 0, "calls": 0, "call_tokens": 0, "result_tokens": 0}
            row = rows.setdefault(piece.name, empty)
            row["calls"] += piece.kind == "call"
            row[{"tool": "described", "call": "call_tokens", "result": "result_tokens"}[piece.kind]] += piece.tokens
    return list(rows.values())


def _named(pieces: list[Piece], kind: str) -> list[dict[str, Any]]:
    return [row for row in _groups(pieces) if row["kind"] == kind]


def _groups(pieces: list[Piece]) -> list[dict[str, Any]]:
    """One row for each kind and name, in the order of the request."""
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for piece in pieces:
        row = rows.setdefault(
            (piece.kind, piece.name), {"kind": piece.kind, "name": piece.name, "count": 0, "tokens": 0, "bytes": 0}
        )
        row["count"] += 1
        row["tokens"] += piece.tokens
        row["bytes"] += piece.bytes
    return list(rows.values())


def _standing(pieces: list[Piece], turn: Turn) -> dict[str, int]:
    """What of a turn is in the window now."""
    own = [piece for piece in pieces if piece.turn == turn.number]
    return {"tokens": _tokens(own), "bytes": sum(piece.bytes for piece in own)}


def _last_request(counted: Counted) -> dict[str, int]:
    """The provider's own count of the last request that it counted, beside our estimate of the same request."""
    before = counted.before
    if before is None:
        return {"provider": 0, "ours": 0, "residual": 0}
    provider = next(turn.shown for turn in reversed(counted.turns) if turn.shown or turn.said)
    # The tools of servers are not in the records: those of now stand for those of then.
    of_servers = [spec for spec in counted.specs if spec.name.startswith("mcp__")]
    ours = _tokens(pieces_of(before, [*_specs(before), *of_servers]))
    return {"provider": provider, "ours": ours, "residual": provider - ours}
