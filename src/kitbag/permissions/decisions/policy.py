"""What every decision is made from, and the shape in which parts of it are handed on.

Used by decide and the modules it is made of; uses model and rules.
"""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Final, Literal, NamedTuple

from kitbag.library.dialects.permission_modes import Mode
from kitbag.permissions.model import Effect, Part, Protection, Workspace
from kitbag.permissions.rules.rule import Rule, Rules

NEVER_ASKS: Final[frozenset[Mode]] = frozenset(("plan", "locked", "autonomous"))

By = Literal["rule", "skill", "mode", "place"]
"""Who allowed it: a person's rule, a skill in use, the mode alone, or the place that is read."""


class Policy(NamedTuple):
    workspace: Workspace
    mode: Mode
    rules: Rules
    find_protection: Callable[[], Protection]
    """To find it takes a trial run, so it is found when the first command is judged."""
    network: bool = False
    """Whether the user opened the network to every command in the workspace's sandbox."""
    limits: Mapping[str, tuple[tuple[Rule, ...], ...]] = MappingProxyType({})
    """Of these tools an agent has only the uses that one rule of each group matches."""

    @property
    def protection(self) -> Protection:
        return self.find_protection()


class Verdict(NamedTuple):
    part: Part
    by: By = "mode"
    """Only of interest where it is allowed."""


def verdict(effect: Effect, what: str, reason: str) -> Verdict:
    return Verdict(Part(what, effect, reason))


def by_rule(rule: Rule, what: str) -> Verdict:
    verb = {"deny": "denied", "ask": "asked for", "allow": "allowed"}[rule.effect]
    by: By = "skill" if rule.scope == "skill" else "rule"
    reason = f"{verb} because settings can't be read" if rule.is_stand_in else f"{verb} by a rule"
    return Verdict(Part(what, rule.effect, reason, rule.text, rule.source), by)


def outside_limit(rules: Iterable[Rule], what: str) -> Verdict:
    """For what an agent may not do with a tool that it has."""
    rules = tuple(rules)
    source = rules[0].source if rules else ""
    allowed = ", ".join(rule.text for rule in rules)
    return Verdict(Part(what, "deny", f"the agent has no more of this tool than {allowed}", allowed, source))


def without_questions(mode: Mode, part: Part) -> Part:
    """What would be asked is denied where nobody is asked."""
    if part.effect != "ask" or mode not in NEVER_ASKS:
        return part
    return part._replace(effect="deny", reason=f"{part.reason}; {mode} mode does not ask, so it is denied")
