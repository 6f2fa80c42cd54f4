"""What every decision is made from, and the shape in which parts of it are handed on.

Used by decide and the modules it is made of; uses model and rules.
"""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Final, Literal, NamedTuple

from kitbag.library.dialects.permission_modes import PermissionMode
from kitbag.permissions.model import DecisionPart, Effect, SandboxSupport, Workspace
from kitbag.permissions.rules.rule import PermissionRule, PermissionRules

NON_ASKING_MODES: Final[frozenset[PermissionMode]] = frozenset(("plan", "locked", "autonomous"))

AllowedBy = Literal["rule", "skill", "mode", "place"]
"""Who allowed it: a person's rule, a skill in use, the mode alone, or the place that is read."""


class PermissionPolicy(NamedTuple):
    workspace: Workspace
    mode: PermissionMode
    rules: PermissionRules
    find_sandbox_support: Callable[[], SandboxSupport]
    """To find it takes a trial run, so it is found when the first command is judged."""
    network: bool = False
    """Whether the user opened the network to every command in the workspace's sandbox."""
    limits: Mapping[str, tuple[tuple[PermissionRule, ...], ...]] = MappingProxyType({})
    """Of these tools an agent has only the uses that one rule of each group matches."""

    @property
    def sandbox_support(self) -> SandboxSupport:
        return self.find_sandbox_support()


class PartVerdict(NamedTuple):
    part: DecisionPart
    allowed_by: AllowedBy = "mode"
    """Only of interest where it is allowed."""


def make_verdict(effect: Effect, what: str, reason: str) -> PartVerdict:
    return PartVerdict(DecisionPart(what, effect, reason))


def verdict_by_rule(rule: PermissionRule, what: str) -> PartVerdict:
    verb = {"deny": "denied", "ask": "asked for", "allow": "allowed"}[rule.effect]
    by: AllowedBy = "skill" if rule.scope == "skill" else "rule"
    reason = f"{verb} because settings can't be read" if rule.is_stand_in else f"{verb} by a rule"
    return PartVerdict(DecisionPart(what, rule.effect, reason, rule.text, rule.source), by)


def verdict_outside_limit(rules: Iterable[PermissionRule], what: str) -> PartVerdict:
    """For what an agent may not do with a tool that it has."""
    rules = tuple(rules)
    source = rules[0].source if rules else ""
    allowed = ", ".join(rule.text for rule in rules)
    return PartVerdict(
        DecisionPart(what, "deny", f"the agent has no more of this tool than {allowed}", allowed, source)
    )


def deny_if_never_asking(mode: PermissionMode, part: DecisionPart) -> DecisionPart:
    """What would be asked is denied where nobody is asked."""
    if part.effect != "ask" or mode not in NON_ASKING_MODES:
        return part
    return part._replace(effect="deny", reason=f"{part.reason}; {mode} mode does not ask, so it is denied")
