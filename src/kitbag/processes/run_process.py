"""Runs child processes and blocking work: a process that is always ended, and a thread that can be cancelled.

`supervise` is the one loop that reads a child, limits its time and ends its group; `command_runner` uses it for shell
commands, `run_process` for the programs of tools that read and search: no shell, a minimal environment, no terminal, a
timeout, and a working directory held open by a descriptor. Uses `signals`.
"""

import contextlib
import os
import select
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Final, Literal, NamedTuple, TypeVar

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

    stop_reason = supervise(process, take_output, take_errors, timeout=timeout, stop=stop)
    if not continues and not stop_reason:
        stop_reason = "enough"
    return ProcessResult(process.returncode, errors.decode("utf-8", "replace"), stop_reason)


def supervise(
    process: "subprocess.Popen[bytes]",
    on_output: Callable[[bytes], bool],
    on_errors: Callable[[bytes], bool] | None = None,
    *,
    timeout: float,
    stop: threading.Event | None = None,
    on_progress: Callable[[float], None] | None = None,
    on_started: Callable[[], None] = lambda: None,
    grace_seconds: float = 0.0,
    end_descendants: Callable[[], None] = lambda: None,
) -> ProcessStopReason:
    """Read the output of a child that leads its own session until it exits, then end its group and reap it, whatever
    happens. Returns why it was ended early. `on_output` and `on_errors` return whether to continue.

    The end is the child's exit, not the end of its output, so a grandchild that keeps it open can't block us.
    `on_progress` is called every second with the seconds since the start. `grace_seconds`: between SIGTERM and SIGKILL;
    0: only SIGKILL. `end_descendants` is called before the child is reaped.
    """
    outputs = {_descriptor(process.stdout): on_output}
    if on_errors is not None:
        outputs[_descriptor(process.stderr)] = on_errors
    try:
        on_started()
        for descriptor in outputs:
            os.set_blocking(descriptor, False)
        with _exit_descriptor(process.pid) as exited:
            stop_reason = _follow(process.pid, outputs, exited, timeout, stop, on_progress)
            if stop_reason and grace_seconds:
                signal_child_group(process.pid, signal.SIGTERM)
                _has_exited(process.pid, exited, grace_seconds)
    finally:
        # Before reaping, so that the group id can't have been reused.
        signal_child_group(process.pid, signal.SIGKILL)
        try:
            end_descendants()
            for descriptor, take in outputs.items():
                _drain_output(descriptor, take)
        finally:
            for stream in (process.stdout, process.stderr):
                if stream is not None:
                    stream.close()
            process.wait()
    return stop_reason


def _follow(
    pid: int,
    outputs: Mapping[int, Callable[[bytes], bool]],
    exited: int | None,
    timeout: float,
    stop: threading.Event | None,
    on_progress: Callable[[float], None] | None,
) -> ProcessStopReason:
    """Wait until it exits; returns why it must be stopped, or ""."""
    start = time.monotonic()
    deadline, next_progress = start + timeout, start + 1.0
    watched = [*outputs] if exited is None else [*outputs, exited]
    polls = exited is None or stop is not None
    while True:
        now = time.monotonic()
        if stop is not None and stop.is_set():
            return "cancelled"
        if now >= deadline:
            return "time"
        if on_progress is not None and now >= next_progress:
            on_progress(now - start)
            next_progress += 1.0
        wait = min(deadline, next_progress) - now if on_progress is not None else deadline - now
        ready = _readable(watched, min(wait, _POLL) if polls else wait)
        for descriptor in ready.intersection(outputs):
            chunk = _read(descriptor)
            if chunk == b"":
                watched.remove(descriptor)
            elif chunk and not outputs[descriptor](chunk):
                return "enough"
        if (exited in ready) if exited is not None else _has_exited(pid, None, 0):
            return ""


def _drain_output(descriptor: int, take: Callable[[bytes], bool]) -> None:
    """Read what is left in the pipe. Limited: an escaped process might keep writing."""
    left = _DRAIN_BYTES
    while left > 0 and _readable([descriptor], 0) and (chunk := _read(descriptor)):
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


def _readable(descriptors: list[int], seconds: float) -> set[int]:
    # poll, because select can't watch descriptors above 1,023.
    poller = select.poll()
    for descriptor in descriptors:
        poller.register(descriptor, select.POLLIN)
    return {descriptor for descriptor, _ in poller.poll(max(0.0, seconds) * 1000)}


@contextlib.contextmanager
def _exit_descriptor(pid: int) -> Generator[int | None, None, None]:
    """Readable once the process has ended; None if pidfds are not supported."""
    try:
        descriptor = os.pidfd_open(pid)
    except (AttributeError, OSError):
        yield None
        return
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _has_exited(pid: int, exited: int | None, seconds: float) -> bool:
    """Does not reap it."""
    if exited is not None:
        return exited in _readable([exited], seconds)
    deadline = time.monotonic() + seconds
    while not has_child_exited(pid):
        if time.monotonic() >= deadline:
            return False
        time.sleep(_POLL)
    return True


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
