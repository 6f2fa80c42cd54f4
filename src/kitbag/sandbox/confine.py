"""Runs a command in a sandbox, or not at all. Support is detected once, by trial runs.

Used by everything that runs a model's commands. Uses bubblewrap if it works; else sandlock, which can't keep control
paths in a writable workspace read-only; else nothing runs.
"""

import functools
from typing import TYPE_CHECKING

from kitbag.permissions.model import SandboxSupport, Workspace
from kitbag.sandbox.confinement import Confinement
from kitbag.sandbox.errors import SandboxError

if TYPE_CHECKING:
    from kitbag.processes.command_runner import CommandResult, ProgressCallback, ShellCommand
    from kitbag.sandbox.bubblewrap import Bubblewrap

__all__ = ["SandboxError", "describe_confinement", "detect_sandbox", "run_confined"]

_INSTALL_FIX = "install bubblewrap (`apt install bubblewrap`)"
_USER_NAMESPACES_FIX = "allow user namespaces for bubblewrap"
_SANDLOCK_FIX = "or, on Linux 6.12 or newer, `pip install 'kitbag[sandbox]'`"


def detect_sandbox() -> SandboxSupport:
    """The sandbox that works on this machine."""
    return _detect()[0]


@functools.cache
def _detect() -> "tuple[SandboxSupport, Bubblewrap | None]":
    from kitbag.sandbox import bubblewrap as sandbox_bubblewrap
    from kitbag.sandbox import landlock as sandbox_landlock

    bubblewrap, problem = sandbox_bubblewrap.detect_bubblewrap()
    if bubblewrap is not None:
        return SandboxSupport(
            kind="bubblewrap", version=bubblewrap.version, carve_outs=True, problem=problem
        ), bubblewrap
    version, sandlock_problem = sandbox_landlock.detect_landlock()
    fix = _INSTALL_FIX if "not installed" in problem else _USER_NAMESPACES_FIX
    if version:
        return SandboxSupport(kind="sandlock", version=version, carve_outs=False, problem=problem, fix=fix), None
    return SandboxSupport(
        kind="none",
        version="",
        carve_outs=False,
        problem=f"{problem}; {sandlock_problem}",
        fix=f"{fix}, {_SANDLOCK_FIX}",
    ), None


def run_confined(
    command: "ShellCommand",
    on_progress: "ProgressCallback | None" = None,
    /,
    *,
    confinement: Confinement,
    workspace: Workspace,
) -> "CommandResult":
    """Raises SandboxError instead of running with less confinement than requested, and WorkspaceMovedError; the command
    then did not run."""
    workspace.check_in_place()
    profile = confinement.profile
    support, bubblewrap = _detect()
    if profile == "none":
        raise SandboxError("no sandbox profile given", "use read-only or workspace")
    if support.kind == "none":
        raise SandboxError(f"no sandbox is available: {support.problem}", support.fix)
    if bubblewrap is not None:
        from kitbag.sandbox import bubblewrap as sandbox_bubblewrap

        return sandbox_bubblewrap.run_in_bubblewrap(bubblewrap, command, on_progress, confinement, workspace)
    if profile == "workspace" and confinement.protects_control_paths:
        raise SandboxError(f"the available sandbox cannot protect control files: {support.problem}", support.fix)
    from kitbag.sandbox import landlock as sandbox_landlock

    return sandbox_landlock.run_in_landlock(command, on_progress, confinement, workspace)


def describe_confinement(confinement: Confinement) -> str:
    """For people: `bubblewrap, workspace writable, no network`."""
    if confinement.profile == "none":
        return "no sandbox"
    kind = detect_sandbox().kind
    written = "workspace writable" if confinement.profile == "workspace" else "read-only"
    open_control = kind == "sandlock" and confinement.profile == "workspace"
    reach = "network" if confinement.network else "no network"
    return ", ".join((kind, written, *(["control files not protected"] if open_control else []), reach))
