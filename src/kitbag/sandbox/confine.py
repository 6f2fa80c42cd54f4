"""Runs a command confined, or not at all: what this machine can hold it in is found once, by trying.

Used by whoever runs a command that a model wrote. bubblewrap where it runs; else sandlock, which can't keep control
paths in a writable workspace read-only; else nothing, and then nothing is run.
"""

import functools
from typing import TYPE_CHECKING, NamedTuple

from kitbag.permissions.model import Profile, Protection, Workspace
from kitbag.sandbox.placeholders import SandboxError

if TYPE_CHECKING:
    from kitbag.processes.command_runner import Command, Ran, Tick
    from kitbag.sandbox.bubblewrap import Bubblewrap

__all__ = ["Confinement", "SandboxError", "describe", "protection", "run_confined"]

_INSTALL = "install bubblewrap (`apt install bubblewrap`)"
_REPAIR = "allow user namespaces for bubblewrap"
_EXTRA = "or, on Linux 6.12 or newer, `pip install 'kitbag[sandbox]'`"


class Confinement(NamedTuple):
    profile: Profile
    network: bool = False
    control_held: bool = True
    """Whether it may only run where control paths stay read-only; False only for what a person agreed to."""


def protection() -> Protection:
    """What a command can be held in here."""
    return _found()[0]


@functools.cache
def _found() -> "tuple[Protection, Bubblewrap | None]":
    from kitbag.sandbox import bubblewrap as sandbox_bubblewrap
    from kitbag.sandbox import landlock as sandbox_landlock

    bubblewrap, problem = sandbox_bubblewrap.find()
    if bubblewrap is not None:
        return Protection("bubblewrap", bubblewrap.version, True, problem), bubblewrap
    version, other = sandbox_landlock.find()
    better = _INSTALL if "not installed" in problem else _REPAIR
    if version:
        return Protection("sandlock", version, False, problem, better), None
    return Protection("none", "", False, f"{problem}; {other}", f"{better}, {_EXTRA}"), None


def run_confined(
    command: "Command", tick: "Tick | None" = None, /, *, confinement: Confinement, workspace: Workspace
) -> "Ran":
    """Raises SandboxError rather than run it without what was asked for; after that it did not run."""
    profile, network, control_held = confinement
    found, bubblewrap = _found()
    if profile == "none":
        raise SandboxError("no sandbox was asked for", "say which: read-only or workspace")
    if found.kind == "none":
        raise SandboxError(f"no sandbox runs here: {found.problem}", found.fix)
    if bubblewrap is not None:
        from kitbag.sandbox import bubblewrap as sandbox_bubblewrap

        return sandbox_bubblewrap.run(bubblewrap, command, tick, profile, network, workspace)
    if profile == "workspace" and control_held:
        raise SandboxError(f"the sandbox here can't keep control files read-only: {found.problem}", found.fix)
    from kitbag.sandbox import landlock as sandbox_landlock

    return sandbox_landlock.run(command, tick, profile, network, workspace)


def describe(confinement: Confinement) -> str:
    """For people: `bubblewrap, workspace writable, no network`."""
    if confinement.profile == "none":
        return "no sandbox"
    kind = protection().kind
    written = "workspace writable" if confinement.profile == "workspace" else "nothing writable"
    open_control = kind == "sandlock" and confinement.profile == "workspace"
    reach = "network" if confinement.network else "no network"
    return ", ".join((kind, written, *(["control files too"] if open_control else []), reach))
