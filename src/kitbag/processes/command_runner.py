"""Runs one shell command to its end: bounded in time and output, and nothing of it stays behind.

A session of its own, no standard input, both outputs merged. The end is the shell's exit, not the end of its
output, so a child in the background can't hold us; it is killed with the group, and what left the group is
found by its leash. Used by references as the default `Runner` and by Bash; a sandbox is a `prefix`.
"""

import codecs
import contextlib
import os
import re
import select
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Final, Literal, NamedTuple, Protocol

from kitbag.processes.descendants import MARKER_VARIABLE, SESSION_VARIABLE, DescendantTracker
from kitbag.processes.signals import has_child_exited, signal_child_group

MAX_OUTPUT_BYTES: Final = 256 * 1024 * 1024
"""What is thrown away before a command that never stops printing is stopped."""
GRACE_SECONDS: Final = 0.5
"""Seconds between asking a command to end and killing it."""
_CHUNK = 1 << 18
_POLL = 0.05
_DRAIN_BYTES = 1 << 20
TERMINAL_SEQUENCE: Final = re.compile(
    "\x1b(?:\\[[0-?]*[ -/]*[@-~]|[\\]PX^_][^\x07\x1b\n]{0,4096}(?:\x07|\x1b\\\\)|[ -/]*[0-~])|\x9b[0-?]*[ -/]*[@-~]"
)
_OVERSTRUCK = re.compile("[^\n]\x08")
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")

ProgressCallback = Callable[[float], None]
"""Called with the seconds since the start, each second that a command takes."""
StopReason = Literal["", "time", "output", "asked"]
"""Why we ended it: it took too long, it printed without end, or its `stop` was set."""


class ShellCommand(NamedTuple):
    text: str
    directory: str
    environment: Mapping[str, str]
    timeout: float
    max_characters: int
    """The most of its output that is kept."""
    stop: threading.Event | None = None
    """Set by whoever wants it to end; then nothing of it is left within about a second."""
    on_output: Callable[[bytes], None] | None = None
    """Given what it prints, as it comes, whatever is kept."""
    descriptors: tuple[int, ...] = ()
    """Open files that it is given."""
    max_output_bytes: int = MAX_OUTPUT_BYTES
    """Bytes of output at which it is stopped; 0: never."""


class CommandResult(NamedTuple):
    text: str
    """What it printed, without terminal sequences and control characters, cut at the limit."""
    status: int
    """As in the shell; negative for a signal."""
    stop_reason: StopReason
    truncated_bytes: int
    """Bytes of output that are not in `text`."""
    notes: tuple[str, ...] = ()
    """What a sandbox undid of it, as sentences."""


class CommandRunner(Protocol):
    def __call__(self, command: ShellCommand, tick: ProgressCallback | None, /) -> CommandResult: ...


def run_command(
    command: ShellCommand,
    tick: ProgressCallback | None = None,
    /,
    *,
    prefix: Sequence[str] = (),
    descriptors: Sequence[int] = (),
    on_started: Callable[[], None] = lambda: None,
    ends_with_prefix: bool = False,
) -> CommandResult:
    """Never raises for what the command does. `prefix` is put before the shell: `("bwrap", ...)`.

    It inherits `descriptors`; `started` is called when it runs, before we wait for it. `nothing_outlives`: all its
    processes end with the prefix, as in a process namespace, so that none need be looked for.
    """
    if command.stop is not None and command.stop.is_set():
        return CommandResult("it was stopped before it began", -signal.SIGTERM, "asked", 0)
    leash = DescendantTracker(with_file=not ends_with_prefix, session=command.environment.get(SESSION_VARIABLE, ""))
    try:
        return _run(command, tick, [*prefix], descriptors, on_started, leash, ends_with_prefix)
    except BaseException:  # a signal that ends us may come at any moment, also when the command has just begun
        leash.end_all()
        raise
    finally:
        leash.close()


def _run(
    command: ShellCommand,
    tick: ProgressCallback | None,
    prefix: list[str],
    descriptors: Sequence[int],
    started: Callable[[], None],
    leash: DescendantTracker,
    nothing_outlives: bool,
) -> CommandResult:
    shell = "/bin/bash" if os.path.exists("/bin/bash") else "/bin/sh"
    output = _Output(command.max_characters, command.on_output)
    try:
        process = subprocess.Popen(  # noqa: S603 - running what policy allowed is what this module is for
            [*prefix, shell, "-c", "--", command.text],
            cwd=command.directory,
            env={
                **command.environment,
                MARKER_VARIABLE: leash.marker_value(command.environment.get(MARKER_VARIABLE, "")),
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            bufsize=0,
            start_new_session=True,
            pass_fds=(*descriptors, *command.descriptors, *leash.descriptors),
        )
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        return CommandResult(f"can't be started: {reason}", 126, "", 0)
    pipe = process.stdout.fileno() if process.stdout else -1
    stopped: StopReason = ""
    try:
        leash.track(process.pid)
        started()
        os.set_blocking(pipe, False)
        with _exit_descriptor(process.pid) as exited:
            stopped = _follow(process.pid, pipe, exited, output, command, tick)
            if stopped:
                signal_child_group(process.pid, signal.SIGTERM)
                _has_exited(process.pid, exited, GRACE_SECONDS)
    finally:
        # Before it is waited for, so that the group's number can't belong to anybody else yet.
        signal_child_group(process.pid, signal.SIGKILL)
        if not nothing_outlives:
            leash.end_all()
        _drain_output(pipe, output)
        if process.stdout:
            process.stdout.close()
        status = process.wait()
    text, cut = output.result()
    return CommandResult(text, status, stopped, cut)


@contextlib.contextmanager
def _exit_descriptor(pid: int) -> Generator[int | None, None, None]:
    """Readable when the process has ended; None where the system has no such thing."""
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
    """Without reaping it."""
    if exited is not None:
        return exited in _readable([exited], seconds)
    deadline = time.monotonic() + seconds
    while not has_child_exited(pid):
        if time.monotonic() >= deadline:
            return False
        time.sleep(_POLL)
    return True


def _follow(
    pid: int, pipe: int, exited: int | None, output: "_Output", command: ShellCommand, tick: ProgressCallback | None
) -> StopReason:
    """Until it exits, or why it has to be stopped."""
    start = time.monotonic()
    deadline, next_tick = start + command.timeout, start + 1.0
    watched = [pipe] if exited is None else [pipe, exited]
    looks_up = exited is None or command.stop is not None
    while True:
        now = time.monotonic()
        if command.stop is not None and command.stop.is_set():
            return "asked"
        if now >= deadline:
            return "time"
        if tick is not None and now >= next_tick:
            tick(now - start)
            next_tick += 1.0
        wait = min(deadline, next_tick) - now if tick is not None else deadline - now
        ready = _readable(watched, min(wait, _POLL) if looks_up else wait)
        if pipe in ready and not output.read(pipe):
            watched.remove(pipe)
        if command.max_output_bytes and output.seen > command.max_output_bytes:
            return "output"
        if (exited in ready) if exited is not None else _has_exited(pid, None, 0):
            return ""


def _readable(descriptors: list[int], seconds: float) -> set[int]:
    # poll, because select can't watch descriptors above 1,023.
    poller = select.poll()
    for descriptor in descriptors:
        poller.register(descriptor, select.POLLIN)
    return {descriptor for descriptor, _ in poller.poll(max(0.0, seconds) * 1000)}


def _drain_output(pipe: int, output: "_Output") -> None:
    """What still lies in the pipe. Bounded: a process that escaped might go on writing."""
    left = output.seen + _DRAIN_BYTES
    while output.seen < left and _readable([pipe], 0) and output.read(pipe):
        pass


class _Output:
    __slots__ = ("characters", "chunks", "heard", "kept", "seen")

    def __init__(self, characters: int, heard: Callable[[bytes], None] | None) -> None:
        self.characters = characters
        self.heard = heard
        self.chunks: list[bytes] = []
        self.kept = 0
        self.seen = 0

    def read(self, pipe: int) -> bool:
        """False at the end of the output."""
        try:
            chunk = os.read(pipe, _CHUNK)
        except BlockingIOError:
            return True
        except OSError:
            return False
        self.seen += len(chunk)
        if self.heard is not None and chunk:
            self.heard(chunk)
        room = self.characters * 4 + _CHUNK - self.kept  # four bytes a character, and some for colours
        if room > 0:
            self.chunks.append(chunk[:room])
            self.kept += len(self.chunks[-1])
        return bool(chunk)

    def result(self) -> tuple[str, int]:
        """Clean text within the limit, and how many bytes did not fit."""
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        text = clean_output(decoder.decode(b"".join(self.chunks), final=self.kept == self.seen))
        cut = self.seen - self.kept
        if len(text) > self.characters:
            cut += len(text[self.characters :].encode())
            text = text[: self.characters]
        return text, cut


def clean_output(text: str) -> str:
    """Text as a terminal would leave it: no sequences, no control characters, LF, no line breaks at its end."""
    if not text.isprintable():
        text = text.replace("\r\n", "\n")
        text = TERMINAL_SEQUENCE.sub("", text)
        text = _CONTROL.sub("", _OVERSTRUCK.sub("", text).replace("\r", "\n"))
    return text.rstrip("\n")
