"""Adapter for Anthropic's Messages API: encodes requests and parses the streamed content blocks.

A reply is complete only if the stream ended with `message_stop` and every block is complete. Created by
model_selection; uses wire and encoded_messages.
"""

from collections.abc import AsyncGenerator
from typing import Any, Final

from kitbag.messages import Image, Message, Part, Text, Thinking, ToolCall, ToolResult, Usage
from kitbag.models.adapters.encoded_messages import MessageEncoder
from kitbag.models.adapters.wire import ApiClient, ApiEndpoint, parse_tool_call, stream_error, stream_reply, text_field
from kitbag.models.portable_names import portable_id, portable_name
from kitbag.models.provider import (
    ModelError,
    ModelReply,
    ModelRequest,
    StopReason,
    StreamItem,
    TextChunk,
    ThinkingChunk,
    ToolCallBegun,
)

API_VERSION: Final = "2023-06-01"
_STOP_REASONS: dict[str, StopReason] = {
    "end_turn": "end",
    "stop_sequence": "end",
    "tool_use": "tools",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "refusal",
}
_CACHE_MARKER = {"cache_control": {"type": "ephemeral"}}
_THINKING_BUDGETS = {"low": 2_048, "medium": 8_192, "high": 24_576}


class Anthropic:
    def __init__(self, endpoint: ApiEndpoint) -> None:
        self.name = endpoint.provider
        self._client = ApiClient(endpoint)
        self._encoder = MessageEncoder(lambda message: [_encode_message(message, self.name)])

    async def close(self) -> None:
        await self._client.close()

    def stream(self, request: ModelRequest) -> AsyncGenerator[StreamItem, None]:
        return stream_reply(self._client, "/v1/messages", self._encode_request(request), _StreamParser(self.name))

    def _encode_request(self, request: ModelRequest) -> bytes:
        body: dict[str, Any] = {
            "model": request.model,
            "max_tokens": request.max_output,
            "stream": True,
        }
        if request.system:
            body["system"] = [
                {"type": "text", "text": block.text, **(_CACHE_MARKER if block.cache else {})}
                for block in request.system
            ]
        if request.tools:
            body["tools"] = [
                {"name": tool.name, "description": tool.description, "input_schema": tool.schema}
                for tool in request.tools
            ]
        budget = _THINKING_BUDGETS.get(request.effort)
        if budget is not None and request.max_output > budget + 1_024:
            body["thinking"] = {"type": "enabled", "budget_tokens": budget}
        first, tail = self._encode_tail(request.messages)
        return self._encoder.encode_body(body, "messages", request.messages[:first], after=tail)

    def _encode_tail(self, messages: tuple[Message, ...]) -> tuple[int, bytes]:
        """The index at which the tail starts, and the encoded tail. The last two user messages carry a cache marker:
        the provider reads the earlier prefix from its cache and adds the new one."""
        import msgspec

        first, marked = len(messages), 0
        while first and marked < 2:
            first -= 1
            marked += messages[first].role == "user"
        tail: list[dict[str, Any]] = []
        for message in messages[first:]:
            encoded = _encode_message(message, self.name)
            if message.role == "user" and encoded["content"]:
                encoded["content"][-1] |= _CACHE_MARKER
            tail.append(encoded)
        return first, msgspec.json.encode(tail)[1:-1]


def _encode_message(message: Message, provider: str) -> dict[str, Any]:
    content = [block for part in message.parts if (block := _encode_part(part, provider)) is not None]
    return {"role": message.role, "content": content or [{"type": "text", "text": "(nothing)"}]}


def _encode_part(part: Part, provider: str) -> dict[str, Any] | None:
    match part:
        case Text(text):
            return {"type": "text", "text": text} if text.strip() else None
        case Image(media_type=media_type, data=data):
            return {"type": "image", "source": {"type": "base64", "media_type": media_type, "data": data}}
        case Thinking(text=text, provider=author, opaque=opaque):
            if author != provider or not opaque:
                return None
            if opaque.startswith("redacted:"):
                return {"type": "redacted_thinking", "data": opaque.removeprefix("redacted:")}
            return {"type": "thinking", "thinking": text, "signature": opaque}
        case ToolCall():
            return {
                "type": "tool_use",
                "id": portable_id(part.id),
                "name": portable_name(part.name),
                "input": part.arguments,
            }
        case ToolResult():
            content_blocks = [block for piece in part.content if (block := _encode_part(piece, provider)) is not None]
            content = content_blocks or [{"type": "text", "text": "(no output)"}]
            return {
                "type": "tool_result",
                "tool_use_id": portable_id(part.call_id),
                "content": content,
                "is_error": part.is_error,
            }


class _Block:
    __slots__ = ("fields", "pieces", "signature", "whole")

    def __init__(self, fields: dict[str, Any]) -> None:
        self.fields = fields
        self.pieces: list[str] = []
        self.signature = ""
        self.whole = False


class _StreamParser:
    """State of one reply stream."""

    def __init__(self, provider: str) -> None:
        self.provider = provider
        self.is_over = False
        self._blocks: dict[int, _Block] = {}
        self._usage: dict[str, int] = {}
        self._stop = ""
        self._model = ""

    def read(self, event: dict[str, Any]) -> list[StreamItem]:
        kind = event.get("type")
        if kind == "error":
            error = _object_field(event, "error")
            raise stream_error(self.provider, str(error.get("type", "")), str(error.get("message", "")))
        if kind == "message_start":
            message = _object_field(event, "message")
            self._model = str(message.get("model", ""))
            self._add_usage(_object_field(message, "usage"))
        elif kind == "content_block_start":
            return self._start_block(event)
        elif kind == "content_block_delta":
            return self._append_delta(event)
        elif kind == "content_block_stop":
            block = self._blocks.get(event.get("index", -1))
            if block is not None:
                block.whole = True
        elif kind == "message_delta":
            self._stop = str(_object_field(event, "delta").get("stop_reason") or self._stop)
            self._add_usage(_object_field(event, "usage"))
        elif kind == "message_stop":
            self.is_over = True
        return []

    def _start_block(self, event: dict[str, Any]) -> list[StreamItem]:
        index = event.get("index")
        if not isinstance(index, int) or index in self._blocks:
            return []
        fields = _object_field(event, "content_block")
        block = self._blocks[index] = _Block(fields)
        match fields.get("type"):
            case "tool_use":
                return [ToolCallBegun(text_field(fields, "id"), text_field(fields, "name"))]
            case "text" if fields.get("text"):
                block.pieces.append(str(fields["text"]))
                return [TextChunk(str(fields["text"]))]
            case _:
                return []

    def _append_delta(self, event: dict[str, Any]) -> list[StreamItem]:
        block = self._blocks.get(event.get("index", -1))
        delta = _object_field(event, "delta")
        if block is None or block.whole:
            return []
        match delta.get("type"):
            case "text_delta":
                block.pieces.append(str(delta.get("text", "")))
                return [TextChunk(block.pieces[-1])]
            case "thinking_delta":
                block.pieces.append(str(delta.get("thinking", "")))
                return [ThinkingChunk(block.pieces[-1])]
            case "signature_delta":
                block.signature += str(delta.get("signature", ""))
            case "input_json_delta":
                block.pieces.append(str(delta.get("partial_json", "")))
            case _:
                pass
        return []

    def _add_usage(self, usage: dict[str, Any]) -> None:
        self._usage |= {name: value for name, value in usage.items() if isinstance(value, int)}

    def reply(self) -> ModelReply:
        is_cut_off = not self.is_over or any(not block.whole for block in self._blocks.values())
        if is_cut_off:
            raise ModelError("cut", f"the reply from {self.provider} ended early", "retry")
        parts = [part for _, block in sorted(self._blocks.items()) if (part := self._part(block))]
        usage = Usage(
            input=self._usage.get("input_tokens", 0),
            output=self._usage.get("output_tokens", 0),
            cache_read=self._usage.get("cache_read_input_tokens", 0),
            cache_write=self._usage.get("cache_creation_input_tokens", 0),
        )
        stop = _STOP_REASONS.get(self._stop, "other")
        return ModelReply(
            message=Message("assistant", tuple(parts)),
            stop=stop,
            usage=usage,
            model=self._model,
            stop_reason=self._stop,
        )

    def _part(self, block: _Block) -> Part | None:
        text = "".join(block.pieces)
        match block.fields.get("type"):
            case "text":
                return Text(text) if text else None
            case "thinking":
                return Thinking(text=text, provider=self.provider, opaque=block.signature)
            case "redacted_thinking":
                return Thinking(text="", provider=self.provider, opaque=f"redacted:{block.fields.get('data', '')}")
            case "tool_use":
                return parse_tool_call(text_field(block.fields, "id"), text_field(block.fields, "name"), text)
            case _:
                return None


def _object_field(event: dict[str, Any], name: str) -> dict[str, Any]:
    value = event.get(name)
    return value if isinstance(value, dict) else {}  # pyright: ignore[reportUnknownVariableType]
