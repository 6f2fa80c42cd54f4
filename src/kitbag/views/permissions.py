"""How a decision and its rules are shown. Used by `kitbag permissions` and `/permissions`."""

from typing import Final

from kitbag.permissions.model import Effect, PermissionDecision, SandboxSupport
from kitbag.permissions.rules.load import LoadedPermissions
from kitbag.permissions.rules.rule import PermissionRule

EFFECT_LABELS: Final[dict[Effect, str]] = {"allow": "allowed", "ask": "would be asked", "deny": "denied"}
PROTECTION_LABELS: Final = {
    "bubblewrap": "commands write only in the workspace and not its control files, don't see your secrets, "
    "and reach the network only when allowed",
    "sandlock": "commands write only in the workspace, don't see your secrets, and reach the network only when "
    "allowed; it can't keep control files there from being written, so only commands that read run unasked",
    "none": "no command runs unasked, and in plan and autonomous mode none runs at all",
}


def describe_sandbox(decision: PermissionDecision, protection: SandboxSupport) -> str:
    """Empty unless it is a command that may run."""
    if decision.effect == "deny" or not any(part.what for part in decision.parts):
        return ""
    if decision.sandbox == "none":
        return f"none: {protection.problem}" if decision.network else ""
    reach = "with the network" if decision.network else "without the network"
    return f"{decision.sandbox}, {reach} ({protection.kind})"


def describe_protection(protection: SandboxSupport) -> str:
    name = f"{protection.kind} {protection.version}".strip()
    return f"{name}: {PROTECTION_LABELS[protection.kind]}"


def describe_examples(loaded: LoadedPermissions, rule: PermissionRule) -> str:
    examples = loaded.examples.get(rule)
    return "" if examples is None else "fails" if examples.failed else f"{examples.tried} hold"
