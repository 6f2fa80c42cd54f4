"""The server side of the three wire protocols: parses a request, renders a reply as events or as one document.

Used by server. Written from the providers' documentation, not from our adapters, so that each checks the other.
"""

import json
import os
from collections.abc import Iterator
from typing import Any, Literal, cast

from kitbag.messages import Usage
from kitbag.models.scripted import Seen, Step
from kitbag.text.tokens import estimate_tokens

Protocol = Literal["anthropic", "chat", "responses"]
PATHS: dict[str, Protocol] = {"messages": "anthropic", "chat/completions": "chat", "responses": "responses"}
_CHUNK_SIZE = 24
_STOP_REASONS: dict[Protocol, dict[str, str]] = {
    "anthropic": {"end": "end_turn", "tools": "tool_use", "length": "max_tokens", "refusal": "refusal"},
    "chat": {"end": "stop", "tools": "tool_calls", "length": "length", "refusal": "content_filter"},
    "responses": {},
}

WireEvent = tuple[str, dict[str, Any] | str]
"""The event's name (empty if the protocol has none) and its data."""


def _new_id(prefix: str) -> str:
    """A new id for each reply: clients treat messages with the same id as one message."""
    return f"{prefix}{os.urandom(12).hex()}"


def summarize_request(protocol: Protocol, body: dict[str, Any]) -> Seen:
    tools = tuple(
        str(_as_dict(tool.get("function")).get("name") or tool.get("name", "")) for tool in _dict_list(body, "tools")
    )
    items = _dict_list(body, "input") if protocol == "responses" else _dict_list(body, "messages")
    if protocol == "responses" and isinstance(body.get("input"), str):
        items = [{"type": "message", "role": "user", "content": body["input"]}]
    system = content_text(body.get("instructions") if protocol == "responses" else body.get("system"))
    system += "".join(
        content_text(item.get("content")) for item in items if item.get("role") in ("system", "developer")
    )
    conversation = [item for item in items if item.get("role") not in ("system", "developer")]
    turns, replying = 0, False
    for item in conversation:
        is_reply = item.get("role") == "assistant" or item.get("type") in ("function_call", "reasoning")
        turns += is_reply and not replying
        replying = is_reply
    tail: list[str] = []
    for item in reversed(conversation):
        if item.get("role") == "assistant" or item.get("type") in ("function_call", "reasoning"):
            break
        tail.insert(0, content_text(item.get("content", item.get("output"))))
    return Seen(
        system=system,
        last="\n".join(tail),
        first=content_text(conversation[0].get("content")) if conversation else "",
        turns=turns,
        tools=tools,
    )


def content_text(content: object) -> str:
    """All text in a message's content, including tool results."""
    if isinstance(content, str):
        return content
    pieces: list[str] = []
    for block in cast("list[object]", content) if isinstance(content, list) else []:
        fields = _as_dict(block)
        pieces.append(str(fields["text"]) if "text" in fields else content_text(fields.get("content")))
    return "\n".join(pieces)


def reply_usage(step: Step, body: dict[str, Any]) -> Usage:
    if step.usage is not None:
        return step.usage
    output_tokens = estimate_tokens(step.text + step.thinking + "".join(call[2] for call in step.calls))
    return Usage(input=estimate_tokens(json.dumps(body, ensure_ascii=False)), output=output_tokens)


def reply_events(protocol: Protocol, step: Step, usage: Usage, model: str) -> Iterator[WireEvent]:
    if protocol == "anthropic":
        yield from _anthropic_events(step, usage, model)
    elif protocol == "chat":
        yield from _chat_events(step, usage, model)
    else:
        yield from _response_events(step, usage, model)


def reply_document(protocol: Protocol, step: Step, usage: Usage, model: str) -> dict[str, Any]:
    """The reply to a request without streaming."""
    if protocol == "anthropic":
        return {
            "id": _new_id("msg_"), "type": "message", "role": "assistant", "model": model,
            "content": [block for _, block in _anthropic_blocks(step)],
            "stop_reason": _stop_reason("anthropic", step), "stop_sequence": None,
            "usage": _anthropic_usage(usage),
        }  # fmt: skip
    if protocol == "chat":
        message: dict[str, Any] = {"role": "assistant", "content": step.text or None}
        if step.calls:
            message["tool_calls"] = [_chat_call(at, call) for at, call in enumerate(step.calls)]
        choice = {"index": 0, "message": message, "finish_reason": _stop_reason("chat", step)}
        common = {"id": _new_id("chatcmpl-"), "object": "chat.completion", "created": 0, "model": model}
        return {**common, "choices": [choice], "usage": _chat_usage(usage)}
    return _response_document(step, usage, model, "completed", [item for _, item in _response_items(step)])


def _stop_reason(protocol: Protocol, step: Step) -> str:
    return step.stop_reason or _STOP_REASONS[protocol].get(step.ends_with, step.ends_with)


def _chunks(text: str) -> Iterator[str]:
    for start in range(0, len(text), _CHUNK_SIZE):
        yield text[start : start + _CHUNK_SIZE]


def _anthropic_usage(usage: Usage) -> dict[str, int]:
    return {
        "input_tokens": usage.input,
        "output_tokens": usage.output,
        "cache_read_input_tokens": usage.cache_read,
        "cache_creation_input_tokens": usage.cache_write,
    }


def _anthropic_blocks(step: Step) -> Iterator[tuple[str, dict[str, Any]]]:
    """Pairs of (the text that is streamed, the whole block)."""
    if step.thinking:
        yield step.thinking, {"type": "thinking", "thinking": step.thinking, "signature": "signed"}
    if step.text:
        yield step.text, {"type": "text", "text": step.text}
    for call_id, name, arguments in step.calls:
        try:
            value: Any = json.loads(arguments or "{}")
        except (ValueError, RecursionError):
            value = {}
        yield arguments, {"type": "tool_use", "id": call_id, "name": name, "input": value}


def _anthropic_events(step: Step, usage: Usage, model: str) -> Iterator[WireEvent]:
    message: dict[str, Any] = {
        "id": _new_id("msg_"), "type": "message", "role": "assistant", "model": model, "content": [],
        "stop_reason": None, "stop_sequence": None, "usage": {**_anthropic_usage(usage), "output_tokens": 1},
    }  # fmt: skip
    yield "message_start", {"type": "message_start", "message": message}
    yield "ping", {"type": "ping"}
    deltas = {"thinking": "thinking_delta", "text": "text_delta", "tool_use": "input_json_delta"}
    fields = {"thinking": "thinking", "text": "text", "tool_use": "partial_json"}
    for index, (streamed, block) in enumerate(_anthropic_blocks(step)):
        kind = block["type"]
        empty: dict[str, Any] = {**block, **({"input": {}} if kind == "tool_use" else {fields[kind]: ""})}
        if kind == "thinking":
            empty["signature"] = ""
        yield "content_block_start", {"type": "content_block_start", "index": index, "content_block": empty}
        for piece in _chunks(streamed):
            delta = {"type": deltas[kind], fields[kind]: piece}
            yield "content_block_delta", {"type": "content_block_delta", "index": index, "delta": delta}
        if kind == "thinking":
            delta = {"type": "signature_delta", "signature": "signed"}
            yield "content_block_delta", {"type": "content_block_delta", "index": index, "delta": delta}
        yield "content_block_stop", {"type": "content_block_stop", "index": index}
    delta = {"stop_reason": _stop_reason("anthropic", step), "stop_sequence": None}
    yield "message_delta", {"type": "message_delta", "delta": delta, "usage": {"output_tokens": usage.output}}
    yield "message_stop", {"type": "message_stop"}


def _chat_usage(usage: Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.total_input,
        "completion_tokens": usage.output,
        "total_tokens": usage.total_input + usage.output,
        "prompt_tokens_details": {"cached_tokens": usage.cache_read},
    }


def _chat_call(at: int, call: tuple[str, str, str]) -> dict[str, Any]:
    return {"index": at, "id": call[0], "type": "function", "function": {"name": call[1], "arguments": call[2]}}


def _chat_events(step: Step, usage: Usage, model: str) -> Iterator[WireEvent]:
    common = {"id": _new_id("chatcmpl-"), "object": "chat.completion.chunk", "created": 0, "model": model}

    def chunk(delta: dict[str, Any], finish: str | None = None) -> WireEvent:
        return "", {**common, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}

    yield chunk({"role": "assistant", "content": ""})
    for piece in _chunks(step.thinking):
        yield chunk({"reasoning_content": piece})
    for piece in _chunks(step.text):
        yield chunk({"content": piece})
    for at, call in enumerate(step.calls):
        yield chunk({"tool_calls": [_chat_call(at, (call[0], call[1], ""))]})
        for piece in _chunks(call[2]):
            yield chunk({"tool_calls": [{"index": at, "function": {"arguments": piece}}]})
    yield chunk({}, _stop_reason("chat", step))
    yield "", {**common, "choices": [], "usage": _chat_usage(usage)}
    yield "", "[DONE]"


def _response_items(step: Step) -> Iterator[tuple[str, dict[str, Any]]]:
    if step.thinking:
        summary = [{"type": "summary_text", "text": step.thinking}]
        item = {"type": "reasoning", "id": "rs_1", "summary": summary, "encrypted_content": "sealed"}
        yield step.thinking, item
    if step.text:
        content: list[dict[str, Any]] = [{"type": "output_text", "text": step.text, "annotations": []}]
        item = {"type": "message", "id": _new_id("msg_"), "role": "assistant", "status": "completed"}
        item |= {"content": content}
        yield step.text, item
    for call_id, qualified_name, arguments in step.calls:
        # `server/tool` is a tool in a namespace: some clients offer the tools of an MCP server this way.
        namespace, _, name = qualified_name.rpartition("/")
        item = {"type": "function_call", "id": f"fc_{call_id}", "call_id": call_id, "name": name}
        item |= {"namespace": namespace} if namespace else {}
        yield arguments, {**item, "arguments": arguments, "status": "completed"}


def _response_document(
    step: Step, usage: Usage, model: str, status: str, output: list[dict[str, Any]]
) -> dict[str, Any]:
    reasons = {"length": "max_output_tokens", "refusal": "content_filter", "other": "other"}
    reason = step.stop_reason or reasons.get(step.ends_with) if status != "in_progress" else None
    return {
        "id": _new_id("resp_"), "object": "response", "created_at": 0, "model": model, "output": output,
        "status": "incomplete" if reason else status, "incomplete_details": {"reason": reason} if reason else None,
        "error": None,
        "usage": {
            "input_tokens": usage.total_input, "input_tokens_details": {"cached_tokens": usage.cache_read},
            "output_tokens": usage.output, "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": usage.total_input + usage.output,
        },
    }  # fmt: skip


def _response_events(step: Step, usage: Usage, model: str) -> Iterator[WireEvent]:
    number = 0

    def event(kind: str, **fields: Any) -> WireEvent:
        nonlocal number
        number += 1
        return kind, {"type": kind, "sequence_number": number, **fields}

    yield event("response.created", response=_response_document(step, usage, model, "in_progress", []))
    kinds = {
        "reasoning": "response.reasoning_summary_text.delta",
        "message": "response.output_text.delta",
        "function_call": "response.function_call_arguments.delta",
    }
    items = list(_response_items(step))
    for index, (streamed, item) in enumerate(items):
        empty: dict[str, dict[str, Any]] = {
            "reasoning": {"summary": []},
            "message": {"content": []},
            "function_call": {"arguments": ""},
        }
        started: dict[str, Any] = {**item, **empty[item["type"]]}
        yield event("response.output_item.added", output_index=index, item=started)
        for piece in _chunks(streamed):
            index_field = {"summary_index": 0} if item["type"] == "reasoning" else {"content_index": 0}
            yield event(kinds[item["type"]], output_index=index, item_id=item["id"], delta=piece, **index_field)
        if item["type"] == "function_call":
            done = "response.function_call_arguments.done"
            yield event(done, output_index=index, item_id=item["id"], arguments=item["arguments"])
        yield event("response.output_item.done", output_index=index, item=item)
    document = _response_document(step, usage, model, "completed", [item for _, item in items])
    yield event(
        "response.incomplete" if document["status"] == "incomplete" else "response.completed", response=document
    )


def _as_dict(value: object) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _dict_list(body: dict[str, Any], name: str) -> list[dict[str, Any]]:
    value = body.get(name)
    items = cast("list[object]", value) if isinstance(value, list) else []
    return [cast("dict[str, Any]", item) for item in items if isinstance(item, dict)]
