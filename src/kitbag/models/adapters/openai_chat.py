"""Adapter for OpenAI's Chat Completions API, also offered by Ollama, vLLM, llama.cpp, LM Studio, OpenRouter and others.

A reply is complete only if it has a finish reason. Created by model_selection; uses wire and encoded_messages.
"""

import json
from collections.abc import AsyncGenerator
from typing import Any, cast

from kitbag.messages import Image, Message, Part, Text, Thinking, Usage
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
        parser = _StreamParser(self.name, self._client.endpoint.limits)
        return stream_reply(self._client, "/chat/completions", self._encode_request(request), parser)

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
    may_think = False

    def __init__(self, provider: str, limits: ReplyLimits) -> None:
        self.provider = provider
        self.budget = ContentBudget(limits)
        self.is_over = False
        """Stays False: usage follows the finish reason, and `[DONE]` ends the stream."""
        self._has_ended = False
        self._text: list[str] = []
        self._thought: list[str] = []
        self._details: list[Any] = []
        self._calls: dict[int, _Call] = {}
        self._has_refused = False
        self._stop = ""
        self._usage = Usage()
        self._model = ""

    def read(self, event: dict[str, Any]) -> list[StreamItem]:
        if event.get("error"):
            raise error_in_reply(self.provider, event["error"])
        self._model = text_field(event, "model") or self._model
        usage = event.get("usage")
        if isinstance(usage, dict):
            self._usage = parse_usage(cast("dict[str, Any]", usage))
        pieces: list[StreamItem] = []
        for choice in _dicts(event.get("choices"))[:1]:
            if not self._stop:
                pieces += self._append_delta(_dict(choice.get("delta")))
            self._stop = self._stop or text_field(choice, "finish_reason")
        return pieces

    def end(self) -> None:
        self._has_ended = True

    def unpack(self, document: dict[str, Any]) -> list[dict[str, Any]]:
        choices = _dicts(document.get("choices"))
        if not choices or not isinstance(choices[0].get("message"), dict):
            return []
        return [{**document, "choices": [{**choices[0], "delta": choices[0]["message"]}]}]

    def _append_delta(self, delta: dict[str, Any]) -> list[StreamItem]:
        pieces: list[StreamItem] = []
        thought = self.budget.take(text_field(delta, "reasoning_content") or text_field(delta, "reasoning"))
        if thought:
            self._thought.append(thought)
            pieces.append(ThinkingChunk(thought))
        self._append_details(_dicts(delta.get("reasoning_details")))
        self._has_refused = self._has_refused or bool(text_field(delta, "refusal"))
        for name in ("content", "refusal"):
            text = self.budget.take(text_field(delta, name))
            if text:
                self._text.append(text)
                pieces.append(TextChunk(text))
        for at, part in enumerate(_dicts(delta.get("tool_calls"))):
            pieces += self._append_call(at, part)
        return pieces

    def _append_details(self, details: list[dict[str, Any]]) -> None:
        """Kept as they are, to be sent back."""
        for detail in details:
            if self.budget.fits(len(json.dumps(detail, ensure_ascii=False))):
                self._details.append(detail)

    def _append_call(self, at: int, part: dict[str, Any]) -> list[StreamItem]:
        index = part.get("index")
        key = index if isinstance(index, int) else at
        if key not in self._calls:
            if not self.budget.add_block():
                return []
            self._calls[key] = _Call()
        call = self._calls[key]
        function = _dict(part.get("function"))
        was_started = bool(call.name)
        call.id = call.id or self.budget.take(text_field(part, "id"))
        # Some servers repeat the whole name in every delta; none splits it.
        call.name = call.name or self.budget.take(text_field(function, "name"))
        arguments = function.get("arguments")
        if isinstance(arguments, dict):  # older Ollama versions
            call.pieces = [self.budget.take(json.dumps(arguments))]
        elif isinstance(arguments, str) and arguments:
            call.pieces.append(self.budget.take(arguments))
        return [ToolCallBegun(call.id, call.name)] if call.name and not was_started else []

    def reply(self) -> ModelReply:
        if not self._stop and not self._has_ended:
            raise ModelError("cut", f"the reply from {self.provider} ended early", "retry")
        return self.partial_reply()

    def partial_reply(self) -> ModelReply:
        parts: list[Part] = []
        if self._thought or self._details:
            opaque = json.dumps({"reasoning_details": self._details}) if self._details else ""
            parts.append(Thinking(text="".join(self._thought), provider=self.provider, opaque=opaque))
        if self._text:
            parts.append(Text("".join(self._text)))
        parts += [parse_tool_call(call.id, call.name, "".join(call.pieces)) for _, call in sorted(self._calls.items())]
        stop = "tools" if self._calls and self._stop == "stop" else _STOP_REASONS.get(self._stop, "other")
        if stop == "end" and self._has_refused:
            stop = "refusal"
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
    return count_field({"count": value}, "count")


def _dict(value: object) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _dicts(value: object) -> list[dict[str, Any]]:
    items = cast("list[object]", value) if isinstance(value, list) else []
    return [cast("dict[str, Any]", item) for item in items if isinstance(item, dict)]
