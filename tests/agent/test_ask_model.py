"""One request: what is retried, how long it is waited for, and what is reported meanwhile."""

import asyncio
from collections.abc import AsyncGenerator, Callable

import pytest

from kitbag.agent.ask_model import STALLED_ATTEMPTS, BrokenReplyError, RetryPolicy, ask_model
from kitbag.events import Event, Retrying, TextDelta, Waiting
from kitbag.messages import Message, Text, Usage, user_message
from kitbag.models.provider import FailureKind, ModelError, ModelReply, ModelRequest, StreamItem, TextChunk
from support.waiting import TEST_TIMEOUT

REQUEST = ModelRequest(model="m", system=(), messages=(user_message("hi"),))
DONE = ModelReply(message=Message("assistant", (Text("Done."),)), stop="end", usage=Usage())
HASTY = RetryPolicy(first_wait=0.001, max_wait=120, report_after=0.01)

Stream = Callable[[int], AsyncGenerator[StreamItem, None]]


class Provider:
    name = "acme"

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self.attempts = 0

    async def close(self) -> None: ...

    def stream(self, request: ModelRequest) -> AsyncGenerator[StreamItem, None]:
        self.attempts += 1
        return self._stream(self.attempts)


def fails(kind: FailureKind, retry_after: float | None = None) -> Provider:
    async def stream(attempt: int) -> AsyncGenerator[StreamItem, None]:
        yield TextChunk("Half")
        raise ModelError(kind, "acme is busy", retry_after=retry_after)

    return Provider(stream)


def request(
    provider: Provider, emit: Callable[[Event], None] = lambda _: None, policy: RetryPolicy = HASTY
) -> ModelReply:
    async def go() -> ModelReply:
        async with asyncio.timeout(TEST_TIMEOUT):
            return await ask_model(provider, REQUEST, emit, policy)

    return asyncio.run(go())


@pytest.mark.parametrize("kind", ["overloaded", "transient", "spent"])
@pytest.mark.parametrize(
    ("seconds", "words"), [(3_600, "(in 1 h 00 min)"), (121, "(in 3 min)"), (200_000, "(in 2 d 7 h)")]
)
def test_a_wait_that_is_too_long_ends_it_at_once_and_says_when_to_come_back(
    kind: FailureKind, seconds: float, words: str
) -> None:
    provider = fails(kind, seconds)
    events: list[Event] = []
    with pytest.raises(BrokenReplyError) as caught:
        request(provider, events.append)
    assert provider.attempts == 1
    assert not any(isinstance(event, Retrying) for event in events)
    assert caught.value.partial == "Half"
    assert "acme is busy; it accepts requests again at " in caught.value.problem
    assert words in caught.value.problem
    assert caught.value.fix.startswith("retry at ")


def test_a_shorter_wait_is_waited_for_in_full_and_reported() -> None:
    waited: list[float] = []

    async def stream(attempt: int) -> AsyncGenerator[StreamItem, None]:
        if attempt == 1:
            raise ModelError("overloaded", "acme is busy", retry_after=0.1)
        yield DONE

    events: list[Event] = []
    request(Provider(stream), events.append)
    waited = [event.seconds for event in events if isinstance(event, Retrying)]
    assert waited == [0.1]
    reports = [event.retry_in for event in events if isinstance(event, Waiting) and event.retry_in]
    assert reports
    assert all(0 < left < 0.1 for left in reports)


def test_a_provider_that_stalls_is_asked_once_more_and_not_five_times() -> None:
    provider = fails("stalled")
    with pytest.raises(BrokenReplyError):
        request(provider)
    assert provider.attempts == STALLED_ATTEMPTS == 2


@pytest.mark.parametrize("kind", ["limit", "bad-request", "auth"])
def test_what_would_fail_again_is_not_retried(kind: FailureKind) -> None:
    provider = fails(kind)
    with pytest.raises(BrokenReplyError):
        request(provider)
    assert provider.attempts == 1


def test_while_nothing_comes_the_user_is_told_again_and_again() -> None:
    reported = asyncio.Event()
    waits: list[Waiting] = []

    async def stream(attempt: int) -> AsyncGenerator[StreamItem, None]:
        yield TextChunk("Half")
        await reported.wait()
        yield DONE

    def emit(event: Event) -> None:
        if isinstance(event, Waiting):
            waits.append(event)
            if len(waits) == 3:
                reported.set()

    assert request(Provider(stream), emit) == DONE
    assert [wait.provider for wait in waits] == ["acme"] * 3
    assert 0 < waits[0].seconds < waits[1].seconds < waits[2].seconds
    assert all(wait.retry_in == 0 for wait in waits)


def test_while_output_comes_nothing_else_is_reported() -> None:
    async def stream(attempt: int) -> AsyncGenerator[StreamItem, None]:
        for _ in range(20):
            yield TextChunk("x")
        yield DONE

    events: list[Event] = []
    request(Provider(stream), events.append, RetryPolicy(report_after=60))
    assert all(isinstance(event, TextDelta) for event in events)
