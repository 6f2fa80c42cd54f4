"""The sandlock sandbox, for machines without bubblewrap: Landlock and seccomp, no namespaces, no carve-outs.

Used by `confine`. Run as a program it stands between the command runner and the shell: it reads the policy from a
descriptor, confines the shell, waits for it, and ends all its descendants.
"""

import contextlib
import json
import os
import re
import signal
import sys
from collections.abc import Iterable, Sequence
from typing import Any, Final, cast

import msgspec

from kitbag.permissions.model import Workspace, is_inside
from kitbag.processes.command_runner import (
    CommandResult,
    CommandStart,
    ProgressCallback,
    ShellCommand,
    run_supervised,
)
from kitbag.processes.process_table import child_pids
from kitbag.processes.signals import kill_child
from kitbag.processes.supervised import scratch_directory
from kitbag.sandbox.confinement import Confinement
from kitbag.sandbox.errors import SandboxError
from kitbag.sandbox.filesystem_view import (
    RUNTIME_DIRECTORIES,
    SCRATCH_DIRECTORIES,
    FilesystemView,
    build_view,
    command_environment,
    launcher_environment,
    with_real_paths,
)

_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
# Landlock controls writing to a file's content, not changing its permissions, owner, times and attributes.
_METADATA_SYSCALLS = (
    *("chmod", "fchmod", "fchmodat", "fchmodat2", "chown", "fchown", "lchown", "fchownat"),
    *("utime", "utimes", "futimesat", "utimensat", "setxattr", "lsetxattr", "fsetxattr", "setxattrat"),
    *("removexattr", "lremovexattr", "fremovexattr", "removexattrat", "file_setattr"),
)
_UNKNOWN_SYSCALLS = re.compile(r"unknown syscall or group name\(s\): ([\w, ]+)")
_STARTED: Final = b"started\n"
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36


def run_in_landlock(
    command: ShellCommand,
    on_progress: ProgressCallback | None,
    confinement: Confinement,
    workspace: Workspace,
) -> CommandResult:
    """Raises SandboxError if the command did not run.

    In a writable workspace control paths are not protected, and permissions of files elsewhere can be changed.
    """
    workspace = with_real_paths(workspace)
    writable = workspace.write_roots if confinement.profile == "workspace" else ()
    if "/" in writable:
        raise SandboxError("the workspace is the root directory", "start Kitbag in a project directory")
    with scratch_directory() as scratch:
        policy = {
            "writable": [*writable, scratch, *(path for path in _DEVICES if os.path.exists(path))],
            "denied": _denied_paths(build_view(workspace, confinement.network, writable)),
            "network": confinement.network,
            "refused": [] if writable else _METADATA_SYSCALLS,
            "directory": command.directory,
            "environment": command_environment(command.environment, workspace.home, scratch)
            | confinement.git_environment,
        }
        return _start(
            msgspec.structs.replace(command, environment=launcher_environment(command.environment)), on_progress, policy
        )


def _denied_paths(view: FilesystemView) -> list[str]:
    """Paths that can't be read. Unlike a mount, a denied directory can't contain visible paths, so its other entries
    are denied one by one."""
    paths: list[str] = list(view.hidden_files)
    always_hidden = {os.path.realpath(path) for path in (*SCRATCH_DIRECTORIES, *RUNTIME_DIRECTORIES)}
    for folder in view.hidden_folders:
        if folder not in always_hidden:
            paths += _paths_except(folder, view.shown)
    return paths


def _paths_except(folder: str, shown: Iterable[str]) -> list[str]:
    inside = [path for path in shown if is_inside(path, folder)]
    if folder in inside:
        return []
    if not inside:
        return [folder]
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return []
    return [found for name in names for found in _paths_except(os.path.join(folder, name), inside)]


def _start(command: ShellCommand, on_progress: ProgressCallback | None, policy: dict[str, Any]) -> CommandResult:
    status_reader, status_writer = os.pipe()
    policy_file = os.memfd_create("kitbag", os.MFD_CLOEXEC)
    try:
        os.write(policy_file, json.dumps(policy).encode())
        os.lseek(policy_file, 0, os.SEEK_SET)
        # Isolated mode: import nothing from the command's working directory.
        module = [sys.executable, "-I", "-m", "kitbag.sandbox.landlock"]
        prefix = [*module, str(policy_file), str(status_writer), "--"]
        start = CommandStart(prefix=tuple(prefix), descriptors=(policy_file, status_writer))
        result = run_supervised(command, on_progress, start).command
        os.set_blocking(status_reader, False)
        with contextlib.suppress(BlockingIOError):
            if os.read(status_reader, len(_STARTED)) == _STARTED:
                return result
        if result.stop_reason:
            return result
        problem = result.text or f"sandlock exited with status {result.status}"
        raise SandboxError(f"could not create the sandbox: {problem}", "run `kitbag doctor` to check the sandbox")
    finally:
        for descriptor in (status_reader, status_writer, policy_file):
            os.close(descriptor)


def detect_landlock() -> tuple[str, str]:
    """The working version, or an empty string and the reason."""
    import importlib.util
    from importlib import metadata

    if importlib.util.find_spec("sandlock") is None:
        return "", "sandlock is not installed"
    problem = _run_trial()
    if problem:
        return "", f"sandlock is installed but does not work: {problem}"
    return metadata.version("sandlock"), ""


_TRIAL_SCRIPT = """
echo x > "$TMPDIR/free" || exit 11
echo x > new && exit 12
chmod 700 . && exit 13
cat "$TRIAL_HIDDEN" && exit 15
(exec 3<>"/dev/tcp/127.0.0.1/$TRIAL_PORT") && exit 16
(exec 3<>/proc/sys/kernel/core_pattern) && exit 17
exit 42
"""


def _run_trial() -> str:
    import socket

    with scratch_directory() as base, socket.create_server(("127.0.0.1", 0)) as server:
        root = os.path.realpath(base)
        os.makedirs(f"{root}/workspace")
        os.makedirs(f"{root}/home/.ssh")
        with open(f"{root}/home/.ssh/key", "w", encoding="utf-8") as file:
            file.write("secret\n")
        workspace = Workspace(root=f"{root}/workspace", home=f"{root}/home", kitbag_home=f"{root}/home/.kitbag")
        environment = {"PATH": "/usr/bin:/bin", "TRIAL_HIDDEN": f"{root}/home/.ssh/key"}
        environment["TRIAL_PORT"] = str(server.getsockname()[1])
        try:
            result = run_in_landlock(
                ShellCommand(
                    text=_TRIAL_SCRIPT,
                    directory=workspace.root,
                    environment=environment,
                    timeout=10,
                    max_characters=2000,
                ),
                None,
                Confinement(profile="read-only"),
                workspace,
            )
        except SandboxError as error:
            return error.problem
        if result.status != 42 or os.listdir(workspace.root):
            return f"sandbox test failed with status {result.status}: {result.text}"
    return ""


# --- The program in between ------------------------------------------------------------------------------------


def main(arguments: Sequence[str]) -> int:
    """`POLICY-DESCRIPTOR STATUS-DESCRIPTOR -- COMMAND...`"""
    policy_file, status_writer = int(arguments[0]), int(arguments[1])
    _prepare()
    with os.fdopen(policy_file, "rb") as file:
        policy = cast("dict[str, Any]", json.loads(file.read()))
    os.set_inheritable(status_writer, False)
    try:
        process = _start_confined(policy, list(arguments[3:]))
    except Exception as error:  # noqa: BLE001 - whatever it is, the command must not run without
        sys.stderr.write(f"{error}\n")
        return 125
    os.write(status_writer, _STARTED)
    result = _wait(process)
    _end_children()
    if result.exit_code >= 0 and result.signal <= 0:
        return int(result.exit_code)
    return 128 + (result.signal if result.signal > 0 else signal.SIGKILL)


def _start_confined(policy: dict[str, Any], command: list[str]) -> Any:
    from importlib import import_module

    sandlock: Any = import_module("sandlock")
    open_network = {"net_allow": [":*", "udp://*:*"], "net_allow_bind": ["*"]} if policy["network"] else {}
    os.environ.update(policy["environment"])
    refused: list[str] = policy["refused"]
    while True:
        sandbox = sandlock.Sandbox(
            fs_readable=["/"],
            fs_writable=policy["writable"],
            fs_denied=policy["denied"],
            cwd=policy["directory"],
            extra_deny_syscalls=refused,
            **open_network,
        )
        try:
            return sandbox.popen(command)
        except RuntimeError as error:
            # Not every architecture has all of them.
            unknown = _UNKNOWN_SYSCALLS.search(str(error))
            left = [name for name in refused if unknown and name not in unknown[1].split(", ")]
            if not unknown or left == refused:
                raise
            refused = left


def _prepare() -> None:
    """Become the parent of orphaned descendants, and get a signal when Kitbag ends."""
    import ctypes

    library = ctypes.CDLL(None)
    library.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    signal.signal(signal.SIGTERM, _handle_sigterm)
    library.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


def _wait(process: Any) -> Any:
    """Wait in another thread: Python handles signals only between bytecodes of the main thread."""
    import threading

    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(process.wait()), daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(0.2)
    return results[0]


def _handle_sigterm(number: int, _: object) -> None:
    _end_children()
    os._exit(128 + number)


def _end_children() -> None:
    for _ in range(100):
        found = child_pids()
        if not found:
            return
        for pid in found:
            kill_child(pid)
        with contextlib.suppress(OSError):
            os.waitpid(-1, 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
