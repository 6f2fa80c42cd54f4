"""The adapter for every other provider, with pydantic-ai itself: its function model, and its OpenAI model over sockets.

The project's own environment need not have the extra `models`; then only what happens without it is tested.
"""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import aclosing
from importlib.util import find_spec
from typing import Any

import msgspec
import pytest

from kitbag.errors import InvalidError
from kitbag.messages import Image, Message, Text, Thinking, ToolCall, ToolResult, Usage, user_message
from kitbag.models.adapters.pydantic_ai import PydanticAI
from kitbag.models.provider import (
    ModelError,
    ModelReply,
    ModelRequest,
    Provider,
    StreamItem,
    SystemBlock,
    TextChunk,
    ThinkingChunk,
    ToolCallBegun,
    ToolSpec,
)
from kitbag.models.reply_limits import ReplyLimits
from kitbag.testing import Fault, ModelServer, Rule, Script, Step
from support import needs
from support.waiting import TEST_TIMEOUT

library = pytest.mark.usefixtures("pydantic_ai_is_there")
openai = pytest.mark.usefixtures("pydantic_ai_is_there", "openai_is_there")
READ = ToolSpec(
    name="Read", description="Reads a file.", schema={"type": "object", "properties": {"file_path": {"type": "string"}}}
)
CALL = ("call_1", "Read", '{"file_path": "naïve 👩‍💻.txt"}')


@pytest.fixture
def pydantic_ai_is_there() -> None:
    needs.package("pydantic_ai")


@pytest.fixture
def openai_is_there() -> None:
    needs.package("openai")


def ask(*messages: Message, **options: Any) -> ModelRequest:
    blocks = (SystemBlock(text="Be brief.\n\n", cache=True), SystemBlock(text="Today is Monday.\n"))
    return msgspec.structs.replace(
        ModelRequest(model="some-model", system=blocks, messages=messages or (user_message("hi"),), tools=(READ,)),
        **options,
    )


def collect(provider: Provider, request: ModelRequest) -> list[StreamItem]:
    async def go() -> list[StreamItem]:
        try:
            async with aclosing(provider.stream(request)) as stream:
                return [piece async for piece in stream]
        finally:
            await provider.close()

    return asyncio.run(go())


def reply_of(pieces: list[StreamItem]) -> ModelReply:
    assert isinstance(pieces[-1], ModelReply)
    assert not any(isinstance(piece, ModelReply) for piece in pieces[:-1])
    return pieces[-1]


def told(pieces: list[StreamItem], kind: type[TextChunk] | type[ThinkingChunk]) -> str:
    return "".join(piece.text for piece in pieces if isinstance(piece, kind))


# -- without it --------------------------------------------------------------------------------------


def test_without_the_library_the_error_says_what_to_install() -> None:
    script = (
        "import sys\nsys.modules['pydantic_ai'] = None\n"
        "from kitbag.errors import InvalidError\nfrom kitbag.models.adapters.pydantic_ai import PydanticAI\n"
        "try:\n    PydanticAI('groq')\n"
        "except InvalidError as error:\n    print(error.problem, '|', error.fix)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout == (
        "groq models require pydantic-ai, which is not installed | pip install 'kitbag[models]', or choose another model\n"
    ), done.stderr


@pytest.mark.skipif(find_spec("pydantic_ai") is not None, reason="the extra `models` is installed")
def test_in_this_environment_too() -> None:
    with pytest.raises(InvalidError, match="pydantic-ai"):
        PydanticAI("groq")


# -- the function model ------------------------------------------------------------------------------


class Recorded:
    """A function model that says what it is given, and keeps what it was asked."""

    def __init__(self, *said: Any) -> None:
        from pydantic_ai.models.function import FunctionModel

        self.said = said
        self.messages: list[Any] = []
        self.info: Any = None
        self.closed = False
        self.model = FunctionModel(stream_function=self._stream)

    async def _stream(self, messages: list[Any], info: Any) -> AsyncIterator[Any]:
        self.messages, self.info = messages, info
        try:
            for piece in self.said:
                if isinstance(piece, Exception):
                    raise piece
                yield piece
        finally:
            self.closed = True


def function(*said: Any) -> tuple[PydanticAI, Recorded]:
    recorded = Recorded(*said)
    return PydanticAI("function", recorded.model), recorded


@library
def test_pieces_come_as_they_are_said_and_make_up_the_reply() -> None:
    from pydantic_ai.models.function import DeltaThinkingPart, DeltaToolCall

    provider, _ = function(
        {0: DeltaThinkingPart(content="Hmm, ")},
        {0: DeltaThinkingPart(content="a file.", signature="signed")},
        "Look",
        " here.",
        {2: DeltaToolCall(name="Read", json_args='{"file_path"', tool_call_id="call_1")},
        {2: DeltaToolCall(json_args=': "x"}')},
        {3: DeltaToolCall(name="Read", json_args="", tool_call_id="call_2")},
    )
    pieces = collect(provider, ask())
    assert (told(pieces, ThinkingChunk), told(pieces, TextChunk)) == ("Hmm, a file.", "Look here.")
    assert [piece for piece in pieces if isinstance(piece, ToolCallBegun)] == [
        ToolCallBegun("call_1", "Read"),
        ToolCallBegun("call_2", "Read"),
    ]
    reply = reply_of(pieces)
    assert reply.stop == "tools"
    thought, text, *calls = reply.message.parts
    assert isinstance(thought, Thinking)
    assert (thought.text, thought.provider, json.loads(thought.opaque)["signature"]) == (
        "Hmm, a file.",
        "function",
        "signed",
    )
    assert [text, *calls] == [
        Text("Look here."),
        ToolCall(id="call_1", name="Read", arguments={"file_path": "x"}),
        ToolCall(id="call_2", name="Read", arguments={}),
    ]
    assert reply.usage.input > 0
    assert reply.usage.output > 0


@library
def test_a_conversation_arrives_as_it_was() -> None:
    provider, recorded = function("ok")
    picture = Image(media_type="image/png", data="aGVsbG8=")
    talk = (
        Message("user", (Text("What is this?"), picture)),
        Message(
            "assistant",
            (
                Thinking(text="Mine.", provider="function", opaque='{"signature": "signed"}'),
                Thinking(text="Foreign.", provider="somebody-else", opaque='{"signature": "x"}'),
                Thinking(text="Unsigned.", provider="function"),
                Text("I look."),
                ToolCall(id="call_1", name="Read", arguments={"file_path": "x"}),
                ToolCall(id="call_2", name="Read", arguments={}, problem="not JSON", raw="{"),
            ),
        ),
        Message(
            "user",
            (
                ToolResult(call_id="call_1", content=(Text("a result"), picture), is_error=True),
                ToolResult(call_id="call_2", content=(Text("b"), Text("c"))),
                Text("go on"),
            ),
        ),
    )
    collect(provider, ask(*talk))
    assert recorded.info.instructions == "Be brief.\n\nToday is Monday."
    assert [(tool.name, tool.description, tool.parameters_json_schema) for tool in recorded.info.function_tools] == [
        (READ.name, READ.description, READ.schema)
    ]
    first, said, last = recorded.messages
    assert first.parts[0].content[0] == "What is this?"
    assert (first.parts[0].content[1].data, first.parts[0].content[1].media_type) == (b"hello", "image/png")
    assert [part.part_kind for part in said.parts] == ["thinking", "text", "tool-call", "tool-call"]
    assert (said.parts[0].content, said.parts[0].signature) == ("Mine.", "signed")
    assert (said.parts[2].tool_name, said.parts[2].args, said.parts[2].tool_call_id) == (
        "Read",
        {"file_path": "x"},
        "call_1",
    )
    failed, fine, spoken = last.parts
    assert (failed.tool_name, failed.tool_call_id, failed.outcome, failed.content[0]) == (
        "Read",
        "call_1",
        "failed",
        "a result",
    )
    assert failed.content[1].data == b"hello"
    assert (fine.outcome, fine.content) == ("success", "b\nc")
    assert spoken.content == ["go on"]


@library
def test_what_belongs_to_a_call_or_a_text_goes_back_with_it() -> None:
    from pydantic_ai.messages import TextPart, ToolCallPart

    from kitbag.models.adapters import pydantic_ai as adapter

    call = ToolCallPart(
        "Read",
        '{"file_path": "x"}',
        "call_1",
        id="item",
        provider_name="google",
        provider_details={"thought_signature": "abc"},
    )
    text = TextPart("Look.", provider_name="google", provider_details={"thought_signature": "def"})
    kept = Message("assistant", tuple(part for one in (text, call) for part in adapter._read_parts(one, "google")))
    assert [type(part) for part in kept.parts] == [Thinking, Text, Thinking, ToolCall]
    provider, recorded = function("ok")
    provider.name = "google"
    result = Message("user", (ToolResult(call_id="call_1", content=(Text("r"),)),))
    collect(provider, ask(user_message("hi"), kept, result))
    said = recorded.messages[1]
    assert [part.part_kind for part in said.parts] == ["text", "tool-call"]
    assert said.parts[0].provider_details == {"thought_signature": "def"}
    assert (said.parts[1].provider_details, said.parts[1].id, said.parts[1].provider_name) == (
        {"thought_signature": "abc"},
        "item",
        "google",
    )
    provider.name = "other"
    collect(provider, ask(user_message("hi"), kept, result))
    assert recorded.messages[1].parts[1].provider_details is None


@library
@pytest.mark.parametrize("opaque", ["", "{", "[1]", '{"for": "nobody"}', "[" * 5_000, '{"unknown": 1}', "scripted"])
def test_a_thought_that_can_t_be_opened_is_no_matter(opaque: str) -> None:
    provider, recorded = function("ok")
    collect(
        provider,
        ask(
            user_message("hi"),
            Message("assistant", (Thinking(text="t", provider="function", opaque=opaque), Text("x"))),
            user_message("go on"),
        ),
    )
    assert recorded.messages[1].parts[-1].content == "x"


@library
def test_a_broken_image_is_told_as_text() -> None:
    provider, recorded = function("ok")
    collect(provider, ask(Message("user", (Image(media_type="image/png", data="x"),))))
    assert recorded.messages[0].parts[0].content == ["(unreadable image)"]


@library
def test_settings_carry_limits_effort_and_cache() -> None:
    from pydantic_ai.models.test import TestModel

    from kitbag.models.adapters import pydantic_ai as adapter

    model = TestModel()
    assert adapter._model_settings(ask(max_output=77, effort="high"), model) == {
        "max_tokens": 77, "cache": True, "thinking": "high", "max_retries": 0,
    }  # fmt: skip
    assert adapter._model_settings(ask(effort="absurd", system=()), model) == {"max_tokens": 8192, "max_retries": 0}
    assert (
        reply_of(collect(PydanticAI("test", TestModel(call_tools=[], custom_output_text="hello")), ask())).message.text
        == "hello"
    )


@library
@pytest.mark.parametrize(
    "arguments",
    ['{"a": 1', "[1]", '{"a": NaN}', '{"a": 1e400}', '"x"', '{"a": "\\ud800"}', '{"a":1,"a":2}', "[" * 2_000],
)
def test_arguments_that_are_not_one_sound_object_are_never_passed_on(arguments: str) -> None:
    from pydantic_ai.models.function import DeltaToolCall

    provider, _ = function(
        {0: DeltaToolCall(name="Read", json_args=arguments, tool_call_id="call_1")},
        {1: DeltaToolCall(name="Read", json_args="{}", tool_call_id="call_2")},
    )
    broken, sound = reply_of(collect(provider, ask())).message.calls
    assert broken.problem
    assert broken.arguments == {}
    assert sound == ToolCall(id="call_2", name="Read", arguments={})


@library
def test_each_error_of_the_library_is_sorted() -> None:
    from pydantic_ai import exceptions as known

    http = known.ModelHTTPError
    cases: list[tuple[Exception, str]] = [
        (http(500, "m", "oops"), "transient"),
        (http(404, "m", "no such model"), "bad-request"),
        (known.ModelOverloadedError("m", "busy"), "overloaded"),
        (known.ModelUnavailableError("m", "busy"), "transient"),
        (known.ModelServerError("m", "oops"), "transient"),
        (known.ModelRateLimitError("m", "slow down", retry_after=3.0), "overloaded"),
        (known.ModelQuotaExceededError("m", "no money"), "spent"),
        (known.ModelAuthenticationError("m", "who?"), "auth"),
        (known.ModelContextWindowExceededError("m", "too much"), "too-long"),
        (known.ModelRequestRejectedError("m", "no"), "bad-request"),
        (known.ModelConnectionError("m", "refused", phase="connect"), "unreachable"),
        (known.ModelConnectionError("m", "reset", phase="read"), "cut"),
        (known.ModelTimeoutError("m", "slow", phase="read"), "cut"),
        (known.UnexpectedModelBehavior("strange"), "cut"),
        (known.UserError("Set the `X_API_KEY` environment variable"), "auth"),
        (known.UserError("Unknown model"), "bad-request"),
        (ValueError("a fault of somebody"), "bad-request"),
    ]
    for error, kind in cases:
        provider, _ = function("first ", error)
        with pytest.raises(ModelError) as failure:
            collect(provider, ask())
        assert failure.value.kind == kind, error
        assert failure.value.problem.startswith("function failed: ")
        assert failure.value.__cause__ is error
    assert failure.value.fix


@library
def test_a_provider_or_a_key_or_a_package_that_is_missing_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DEEPSEEK_API_KEY", raising=False)
    with pytest.raises(InvalidError, match="no-such-provider"):  # before anything is asked
        PydanticAI("no-such-provider")
    with pytest.raises(ModelError) as failure:
        collect(PydanticAI("mistral"), ask())
    assert failure.value.fix == "pip install 'pydantic-ai-slim[mistral]'"
    with pytest.raises(ModelError) as failure:
        collect(PydanticAI("deepseek"), ask())
    assert failure.value.kind == ("auth" if find_spec("openai") else "bad-request")


@library
def test_leaving_early_ends_the_request() -> None:
    provider, recorded = function("one", "two", "three")

    async def go() -> None:
        async with aclosing(provider.stream(ask())) as stream:
            async for _ in stream:
                break

    asyncio.run(asyncio.wait_for(go(), TEST_TIMEOUT))
    assert recorded.closed


# -- a provider over sockets -------------------------------------------------------------------------


def over_sockets(server: ModelServer, idle: float = 20.0) -> PydanticAI:
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    model = OpenAIChatModel("some-model", provider=OpenAIProvider(base_url=f"{server.url}/v1", api_key="k"))
    return PydanticAI("openai", model, ReplyLimits(first_byte=idle, event=idle))


def script(*steps: Step) -> Script:
    return Script([Rule(steps)])


@openai
def test_text_and_calls_come_over_sockets() -> None:
    text = "Zwölf Boxkämpfer jagen Viktor. 数据库 👩‍💻 " * 10
    step = Step(text=text, calls=(CALL,), usage=Usage(input=90, output=20, cache_read=10))
    with ModelServer(script(step), chunk=7) as server:
        pieces = collect(over_sockets(server), ask())
    assert told(pieces, TextChunk) == text
    reply = reply_of(pieces)
    assert reply.message == Message(
        "assistant", (Text(text), ToolCall(id="call_1", name="Read", arguments={"file_path": "naïve 👩‍💻.txt"}))
    )
    assert (reply.stop, reply.usage.output, reply.usage.total_input) == ("tools", 20, 100)
    sent = server.requests[0].body
    assert sent["model"] == "some-model"
    assert sent["tools"][0]["function"]["name"] == "Read"
    assert (
        json.dumps(sent).index("Be brief.")
        < json.dumps(sent).index("Today is Monday.")
        < json.dumps(sent).index('"hi"')
    )


@openai
@pytest.mark.parametrize("kind", ["cut-text", "cut-call", "no-end", "reset"])
def test_a_stream_that_breaks_off_is_no_reply(kind: str) -> None:
    step = Step(text="half of this " * 20, calls=(CALL,), fault=Fault(kind=kind))
    with ModelServer(script(step)) as server, pytest.raises(ModelError) as failure:
        collect(over_sockets(server), ask())
    assert failure.value.is_retryable
    assert len(server.requests) == 1


@openai
def test_an_error_inside_a_stream_is_told() -> None:
    step = Step(text="half of this " * 20, fault=Fault(kind="error-event"))
    with ModelServer(script(step)) as server, pytest.raises(ModelError) as failure:
        collect(over_sockets(server), ask())
    assert "as scripted" in failure.value.problem
    assert failure.value.is_retryable


@openai
def test_a_stream_that_falls_silent_is_given_up() -> None:
    step = Step(text="half of this " * 20, fault=Fault(kind="idle", seconds=30))
    with ModelServer(script(step)) as server, pytest.raises(ModelError) as failure:
        collect(over_sockets(server, 1.0), ask())
    assert failure.value.kind == "stalled"
    assert "sent no data" in failure.value.problem


@openai
@pytest.mark.parametrize(
    ("status", "headers", "body", "kinds", "wait"),
    [
        (429, {"retry-after": "7"}, "", ("overloaded",), 7.0),
        (429, {}, "", ("spent",), None),
        (
            429,
            {"retry-after": "7"},
            '{"error": {"message": "You exceeded your current quota", "code": "insufficient_quota"}}',
            ("spent",),
            7.0,
        ),
        (529, {}, "", ("overloaded",), None),
        (500, {}, "<html>oops</html>", ("transient",), None),
        (503, {}, "", ("transient", "overloaded"), None),
        (408, {}, "", ("transient", "cut"), None),
        (400, {}, '{"error": {"message": "bad field"}}', ("bad-request",), None),
        (400, {}, '{"error": {"message": "too long", "code": "context_length_exceeded"}}', ("too-long",), None),
        (401, {}, "", ("auth",), None),
        (403, {}, "", ("auth",), None),
        (404, {}, "", ("bad-request",), None),
    ],
)
def test_each_answer_that_is_no_success_is_sorted_and_tried_once(
    status: int, headers: dict[str, str], body: str, kinds: tuple[str, ...], wait: float | None
) -> None:
    fault = Fault(status=status, headers=headers, body=body, times=9)
    with ModelServer(script(Step(fault=fault))) as server, pytest.raises(ModelError) as failure:
        collect(over_sockets(server), ask())
    assert failure.value.kind in kinds
    assert (failure.value.retry_after, failure.value.status) == (wait, status)
    assert len(server.requests) == 1


@openai
def test_nobody_at_the_address_is_unreachable() -> None:
    with ModelServer(script(Step())) as server:
        provider = over_sockets(server)
    with pytest.raises(ModelError) as failure:
        collect(provider, ask())
    assert failure.value.kind == "unreachable"


@openai
def test_a_reply_that_reached_its_limit_says_so() -> None:
    step = Step(text="half", calls=(("call_1", "Read", '{"file_path": "a'),), stop="length")
    with ModelServer(script(step)) as server:
        reply = reply_of(collect(over_sockets(server), ask()))
    assert (reply.stop, reply.is_complete) == ("length", False)


@openai
@pytest.mark.parametrize(
    ("word", "stop"),
    [
        ("tool_calls", "tools"), ("stop", "tools"), ("length", "length"), ("content_filter", "refusal"),
    ],
)  # fmt: skip
def test_each_stop_reason_is_known_or_is_no_complete_end(word: str, stop: str) -> None:
    with ModelServer(script(Step(calls=(("call_1", "Read", "{}"),), stop_reason=word))) as server:
        reply = reply_of(collect(over_sockets(server), ask()))
    assert (reply.stop, reply.stop_reason) == (stop, word)


@library
@pytest.mark.parametrize(
    ("system", "reason", "word", "stop"),
    [
        ("google", "stop", "STOP", "tools"),
        ("google", "length", "MAX_TOKENS", "length"),
        ("google", "content_filter", None, "refusal"),
        ("google", None, "OTHER", "other"),
        ("google", None, None, None),
        ("google", "stop", None, None),
        ("google", "error", "MALFORMED_FUNCTION_CALL", None),
        ("anthropic", None, "pause_turn", "other"),
        ("anthropic", "tool_call", "tool_use", "tools"),
        ("xai", "tool_call", None, "tools"),
        ("xai", "length", None, "length"),
        ("xai", None, None, None),
        ("function", None, None, "tools"),
    ],
)
def test_a_reply_is_complete_only_by_the_library_s_word_for_that(
    system: str, reason: Any, word: str | None, stop: str | None
) -> None:
    from pydantic_ai.messages import ModelResponse, ToolCallPart

    from kitbag.models.adapters import pydantic_ai as adapter

    response = ModelResponse([ToolCallPart("Read", "{}", "call_1")], finish_reason=reason)
    response.provider_details = {"finish_reason": word} if word else None
    if stop is None:
        with pytest.raises(ModelError):
            adapter._read_reply(response, system, system)
    else:
        assert adapter._read_reply(response, system, system).stop == stop
