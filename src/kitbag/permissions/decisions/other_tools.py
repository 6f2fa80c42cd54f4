"""Decides about every tool other than files and the shell: web, agents, skills, MCP and unknown tools.

Used by `decide`; uses `rules/matching`.
"""

import re
from collections.abc import Callable, Mapping
from typing import Final

from kitbag.library.dialects.tool_aliases import SEARCH_TOOLS
from kitbag.permissions.decisions.policy import (
    PartVerdict,
    PermissionPolicy,
    make_verdict,
    verdict_by_rule,
    verdict_outside_limit,
)
from kitbag.permissions.rules.matching import matches_host, matches_name, matches_parameter, normalize_host, parse_host
from kitbag.permissions.rules.rule import COMPANION_TOOLS, PermissionRule

TOOLS_WITHOUT_EFFECTS: Final = frozenset(
    ("Skill", *COMPANION_TOOLS, SEARCH_TOOLS, "TodoWrite", "TaskOutput", "AskUser")
)
"""Tools without effects outside the session."""
_SKILL_KEYS: Final = ("skill", "skill_name", "name", "command")


def decide_other_tool(policy: PermissionPolicy, tool: str, arguments: Mapping[str, object]) -> PartVerdict:
    if tool == "WebFetch":
        return _decide_fetch(policy, arguments)
    if tool == "Task":
        return _decide_task(policy, arguments)
    if tool == "Skill":
        names, skill_arguments = _texts(arguments, _SKILL_KEYS), " ".join(_texts(arguments, ("args", "arguments")))
        what = " ".join((tool, *names, skill_arguments)).strip()
        return _decide(
            policy, tool, arguments, what, lambda rule: _matches_names(rule, names, skill_arguments), _without_effect
        )
    by_mode = _mode_decision_for(tool)
    return _decide(policy, tool, arguments, tool, lambda rule: rule.specifier is None, by_mode)


def _decide(
    policy: PermissionPolicy,
    tool: str,
    arguments: Mapping[str, object],
    what: str,
    matches: Callable[[PermissionRule], bool],
    by_mode: Callable[[PermissionPolicy, str], PartVerdict],
) -> PartVerdict:
    """The order that applies to every tool."""
    for rule in policy.rules.for_tool("deny", tool):
        if matches(rule) or matches_parameter(rule, arguments):
            return verdict_by_rule(rule, what)
    for limit in policy.limits.get(tool, ()):
        if not any(matches(rule) for rule in limit):
            return verdict_outside_limit(limit, what)
    if policy.mode == "plan" and (tool.startswith("mcp__") or by_mode is _by_mode_unknown):
        return make_verdict("deny", what, "plan mode is read-only, and this tool may have side effects")
    for rule in policy.rules.for_tool("ask", tool):
        if matches(rule) or matches_parameter(rule, arguments):
            return verdict_by_rule(rule, what)
    for rule in policy.rules.for_tool("allow", tool):
        if matches(rule):
            return verdict_by_rule(rule, what)
    return by_mode(policy, what)


def _mode_decision_for(tool: str) -> Callable[[PermissionPolicy, str], PartVerdict]:
    if tool in TOOLS_WITHOUT_EFFECTS:
        return _without_effect
    if tool == "TaskStop":
        return _by_mode_stop
    if tool == "WebSearch":
        return _by_mode_web
    return _by_mode_unknown


def _without_effect(policy: PermissionPolicy, what: str) -> PartVerdict:
    return make_verdict("allow", what, "has no effects outside the session")


def _by_mode_stop(policy: PermissionPolicy, what: str) -> PartVerdict:
    if policy.mode == "locked":
        return _locked(what)
    return make_verdict("allow", what, "only stops tasks in this session")


def _by_mode_web(policy: PermissionPolicy, what: str) -> PartVerdict:
    return _locked(what) if policy.mode == "locked" else make_verdict("ask", what, "uses the network")


def _by_mode_unknown(policy: PermissionPolicy, what: str) -> PartVerdict:
    if policy.mode == "locked":
        return _locked(what)
    return make_verdict("ask", what, "this tool may have side effects")


def _locked(what: str) -> PartVerdict:
    return make_verdict("deny", what, "locked mode denies everything unless a rule allows it")


def _by_mode_task(policy: PermissionPolicy, what: str) -> PartVerdict:
    """Every agent needs approval, also a read-only one: it uses the model and reads files on its own."""
    match policy.mode:
        case "locked":
            return _locked(what)
        case "plan":
            return make_verdict("allow", what, "agents started in plan mode run in plan mode")
        case "autonomous":
            return make_verdict("allow", what, "autonomous mode starts agents without asking")
        case "default" | "acceptEdits":
            return make_verdict("ask", what, "starts an agent")


def _decide_task(policy: PermissionPolicy, arguments: Mapping[str, object]) -> PartVerdict:
    name = " ".join(_texts(arguments, ("subagent_type",)))
    what = f"Task {name}".strip()
    return _decide(policy, "Task", arguments, what, lambda rule: matches_name(rule, name), _by_mode_task)


def _decide_fetch(policy: PermissionPolicy, arguments: Mapping[str, object]) -> PartVerdict:
    url = arguments.get("url")
    if not isinstance(url, str):
        return make_verdict("deny", "WebFetch", "`url` must be a string")
    what = f"WebFetch {url}"
    host, problem = parse_host(url)

    def matches(rule: PermissionRule) -> bool:
        return matches_host(rule, (host,)) if rule.effect == "allow" else matches_host(rule, _possible_hosts(url))

    decided = _decide(policy, "WebFetch", arguments, what, matches, _by_mode_web)
    return make_verdict("deny", what, problem) if problem and decided.part.effect != "deny" else decided


def _possible_hosts(url: str) -> tuple[str, ...]:
    """Every string that a sloppy parser could take for the host; one match with a deny rule is enough."""
    from urllib.parse import unquote

    hosts: list[str] = []
    for text in dict.fromkeys((url, unquote(url))):
        rest = "".join(text.split()).replace("\\", "/").partition(":")[2].lstrip("/") if ":" in text else text
        for candidate in (rest, text):
            netloc = re.split(r"[/?#]", candidate.lstrip("/"), maxsplit=1)[0]
            hosts += [normalize_host(piece.partition(":")[0]) for piece in netloc.split("@")]
            if netloc.startswith("["):
                hosts.append(netloc.partition("]")[0] + "]")
    return tuple(dict.fromkeys(hosts))


def _texts(arguments: Mapping[str, object], keys: tuple[str, ...]) -> list[str]:
    return [value.strip() for key in keys if isinstance(value := arguments.get(key), str)]


def _matches_names(rule: PermissionRule, names: list[str], skill_arguments: str) -> bool:
    """If a call gives several names, one match denies, and all must match to allow."""
    results = [matches_name(rule, name, skill_arguments) for name in names or [""]]
    return all(results) if rule.effect == "allow" else any(results)
