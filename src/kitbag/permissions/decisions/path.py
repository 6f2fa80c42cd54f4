"""Decides about one path: for the file tools, and for what a command reads, writes and redirects to.

Used by decide and decide_command; uses paths for the facts about a path and rule_matching for the rules. The only
place that says who may read or write where.
"""

import os
from typing import NamedTuple

from kitbag.permissions.control_paths import control_reason
from kitbag.permissions.decisions.policy import Policy, Verdict, by_rule, outside_limit, verdict
from kitbag.permissions.model import Part
from kitbag.permissions.paths import Facts, examine
from kitbag.permissions.rules.matching import Place, matches_path
from kitbag.permissions.rules.path_patterns import named_places
from kitbag.permissions.rules.rule import Rule


class Use(NamedTuple):
    """A path, and what is to be done with it."""

    path: str
    directory: str
    """Absolute: what a relative path starts from."""
    tool: str
    """The tool whose rules count."""
    writes: bool = False
    folder: bool = False
    """Whether all that is in it is meant."""
    what: str = ""
    """As a person reads it; made from the path when empty."""
    command: bool = False
    """Whether a command names it, and not a file tool."""
    grant: Rule | None = None
    """The rule that allows the command that does this, when it covers what the command does inside the workspace."""
    spelled: Rule | None = None
    """The rule that allows the command, when it names this very path."""
    reach: Rule | None = None
    """The rule that allows every command, where that includes what is outside the workspace."""


def judge_path(policy: Policy, use: Use) -> Verdict:
    what = use.what or f"{'writes' if use.writes else 'reads'} {use.path}"
    facts = examine(use.path, policy.workspace, use.directory)
    place = Place(facts.spellings, use.folder)
    for rule in policy.rules.matching("deny", use.tool):
        if matches_path(rule, place, policy.workspace):
            return by_rule(rule, what)
    for limit in policy.limits.get(use.tool, ()):
        if not any(matches_path(rule, place, policy.workspace) for rule in limit):
            return outside_limit(limit, what)
    if use.writes and policy.mode == "plan":
        return verdict("deny", what, "plan mode changes nothing")
    for rule in policy.rules.matching("ask", use.tool):
        if matches_path(rule, place, policy.workspace):
            return by_rule(rule, what)
    if facts.special and not use.command:
        return verdict("deny", what, facts.special)
    guarded = _guarded(use, facts)
    rule = _allowing_rule(policy, use, facts, place, guarded)
    if rule is not None:
        return by_rule(rule, what)
    if guarded:
        return verdict("ask", what, guarded)
    return _by_mode(policy, use, what)


def forbidding_rule(policy: Policy, use: Use) -> Rule | None:
    """The rule that denies a path, or else asks about it, and nothing more: for words that may or may not be paths."""
    workspace = policy.workspace
    start = os.path.normpath(os.path.join(workspace.root, use.directory, use.path))
    # What does not exist is no link, and its name is all there is to it.
    spellings = examine(use.path, workspace, use.directory).spellings if _exists(start) else (start,)
    for effect in ("deny", "ask"):
        for rule in policy.rules.matching(effect, use.tool):
            if rule.specifier is not None and matches_path(rule, Place(spellings, use.folder), workspace):
                return rule
    return None


def _exists(path: str) -> bool:
    try:
        return os.path.lexists(path)
    except (ValueError, UnicodeEncodeError):
        return False


def _guarded(use: Use, facts: Facts) -> str:
    """Why the mode alone, or a broad rule, does not allow it."""
    if facts.special:
        return facts.special
    if use.writes and facts.control:
        return facts.control
    if facts.private:
        return facts.private
    if not (facts.writable if use.writes else facts.readable):
        if facts.requested != facts.resolved:
            return f"it leads out of the workspace, to {facts.resolved}"
        return "it is outside the workspace"
    return ""


def _allowing_rule(policy: Policy, use: Use, facts: Facts, place: Place, guarded: str) -> Rule | None:
    if use.spelled is not None or (use.grant is not None and not guarded):
        return use.spelled or use.grant
    if use.reach is not None and not (facts.special or facts.private or (use.writes and facts.control)):
        return use.reach
    for rule in policy.rules.matching("allow", use.tool):
        if not matches_path(rule, place, policy.workspace):
            continue
        if not guarded or (rule.specifier is not None and _is_enough(policy, use, facts, rule, rule.specifier)):
            return rule
    return None


def _is_enough(policy: Policy, use: Use, facts: Facts, rule: Rule, specifier: str) -> bool:
    """A guarded path is allowed only by a person's rule that names what is guarded about it, not by `Edit(**)`."""
    if facts.special or rule.scope == "skill":
        return False
    if not facts.private and not (use.writes and facts.control):
        return True  # outside the workspace: the pattern reaches there on purpose
    named = named_places(specifier, rule.base, policy.workspace)
    if use.writes and facts.control and not any(_names_control(policy, facts, place) for place in named):
        return False
    for fill in (None, "x", ""):
        for place in named_places(specifier, rule.base, policy.workspace, fill):
            if not facts.private or examine(place, policy.workspace).private == facts.private:
                return True
    return False


def _names_control(policy: Policy, facts: Facts, place: str) -> bool:
    """Whether a place is the one that makes a path a control path, and nothing below it is another one."""
    if examine(place, policy.workspace).control != facts.control:
        return False
    return not any(control_reason(one[len(place) :]) for one in facts.spellings if one.startswith(f"{place}/"))


def _by_mode(policy: Policy, use: Use, what: str) -> Verdict:
    mode = policy.mode
    if mode == "locked":
        return verdict("deny", what, "no rule allows it, and locked mode allows nothing else")
    if not use.writes:
        return Verdict(Part(what, "allow", "it is inside the workspace"), "place")
    if mode in ("acceptEdits", "autonomous"):
        return verdict("allow", what, f"it is inside the workspace, and {mode} mode lets files there be changed")
    return verdict("ask", what, f"{mode} mode asks before a file is changed")
