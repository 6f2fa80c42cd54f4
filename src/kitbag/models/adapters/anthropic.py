"""Anthropic's Messages protocol: a request, and a reply read from its stream of blocks.

Used through models/choice. The reply counts only when the stream said that it is over and every block is whole.
"""

from collections.abc import AsyncGenerator
from typing import Any, Final

from kitbag.messages import Image, Message, Part, Text, Thinking, ToolCall, ToolResult, Usage
from kitbag.models.adapters.encoded_messages import Encoded
from kitbag.models.adapters.wire import Endpoint, Wire, failed, read_reply, tool_call
from kitbag.models.provider import (
    CallBegun,
    ModelError,
    Piece,
    Reply,
    Request,
    StopReason,
    TextPiece,
    ThinkingPiece,
)

VERSION: Final = "2023-06-01"
_STOPS: dict[str, StopReason] = {
    "end_turn": "end",
    "stop_sequence": "end",
    "tool_use": "tools",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "refusal",
}
_MARK = {"cache_control": {"type": "ephemeral"}}
_EFFORTS = {"low": 2_048, "medium": 8_192, "high": 24_576}


class Anthropic:
    def __init__(self, endpoint: Endpoint) -> None:
        self.name = endpoint.provider
        self._wire = Wire(endpoint)
        self._encoded = Encoded(lambda message: [_message(message, self.name)])

    async def close(self) -> None:
        await self._wire.close()

    def stream(self, request: Request) -> AsyncGenerator[Piece, None]:
        return read_reply(self._wire, "/v1/messages", self._body(request), _Reader(self.name))

    def _body(self, request: Request) -> bytes:
        body: dict[str, Any] = {
            "model": request.model,
            "max_tokens": request.max_output,
            "stream": True,
        }
        if request.system:
            body["system"] = [
                {"type": "text", "text": block.text, **(_MARK if block.cache else {})} for block in request.system
            ]
        if request.tools:
            body["tools"] = [
                {"name": tool.name, "description": tool.description, "input_schema": tool.schema}
                for tool in request.tools
            ]
        budget = _EFFORTS.get(request.effort)
        if budget is not None and request.max_output > budget + 1_024:
            body["thinking"] = {"type": "enabled", "budget_tokens": budget}
        first, tail = self._tail(request.messages)
        return self._encoded.body(body, "messages", request.messages[:first], after=tail)

    def _tail(self, messages: tuple[Message, ...]) -> tuple[int, bytes]:
        """Where it begins. The last two of the user carry a mark: what was sent before is read from the cache, what is
        new goes in."""
        import msgspec

        first, marked = len(messages), 0
        while first and marked < 2:
            first -= 1
            marked += messages[first].role == "user"
        tail: list[dict[str, Any]] = []
        for message in messages[first:]:
            encoded = _message(message, self.name)
            if message.role == "user" and encoded["content"]:
                encoded["content"][-1] |= _MARK
            tail.append(encoded)
        return first, msgspec.json.encode(tail)[1:-1]


def _message(message: Message, provider: str) -> dict[str, Any]:
    content = [block for part in message.parts if (block := _block(part, provider)) is not None]
    return {"role": message.role, "content": content or [{"type": "text", "text": "(nothing)"}]}


def _block(part: Part, provider: str) -> dict[str, Any] | None:
    match part:
        case Text(text):
            return {"type": "text", "text": text} if text.strip() else None
        case Image(media_type, data):
            return {"type": "image", "source": {"type": "base64", "media_type": media_type, "data": data}}
        case Thinking(text, wrote, opaque):
            if wrote != provider or not opaque:
                return None
            if opaque.startswith("redacted:"):
                return {"type": "redacted_thinking", "data": opaque.removeprefix("redacted:")}
            return {"type": "thinking", "thinking": text, "signature": opaque}
        case ToolCall():
            return {"type": "tool_use", "id": part.id, "name": part.name, "input": part.arguments}
        case ToolResult():
            inner = [block for piece in part.content if (block := _block(piece, provider)) is not None]
            content = inner or [{"type": "text", "text": "(no output)"}]
            return {"type": "tool_result", "tool_use_id": part.call_id, "content": content, "is_error": part.is_error}


class _Block:
    __slots__ = ("fields", "pieces", "signature", "whole")

    def __init__(self, fields: dict[str, Any]) -> None:
        self.fields = fields
        self.pieces: list[str] = []
        self.signature = ""
        self.whole = False


class _Reader:
    """The state of one stream."""

    def __init__(self, provider: str) -> None:
        self.provider = provider
        self.over = False
        self._blocks: dict[int, _Block] = {}
        self._usage: dict[str, int] = {}
        self._stop = ""
        self._model = ""

    def read(self, event: dict[str, Any]) -> list[Piece]:
        kind = event.get("type")
        if kind == "error":
            error = _fields(event, "error")
            raise failed(self.provider, str(error.get("type", "")), str(error.get("message", "")))
        if kind == "message_start":
            message = _fields(event, "message")
            self._model = str(message.get("model", ""))
            self._count(_fields(message, "usage"))
        elif kind == "content_block_start":
            return self._begin(event)
        elif kind == "content_block_delta":
            return self._grow(event)
        elif kind == "content_block_stop":
            block = self._blocks.get(event.get("index", -1))
            if block is not None:
                block.whole = True
        elif kind == "message_delta":
            self._stop = str(_fields(event, "delta").get("stop_reason") or self._stop)
            self._count(_fields(event, "usage"))
        elif kind == "message_stop":
            self.over = True
        return []

    def _begin(self, event: dict[str, Any]) -> list[Piece]:
        index = event.get("index")
        if not isinstance(index, int) or index in self._blocks:
            return []
        fields = _fields(event, "content_block")
        block = self._blocks[index] = _Block(fields)
        match fields.get("type"):
            case "tool_use":
                return [CallBegun(str(fields.get("id", "")), str(fields.get("name", "")))]
            case "text" if fields.get("text"):
                block.pieces.append(str(fields["text"]))
                return [TextPiece(str(fields["text"]))]
            case _:
                return []

    def _grow(self, event: dict[str, Any]) -> list[Piece]:
        block = self._blocks.get(event.get("index", -1))
        delta = _fields(event, "delta")
        if block is None or block.whole:
            return []
        match delta.get("type"):
            case "text_delta":
                block.pieces.append(str(delta.get("text", "")))
                return [TextPiece(block.pieces[-1])]
            case "thinking_delta":
                block.pieces.append(str(delta.get("thinking", "")))
                return [ThinkingPiece(block.pieces[-1])]
            case "signature_delta":
                block.signature += str(delta.get("signature", ""))
            case "input_json_delta":
                block.pieces.append(str(delta.get("partial_json", "")))
            case _:
                pass
        return []

    def _count(self, usage: dict[str, Any]) -> None:
        self._usage |= {name: value for name, value in usage.items() if isinstance(value, int)}

    def reply(self) -> Reply:
        broken = not self.over or any(not block.whole for block in self._blocks.values())
        if broken:
            raise ModelError("cut", f"the reply of {self.provider} ended before it was whole", "try again")
        parts = [part for _, block in sorted(self._blocks.items()) if (part := self._part(block))]
        usage = Usage(
            self._usage.get("input_tokens", 0),
            self._usage.get("output_tokens", 0),
            self._usage.get("cache_read_input_tokens", 0),
            self._usage.get("cache_creation_input_tokens", 0),
        )
        stop = _STOPS.get(self._stop, "other")
        return Reply(Message("assistant", tuple(parts)), stop, usage, self._model, self._stop)

    def _part(self, block: _Block) -> Part | None:
        text = "".join(block.pieces)
        match block.fields.get("type"):
            case "text":
                return Text(text) if text else None
            case "thinking":
                return Thinking(text, self.provider, block.signature)
            case "redacted_thinking":
                return Thinking("", self.provider, f"redacted:{block.fields.get('data', '')}")
            case "tool_use":
                call_id, name = str(block.fields.get("id", "")), str(block.fields.get("name", ""))
                return tool_call(call_id, name, text)
            case _:
                return None


def _fields(event: dict[str, Any], name: str) -> dict[str, Any]:
    value = event.get(name)
    return value if isinstance(value, dict) else {}  # pyright: ignore[reportUnknownVariableType]
