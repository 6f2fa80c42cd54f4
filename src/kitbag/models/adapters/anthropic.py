"""Adapter for Anthropic's Messages API: encodes requests and parses the streamed content blocks.

A reply is complete only if the stream ended with `message_stop` and every block is complete. Created by
model_selection; uses wire and encoded_messages.
"""

import json
from collections.abc import AsyncGenerator, Iterator
from typing import Any, Final, cast

from kitbag.messages import Image, Message, Part, Text, Thinking, ToolCall, ToolResult, Usage
from kitbag.models.adapters.api_errors import ApiEndpoint, error_in_reply
from kitbag.models.adapters.encoded_messages import MessageEncoder
from kitbag.models.adapters.wire import ApiClient, count_field, parse_tool_call, stream_reply, text_field
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
from kitbag.models.reply_limits import ContentBudget, ReplyLimits

API_VERSION: Final = "2023-06-01"
_STOP_REASONS: dict[str, StopReason] = {
    "end_turn": "end",
    "stop_sequence": "end",
    "tool_use": "tools",
    "max_tokens": "length",
    "model_context_window_exceeded": "context",
    "pause_turn": "pause",
    "refusal": "refusal",
}
_USAGE_FIELDS = ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
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
        parser = _StreamParser(self.name, self._client.endpoint.limits)
        return stream_reply(self._client, "/v1/messages", self._encode_request(request), parser)

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
    __slots__ = ("call_id", "data", "kind", "name", "pieces", "signature", "whole")

    def __init__(self, fields: dict[str, Any], budget: ContentBudget) -> None:
        self.kind = text_field(fields, "type")
        self.call_id = budget.take(text_field(fields, "id"))
        self.name = budget.take(text_field(fields, "name"))
        self.data = budget.take(text_field(fields, "data"))
        self.pieces: list[str] = []
        self.signature: list[str] = []
        self.whole = False


class _StreamParser:
    """State of one reply stream."""

    may_think = False

    def __init__(self, provider: str, limits: ReplyLimits) -> None:
        self.provider = provider
        self.budget = ContentBudget(limits)
        self.is_over = False
        self._blocks: dict[int, _Block] = {}
        self._usage: dict[str, int] = {}
        self._stop = ""
        self._model = ""

    def read(self, event: dict[str, Any]) -> list[StreamItem]:
        kind = event.get("type")
        if kind == "error" or (kind is None and event.get("error")):
            raise error_in_reply(self.provider, event.get("error"))
        if kind == "message_start":
            message = _object_field(event, "message")
            self._model = text_field(message, "model")
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
            self._stop = text_field(_object_field(event, "delta"), "stop_reason") or self._stop
            self._add_usage(_object_field(event, "usage"))
        elif kind == "message_stop":
            self.is_over = True
        return []

    def end(self) -> None:
        """This protocol ends with `message_stop` instead."""

    def unpack(self, document: dict[str, Any]) -> Iterator[dict[str, Any]]:
        if document.get("type") != "message" or not isinstance(document.get("content"), list):
            return
        yield {"type": "message_start", "message": document}
        for index, block in enumerate(document["content"]):
            fields = cast("dict[str, Any]", block) if isinstance(block, dict) else {}
            yield {"type": "content_block_start", "index": index, "content_block": fields}
            yield {"type": "content_block_stop", "index": index}
        yield {"type": "message_delta", "delta": document}
        yield {"type": "message_stop"}

    def _start_block(self, event: dict[str, Any]) -> list[StreamItem]:
        index = event.get("index")
        if not isinstance(index, int) or index in self._blocks or not self.budget.add_block():
            return []
        fields = _object_field(event, "content_block")
        block = self._blocks[index] = _Block(fields, self.budget)
        if block.kind == "tool_use":
            given = _object_field(fields, "input")
            self._keep(block, json.dumps(given, ensure_ascii=False) if given else "")
            return [ToolCallBegun(block.call_id, block.name)]
        if block.kind == "text":
            return self._keep(block, text_field(fields, "text"), TextChunk)
        if block.kind == "thinking":
            block.signature.append(self.budget.take(text_field(fields, "signature")))
            return self._keep(block, text_field(fields, "thinking"), ThinkingChunk)
        return []

    def _append_delta(self, event: dict[str, Any]) -> list[StreamItem]:
        block = self._blocks.get(event.get("index", -1))
        delta = _object_field(event, "delta")
        if block is None or block.whole:
            return []
        match delta.get("type"):
            case "text_delta":
                return self._keep(block, text_field(delta, "text"), TextChunk)
            case "thinking_delta":
                return self._keep(block, text_field(delta, "thinking"), ThinkingChunk)
            case "signature_delta":
                block.signature.append(self.budget.take(text_field(delta, "signature")))
            case "input_json_delta":
                self._keep(block, text_field(delta, "partial_json"))
            case _:
                pass
        return []

    def _keep(
        self, block: _Block, text: str, chunk: type[TextChunk] | type[ThinkingChunk] | None = None
    ) -> list[StreamItem]:
        text = self.budget.take(text)
        if text:
            block.pieces.append(text)
        return [chunk(text)] if text and chunk is not None else []

    def _add_usage(self, usage: dict[str, Any]) -> None:
        self._usage |= {name: count_field(usage, name) for name in _USAGE_FIELDS if name in usage}

    def reply(self) -> ModelReply:
        is_cut_off = not self.is_over or any(not block.whole for block in self._blocks.values())
        if is_cut_off:
            raise ModelError("cut", f"the reply from {self.provider} ended early", "retry")
        return self.partial_reply()

    def partial_reply(self) -> ModelReply:
        parts = [part for _, block in sorted(self._blocks.items()) if (part := self._part(block))]
        input_tokens, output_tokens, cache_read, cache_write = (self._usage.get(name, 0) for name in _USAGE_FIELDS)
        usage = Usage(input=input_tokens, output=output_tokens, cache_read=cache_read, cache_write=cache_write)
        return ModelReply(
            message=Message("assistant", tuple(parts)),
            stop=_STOP_REASONS.get(self._stop, "other"),
            usage=usage,
            model=self._model,
            stop_reason=self._stop,
        )

    def _part(self, block: _Block) -> Part | None:
        text = "".join(block.pieces)
        match block.kind:
            case "text":
                return Text(text) if text else None
            case "thinking":
                return Thinking(text=text, provider=self.provider, opaque="".join(block.signature))
            case "redacted_thinking":
                return Thinking(text="", provider=self.provider, opaque=f"redacted:{block.data}")
            case "tool_use":
                return parse_tool_call(block.call_id, block.name, text)
            case _:
                return None


def _object_field(event: dict[str, Any], name: str) -> dict[str, Any]:
    value = event.get(name)
    return value if isinstance(value, dict) else {}  # pyright: ignore[reportUnknownVariableType]
