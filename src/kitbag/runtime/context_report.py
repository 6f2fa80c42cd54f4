"""Reports what fills a session's context window: the pieces of its next request, grouped, with totals.

For a stored session (`kitbag context`, which starts nothing and asks no model) and for a running one (`/context`), by
the same code. Blocks: callers with an event loop use a thread.
"""

import os
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from kitbag.agent.context_ledger import (
    ContextPiece,
    ContextSnapshot,
    ContextSource,
    TurnUsage,
    count_request_bytes,
    list_context_pieces,
    read_turn_usage,
    session_before_last_reply,
)
from kitbag.agent.model_config import ContextWindow
from kitbag.agent.resume import resume
from kitbag.agent.sent_requests import read_tools
from kitbag.agent.session import Session
from kitbag.agent.session_list import newest_session
from kitbag.assembly.model_sources import load_model_sources
from kitbag.assembly.open_store import open_store
from kitbag.assembly.switch_notices import header_persona_name
from kitbag.assembly.tool_list import all_tools
from kitbag.library.registry import Registry
from kitbag.library.scopes import Places
from kitbag.library.skill_files import read_skill_body
from kitbag.models.catalog import ModelInfo, look_up_model
from kitbag.models.provider import ToolSpec
from kitbag.packing.catalog import parse_catalog_lines
from kitbag.store.redaction import Redactor
from kitbag.text.tokens import estimate_tokens

if TYPE_CHECKING:
    from kitbag.runtime.agent import Agent


class ContextInputs(msgspec.Struct, frozen=True, kw_only=True):
    session: Session
    """Its records and id; `source` has the current content."""
    source: ContextSource
    library: Registry
    model: str
    known: ModelInfo
    specs: Sequence[ToolSpec]
    """The tools of the next request."""
    sent_specs: Sequence[ToolSpec]
    """The tools of the last request."""
    turns: list[TurnUsage]
    before: Session | None
    """The session when the last request that the provider counted was sent."""


def report_session_context(places: Places, session_id: str = "") -> dict[str, Any]:
    """For a stored session. Raises NotFoundError if it does not exist, or if this directory has none."""
    with open_store(places.kitbag_home, Redactor.from_environment(os.environ)) as journal:
        session = resume(journal, session_id or newest_session(journal, places.cwd))
        turns = read_turn_usage(session)
        before = session_before_last_reply(session)
        specs = _sent_tool_specs(session)
    header = session.header
    library = Registry(
        places,
        team=header.team,
        persona=header.persona,
        omit_project=not session.prompt_inputs.get("trusted", False),
    )
    sources, _ = load_model_sources(library.settings, probe=False)
    model_info = look_up_model(header.model, sources.models)
    return _build_report(
        ContextInputs(
            session=session,
            source=session,
            library=library,
            model=header.model,
            known=model_info,
            specs=specs,
            sent_specs=specs,
            turns=turns,
            before=before,
        )
    )


def prepare_agent_report(agent: "Agent") -> Callable[[], dict[str, Any]]:
    """For a running session: copies its state and returns a function that counts it in another thread."""
    session = agent.session
    carried, specs = ContextSnapshot(session), agent.toolset.specs()
    library, chosen = agent.environment.library, agent.chosen

    def count() -> dict[str, Any]:
        turns, before = read_turn_usage(session), session_before_last_reply(session)
        return _build_report(
            ContextInputs(
                session=session,
                source=carried,
                library=library,
                model=chosen.name,
                known=chosen.info,
                specs=specs,
                sent_specs=_sent_tool_specs(session),
                turns=turns,
                before=before,
            )
        )

    return count


def _build_report(inputs: ContextInputs) -> dict[str, Any]:
    session, carried, specs = inputs.session, inputs.source, inputs.specs
    messages = carried.messages()
    replies = sum(message.role == "assistant" for message in messages)
    pieces = list_context_pieces(carried, specs, max(len(inputs.turns) - replies, 0) + 1)
    system = [str(entry["text"]) for entry in carried.prompt]
    return {
        "session": session.id,
        "directory": session.header.directory,
        "model": inputs.model,
        "mode": session.header.mode,
        "persona": header_persona_name(session.header),
        **_window_fields(inputs.known, pieces),
        "tokens": _sum_tokens(pieces),
        "bytes": sum(piece.bytes for piece in pieces),
        "request_bytes": count_request_bytes(system, specs, messages),
        "groups": _group_pieces(pieces),
        "skills": _skill_costs(inputs.library, carried, pieces),
        "tools": _tool_costs(pieces),
        "agents": _rows_of_kind(pieces, "agent"),
        "memory": _rows_of_kind(pieces, "memory"),
        "turns": [{**turn.to_json(), **_turn_footprint(pieces, turn)} for turn in inputs.turns],
        "last_request": _compare_last_request(inputs),
        "pieces": [piece.to_json() for piece in pieces],
        "warnings": list(session.warnings),
    }


def _sent_tool_specs(session: Session) -> Sequence[ToolSpec]:
    """The tools of the last request; of a session without one, those that it was started with, without those of
    servers."""
    sent = read_tools(session.journal, session.sent_tools)
    if sent is not None:
        return sent
    names = session.prompt_inputs.get("tools", [])
    return [tool.spec for tool in all_tools() if tool.name in names]


def _sum_tokens(pieces: Iterable[ContextPiece]) -> int:
    return sum(piece.tokens for piece in pieces)


def _window_fields(model_info: ModelInfo, pieces: list[ContextPiece]) -> dict[str, int]:
    """The window, the compaction threshold, and the tokens left until then."""
    prefix = _sum_tokens(piece for piece in pieces if not piece.turn)
    threshold = ContextWindow(size=model_info.window, max_output=model_info.max_output).compaction_threshold(prefix)
    return {"window": model_info.window, "compacted_at": threshold, "left": max(threshold - _sum_tokens(pieces), 0)}


def _skill_costs(library: Registry, source: ContextSource, pieces: list[ContextPiece]) -> dict[str, Any]:
    """What skills cost listed, loaded, and if all were loaded."""
    catalog = next((str(entry["text"]) for entry in source.prompt if (entry["kind"], entry["source"]) == _CATALOG), "")
    listed = {name: estimate_tokens(line) for name, line in parse_catalog_lines(catalog).items()}
    loaded: dict[str, int] = {}
    for piece in pieces:
        if piece.kind in ("skill", "one-message"):
            loaded[piece.name] = loaded.get(piece.name, 0) + piece.tokens
    possible = {
        skill.full_name: estimate_tokens(read_skill_body(skill).text)
        for skill in library.skills
        if library.evaluate(skill).model
    }
    names = dict.fromkeys((*loaded, *possible))
    return {
        "listed": _sum_tokens(piece for piece in pieces if (piece.kind, piece.name) == _CATALOG),
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


def _tool_costs(pieces: list[ContextPiece]) -> list[dict[str, Any]]:
    """For each tool the cost of its description and of its calls so far."""
    rows: dict[str, dict[str, Any]] = {}
    for piece in pieces:
        if piece.kind in ("tool", "call", "result"):
            empty = {"name": piece.name, "described": 0, "calls": 0, "call_tokens": 0, "result_tokens": 0}
            row = rows.setdefault(piece.name, empty)
            row["calls"] += piece.kind == "call"
            row[{"tool": "described", "call": "call_tokens", "result": "result_tokens"}[piece.kind]] += piece.tokens
    return list(rows.values())


def _rows_of_kind(pieces: list[ContextPiece], kind: str) -> list[dict[str, Any]]:
    return [row for row in _group_pieces(pieces) if row["kind"] == kind]


def _group_pieces(pieces: list[ContextPiece]) -> list[dict[str, Any]]:
    """One row per kind and name, in request order."""
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for piece in pieces:
        row = rows.setdefault(
            (piece.kind, piece.name), {"kind": piece.kind, "name": piece.name, "count": 0, "tokens": 0, "bytes": 0}
        )
        row["count"] += 1
        row["tokens"] += piece.tokens
        row["bytes"] += piece.bytes
    return list(rows.values())


def _turn_footprint(pieces: list[ContextPiece], turn: TurnUsage) -> dict[str, int]:
    """What a turn still occupies in the window."""
    turn_pieces = [piece for piece in pieces if piece.turn == turn.number]
    return {"tokens": _sum_tokens(turn_pieces), "bytes": sum(piece.bytes for piece in turn_pieces)}


def _compare_last_request(inputs: ContextInputs) -> dict[str, int]:
    """The provider's count of the last request next to our estimate of the same request."""
    before = inputs.before
    if before is None:
        return {"provider": 0, "ours": 0, "residual": 0}
    provider = next(turn.input for turn in reversed(inputs.turns) if turn.input or turn.output)
    ours = _sum_tokens(list_context_pieces(before, inputs.sent_specs))
    return {"provider": provider, "ours": ours, "residual": provider - ours}
