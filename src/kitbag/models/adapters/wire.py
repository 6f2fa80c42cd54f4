"""What the adapters share: the streaming API client, and strict parsing of tool arguments.

Follows no redirects, so an API key never goes to another host. Used by anthropic, openai_chat, openai_responses and
scripted; uses http, server_sent_events, reply_limits and api_errors.
"""

import asyncio
import json
import math
import os
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, aclosing
from typing import Any, Final, Protocol, cast

import msgspec

from kitbag.messages import ToolCall
from kitbag.models.adapters.api_errors import (
    ApiEndpoint,
    compressed_response,
    empty_response,
    error_in_reply,
    html_response,
    is_html,
    shorten_message,
    status_error,
    transport_error,
    unreadable_response,
)
from kitbag.models.adapters.server_sent_events import EventParser, EventTooLongError
from kitbag.models.http.post import HttpResponse, HttpTransport, TransportError, has_proxy
from kitbag.models.portable_names import INVALID_TOOL_NAME, is_portable_name
from kitbag.models.provider import ModelError, ModelReply, StreamItem
from kitbag.models.reply_limits import ContentBudget, ReplyLimitError, StalledError, StreamWatch
from kitbag.text.safe_json import parse_json

CONNECT_TIMEOUT: Final = 15.0
_ERROR_BYTES: Final = 1 << 16
_ERROR_SECONDS: Final = 10.0
"""How long to read the body of an error response."""
_DOCUMENT_BYTES: Final = 8 << 20
_EXCERPT_BYTES: Final = 4_096
_EVENT_STREAM_STARTS: Final = (b":", b"data", b"event", b"id", b"retry")

UnpackDocument = Callable[[dict[str, Any]], Iterable[dict[str, Any]]]
"""The events for a reply that was sent as one JSON document; none if the document is no reply."""


class ApiClient:
    """Sends requests to one provider; keeps connections open between requests."""

    def __init__(self, endpoint: ApiEndpoint) -> None:
        self.endpoint = endpoint
        self._transport: HttpTransport | None = None

    async def events(
        self, path: str, body: bytes, watch: StreamWatch, unpack: UnpackDocument
    ) -> AsyncGenerator[dict[str, Any] | None, None]:
        """Sends a POST request and yields the data of each event, and None for the marker that ends a stream. Raises
        ModelError and ReplyLimitError."""
        endpoint = self.endpoint
        headers = {
            "content-type": "application/json",
            "accept": "text/event-stream",
            "accept-encoding": "identity",
            **endpoint.headers,
        }
        try:
            async with AsyncExitStack() as stack:
                post = self._open_transport().post(endpoint.base_url.rstrip("/") + path, headers, body)
                answer = await watch.wait(stack.enter_async_context(post))
                chunks = await stack.enter_async_context(aclosing(answer.chunks()))
                encoding = answer.headers.get("content-encoding", "identity").strip().lower()
                if encoding not in ("", "identity"):
                    raise compressed_response(endpoint, encoding)
                if answer.status != 200:
                    error_body = await _read_error_body(chunks)
                    raise status_error(endpoint, answer.status, answer.headers, error_body)
                reader = _BodyReader(answer, chunks, watch, endpoint)
                events = await stack.enter_async_context(aclosing(reader.events(unpack)))
                async for event in events:
                    yield event
        except TransportError as error:
            raise transport_error(error, endpoint) from error
        except StalledError as error:
            problem = f"{endpoint.provider} sent no data for {error.seconds:.0f} s"
            raise ModelError("stalled", problem, f"retry, or raise `{error.setting}`") from error
        except EventTooLongError as error:
            raise ReplyLimitError(f"it has an {error}", "") from error

    def _open_transport(self) -> HttpTransport:
        if self._transport is None:
            if has_proxy(os.environ):
                from kitbag.models.http.proxied import ProxiedTransport as Transport
            else:
                from kitbag.models.http.direct import DirectTransport as Transport
            self._transport = Transport(CONNECT_TIMEOUT)
        return self._transport

    async def close(self) -> None:
        if self._transport is not None:
            await self._transport.close()
            self._transport = None


class _BodyReader:
    """Reads the body of a successful response, which should be an event stream."""

    def __init__(
        self, answer: HttpResponse, chunks: AsyncGenerator[bytes, None], watch: StreamWatch, endpoint: ApiEndpoint
    ) -> None:
        self._chunks = chunks
        self._watch = watch
        self._endpoint = endpoint
        self._content_type = answer.headers.get("content-type", "").partition(";")[0].strip().lower()

    async def events(self, unpack: UnpackDocument) -> AsyncGenerator[dict[str, Any] | None, None]:
        start = await self._read_start()
        text = start.lstrip(b"\xef\xbb\xbf \t\r\n")
        if not text:
            raise empty_response(self._endpoint)
        # No line of an event stream starts like this, whatever the content type says.
        if text.startswith((b"{", b"[", b"<")):
            for event in await self._read_document(start, unpack):
                yield event
            return
        async with aclosing(self._read_stream(start)) as events:
            async for event in events:
                yield event

    async def _next(self) -> bytes | None:
        """Raises StalledError and ReplyLimitError."""
        return await self._watch.wait(anext(self._chunks, None))

    async def _read_start(self) -> bytes:
        """The body up to its first visible character."""
        start = b""
        while not start.strip(b"\xef\xbb\xbf \t\r\n"):
            chunk = await self._next()
            if chunk is None:
                break
            self._watch.received(len(chunk), is_event=True)
            start = start[-_EXCERPT_BYTES:] + chunk
        return start

    async def _read_stream(self, start: bytes) -> AsyncGenerator[dict[str, Any] | None, None]:
        parser = EventParser()
        chunk: bytes | None = start
        count = 0
        while chunk is not None:
            for data in parser.feed(chunk):
                count += 1
                if data.strip() == "[DONE]":
                    yield None
                    return
                if data:
                    yield self._parse_event(data)
            chunk = await self._next()
            if chunk is not None:
                self._watch.received(len(chunk), is_event=b"\n" in chunk or b"\r" in chunk)
        first_line = start.lstrip(b"\xef\xbb\xbf \t\r\n")
        if not count and not first_line.startswith(_EVENT_STREAM_STARTS):
            body = start[:_EXCERPT_BYTES].decode("utf-8", "replace")
            raise unreadable_response(self._endpoint, self._content_type or "a response without content type", body)

    def _parse_event(self, data: str) -> dict[str, Any]:
        provider = self._endpoint.provider
        try:
            value = parse_json(data)
        except (ValueError, RecursionError) as error:
            excerpt = self._endpoint.clean_excerpt(data[:_EXCERPT_BYTES])
            raise ModelError("cut", f"{provider} sent an event that is not valid JSON: {excerpt!r}", "retry") from error
        if not isinstance(value, dict):
            raise ModelError("cut", f"{provider} sent an event that is not a JSON object", "retry")
        return cast("dict[str, Any]", value)

    async def _read_document(self, start: bytes, unpack: UnpackDocument) -> list[dict[str, Any] | None]:
        """A whole JSON reply, from a gateway that does not stream. Raises ModelError for anything else."""
        data = bytearray(start)
        is_page = start.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"<")
        while len(data) <= (_ERROR_BYTES if is_page else _DOCUMENT_BYTES):
            chunk = await self._next()
            if chunk is None:
                break
            self._watch.received(len(chunk), is_event=True)
            data += chunk
        text = data[:_DOCUMENT_BYTES].decode("utf-8-sig", "replace")
        excerpt = text[:_ERROR_BYTES]
        if is_page:
            named = html_response(self._endpoint, excerpt) if is_html(excerpt) else None
            raise named or unreadable_response(self._endpoint, self._content_type or "markup", excerpt)
        try:
            value = parse_json(text)
        except (ValueError, RecursionError) as error:
            what = f"JSON larger than {_DOCUMENT_BYTES >> 20} MB" if len(data) > _DOCUMENT_BYTES else "invalid JSON"
            raise unreadable_response(self._endpoint, what, excerpt[:_EXCERPT_BYTES]) from error
        document = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
        if document.get("error"):
            raise error_in_reply(self._endpoint.provider, document["error"])
        events: list[dict[str, Any] | None] = list(unpack(document))
        if not events:
            raise unreadable_response(self._endpoint, "JSON that is not a reply", excerpt[:_EXCERPT_BYTES])
        return [*events, None]


async def _read_error_body(chunks: AsyncGenerator[bytes, None]) -> str:
    """As much as arrives soon: an error response may end as slowly as it likes."""
    body = b""
    try:
        async with asyncio.timeout(_ERROR_SECONDS):
            async for chunk in chunks:
                body += chunk
                if len(body) > _ERROR_BYTES:
                    break
    except (TimeoutError, TransportError):
        pass
    return body[:_ERROR_BYTES].decode("utf-8", "replace")


class StreamParser(Protocol):
    """Turns the events of one protocol into stream items and a reply."""

    budget: ContentBudget

    @property
    def is_over(self) -> bool:
        """True if the rest of the stream can be ignored."""
        ...

    @property
    def may_think(self) -> bool:
        """Whether the model may think without sending anything."""
        ...

    def read(self, event: dict[str, Any]) -> list[StreamItem]: ...

    def end(self) -> None:
        """The stream has ended with its marker."""
        ...

    def unpack(self, document: dict[str, Any]) -> Iterable[dict[str, Any]]:
        """The events for a reply that was sent as one document; none if it is no reply."""
        ...

    def reply(self) -> ModelReply:
        """The complete reply. Raises ModelError if it is incomplete."""
        ...

    def partial_reply(self) -> ModelReply:
        """What has arrived so far."""
        ...


async def stream_reply(
    client: ApiClient, path: str, body: bytes, parser: StreamParser
) -> AsyncGenerator[StreamItem, None]:
    """Sends one request and yields its stream items, the reply last. A reply beyond a limit is cut there."""
    endpoint = client.endpoint
    watch = StreamWatch(endpoint.limits, endpoint.is_local)
    watch.may_think = lambda: parser.may_think
    try:
        async with aclosing(client.events(path, body, watch, parser.unpack)) as events:
            async for event in events:
                if event is None:
                    parser.end()
                    break
                for piece in parser.read(event):
                    yield piece
                parser.budget.check()
                if parser.is_over:
                    break
    except ReplyLimitError as error:
        reply = parser.partial_reply()
        if not reply.message.parts:
            fix = f"retry, or raise `{error.setting}`" if error.setting else "use another provider"
            problem = f"{endpoint.provider} sent no usable reply: {error.reason}"
            raise ModelError("limit", problem, fix) from error
        yield msgspec.structs.replace(reply, stop="limit", stop_reason=error.reason)
        return
    yield parser.reply()


def count_field(fields: Mapping[str, Any], name: str) -> int:
    """A number of tokens; 0 if the field is missing or nonsense."""
    value = fields.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 1 << 53 else 0


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
