"""What an agent's tool list takes away and what a skill's `allowed-tools` adds, as rules.

Used by decide and by whoever loads a skill; uses rules and the library's ToolAccess. An agent's list never allows
anything by itself. A skill's rules are the weakest that allow: they never beat one that denies or asks, and what they
allow runs in a sandbox.
"""

from kitbag.errors import Diagnostic, UsageError
from kitbag.library.dialects.tool_lists import ToolAccess
from kitbag.permissions.model import Effect
from kitbag.permissions.rules.rule import PermissionRule, RuleScope, parse_rules

ToolLimits = dict[str, tuple[tuple[PermissionRule, ...], ...]]
"""Tool to groups of rules: of each group one must match."""


def tool_limits(access: ToolAccess, source: str, base: str) -> tuple[ToolLimits, tuple[PermissionRule, ...]]:
    """The only uses of tools that have some, and the uses that are denied. What can't be read takes the tool away."""
    only: dict[str, list[PermissionRule]] = {}
    for written in access.specifiers:
        tool = written.partition("(")[0]
        only.setdefault(tool, []).extend(_parse_or_none(written, "allow", source, "agent", base) or ())
    denied: list[PermissionRule] = []
    for written in access.denied:
        tool = written.partition("(")[0]
        denied += _parse_or_none(written, "deny", source, "agent", base) or [
            PermissionRule("deny", tool, None, written, source, "agent", base)
        ]
    return {tool: (tuple(rules),) for tool, rules in only.items()}, tuple(denied)


def skill_grants(access: ToolAccess, source: str, base: str) -> tuple[tuple[PermissionRule, ...], list[Diagnostic]]:
    """For one turn: what a skill asks for, by name. `*` asks for nothing by name, and gets nothing."""
    if access.mode != "allow":
        return (), []
    limited = {written.partition("(")[0] for written in access.specifiers}
    rules: list[PermissionRule] = []
    problems: list[Diagnostic] = []
    for written in (*(name for name in access.names if name not in limited), *access.specifiers):
        parsed = _parse_or_none(written, "allow", source, "skill", base)
        if parsed is None:
            what = f"`{written}` can't be read as a rule, so it allows nothing"
            fix = "write `allowed-tools: Read, Bash(git log:*)`"
            problems.append(Diagnostic("warning", "skill-grant", source, 0, what, fix))
        rules += parsed or ()
    return tuple(rules), problems


def _parse_or_none(
    written: str, effect: Effect, source: str, scope: RuleScope, base: str
) -> list[PermissionRule] | None:
    try:
        return list(parse_rules(written, effect, source, scope, base))
    except UsageError:
        return None
