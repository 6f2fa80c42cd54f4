"""Requests one reply from a model and retries transient failures: bounded, with jitter, cancellable at any time.

Used by loop and compact. A partial reply is never treated as complete; BrokenReplyError carries its text.
"""

import asyncio
import random
from collections.abc import Callable
from contextlib import aclosing
from typing import Final

import msgspec

from kitbag.events import Discarded, Event, Retrying, TextDelta, ThinkingDelta
from kitbag.models.provider import (
    ModelError,
    ModelReply,
    ModelRequest,
    Provider,
    TextChunk,
    ThinkingChunk,
    ToolCallBegun,
)
from kitbag.store.fault_points import point

Emit = Callable[[Event], None]

MAX_WAIT: Final = 60.0
"""Caps the delay that a provider asks for."""


class RetryPolicy(msgspec.Struct, frozen=True, kw_only=True):
    attempts: int = 5
    first_wait: float = 1.0
    """Seconds. Doubles with each attempt; jitter takes off up to half."""


class BrokenReplyError(ModelError):
    """All attempts failed. `partial` is the text received in the last attempt."""

    def __init__(self, cause: ModelError, partial: str) -> None:
        super().__init__(cause.kind, cause.problem, cause.fix, retry_after=cause.retry_after, status=cause.status)
        self.partial = partial


async def ask_model(
    provider: Provider,
    request: ModelRequest,
    emit: Emit,
    retry_policy: RetryPolicy = RetryPolicy(),  # noqa: B008 - a NamedTuple is immutable
    text_parts: list[str] | None = None,
) -> ModelReply:
    """Raises BrokenReplyError. `text_parts` collects the text while it streams, so that a caller that cancels still has
    it."""
    attempt = 1
    text_parts = text_parts if text_parts is not None else []
    while True:
        text_parts.clear()
        emitted: list[Event] = []

        def emit_and_track(event: Event, emitted: list[Event] = emitted) -> None:
            emitted.append(event)
            emit(event)

        try:
            return await _try_once(provider, request, emit_and_track, text_parts)
        except ModelError as error:
            partial = "".join(text_parts)
            if not error.is_retryable or attempt >= retry_policy.attempts:
                raise BrokenReplyError(error, partial) from error
            if emitted:
                emit(Discarded(error.problem))
            wait = _retry_delay(error, retry_policy, attempt)
            emit(Retrying(attempt=attempt, seconds=wait, reason=error.problem))
            await asyncio.sleep(wait)
            attempt += 1


async def _try_once(provider: Provider, request: ModelRequest, emit: Emit, text_parts: list[str]) -> ModelReply:
    reply: ModelReply | None = None
    is_streaming = False
    async with aclosing(provider.stream(request)) as pieces:
        async for piece in pieces:
            if not is_streaming:
                is_streaming = True
                point("request-sent")
            match piece:
                case TextChunk(text):
                    text_parts.append(text)
                    emit(TextDelta(text))
                case ThinkingChunk(text):
                    emit(ThinkingDelta(text))
                case ToolCallBegun():
                    pass
                case ModelReply():
                    reply = piece
    point("reply-received")
    if reply is None:
        raise ModelError("cut", f"the connection to {provider.name} closed before the reply was complete", "retry")
    return reply


def _retry_delay(error: ModelError, retry_policy: RetryPolicy, attempt: int) -> float:
    backoff = retry_policy.first_wait * 2 ** (attempt - 1) * random.uniform(0.5, 1.0)  # noqa: S311 - not used for security
    requested = error.retry_after if error.retry_after is not None and error.retry_after >= 0 else 0.0
    return min(max(backoff, requested), MAX_WAIT)


def suggest_fix(error: ModelError) -> str:
    return error.fix or {
        "auth": "check this provider's API key with `kitbag models`",
        "too-long": "start a new session, or choose a model with a larger context window",
        "spent": "check your account's limits with the provider",
    }.get(error.kind, "resume with --continue; changes so far are kept")
