"""The stdio transport: starts a server's program, exchanges messages line by line, and always ends it.

Used by servers as a transport of the `mcp` SDK. The SDK's own keeps an endless line in memory, passes on more of the
environment, and misses processes that left the program's group. The end of the program's standard error is kept for a
log.
"""

import asyncio
import contextlib
import os
import re
import signal
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final, NamedTuple

import anyio
import mcp_types as types
from mcp.shared.message import SessionMessage

from kitbag.processes.descendants import MARKER_VARIABLE, DescendantTracker
from kitbag.processes.signals import signal_child_group

MAX_MESSAGE_BYTES: Final = 16 << 20
"""Of one message; a longer one is dropped and its request fails."""
MAX_LINE_BYTES: Final = 64 << 20
"""Of one line before the connection is closed."""
MAX_NON_MESSAGE_BYTES: Final = 8 << 20
"""Of output that is not messages, such as a log on standard output, before the connection is closed."""
MAX_UNSOLICITED_MESSAGES: Final = 5_000
"""Within ten seconds."""
_WINDOW_SECONDS = 10.0
_CHUNK_BYTES = 1 << 16
_KEPT_PREFIX_BYTES = 1_000
_MAX_STDERR_BYTES = 1 << 16
_EXIT_TIMEOUT_SECONDS = 1.0
_TERMINATE_TIMEOUT_SECONDS = 0.5
_ID = re.compile(rb'"id"\s*:\s*(\d{1,18})')


class ServerProgram(NamedTuple):
    argv: tuple[str, ...]
    directory: str
    environment: Mapping[str, str]


class StderrTail:
    """The end of a program's standard error."""

    def __init__(self) -> None:
        self._tail = bytearray()
        self.total = 0

    def feed(self, chunk: bytes) -> None:
        self.total += len(chunk)
        self._tail += chunk
        if len(self._tail) > 2 * _MAX_STDERR_BYTES:
            del self._tail[:-_MAX_STDERR_BYTES]

    @property
    def text(self) -> str:
        return bytes(self._tail[-_MAX_STDERR_BYTES:]).decode("utf-8", "replace")


class FloodError(Exception):
    """The server keeps sending what was not requested."""


@asynccontextmanager
async def connect_stdio(
    program: ServerProgram, stderr: StderrTail, on_end: Callable[[str], None]
) -> AsyncGenerator[Any, None]:
    """The streams that the SDK expects. Calls `on_end` with the reason when the output ends. Raises OSError if the
    program can't be started."""
    tracker = DescendantTracker()
    try:
        process = await asyncio.create_subprocess_exec(
            *program.argv,
            cwd=program.directory,
            env={**program.environment, MARKER_VARIABLE: tracker.marker_value(os.environ.get(MARKER_VARIABLE, ""))},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
            pass_fds=tracker.descriptors,
        )
    except BaseException:
        tracker.close()
        raise
    tracker.track(process.pid)
    to_us, for_session = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    to_server, from_session = anyio.create_memory_object_stream[SessionMessage](0)
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(_read_output, process, to_us, stderr, on_end)
            group.start_soon(_write_messages, process, from_session, to_us, on_end)
            group.start_soon(_read_stderr, process, stderr)
            try:
                yield for_session, to_server
            finally:
                with anyio.CancelScope(shield=True):
                    await _stop_program(process, tracker)
                group.cancel_scope.cancel()
    finally:
        for stream in (to_us, for_session, to_server, from_session):
            stream.close()


# --- from the server --------------------------------------------------------------------------------------------


class LineSplitter:
    """Splits output into lines. Keeps only the start of one that is too long."""

    def __init__(self, max_bytes: int = MAX_MESSAGE_BYTES) -> None:
        self._most = max_bytes
        self._parts: list[bytes] = []
        self.size = 0

    def feed(self, chunk: bytes) -> list[tuple[bytes, int]]:
        """Complete lines, each with its full length."""
        found: list[tuple[bytes, int]] = []
        *whole, rest = chunk.split(b"\n")
        for piece in whole:
            self._add(piece)
            found.append((b"".join(self._parts), self.size))
            self._parts, self.size = [], 0
        self._add(rest)
        return found

    def _add(self, piece: bytes) -> None:
        self.size += len(piece)
        if self.size <= self._most:
            self._parts.append(piece)
        elif len(self._parts) != 1 or len(self._parts[0]) > _KEPT_PREFIX_BYTES:
            self._parts = [b"".join((*self._parts, piece))[:_KEPT_PREFIX_BYTES]]


async def _read_output(
    process: asyncio.subprocess.Process, to_us: Any, stderr: StderrTail, on_end: Callable[[str], None]
) -> None:
    reason = ""
    try:
        async with to_us:
            await _deliver_messages(process, to_us, stderr)
    except FloodError as error:
        reason = str(error)
    except (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
        pass  # the session is closed
    on_end(reason or await _describe_exit(process))
    # Drain the pipe, so that a full one does not block the program's exit.
    with contextlib.suppress(OSError, ValueError):
        assert process.stdout is not None
        while await process.stdout.read(_CHUNK_BYTES):
            pass


async def _deliver_messages(process: asyncio.subprocess.Process, to_us: Any, stderr: StderrTail) -> None:
    assert process.stdout is not None
    lines, non_message_bytes, unsolicited, window = LineSplitter(), 0, 0, time.monotonic()
    while chunk := await process.stdout.read(_CHUNK_BYTES):
        for line, size in lines.feed(chunk):
            message = _parse_message(line, size)
            if message is None:
                non_message_bytes += size
                stderr.feed(line[:1000] + b"\n")
                if non_message_bytes > MAX_NON_MESSAGE_BYTES:
                    raise FloodError(f"it printed {non_message_bytes >> 20:,} MiB of output that is not MCP messages")
                continue
            if not isinstance(message, types.JSONRPCResponse | types.JSONRPCError):
                now = time.monotonic()
                unsolicited, window = (1, now) if now - window > _WINDOW_SECONDS else (unsolicited + 1, window)
                if unsolicited > MAX_UNSOLICITED_MESSAGES:
                    raise FloodError(f"it sent more than {MAX_UNSOLICITED_MESSAGES:,} unsolicited messages")
            await to_us.send(SessionMessage(message))
        if lines.size > MAX_LINE_BYTES:
            raise FloodError("it printed an overlong line")


def _parse_message(line: bytes, size: int) -> types.JSONRPCMessage | None:
    """None if it is not a message. In place of an answer that is too long, an error for its request."""
    if size > len(line):
        found = _ID.search(line[:200])
        if found is None:
            return None
        error = types.ErrorData(code=types.INTERNAL_ERROR, message=f"response too large: {size:,} bytes")
        return types.JSONRPCError(jsonrpc="2.0", id=int(found[1]), error=error)
    try:
        return types.jsonrpc_message_adapter.validate_json(line, by_name=False)
    except ValueError:
        return None


async def _describe_exit(process: asyncio.subprocess.Process) -> str:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_EXIT_TIMEOUT_SECONDS):
            status = await process.wait()
            if status < 0:
                return f"it was terminated by {signal.Signals(-status).name}"
            return f"it exited with status {status}"
    return "it closed its output"


async def _read_stderr(process: asyncio.subprocess.Process, stderr: StderrTail) -> None:
    assert process.stderr is not None
    with contextlib.suppress(OSError, ValueError):
        while chunk := await process.stderr.read(_CHUNK_BYTES):
            stderr.feed(chunk)


# --- to the server ----------------------------------------------------------------------------------------------


async def _write_messages(
    process: asyncio.subprocess.Process, from_session: Any, to_us: Any, on_end: Callable[[str], None]
) -> None:
    assert process.stdin is not None
    try:
        async with from_session:
            async for item in from_session:
                line = item.message.model_dump_json(by_alias=True, exclude_unset=True)
                process.stdin.write(line.encode() + b"\n")
                await process.stdin.drain()
    except OSError:
        # It may still run, but can't receive anything: pending requests fail.
        to_us.close()
        on_end("it closed its input")


async def _stop_program(process: asyncio.subprocess.Process, tracker: DescendantTracker) -> None:
    """As the protocol says: close its input, then SIGTERM, then SIGKILL; and the same for all it started."""
    assert process.stdin is not None
    with contextlib.suppress(OSError):
        process.stdin.close()
    if not await _wait_for_exit(process, _EXIT_TIMEOUT_SECONDS):
        _signal_program(process, signal.SIGTERM)
        if not await _wait_for_exit(process, _TERMINATE_TIMEOUT_SECONDS):
            _signal_program(process, signal.SIGKILL)
            await _wait_for_exit(process, _EXIT_TIMEOUT_SECONDS)
    await asyncio.to_thread(tracker.end_all)
    transport: Any = getattr(process, "_transport", None)
    if transport is not None:  # else it stays open as long as another process holds the pipe
        with contextlib.suppress(PermissionError):
            transport.close()


async def _wait_for_exit(process: asyncio.subprocess.Process, seconds: float) -> bool:
    """By its status: `wait` also waits for its pipes, which another process may hold."""
    deadline = time.monotonic() + seconds
    while process.returncode is None and time.monotonic() < deadline:
        await asyncio.sleep(0.01)
    return process.returncode is not None


def _signal_program(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    if process.returncode is None:
        signal_child_group(process.pid, number)
