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
from kitbag.models.http.post import HttpResponse, HttpTransport, TransportError, has_proxy
from kitbag.models.provider import FailureKind, ModelError, ModelReply, StreamItem
from kitbag.text.hidden_characters import collapse_whitespace
from kitbag.text.safe_json import parse_json

IDLE_TIMEOUT: Final = 180.0
"""A stream that says nothing for so long is given up."""
CONNECT_TIMEOUT: Final = 15.0
_NAME = re.compile(r"[A-Za-z0-9_-]{1,128}")
_ERROR_BYTES = 1 << 16
_MAX_MESSAGE = 600
_TOO_LONG = re.compile(
    r"context.{0,20}(?:length|window|limit)|too long|too many tokens|maximum.{0,20}tokens"
    r"|exceeds? .{0,40}(?:tokens|context)",
    re.IGNORECASE,
)
_QUOTA = re.compile(r"quota|billing|credit|insufficient|spend|payment", re.IGNORECASE)
_NO_CREDIT = re.compile(r"credit balance|insufficient (?:funds|balance|credits?)", re.IGNORECASE)
"""As some say it with the status of a request that is wrong."""
_TRANSIENT = frozenset((408, 409, 425, 500, 502, 503, 504))


class ApiEndpoint(NamedTuple):
    """Where a provider is, and what it is told on every request."""

    provider: str
    base_url: str
    headers: Mapping[str, str]
    idle_timeout: float = IDLE_TIMEOUT


class ApiClient:
    """One provider's connection. Opened at the first request, kept for the next."""

    def __init__(self, endpoint: ApiEndpoint) -> None:
        self.endpoint = endpoint
        self._transport: HttpTransport | None = None

    async def events(self, path: str, body: bytes) -> AsyncGenerator[dict[str, Any], None]:
        """Posts, and gives each event's data as it comes. Raises ModelError."""
        endpoint = self.endpoint
        headers = {"content-type": "application/json", "accept": "text/event-stream", **endpoint.headers}
        try:
            async with (
                self._open_transport().post(endpoint.base_url.rstrip("/") + path, headers, body) as answer,
                aclosing(answer.chunks()) as chunks,
            ):
                if answer.status != 200:
                    raise await _status_error(answer, chunks, endpoint.provider)
                async with aclosing(event_data(chunks)) as events:
                    async for data in events:
                        if data.strip() == "[DONE]":
                            return
                        if data:
                            yield _parse_event(data, endpoint.provider)
        except TransportError as error:
            raise _transport_error(error, endpoint) from error
        except EventTooLongError as error:
            raise ModelError("cut", f"the reply of {endpoint.provider} can't be read: {error}", "try again") from error

    def _open_transport(self) -> HttpTransport:
        if self._transport is None:
            if has_proxy(os.environ):
                from kitbag.models.http.proxied import ProxiedTransport as Kind
            else:
                from kitbag.models.http.direct import DirectTransport as Kind
            self._transport = Kind(self.endpoint.idle_timeout, CONNECT_TIMEOUT)
        return self._transport

    async def close(self) -> None:
        if self._transport is not None:
            await self._transport.close()
            self._transport = None


class StreamParser(Protocol):
    """What one protocol makes of its events."""

    @property
    def is_over(self) -> bool:
        """Nothing that follows counts."""
        ...

    def read(self, event: dict[str, Any]) -> list[StreamItem]: ...

    def reply(self) -> ModelReply:
        """The whole reply. Raises ModelError where it is not whole."""
        ...


async def stream_reply(
    client: ApiClient, path: str, body: bytes, parser: StreamParser
) -> AsyncGenerator[StreamItem, None]:
    """One request, from its body to its reply."""
    async with aclosing(client.events(path, body)) as events:
        async for event in events:
            for piece in parser.read(event):
                yield piece
            if parser.is_over:
                break
    yield parser.reply()


def _parse_event(data: str, provider: str) -> dict[str, Any]:
    try:
        value = parse_json(data)
    except (ValueError, RecursionError) as error:
        raise ModelError("cut", f"{provider} sent an event that is no JSON", "try again") from error
    if not isinstance(value, dict):
        raise ModelError("cut", f"{provider} sent an event that is no object", "try again")
    return cast("dict[str, Any]", value)


async def _status_error(answer: HttpResponse, chunks: AsyncIterable[bytes], provider: str) -> ModelError:
    body = b""
    async for chunk in chunks:
        body += chunk
        if len(body) > _ERROR_BYTES:
            break
    message = extract_error_message(body[:_ERROR_BYTES].decode("utf-8", "replace"))
    status = answer.status
    wait = _retry_after(answer.headers.get("retry-after-ms"), answer.headers.get("retry-after"))
    limited = wait is not None or any("ratelimit" in name for name in answer.headers)
    kind = _classify_status(status, message, limited)
    problem = f"{provider} answered {status}" + (f": {message}" if message else "")
    return ModelError(kind, problem, _suggest_fix(kind, provider), retry_after=wait, status=status)


def stream_error(provider: str, kind: str, message: str) -> ModelError:
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
    problem = f"{provider} broke off: {shorten_message(message or kind or 'no reason given')}"
    return ModelError(found, problem, _suggest_fix(found, provider))


def _classify_status(status: int, message: str, limited: bool) -> FailureKind:
    if status in (401, 403):
        return "auth"
    if status == 402 or (status == 400 and _NO_CREDIT.search(message)):
        return "spent"
    if status == 413 or (status == 400 and _TOO_LONG.search(message)):
        return "too-long"
    if status == 429:
        # Without a word on when to come back it may be the account's limit, which no waiting lifts.
        return "overloaded" if limited and not _QUOTA.search(message) else "spent"
    if status == 529:
        return "overloaded"
    if status in _TRANSIENT or status > 504:
        return "transient"
    return "bad-request"


def _suggest_fix(kind: FailureKind, provider: str) -> str:
    return {
        "auth": f"check the key for {provider} in your environment, or give another: kitbag setup",
        "spent": f"check the limits of your account at {provider}; waiting may not help",
        "too-long": "start a new session, or choose a model with a larger window",
        "bad-request": "check the model's name with `kitbag models`, and its settings",
    }.get(kind, "try again")


def extract_error_message(body: str) -> str:
    """The provider's own words out of an error's body, in one line."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return shorten_message(body)
    fields = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
    error = fields.get("error", fields.get("detail", fields))
    if isinstance(error, dict):
        error = cast("dict[str, Any]", error).get("message", "")
    return shorten_message(error if isinstance(error, str) else body)


def shorten_message(text: str) -> str:
    line = collapse_whitespace(text)
    return line if len(line) <= _MAX_MESSAGE else f"{line[:_MAX_MESSAGE]}…"


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


def _transport_error(error: TransportError, endpoint: ApiEndpoint) -> ModelError:
    reason, provider = shorten_message(error.reason), endpoint.provider
    match error.kind:
        case "address":
            return ModelError(
                "bad-request", f"{shorten_message(endpoint.base_url)} is no address", "correct the base URL"
            )
        case "no-answer":
            return ModelError(
                "unreachable", f"{provider} can't be reached: no answer from {_display_address(endpoint)}"
            )
        case "unreachable":
            what = f"{provider} can't be reached at {_display_address(endpoint)}: {reason}"
            return ModelError("unreachable", what, "check the address and the network")
        case "certificate":
            what = f"the certificate of {_display_address(endpoint)} is not accepted: {reason}"
            return ModelError("bad-request", what, "check the address, and the certificates of this machine")
        case "silent":
            return ModelError("cut", f"{provider} said nothing for {endpoint.idle_timeout:.0f} s", "try again")
        case "broken":
            return ModelError("cut", f"the connection to {provider} broke: {reason}", "try again")


def _display_address(endpoint: ApiEndpoint) -> str:
    """The address without user, password and query."""
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(endpoint.base_url)
        return f"{parts.scheme}://{parts.hostname or ''}" + (f":{parts.port}" if parts.port else "")
    except ValueError:
        return "its address"


def parse_tool_call(call_id: str, name: str, text: str) -> ToolCall:
    """As strict as it can be: what is not exactly one JSON object never runs."""
    if not _NAME.fullmatch(name):
        # It is sent back with every later request, and a provider refuses what it would not have sent.
        problem = f"{shorten_message(repr(name[:80]))} is no name of a tool; call one that you have"
        return ToolCall(call_id, "invalid_tool_name", {}, problem, text[:2_000])
    arguments, problem = parse_arguments(text)
    if problem:
        return ToolCall(call_id, name, {}, f"{problem}; call it again with correct arguments", text[:2_000])
    return ToolCall(call_id, name, arguments)


def parse_arguments(text: str) -> tuple[dict[str, Any], str]:
    if not text.strip():
        return {}, ""
    try:
        value = parse_json(
            text,
            parse_constant=_reject_constant,
            parse_float=_parse_finite_float,
            object_pairs_hook=_reject_duplicate_keys,
        )
    except RecursionError as error:
        return {}, f"the arguments are {error}"
    except ValueError as error:
        return {}, f"not valid JSON ({shorten_message(str(error))})"
    if not isinstance(value, dict):
        return {}, f"a JSON object is needed, not {type(value).__name__}"
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return {}, "they hold half a character (a lone surrogate)"
    return cast("dict[str, Any]", value), ""


def _reject_constant(name: str) -> float:
    raise ValueError(f"{name} is no JSON")


def _parse_finite_float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text[:20]} is too large a number")
    return value


def _reject_duplicate_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name stands there twice")
    return found
