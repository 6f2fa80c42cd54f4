"""Adapter for OpenAI's Chat Completions API, also offered by Ollama, vLLM, llama.cpp, LM Studio, OpenRouter and others.

A reply is complete only if it has a finish reason. Created by model_selection; uses wire and encoded_messages.
"""

import json
from collections.abc import AsyncGenerator
from typing import Any, cast

from kitbag.messages import Image, Message, Part, Text, Thinking, Usage
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

_STOP_REASONS: dict[str, StopReason] = {
    "stop": "end",
    "tool_calls": "tools",
    "function_call": "tools",
    "length": "length",
    "content_filter": "refusal",
}


class OpenAIChat:
    def __init__(self, endpoint: ApiEndpoint, *, completion_limit: bool = False) -> None:
        """`completion_limit`: send `max_completion_tokens`, as OpenAI requires; others expect `max_tokens`."""
        self.name = endpoint.provider
        self._client = ApiClient(endpoint)
        self._limit_name = "max_completion_tokens" if completion_limit else "max_tokens"
        self._encoder = MessageEncoder(lambda message: _encode_message(message, self.name))

    async def close(self) -> None:
        await self._client.close()

    def stream(self, request: ModelRequest) -> AsyncGenerator[StreamItem, None]:
        return stream_reply(self._client, "/chat/completions", self._encode_request(request), _StreamParser(self.name))

    def _encode_request(self, request: ModelRequest) -> bytes:
        import msgspec

        system = "".join(block.text for block in request.system)
        first = msgspec.json.encode({"role": "system", "content": system}) if system else b""
        body: dict[str, Any] = {
            "model": request.model,
            "stream": True,
            "stream_options": {"include_usage": True},
            self._limit_name: request.max_output,
        }
        if request.tools:
            body["tools"] = [
                {
                    "type": "function",
                    "function": {"name": tool.name, "description": tool.description, "parameters": tool.schema},
                }
                for tool in request.tools
            ]
        if request.effort:
            body["reasoning_effort"] = request.effort
        return self._encoder.encode_body(body, "messages", request.messages, before=first)


def _encode_message(message: Message, provider: str) -> list[dict[str, Any]]:
    if message.role == "assistant":
        return [_encode_assistant(message, provider)]
    items: list[dict[str, Any]] = []
    all_images: list[Image] = []
    for result in message.results:
        text = "".join(part.text for part in result.content if isinstance(part, Text))
        images = [part for part in result.content if isinstance(part, Image)]
        all_images += images
        note = "(see the image below)" if images else "(no output)"
        items.append({"role": "tool", "tool_call_id": portable_id(result.call_id), "content": text or note})
    content = [_encode_content(part) for part in (*all_images, *message.parts) if isinstance(part, Text | Image)]
    if content and all(block["type"] == "text" for block in content):
        items.append({"role": "user", "content": "\n".join(block["text"] for block in content)})
    elif content:
        items.append({"role": "user", "content": content})
    return items


def _encode_content(part: Text | Image) -> dict[str, Any]:
    if isinstance(part, Text):
        return {"type": "text", "text": part.text}
    return {"type": "image_url", "image_url": {"url": f"data:{part.media_type};base64,{part.data}"}}


def _encode_assistant(message: Message, provider: str) -> dict[str, Any]:
    item: dict[str, Any] = {"role": "assistant", "content": message.text or None}
    calls = [
        {
            "id": portable_id(call.id),
            "type": "function",
            "function": {
                "name": portable_name(call.name),
                "arguments": json.dumps(call.arguments, ensure_ascii=False),
            },
        }
        for call in message.calls
    ]
    if calls:
        item["tool_calls"] = calls
    elif not message.text:
        item["content"] = "(nothing)"
    for part in message.parts:
        if isinstance(part, Thinking) and part.provider == provider and part.opaque:
            item |= cast("dict[str, Any]", json.loads(part.opaque))
    return item


class _Call:
    __slots__ = ("id", "name", "pieces")

    def __init__(self) -> None:
        self.id = ""
        self.name = ""
        self.pieces: list[str] = []


class _StreamParser:
    def __init__(self, provider: str) -> None:
        self.provider = provider
        self.is_over = False
        """Stays False: usage follows the finish reason, and `[DONE]` ends the stream."""
        self._text: list[str] = []
        self._thought: list[str] = []
        self._details: list[Any] = []
        self._calls: dict[int, _Call] = {}
        self._stop = ""
        self._usage = Usage()
        self._model = ""

    def read(self, event: dict[str, Any]) -> list[StreamItem]:
        error = event.get("error")
        if error:
            fields = cast("dict[str, Any]", error) if isinstance(error, dict) else {"message": str(error)}
            raise stream_error(self.provider, str(fields.get("type") or ""), str(fields.get("message") or ""))
        self._model = str(event.get("model") or self._model)
        usage = event.get("usage")
        if isinstance(usage, dict):
            self._usage = parse_usage(cast("dict[str, Any]", usage))
        pieces: list[StreamItem] = []
        for choice in _dicts(event.get("choices"))[:1]:
            if not self._stop:
                pieces += self._append_delta(_dict(choice.get("delta")))
            self._stop = self._stop or str(choice.get("finish_reason") or "")
        return pieces

    def _append_delta(self, delta: dict[str, Any]) -> list[StreamItem]:
        pieces: list[StreamItem] = []
        thought = delta.get("reasoning_content") or delta.get("reasoning")
        if isinstance(thought, str):
            self._thought.append(thought)
            pieces.append(ThinkingChunk(thought))
        self._details += _dicts(delta.get("reasoning_details"))
        for text in (delta.get("content"), delta.get("refusal")):
            if isinstance(text, str) and text:
                self._text.append(text)
                pieces.append(TextChunk(text))
        for at, part in enumerate(_dicts(delta.get("tool_calls"))):
            pieces += self._append_call(at, part)
        return pieces

    def _append_call(self, at: int, part: dict[str, Any]) -> list[StreamItem]:
        index = part.get("index")
        call = self._calls.setdefault(index if isinstance(index, int) else at, _Call())
        function = _dict(part.get("function"))
        was_started = bool(call.name)
        call.id = call.id or text_field(part, "id")
        # Some servers repeat the whole name in every delta; none splits it.
        call.name = call.name or text_field(function, "name")
        arguments = function.get("arguments")
        if isinstance(arguments, dict):  # older Ollama versions
            call.pieces = [json.dumps(arguments)]
        elif isinstance(arguments, str):
            call.pieces.append(arguments)
        return [ToolCallBegun(call.id, call.name)] if call.name and not was_started else []

    def reply(self) -> ModelReply:
        if not self._stop:
            raise ModelError("cut", f"the reply from {self.provider} ended early", "retry")
        parts: list[Part] = []
        if self._thought or self._details:
            opaque = json.dumps({"reasoning_details": self._details}) if self._details else ""
            parts.append(Thinking(text="".join(self._thought), provider=self.provider, opaque=opaque))
        if self._text:
            parts.append(Text("".join(self._text)))
        for _, call in sorted(self._calls.items()):
            parts.append(parse_tool_call(call.id, call.name, "".join(call.pieces)))
        stop = "tools" if self._calls and self._stop == "stop" else _STOP_REASONS.get(self._stop, "other")
        return ModelReply(
            message=Message("assistant", tuple(parts)),
            stop=stop,
            usage=self._usage,
            model=self._model,
            stop_reason=self._stop,
        )


def parse_usage(usage: dict[str, Any]) -> Usage:
    """For both OpenAI APIs, whose input tokens include cached tokens."""
    total = _positive_int(usage.get("prompt_tokens", usage.get("input_tokens")))
    details = _dict(usage.get("prompt_tokens_details") or usage.get("input_tokens_details"))
    cached = min(_positive_int(details.get("cached_tokens")), total)
    return Usage(
        input=total - cached,
        output=_positive_int(usage.get("completion_tokens", usage.get("output_tokens"))),
        cache_read=cached,
    )


def _positive_int(value: object) -> int:
    return value if isinstance(value, int) and value > 0 else 0


def _dict(value: object) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _dicts(value: object) -> list[dict[str, Any]]:
    items = cast("list[object]", value) if isinstance(value, list) else []
    return [cast("dict[str, Any]", item) for item in items if isinstance(item, dict)]
