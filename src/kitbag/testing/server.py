"""A scripted model behind loopback HTTP, speaking the wire protocols of Anthropic and OpenAI over real sockets.

Used by tests and by `python -m kitbag.testing.serve script.json`; any client of these providers can talk to it.
`requests` records every request, so that a test can check exactly what was sent.
"""

import asyncio
import json
import threading
from types import TracebackType
from typing import Any, Self, cast

import msgspec

from kitbag.errors import InvalidError
from kitbag.models.scripted import Fault, Script, Step
from kitbag.testing.protocols import (
    PATHS,
    Protocol,
    WireEvent,
    reply_document,
    reply_events,
    reply_usage,
    summarize_request,
)

_MAX_BODY_BYTES = 64 << 20
_MODELS = ("claude-sonnet-4-5", "gpt-5", "scripted")


class ReceivedRequest(msgspec.Struct, frozen=True, kw_only=True):
    path: str
    headers: dict[str, str]
    body: dict[str, Any]
    raw: bytes
    """The body as received."""

    @property
    def size(self) -> int:
        return len(self.raw)


class ModelServer:
    """`with ModelServer(script) as server:` listens on a free port of 127.0.0.1, in its own thread."""

    def __init__(self, script: Script, port: int = 0, *, chunk: int = 0, newline: str = "\n") -> None:
        """`chunk`: send in chunks of this many bytes; `newline`: the line ending of events, `\\n` or `\\r\\n`."""
        self.script = script
        self.requests: list[ReceivedRequest] = []
        self.connections = 0
        """Currently open."""
        self.open_streams = 0
        self.problem = ""
        """Why the server failed to start."""
        self._port = port
        self._chunk = chunk
        self._newline = newline
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._ready = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    @property
    def is_ready(self) -> bool:
        return self._ready.is_set()

    def environment(self) -> dict[str, str]:
        """Environment variables that point clients to this server."""
        return {
            "ANTHROPIC_BASE_URL": self.url,
            "ANTHROPIC_API_KEY": "test-key-anthropic",
            "OPENAI_BASE_URL": f"{self.url}/v1",
            "OPENAI_API_KEY": "test-key-openai",
        }

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=lambda: asyncio.run(self.serve()), daemon=True)
        self._thread.start()
        if not self._ready.wait(10) or self.problem:
            raise InvalidError(self.problem or "the model server did not start", "use another port")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._loop is not None and self._stop is not None:
            self._loop.call_soon_threadsafe(self._stop.set)
        if self._thread is not None:
            self._thread.join(10)

    async def serve(self) -> None:
        """Serves until stopped."""
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        try:
            server = await asyncio.start_server(self._handle_connection, "127.0.0.1", self._port)
        except OSError as error:
            self.problem = f"port {self._port} can't be used: {error.strerror}"
            self._ready.set()
            return
        self._port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._stop.wait()
        server.close()

    async def _handle_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while await self._handle_request(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, asyncio.CancelledError):
            pass
        finally:
            self.connections -= 1
            writer.close()

    async def _handle_request(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = await reader.readuntil(b"\r\n\r\n")
        lines = head.decode("latin-1").split("\r\n")
        method, target, *_ = (*lines[0].split(" "), "", "")
        pairs = [line.partition(":") for line in lines[1:] if line]
        headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
        length_header = headers.get("content-length", "0")
        length = min(int(length_header), _MAX_BODY_BYTES) if length_header.isascii() and length_header.isdigit() else 0
        raw = await reader.readexactly(length)
        path = target.split("?")[0]
        try:
            value: Any = json.loads(raw) if raw else {}
        except ValueError:
            return await _respond(writer, 400, {"error": {"message": "the body is not valid JSON"}})
        body = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
        matching: list[Protocol] = [protocol for end, protocol in PATHS.items() if path.endswith(f"/{end}")]
        protocol = matching[0] if matching else None
        if method != "POST" or protocol is None:
            return await self._answer_other(writer, path, body)
        self.requests.append(ReceivedRequest(path=path, headers=headers, body=body, raw=raw))
        step, fault = self.script.next(summarize_request(protocol, body))
        if step.delay and await _disconnects_within(reader, step.delay):
            return False
        if fault is not None and fault.status:
            text = fault.body or json.dumps({"type": "error", "error": {"type": "scripted", "message": "as scripted"}})
            return await _respond(writer, fault.status, text, dict(fault.headers))
        model = str(body.get("model", "scripted"))
        if not body.get("stream"):
            return await _respond(writer, 200, reply_document(protocol, step, reply_usage(step, body), model))
        self.open_streams += 1
        try:
            return await self._stream(reader, writer, protocol, step, fault, body)
        finally:
            self.open_streams -= 1

    async def _answer_other(self, writer: asyncio.StreamWriter, path: str, body: dict[str, Any]) -> bool:
        if path.endswith("/models"):
            return await _respond(writer, 200, {"object": "list", "data": [{"id": name} for name in _MODELS]})
        if path.endswith("/count_tokens"):
            return await _respond(writer, 200, {"input_tokens": reply_usage(Step(), body).input})
        return await _respond(writer, 404, {"error": {"message": f"no such path: {path}"}})

    async def _stream(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        protocol: Protocol,
        step: Step,
        fault: Fault | None,
        body: dict[str, Any],
    ) -> bool:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        events = list(reply_events(protocol, step, reply_usage(step, body), str(body.get("model", "scripted"))))
        sent, after = _apply_fault(events, fault, protocol)
        for event in sent:
            await self._send(writer, self._encode(event))
        if after == "reset":
            writer.transport.abort()
            return False
        if after == "idle" and fault is not None:
            await _disconnects_within(reader, fault.seconds or 3600)
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        return True

    def _encode(self, event: WireEvent) -> bytes:
        name, data = event
        text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
        lines = ([f"event: {name}"] if name else []) + [f"data: {text}", "", ""]
        return self._newline.join(lines).encode()

    async def _send(self, writer: asyncio.StreamWriter, data: bytes) -> None:
        size = self._chunk or len(data)
        for start in range(0, len(data), size):
            piece = data[start : start + size]
            writer.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            if self._chunk:
                await writer.drain()
        await writer.drain()


async def _disconnects_within(reader: asyncio.StreamReader, seconds: float) -> bool:
    """Whether the client disconnected within the time."""
    try:
        return not await asyncio.wait_for(reader.read(1), seconds)
    except TimeoutError:
        return False


def _apply_fault(events: list[WireEvent], fault: Fault | None, protocol: Protocol) -> tuple[list[WireEvent], str]:
    """The events to send, and the fault to apply after them."""
    if fault is None:
        return events, ""
    if fault.kind == "error-event":
        error: dict[str, Any] = {"type": "overloaded_error", "code": "server_error", "message": "as scripted"}
        if protocol == "anthropic":
            return [*events[:3], ("error", {"type": "error", "error": error})], ""
        if protocol == "chat":
            return [*events[:3], ("", {"error": error})], ""
        return [*events[:3], ("error", {**error, "type": "error"})], ""
    if fault.kind in ("cut-text", "cut-call", "reset", "idle"):
        # Half of the text deltas, or half of the deltas of the call's arguments.
        words = ("input_json_delta", "tool_calls", "function_call_arguments.delta") if fault.kind == "cut-call" else ()
        deltas = [at for at, event in enumerate(events) if _is_delta(event, words)]
        keep = deltas[len(deltas) // 2] + 1 if deltas else len(events) // 2
        return events[:keep], fault.kind
    if fault.kind == "no-end":
        return [event for event in events if not _is_end(event)], ""
    if fault.kind == "unknown-events":
        extra: WireEvent = ("surprise", {"type": "surprise", "choices": [], "new": True})
        return [mixed for event in events for mixed in (extra, event)], ""
    return events, ""


def _is_delta(event: WireEvent, words: tuple[str, ...]) -> bool:
    text = json.dumps(event[1])
    return any(word in text for word in words) if words else "delta" in text


def _is_end(event: WireEvent) -> bool:
    name, data = event
    if isinstance(data, str) or name in ("message_delta", "message_stop", "response.completed", "response.incomplete"):
        return True
    choices = data.get("choices")
    return isinstance(choices, list) and (not choices or bool(choices[0].get("finish_reason")))  # pyright: ignore


async def _respond(
    writer: asyncio.StreamWriter, status: int, body: dict[str, Any] | str, headers: dict[str, str] | None = None
) -> bool:
    data = (body if isinstance(body, str) else json.dumps(body)).encode()
    lines = [f"HTTP/1.1 {status} .", "content-type: application/json", f"content-length: {len(data)}"]
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    writer.write("\r\n".join([*lines, "", ""]).encode() + data)
    await writer.drain()
    return True
