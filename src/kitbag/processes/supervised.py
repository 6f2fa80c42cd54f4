"""Starts commands under a `supervisor`, a process of its own that outlives neither the command nor Kitbag.

Used by `command_runner`. The server that forks supervisors is started with the first command, once for each process.
"""

import atexit
import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Generator, Mapping, Sequence
from typing import Any, Final, cast

import msgspec

from kitbag.processes.limits import CommandLimits

_PACKAGE_PARENT: Final = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
_PROGRAM: Final = (
    "import sys; sys.path.insert(0, sys.argv[1]); from kitbag.processes.supervisor import serve;"
    " serve(int(sys.argv[2]), sys.argv[3:])"
)


_RUN, _REMOVE = b"R", b"D"
_MAX_MESSAGE = 1 << 18
"""More than the supervisor sends at once."""


class GuardSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A module with `create_guard`, which the supervisor imports, and the policy for it."""

    module: str
    policy: Mapping[str, Any]


class SupervisedProcess:
    """A command that runs under a supervisor. Close it in any case; closing ends the command."""

    __slots__ = ("_control", "_message", "pid", "questions", "stdout")

    def __init__(self, control: socket.socket, stdout: int) -> None:
        self._control = control
        self.stdout = stdout
        self.pid = 0
        """The command's own process, once `receive` has read it."""
        self.questions: list[tuple[str, str]] = []
        """(key, path): questions of the guard, oldest first; answer each once."""
        self._message: dict[str, Any] | None = None

    @property
    def control(self) -> int:
        """Readable when there is something to `receive`."""
        return self._control.fileno()

    @property
    def result(self) -> Mapping[str, Any]:
        """The supervisor's last message; empty if it was killed."""
        return self._message or {}

    @property
    def returncode(self) -> int:
        return int(self.result.get("exited", -9))

    def receive(self) -> bool:
        """Read one message; False: the command and all its processes have ended."""
        try:
            data = self._control.recv(_MAX_MESSAGE)
        except OSError:
            data = b""
        message = cast("dict[str, Any]", json.loads(data)) if data else {}
        if "started" in message:
            self.pid = message["started"]
        if "question" in message:
            self.questions.append((message["question"], message["path"]))
        if data and "exited" not in message:
            return True
        self._message = message
        return False

    def answer(self, key: str, reason: str) -> None:
        """Allowed if the reason is empty."""
        self._send({"answer": key, "reason": reason})

    def signal_group(self, number: int) -> None:
        """Signal the process group of the command's first process."""
        self._send({"signal": int(number)})

    def kill(self) -> None:
        """End all its processes; `receive` returns False once they have ended."""
        with contextlib.suppress(OSError):
            self._control.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self._control.close()
        if self.stdout >= 0:
            os.close(self.stdout)
            self.stdout = -1

    def _send(self, message: Mapping[str, Any]) -> None:
        with contextlib.suppress(OSError):  # it has ended
            self._control.send(json.dumps(message).encode())


class _Server:
    """The process that forks supervisors. Processes that are forked from this one share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._channel: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self.guards: tuple[str, ...] = ()
        """Modules that it imports when it starts."""

    def request(self, kind: bytes, descriptors: Sequence[int]) -> None:
        with self._lock:
            for attempt in (1, 2):
                channel = self._connect()
                try:
                    socket.send_fds(channel, [kind], descriptors)
                    return
                except (BrokenPipeError, ConnectionResetError):  # it was killed
                    self.forget()
                    if attempt == 2:
                        raise

    def prepare(self) -> None:
        with self._lock:
            self._connect()

    def _connect(self) -> socket.socket:
        if self._channel is not None:
            return self._channel
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603 - this package's own program
                [sys.executable, "-I", "-S", "-c", _PROGRAM, _PACKAGE_PARENT, str(theirs.fileno()), *self.guards],
                env={"LC_ALL": "C.UTF-8"},
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
        self._channel = ours
        return ours

    def leave(self) -> None:
        """At the end of this process: it exits by itself, so there is no need to wait for it."""
        if self._process is not None:
            self._process.returncode = 0
        if self._channel is not None:
            self._channel.close()
            self._channel = None

    def forget(self) -> None:
        """Close our end; it exits when every copy of it is closed."""
        if self._channel is not None:
            self._channel.close()
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(5)
        self._channel = self._process = None


_server = _Server()
atexit.register(_server.leave)


def prepare_supervisor(guards: tuple[str, ...] = ()) -> None:
    """Start the server now, so that the first command need not wait for it."""
    _server.guards = guards
    with contextlib.suppress(OSError):
        _server.prepare()


def start_supervised(
    arguments: Sequence[str],
    *,
    directory: str,
    environment: Mapping[str, str],
    descriptors: Sequence[int] = (),
    limits: CommandLimits = CommandLimits(),  # noqa: B008 - immutable
    guard: GuardSpec | None = None,
) -> SupervisedProcess:
    """Output and errors of the command go to `stdout`; it inherits `descriptors` by their numbers. Raises OSError."""
    request = {
        "arguments": list(arguments),
        "directory": directory,
        "environment": dict(environment),
        "descriptors": list(descriptors),
        "limits": [limits.processes, limits.memory, limits.file_size],
        "guard": {"module": guard.module, "policy": dict(guard.policy)} if guard is not None else None,
    }
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    read, write = os.pipe()
    file = _file_with(json.dumps(request).encode())
    process = SupervisedProcess(ours, read)
    try:
        _server.request(_RUN, (file, theirs.fileno(), write, *descriptors))
    except BaseException:
        process.close()
        raise
    finally:
        theirs.close()
        os.close(write)
        os.close(file)
    return process


@contextlib.contextmanager
def scratch_directory() -> Generator[str, None, None]:
    """A new private directory, removed at the end, even if Kitbag is killed. Raises OSError."""
    import secrets
    import shutil

    # Not tempfile.gettempdir, which tries directories by creating files.
    parent = next((path for path in (os.environ.get("TMPDIR", ""), "/tmp") if os.path.isdir(path)), "/var/tmp")  # noqa: S108
    path = os.path.join(os.path.realpath(parent), f"kitbag-{secrets.token_hex(8)}")
    ours, theirs = socket.socketpair()
    file = _file_with(os.fsencode(path))
    with ours:
        try:
            _server.request(_REMOVE, (file, theirs.fileno()))
        finally:
            theirs.close()
            os.close(file)
        if not ours.recv(1):  # it is ready to remove the directory before there is one
            raise OSError("the supervisor has ended")
        os.mkdir(path, 0o700)
        try:
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)


def _file_with(content: bytes) -> int:
    file = os.memfd_create("kitbag", os.MFD_CLOEXEC)
    os.write(file, content)
    os.lseek(file, 0, os.SEEK_SET)
    return file
