"""The three wire protocols, over real sockets: what is sent, what is read, and every way a stream can break."""

import asyncio
import json
from collections.abc import Callable
from contextlib import aclosing
from typing import Any

import pytest

from kitbag.messages import Image, Message, Text, Thinking, ToolCall, ToolResult, Usage, user_message
from kitbag.models.adapters import anthropic, openai_chat, openai_responses
from kitbag.models.provider import (
    ModelError,
    ModelReply,
    ModelRequest,
    Provider,
    StopReason,
    StreamItem,
    SystemBlock,
    TextChunk,
    ThinkingChunk,
    ToolCallBegun,
    ToolSpec,
)
from kitbag.models.reply_limits import ReplyLimits
from kitbag.testing import Fault, ModelServer, Rule, Script, Step
from models.conftest import adapter
from support.waiting import TEST_TIMEOUT

Connect = Callable[..., Provider]
READ = ToolSpec(
    name="Read", description="Reads a file.", schema={"type": "object", "properties": {"file_path": {"type": "string"}}}
)
CALL = ("call_1", "Read", '{"file_path": "naïve 👩‍💻.txt"}')


def script(*steps: Step) -> Script:
    return Script([Rule(steps)])


def collect(provider: Provider, request: ModelRequest) -> list[StreamItem]:
    async def go() -> list[StreamItem]:
        try:
            async with aclosing(provider.stream(request)) as stream:
                return [piece async for piece in stream]
        finally:
            await provider.close()

    return asyncio.run(go())


def ask(*messages: Message, tools: tuple[ToolSpec, ...] = (READ,)) -> ModelRequest:
    return ModelRequest(
        model="some-model",
        system=(SystemBlock(text="Be brief.", cache=True), SystemBlock(text=" Today.")),
        messages=messages or (user_message("hi"),),
        tools=tools,
    )


def reply_of(pieces: list[StreamItem]) -> ModelReply:
    assert isinstance(pieces[-1], ModelReply)
    assert not any(isinstance(piece, ModelReply) for piece in pieces[:-1])
    return pieces[-1]


def test_text_comes_in_pieces_that_make_up_the_reply(connect: Connect) -> None:
    text = "Zwölf Boxkämpfer jagen Viktor. 数据库 👩‍💻 " * 10
    with ModelServer(script(Step(text=text, usage=Usage(input=10, output=20)))) as server:
        pieces = collect(connect(server), ask())
    assert "".join(piece.text for piece in pieces if isinstance(piece, TextChunk)) == text
    reply = reply_of(pieces)
    assert (reply.message, reply.stop, reply.usage.input, reply.usage.output) == (
        Message("assistant", (Text(text),)),
        "end",
        10,
        20,
    )


def test_tokens_from_the_cache_are_counted_once_and_not_as_input(connect: Connect) -> None:
    with ModelServer(script(Step(text="Hello.", usage=Usage(input=90, output=20, cache_read=1_000)))) as server:
        usage = reply_of(collect(connect(server), ask())).usage
    assert usage == Usage(input=90, output=20, cache_read=1_000)
    assert usage.total_input == 1_090


@pytest.mark.parametrize(
    ("told", "usage"),
    [
        ({"prompt_tokens": 100, "prompt_tokens_details": {"cached_tokens": 100}}, Usage(cache_read=100)),
        ({"prompt_tokens": 100, "prompt_tokens_details": {"cached_tokens": 300}}, Usage(cache_read=100)),
        ({"prompt_tokens": 100, "prompt_tokens_details": None}, Usage(input=100)),
        (
            {"input_tokens": 100, "input_tokens_details": {"cached_tokens": -5}, "output_tokens": 7},
            Usage(input=100, output=7),
        ),
        ({"prompt_tokens": None, "prompt_tokens_details": {"cached_tokens": 10}}, Usage()),
    ],
)
def test_openai_s_counts_never_add_up_to_more_than_the_whole_prompt(told: dict[str, Any], usage: Usage) -> None:
    assert openai_chat.parse_usage(told) == usage


def test_calls_come_with_their_arguments_read(connect: Connect) -> None:
    second = ("call_2", "Read", "")
    with ModelServer(script(Step(text="Look.", calls=(CALL, second)))) as server:
        pieces = collect(connect(server), ask())
    assert [piece for piece in pieces if isinstance(piece, ToolCallBegun)] == [
        ToolCallBegun("call_1", "Read"),
        ToolCallBegun("call_2", "Read"),
    ]
    reply = reply_of(pieces)
    assert reply.stop == "tools"
    assert reply.message.calls == (
        ToolCall(id="call_1", name="Read", arguments={"file_path": "naïve 👩‍💻.txt"}),
        ToolCall(id="call_2", name="Read", arguments={}),
    )


def test_what_the_model_thought_is_streamed_and_given_back_to_the_same_provider_only(connect: Connect) -> None:
    steps = (Step(thinking="Hmm, a file.", text="Look.", calls=(CALL,)), Step(text="Done."))
    with ModelServer(script(*steps)) as server:
        provider = connect(server)
        pieces = collect(provider, ask())
        assert "".join(piece.text for piece in pieces if isinstance(piece, ThinkingChunk)) == "Hmm, a file."
        thought = reply_of(pieces).message
        result = Message("user", (ToolResult(call_id="call_1", content=(Text("contents"),)),))
        collect(provider, ask(user_message("hi"), thought, result))
        foreign = Message(
            "assistant", (Thinking(text="Secret.", provider="somebody-else", opaque="sealed"), *thought.parts[1:])
        )
        collect(provider, ask(user_message("hi"), foreign, result))
    own, other = (json.dumps(received.body) for received in server.requests[1:])
    if any(isinstance(part, Thinking) and part.opaque for part in thought.parts):
        assert "signed" in own or "sealed" in own
    assert "Secret." not in other
    assert "sealed" not in other


def test_a_whole_conversation_arrives_as_it_was(connect: Connect) -> None:
    picture = Image(media_type="image/png", data="aGVsbG8=")
    talk = (
        Message("user", (Text("What is this?"), picture)),
        Message("assistant", (Text("I look."), ToolCall(id="call_1", name="Read", arguments={"file_path": "x"}))),
        Message(
            "user",
            (ToolResult(call_id="call_1", content=(Text("a result"), picture), is_error=True), Text("and go on")),
        ),
    )
    with ModelServer(
        Script([Rule([Step(text="no")], first="nothing like it"), Rule([Step(), Step(text="yes")])])
    ) as server:
        reply = reply_of(collect(connect(server), ask(*talk)))
    sent = json.dumps(server.requests[0].body)
    assert reply.message.text == "yes"
    assert sent.count("aGVsbG8=") == 2
    for piece in ("Be brief.", " Today.", "What is this?", "I look.", "a result", "and go on", "Reads a file."):
        assert sent.count(piece) == 1, piece
    assert server.requests[0].body["model"] == "some-model"


def test_every_byte_may_come_alone_and_lines_may_end_in_two_characters(connect: Connect) -> None:
    text = "naïve 👩‍💻 数据库"
    with ModelServer(script(Step(text=text, calls=(CALL,))), chunk=1, newline="\r\n") as server:
        pieces = collect(connect(server), ask())
    assert "".join(piece.text for piece in pieces if isinstance(piece, TextChunk)) == text
    assert reply_of(pieces).message.calls[0].arguments == {"file_path": "naïve 👩‍💻.txt"}


def test_events_that_nobody_knows_change_nothing(connect: Connect) -> None:
    step = Step(text="hello", calls=(CALL,), fault=Fault(kind="unknown-events"))
    with ModelServer(script(step)) as server:
        pieces = collect(connect(server), ask())
    assert reply_of(pieces).message.text == "hello"
    assert "".join(piece.text for piece in pieces if isinstance(piece, TextChunk)) == "hello"


@pytest.mark.parametrize("kind", ["cut-text", "cut-call", "no-end", "reset"])
def test_a_stream_that_breaks_off_is_no_reply(connect: Connect, kind: str) -> None:
    step = Step(text="half of this " * 20, calls=(CALL,), fault=Fault(kind=kind))
    with ModelServer(script(step)) as server, pytest.raises(ModelError) as failure:
        collect(connect(server), ask())
    assert failure.value.kind == "cut"
    assert failure.value.is_retryable


def test_an_error_inside_a_stream_is_told_with_its_reason(connect: Connect) -> None:
    step = Step(text="half of this " * 20, fault=Fault(kind="error-event"))
    with ModelServer(script(step)) as server, pytest.raises(ModelError) as failure:
        collect(connect(server), ask())
    assert failure.value.is_retryable
    assert "as scripted" in failure.value.problem


def test_a_stream_that_falls_silent_is_given_up(connect: Connect) -> None:
    step = Step(text="half of this " * 20, fault=Fault(kind="idle", seconds=30))
    with ModelServer(script(step)) as server, pytest.raises(ModelError) as failure:
        collect(connect(server, 0.3), ask())
    assert failure.value.kind == "stalled"
    assert "sent no data" in failure.value.problem


@pytest.mark.parametrize(
    ("status", "headers", "body", "kind", "wait"),
    [
        (429, {"retry-after": "7"}, "", "overloaded", 7.0),
        (429, {"retry-after": "-3"}, "", "overloaded", 0.0),
        (429, {"retry-after": "soon", "x-ratelimit-reset": "1"}, "", "overloaded", None),
        (429, {}, "", "spent", None),
        (429, {"retry-after": "7"}, '{"error": {"message": "You exceeded your current quota"}}', "spent", 7.0),
        (529, {}, "", "overloaded", None),
        (500, {}, "<html>oops</html>", "transient", None),
        (503, {}, "", "transient", None),
        (408, {}, "", "transient", None),
        (400, {}, '{"error": {"message": "bad field"}}', "bad-request", None),
        (400, {}, '{"error": {"message": "prompt is too long: 210000 tokens"}}', "too-long", None),
        (400, {}, '{"error": {"message": "Your credit balance is too low to access the API"}}', "spent", None),
        (401, {}, "", "auth", None),
        (403, {}, "", "auth", None),
        (404, {}, "", "bad-request", None),
        (302, {"location": "http://example.invalid/"}, "", "bad-request", None),
    ],
)
def test_each_answer_that_is_no_success_is_sorted(
    connect: Connect, status: int, headers: dict[str, str], body: str, kind: str, wait: float | None
) -> None:
    fault = Fault(status=status, headers=headers, body=body, times=9)
    with ModelServer(script(Step(fault=fault))) as server, pytest.raises(ModelError) as failure:
        collect(connect(server), ask())
    assert (failure.value.kind, failure.value.retry_after, failure.value.status) == (kind, wait, status)
    assert str(status) in failure.value.problem


def test_a_date_to_come_back_at_is_understood(connect: Connect) -> None:
    from email.utils import formatdate
    from time import time

    fault = Fault(status=429, headers={"retry-after": formatdate(time() + 100, usegmt=True)})
    with ModelServer(script(Step(fault=fault))) as server, pytest.raises(ModelError) as failure:
        collect(connect(server), ask())
    assert failure.value.retry_after is not None
    assert 50 < failure.value.retry_after <= 101


def test_nobody_at_the_address_is_unreachable(connect: Connect) -> None:
    with ModelServer(script(Step())) as server:
        provider = connect(server)
    with pytest.raises(ModelError) as failure:
        collect(provider, ask())
    assert failure.value.kind == "unreachable"


@pytest.mark.parametrize(
    "arguments",
    ['{"a": 1', "[1]", '{"a": NaN}', '{"a": 1e400}', '"x"', '{"a": "\\ud800"}', '{"a":1,"a":2}', "[" * 2000],
)
def test_arguments_that_are_not_one_sound_object_are_never_passed_on(connect: Connect, arguments: str) -> None:
    step = Step(calls=(("call_1", "Read", arguments), ("call_2", "Read", '{"file_path": "ok"}')))
    with ModelServer(script(step)) as server:
        calls = reply_of(collect(connect(server), ask())).message.calls
    assert calls[0].problem
    assert calls[0].arguments == {}
    assert calls[1] == ToolCall(id="call_2", name="Read", arguments={"file_path": "ok"})


@pytest.mark.parametrize("name", ["", "Re ad", "Read\0", "x" * 200, "выполнить"])
def test_a_name_that_no_provider_would_take_back_is_not_kept(connect: Connect, name: str) -> None:
    with ModelServer(script(Step(calls=(("call_1", name, "{}"),)))) as server:
        call = reply_of(collect(connect(server), ask())).message.calls[0]
    assert call.name == "invalid_tool_name"
    assert call.problem


@pytest.mark.parametrize("arguments", ['{"file_path": "a', '{"file_path": "a"}'])
@pytest.mark.parametrize("stop", ["length", "refusal", "other"])
def test_a_reply_that_is_cut_off_says_so(connect: Connect, stop: StopReason, arguments: str) -> None:
    step = Step(text="half", calls=(("call_1", "Read", arguments),), stop=stop)
    with ModelServer(script(step)) as server:
        reply = reply_of(collect(connect(server), ask()))
    assert (reply.stop, reply.is_complete) == (stop, False)
    assert [call.id for call in reply.message.calls] == ["call_1"]


STOPS: dict[str, dict[str, StopReason]] = {
    "anthropic": {
        "tool_use": "tools", "end_turn": "end", "stop_sequence": "end", "max_tokens": "length",
        "model_context_window_exceeded": "context", "refusal": "refusal", "pause_turn": "pause", "stop": "other",
    },
    "chat": {
        "tool_calls": "tools", "stop": "tools", "function_call": "tools", "length": "length",
        "content_filter": "refusal", "error": "other", "STOP": "other", "end_turn": "other",
    },
    "responses": {"max_output_tokens": "length", "content_filter": "refusal", "steered": "other"},
}  # fmt: skip


@pytest.mark.parametrize(
    ("wire", "word", "stop"), [(wire, word, stop) for wire, stops in STOPS.items() for word, stop in stops.items()]
)
def test_each_stop_reason_is_known_or_is_no_complete_end(wire: str, word: str, stop: StopReason) -> None:
    with ModelServer(script(Step(calls=(CALL,), stop_reason=word))) as server:
        reply = reply_of(collect(adapter(wire, server), ask()))
    assert (reply.stop, reply.stop_reason) == (stop, word)
    assert reply.is_complete == (stop in ("end", "tools"))


RUN: dict[str, Any] = {"type": "function_call", "call_id": "c1", "name": "Bash", "arguments": "{}"}


@pytest.mark.parametrize(
    ("kind", "status", "details", "item", "stop"),
    [
        ("completed", "completed", None, "completed", "tools"),
        ("completed", None, None, None, "tools"),
        ("completed", "incomplete", None, "completed", "length"),
        ("completed", "completed", {"reason": "max_output_tokens"}, "completed", "length"),
        ("completed", "cancelled", None, "completed", "other"),
        ("completed", "completed", None, "in_progress", "other"),
        ("completed", "completed", None, "incomplete", "length"),
        ("incomplete", "incomplete", None, "completed", "length"),
        ("incomplete", None, None, None, "length"),
        ("incomplete", "completed", None, "completed", "length"),
        ("incomplete", "incomplete", {"reason": "content_filter"}, "incomplete", "refusal"),
    ],
)
def test_a_response_is_complete_only_where_nothing_in_it_says_otherwise(
    kind: str, status: str | None, details: dict[str, str] | None, item: str | None, stop: str
) -> None:
    reader = openai_responses._StreamParser("openai", ReplyLimits())
    end = {"status": status, "incomplete_details": details}
    reader.read({"type": "response.output_item.added", "output_index": 0, "item": RUN})
    reader.read({"type": "response.output_item.done", "output_index": 0, "item": {**RUN, "status": item}})
    reader.read({"type": f"response.{kind}", "response": end})
    assert reader.reply().stop == stop


def test_the_item_at_the_cut_may_be_in_the_last_event_only_or_nowhere() -> None:
    for output, calls in (([RUN], 1), ([], 0)):
        reader = openai_responses._StreamParser("openai", ReplyLimits())
        reader.read({"type": "response.output_item.added", "output_index": 0, "item": RUN})
        reader.read({"type": "response.incomplete", "response": {"status": "incomplete", "output": output}})
        reply = reader.reply()
        assert (reply.stop, len(reply.message.calls)) == ("length", calls)


def test_a_message_that_stops_without_a_reason_is_not_complete() -> None:
    reader = anthropic._StreamParser("anthropic", ReplyLimits())
    block = {"type": "tool_use", "id": "c1", "name": "Bash", "input": {}}
    reader.read({"type": "content_block_start", "index": 0, "content_block": block})
    reader.read({"type": "content_block_stop", "index": 0})
    reader.read({"type": "message_stop"})
    assert (reader.reply().stop, reader.reply().stop_reason) == ("other", "")


def test_leaving_early_closes_the_connection(connect: Connect) -> None:
    with ModelServer(script(Step(text="x" * 1000, fault=Fault(kind="idle", seconds=3_600)))) as server:
        provider = connect(server)

        async def go() -> None:
            async with aclosing(provider.stream(ask())) as stream:
                async for _ in stream:
                    break
            await provider.close()

        asyncio.run(asyncio.wait_for(go(), TEST_TIMEOUT))


def test_a_long_conversation_is_encoded_once(connect: Connect) -> None:
    talk = [
        message for at in range(20) for message in (user_message(f"question {at}"), Message("assistant", (Text("a"),)))
    ]
    steps = [Step(text=f"reply {at}") for at in range(30)]
    with ModelServer(script(*steps)) as server:
        provider = connect(server)

        async def go() -> None:
            for extra in (user_message("one"), user_message("two")):
                async with aclosing(provider.stream(ask(*talk, extra))) as stream:
                    async for _ in stream:
                        pass
            await provider.close()

        asyncio.run(go())
    first, second = (json.dumps(received.body) for received in server.requests)
    assert first.replace("one", "two") == second
