"""Checks a rule against its examples in the settings: a command, a path, a URL or a name.

Used by `load`; uses the same matching functions as decisions.
"""

from kitbag.permissions.model import Workspace
from kitbag.permissions.paths import examine_path
from kitbag.permissions.rules.matching import (
    CommandRules,
    RulePath,
    allows_command,
    matches_host,
    matches_name,
    matches_parameter,
    matches_path,
    parse_host,
)
from kitbag.permissions.rules.rule import PermissionRule, covers_tool
from kitbag.permissions.rules.tool_use_syntax import parse_tool_use


def matches_example(rule: PermissionRule, example: str, workspace: Workspace) -> bool:
    """`example` is the subject of the rule's tool, or a full `Tool(...)`."""
    tool, subject = parse_tool_use(example)
    if subject is not None and subject != example:
        if not covers_tool(rule, tool):
            return False
        example = subject
    if rule.tool == "Bash":
        return _matches_command(rule, example)
    if rule.tool in ("Read", "Edit"):
        facts = examine_path(example, workspace)
        return matches_path(rule, RulePath(facts.spellings), workspace)
    if rule.tool == "WebFetch":
        host = parse_host(example)[0] or example
        return matches_host(rule, (host,)) or matches_parameter(rule, {"url": example})
    if rule.tool in ("Task", "Skill"):
        name, _, arguments = example.partition(" ")
        return matches_name(rule, name, arguments)
    name, colon, value = example.partition(":")
    return (
        covers_tool(rule, example) if rule.specifier is None else bool(colon) and matches_parameter(rule, {name: value})
    )


def _matches_command(rule: PermissionRule, example: str) -> bool:
    from kitbag.shell.analysis import analyze

    analysis = analyze(example)
    if rule.effect == "allow":
        parts = analysis.parts
        return bool(parts) and all(allows_command(rule, simple.allow_form, simple.raw) for simple in parts)
    rules = CommandRules((rule,))
    return any(rules.first_match(forms) for forms in ((example,), *(simple.forms for simple in analysis.parts)))
