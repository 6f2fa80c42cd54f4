"""Decides about one path: for the file tools, and for what a command reads, writes and redirects to.

Used by `decide` and `command_paths`; uses `permissions/paths` for the facts and `rules/matching` for the rules. The
only module that decides about reading and writing paths.
"""

import os

import msgspec

from kitbag.permissions.control_paths import control_reason
from kitbag.permissions.decisions.policy import (
    PartVerdict,
    PermissionPolicy,
    make_verdict,
    verdict_by_rule,
    verdict_outside_limit,
)
from kitbag.permissions.model import DecisionPart
from kitbag.permissions.paths import PathFacts, examine_path
from kitbag.permissions.rules.matching import RulePath, matches_path
from kitbag.permissions.rules.path_patterns import named_paths
from kitbag.permissions.rules.rule import PermissionRule


class PathAccess(msgspec.Struct, frozen=True, kw_only=True):
    """A path and how it is accessed."""

    path: str
    directory: str
    """Absolute: where a relative path starts."""
    tool: str
    """The tool whose rules apply."""
    writes: bool = False
    recursive: bool = False
    """Whether the access includes everything below it."""
    what: str = ""
    """For people; derived from the path if empty."""
    from_command: bool = False
    """Whether a command names it, not a file tool."""
    command_rule: PermissionRule | None = None
    """The rule that allows the command; it covers what the command does inside the workspace."""
    naming_rule: PermissionRule | None = None
    """The rule that allows the command, if it names this exact path."""
    unrestricted_rule: PermissionRule | None = None
    """The rule that allows every command, if it reaches outside the workspace."""


def decide_path(policy: PermissionPolicy, access: PathAccess) -> PartVerdict:
    facts = examine_path(access.path, policy.workspace, access.directory)
    verdict = _decide_path(policy, access, facts)
    if not access.writes:
        return verdict
    return verdict._replace(part=msgspec.structs.replace(verdict.part, path=facts.resolved))


def _decide_path(policy: PermissionPolicy, access: PathAccess, facts: PathFacts) -> PartVerdict:
    what = access.what or f"{'writes' if access.writes else 'reads'} {access.path}"
    place = RulePath(facts.spellings, access.recursive)
    for rule in policy.rules.for_tool("deny", access.tool):
        if matches_path(rule, place, policy.workspace):
            return verdict_by_rule(rule, what)
    for limit in policy.limits.get(access.tool, ()):
        if not any(matches_path(rule, place, policy.workspace) for rule in limit):
            return verdict_outside_limit(limit, what)
    if access.writes and policy.mode == "plan":
        return make_verdict("deny", what, "plan mode is read-only")
    for rule in policy.rules.for_tool("ask", access.tool):
        if matches_path(rule, place, policy.workspace):
            return verdict_by_rule(rule, what)
    if facts.special_reason and not access.from_command:
        return make_verdict("deny", what, facts.special_reason)
    guarded = _guard_reason(access, facts)
    rule = _find_allow_rule(policy, access, facts, place, guarded)
    if rule is not None:
        return verdict_by_rule(rule, what)
    if guarded:
        return make_verdict("ask", what, guarded)
    return _decide_by_mode(policy, access, what)


def find_restricting_rule(policy: PermissionPolicy, access: PathAccess) -> PermissionRule | None:
    """The rule that denies a path, else the one that asks about it: for words that may or may not be paths."""
    workspace = policy.workspace
    start = os.path.normpath(os.path.join(workspace.root, access.directory, access.path))
    # A path that does not exist is not a link, so it has only one spelling.
    spellings = examine_path(access.path, workspace, access.directory).spellings if _exists(start) else (start,)
    for effect in ("deny", "ask"):
        for rule in policy.rules.for_tool(effect, access.tool):
            if rule.specifier is not None and matches_path(rule, RulePath(spellings, access.recursive), workspace):
                return rule
    return None


def rule_naming_path(allow_rule: PermissionRule | None, path: str) -> PermissionRule | None:
    """Return the rule if a person wrote this path into it exactly as the command has it."""
    if allow_rule is None or not allow_rule.specifier or not path or allow_rule.scope == "skill":
        return None
    return allow_rule if path in allow_rule.specifier.removesuffix(":*").split() else None


def _exists(path: str) -> bool:
    try:
        return os.path.lexists(path)
    except (ValueError, UnicodeEncodeError):
        return False


def _guard_reason(access: PathAccess, facts: PathFacts) -> str:
    """Why neither the mode nor a broad rule allows it."""
    if facts.special_reason:
        return facts.special_reason
    if access.writes and facts.control_reason:
        return facts.control_reason
    if facts.private_reason:
        return facts.private_reason
    if not (facts.writable if access.writes else facts.readable):
        if facts.requested != facts.resolved:
            return f"resolves outside the workspace, to {facts.resolved}"
        return "outside the workspace"
    return ""


def _find_allow_rule(
    policy: PermissionPolicy, access: PathAccess, facts: PathFacts, place: RulePath, guarded: str
) -> PermissionRule | None:
    if access.naming_rule is not None or (access.command_rule is not None and not guarded):
        return access.naming_rule or access.command_rule
    if access.unrestricted_rule is not None and not (
        facts.special_reason or facts.private_reason or (access.writes and facts.control_reason)
    ):
        return access.unrestricted_rule
    for rule in policy.rules.for_tool("allow", access.tool):
        if not matches_path(rule, place, policy.workspace):
            continue
        if not guarded or (
            rule.specifier is not None and _names_guarded_path(policy, access, facts, rule, rule.specifier)
        ):
            return rule
    return None


def _names_guarded_path(
    policy: PermissionPolicy, access: PathAccess, facts: PathFacts, rule: PermissionRule, specifier: str
) -> bool:
    """Only a person's rule that names the guarded path itself allows it; `Edit(**)` does not."""
    if facts.special_reason or rule.scope == "skill":
        return False
    if not facts.private_reason and not (access.writes and facts.control_reason):
        return True  # outside the workspace: the pattern reaches there on purpose
    named = named_paths(specifier, rule.base, policy.workspace)
    if access.writes and facts.control_reason and not any(_names_control_path(policy, facts, place) for place in named):
        return False
    for fill in (None, "x", ""):
        for place in named_paths(specifier, rule.base, policy.workspace, fill):
            if not facts.private_reason or examine_path(place, policy.workspace).private_reason == facts.private_reason:
                return True
    return False


def _names_control_path(policy: PermissionPolicy, facts: PathFacts, place: str) -> bool:
    """Whether `place` is what makes the path a control path, and nothing below it is another one."""
    if examine_path(place, policy.workspace).control_reason != facts.control_reason:
        return False
    return not any(control_reason(one[len(place) :]) for one in facts.spellings if one.startswith(f"{place}/"))


def _decide_by_mode(policy: PermissionPolicy, access: PathAccess, what: str) -> PartVerdict:
    mode = policy.mode
    if mode == "locked":
        return make_verdict("deny", what, "locked mode denies everything unless a rule allows it")
    if not access.writes:
        return PartVerdict(DecisionPart(what=what, effect="allow", reason="inside the workspace"), "place")
    if mode in ("acceptEdits", "autonomous"):
        return make_verdict("allow", what, f"{mode} mode allows edits in the workspace")
    return make_verdict("ask", what, f"{mode} mode asks before editing files")
