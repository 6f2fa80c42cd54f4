"""Splits the next request of a session into pieces: prompt sections, tools, messages, skills, results.

Used by `kitbag context`, `/context` and bench/savings. The pieces add up to all the text of the request in UTF-8
(system prompt; name, description and schema of each tool; texts, results, images, names and arguments of calls). What
the wire protocol adds, such as ids and signatures, is not counted.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Protocol

import msgspec

from kitbag.agent.resume import resume
from kitbag.agent.session import Session
from kitbag.agent.session_records import SkillUse
from kitbag.agent.user_text import SKILL_BLOCK, SKILL_STUB, list_image_names, split_user_text
from kitbag.messages import Image, Message, Part, Text, Thinking, ToolCall, ToolResult
from kitbag.models.provider import ToolSpec
from kitbag.text.tokens import estimate_tokens

_IMAGE_TOKENS: Final = 1_600


class ContextPiece(msgspec.Struct, frozen=True, kw_only=True):
    kind: str
    """A section of the prompt; tool; user, mentioned, changes, suggestions, summary, image; reply, thinking, call;
    result, agent; skill, one-message (a skill shown for one user message), stub (replaces an unloaded skill)."""
    name: str
    """The file, tool, agent or skill."""
    turn: int
    """0: present from the start."""
    tokens: int
    """Estimated."""
    bytes: int

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind, "name": self.name, "turn": self.turn, "tokens": self.tokens, "bytes": self.bytes}


class RequestPiece(msgspec.Struct, frozen=True, kw_only=True):
    """A piece with its text."""

    kind: str
    """As in ContextPiece."""
    name: str
    text: str
    tokens: int
    turn: int = 0
    message: int = -1
    """The index of its message; -1: before the conversation."""
    call_id: str = ""
    """The call that a result answers."""
    is_signed: bool = True
    """False for reasoning that its provider does not accept back."""

    @property
    def bytes(self) -> int:
        return utf8_size(self.text)

    def without_text(self) -> ContextPiece:
        return ContextPiece(kind=self.kind, name=self.name, turn=self.turn, tokens=self.tokens, bytes=self.bytes)


class TurnUsage(msgspec.Struct, frozen=True, kw_only=True):
    number: int
    model: str
    input: int
    """Tokens of its request as counted by the provider, like the two fields below."""
    output: int
    cached: int
    cost: float | None

    def to_json(self) -> dict[str, Any]:
        return {
            "number": self.number,
            "model": self.model,
            "input": self.input,
            "output": self.output,
            "cached": self.cached,
            "cost": self.cost,
        }


class ContextSource(Protocol):
    """The parts of a session that its next request contains."""

    @property
    def prompt(self) -> tuple[dict[str, Any], ...]: ...
    @property
    def skills(self) -> Mapping[str, SkillUse]: ...
    def messages(self) -> tuple[Message, ...]: ...


class ContextSnapshot:
    """A copy of a running session's state, so that another thread can count it."""

    def __init__(self, session: Session) -> None:
        self.prompt = session.prompt
        self.skills: Mapping[str, SkillUse] = dict(session.skills)
        self._messages = session.messages()

    def messages(self) -> tuple[Message, ...]:
        return self._messages


def list_context_pieces(source: ContextSource, tools: Sequence[ToolSpec], first_turn: int = 1) -> list[ContextPiece]:
    """`first_turn`: the number of the first reply in the request."""
    pieces = (*prompt_pieces(source.prompt), *tool_pieces(tools), *MessagePieces().list(source, first_turn))
    return [piece.without_text() for piece in pieces]


def prompt_pieces(entries: Iterable[Mapping[str, Any]]) -> list[RequestPiece]:
    return [
        RequestPiece(
            kind=str(entry["kind"]), name=str(entry["source"]), text=str(entry["text"]), tokens=int(entry["tokens"])
        )
        for entry in entries
    ]


def tool_pieces(tools: Iterable[ToolSpec]) -> list[RequestPiece]:
    texts = [(spec.name, tool_text(spec)) for spec in tools]
    return [RequestPiece(kind="tool", name=name, text=text, tokens=estimate_tokens(text)) for name, text in texts]


class MessagePieces:
    """Lists the pieces of messages. A part is split and counted once, however many requests of a session carry it."""

    def __init__(self) -> None:
        self._parts: dict[int, tuple[Part, list[RequestPiece]]] = {}
        """By the identity of the part, which the entry keeps alive."""

    def list(self, source: ContextSource, first_turn: int = 1, start: int = 0) -> list[RequestPiece]:
        """`first_turn`: the number of the first reply in the request. `start`: the index of the first message."""
        return list(self._iterate(source, first_turn, start))

    def _iterate(self, source: ContextSource, first_turn: int, start: int) -> Iterator[RequestPiece]:
        messages = source.messages()
        calls = {call.id: call for call in messages[start - 1].calls} if start else dict[str, ToolCall]()
        skills_by_call = {use.call_id: use.name for use in source.skills.values() if use.call_id}
        turn = first_turn - 1 + start // 2  # roles alternate, and the user begins
        for number, message in enumerate(messages[start:], start):
            turn += message.role == "assistant"
            image_names: list[str] = []
            has_images = message.role == "user" and any(isinstance(part, Image) for part in message.parts)
            for part in message.parts:
                if isinstance(part, ToolCall):
                    calls[part.id] = part
                elif isinstance(part, Text) and has_images:
                    image_names = list_image_names(part.text)
                is_own_turn = message.role == "assistant" or isinstance(part, ToolResult)
                place = (turn if is_own_turn else turn + 1, number)
                known = self._parts.get(id(part))
                if known is not None and (not known[1] or (known[1][0].turn, known[1][0].message) == place):
                    yield from known[1]
                    continue
                texts = _split_part(message, part, calls, skills_by_call, image_names)
                pieces = [_make_piece(part, *text, *place) for text in texts]
                self._parts[id(part)] = part, pieces
                yield from pieces


def _make_piece(part: Part, kind: str, name: str, text: str, turn: int, message: int) -> RequestPiece:
    return RequestPiece(
        kind=kind,
        name=name,
        text=text,
        tokens=_IMAGE_TOKENS if isinstance(part, Image) else estimate_tokens(text),
        turn=turn,
        message=message,
        call_id=part.call_id if isinstance(part, ToolResult) else "",
        is_signed=not isinstance(part, Thinking) or bool(part.opaque),
    )


def _split_part(
    message: Message, part: Part, calls: dict[str, ToolCall], skills_by_call: dict[str, str], image_names: list[str]
) -> Iterator[tuple[str, str, str]]:
    """Yields (kind, name, text); the texts joined are the text of the part. `image_names`: the files that the next
    images show."""
    text = part_text(part)
    match part:
        case Text():
            yield from [("reply", "", text)] if message.role == "assistant" else split_user_text(text)
        case Thinking():
            yield "thinking", part.provider, text
        case Image():
            yield ("mentioned", image_names.pop(0), text) if image_names else ("image", part.media_type, text)
        case ToolCall():
            yield "call", part.name, text
        case ToolResult():
            yield (*_classify_result(part, text, calls.get(part.call_id), skills_by_call), text)


def _classify_result(
    result: ToolResult, text: str, call: ToolCall | None, skills_by_call: dict[str, str]
) -> tuple[str, str]:
    if stub := re.fullmatch(SKILL_STUB, text):
        return "stub", stub[1]
    tool = call.name if call is not None else ""
    if tool == "Skill" and call is not None and not result.is_error:
        block = re.match(SKILL_BLOCK, text)
        return "skill", skills_by_call.get(result.call_id) or (
            block[1] if block else str(call.arguments.get("skill", ""))
        )
    if tool == "Task" and call is not None:
        return "agent", str(call.arguments.get("subagent_type", ""))
    return "result", tool


def tool_text(spec: ToolSpec) -> str:
    return f"{spec.name}\n{spec.description}\n{_json(spec.schema)}"


def part_text(part: Part) -> str:
    """All text of a part that a model reads; for an image, its data."""
    match part:
        case Text(text) | Thinking(text=text):
            return text
        case Image():
            return part.data
        case ToolCall():
            return f"{part.name}\n{_json(part.arguments)}"
        case ToolResult():
            return "".join(part_text(inner) for inner in part.content)


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def utf8_size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def count_request_bytes(system: Iterable[str], tools: Iterable[ToolSpec], messages: Iterable[Message]) -> int:
    """Counts the same bytes from the request itself; the pieces must add up to this."""
    whole = sum(map(utf8_size, system)) + sum(utf8_size(tool_text(spec)) for spec in tools)
    return whole + count_message_bytes(messages)


def count_message_bytes(messages: Iterable[Message]) -> int:
    return sum(utf8_size(part_text(part)) for message in messages for part in message.parts)


def read_turn_usage(session: Session) -> list[TurnUsage]:
    """Reads the journal, so compacted turns are included."""
    turns: list[TurnUsage] = []
    for record in session.journal.read(session.stream):
        if record.kind == "reply":
            uncached, output, cached, cache_written = (*record.body.get("usage", ()), 0, 0, 0, 0)[:4]
            model = str(record.body.get("model", ""))
            total_input = uncached + cached + cache_written
            turns.append(
                TurnUsage(
                    number=len(turns) + 1,
                    model=model,
                    input=total_input,
                    output=output,
                    cached=cached,
                    cost=record.body.get("cost"),
                )
            )
    return turns


def session_before_last_reply(session: Session) -> Session | None:
    """The session as it was when the last request that the provider counted was sent; None if there was none."""
    replies = (record for record in session.journal.read(session.stream) if record.kind == "reply")
    last = max((record.seq for record in replies if any(record.body.get("usage", ()))), default=0)
    return resume(session.journal, session.id, last - 1) if last else None
