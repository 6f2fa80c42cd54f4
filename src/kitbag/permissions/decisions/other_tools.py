"""Decides about every tool that is neither a file's nor the shell's: the web, agents, skills, MCP, unknown ones.

Used by decide; uses rule_matching.
"""

import re
from collections.abc import Callable, Mapping
from typing import Final

from kitbag.permissions.decisions.policy import Policy, Verdict, by_rule, outside_limit, verdict
from kitbag.permissions.rules.matching import host_of, matches_host, matches_name, matches_parameter, normal_host
from kitbag.permissions.rules.rule import COMPANIONS, Rule

WITHOUT_EFFECT: Final = frozenset(("Skill", *COMPANIONS, "TodoWrite", "TaskOutput", "AskUser"))
"""They change nothing outside the conversation."""
_SKILL_KEYS: Final = ("skill", "skill_name", "name", "command")


def decide_other(
    policy: Policy, tool: str, arguments: Mapping[str, object], read_only_agents: frozenset[str]
) -> Verdict:
    if tool == "WebFetch":
        return _decide_fetch(policy, arguments)
    if tool == "Task":
        return _decide_task(policy, arguments, read_only_agents)
    if tool == "Skill":
        names, more = _texts(arguments, _SKILL_KEYS), " ".join(_texts(arguments, ("args", "arguments")))
        what = " ".join((tool, *names, more)).strip()
        return _decide(policy, tool, arguments, what, lambda rule: _matches_names(rule, names, more), _without_effect)
    by_mode = _by_mode_of(tool)
    return _decide(policy, tool, arguments, tool, lambda rule: rule.specifier is None, by_mode)


def _decide(
    policy: Policy,
    tool: str,
    arguments: Mapping[str, object],
    what: str,
    matches: Callable[[Rule], bool],
    by_mode: Callable[[Policy, str], Verdict],
) -> Verdict:
    """The order that counts for every tool."""
    for rule in policy.rules.matching("deny", tool):
        if matches(rule) or matches_parameter(rule, arguments):
            return by_rule(rule, what)
    for limit in policy.limits.get(tool, ()):
        if not any(matches(rule) for rule in limit):
            return outside_limit(limit, what)
    if policy.mode == "plan" and (tool.startswith("mcp__") or by_mode is _by_mode_unknown):
        return verdict("deny", what, "plan mode changes nothing, and what this tool does can't be told")
    for rule in policy.rules.matching("ask", tool):
        if matches(rule) or matches_parameter(rule, arguments):
            return by_rule(rule, what)
    for rule in policy.rules.matching("allow", tool):
        if matches(rule):
            return by_rule(rule, what)
    return by_mode(policy, what)


def _by_mode_of(tool: str) -> Callable[[Policy, str], Verdict]:
    if tool in WITHOUT_EFFECT:
        return _without_effect
    if tool == "TaskStop":
        return _by_mode_stop
    if tool == "WebSearch":
        return _by_mode_web
    return _by_mode_unknown


def _without_effect(policy: Policy, what: str) -> Verdict:
    return verdict("allow", what, "it changes nothing outside the conversation")


def _by_mode_stop(policy: Policy, what: str) -> Verdict:
    if policy.mode == "locked":
        return _locked(what)
    return verdict("allow", what, "it only stops what was started here")


def _by_mode_web(policy: Policy, what: str) -> Verdict:
    return _locked(what) if policy.mode == "locked" else verdict("ask", what, "it reaches the network")


def _by_mode_unknown(policy: Policy, what: str) -> Verdict:
    if policy.mode == "locked":
        return _locked(what)
    return verdict("ask", what, "what this tool does can't be told")


def _locked(what: str) -> Verdict:
    return verdict("deny", what, "no rule allows it, and locked mode allows nothing else")


def _decide_task(policy: Policy, arguments: Mapping[str, object], read_only_agents: frozenset[str]) -> Verdict:
    name = " ".join(_texts(arguments, ("subagent_type",)))

    def by_mode(policy: Policy, what: str) -> Verdict:
        if policy.mode == "locked":
            return _locked(what)
        if policy.mode == "plan":
            return verdict("allow", what, "an agent that is started from plan mode is in plan mode")
        if policy.mode == "autonomous":
            return verdict("allow", what, "autonomous mode starts agents without asking")
        if name in read_only_agents:
            return verdict("allow", what, "this agent only reads")
        return verdict("ask", what, "an agent would start")

    what = f"Task {name}".strip()
    return _decide(policy, "Task", arguments, what, lambda rule: matches_name(rule, name), by_mode)


def _decide_fetch(policy: Policy, arguments: Mapping[str, object]) -> Verdict:
    url = arguments.get("url")
    if not isinstance(url, str):
        return verdict("deny", "WebFetch", "it needs `url`, a text")
    what = f"WebFetch {url}"
    host, problem = host_of(url)

    def matches(rule: Rule) -> bool:
        return matches_host(rule, (host,)) if rule.effect == "allow" else matches_host(rule, _possible_hosts(url))

    found = _decide(policy, "WebFetch", arguments, what, matches, _by_mode_web)
    return verdict("deny", what, problem) if problem and found.part.effect != "deny" else found


def _possible_hosts(url: str) -> tuple[str, ...]:
    """Whatever a careless reader might take for the host: enough to be denied by."""
    from urllib.parse import unquote

    found: list[str] = []
    for text in dict.fromkeys((url, unquote(url))):
        rest = "".join(text.split()).replace("\\", "/").partition(":")[2].lstrip("/") if ":" in text else text
        for candidate in (rest, text):
            netloc = re.split(r"[/?#]", candidate.lstrip("/"), maxsplit=1)[0]
            found += [normal_host(piece.partition(":")[0]) for piece in netloc.split("@")]
            if netloc.startswith("["):
                found.append(netloc.partition("]")[0] + "]")
    return tuple(dict.fromkeys(found))


def _texts(arguments: Mapping[str, object], keys: tuple[str, ...]) -> list[str]:
    return [value.strip() for key in keys if isinstance(value := arguments.get(key), str)]


def _matches_names(rule: Rule, names: list[str], more: str) -> bool:
    """Of several names that a call gives, one is enough to be denied by, and all are needed to be allowed."""
    tried = [matches_name(rule, name, more) for name in names or [""]]
    return all(tried) if rule.effect == "allow" else any(tried)
