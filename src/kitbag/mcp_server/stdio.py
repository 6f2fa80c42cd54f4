"""The MCP server over standard input and output, one message per line.

Only messages reach standard output: while it serves, prints go to stderr, and child processes get an empty stdin.
Separate threads read and write, so that a blocked client never prevents the exit. Used by cli/mcp.
"""

import asyncio
import contextlib
import fcntl
import json
import os
import queue
import threading
from collections.abc import AsyncGenerator, Callable
from typing import Any, Final, cast

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp_types import INVALID_REQUEST, PARSE_ERROR, JSONRPCNotification, jsonrpc_message_adapter
from pydantic import ValidationError

from kitbag.mcp_server.server import KitbagServer
from kitbag.mcp_server.server_state import ServerState

MAX_LINE_BYTES: Final = 4 * 1024 * 1024
_CHUNK_BYTES: Final = 1 << 16


async def serve_stdio(state: ServerState) -> None:
    """Runs until the client closes its end."""
    server = KitbagServer(state)
    with _claim_standard_streams() as (source, sink):
        async with _message_streams(source, sink) as (incoming, outgoing):
            await server.run(incoming, outgoing, server.create_initialization_options())


@contextlib.contextmanager
def _claim_standard_streams() -> "Any":
    """Descriptors for messages only. Never closed: a thread may still wait on one."""
    source, sink = (fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3) for fd in (0, 1))
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    try:
        yield source, sink
    finally:
        os.dup2(source, 0)
        os.dup2(sink, 1)


@contextlib.asynccontextmanager
async def _message_streams(
    source: int, sink: int
) -> "AsyncGenerator[tuple[MemoryObjectReceiveStream[SessionMessage | Exception], MemoryObjectSendStream[SessionMessage]], None]":  # noqa: E501
    arriving, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    outgoing, leaving = anyio.create_memory_object_stream[SessionMessage](0)
    writer = _Writer(sink)

    async def read() -> None:
        async with arriving:
            async for line in _lines(source):
                message, error_response = _parse_line(line)
                if message is None:
                    await writer.write(error_response)
                    continue
                with contextlib.suppress(anyio.BrokenResourceError):
                    await arriving.send(SessionMessage(message))

    async def write() -> None:
        async with leaving:
            async for message in leaving:
                text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                if not await writer.write(text.encode() + b"\n"):
                    group.cancel_scope.cancel()  # the client no longer reads

    async with anyio.create_task_group() as group:
        group.start_soon(read)
        group.start_soon(write)
        yield incoming, outgoing
        group.cancel_scope.cancel()


def _parse_line(line: bytes | None) -> tuple[Any, bytes]:
    """The message, or an error response for an invalid one."""
    if line is None:
        return None, _error_response(INVALID_REQUEST, f"the message is larger than {MAX_LINE_BYTES:,} bytes", None)
    message: Any = None
    with contextlib.suppress(ValidationError):
        message = jsonrpc_message_adapter.validate_json(line, by_name=False)
        if not isinstance(message, JSONRPCNotification) or b'"id"' not in line:
            return message, b""
    try:
        parsed: Any = json.loads(line)
    except (ValueError, RecursionError):
        return None, _error_response(PARSE_ERROR, "the message is not valid JSON", None)
    if message is not None:
        if "id" not in parsed:
            return message, b""
        # Its sender waits for a response.
        return None, _error_response(INVALID_REQUEST, "the id of a request must be a string or an integer", None)
    request_id = cast("dict[str, Any]", parsed).get("id") if isinstance(parsed, dict) else None
    known = request_id if isinstance(request_id, str | int) and not isinstance(request_id, bool) else None
    return None, _error_response(INVALID_REQUEST, "the message is not a JSON-RPC 2.0 message", known)


def _error_response(code: int, problem: str, request_id: str | int | None) -> bytes:
    error = {"jsonrpc": "2.0", "id": request_id, "error": {"code": code, "message": problem}}
    return json.dumps(error).encode() + b"\n"


async def _lines(source: int) -> "AsyncGenerator[bytes | None, None]":
    """Skips empty lines; None stands for a line that is too long, which is dropped."""
    loop = asyncio.get_running_loop()
    arrived: asyncio.Queue[bytes | None] = asyncio.Queue()
    room = threading.Semaphore(64)
    end = b""

    def put(line: bytes | None) -> None:
        room.acquire()
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(arrived.put_nowait, line)

    threading.Thread(target=_read_lines, args=(source, put, end), daemon=True, name="kitbag-mcp-in").start()
    while (line := await arrived.get()) != end:
        room.release()
        yield line


def _read_lines(source: int, put: Callable[[bytes | None], None], end: bytes) -> None:
    held, too_long = bytearray(), False
    while True:
        try:
            chunk = os.read(source, _CHUNK_BYTES)
        except OSError:
            chunk = b""
        if not chunk:
            break
        while (at := chunk.find(b"\n")) >= 0:
            held += chunk[:at]
            chunk = chunk[at + 1 :]
            if too_long or len(held) > MAX_LINE_BYTES:
                put(None)
            elif held.strip():
                put(bytes(held))
            held, too_long = bytearray(), False
        held += chunk
        if len(held) > MAX_LINE_BYTES:
            held, too_long = bytearray(), True
    put(end)


class _Writer:
    """Writes in a thread, so that a client that does not read delays only its own responses."""

    def __init__(self, sink: int) -> None:
        self._sink = sink
        self._loop = asyncio.get_running_loop()
        self._work: queue.SimpleQueue[tuple[bytes, asyncio.Future[bool]]] = queue.SimpleQueue()
        threading.Thread(target=self._run, daemon=True, name="kitbag-mcp-out").start()

    async def write(self, data: bytes) -> bool:
        """False if the client no longer reads."""
        done: asyncio.Future[bool] = self._loop.create_future()
        self._work.put((data, done))
        return await done

    def _run(self) -> None:
        while True:
            data, done = self._work.get()
            left, written = memoryview(data), True
            try:
                while left:
                    left = left[os.write(self._sink, left) :]
            except OSError:
                written = False
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(_settle, done, written)


def _settle(done: "asyncio.Future[bool]", value: bool) -> None:
    if not done.done():
        done.set_result(value)
