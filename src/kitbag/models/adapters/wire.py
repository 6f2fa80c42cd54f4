"""What the adapters share: the streaming API client, error classification, strict parsing of tool arguments.

Follows no redirects, so an API key never goes to another host. Used by anthropic, openai_chat, openai_responses and
scripted; uses http and server_sent_events.
"""

import json
import math
import os
import re
from collections.abc import AsyncGenerator, AsyncIterable, Mapping
from contextlib import aclosing
from typing import Any, Final, Protocol, cast

import msgspec

from kitbag.messages import ToolCall
from kitbag.models.adapters.server_sent_events import EventTooLongError, event_data
from kitbag.models.http.post import HttpResponse, HttpTransport, TransportError, has_proxy
from kitbag.models.portable_names import INVALID_TOOL_NAME, is_portable_name
from kitbag.models.provider import FailureKind, ModelError, ModelReply, StreamItem
from kitbag.text.hidden_characters import collapse_whitespace
from kitbag.text.safe_json import parse_json

IDLE_TIMEOUT: Final = 180.0
"""Seconds without data after which a stream is given up."""
CONNECT_TIMEOUT: Final = 15.0
_ERROR_BYTES = 1 << 16
_MAX_MESSAGE = 600
_TOO_LONG = re.compile(
    r"context.{0,20}(?:length|window|limit)|too long|too many tokens|maximum.{0,20}tokens"
    r"|exceeds? .{0,40}(?:tokens|context)",
    re.IGNORECASE,
)
_QUOTA = re.compile(r"quota|billing|credit|insufficient|spend|payment", re.IGNORECASE)
_NO_CREDIT = re.compile(r"credit balance|insufficient (?:funds|balance|credits?)", re.IGNORECASE)
"""Some providers report this with status 400."""
_TRANSIENT = frozenset((408, 409, 425, 500, 502, 503, 504))


class ApiEndpoint(msgspec.Struct, frozen=True, kw_only=True):
    """Base URL and headers of a provider's API."""

    provider: str
    base_url: str
    headers: Mapping[str, str]
    idle_timeout: float = IDLE_TIMEOUT


class ApiClient:
    """Sends requests to one provider; keeps connections open between requests."""

    def __init__(self, endpoint: ApiEndpoint) -> None:
        self.endpoint = endpoint
        self._transport: HttpTransport | None = None

    async def events(self, path: str, body: bytes) -> AsyncGenerator[dict[str, Any], None]:
        """Sends a POST request and yields the data of each event. Raises ModelError."""
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
            raise ModelError("cut", f"cannot read the reply from {endpoint.provider}: {error}", "retry") from error

    def _open_transport(self) -> HttpTransport:
        if self._transport is None:
            if has_proxy(os.environ):
                from kitbag.models.http.proxied import ProxiedTransport as Transport
            else:
                from kitbag.models.http.direct import DirectTransport as Transport
            self._transport = Transport(self.endpoint.idle_timeout, CONNECT_TIMEOUT)
        return self._transport

    async def close(self) -> None:
        if self._transport is not None:
            await self._transport.close()
            self._transport = None


class StreamParser(Protocol):
    """Turns the events of one protocol into stream items and a reply."""

    @property
    def is_over(self) -> bool:
        """True if the rest of the stream can be ignored."""
        ...

    def read(self, event: dict[str, Any]) -> list[StreamItem]: ...

    def reply(self) -> ModelReply:
        """The complete reply. Raises ModelError if it is incomplete."""
        ...


async def stream_reply(
    client: ApiClient, path: str, body: bytes, parser: StreamParser
) -> AsyncGenerator[StreamItem, None]:
    """Sends one request and yields its stream items, the reply last."""
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
        raise ModelError("cut", f"{provider} sent an event that is not valid JSON", "retry") from error
    if not isinstance(value, dict):
        raise ModelError("cut", f"{provider} sent an event that is not a JSON object", "retry")
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
    problem = f"{provider} returned {status}" + (f": {message}" if message else "")
    return ModelError(kind, problem, _suggest_fix(kind, provider), retry_after=wait, status=status)


def stream_error(provider: str, kind: str, message: str) -> ModelError:
    """For an error event in a stream that started successfully."""
    lower = f"{kind} {message}".lower()
    if "overloaded" in lower or "rate" in lower.split("_") or "rate_limit" in lower:
        failure: FailureKind = "overloaded"
    elif _TOO_LONG.search(message):
        failure = "too-long"
    elif "authentication" in lower or "permission" in lower:
        failure = "auth"
    elif "invalid_request" in lower:
        failure = "bad-request"
    else:
        failure = "transient"
    problem = f"{provider} aborted the reply: {shorten_message(message or kind or 'no reason given')}"
    return ModelError(failure, problem, _suggest_fix(failure, provider))


def _classify_status(status: int, message: str, limited: bool) -> FailureKind:
    if status in (401, 403):
        return "auth"
    if status == 402 or (status == 400 and _NO_CREDIT.search(message)):
        return "spent"
    if status == 413 or (status == 400 and _TOO_LONG.search(message)):
        return "too-long"
    if status == 429:
        # Without a retry time it may be the account's limit, which waiting does not lift.
        return "overloaded" if limited and not _QUOTA.search(message) else "spent"
    if status == 529:
        return "overloaded"
    if status in _TRANSIENT or status > 504:
        return "transient"
    return "bad-request"


def _suggest_fix(kind: FailureKind, provider: str) -> str:
    return {
        "auth": f"check the API key for {provider} in your environment, or run `kitbag setup`",
        "spent": f"check the limits of your {provider} account; waiting may not help",
        "too-long": "start a new session, or choose a model with a larger context window",
        "bad-request": "check the model name (`kitbag models`) and its settings",
    }.get(kind, "retry")


def extract_error_message(body: str) -> str:
    """The provider's message in an error response body, on one line."""
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


def _retry_after(milliseconds: str | None, header: str | None) -> float | None:
    """Parses seconds or a date; None for anything else."""
    for text, unit in ((milliseconds, 0.001), (header, 1.0)):
        try:
            seconds = float(text) * unit if text else math.nan
        except ValueError:
            continue
        if math.isfinite(seconds):
            return max(seconds, 0.0)
    if not header:
        return None
    import time
    from email.utils import parsedate_to_datetime

    try:
        return max(parsedate_to_datetime(header).timestamp() - time.time(), 0.0)
    except (ValueError, TypeError, OverflowError):
        return None


def _transport_error(error: TransportError, endpoint: ApiEndpoint) -> ModelError:
    reason, provider = shorten_message(error.reason), endpoint.provider
    match error.kind:
        case "address":
            return ModelError(
                "bad-request", f"{shorten_message(endpoint.base_url)} is not a valid URL", "fix the base URL"
            )
        case "no-answer":
            return ModelError("unreachable", f"cannot reach {provider}: no response from {_display_address(endpoint)}")
        case "unreachable":
            problem = f"cannot reach {provider} at {_display_address(endpoint)}: {reason}"
            return ModelError("unreachable", problem, "check the URL and the network connection")
        case "certificate":
            problem = f"the certificate of {_display_address(endpoint)} is not valid: {reason}"
            return ModelError("bad-request", problem, "check the URL and this machine's CA certificates")
        case "silent":
            return ModelError("cut", f"{provider} sent no data for {endpoint.idle_timeout:.0f} s", "retry")
        case "broken":
            return ModelError("cut", f"the connection to {provider} was lost: {reason}", "retry")


def _display_address(endpoint: ApiEndpoint) -> str:
    """The base URL without user, password and query."""
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(endpoint.base_url)
        return f"{parts.scheme}://{parts.hostname or ''}" + (f":{parts.port}" if parts.port else "")
    except ValueError:
        return "its URL"


def text_field(fields: Mapping[str, Any], name: str) -> str:
    """Empty if the field is missing or not a string."""
    value = fields.get(name)
    return value if isinstance(value, str) else ""


def parse_tool_call(call_id: str, name: str, text: str) -> ToolCall:
    """Strict: arguments that are not exactly one JSON object never run."""
    if not is_portable_name(name):
        # The name is sent back with every later request, and providers reject invalid names.
        problem = f"{shorten_message(repr(name[:80]))} is not a valid tool name; call an available tool"
        return ToolCall(id=call_id, name=INVALID_TOOL_NAME, arguments={}, problem=problem, raw=text[:2_000])
    arguments, problem = parse_arguments(text)
    if problem:
        return ToolCall(
            id=call_id,
            name=name,
            arguments={},
            problem=f"{problem}; call it again with correct arguments",
            raw=text[:2_000],
        )
    return ToolCall(id=call_id, name=name, arguments=arguments)


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
        return {}, f"expected a JSON object, not {type(value).__name__}"
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return {}, "the arguments contain a lone surrogate"
    return cast("dict[str, Any]", value), ""


def _reject_constant(name: str) -> float:
    raise ValueError(f"{name} is not valid JSON")


def _parse_finite_float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"number {text[:20]} is too large")
    return value


def _reject_duplicate_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise ValueError("duplicate key")
    return fields
