"""Adapter for OpenAI's Responses API, without server-side state.

Encrypted reasoning items are sent back unchanged. Created by model_selection; uses wire and encoded_messages.
"""

import json
from collections.abc import AsyncGenerator
from typing import Any, cast

from kitbag.messages import Image, Message, Part, Text, Thinking, ToolCall, ToolResult
from kitbag.models.adapters.encoded_messages import MessageEncoder
from kitbag.models.adapters.openai_chat import parse_usage
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

_STOP_REASONS: dict[str, StopReason] = {
    "completed": "end",
    "incomplete": "length",
    "max_output_tokens": "length",
    "content_filter": "refusal",
}


class OpenAIResponses:
    def __init__(self, endpoint: ApiEndpoint) -> None:
        self.name = endpoint.provider
        self._client = ApiClient(endpoint)
        self._encoder = MessageEncoder(lambda message: _encode_message(message, self.name))

    async def close(self) -> None:
        await self._client.close()

    def stream(self, request: ModelRequest) -> AsyncGenerator[StreamItem, None]:
        return stream_reply(self._client, "/responses", self._encode_request(request), _StreamParser(self.name))

    def _encode_request(self, request: ModelRequest) -> bytes:
        body: dict[str, Any] = {
            "model": request.model,
            "stream": True,
            "store": False,
            "include": ["reasoning.encrypted_content"],
            "max_output_tokens": request.max_output,
            "instructions": "".join(block.text for block in request.system),
        }
        if request.tools:
            body["tools"] = [
                {
                    "type": "function",
                    "name": tool.name,
                    "description": tool.description,
                    "parameters": tool.schema,
                    "strict": False,
                }
                for tool in request.tools
            ]
        if request.effort:
            body["reasoning"] = {"effort": request.effort, "summary": "auto"}
        return self._encoder.encode_body(body, "input", request.messages)


def _encode_message(message: Message, provider: str) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    content: list[dict[str, Any]] = []
    for part in message.parts:
        if isinstance(part, Text | Image):
            content.append(_encode_content(part, message.role))
            continue
        if content:
            items.append({"type": "message", "role": message.role, "content": content})
            content = []
        items += _encode_part(part, provider)
    if content:
        items.append({"type": "message", "role": message.role, "content": content})
    return items


def _encode_part(part: Thinking | ToolCall | ToolResult, provider: str) -> list[dict[str, Any]]:
    match part:
        case Thinking(provider=author, opaque=opaque):
            return [cast("dict[str, Any]", json.loads(opaque))] if author == provider and opaque else []
        case ToolCall():
            arguments = json.dumps(part.arguments, ensure_ascii=False)
            return [
                {
                    "type": "function_call",
                    "call_id": portable_id(part.id),
                    "name": portable_name(part.name),
                    "arguments": arguments,
                }
            ]
        case ToolResult():
            if any(isinstance(piece, Image) for piece in part.content):
                output: Any = [_encode_content(piece, "user") for piece in part.content]
            else:
                output = "".join(piece.text for piece in part.content if isinstance(piece, Text)) or "(no output)"
            return [{"type": "function_call_output", "call_id": portable_id(part.call_id), "output": output}]


def _encode_content(part: Text | Image, role: str) -> dict[str, Any]:
    if isinstance(part, Image):
        return {"type": "input_image", "image_url": f"data:{part.media_type};base64,{part.data}"}
    return {"type": "output_text" if role == "assistant" else "input_text", "text": part.text}


class _StreamParser:
    def __init__(self, provider: str) -> None:
        self.provider = provider
        self.is_over = False
        self._items: dict[int, dict[str, Any]] = {}
        self._begun: set[int] = set()
        self._end: dict[str, Any] = {}
        self._end_kind = ""

    def read(self, event: dict[str, Any]) -> list[StreamItem]:
        kind = event.get("type")
        index = event.get("output_index")
        match kind:
            case "error" | "response.failed":
                response = _dict(event.get("response"))
                error = _dict(response.get("error")) or _dict(event.get("error")) or event
                raise stream_error(self.provider, str(error.get("code") or ""), str(error.get("message") or ""))
            case "response.output_item.added" if isinstance(index, int) and index not in self._begun:
                self._begun.add(index)
                item = _dict(event.get("item"))
                if item.get("type") == "function_call":
                    return [ToolCallBegun(text_field(item, "call_id"), text_field(item, "name"))]
            case "response.output_item.done" if isinstance(index, int):
                self._items.setdefault(index, _dict(event.get("item")))
            case "response.output_text.delta" | "response.refusal.delta" if index not in self._items:
                return [TextChunk(str(event.get("delta", "")))]
            case "response.reasoning_summary_text.delta" | "response.reasoning_text.delta":
                return [ThinkingChunk(str(event.get("delta", "")))]
            case "response.completed" | "response.incomplete":
                self._end = _dict(event.get("response"))
                self._end_kind = str(kind).removeprefix("response.")
                self.is_over = True
            case _:
                pass
        return []

    def reply(self) -> ModelReply:
        reason = self._stop_reason()
        if not self.is_over or (reason == "completed" and self._begun - set(self._items)):
            raise ModelError("cut", f"the reply from {self.provider} ended early", "retry")
        items = self._items
        if reason != "completed":  # the truncated item may be only in the last event
            items = {**dict(enumerate(_dicts(self._end.get("output")))), **items}
        parts = [part for _, item in sorted(items.items()) for part in self._parts(item)]
        stop = _STOP_REASONS.get(reason, "other")
        if stop == "end" and any(isinstance(part, ToolCall) for part in parts):
            stop = "tools"
        usage = parse_usage(_dict(self._end.get("usage")))
        return ModelReply(
            message=Message("assistant", tuple(parts)),
            stop=stop,
            usage=usage,
            model=str(self._end.get("model") or ""),
            stop_reason=reason,
        )

    def _stop_reason(self) -> str:
        """`completed` only if the response and all of its calls are completed."""
        reason = str(_dict(self._end.get("incomplete_details")).get("reason") or "")
        calls = [item for item in self._items.values() if item.get("type") == "function_call"]
        states = [str(item.get("status") or "completed") for item in (self._end, *calls)]
        return reason or next((state for state in states if state != "completed"), self._end_kind)

    def _parts(self, item: dict[str, Any]) -> list[Part]:
        match item.get("type"):
            case "message":
                texts = [str(block.get("text") or block.get("refusal") or "") for block in _dicts(item.get("content"))]
                return [Text(text) for text in texts if text]
            case "reasoning":
                summary = "\n".join(str(part.get("text") or "") for part in _dicts(item.get("summary")))
                fields = {name: item[name] for name in ("type", "id", "summary", "encrypted_content") if name in item}
                return [
                    Thinking(
                        text=summary,
                        provider=self.provider,
                        opaque=json.dumps(fields) if item.get("encrypted_content") else "",
                    )
                ]
            case "function_call":
                arguments = str(item.get("arguments") or "")
                return [parse_tool_call(text_field(item, "call_id"), text_field(item, "name"), arguments)]
            case _:
                return []


def _dict(value: object) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _dicts(value: object) -> list[dict[str, Any]]:
    items = cast("list[object]", value) if isinstance(value, list) else []
    return [cast("dict[str, Any]", item) for item in items if isinstance(item, dict)]
