"""Requests one reply from a model and retries transient failures: bounded, with jitter, cancellable at any time, and
reporting while it waits.

Used by loop and compact. A partial reply is never treated as complete; BrokenReplyError carries its text.
"""

import asyncio
import math
import time
from collections.abc import Callable
from contextlib import aclosing
from typing import Final, Self

import msgspec

from kitbag.events import Discarded, Event, Retrying, TextDelta, ThinkingDelta, Waiting
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

STALLED_ATTEMPTS: Final = 2
"""A provider that stalls is asked this often: each attempt takes as long as its timeout."""


class RetryPolicy(msgspec.Struct, frozen=True, kw_only=True):
    attempts: int = 5
    first_wait: float = 1.0
    """Seconds. Doubles with each attempt; jitter takes off up to half."""
    max_wait: float = 120.0
    """If a provider asks to wait longer, the request fails at once."""
    report_after: float = 10.0
    """Seconds without output after which Kitbag reports that it is still waiting; then less and less often."""


class BrokenReplyError(ModelError):
    """All attempts failed. `partial` is the text received in the last attempt."""

    def __init__(self, cause: ModelError, partial: str) -> None:
        problem, fix = cause.problem, cause.fix
        if cause.retry_after:
            when = _format_time(cause.retry_after)
            problem, fix = f"{problem}; it accepts requests again {when}", f"retry {when}, or use another model"
        super().__init__(cause.kind, problem, fix, retry_after=cause.retry_after, status=cause.status)
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
        progress = _Progress(provider.name, emit, retry_policy.report_after)
        try:
            with progress:
                return await _try_once(provider, request, progress, text_parts)
        except ModelError as error:
            if not _is_worth_a_retry(error, retry_policy, attempt):
                raise BrokenReplyError(error, "".join(text_parts)) from error
            if progress.has_output:
                emit(Discarded(error.problem))
            wait = _retry_delay(error, retry_policy, attempt)
            emit(Retrying(attempt=attempt, seconds=wait, reason=error.problem))
            with _Progress(provider.name, emit, retry_policy.report_after, wait):
                await asyncio.sleep(wait)
            attempt += 1


class _Progress:
    """Passes deltas on, and reports from time to time that there are none. `wait`: until the next attempt."""

    def __init__(self, provider: str, emit: Emit, interval: float, wait: float = 0.0) -> None:
        self._provider = provider
        self._emit = emit
        self._interval = interval
        self._wait = wait
        self._loop = asyncio.get_running_loop()
        self._started = self._last_output = self._loop.time()
        self._timer: asyncio.TimerHandle | None = None
        self.has_output = False

    def __enter__(self) -> Self:
        self._timer = self._loop.call_later(self._interval, self._report)
        return self

    def __exit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def delta(self, event: TextDelta | ThinkingDelta) -> None:
        self.has_output = True
        self.touch()
        self._emit(event)

    def touch(self) -> None:
        self._last_output = self._loop.time()

    def _report(self) -> None:
        now = self._loop.time()
        due = self._last_output + self._interval
        if now >= due:
            left = max(self._started + self._wait - now, 0.0)
            idle = now - self._last_output
            self._emit(Waiting(provider=self._provider, seconds=idle, retry_in=left))
            due = now + min(idle, 6 * self._interval)
        self._timer = self._loop.call_at(due, self._report)


async def _try_once(
    provider: Provider, request: ModelRequest, progress: _Progress, text_parts: list[str]
) -> ModelReply:
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
                    progress.delta(TextDelta(text))
                case ThinkingChunk(text):
                    progress.delta(ThinkingDelta(text))
                case ToolCallBegun():
                    progress.touch()
                case ModelReply():
                    reply = piece
    point("reply-received")
    if reply is None:
        raise ModelError("cut", f"the connection to {provider.name} closed before the reply was complete", "retry")
    return reply


def _is_worth_a_retry(error: ModelError, retry_policy: RetryPolicy, attempt: int) -> bool:
    attempts = min(retry_policy.attempts, STALLED_ATTEMPTS) if error.kind == "stalled" else retry_policy.attempts
    return error.is_retryable and attempt < attempts and (error.retry_after or 0.0) <= retry_policy.max_wait


def _retry_delay(error: ModelError, retry_policy: RetryPolicy, attempt: int) -> float:
    import random

    backoff = retry_policy.first_wait * 2 ** (attempt - 1) * random.uniform(0.5, 1.0)  # noqa: S311 - not used for security
    return max(min(backoff, retry_policy.max_wait), error.retry_after or 0.0)


def _format_time(seconds: float) -> str:
    """The local time in so many seconds."""
    minutes = math.ceil(seconds / 60)
    days, rest = divmod(minutes, 1_440)
    length = f"{days} d {rest // 60} h" if days else f"{minutes // 60} h {minutes % 60:02} min" if minutes >= 60 else ""
    pattern = "%Y-%m-%d %H:%M" if seconds >= 43_200 else "%H:%M"
    return f"at {time.strftime(pattern, time.localtime(time.time() + seconds))} (in {length or f'{minutes} min'})"


def suggest_fix(error: ModelError) -> str:
    return error.fix or {
        "auth": "check this provider's API key with `kitbag models`",
        "too-long": "start a new session, or choose a model with a larger context window",
        "spent": "check your account's limits with the provider",
    }.get(error.kind, "resume with --continue; changes so far are kept")
