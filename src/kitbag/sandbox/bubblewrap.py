"""The bubblewrap sandbox: own namespaces, everything read-only, the workspace writable on request.

Detected by trial runs, from the strongest set of options to the weakest acceptable one. All processes end with the
process namespace. Used by `confine`; uses `filesystem_view` and `mounts` for what a command sees, `seccomp` for its
system calls, and `processes/command_runner`.
"""

import contextlib
import itertools
import json
import os
import re
import select
import stat
import time
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, Final, NamedTuple

import msgspec

from kitbag.permissions.model import SandboxProfile, Workspace, is_inside
from kitbag.processes.command_runner import CommandResult, ProgressCallback, ShellCommand, run_command
from kitbag.processes.process_table import is_pid
from kitbag.sandbox.filesystem_view import (
    SCRATCH_DIRECTORIES,
    build_view,
    command_environment,
    launcher_environment,
    with_real_paths,
)
from kitbag.sandbox.mounts import EMPTY_FILE, Mounts, protect_paths
from kitbag.sandbox.placeholders import SandboxError
from kitbag.sandbox.seccomp import seccomp_program

SCRATCH_FOLDER: Final = "/tmp"  # noqa: S108 - a private one
_PREFERRED_DIRECTORIES = ("/usr/bin", "/bin", "/usr/local/bin", "/run/current-system/sw/bin", "/run/wrappers/bin")
_START_SECONDS = 10.0
_END_SECONDS = 5.0
_MAX_TRIES = 30
"""Retries if a path to hide or protect vanishes between the scan and the mount."""
_BWRAP_PREFIX = b"bwrap: "
_MAX_MESSAGE_BYTES = 4_096
# Without a user namespace, root runs without any capability. Without its own /proc a command gets none: the host's
# would show other processes and, through them, the hidden file system.
_VARIANTS = (
    ("--unshare-user", "--disable-userns", "--proc", "/proc"),
    ("--unshare-user", "--proc", "/proc"),
    ("--proc", "/proc"),
    ("--unshare-user", "--tmpfs", "/proc"),
    ("--tmpfs", "/proc"),
)


class _NotStartedError(SandboxError):
    """The command did not run; starting it can be retried."""


class Bubblewrap(NamedTuple):
    program: str
    version: str
    options: tuple[str, ...]


class _Descriptors:
    """Descriptors that stay open while the sandbox starts."""

    __slots__ = ("_open",)

    def __init__(self) -> None:
        self._open: list[int] = []

    def holding(self, content: bytes) -> str:
        """A descriptor to read `content` from."""
        if not content:
            descriptor = os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)
        else:
            descriptor = os.memfd_create("kitbag", os.MFD_CLOEXEC)
            os.write(descriptor, content)
            os.lseek(descriptor, 0, os.SEEK_SET)
        self._open.append(descriptor)
        return str(descriptor)

    @property
    def all(self) -> tuple[int, ...]:
        return tuple(self._open)

    def close(self) -> None:
        for descriptor in self._open:
            os.close(descriptor)
        self._open.clear()


class _Status:
    """bubblewrap's status pipe: whether the command started, and which process holds its namespace."""

    __slots__ = ("_read", "_text", "_write", "first_process")

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        self._text = b""
        self.first_process: int | None = None

    @property
    def descriptor(self) -> int:
        return self._write

    def begin(self) -> None:
        self._close_ours()
        deadline = time.monotonic() + _START_SECONDS
        while b"\n" not in self._text and self._more(deadline - time.monotonic()):
            pass
        child_pid = self._status_value("child-pid")
        if is_pid(child_pid):
            with contextlib.suppress(OSError, AttributeError):
                self.first_process = os.pidfd_open(child_pid)

    def command_ran(self) -> bool:
        while self._more(0):
            pass
        return self._status_value("exit-code") is not None

    def wait_for_end(self) -> bool:
        """Wait until the namespace is empty: its first process ends last."""
        if self.first_process is None:
            return True
        poller = select.poll()
        poller.register(self.first_process, select.POLLIN)
        return bool(poller.poll(_END_SECONDS * 1000))

    def close(self) -> None:
        self._close_ours()
        os.close(self._read)
        if self.first_process is not None:
            os.close(self.first_process)
            self.first_process = None

    def _close_ours(self) -> None:
        if self._write >= 0:
            os.close(self._write)
            self._write = -1

    def _more(self, seconds: float) -> bool:
        poller = select.poll()
        poller.register(self._read, select.POLLIN)
        if not poller.poll(max(0.0, seconds) * 1000):
            return False
        chunk = os.read(self._read, 4096)
        self._text += chunk
        return bool(chunk)

    def _status_value(self, key: str) -> int | None:
        for line in self._text.splitlines():
            with contextlib.suppress(ValueError):
                message: Any = json.loads(line)
                if isinstance(message, dict) and key in message:
                    return int(message[key])  # pyright: ignore[reportUnknownArgumentType]
        return None


class _OutputFilter:
    """Passes a command's output on, but not bubblewrap's own errors when it fails to start."""

    __slots__ = ("_held", "_listener", "_passes")

    def __init__(self, listener: Callable[[bytes], None]) -> None:
        self._listener = listener
        self._held = b""
        self._passes = False

    def take(self, chunk: bytes) -> None:
        if self._passes:
            return self._listener(chunk)
        self._held += chunk
        is_error_message = self._held.startswith(_BWRAP_PREFIX) or _BWRAP_PREFIX.startswith(self._held)
        if not is_error_message or len(self._held) > _MAX_MESSAGE_BYTES:
            self.release()
        return None

    def release(self) -> None:
        self._passes = True
        if self._held:
            self._listener(self._held)
        self._held = b""


def run_in_bubblewrap(
    bubblewrap: Bubblewrap,
    command: ShellCommand,
    on_progress: ProgressCallback | None,
    profile: SandboxProfile,
    network: bool,
    workspace: Workspace,
) -> CommandResult:
    """Raises SandboxError if the command did not run."""
    workspace = with_real_paths(workspace)
    writable = workspace.write_roots if profile == "workspace" else ()
    _check_roots(bubblewrap, writable, workspace)
    environment = command_environment(command.environment, workspace.home, SCRATCH_FOLDER)
    for tries in itertools.count(1):
        with protect_paths(writable, workspace) as protected:
            # Scan last: sockets come and go, and on a busy machine the steps above are slow.
            view = build_view(workspace, network, writable)
            mounts = Mounts(view, protected.held, writable, _version_numbers(bubblewrap.version))
            result = _start(bubblewrap, command, environment, on_progress, network, mounts)
            has_vanished = isinstance(result, _NotStartedError) and mounts.has_vanished_path()
        if not isinstance(result, _NotStartedError):
            return msgspec.structs.replace(result, notes=tuple(protected.notes))
        if tries >= _MAX_TRIES or (tries > 1 and not has_vanished):
            raise result
    raise AssertionError


def _check_roots(bubblewrap: Bubblewrap, writable: Iterable[str], workspace: Workspace) -> None:
    for root in writable:
        if root == "/":
            raise SandboxError("the workspace is the root directory", "start Kitbag in a project directory")
        if is_inside(os.path.realpath(bubblewrap.program), root):
            raise SandboxError(
                f"{bubblewrap.program} is in a directory that commands can write to", "use the system's bubblewrap"
            )
        if not os.path.isdir(root):
            raise SandboxError(f"{root} is not a directory", "fix `sandbox.writable` in your settings")
    if not os.path.isdir(workspace.root):
        raise SandboxError(f"{workspace.root} no longer exists", "start Kitbag in an existing directory")


def _start(
    bubblewrap: Bubblewrap,
    command: ShellCommand,
    environment: dict[str, str],
    on_progress: ProgressCallback | None,
    network: bool,
    mounts: Mounts,
) -> CommandResult | _NotStartedError:
    status, descriptors = _Status(), _Descriptors()
    output_filter = _OutputFilter(command.on_output) if command.on_output is not None else None
    try:
        options = ["--die-with-parent", "--new-session", "--unshare-all", *(["--share-net"] if network else [])]
        options += ["--cap-drop", "ALL", "--json-status-fd", str(status.descriptor), "--chdir", command.directory]
        program = seccomp_program()
        if program:
            options += ["--seccomp", descriptors.holding(program)]
        options += ["--ro-bind", "/", "/", "--dev", "/dev", *bubblewrap.options]
        if "--proc" in bubblewrap.options and os.geteuid() == 0:
            options += [word for path in _kernel_settings() for word in ("--ro-bind", path, path)]
        for option, path in mounts.arguments():
            options += [*option, *([descriptors.holding(b"")] if option == (EMPTY_FILE,) else []), path]
        scratch = {os.path.realpath(path) for path in SCRATCH_DIRECTORIES}
        options += [word for path in mounts.hidden_folders() if path not in scratch for word in ("--remount-ro", path)]
        for name, value in environment.items():
            options += ["--setenv", name, value]
        arguments_descriptor = descriptors.holding(b"".join(os.fsencode(option) + b"\0" for option in options))
        result = run_command(
            msgspec.structs.replace(
                command,
                environment=launcher_environment(command.environment),
                on_output=output_filter.take if output_filter is not None else None,
            ),
            on_progress,
            prefix=[bubblewrap.program, "--args", arguments_descriptor, "--"],
            descriptors=(status.descriptor, *descriptors.all),
            on_started=status.begin,
            ends_with_prefix=True,
        )
        if not status.wait_for_end():
            raise SandboxError(
                "could not stop all processes started by the command", "find them with `ps` and stop them"
            )
        if not status.command_ran() and not result.stop_reason and result.status >= 0:
            problem = result.text.removeprefix("bwrap: ") or f"bubblewrap exited with status {result.status}"
            fix = "run `kitbag doctor` to check the sandbox"
            return _NotStartedError(f"could not create the sandbox: {problem}", fix)
        if output_filter is not None:
            output_filter.release()
        return result
    finally:
        status.close()
        descriptors.close()


@cache
def _kernel_settings() -> tuple[str, ...]:
    """Entries of /proc that are not processes. The kernel lets root write them even without capabilities, and a value
    such as `core_pattern` is a command that runs outside the sandbox. Only needed for root."""
    paths: list[str] = []
    for name in sorted(os.listdir("/proc")):
        state = os.lstat(f"/proc/{name}") if not name.isdecimal() else None
        if state is not None and (
            stat.S_ISDIR(state.st_mode) or (stat.S_ISREG(state.st_mode) and state.st_mode & 0o222)
        ):
            paths.append(f"/proc/{name}")
    return tuple(paths)


def detect_bubblewrap() -> tuple[Bubblewrap | None, str]:
    """The bubblewrap that works here and its limitation; or None and the reason."""
    directories = [*_PREFERRED_DIRECTORIES, *os.environ.get("PATH", "").split(os.pathsep)]
    programs = [path for place in directories if place.startswith("/") and os.access(path := f"{place}/bwrap", os.X_OK)]
    if not programs:
        return None, "bubblewrap is not installed"
    version = _read_version(programs[0])
    problem = ""
    for options in _VARIANTS:
        bubblewrap = Bubblewrap(programs[0], version, options)
        failure = _run_trial(bubblewrap)
        if not failure:
            return bubblewrap, "" if "--proc" in options else "/proc is not available to commands"
        problem = problem or failure
    return None, f"bubblewrap {version} is installed but does not work: {problem}"


def _version_numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in version.split(".") if number)


def _read_version(program: str) -> str:
    import subprocess

    with contextlib.suppress(OSError, subprocess.SubprocessError):
        output = subprocess.run([program, "--version"], check=False, capture_output=True, timeout=5, env={})  # noqa: S603
        return (re.findall(r"\d+(?:\.\d+)+", output.stdout.decode(errors="replace")) or [""])[0]
    return ""


_TRIAL_SCRIPT = """
echo x > free || exit 11
echo x > .git/config && exit 12
echo x > .mcp.json && exit 13
echo x > ../outside && exit 14
[ -e "$TRIAL_HIDDEN" ] && exit 15
(exec 3<>"/dev/tcp/127.0.0.1/$TRIAL_PORT") && exit 16
(exec 3<>/proc/sys/kernel/core_pattern) && exit 17
exit 42
"""


def _run_trial(bubblewrap: Bubblewrap) -> str:
    """What is wrong with it: a real run must succeed in what is allowed and fail in what is not."""
    import socket
    import tempfile

    with tempfile.TemporaryDirectory(prefix="kitbag-") as base, socket.create_server(("127.0.0.1", 0)) as server:
        root = os.path.realpath(base)
        os.makedirs(f"{root}/workspace/.git")
        os.makedirs(f"{root}/home/.ssh")
        for path in (f"{root}/workspace/.git/config", f"{root}/home/.ssh/key"):
            with open(path, "w", encoding="utf-8") as file:
                file.write("before\n")
        workspace = Workspace(
            root=f"{root}/workspace", home=f"{root}/home", kitbag_home=f"{root}/home/.kitbag", extra_read_roots=(root,)
        )
        environment = {"PATH": "/usr/bin:/bin", "TRIAL_HIDDEN": f"{root}/home/.ssh/key"}
        environment["TRIAL_PORT"] = str(server.getsockname()[1])
        command = ShellCommand(
            text=_TRIAL_SCRIPT, directory=workspace.root, environment=environment, timeout=10, max_characters=2000
        )
        try:
            result = run_in_bubblewrap(bubblewrap, command, None, "workspace", False, workspace)
        except SandboxError as error:
            return error.problem
        if result.status != 42 or os.path.exists(f"{root}/outside") or os.path.lexists(f"{root}/workspace/.mcp.json"):
            return f"sandbox test failed with status {result.status}: {result.text}"
    return ""
