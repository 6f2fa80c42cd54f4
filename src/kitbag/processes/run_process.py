"""Blocking work off the event loop: a cancellable thread, and a child process that is always ended.

Used by the tools that read and search. A process gets its arguments without a shell, a minimal environment, no
terminal, a timeout, and a working directory held open by a descriptor.
"""

import asyncio
import contextlib
import os
import select
import subprocess
import threading
import time
from collections.abc import Callable, Generator, Sequence
from typing import Final, Literal, NamedTuple, TypeVar

T = TypeVar("T")
ProcessStopReason = Literal["", "time", "enough", "cancelled"]
"""Why a process was ended early; empty if it was not."""
_ENVIRONMENT: Final = {"LC_ALL": "C.UTF-8"}
_CHUNK = 1 << 18
_MAX_ERROR_BYTES = 1 << 16
_POLL = 0.05
_CANCEL_TIMEOUT = 2.0


async def run_in_thread(work: Callable[[threading.Event], T]) -> T:
    """Cancelling sets the event and waits for the work to stop, so that nothing keeps running unnoticed."""
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
    descriptor_path = (
        f"/proc/self/fd/{directory.descriptor}"  # this exact directory, even if its path now leads elsewhere
    )
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
    with process:
        try:
            deadline = time.monotonic() + timeout
            stop_reason, errors = _follow(process, on_output, stop, deadline)
            stop_reason = stop_reason or _wait(process, stop, deadline)
        finally:
            process.kill()
    return ProcessResult(process.returncode, errors.decode("utf-8", "replace"), stop_reason)


def _follow(
    process: "subprocess.Popen[bytes]", on_output: Callable[[bytes], bool], stop: threading.Event, deadline: float
) -> tuple[ProcessStopReason, bytes]:
    output, error_output = _descriptor(process.stdout), _descriptor(process.stderr)
    errors = bytearray()
    # poll, because select can't watch descriptors above 1,023.
    poller = select.poll()
    for descriptor in (output, error_output):
        poller.register(descriptor, select.POLLIN)
    open_count = 2
    while open_count:
        if stop.is_set():
            return "cancelled", bytes(errors)
        if time.monotonic() >= deadline:
            return "time", bytes(errors)
        for descriptor, _ in poller.poll(_POLL * 1000):
            chunk = os.read(descriptor, _CHUNK)
            if not chunk:
                poller.unregister(descriptor)
                open_count -= 1
            elif descriptor == error_output:
                errors += chunk[: _MAX_ERROR_BYTES - len(errors)]
            elif not on_output(chunk):
                return "enough", bytes(errors)
    return "", bytes(errors)


def _wait(process: "subprocess.Popen[bytes]", stop: threading.Event, deadline: float) -> ProcessStopReason:
    """Wait for its exit, which may come after it closed its output."""
    with _exit_watch(process.pid) as watch:
        while not stop.is_set():
            left = deadline - time.monotonic()
            if left <= 0:
                return "time"
            if watch is not None and not watch.poll(min(left, _POLL) * 1000):
                continue
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(min(left, _POLL))
                return ""
    return "cancelled"


@contextlib.contextmanager
def _exit_watch(pid: int) -> Generator["select.poll | None", None, None]:
    """Ready once a process has ended; None if pidfds are not supported."""
    try:
        descriptor = os.pidfd_open(pid)
    except (AttributeError, OSError):
        yield None
        return
    try:
        poller = select.poll()
        poller.register(descriptor, select.POLLIN)
        yield poller
    finally:
        os.close(descriptor)


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
