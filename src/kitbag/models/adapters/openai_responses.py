"""Adapter for OpenAI's Responses API, without server-side state.

Encrypted reasoning items are sent back unchanged. Created by model_selection; uses wire and encoded_messages.
"""

import json
from collections.abc import AsyncGenerator, Iterator
from typing import Any, cast

from kitbag.messages import Image, Message, Part, Text, Thinking, ToolCall, ToolResult
from kitbag.models.adapters.api_errors import ApiEndpoint, error_in_reply
from kitbag.models.adapters.encoded_messages import MessageEncoder
from kitbag.models.adapters.openai_chat import parse_usage
from kitbag.models.adapters.wire import ApiClient, parse_tool_call, stream_reply, text_field
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
        parser = _StreamParser(self.name, self._client.endpoint.limits)
        return stream_reply(self._client, "/responses", self._encode_request(request), parser)

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
    def __init__(self, provider: str, limits: ReplyLimits) -> None:
        self.provider = provider
        self.budget = ContentBudget(limits)
        self.is_over = False
        self._items: dict[int, dict[str, Any]] = {}
        self._begun: dict[int, dict[str, Any]] = {}
        """Items as they were when they started, without their content."""
        self._deltas: dict[int, list[str]] = {}
        """Texts of items that are incomplete."""
        self._end: dict[str, Any] = {}
        self._end_kind = ""

    @property
    def may_think(self) -> bool:
        """Reasoning that is not summarized arrives all at once."""
        return any(item["type"] == "reasoning" and at not in self._items for at, item in self._begun.items())

    def read(self, event: dict[str, Any]) -> list[StreamItem]:
        kind = event.get("type")
        index = event.get("output_index")
        at = index if isinstance(index, int) else -1
        match kind:
            case "error" | "response.failed":
                error = _dict(event.get("response")).get("error") or event.get("error") or event
                raise error_in_reply(self.provider, error)
            case "response.output_item.added" if at >= 0 and at not in self._begun and self.budget.add_block():
                return self._begin_item(at, _dict(event.get("item")))
            case "response.output_item.done" if at >= 0:
                self._finish_item(at, _dict(event.get("item")))
            case "response.output_text.delta" | "response.refusal.delta" if at not in self._items:
                return self._append_delta(at, event, TextChunk)
            case "response.reasoning_summary_text.delta" | "response.reasoning_text.delta" if at not in self._items:
                return self._append_delta(at, event, ThinkingChunk)
            case "response.function_call_arguments.delta" if at not in self._items:
                self._append_delta(at, event)
            case "response.completed" | "response.incomplete":
                self._end = _dict(event.get("response"))
                self._end_kind = str(kind).removeprefix("response.")
                self.is_over = True
            case None if event.get("error"):
                raise error_in_reply(self.provider, event["error"])
            case _:
                pass
        return []

    def end(self) -> None:
        """This protocol ends with the whole response instead."""

    def unpack(self, document: dict[str, Any]) -> Iterator[dict[str, Any]]:
        status = document.get("status")
        if document.get("object") != "response" or not isinstance(document.get("output"), list):
            return
        for index, item in enumerate(_dicts(document["output"])):
            for block in _dicts(item.get("content")) if item.get("type") == "message" else ():
                yield {"type": "response.output_text.delta", "output_index": index, "delta": _block_text(block)}
            yield {"type": "response.output_item.done", "output_index": index, "item": item}
        kind = "completed" if status == "completed" else "incomplete"
        yield {"type": f"response.{kind}", "response": document}

    def _begin_item(self, at: int, item: dict[str, Any]) -> list[StreamItem]:
        names = ("type", "id", "call_id", "name")
        self._begun[at] = {name: self.budget.take(text_field(item, name)) for name in names}
        if item.get("type") == "function_call":
            return [ToolCallBegun(self._begun[at]["call_id"], self._begun[at]["name"])]
        return []

    def _append_delta(
        self, at: int, event: dict[str, Any], chunk: type[TextChunk] | type[ThinkingChunk] | None = None
    ) -> list[StreamItem]:
        if at not in self._begun and at not in self._deltas and not self.budget.add_block():
            return []
        text = self.budget.take(text_field(event, "delta"))
        if text:
            self._deltas.setdefault(at, []).append(text)
        return [chunk(text)] if text and chunk is not None else []

    def _finish_item(self, at: int, item: dict[str, Any]) -> None:
        if at in self._items or (at not in self._begun and not self.budget.add_block()):
            return
        if self._fits(item, sum(map(len, self._deltas.get(at, ())))):
            self._items[at] = item
            self._deltas.pop(at, None)

    def _fits(self, item: dict[str, Any], counted: int = 0) -> bool:
        return self.budget.fits(max(len(json.dumps(item, ensure_ascii=False)) - counted, 0))

    def reply(self) -> ModelReply:
        if not self.is_over or (self._stop_reason() == "completed" and self._begun.keys() - self._items.keys()):
            raise ModelError("cut", f"the reply from {self.provider} ended early", "retry")
        return self.partial_reply()

    def partial_reply(self) -> ModelReply:
        reason = self._stop_reason()
        items = self._items
        if self.is_over and reason != "completed":  # the truncated item may be only in the last event
            last = {at: item for at, item in enumerate(_dicts(self._end.get("output"))) if self._fits(item)}
            items = {**last, **items}
        elif not self.is_over:
            items = {**self._incomplete_items(), **items}
        parts = [part for _, item in sorted(items.items()) for part in self._parts(item)]
        stop = _STOP_REASONS.get(reason, "other")
        if stop == "end" and any(isinstance(part, ToolCall) for part in parts):
            stop = "tools"
        elif stop == "end" and any(_has_refusal(item) for item in items.values()):
            stop = "refusal"
        return ModelReply(
            message=Message("assistant", tuple(parts)),
            stop=stop,
            usage=parse_usage(_dict(self._end.get("usage"))),
            model=text_field(self._end, "model"),
            stop_reason=reason,
        )

    def _incomplete_items(self) -> dict[int, dict[str, Any]]:
        """The items of a stream that was cut, with what has arrived of them."""
        items: dict[int, dict[str, Any]] = {}
        for at, pieces in self._deltas.items():
            begun = self._begun.get(at, {"type": "message"})
            text = "".join(pieces)
            contents = {"summary": [{"text": text}], "content": [{"text": text}], "arguments": text}
            field = {"reasoning": "summary", "function_call": "arguments"}.get(begun["type"], "content")
            items[at] = {**begun, field: contents[field]}
        return items

    def _stop_reason(self) -> str:
        """`completed` only if the response and all of its calls are completed."""
        reason = str(_dict(self._end.get("incomplete_details")).get("reason") or "")
        calls = [item for item in self._items.values() if item.get("type") == "function_call"]
        states = [str(item.get("status") or "completed") for item in (self._end, *calls)]
        return reason or next((state for state in states if state != "completed"), self._end_kind)

    def _parts(self, item: dict[str, Any]) -> list[Part]:
        match item.get("type"):
            case "message":
                return [Text(text) for block in _dicts(item.get("content")) if (text := _block_text(block))]
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


def _block_text(block: dict[str, Any]) -> str:
    return text_field(block, "text") or text_field(block, "refusal")


def _has_refusal(item: dict[str, Any]) -> bool:
    return any(text_field(block, "refusal") for block in _dicts(item.get("content")))


def _dict(value: object) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _dicts(value: object) -> list[dict[str, Any]]:
    items = cast("list[object]", value) if isinstance(value, list) else []
    return [cast("dict[str, Any]", item) for item in items if isinstance(item, dict)]
