"""What the next request of a session would carry, piece by piece: prompt sections, tools, messages, skills, results.

A view of the session, used by `kitbag context`. Its bytes close: the pieces together are all the text of the request,
the names and arguments of calls included; what a provider's protocol adds around them is not counted.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from kitbag.agent.session import Session
from kitbag.messages import Image, Message, Part, Text, Thinking, ToolCall, ToolResult
from kitbag.models.provider import ToolSpec
from kitbag.text.tokens import estimate_tokens

_IMAGE_TOKENS = 1_600


class Piece(NamedTuple):
    kind: str
    """A section of the prompt, tool, memory, catalog, skill, user, reply, thinking, call, result, image."""
    name: str
    """The file, the tool, the skill."""
    turn: int
    """0: there from the start."""
    tokens: int
    bytes: int

    def to_json(self) -> dict[str, Any]:
        return dict(self._asdict())


class Turn(NamedTuple):
    number: int
    model: str
    shown: int
    """Tokens of its request, as the provider counted them."""
    said: int
    cached: int
    cost: float | None


def pieces_of(session: Session, tools: Sequence[ToolSpec]) -> list[Piece]:
    """In the order in which they stand in the request."""
    found: list[Piece] = []
    for entry in session.prompt:
        text = str(entry["text"])
        found.append(Piece(str(entry["kind"]), str(entry["source"]), 0, int(entry["tokens"]), size_of(text)))
    for spec in tools:
        text = tool_text(spec)
        found.append(Piece("tool", spec.name, 0, estimate_tokens(text), size_of(text)))
    found += _of_messages(session)
    return found


def _of_messages(session: Session) -> Iterator[Piece]:
    called: dict[str, str] = {}
    holding = {use.call_id: use.name for use in session.skills.values() if use.call_id}
    turn = 0
    for message in session.messages():
        turn += message.role == "assistant"
        for part in message.parts:
            if isinstance(part, ToolCall):
                called[part.id] = part.name
            kind, name = _kind_of(message, part, called, holding)
            text = text_of(part)
            tokens = _IMAGE_TOKENS if isinstance(part, Image) else estimate_tokens(text)
            yield Piece(kind, name, max(turn, 1), tokens, size_of(text))


def _kind_of(message: Message, part: Part, called: dict[str, str], holding: dict[str, str]) -> tuple[str, str]:
    match part:
        case Text(text):
            if message.role == "assistant":
                return "reply", ""
            if text.startswith("<skill-invocation"):
                return "skill", text.partition('"')[2].partition('"')[0]
            return ("summary", "") if text.startswith("<conversation-summary") else ("user", "")
        case Thinking():
            return "thinking", part.provider
        case Image():
            return "image", part.media_type
        case ToolCall():
            return "call", part.name
        case ToolResult():
            skill = holding.get(part.call_id)
            return ("skill", skill) if skill else ("result", called.get(part.call_id, ""))


def tool_text(spec: ToolSpec) -> str:
    return f"{spec.name}\n{spec.description}\n{json.dumps(spec.schema, ensure_ascii=False)}"


def text_of(part: Part) -> str:
    """All of a part that a model reads; of a picture, its data."""
    match part:
        case Text(text) | Thinking(text):
            return text
        case Image():
            return part.data
        case ToolCall():
            return f"{part.name}\n{json.dumps(part.arguments, ensure_ascii=False)}"
        case ToolResult():
            return "".join(text_of(inner) for inner in part.content)


def size_of(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


def request_bytes(system: Iterable[str], tools: Iterable[ToolSpec], messages: Iterable[Message]) -> int:
    """The same, from the request itself: what the pieces have to add up to."""
    whole = sum(map(size_of, system)) + sum(size_of(tool_text(spec)) for spec in tools)
    return whole + sum(size_of(text_of(part)) for message in messages for part in message.parts)


def turns_of(session: Session) -> list[Turn]:
    """From the records: also of turns that have been compacted since."""
    found: list[Turn] = []
    for record in session.journal.read(session.stream):
        if record.kind == "reply":
            sent, said, cached, written = (*record.body.get("usage", ()), 0, 0, 0, 0)[:4]
            model = str(record.body.get("model", ""))
            shown = sent + cached + written
            found.append(Turn(len(found) + 1, model, shown, said, cached, record.body.get("cost")))
    return found
