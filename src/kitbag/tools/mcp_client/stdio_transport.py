"""A server that is a program of this machine: started, spoken with line by line, and always ended.

Used by `connection`, as a transport of the `mcp` SDK; the SDK's own keeps an endless line whole in memory, passes on
more of the environment, and does not find what has left the program's group. What the program prints on its error
output is kept, bounded, for a log.
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

from kitbag.processes.descendants import MARK, Leash
from kitbag.processes.signals import signal_child_group

MOST_MESSAGE: Final = 16 << 20
"""Bytes of one message; a longer one is not kept, and whoever waits for it is told."""
MOST_LINE: Final = 64 << 20
"""Bytes of one line before it is given up."""
MOST_FOREIGN: Final = 8 << 20
"""Bytes that are no messages, such as a log on the wrong output, before it is given up."""
MOST_AT_ONCE: Final = 5_000
"""Messages that nobody asked for, in ten seconds."""
_WINDOW = 10.0
_CHUNK = 1 << 16
_BEGINNING = 1_000
_MOST_SAID = 1 << 16
_ENDING_SECONDS = 1.0
_TERMINATED_SECONDS = 0.5
_ID = re.compile(rb'"id"\s*:\s*(\d{1,18})')


class Start(NamedTuple):
    words: tuple[str, ...]
    directory: str
    environment: Mapping[str, str]


class Said:
    """The end of what a program printed on its error output."""

    def __init__(self) -> None:
        self._kept = bytearray()
        self.total = 0

    def take(self, chunk: bytes) -> None:
        self.total += len(chunk)
        self._kept += chunk
        if len(self._kept) > 2 * _MOST_SAID:
            del self._kept[:-_MOST_SAID]

    @property
    def text(self) -> str:
        return bytes(self._kept[-_MOST_SAID:]).decode("utf-8", "replace")


class FloodError(Exception):
    """It sends without end what nobody asked for."""


@asynccontextmanager
async def program(start: Start, said: Said, ended: Callable[[str], None]) -> AsyncGenerator[Any, None]:
    """Streams as the SDK wants them. `ended` is called, with why, when nothing more comes. Raises OSError when it
    can't be started."""
    leash = Leash()
    try:
        process = await asyncio.create_subprocess_exec(
            *start.words,
            cwd=start.directory,
            env={**start.environment, MARK: leash.variable(os.environ.get(MARK, ""))},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
            pass_fds=leash.descriptors,
        )
    except BaseException:
        leash.close()
        raise
    leash.begin(process.pid)
    to_us, for_session = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    to_server, from_session = anyio.create_memory_object_stream[SessionMessage](0)
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(_read, process, to_us, said, ended)
            group.start_soon(_write, process, from_session, to_us, ended)
            group.start_soon(_listen, process, said)
            try:
                yield for_session, to_server
            finally:
                with anyio.CancelScope(shield=True):
                    await _end(process, leash)
                group.cancel_scope.cancel()
    finally:
        for stream in (to_us, for_session, to_server, from_session):
            stream.close()


# --- what it says -----------------------------------------------------------------------------------------------


class Lines:
    """Cuts what comes into lines. Of one that is too long only the beginning is kept."""

    def __init__(self, most: int = MOST_MESSAGE) -> None:
        self._most = most
        self._parts: list[bytes] = []
        self.size = 0

    def feed(self, chunk: bytes) -> list[tuple[bytes, int]]:
        """Whole lines, each with its length, which may be more than is left of it."""
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
        elif len(self._parts) != 1 or len(self._parts[0]) > _BEGINNING:
            self._parts = [b"".join((*self._parts, piece))[:_BEGINNING]]


async def _read(process: asyncio.subprocess.Process, to_us: Any, said: Said, ended: Callable[[str], None]) -> None:
    why = ""
    try:
        async with to_us:
            await _deliver(process, to_us, said)
    except FloodError as error:
        why = str(error)
    except (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
        pass  # whoever listened is gone
    ended(why or await _how_it_ended(process))
    # It is not held by a full pipe on its way out.
    with contextlib.suppress(OSError, ValueError):
        assert process.stdout is not None
        while await process.stdout.read(_CHUNK):
            pass


async def _deliver(process: asyncio.subprocess.Process, to_us: Any, said: Said) -> None:
    assert process.stdout is not None
    lines, foreign, unasked, window = Lines(), 0, 0, time.monotonic()
    while chunk := await process.stdout.read(_CHUNK):
        for line, size in lines.feed(chunk):
            message = _message(line, size)
            if message is None:
                foreign += size
                said.take(line[:1000] + b"\n")
                if foreign > MOST_FOREIGN:
                    raise FloodError(f"it printed {foreign >> 20:,} MiB that are no messages")
                continue
            if not isinstance(message, types.JSONRPCResponse | types.JSONRPCError):
                now = time.monotonic()
                unasked, window = (1, now) if now - window > _WINDOW else (unasked + 1, window)
                if unasked > MOST_AT_ONCE:
                    raise FloodError(f"it sent more than {MOST_AT_ONCE:,} messages that nobody asked for")
            await to_us.send(SessionMessage(message))
        if lines.size > MOST_LINE:
            raise FloodError("it printed a line without end")


def _message(line: bytes, size: int) -> types.JSONRPCMessage | None:
    """None for what is no message. In place of an answer that is too long, an error for whoever waits for it."""
    if size > len(line):
        found = _ID.search(line[:200])
        if found is None:
            return None
        error = types.ErrorData(code=types.INTERNAL_ERROR, message=f"its answer has {size:,} bytes, which is too much")
        return types.JSONRPCError(jsonrpc="2.0", id=int(found[1]), error=error)
    try:
        return types.jsonrpc_message_adapter.validate_json(line, by_name=False)
    except ValueError:
        return None


async def _how_it_ended(process: asyncio.subprocess.Process) -> str:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_ENDING_SECONDS):
            status = await process.wait()
            if status < 0:
                return f"it was ended by {signal.Signals(-status).name}"
            return f"it ended with the status {status}"
    return "it closed its output"


async def _listen(process: asyncio.subprocess.Process, said: Said) -> None:
    assert process.stderr is not None
    with contextlib.suppress(OSError, ValueError):
        while chunk := await process.stderr.read(_CHUNK):
            said.take(chunk)


# --- what it is told --------------------------------------------------------------------------------------------


async def _write(
    process: asyncio.subprocess.Process, from_session: Any, to_us: Any, ended: Callable[[str], None]
) -> None:
    assert process.stdin is not None
    try:
        async with from_session:
            async for one in from_session:
                line = one.message.model_dump_json(by_alias=True, exclude_unset=True)
                process.stdin.write(line.encode() + b"\n")
                await process.stdin.drain()
    except OSError:
        # It may still run, but can't be told anything: whoever waits for an answer learns that none will come.
        to_us.close()
        ended("it takes no more messages")


async def _end(process: asyncio.subprocess.Process, leash: Leash) -> None:
    """As the protocol wants it: its input is closed, then it is asked to end, then it is ended; and all it started."""
    assert process.stdin is not None
    with contextlib.suppress(OSError):
        process.stdin.close()
    if not await _has_ended(process, _ENDING_SECONDS):
        _signal(process, signal.SIGTERM)
        if not await _has_ended(process, _TERMINATED_SECONDS):
            _signal(process, signal.SIGKILL)
            await _has_ended(process, _ENDING_SECONDS)
    await asyncio.to_thread(leash.end_all)
    transport: Any = getattr(process, "_transport", None)
    if transport is not None:  # else it stays open as long as anybody holds the other end
        with contextlib.suppress(PermissionError):
            transport.close()


async def _has_ended(process: asyncio.subprocess.Process, seconds: float) -> bool:
    """By its status: `wait` also waits for its pipes, which another process may hold."""
    deadline = time.monotonic() + seconds
    while process.returncode is None and time.monotonic() < deadline:
        await asyncio.sleep(0.01)
    return process.returncode is not None


def _signal(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    if process.returncode is None:
        signal_child_group(process.pid, number)
