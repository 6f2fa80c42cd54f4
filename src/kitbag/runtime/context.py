"""The context of a stored session, as `kitbag context` tells it: the pieces of its next request, grouped, with sums.

Uses the journal, the library and the tools as they are now; starts nothing and asks no model.
"""

import os
from typing import Any

from kitbag.agent.context_ledger import Piece, Turn, pieces_of, request_bytes, turns_of
from kitbag.agent.session import Session, resume
from kitbag.library.registry import Registry
from kitbag.library.scopes import Places
from kitbag.library.skill_files import read_skill_body
from kitbag.models.catalog import look_up
from kitbag.models.provider import ToolSpec
from kitbag.runtime.agent import newest_session
from kitbag.runtime.sources import model_sources
from kitbag.runtime.tools import every_tool
from kitbag.store.journal import Journal, journal_path
from kitbag.store.redaction import Redactor
from kitbag.text.tokens import estimate_tokens


def context_of(places: Places, session_id: str = "") -> dict[str, Any]:
    """Raises NotFoundError where there is no such session, or none in this directory."""
    with Journal.open(journal_path(places.kitbag_home), Redactor.of_environment(os.environ)) as journal:
        session = resume(journal, session_id or newest_session(journal, places.cwd))
        turns = turns_of(session)
    library = Registry(places, leave_out_project=not session.made_for.get("trusted", False))
    specs = _specs(session)
    pieces = pieces_of(session, specs)
    system = [str(entry["text"]) for entry in session.prompt]
    sources, _ = model_sources(library.settings, probe=False)
    return {
        "session": session.id,
        "directory": session.header.directory,
        "model": session.header.model,
        "window": look_up(session.header.model, sources.models).window,
        "tokens": sum(piece.tokens for piece in pieces),
        "bytes": sum(piece.bytes for piece in pieces),
        "request_bytes": request_bytes(system, specs, session.messages()),
        "skills": _three_numbers(library, pieces),
        "groups": _groups(pieces),
        "turns": [dict(turn._asdict()) for turn in turns],
        "last_request": _last_request(session, pieces, turns),
        "pieces": [piece.to_json() for piece in pieces],
    }


def _specs(session: Session) -> list[ToolSpec]:
    names = session.made_for.get("tools", [])
    return [tool.spec for tool in every_tool() if tool.name in names]


def _three_numbers(library: Registry, pieces: list[Piece]) -> dict[str, int]:
    """What skills cost as they are listed, as they are loaded, and what they would cost if all were loaded."""
    bodies = (read_skill_body(skill).text for skill in library.skills if library.judge(skill).model)
    return {
        "listed": sum(piece.tokens for piece in pieces if (piece.kind, piece.name) == ("catalog", "skills")),
        "loaded": sum(piece.tokens for piece in pieces if piece.kind == "skill"),
        "possible": sum(map(estimate_tokens, bodies)),
    }


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


def _last_request(session: Session, pieces: list[Piece], turns: list[Turn]) -> dict[str, int]:
    """The provider's count of the last request beside an estimate of the same, which ended before the last reply."""
    provider = turns[-1].shown if turns else 0
    last = session.messages()[-1:]
    said = last and last[0].role == "assistant"
    number = max((piece.turn for piece in pieces), default=0)
    own = {"reply", "thinking", "call"}
    ours = sum(piece.tokens for piece in pieces if not (said and piece.turn == number and piece.kind in own))
    return {"provider": provider, "ours": ours, "residual": provider - ours}
