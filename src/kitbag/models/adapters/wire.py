"""What the adapters share: one HTTP client, failures sorted by whether they may pass, arguments read strictly.

Used by anthropic, openai_chat and openai_responses. Follows no redirect, so a key never goes to another host.
"""

import json
import math
import os
import re
from collections.abc import AsyncGenerator, AsyncIterable, Mapping
from contextlib import aclosing
from typing import Any, Final, NamedTuple, Protocol, cast

from kitbag.messages import ToolCall
from kitbag.models.adapters.server_sent_events import EventTooLongError, event_data
from kitbag.models.http.post import Answer, Post, PostError, is_proxied
from kitbag.models.provider import FailureKind, ModelError, Piece, Reply
from kitbag.text.hidden_characters import one_line
from kitbag.text.safe_json import read_json

IDLE_SECONDS: Final = 180.0
"""A stream that says nothing for so long is given up."""
CONNECT_SECONDS: Final = 15.0
_NAME = re.compile(r"[A-Za-z0-9_-]{1,128}")
_ERROR_BYTES = 1 << 16
_LONGEST_MESSAGE = 600
_TOO_LONG = re.compile(
    r"context.{0,20}(?:length|window|limit)|too long|too many tokens|maximum.{0,20}tokens"
    r"|exceeds? .{0,40}(?:tokens|context)",
    re.IGNORECASE,
)
_SPENT = re.compile(r"quota|billing|credit|insufficient|spend|payment", re.IGNORECASE)
_NO_MONEY = re.compile(r"credit balance|insufficient (?:funds|balance|credits?)", re.IGNORECASE)
"""As some say it with the status of a request that is wrong."""
_TRANSIENT = frozenset((408, 409, 425, 500, 502, 503, 504))


class Endpoint(NamedTuple):
    """Where a provider is, and what it is told on every request."""

    provider: str
    base_url: str
    headers: Mapping[str, str]
    idle_seconds: float = IDLE_SECONDS


class Wire:
    """One provider's connection. Opened at the first request, kept for the next."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self._post: Post | None = None

    async def events(self, path: str, body: bytes) -> AsyncGenerator[dict[str, Any], None]:
        """Posts, and gives each event's data as it comes. Raises ModelError."""
        endpoint = self.endpoint
        headers = {"content-type": "application/json", "accept": "text/event-stream", **endpoint.headers}
        try:
            async with (
                self._connect().post(endpoint.base_url.rstrip("/") + path, headers, body) as answer,
                aclosing(answer.chunks()) as chunks,
            ):
                if answer.status != 200:
                    raise await _refused(answer, chunks, endpoint.provider)
                async with aclosing(event_data(chunks)) as events:
                    async for data in events:
                        if data.strip() == "[DONE]":
                            return
                        if data:
                            yield _object(data, endpoint.provider)
        except PostError as error:
            raise _broken(error, endpoint) from error
        except EventTooLongError as error:
            raise ModelError("cut", f"the reply of {endpoint.provider} can't be read: {error}", "try again") from error

    def _connect(self) -> Post:
        if self._post is None:
            if is_proxied(os.environ):
                from kitbag.models.http.proxied import ProxiedPost as Kind
            else:
                from kitbag.models.http.direct import DirectPost as Kind
            self._post = Kind(self.endpoint.idle_seconds, CONNECT_SECONDS)
        return self._post

    async def close(self) -> None:
        if self._post is not None:
            await self._post.close()
            self._post = None


class Reader(Protocol):
    """What one protocol makes of its events."""

    @property
    def over(self) -> bool:
        """Nothing that follows counts."""
        ...

    def read(self, event: dict[str, Any]) -> list[Piece]: ...

    def reply(self) -> Reply:
        """The whole reply. Raises ModelError where it is not whole."""
        ...


async def read_reply(wire: Wire, path: str, body: bytes, reader: Reader) -> AsyncGenerator[Piece, None]:
    """One request, from its body to its reply."""
    async with aclosing(wire.events(path, body)) as events:
        async for event in events:
            for piece in reader.read(event):
                yield piece
            if reader.over:
                break
    yield reader.reply()


def _object(data: str, provider: str) -> dict[str, Any]:
    try:
        value = read_json(data)
    except (ValueError, RecursionError) as error:
        raise ModelError("cut", f"{provider} sent an event that is no JSON", "try again") from error
    if not isinstance(value, dict):
        raise ModelError("cut", f"{provider} sent an event that is no object", "try again")
    return cast("dict[str, Any]", value)


async def _refused(answer: Answer, chunks: AsyncIterable[bytes], provider: str) -> ModelError:
    body = b""
    async for chunk in chunks:
        body += chunk
        if len(body) > _ERROR_BYTES:
            break
    message = said(body[:_ERROR_BYTES].decode("utf-8", "replace"))
    status = answer.status
    wait = _retry_after(answer.headers.get("retry-after-ms"), answer.headers.get("retry-after"))
    limited = wait is not None or any("ratelimit" in name for name in answer.headers)
    kind = _kind(status, message, limited)
    problem = f"{provider} answered {status}" + (f": {message}" if message else "")
    return ModelError(kind, problem, _fix(kind, provider), wait=wait, status=status)


def failed(provider: str, kind: str, message: str) -> ModelError:
    """An error inside a stream that began well."""
    lower = f"{kind} {message}".lower()
    if "overloaded" in lower or "rate" in lower.split("_") or "rate_limit" in lower:
        found: FailureKind = "overloaded"
    elif _TOO_LONG.search(message):
        found = "too-long"
    elif "authentication" in lower or "permission" in lower:
        found = "auth"
    elif "invalid_request" in lower:
        found = "bad-request"
    else:
        found = "transient"
    problem = f"{provider} broke off: {shortened(message or kind or 'no reason given')}"
    return ModelError(found, problem, _fix(found, provider))


def _kind(status: int, message: str, limited: bool) -> FailureKind:
    if status in (401, 403):
        return "auth"
    if status == 402 or (status == 400 and _NO_MONEY.search(message)):
        return "spent"
    if status == 413 or (status == 400 and _TOO_LONG.search(message)):
        return "too-long"
    if status == 429:
        # Without a word on when to come back it may be the account's limit, which no waiting lifts.
        return "overloaded" if limited and not _SPENT.search(message) else "spent"
    if status == 529:
        return "overloaded"
    if status in _TRANSIENT or status > 504:
        return "transient"
    return "bad-request"


def _fix(kind: FailureKind, provider: str) -> str:
    return {
        "auth": f"check the key for {provider} in your environment, or give another: kitbag setup",
        "spent": f"check the limits of your account at {provider}; waiting may not help",
        "too-long": "start a new session, or choose a model with a larger window",
        "bad-request": "check the model's name with `kitbag models`, and its settings",
    }.get(kind, "try again")


def said(body: str) -> str:
    """The provider's own words out of an error's body, in one line."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return shortened(body)
    fields = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
    error = fields.get("error", fields.get("detail", fields))
    if isinstance(error, dict):
        error = cast("dict[str, Any]", error).get("message", "")
    return shortened(error if isinstance(error, str) else body)


def shortened(text: str) -> str:
    line = one_line(text)
    return line if len(line) <= _LONGEST_MESSAGE else f"{line[:_LONGEST_MESSAGE]}…"


def _retry_after(milliseconds: str | None, written: str | None) -> float | None:
    """Seconds, or a date; None for what is neither."""
    for text, unit in ((milliseconds, 0.001), (written, 1.0)):
        try:
            seconds = float(text) * unit if text else math.nan
        except ValueError:
            continue
        if math.isfinite(seconds):
            return max(seconds, 0.0)
    if not written:
        return None
    import time
    from email.utils import parsedate_to_datetime

    try:
        return max(parsedate_to_datetime(written).timestamp() - time.time(), 0.0)
    except (ValueError, TypeError, OverflowError):
        return None


def _broken(error: PostError, endpoint: Endpoint) -> ModelError:
    reason, provider = shortened(error.reason), endpoint.provider
    match error.kind:
        case "address":
            return ModelError("bad-request", f"{shortened(endpoint.base_url)} is no address", "correct the base URL")
        case "no-answer":
            return ModelError("unreachable", f"{provider} can't be reached: no answer from {_place(endpoint)}")
        case "unreachable":
            what = f"{provider} can't be reached at {_place(endpoint)}: {reason}"
            return ModelError("unreachable", what, "check the address and the network")
        case "certificate":
            what = f"the certificate of {_place(endpoint)} is not accepted: {reason}"
            return ModelError("bad-request", what, "check the address, and the certificates of this machine")
        case "silent":
            return ModelError("cut", f"{provider} said nothing for {endpoint.idle_seconds:.0f} s", "try again")
        case "broken":
            return ModelError("cut", f"the connection to {provider} broke: {reason}", "try again")


def _place(endpoint: Endpoint) -> str:
    """The address without user, password and query."""
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(endpoint.base_url)
        return f"{parts.scheme}://{parts.hostname or ''}" + (f":{parts.port}" if parts.port else "")
    except ValueError:
        return "its address"


def tool_call(call_id: str, name: str, text: str) -> ToolCall:
    """As strict as it can be: what is not exactly one JSON object never runs."""
    if not _NAME.fullmatch(name):
        # It is sent back with every later request, and a provider refuses what it would not have sent.
        problem = f"{shortened(repr(name[:80]))} is no name of a tool; call one that you have"
        return ToolCall(call_id, "invalid_tool_name", {}, problem, text[:2_000])
    arguments, problem = read_arguments(text)
    if problem:
        return ToolCall(call_id, name, {}, f"{problem}; call it again with correct arguments", text[:2_000])
    return ToolCall(call_id, name, arguments)


def read_arguments(text: str) -> tuple[dict[str, Any], str]:
    if not text.strip():
        return {}, ""
    try:
        value = read_json(text, parse_constant=_no_constant, parse_float=_finite, object_pairs_hook=_without_repeats)
    except RecursionError as error:
        return {}, f"the arguments are {error}"
    except ValueError as error:
        return {}, f"not valid JSON ({shortened(str(error))})"
    if not isinstance(value, dict):
        return {}, f"a JSON object is needed, not {type(value).__name__}"
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return {}, "they hold half a character (a lone surrogate)"
    return cast("dict[str, Any]", value), ""


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is no JSON")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text[:20]} is too large a number")
    return value


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name stands there twice")
    return found
