"""Runs child processes and blocking work: a process that is always ended, and a thread that can be cancelled.

`supervise` is the one loop that reads a child, limits its time and ends its group; `command_runner` uses it for shell
commands, `run_process` for the programs of tools that read and search: no shell, a minimal environment, no terminal, a
timeout, and a working directory held open by a descriptor. Uses `signals`.
"""

import contextlib
import math
import os
import select
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Literal, NamedTuple, Protocol, TypeVar

from kitbag.processes.signals import has_child_exited, signal_child_group

T = TypeVar("T")
ProcessStopReason = Literal["", "time", "enough", "cancelled"]
"""Why a process was ended early; empty if it was not."""
_ENVIRONMENT: Final = {"LC_ALL": "C.UTF-8"}
_CHUNK = 1 << 18
_MAX_ERROR_BYTES = 1 << 16
_POLL = 0.05
_DRAIN_BYTES = 1 << 20
_CANCEL_TIMEOUT = 2.0


async def run_in_thread(work: Callable[[threading.Event], T]) -> T:
    """Cancelling sets the event and waits for the work to stop, so that nothing keeps running unnoticed."""
    import asyncio  # heavy, and not needed to run a process

    stop = threading.Event()
    running = asyncio.ensure_future(asyncio.to_thread(work, stop))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        stop.set()
        await asyncio.wait([running], timeout=_CANCEL_TIMEOUT)
        if running.done() and not running.cancelled():
            running.exception()  # retrieve it, or asyncio logs a warning
        raise


class OpenDirectory(NamedTuple):
    descriptor: int
    path: str
    """Its path when it was opened."""


class ProcessResult(NamedTuple):
    status: int
    """Negative for a signal."""
    errors: str
    """Its standard error, truncated."""
    stop_reason: ProcessStopReason = ""


def run_process(
    arguments: Sequence[str],
    directory: OpenDirectory,
    on_output: Callable[[bytes], bool],
    stop: threading.Event,
    timeout: float,
    stdin: int = subprocess.DEVNULL,
) -> ProcessResult:
    """`on_output` receives the output and returns whether to continue. Raises OSError if it can't be started."""
    descriptor_path = f"/proc/self/fd/{directory.descriptor}"  # this exact directory, whatever its path is now
    process = subprocess.Popen(  # noqa: S603 - the program is ours, and words are never read by a shell
        list(arguments),
        cwd=descriptor_path if os.path.isdir(descriptor_path) else directory.path,
        env=_ENVIRONMENT,
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
        start_new_session=True,
    )
    errors = bytearray()
    continues = True

    def take_output(chunk: bytes) -> bool:
        nonlocal continues
        continues = continues and on_output(chunk)
        return continues

    def take_errors(chunk: bytes) -> bool:
        errors.extend(chunk[: _MAX_ERROR_BYTES - len(errors)])
        return True

    child = PopenChild(process)
    outputs = {_descriptor(process.stdout): take_output, _descriptor(process.stderr): take_errors}
    stop_reason = supervise(child, outputs, timeout=timeout, stop=stop)
    if not continues and not stop_reason:
        stop_reason = "enough"
    return ProcessResult(process.returncode, errors.decode("utf-8", "replace"), stop_reason)


class ChildProcess(Protocol):
    """A started process, as `supervise` sees it."""

    @property
    def exit_descriptor(self) -> int | None:
        """Readable once `has_exited` is worth asking; None: ask again and again."""
        ...

    def has_exited(self) -> bool:
        """Does not block. May handle other messages of the process."""
        ...

    def is_waiting(self) -> bool:
        """Whether it waits for a user's answer; that time does not count."""
        ...

    def terminate(self) -> None: ...

    def end(self) -> None:
        """Kill whatever is left of it. Output can still be read."""
        ...

    def close(self) -> None:
        """Release it; nothing of it runs on."""
        ...


class PopenChild:
    """A child that leads its own session."""

    __slots__ = ("_pidfd", "end_descendants", "process")

    def __init__(self, process: "subprocess.Popen[bytes]", end_descendants: Callable[[], None] = lambda: None) -> None:
        self.process = process
        self.end_descendants = end_descendants
        """Called before the child is reaped."""
        try:
            self._pidfd: int | None = os.pidfd_open(process.pid)
        except (AttributeError, OSError):
            self._pidfd = None

    @property
    def exit_descriptor(self) -> int | None:
        return self._pidfd

    def has_exited(self) -> bool:
        """Does not reap it."""
        return has_child_exited(self.process.pid)

    def is_waiting(self) -> bool:
        return False

    def terminate(self) -> None:
        signal_child_group(self.process.pid, signal.SIGTERM)

    def end(self) -> None:
        # Before reaping, so that the group id can't have been reused.
        signal_child_group(self.process.pid, signal.SIGKILL)
        self.end_descendants()

    def close(self) -> None:
        for stream in (self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()
        if self._pidfd is not None:
            os.close(self._pidfd)
            self._pidfd = None
        self.process.wait()


def supervise(
    child: ChildProcess,
    outputs: Mapping[int, Callable[[bytes], bool]],
    *,
    timeout: float,
    stop: threading.Event | None = None,
    on_progress: Callable[[float], None] | None = None,
    grace_seconds: float = 0.0,
    lift_timeout: threading.Event | None = None,
) -> ProcessStopReason:
    """Read the outputs of a child until it exits, then end all that is left of it, whatever happens. Returns why it was
    ended early. `outputs`: for each descriptor, what takes its output and returns whether to continue.

    The end is the child's exit, not the end of its output, so a grandchild that keeps it open can't block us.
    `on_progress` is called every second with the seconds since the start. `grace_seconds`: between SIGTERM and SIGKILL;
    0: only SIGKILL. `lift_timeout`: set it to let the child run without a timeout.
    """
    try:
        for descriptor in outputs:
            os.set_blocking(descriptor, False)
        stop_reason = _follow(child, outputs, timeout, stop, on_progress, lift_timeout)
        if stop_reason and grace_seconds:
            child.terminate()
            _wait_for_exit(child, grace_seconds)
    finally:
        try:
            child.end()
            for descriptor, take in outputs.items():
                _drain_output(descriptor, take)
        finally:
            child.close()
    return stop_reason


def _follow(
    child: ChildProcess,
    outputs: Mapping[int, Callable[[bytes], bool]],
    timeout: float,
    stop: threading.Event | None,
    on_progress: Callable[[float], None] | None,
    lift_timeout: threading.Event | None,
) -> ProcessStopReason:
    """Wait until it exits; returns why it must be stopped, or ""."""
    start = checked = time.monotonic()
    deadline, next_progress = start + timeout, start + 1.0
    exited = child.exit_descriptor
    watched = [*outputs] if exited is None else [*outputs, exited]
    polls = exited is None or stop is not None
    while True:
        now = time.monotonic()
        if child.is_waiting():
            deadline += now - checked
        checked = now
        if stop is not None and stop.is_set():
            return "cancelled"
        if lift_timeout is not None and lift_timeout.is_set():
            deadline = math.inf
        if now >= deadline:
            return "time"
        if on_progress is not None and now >= next_progress:
            on_progress(now - start)
            next_progress += 1.0
        wait = min(deadline, next_progress) - now if on_progress is not None else deadline - now
        ready = readable(watched, min(wait, _POLL) if polls or child.is_waiting() else wait)
        for descriptor in ready.intersection(outputs):
            chunk = _read(descriptor)
            if chunk == b"":
                watched.remove(descriptor)
            elif chunk and not outputs[descriptor](chunk):
                return "enough"
        if (exited is None or exited in ready or child.is_waiting()) and child.has_exited():
            return ""


def _wait_for_exit(child: ChildProcess, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    exited = child.exit_descriptor
    while not child.has_exited() and (left := deadline - time.monotonic()) > 0:
        if exited is None:
            time.sleep(_POLL)
        else:
            readable([exited], left)


def _drain_output(descriptor: int, take: Callable[[bytes], bool]) -> None:
    """Read what is left in the pipe. Limited: an escaped process might keep writing."""
    left = _DRAIN_BYTES
    while left > 0 and readable([descriptor], 0) and (chunk := _read(descriptor)):
        take(chunk)
        left -= len(chunk)


def _read(descriptor: int) -> bytes | None:
    """Empty at the end of output; None if there is nothing to read now."""
    try:
        return os.read(descriptor, _CHUNK)
    except BlockingIOError:
        return None
    except OSError:
        return b""


def readable(descriptors: list[int], seconds: float) -> set[int]:
    # poll, because select can't watch descriptors above 1,023.
    poller = select.poll()
    for descriptor in descriptors:
        poller.register(descriptor, select.POLLIN)
    return {descriptor for descriptor, _ in poller.poll(max(0.0, seconds) * 1000)}


def _descriptor(stream: object) -> int:
    fileno = getattr(stream, "fileno", None)
    assert fileno is not None
    return int(fileno())


class StdinFeed:
    """Standard input for a process, written by a thread that ends with the process."""

    def __init__(self, write: Callable[[int], None]) -> None:
        """`write` receives the descriptor to write to; a closed reader is not an error."""
        self.readable, self._writable = os.pipe()
        self._thread = threading.Thread(target=self._run, args=(write,), daemon=True)

    def __enter__(self) -> "StdinFeed":
        self._thread.start()
        return self

    def _run(self, write: Callable[[int], None]) -> None:
        try:
            with contextlib.suppress(OSError):
                write(self._writable)
        finally:
            os.close(self._writable)

    def __exit__(self, *_: object) -> None:
        os.close(self.readable)  # a writer that is still busy gets an error now
        self._thread.join()
