"""The process between Kitbag and a command: starts it, ends all it leaves behind, and ends with Kitbag.

Runs as a program of its own, single-threaded so that it can fork: one server for each Kitbag process, which forks one
supervisor for each command. As a subreaper it inherits every orphan, so no process escapes by leaving its session or
dropping its environment and descriptors. `supervised` is the other end of its sockets; a `CommandGuard` can decide
about system calls. Has no site-packages.
"""

import contextlib
import ctypes
import fcntl
import json
import os
import select
import signal
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol, cast

_RUN = b"R"
"""A request to run a command; others are to remove a directory when Kitbag has ended."""
_MAX_MESSAGE: Final = 1 << 16
MAX_DESCRIPTORS: Final = 200
_PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 36, 38
_SET_MODE_FILTER = 1
_CAPABILITY_VERSION = 0x20080522
_NEW_LISTENER, _WAIT_KILLABLE = 1 << 3, 1 << 5
_SECCOMP: Final = {"x86_64": 317, "aarch64": 277}
_USAGE_SECONDS = 0.1
_PAGE = os.sysconf("SC_PAGE_SIZE")
Send = Callable[[Mapping[str, Any]], None]


class CommandGuard(Protocol):
    """Decides about system calls of a command. `program` is the seccomp filter that reports them."""

    program: bytes
    stop_reason: str
    """Set: end the command."""

    def attach(self, listener: int) -> None: ...
    def handle(self) -> None:
        """Decide about the calls that have been reported; there is at least one."""
        ...

    def answer(self, key: str, reason: str) -> None:
        """The answer to a question it sent: allowed if the reason is empty."""
        ...

    def report(self) -> Mapping[str, Any]: ...


class _Limits(NamedTuple):
    processes: int
    memory: int
    """Bytes of private memory of all processes together."""
    file_size: int


# --- the server -------------------------------------------------------------------------------------------------


def serve(channel: int, guards: Sequence[str] = ()) -> None:
    """Fork a supervisor for each request until the channel closes. `guards`: modules to import now."""
    for name in guards:
        _import_guard(name)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # supervisors are not waited for
    server = socket.socket(fileno=channel)
    while True:
        data, descriptors, _, _ = socket.recv_fds(server, 1, MAX_DESCRIPTORS)
        if not data:
            return
        for descriptor in descriptors:
            os.set_inheritable(descriptor, False)
        if os.fork() == 0:
            try:
                server.close()
                (_supervise if data == _RUN else _remove_afterwards)(descriptors)
            finally:
                os._exit(0)
        for descriptor in descriptors:
            os.close(descriptor)


def _remove_afterwards(descriptors: list[int]) -> None:
    """Wait until the other end of a socket is closed, by Kitbag or by its death, and remove a directory."""
    import shutil

    path_file, lease = descriptors
    path = os.read(path_file, 4096)
    os.write(lease, b"1")
    os.read(lease, 1)
    for _ in range(100):
        shutil.rmtree(path, ignore_errors=True)
        if not os.path.lexists(path):
            return
        time.sleep(0.05)  # a command that used it is about to end


def _import_guard(name: str) -> Any:
    from importlib import import_module

    return import_module(name)


# --- the supervisor of one command --------------------------------------------------------------------------------


def _supervise(descriptors: list[int]) -> None:
    request_file, control_descriptor, *passed = descriptors
    with os.fdopen(request_file, "rb") as file:
        request = cast("dict[str, Any]", json.loads(file.read()))
    control = socket.socket(fileno=control_descriptor)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)

    def send(message: Mapping[str, Any]) -> None:
        with contextlib.suppress(OSError):  # Kitbag has ended; the loop will notice
            control.send(json.dumps(message).encode())

    guard: CommandGuard | None = None
    if request["guard"] is not None:
        guard = _import_guard(request["guard"]["module"]).create_guard(request["guard"]["policy"], send)
    limits = _Limits(*request["limits"])
    group = _ProcessGroup(limits.processes)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    pid = os.fork()
    if pid == 0:
        ours.close()
        control.close()
        group.enter()
        _start(request, passed, guard, theirs)
    theirs.close()
    for descriptor in passed:
        os.close(descriptor)
    _use_capabilities(False)
    os.umask(0)
    send({"started": pid})
    supervision = _Supervision(pid, control, ours, guard, limits, group)
    try:
        message = supervision.run()
    except Exception as error:  # noqa: BLE001 - the command ends, and the user must learn why
        message = {"stopped": f"internal error while watching the command: {type(error).__name__}: {error}"}
    finally:
        statuses = _end_all_children()
        _use_capabilities(True)
        group.remove()
    status = supervision.status if supervision.status is not None else statuses.get(pid, -signal.SIGKILL)
    send({"exited": status, **message, **({"guard": guard.report()} if guard is not None else {})})


def _start(request: dict[str, Any], passed: list[int], guard: CommandGuard | None, report: socket.socket) -> None:
    """In the child: become the command. Never returns."""
    try:
        os.setsid()
        report = _out_of_the_way(report, request["descriptors"])
        _move_descriptors(passed, request["descriptors"])
        for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT):  # Python changes these
            signal.signal(number, signal.SIG_DFL)
        _limit_files(_Limits(*request["limits"]))
        os.chdir(request["directory"])
        if guard is not None:
            listener = install_filter(guard.program)
            socket.send_fds(report, [b"L"], [listener])
            os.close(listener)
        environment = {os.fsencode(name): os.fsencode(value) for name, value in request["environment"].items()}
        os.execve(request["arguments"][0], request["arguments"], environment)  # noqa: S606 - it is what this is for
    except OSError as error:
        report.send(b"E" + (error.strerror or str(error)).encode())
    except BaseException as error:  # noqa: BLE001 - anything but the command must not run on
        report.send(b"E" + str(error).encode())
    finally:
        os._exit(126)


def _out_of_the_way(report: socket.socket, numbers: list[int]) -> socket.socket:
    """The same socket with a number that the command does not want."""
    return socket.socket(fileno=fcntl.fcntl(report.detach(), fcntl.F_DUPFD_CLOEXEC, max(9, *numbers, 0) + 1))


def _move_descriptors(passed: list[int], numbers: list[int]) -> None:
    """The first becomes stdout and stderr, the others get the numbers that Kitbag knows them by."""
    # First out of the way of all numbers that are wanted.
    free = max(9, *numbers, *passed) + 1 if numbers else 10
    output, *others = [fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, free) for descriptor in passed]
    os.dup2(os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC), 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    for descriptor, number in zip(others, numbers, strict=True):
        os.dup2(descriptor, number)


def _limit_files(limits: _Limits) -> None:
    import resource

    if limits.file_size:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        size = limits.file_size if hard == resource.RLIM_INFINITY else min(limits.file_size, hard)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def install_filter(program: bytes) -> int:
    """Install a seccomp filter in this process and return its listener. Raises OSError."""
    library = ctypes.CDLL(None, use_errno=True)
    code = ctypes.create_string_buffer(program, len(program))

    class _Program(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_void_p))

    given = _Program(len(program) // 8, ctypes.addressof(code))
    number = _SECCOMP[os.uname().machine]
    if library.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "cannot set no_new_privs")
    for flags in (_NEW_LISTENER | _WAIT_KILLABLE, _NEW_LISTENER):  # the second before Linux 5.19
        listener = library.syscall(number, _SET_MODE_FILTER, flags, ctypes.byref(given))
        if listener >= 0:
            return int(listener)
    problem = ctypes.get_errno()
    raise OSError(problem, f"cannot watch system calls: {os.strerror(problem)}")


def _use_capabilities(use: bool) -> None:
    """Root's. What a guard does for a command is not done with more rights than the command has."""
    library = ctypes.CDLL(None)
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
    sets = (ctypes.c_uint32 * 6)()  # effective, permitted and inheritable, the low halves first
    library.capget(header, sets)
    sets[0], sets[3] = (sets[1], sets[4]) if use else (0, 0)
    library.capset(header, sets)


class _ProcessGroup:
    """A control group that limits processes. Only root may create one; other users have RLIMIT_NPROC, which does not
    count for root."""

    def __init__(self, limit: int) -> None:
        self.path = ""
        if not limit or os.geteuid() != 0:
            return
        for parent in ("/sys/fs/cgroup/pids", "/sys/fs/cgroup"):
            path = f"{parent}/kitbag-{os.getpid()}-{time.monotonic_ns()}"
            try:
                os.mkdir(path, 0o700)
                with open(f"{path}/pids.max", "w") as file:
                    file.write(str(limit + 2))
            except OSError:
                with contextlib.suppress(OSError):
                    os.rmdir(path)
                continue
            self.path = path
            return

    def enter(self) -> None:
        if self.path:
            with contextlib.suppress(OSError), open(f"{self.path}/cgroup.procs", "w") as file:
                file.write("0")

    def is_full(self) -> bool:
        """Whether a process could not be started."""
        if not self.path:
            return False
        with contextlib.suppress(OSError), open(f"{self.path}/pids.events") as file:
            return any(line.startswith("max ") and int(line[4:]) > 0 for line in file)
        return False

    def remove(self) -> None:
        for _ in range(100):
            try:
                if self.path:
                    os.rmdir(self.path)
                return
            except OSError:  # the last process is not quite gone
                time.sleep(0.01)


class _Supervision:
    """The loop that waits for the command, Kitbag and the guard's questions, and measures what the command uses."""

    def __init__(
        self,
        pid: int,
        control: socket.socket,
        start: socket.socket,
        guard: CommandGuard | None,
        limits: _Limits,
        group: "_ProcessGroup",
    ) -> None:
        self.status: int | None = None
        self._pid = pid
        self._control = control
        self._start = start
        self._guard = guard
        self._limits = limits
        self._group = group
        self._listener = -1
        self._problem = ""
        self._next_usage = time.monotonic() + _USAGE_SECONDS
        self._poller = select.poll()

    def run(self) -> dict[str, Any]:
        """Until the command exits or must end; returns what to report."""
        exited = os.pidfd_open(self._pid)
        for descriptor in (self._control.fileno(), self._start.fileno(), exited):
            self._poller.register(descriptor, select.POLLIN)
        measures = bool(self._limits.processes or self._limits.memory)
        while True:
            for descriptor, event in self._poller.poll(_USAGE_SECONDS * 1000 if measures else None):
                if descriptor == self._listener:
                    if event & select.POLLIN:
                        cast("CommandGuard", self._guard).handle()
                    else:  # no process with the filter is left
                        self._poller.unregister(descriptor)
                elif descriptor == self._start.fileno():
                    self._read_start()
                elif descriptor == self._control.fileno():
                    if not self._read_control():
                        return {}
                else:
                    self.status = os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])
                    if self._start.fileno() >= 0:
                        self._read_start()
                    return {"problem": self._problem}
            if self._guard is not None and self._guard.stop_reason:
                return {"stopped": self._guard.stop_reason}
            if measures and (reason := self._exceeded_limit()):
                return {"stopped": reason}

    def _read_start(self) -> None:
        """A listener, an error, or the end: the command has been executed."""
        data, descriptors, _, _ = socket.recv_fds(self._start, 4096, 1)
        if descriptors and self._guard is not None:
            self._listener = descriptors[0]
            self._guard.attach(self._listener)
            self._poller.register(self._listener, select.POLLIN)
        elif data[:1] == b"E":
            self._problem = data[1:].decode("utf-8", "replace")
        elif not data:
            self._poller.unregister(self._start.fileno())
            self._start.close()

    def _read_control(self) -> bool:
        data = self._control.recv(_MAX_MESSAGE)
        if not data:  # Kitbag has ended or wants the command to end
            return False
        message: Any = json.loads(data)
        if "signal" in message:
            with contextlib.suppress(OSError):
                os.killpg(self._pid, message["signal"])
        elif self._guard is not None:
            self._guard.answer(message["answer"], message["reason"])
        return True

    def _exceeded_limit(self) -> str:
        now = time.monotonic()
        if now < self._next_usage:
            return ""
        processes = memory = 0
        for pid in _descendants(os.getpid()):
            processes += 1
            memory += _private_memory(pid)
        # A command with very many processes takes long to measure.
        self._next_usage = now + max(_USAGE_SECONDS, 5 * (time.monotonic() - now))
        if self._limits.processes and (processes > self._limits.processes or self._group.is_full()):
            return "processes"
        return "memory" if self._limits.memory and memory > self._limits.memory else ""


def _descendants(pid: int) -> Iterator[int]:
    pending = [pid]
    while pending:
        found = list(_children(pending.pop()))
        pending += found
        yield from found


def _children(pid: int) -> Iterator[int]:
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{thread}/children", "rb") as file:
                yield from map(int, file.read().split())


def _private_memory(pid: int) -> int:
    with contextlib.suppress(OSError, ValueError, IndexError), open(f"/proc/{pid}/statm", "rb") as file:
        pages = file.read().split()
        return (int(pages[1]) - int(pages[2])) * _PAGE
    return 0


def _end_all_children() -> dict[int, int]:
    """Kill until no child is left. Orphans of a killed child become children of this process. Returns exit codes."""
    statuses: dict[int, int] = {}
    while True:
        for child in _children(os.getpid()):
            with contextlib.suppress(OSError):
                os.kill(child, signal.SIGKILL)
        try:
            pid, status = os.waitpid(-1, 0)
        except ChildProcessError:
            return statuses
        statuses[pid] = os.waitstatus_to_exitcode(status)
