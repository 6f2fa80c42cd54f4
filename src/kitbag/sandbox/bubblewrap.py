"""The bubblewrap sandbox: own namespaces, everything read-only, the workspace writable on request.

Detected by trial runs, from the strongest set of options to the weakest acceptable one. Used by `confine`; uses
`filesystem_view` and `mounts` for what a command sees, `seccomp` for its system calls, `write_guard` for control paths
that don't exist yet, `control_snapshot` and `quarantine` for what passes it, and `processes/command_runner`.
"""

import contextlib
import itertools
import json
import os
import re
import signal
import stat
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, Final

import msgspec

from kitbag.permissions.model import Workspace, is_inside
from kitbag.processes.command_runner import (
    CommandResult,
    CommandStart,
    ProgressCallback,
    ShellCommand,
    SupervisedResult,
    run_supervised,
)
from kitbag.processes.supervised import GuardSpec, prepare_supervisor, scratch_directory
from kitbag.sandbox.confinement import Confinement
from kitbag.sandbox.control_snapshot import ControlSnapshot, find_created, take_snapshot
from kitbag.sandbox.errors import SandboxError
from kitbag.sandbox.filesystem_view import (
    SCRATCH_DIRECTORIES,
    build_view,
    command_environment,
    launcher_environment,
    with_real_paths,
)
from kitbag.sandbox.mounts import Mounts, ProtectedPaths, protect_paths
from kitbag.sandbox.seccomp import denying_program, watching_program

SCRATCH_FOLDER: Final = "/tmp"  # noqa: S108 - a private one
_PREFERRED_DIRECTORIES = ("/usr/bin", "/bin", "/usr/local/bin", "/run/current-system/sw/bin", "/run/wrappers/bin")
_GUARD_MODULE = "kitbag.sandbox.write_guard"
_HOSTILE = "hostile"
_FILE_SIZE_EXIT = 128 + signal.SIGXFSZ
_SIZE_SINCE = (0, 8)
"""The first version known to limit the size of a temporary file system."""
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


class Bubblewrap(msgspec.Struct, frozen=True, kw_only=True):
    program: str
    version: str
    options: tuple[str, ...]
    guards: bool
    """Whether calls that create files can be watched; otherwise what a command creates is found when it has ended."""


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
    """bubblewrap's status pipe: whether the command ran."""

    __slots__ = ("_read", "_write")

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)

    @property
    def descriptor(self) -> int:
        return self._write

    def command_ran(self) -> bool:
        """Once all its processes have ended."""
        text = b""
        with contextlib.suppress(BlockingIOError):
            while chunk := os.read(self._read, 4096):
                text += chunk
        for line in text.splitlines():
            with contextlib.suppress(ValueError):
                message: Any = json.loads(line)
                if isinstance(message, dict) and "exit-code" in message:
                    return True
        return False

    def close(self) -> None:
        os.close(self._read)
        os.close(self._write)


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
    confinement: Confinement,
    workspace: Workspace,
) -> CommandResult:
    """Raises SandboxError if the command did not run."""
    workspace = with_real_paths(workspace)
    writable = workspace.write_roots if confinement.profile == "workspace" else ()
    _check_roots(bubblewrap, writable, workspace)
    environment = command_environment(command.environment, workspace.home, SCRATCH_FOLDER) | confinement.git_environment
    for tries in itertools.count(1):
        before = take_snapshot(writable)
        if before.cut and not bubblewrap.guards:
            raise SandboxError(f"cannot protect control files: {before.cut}", "start Kitbag in a smaller directory")
        protected = protect_paths(writable, workspace, before, confinement.allowed)
        # Scan last: sockets come and go, and on a busy machine the steps above are slow.
        view = build_view(workspace, confinement.network, writable)
        if bubblewrap.guards:  # it keeps parents of mounts in place
            protected = msgspec.structs.replace(protected, pinned=())
        mounts = Mounts(view, protected, writable)
        guard = _guard(bubblewrap, confinement, writable, protected)
        run = _Run(bubblewrap, command, environment, confinement, mounts, guard)
        result = run.start(on_progress)
        if not isinstance(result, _NotStartedError):
            return _with_notes(bubblewrap, result, command, confinement, workspace, before)
        if tries >= _MAX_TRIES or (tries > 1 and not mounts.has_vanished_path()):
            raise result
    raise AssertionError


def _guard(
    bubblewrap: Bubblewrap,
    confinement: Confinement,
    writable: tuple[str, ...],
    protected: ProtectedPaths,
) -> GuardSpec | None:
    if not bubblewrap.guards or not writable:
        return None
    policy = {
        "roots": list(writable),
        "repositories": list(protected.repositories),
        "read_only": list(protected.read_only),
        "pinned": list(writable),
        "allowed": list(confinement.allowed),
        "denied": [[one.anchor, one.regex, one.only_names, one.rule] for one in confinement.denied_writes],
        "asks": confinement.on_question is not None,
        "file_size": confinement.limits.file_size,
    }
    return GuardSpec(module=_GUARD_MODULE, policy=policy)


def _with_notes(
    bubblewrap: Bubblewrap,
    ran: SupervisedResult,
    command: ShellCommand,
    confinement: Confinement,
    workspace: Workspace,
    before: ControlSnapshot,
) -> CommandResult:
    """Reports what was denied, moves what passed the guard to the quarantine, and says which limit ended it."""
    report = ran.guard_report
    writable = workspace.write_roots if confinement.profile == "workspace" else ()
    notes = [
        f"the sandbox denied writing {_shown(path, writable)}: {reason}" for path, reason in report.get("denied", ())
    ]
    if before.cut and writable:
        notes.append(f"{before.cut}; git repositories in the rest are read-only")
    # The user's own programs may have created control paths too, so this is only for attacks and without a guard.
    if writable and (ran.stopped == _HOSTILE or not bubblewrap.guards):
        for path in find_created(before, take_snapshot(writable), report.get("allowed", ())):
            notes.append(_quarantine(path, command.text, workspace.kitbag_home))
    if ran.stopped == _HOSTILE:
        notes.append("stopped: the command changed a file name while the sandbox checked it, to get past the check")
    elif ran.stopped:
        notes.append(confinement.describe_limit(ran.stopped))
    elif ran.command.status in (_FILE_SIZE_EXIT, -signal.SIGXFSZ):
        notes.append(confinement.describe_limit("file_size"))
    return msgspec.structs.replace(ran.command, notes=tuple(notes))


def _shown(path: str, roots: tuple[str, ...]) -> str:
    """Relative to the workspace, if it is in there."""
    return os.path.relpath(path, roots[0]) if roots and is_inside(path, roots[0]) else path


def _quarantine(path: str, command: str, kitbag_home: str) -> str:
    from kitbag.sandbox.quarantine import quarantine
    from kitbag.store.private_files import StoreError

    try:
        found = quarantine(path, command, kitbag_home)
    except (OSError, StoreError) as error:
        reason = error.problem if isinstance(error, StoreError) else error.strerror
        return f"the command created {path}, which the sandbox protects; move it away yourself ({reason})"
    return (
        f"the command created {path}, which the sandbox protects; it was moved to the quarantine"
        f" (`kitbag quarantine restore {found.id}` puts it back)"
    )


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


class _Run:
    """One start of bubblewrap."""

    __slots__ = ("_bubblewrap", "_command", "_confinement", "_environment", "_guard", "_mounts")

    def __init__(
        self,
        bubblewrap: Bubblewrap,
        command: ShellCommand,
        environment: dict[str, str],
        confinement: Confinement,
        mounts: Mounts,
        guard: GuardSpec | None,
    ) -> None:
        self._bubblewrap = bubblewrap
        self._command = command
        self._environment = environment
        self._confinement = confinement
        self._mounts = mounts
        self._guard = guard

    def start(self, on_progress: ProgressCallback | None) -> SupervisedResult | _NotStartedError:
        command = self._command
        status, descriptors = _Status(), _Descriptors()
        output_filter = _OutputFilter(command.on_output) if command.on_output is not None else None
        try:
            options = self._options(status, descriptors)
            arguments_descriptor = descriptors.holding(b"".join(os.fsencode(option) + b"\0" for option in options))
            ran = run_supervised(
                msgspec.structs.replace(
                    command,
                    environment=launcher_environment(command.environment),
                    on_output=output_filter.take if output_filter is not None else None,
                ),
                on_progress,
                CommandStart(
                    prefix=(self._bubblewrap.program, "--args", arguments_descriptor, "--", *self._limiter()),
                    descriptors=(status.descriptor, *descriptors.all),
                    limits=self._confinement.limits,
                    guard=self._guard,
                    on_question=self._confinement.on_question,
                    has_own_processes=True,
                ),
            )
            result = ran.command
            if not status.command_ran() and not result.stop_reason and not ran.stopped and result.status >= 0:
                problem = result.text.removeprefix("bwrap: ") or f"bubblewrap exited with status {result.status}"
                fix = "run `kitbag doctor` to check the sandbox"
                return _NotStartedError(f"could not create the sandbox: {problem}", fix)
            if output_filter is not None:
                output_filter.release()
            return ran
        finally:
            status.close()
            descriptors.close()

    def _limiter(self) -> tuple[str, ...]:
        """Sets the kernel's limit on processes, which counts threads too, where there is no control group."""
        limit = self._confinement.limits.processes
        if not limit or os.geteuid() == 0 or not os.path.exists("/bin/bash"):
            return ()
        return ("/bin/bash", "-c", 'ulimit -u "$0" 2>/dev/null; exec "$@"', str(4 * limit))

    def _options(self, status: _Status, descriptors: _Descriptors) -> list[str]:
        bubblewrap, network = self._bubblewrap, self._confinement.network
        options = ["--die-with-parent", "--new-session", "--unshare-all", *(["--share-net"] if network else [])]
        options += ["--cap-drop", "ALL", "--json-status-fd", str(status.descriptor)]
        options += ["--chdir", self._command.directory]
        program = denying_program()
        if program:
            options += ["--seccomp", descriptors.holding(program)]
        options += ["--ro-bind", "/", "/", "--dev", "/dev", *bubblewrap.options]
        if "--proc" in bubblewrap.options and os.geteuid() == 0:
            options += [word for path in _kernel_settings() for word in ("--ro-bind", path, path)]
        scratch = {os.path.realpath(path) for path in SCRATCH_DIRECTORIES}
        memory = self._confinement.limits.memory
        size = ["--size", str(memory)] if memory and _version_numbers(bubblewrap.version) >= _SIZE_SINCE else []
        for option, path in self._mounts.arguments():
            options += [*(size if option == ("--tmpfs",) and path in scratch else []), *option, path]
        hidden = self._mounts.hidden_folders()
        options += [word for path in hidden if path not in scratch for word in ("--remount-ro", path)]
        for name, value in self._environment.items():
            options += ["--setenv", name, value]
        return options


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
    prepare_supervisor((_GUARD_MODULE,))
    can_watch = bool(watching_program())
    for guards in (True, False) if can_watch else (False,):
        for options in _VARIANTS:
            bubblewrap = Bubblewrap(program=programs[0], version=version, options=options, guards=guards)
            failure = _run_trial(bubblewrap)
            if not failure:
                return bubblewrap, _limitations(bubblewrap)
            problem = problem or failure
    return None, f"bubblewrap {version} is installed but does not work: {problem}"


def _limitations(bubblewrap: Bubblewrap) -> str:
    limits = [] if "--proc" in bubblewrap.options else ["/proc is not available to commands"]
    if not bubblewrap.guards:
        limits.append(
            "new control files are moved to the quarantine when a command ends, because this kernel cannot watch system"
            " calls"
        )
    return "; ".join(limits)


def _version_numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in version.split(".") if number)


def _read_version(program: str) -> str:
    import subprocess

    with contextlib.suppress(OSError, subprocess.SubprocessError):
        output = subprocess.run([program, "--version"], check=False, capture_output=True, timeout=5, env={})  # noqa: S603
        return (re.findall(r"\d+(?:\.\d+)+", output.stdout.decode(errors="replace")) or [""])[0]
    return ""


_TRIAL_SCRIPT = """
cd "$TRIAL_DIR" || exit 10
echo x > free || exit 11
echo x > .git/config && exit 12
[ -n "$TRIAL_GUARDS" ] && echo x > .mcp.json && exit 13
echo x > "$TRIAL_OUTSIDE" && exit 14
[ -e "$TRIAL_HIDDEN" ] && exit 15
(exec 3<>"/dev/tcp/127.0.0.1/$TRIAL_PORT") && exit 16
(exec 3<>/proc/sys/kernel/core_pattern) && exit 17
exit 42
"""


def _run_trial(bubblewrap: Bubblewrap) -> str:
    """What is wrong with it: a real run must succeed in what is allowed and fail in what is not."""
    import socket

    with scratch_directory() as base, socket.create_server(("127.0.0.1", 0)) as server:
        root = os.path.realpath(base)
        os.makedirs(f"{root}/workspace/.git")
        os.makedirs(f"{root}/home/.ssh")
        for path in (f"{root}/workspace/.git/config", f"{root}/home/.ssh/key"):
            with open(path, "w", encoding="utf-8") as file:
                file.write("before\n")
        workspace = Workspace(
            root=f"{root}/workspace", home=f"{root}/home", kitbag_home=f"{root}/home/.kitbag", extra_read_roots=(root,)
        )
        environment = {
            "PATH": "/usr/bin:/bin",
            "TRIAL_DIR": workspace.root,
            "TRIAL_OUTSIDE": f"{root}/outside",
            "TRIAL_HIDDEN": f"{root}/home/.ssh/key",
            "TRIAL_PORT": str(server.getsockname()[1]),
            "TRIAL_GUARDS": "yes" if bubblewrap.guards else "",
        }
        command = ShellCommand(
            text=_TRIAL_SCRIPT, directory=workspace.root, environment=environment, timeout=10, max_characters=2000
        )
        try:
            result = run_in_bubblewrap(bubblewrap, command, None, Confinement(profile="workspace"), workspace)
        except SandboxError as error:
            return error.problem
        if result.status != 42 or os.path.exists(f"{root}/outside") or os.path.lexists(f"{root}/workspace/.mcp.json"):
            return f"sandbox test failed with status {result.status}: {result.text}"
    return ""
