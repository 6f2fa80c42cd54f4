"""Explains each model call of a session: every piece of its request with source, reason, position, tokens and cost, and
what it lacks and why.

Used by `kitbag context` and the web UI. Pieces stand in the order in which providers cache a request: tools, system
prompt, messages. Blocks: callers with an event loop use a thread.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from kitbag.agent.context_ledger import MessagePieces, RequestPiece, prompt_pieces, tool_pieces
from kitbag.agent.model_calls import CallHistory, DroppedSkill, ModelCall, read_calls
from kitbag.agent.session_list import newest_session
from kitbag.assembly.model_sources import load_model_sources
from kitbag.assembly.open_store import open_store
from kitbag.assembly.tool_list import all_tools
from kitbag.library.registry import Registry
from kitbag.library.scopes import Places
from kitbag.library.skill_files import read_skill_body
from kitbag.messages import usage_to_json
from kitbag.models.catalog import ModelInfo, look_up_model
from kitbag.models.provider import ToolSpec
from kitbag.packing.catalog import parse_catalog_lines
from kitbag.store.redaction import Redactor
from kitbag.text.human_format import format_count
from kitbag.text.tokens import estimate_tokens
from kitbag.tools.on_demand_tools import SERVER_TOOL_PREFIX

SKILL_KINDS: Final = ("skill", "one-message", "preload")
"""Pieces that are the text of a skill."""
_CATALOG: Final = ("catalog", "skills")
_REASONS: Final = {
    "base": "Kitbag's own instructions",
    "tools": "how to use the tools of this run",
    "provider": "for models of this provider",
    "memory": "a memory file, in every request",
    "skills": "how to use skills",
    "catalog": "names and descriptions, so that the model can load what it needs",
    "team": "the prompt of the chosen team",
    "persona": "the prompt of the chosen persona",
    "appended": "--append-system-prompt",
    "environment": "directory, mode and date",
    "identity": "how a subagent works",
    "agent": "the agent's instructions",
    "guidelines": "how a subagent reports",
    "task": "the task of the subagent",
    "preload": "the agent's `skills:` preloads it",
    "tool": "a tool of this run",
    "user": "the user wrote it",
    "mentioned": "the user mentioned it",
    "changes": "what changed since the last message",
    "suggestions": "skills that match the message and that the catalog does not describe",
    "summary": "replaces earlier messages",
    "image": "the user attached it",
    "reply": "the model wrote it",
    "thinking": "the model's reasoning, sent back to its provider",
    "call": "the model called the tool",
    "result": "the result of a call",
    "agent-report": "the report of a subagent",
    "one-message": "the user invoked it for one message",
    "stub": "replaces an unloaded skill",
}
_FOUND: Final = {"suggestion": "suggested with a message", "search": "found by search", "": "named in the catalog"}


class CallPiece(msgspec.Struct, frozen=True, kw_only=True):
    kind: str
    name: str
    source: str
    """The file, server or message that it comes from."""
    reason: str
    turn: int
    message: int
    """From 1; 0: before the conversation."""
    offset: int
    """Of its first byte in the text of the request."""
    bytes: int
    tokens: int
    """Estimated."""
    cost: float | None
    """Its part of what the request cost, in dollars; None if the price or the provider's count is unknown."""
    text: str

    def to_json(self) -> dict[str, Any]:
        """Without the text."""
        return {
            "kind": self.kind,
            "name": self.name,
            "source": self.source,
            "reason": self.reason,
            "turn": self.turn,
            "message": self.message,
            "offset": self.offset,
            "bytes": self.bytes,
            "tokens": self.tokens,
            "cost": self.cost,
        }


class AbsentItem(msgspec.Struct, frozen=True, kw_only=True):
    """Something that the request does not contain, or not completely."""

    kind: str
    name: str
    tokens: int | None
    """What it would add; None: unknown."""
    reason: str

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind, "name": self.name, "tokens": self.tokens, "reason": self.reason}


class CallContext(msgspec.Struct, frozen=True, kw_only=True):
    call: ModelCall
    pieces: tuple[CallPiece, ...]
    absent: tuple[AbsentItem, ...]
    unknown: tuple[str, ...]
    """What the journal does not say about the request."""

    @property
    def tokens(self) -> int:
        return sum(piece.tokens for piece in self.pieces)

    @property
    def bytes(self) -> int:
        return sum(piece.bytes for piece in self.pieces)

    @property
    def residual(self) -> int | None:
        """Tokens that the provider counted more than Kitbag estimates; None if it counted nothing."""
        counted = self.call.usage.total_input
        return counted - self.tokens if counted else None

    @property
    def input_cost(self) -> float | None:
        costs = [piece.cost for piece in self.pieces]
        return sum(cost for cost in costs if cost is not None) if costs and None not in costs else None

    def to_json(self) -> dict[str, Any]:
        return {
            **call_to_json(self.call),
            "tokens": self.tokens,
            "bytes": self.bytes,
            "residual": self.residual,
            "input_cost": self.input_cost,
            "is_exact": None if self.call.difference is None else self.call.difference == 0,
            "difference": self.call.difference,
            "unknown": list(self.unknown),
            "pieces": [piece.to_json() for piece in self.pieces],
            "absent": [item.to_json() for item in self.absent],
        }


def call_to_json(call: ModelCall) -> dict[str, Any]:
    return {
        "number": call.number,
        "kind": call.kind,
        "turn": call.turn,
        "at": call.at,
        "model": call.model,
        "persona": call.header.persona,
        "mode": call.header.mode,
        "usage": usage_to_json(call.usage),
        "counted": call.usage.total_input,
        "cost": call.cost,
        "incomplete": call.incomplete,
    }


class CallPricing:
    """Divides what a request cost among its pieces: the provider read its beginning from the cache, wrote the next part
    to it, and charged the rest in full. Positions are in estimated tokens."""

    def __init__(self, call: ModelCall, info: ModelInfo, estimated: int) -> None:
        usage = call.usage
        self.ratio = usage.total_input / estimated if estimated else 0.0
        """Tokens that the provider counts for an estimated one."""
        default = info.input_price
        self._spans = (
            (0, usage.cache_read, info.cache_read_price if info.cache_read_price is not None else default),
            (
                usage.cache_read,
                usage.cache_read + usage.cache_write,
                info.cache_write_price if info.cache_write_price is not None else default,
            ),
            (usage.cache_read + usage.cache_write, usage.total_input, default),
        )
        self._is_known = bool(usage.total_input) and not any(
            price is None for start, end, price in self._spans if end > start
        )

    def cost(self, start: int, tokens: int) -> float | None:
        if not self._is_known:
            return None
        first, last = start * self.ratio, (start + tokens) * self.ratio
        overlaps = ((max(0.0, min(last, end) - max(first, begin)), price or 0.0) for begin, end, price in self._spans)
        return sum(length * price for length, price in overlaps) / 1_000_000


class SkillSize(NamedTuple):
    tokens: int
    words: int


def count_words(text: str) -> int:
    return len(text.split())


class SessionContext:
    """The calls of a session, with the library and the prices that explain them."""

    def __init__(self, history: CallHistory, library: Registry, models: Mapping[str, Mapping[str, Any]]) -> None:
        """`models`: the user's settings for models."""
        self.history = history
        self.library = library
        self._models = models
        self._messages = MessagePieces()
        self._bodies: dict[str, SkillSize] | None = None

    def model_info(self, call: ModelCall) -> ModelInfo:
        return look_up_model(call.header.model, self._models)

    def possible_skills(self) -> Mapping[str, SkillSize]:
        """The skills that the model may load now, with the size of their bodies."""
        if self._bodies is None:
            visible = [skill for skill in self.library.skills if self.library.evaluate(skill).model]
            texts = {skill.full_name: read_skill_body(skill).text for skill in visible}
            self._bodies = {name: SkillSize(estimate_tokens(text), count_words(text)) for name, text in texts.items()}
        return self._bodies

    def request_pieces(self, call: ModelCall) -> list[RequestPiece]:
        """In the order in which providers cache them, without reasoning that the request omits."""
        return [*self.prefix_pieces(call), *(piece for piece in self.message_pieces(call) if is_sent(piece, call))]

    def prefix_pieces(self, call: ModelCall) -> list[RequestPiece]:
        return [*tool_pieces(_known_tools(call)), *prompt_pieces(call.prompt)]

    def message_pieces(self, call: ModelCall, start: int = 0) -> list[RequestPiece]:
        """From the message with this index on, with reasoning that the request omits."""
        return self._messages.list(call, call.first_turn, start)

    def explain(self, call: ModelCall) -> CallContext:
        pieces = self.request_pieces(call)
        pricing = CallPricing(call, self.model_info(call), sum(piece.tokens for piece in pieces))
        scopes = {(str(entry["kind"]), str(entry["source"])): str(entry.get("scope", "")) for entry in call.prompt}
        explained: list[CallPiece] = []
        offset = tokens = 0
        for piece in pieces:
            size = piece.bytes
            explained.append(
                CallPiece(
                    kind=piece.kind,
                    name=piece.name,
                    source=_describe_source(piece, scopes.get((piece.kind, piece.name), "")),
                    reason=_describe_reason(piece, call),
                    turn=piece.turn,
                    message=piece.message + 1,
                    offset=offset,
                    bytes=size,
                    tokens=piece.tokens,
                    cost=pricing.cost(tokens, piece.tokens),
                    text=piece.text,
                )
            )
            offset += size
            tokens += piece.tokens
        absent = tuple(_list_absent(self, call, pieces)) if call.kind == "turn" else ()
        return CallContext(call=call, pieces=tuple(explained), absent=absent, unknown=list_unknown(call))

    def dropped_thinking(self, call: ModelCall) -> list[RequestPiece]:
        return [piece for piece in self.message_pieces(call) if not is_sent(piece, call)]


def load_session_context(places: Places, session_id: str = "") -> SessionContext:
    """For a stored session. Raises NotFoundError if it does not exist, or if this directory has none."""
    with open_store(places.kitbag_home, Redactor.from_environment(os.environ)) as journal:
        history = read_calls(journal, session_id or newest_session(journal, places.cwd))
    return make_session_context(places, history)


def make_session_context(places: Places, history: CallHistory) -> SessionContext:
    header, inputs = history.session.header, history.session.prompt_inputs
    library = Registry(places, team=header.team, persona=header.persona, omit_project=not inputs.get("trusted", False))
    sources, _ = load_model_sources(library.settings, probe=False)
    return SessionContext(history, library, sources.models)


def is_sent(piece: RequestPiece, call: ModelCall) -> bool:
    """Reasoning goes back only to the provider that wrote and signed it."""
    return piece.kind != "thinking" or (piece.name == call.provider and piece.is_signed)


def _known_tools(call: ModelCall) -> Sequence[ToolSpec]:
    """Of a journal of an earlier version: the tools with these names as they are described now."""
    if call.tools is not None or call.kind == "compaction":
        return call.tools or ()
    return [tool.spec for tool in all_tools() if tool.name in call.tool_names]


def list_unknown(call: ModelCall) -> tuple[str, ...]:
    unknown: list[str] = []
    if call.kind == "compaction" and call.tools is None:
        return ("the request for the summary was not recorded",)
    if call.tools is None:
        unknown.append("the tool list was not recorded; the tools are shown as they are described now")
    if call.difference:
        size = format_count(abs(call.difference), "byte")
        more = "more" if call.difference > 0 else "less"
        unknown.append(f"the request had {size} {more} than the journal: it redacts secrets")
    return tuple(unknown)


def _describe_source(piece: RequestPiece, scope: str) -> str:
    if piece.kind == "tool":
        server = piece.name.removeprefix(SERVER_TOOL_PREFIX).partition("__")[0]
        return f"server {server}" if piece.name.startswith(SERVER_TOOL_PREFIX) else "built-in"
    if piece.message >= 0:
        return f"message {piece.message + 1}"
    return f"{piece.name} ({scope})" if scope else piece.name


def _describe_reason(piece: RequestPiece, call: ModelCall) -> str:
    kind = piece.kind
    if kind == "skill":
        use = call.skills.get(piece.name)
        if use is None or use.by != "model":
            return "loaded" if use is None else "the user loaded it"
        return f"the model loaded it: {_FOUND.get(use.found, use.found)}"
    if kind == "agent":
        return _REASONS["agent-report" if piece.message >= 0 else "agent"]
    if kind == "stub":
        dropped = call.notes.dropped.get(piece.name)
        return f"the skill was {unloaded_text(dropped)}" if dropped else "the skill was shown for one message"
    if kind == "tool" and piece.name.startswith(SERVER_TOOL_PREFIX):
        return "a tool of a server that the run uses"
    return _REASONS.get(kind, "a section of the system prompt" if piece.message < 0 else "part of the conversation")


# What a request lacks


def _list_absent(context: SessionContext, call: ModelCall, pieces: Sequence[RequestPiece]) -> Iterator[AbsentItem]:
    yield from _truncated_sections(call)
    yield from _absent_skills(context, call, pieces)
    yield from _compacted_messages(call)
    for piece in pieces:
        if (cut := call.notes.truncated.get(piece.call_id)) and piece.call_id:
            yield AbsentItem(kind="result", name=piece.name, tokens=None, reason=f"truncated: {cut}")
    for piece in context.dropped_thinking(call):
        why = f"written by {piece.name}" if piece.name != call.provider else "it has no signature"
        yield AbsentItem(kind="thinking", name=piece.name, tokens=piece.tokens, reason=f"not sent back: {why}")
    known = {spec.name for spec in _known_tools(call)}
    for tool in all_tools():
        if tool.name not in known:
            reason = "not part of this run: mode, rules, the agent's tools, or nothing to use it on"
            text = f"{tool.name}\n{tool.description}"
            yield AbsentItem(kind="tool", name=tool.name, tokens=estimate_tokens(text), reason=reason)


def _truncated_sections(call: ModelCall) -> Iterator[AbsentItem]:
    for entry in call.prompt:
        tokens = int(entry.get("tokens_cut", 0))
        if tokens or entry.get("status", "kept") != "kept":
            state = "omitted" if entry.get("status") == "omitted" else "truncated"
            reason = f"{state}: {entry.get('reason') or 'over its limit'}"
            yield AbsentItem(kind=str(entry["kind"]), name=str(entry["source"]), tokens=tokens, reason=reason)


def _absent_skills(context: SessionContext, call: ModelCall, pieces: Sequence[RequestPiece]) -> Iterator[AbsentItem]:
    present = {skill_name(piece) for piece in pieces if piece.kind in SKILL_KINDS}
    stubs = {piece.name for piece in pieces if piece.kind == "stub"}
    possible = {name: size.tokens for name, size in context.possible_skills().items()}
    seen = set[str]()
    for name in stubs - present:
        seen.add(name)
        dropped = call.notes.dropped.get(name)
        tokens = dropped.tokens if dropped else call.notes.one_message.get(name)
        reason = unloaded_text(dropped) if dropped else "shown for one message only"
        yield AbsentItem(kind="skill", name=name, tokens=tokens or possible.get(name), reason=reason)
    for name, dropped in call.notes.dropped.items():
        if name not in present | seen:
            seen.add(name)
            yield AbsentItem(kind="skill", name=name, tokens=dropped.tokens, reason=unloaded_text(dropped))
    listed = catalog_lines(call)
    for name in listed:
        if name not in present | seen:
            seen.add(name)
            yield AbsentItem(kind="skill", name=name, tokens=possible.get(name), reason="listed, not loaded")
    for name, tokens in possible.items():
        if name not in present | seen and listed:
            reason = "not in the catalog: described when a message or a file matches it"
            yield AbsentItem(kind="skill", name=name, tokens=tokens, reason=reason)


def unloaded_text(dropped: DroppedSkill) -> str:
    return f"unloaded: {dropped.reason}" if dropped.reason not in ("", "unloaded") else "unloaded"


def _compacted_messages(call: ModelCall) -> Iterator[AbsentItem]:
    count, before, after = call.notes.compacted
    if count:
        name, saved = format_count(count, "message"), max(before - after, 0)
        yield AbsentItem(kind="messages", name=name, tokens=saved, reason="compacted: a summary replaces them")


def catalog_lines(call: ModelCall) -> dict[str, str]:
    """The lines of the catalog of skills, by name."""
    texts = [str(entry["text"]) for entry in call.prompt if (entry["kind"], entry["source"]) == _CATALOG]
    return parse_catalog_lines(texts[0]) if texts else {}


def skill_name(piece: RequestPiece | CallPiece) -> str:
    """Of a piece that is the text of a skill; a preloaded one is named by its file."""
    return os.path.basename(os.path.dirname(piece.name)) if piece.kind == "preload" else piece.name
