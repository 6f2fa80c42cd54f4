"""The input of every decision, and the verdicts that its parts are made of.

Used by `decide` and the modules it consists of; uses `permissions/model` and `rules/rule`.
"""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Final, Literal, NamedTuple

import msgspec

from kitbag.library.dialects.permission_modes import PermissionMode
from kitbag.permissions.model import DecisionPart, Effect, SandboxSupport, Workspace
from kitbag.permissions.rules.rule import PermissionRule, PermissionRules
from kitbag.processes.limits import CommandLimits

NON_ASKING_MODES: Final[frozenset[PermissionMode]] = frozenset(("plan", "locked", "autonomous"))

AllowedBy = Literal["rule", "skill", "mode", "place"]
"""What allowed it: a person's rule, a loaded skill, the mode alone, or the location that is read."""


class PermissionPolicy(msgspec.Struct, frozen=True, kw_only=True):
    workspace: Workspace
    mode: PermissionMode
    rules: PermissionRules
    find_sandbox_support: Callable[[], SandboxSupport]
    """Called when the first command is decided, since detection takes a trial run."""
    network: bool = False
    """Whether the user gave network access to all commands in the workspace sandbox."""
    command_limits: CommandLimits = CommandLimits()
    """Of all processes of a sandboxed command together."""
    approved_checks: frozenset[str] = frozenset()
    """Runs of tests and linters that a person approved in this session; valid only in the workspace sandbox."""
    limits: Mapping[str, tuple[tuple[PermissionRule, ...], ...]] = MappingProxyType({})
    """For these tools the agent may only do what one rule of each group matches."""

    @property
    def sandbox_support(self) -> SandboxSupport:
        return self.find_sandbox_support()


class PartVerdict(NamedTuple):
    part: DecisionPart
    allowed_by: AllowedBy = "mode"
    """Meaningful only for the effect `allow`."""


def make_verdict(effect: Effect, what: str, reason: str) -> PartVerdict:
    return PartVerdict(DecisionPart(what=what, effect=effect, reason=reason))


def verdict_by_rule(rule: PermissionRule, what: str) -> PartVerdict:
    verb = {"deny": "denied", "ask": "approval required", "allow": "allowed"}[rule.effect]
    by: AllowedBy = "skill" if rule.scope == "skill" else "rule"
    reason = f"{verb} because settings cannot be read" if rule.is_stand_in else f"{verb} by a rule"
    return PartVerdict(
        DecisionPart(what=what, effect=rule.effect, reason=reason, rule=rule.text, source=rule.source), by
    )


def verdict_outside_limit(rules: Iterable[PermissionRule], what: str) -> PartVerdict:
    """Deny a use of a tool that exceeds the agent's limits."""
    rules = tuple(rules)
    source = rules[0].source if rules else ""
    allowed = ", ".join(rule.text for rule in rules)
    reason = f"the agent is limited to {allowed}" if allowed else "the agent does not have this tool"
    return PartVerdict(DecisionPart(what=what, effect="deny", reason=reason, rule=allowed, source=source))


def deny_if_never_asking(mode: PermissionMode, part: DecisionPart) -> DecisionPart:
    """Turn `ask` into `deny` in modes that never ask."""
    if part.effect != "ask" or mode not in NON_ASKING_MODES:
        return part
    return msgspec.structs.replace(part, effect="deny", reason=f"{part.reason}; {mode} mode denies instead of asking")
