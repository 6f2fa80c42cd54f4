"""What comes instead of an event stream, over real sockets: each is named for what it is."""

import json
from collections.abc import Callable, Iterator

import pytest

from kitbag.messages import ToolCall, Usage
from kitbag.models.adapters.retry_time import parse_retry_time
from kitbag.models.provider import ModelError, Provider, TextChunk
from kitbag.models.reply_limits import ReplyLimitError, ReplyLimits, StalledError, StreamWatch
from kitbag.testing import Step
from kitbag.testing.protocols import Protocol, reply_document, reply_events
from models.test_adapters import ask, collect, reply_of
from support.hostile_server import HostileServer, event, respond, stream

Connect = Callable[..., Provider]
LOGIN = "<!DOCTYPE html><html><head><title>Sign in</title><style>a{}</style></head><body><h1>Welcome &amp; log in</h1></body>"


def failure(connect: Connect, server: HostileServer, **more: object) -> ModelError:
    with server, pytest.raises(ModelError) as caught:
        collect(connect(server, **more), ask())
    return caught.value


@pytest.mark.parametrize("content_type", ["text/html", "text/event-stream", ""])
def test_an_html_page_is_named_with_its_visible_text(connect: Connect, content_type: str) -> None:
    error = failure(connect, HostileServer(respond(LOGIN, content_type)))
    assert (error.kind, error.is_retryable) == ("bad-request", False)
    assert "returned an HTML page instead of a reply: 'Sign in: Welcome & log in'" in error.problem
    assert "proxy or a login page" in error.fix


def test_an_excerpt_never_contains_the_key(connect: Connect) -> None:
    body = "<html><body>Denied for test-key-anthropic and test-key-openai</body></html>"
    problem = failure(connect, HostileServer(respond(body, "text/html"))).problem
    assert "[redacted]" in problem


@pytest.mark.parametrize(
    ("body", "content_type", "words"),
    [
        ("upstream connect error or disconnect", "text/plain", "returned text/plain instead of a reply"),
        ('{"hello": "there"}', "application/json", "JSON that is not a reply"),
        ("[1, 2]", "application/json", "JSON that is not a reply"),
        ('{"a": 1}\n{"b": 2}', "application/x-ndjson", "invalid JSON"),
        ('{"cut', "application/json", "invalid JSON"),
    ],
)
def test_text_and_json_that_are_no_reply_are_named(connect: Connect, body: str, content_type: str, words: str) -> None:
    error = failure(connect, HostileServer(respond(body, content_type)))
    assert (error.kind, words in error.problem) == ("bad-request", True)
    assert body.split("\n")[0][:10] in error.problem


@pytest.mark.parametrize("body", ["", "\n\n \n", "\ufeff"])
def test_an_empty_response_is_named_and_may_be_retried(connect: Connect, body: str) -> None:
    error = failure(connect, HostileServer(respond(body)))
    assert error.is_retryable
    assert "empty response" in error.problem


@pytest.mark.parametrize(
    ("status", "headers", "kind", "words"),
    [
        (204, {}, "transient", "status 204 instead of a reply"),
        (302, {"location": "https://login.example/?secret=1"}, "bad-request", "redirects to https://login.example "),
        (307, {}, "bad-request", "redirects to another address"),
        (529, {}, "overloaded", "529"),
        (503, {}, "transient", "503"),
    ],
)
def test_a_status_that_is_no_success_is_named(
    connect: Connect, status: int, headers: dict[str, str], kind: str, words: str
) -> None:
    error = failure(connect, HostileServer(respond("", "text/plain", status, content_length="0", **headers)))
    assert (error.kind, words in error.problem) == (kind, True)
    assert "secret" not in error.problem


def test_an_error_page_is_cleaned(connect: Connect) -> None:
    error = failure(connect, HostileServer(respond(LOGIN, "text/html", 502)))
    assert error.problem.endswith("returned an HTML page with status 502: Sign in: Welcome & log in")


def test_an_error_body_that_never_ends_is_not_waited_for(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kitbag.models.adapters.wire._ERROR_SECONDS", 0.1)

    def answer() -> Iterator[bytes | None]:
        yield b'HTTP/1.1 400 .\r\n\r\n{"error": {"message": "wrong'
        yield None

    assert "returned 400" in failure(connect, HostileServer(answer)).problem


STEP = Step(text="Whole.", thinking="Hm.", calls=(("c1", "Read", '{"file_path": "a"}'),))


@pytest.mark.parametrize("content_type", ["application/json", "text/event-stream"])
def test_a_reply_that_was_not_streamed_is_read(connect: Connect, wire: Protocol, content_type: str) -> None:
    document = reply_document(wire, STEP, Usage(input=3, output=5), "m")
    with HostileServer(respond(json.dumps(document), content_type)) as server:
        pieces = collect(connect(server), ask())
    reply = reply_of(pieces)
    assert (reply.stop, reply.message.text, reply.usage) == ("tools", "Whole.", Usage(input=3, output=5))
    assert reply.message.calls == (ToolCall(id="c1", name="Read", arguments={"file_path": "a"}),)
    assert "".join(piece.text for piece in pieces if isinstance(piece, TextChunk)) == "Whole."


@pytest.mark.parametrize(("stop", "expected"), [("length", "length"), ("refusal", "refusal"), ("other", "other")])
def test_one_that_is_incomplete_is_not_taken_for_complete(
    connect: Connect, wire: Protocol, stop: str, expected: str
) -> None:
    document = reply_document(wire, Step(text="Half", stop=stop), Usage(), "m")  # type: ignore[arg-type]
    with HostileServer(respond(json.dumps(document), "application/json")) as server:
        assert reply_of(collect(connect(server), ask())).stop == expected


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ({"type": "overloaded_error", "message": "busy"}, "overloaded"),
        ({"type": "insufficient_quota", "message": "pay"}, "spent"),
        ({"code": "context_length_exceeded", "message": "no"}, "too-long"),
        ({"type": "authentication_error", "message": "who?"}, "auth"),
        ("just text", "transient"),
    ],
)
@pytest.mark.parametrize("form", ["document", "event"])
def test_an_error_with_status_200_is_an_error(
    connect: Connect, error: dict[str, str] | str, kind: str, form: str
) -> None:
    body = json.dumps({"error": error})
    answer = respond(body, "application/json") if form == "document" else respond(event(body))
    found = failure(connect, HostileServer(answer))
    assert found.kind == kind


def test_a_stream_with_the_wrong_content_type_is_read(connect: Connect, wire: Protocol) -> None:
    events = reply_events(wire, Step(text="Hello."), Usage(), "m")
    body = b"".join(event(data if isinstance(data, str) else json.dumps(data), name) for name, data in events)
    with HostileServer(respond(body, "text/html")) as server:
        assert reply_of(collect(connect(server), ask())).message.text == "Hello."


def test_a_refusal_that_ends_like_an_answer_is_a_refusal() -> None:
    from models.conftest import adapter

    chat = {"choices": [{"delta": {"refusal": "I can't."}, "finish_reason": "stop"}]}
    item = {"type": "message", "content": [{"type": "refusal", "refusal": "I can't."}]}
    done = {"type": "response.output_item.done", "output_index": 0, "item": item}
    end = {"type": "response.completed", "response": {"status": "completed"}}
    for wire, body in (("chat", event(chat)), ("responses", event(done) + event(end))):
        with HostileServer(respond(body)) as server:
            reply = reply_of(collect(adapter(wire, server), ask()))
        assert (reply.stop, reply.message.text) == ("refusal", "I can't.")


def test_a_chat_stream_that_ends_properly_without_a_finish_reason_is_not_complete() -> None:
    from models.conftest import adapter

    body = event({"choices": [{"delta": {"content": "So far."}}]}) + event("[DONE]")
    with HostileServer(respond(body)) as server:
        reply = reply_of(collect(adapter("chat", server), ask()))
    assert (reply.stop, reply.stop_reason, reply.message.text) == ("other", "", "So far.")


# Timeouts


def test_before_the_first_byte_and_between_events_different_timeouts_apply(connect: Connect) -> None:
    def silent() -> Iterator[bytes | None]:
        yield b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"
        yield None

    def stops() -> Iterator[bytes | None]:
        yield b": hello\n\n"
        yield None

    limits = ReplyLimits(first_byte_local=0.2, event=30)
    error = failure(connect, HostileServer(silent), limits=limits)
    assert (error.kind, "timeouts.first_byte_local" in error.fix) == ("stalled", True)
    limits = ReplyLimits(first_byte_local=30, event=0.2)
    error = failure(connect, HostileServer(stream(stops)), limits=limits)
    assert (error.kind, "timeouts.event" in error.fix) == ("stalled", True)


class Clock:
    now = 1_000.0

    def __call__(self) -> float:
        return self.now


def wait_now(watch: StreamWatch) -> object:
    import asyncio

    async def nothing() -> None:
        await asyncio.Event().wait()

    try:
        asyncio.run(watch.wait(nothing()))
    except (StalledError, ReplyLimitError) as error:
        return error
    raise AssertionError


@pytest.mark.parametrize(("is_local", "seconds"), [(False, 300.0), (True, 900.0)])
def test_pings_count_as_events_and_a_dripping_line_does_not(is_local: bool, seconds: float) -> None:
    clock = Clock()
    watch = StreamWatch(ReplyLimits(), is_local, clock)
    clock.now += seconds
    stalled = wait_now(watch)
    assert isinstance(stalled, StalledError)
    assert stalled.seconds == seconds
    watch.received(1, is_event=True)
    for _ in range(5):
        clock.now += 12
        watch.received(1, is_event=False)
    stalled = wait_now(watch)
    assert isinstance(stalled, StalledError)
    assert (stalled.seconds, stalled.setting) == (60.0, "timeouts.event")


def test_a_whole_reply_has_a_timeout_whatever_keeps_coming() -> None:
    clock = Clock()
    watch = StreamWatch(ReplyLimits(), is_local=False, clock=clock)
    for _ in range(3_600 // 30):
        clock.now += 30
        watch.received(10, is_event=True)
    cut = wait_now(watch)
    assert isinstance(cut, ReplyLimitError)
    assert cut.setting == "timeouts.reply"


def test_a_model_that_thinks_in_silence_has_as_long_as_for_the_first_byte() -> None:
    clock = Clock()
    watch = StreamWatch(ReplyLimits(), is_local=False, clock=clock)
    watch.received(10, is_event=True)
    watch.may_think = lambda: True
    clock.now += 300
    stalled = wait_now(watch)
    assert isinstance(stalled, StalledError)
    assert stalled.seconds == 300.0


# When to come back

NOW = 1_700_000_000.0


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "3600"}, 3_600),
        ({"retry-after": "1.5"}, 1.5),
        ({"retry-after": "-5"}, 0),
        ({"retry-after": "nonsense"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "1e300"}, None),
        ({"retry-after": "Tue, 14 Nov 2023 23:13:20 GMT"}, 3_600),
        ({"retry-after": "Tue, 14 Nov 2023 21:13:20 GMT"}, 0),
        ({"retry-after-ms": "1500", "retry-after": "9"}, 1.5),
        ({"anthropic-ratelimit-requests-remaining": "0", "anthropic-ratelimit-requests-reset": "2023-11-14T22:14:20Z"}, 60),
        ({"anthropic-ratelimit-tokens-remaining": "5", "anthropic-ratelimit-tokens-reset": "2023-11-14T22:14:20Z"}, None),
        ({"anthropic-ratelimit-unified-reset": "1700000090"}, 90),
        ({"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "6m0s"}, 360),
        ({"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "1h2m3.5s"}, 3_723.5),
        ({"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "20ms"}, 0.02),
        ({"x-ratelimit-remaining-tokens": "9", "x-ratelimit-reset-tokens": "20s"}, None),
        ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": "1700000060000"}, 60),
        ({"ratelimit-remaining": "0", "ratelimit-reset": "30"}, 30),
        ({"content-type": "x"}, None),
    ],
)  # fmt: skip
def test_when_to_come_back_is_read_from_every_kind_of_header(headers: dict[str, str], seconds: float | None) -> None:
    assert parse_retry_time(headers, lambda: NOW) == (pytest.approx(seconds) if seconds is not None else None)


def test_a_page_of_any_shape_is_an_error(connect: Connect) -> None:
    for page in ("<title" * 20_000, "<html>" + "<!--" * 20_000, "<html>" + "<script" * 10_000, "<p>" + "<" * 60_000):
        assert failure(connect, HostileServer(respond(page, "text/html"))).kind == "bad-request"
