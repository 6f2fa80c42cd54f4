"""What the tests of permissions share: what a session in a world may do, decided as the program decides it."""

from typing import Any

from conftest import World
from kitbag.assembly.environment import load_environment
from kitbag.library.dialects.permission_modes import PermissionMode
from kitbag.permissions.decisions.decide import Permissions
from kitbag.permissions.model import Effect, PermissionDecision, SandboxSupport
from kitbag.permissions.rules.load import PermissionFlags

HELD = SandboxSupport(kind="bubblewrap", version="0.11", carve_outs=True)
"""Decisions are the same on every machine when it is said what the machine can hold; runs need the real thing."""
UNHELD = SandboxSupport(kind="none", problem="no sandbox is available")
MODES: tuple[PermissionMode, ...] = ("plan", "locked", "default", "acceptEdits", "autonomous")
SILENT: tuple[PermissionMode, ...] = ("plan", "locked", "autonomous")
"""They never ask: what others would ask is denied."""


def permissions(
    world: World,
    mode: str = "",
    *,
    allow: tuple[str, ...] = (),
    ask: tuple[str, ...] = (),
    deny: tuple[str, ...] = (),
    protection: SandboxSupport = HELD,
    trust_workspace: bool = False,
) -> Permissions:
    """From the world's settings and the given options, as `kitbag permissions test` makes them."""
    given = PermissionFlags(mode=mode, allow=allow, ask=ask, deny=deny)
    ground = load_environment(world.places(), permission_options=given, trust_workspace=trust_workspace)
    return Permissions(ground.workspace, ground.loaded_rules.mode, ground.loaded_rules.rules, protection)


def bash(made: Permissions, command: str, **more: object) -> PermissionDecision:
    return made.decide("Bash", {"command": command, **more})


def effects(made: Permissions, commands: list[str]) -> dict[str, Effect]:
    return {command: bash(made, command).effect for command in commands}


def refused(mode: str) -> Effect:
    """What becomes of something that nobody allows."""
    return "deny" if mode in SILENT else "ask"


def on_path(made: Permissions, tool: str, path: str) -> PermissionDecision:
    key: dict[str, Any] = {"Grep": "path", "Glob": "path", "NotebookEdit": "notebook_path"}
    more = {"pattern": "*"} if tool in ("Grep", "Glob") else {}
    return made.decide(tool, {key.get(tool, "file_path"): path, **more})
