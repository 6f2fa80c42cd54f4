"""Replies without an end, over real sockets: each is cut at a limit, and what has arrived is kept."""

import gzip
import itertools
import json
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kitbag.messages import Text, Thinking
from kitbag.models.adapters.server_sent_events import MAX_EVENT_BYTES
from kitbag.models.provider import ModelError, ModelReply, Provider, TextChunk
from kitbag.models.reply_limits import MAX_BLOCKS, ReplyLimits
from models.test_adapters import ask, collect, reply_of
from support.hostile_server import HostileServer, event, respond, stream
from support.matrix import sample

Connect = Callable[..., Provider]
WORDS = "lots of words " * 100
LIMITS = ReplyLimits(characters=100_000)


def start(wire: str) -> bytes:
    if wire == "anthropic":
        return event({"type": "message_start", "message": {"model": "m", "usage": {"input_tokens": 7}}})
    return event({"type": "response.created"}) if wire == "responses" else b""


def anthropic_block(kind: str, index: int = 0) -> bytes:
    block = {"type": kind, "id": "c1", "name": "Read", "text": "", "thinking": ""}
    return event({"type": "content_block_start", "index": index, "content_block": block})


def anthropic_delta(kind: str, field: str, text: str) -> bytes:
    return event({"type": "content_block_delta", "index": 0, "delta": {"type": kind, field: text}})


def chat_delta(**delta: Any) -> bytes:
    return event({"choices": [{"delta": delta, "finish_reason": None}]})


def item(kind: str, index: int = 0) -> bytes:
    fields = {"type": kind, "id": "i", "call_id": "c1", "name": "Read"}
    return event({"type": "response.output_item.added", "output_index": index, "item": fields})


def response_delta(kind: str, text: str) -> bytes:
    return event({"type": f"response.{kind}.delta", "output_index": 0, "delta": text})


def chat_arguments(text: str) -> bytes:
    return chat_delta(tool_calls=[{"index": 0, "id": "c1", "function": {"name": "Read", "arguments": text}}])


TEXT = {
    "anthropic": (anthropic_block("text"), anthropic_delta("text_delta", "text", WORDS)),
    "chat": (b"", chat_delta(content=WORDS)),
    "responses": (item("message"), response_delta("output_text", WORDS)),
}
THINKING = {
    "anthropic": (anthropic_block("thinking"), anthropic_delta("thinking_delta", "thinking", WORDS)),
    "chat": (b"", chat_delta(reasoning_content=WORDS)),
    "responses": (item("reasoning"), response_delta("reasoning_summary_text", WORDS)),
}
ARGUMENTS = {
    "anthropic": (anthropic_block("tool_use"), anthropic_delta("input_json_delta", "partial_json", f'{{"a": "{WORDS}')),
    "chat": (b"", chat_arguments(WORDS)),
    "responses": (item("function_call"), response_delta("function_call_arguments", WORDS)),
}


def endless(wire: str, first: bytes, repeated: bytes) -> HostileServer:
    def chunks() -> Iterator[bytes]:
        yield start(wire) + first
        yield from itertools.repeat(repeated * 20)

    return HostileServer(stream(chunks))


def cut(connect: Connect, server: HostileServer, limits: ReplyLimits = LIMITS) -> ModelReply:
    with server:
        return reply_of(collect(connect(server, limits=limits), ask()))


@pytest.mark.parametrize("kind", ["text", "thinking", "arguments"])
def test_endless_content_is_cut_and_what_arrived_is_kept(connect: Connect, wire: str, kind: str) -> None:
    first, repeated = {"text": TEXT, "thinking": THINKING, "arguments": ARGUMENTS}[kind][wire]
    reply = cut(connect, endless(wire, first, repeated))
    assert (reply.stop, reply.is_complete) == ("limit", False)
    assert reply.stop_reason == "it is longer than 100,000 characters"
    if kind == "text":
        [part] = reply.message.parts
        assert isinstance(part, Text)
        assert 99_000 < len(part.text) <= 100_000
        assert part.text.startswith(WORDS)
    elif kind == "thinking":
        [thought] = reply.message.parts
        assert isinstance(thought, Thinking)
        assert thought.text.startswith(WORDS)
    else:
        [call] = reply.message.calls
        assert (call.id, call.name, call.arguments, bool(call.problem)) == ("c1", "Read", {}, True)
        assert len(call.raw) <= 2_000


def test_the_streamed_text_is_what_is_kept(connect: Connect, wire: str) -> None:
    with endless(wire, *TEXT[wire]) as server:
        pieces = collect(connect(server, limits=LIMITS), ask())
    assert "".join(piece.text for piece in pieces if isinstance(piece, TextChunk)) == reply_of(pieces).message.text


def blocks(wire: str) -> Iterator[bytes]:
    for number in itertools.count():
        if wire == "anthropic":
            yield anthropic_block("tool_use", number)
        elif wire == "chat":
            yield chat_delta(tool_calls=[{"index": number, "id": f"c{number}", "function": {"name": "Read"}}])
        else:
            done = {"type": "function_call", "call_id": f"c{number}", "name": "Read", "arguments": "{}"}
            yield event({"type": "response.output_item.done", "output_index": number, "item": done})


def test_endless_content_blocks_are_cut(connect: Connect, wire: str) -> None:
    reply = cut(connect, HostileServer(stream(lambda: itertools.chain([start(wire)], blocks(wire)))))
    assert (reply.stop, len(reply.message.calls)) == ("limit", MAX_BLOCKS)
    assert "content blocks" in reply.stop_reason


GARBAGE = {
    "comments": b": ping\n" * 500,
    "pings": event({"type": "ping"}, "ping") * 100,
    "empty lines": b"\n" * 4_000,
    "unknown fields": b"id: 1\nretry: 5\n" * 200,
    "empty deltas": chat_delta(content="") * 20 + response_delta("output_text", "") + anthropic_delta("text_delta", "text", ""),
}  # fmt: skip


@pytest.mark.parametrize("kind", sample(GARBAGE, 2))
def test_a_stream_that_says_nothing_forever_ends_by_its_size(connect: Connect, wire: str, kind: str) -> None:
    limits = ReplyLimits(characters=20_000)
    with endless(wire, b": hello\n\n", GARBAGE[kind]) as server, pytest.raises(ModelError) as caught:
        collect(connect(server, limits=limits), ask())
    assert (caught.value.kind, caught.value.is_retryable) == ("limit", False)
    assert "larger than 1 MB" in caught.value.problem
    assert "limits.reply" in caught.value.fix


@pytest.mark.parametrize("kind", ["text", "comments"])
def test_a_stream_that_goes_on_too_long_ends_by_its_time(connect: Connect, wire: str, kind: str) -> None:
    def slow() -> Iterator[bytes | None]:
        yield start(wire) + b"".join(TEXT[wire] if kind == "text" else ())
        yield None  # nothing more

    limits = ReplyLimits(reply=0.2)
    with HostileServer(stream(slow)) as server:
        provider = connect(server, limits=limits)
        if kind == "text":
            reply = reply_of(collect(provider, ask()))
            assert (reply.stop, reply.message.text) == ("limit", WORDS)
            assert "took longer" in reply.stop_reason
        else:
            with pytest.raises(ModelError) as caught:
                collect(provider, ask())
            assert caught.value.kind in ("limit", "stalled")


def test_a_line_without_an_end_is_cut_and_the_text_before_it_is_kept(connect: Connect, wire: str) -> None:
    def chunks() -> Iterator[bytes]:
        yield start(wire) + b"".join(TEXT[wire]) + b"data: "
        yield from itertools.repeat(b"x" * 65_536)

    with HostileServer(stream(chunks)) as server:
        tracemalloc.start()
        try:
            reply = reply_of(collect(connect(server), ask()))
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert (reply.stop, reply.message.text) == ("limit", WORDS)
    assert "event larger than" in reply.stop_reason
    assert peak < 4 * MAX_EVENT_BYTES


def test_memory_stays_bounded_however_much_is_sent(connect: Connect, wire: str) -> None:
    with endless(wire, *TEXT[wire]) as server:
        tracemalloc.start()
        try:
            collect(connect(server, limits=ReplyLimits(characters=500_000)), ask())
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert peak < 16 << 20


def test_a_compressed_bomb_is_not_unpacked(connect: Connect) -> None:
    bomb = gzip.compress(b"\0" * (50 << 20))
    with HostileServer(respond(bomb, content_encoding="gzip")) as server:
        tracemalloc.start()
        try:
            with pytest.raises(ModelError) as caught:
                collect(connect(server), ask())
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert (caught.value.kind, "compressed response (gzip)" in caught.value.problem) == ("bad-request", True)
    assert peak < 8 << 20


def test_neither_is_one_that_comes_through_a_proxy(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    bomb = gzip.compress(b"\0" * (50 << 20))
    with HostileServer(respond(bomb, content_encoding="gzip")) as server:
        for name in ("NO_PROXY", "no_proxy"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("HTTP_PROXY", server.url)
        with pytest.raises(ModelError) as caught:
            collect(connect(server), ask())
    assert "compressed response (gzip)" in caught.value.problem


def test_usage_that_is_nonsense_counts_nothing(connect: Connect, wire: str) -> None:
    usage = {"input_tokens": -5, "prompt_tokens": 10**30, "output_tokens": True, "completion_tokens": "7"}
    events = {
        "anthropic": [
            {"type": "message_start", "message": {"usage": usage}},
            {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": usage},
            {"type": "message_stop"},
        ],
        "chat": [{"choices": [{"delta": {"content": "x"}, "finish_reason": "stop"}], "usage": usage}],
        "responses": [{"type": "response.completed", "response": {"usage": usage, "status": "completed"}}],
    }[wire]
    body = b"".join(event(json.dumps(one)) for one in events)
    with HostileServer(respond(body)) as server:
        used = reply_of(collect(connect(server), ask())).usage
    assert (used.input, used.output) == (0, 0)
