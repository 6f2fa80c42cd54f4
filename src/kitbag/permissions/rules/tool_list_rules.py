"""Rules from an agent's tool list, which restricts, and from a skill's `allowed-tools`, which grants.

Used by `decide` and by the code that loads skills; uses `rule` and the library's ToolAccess. An agent's list never
allows anything by itself. A skill's rules are the weakest allow rules: deny and ask rules override them, and what they
allow runs in a sandbox.
"""

from kitbag.errors import Diagnostic, UsageError
from kitbag.library.dialects.tool_lists import ToolAccess
from kitbag.permissions.model import Effect
from kitbag.permissions.rules.rule import PermissionRule, RuleScope, parse_rules

ToolLimits = dict[str, tuple[tuple[PermissionRule, ...], ...]]
"""Tool to groups of rules; one rule of each group must match."""


def tool_limits(access: ToolAccess, source: str, base: str) -> tuple[ToolLimits, tuple[PermissionRule, ...]]:
    """The only allowed uses of tools with specifiers, and the denied uses. An unreadable entry removes the tool."""
    only: dict[str, list[PermissionRule]] = {}
    for written in access.specifiers:
        tool = written.partition("(")[0]
        only.setdefault(tool, []).extend(_parse_or_none(written, "allow", source, "agent", base) or ())
    denied: list[PermissionRule] = []
    for written in access.denied:
        tool = written.partition("(")[0]
        denied += _parse_or_none(written, "deny", source, "agent", base) or [
            PermissionRule(
                effect="deny", tool=tool, specifier=None, text=written, source=source, scope="agent", base=base
            )
        ]
    return {tool: (tuple(rules),) for tool, rules in only.items()}, tuple(denied)


def skill_grants(access: ToolAccess, source: str, base: str) -> tuple[tuple[PermissionRule, ...], list[Diagnostic]]:
    """What a skill requests by name, for one turn. `*` names nothing and grants nothing."""
    if access.mode != "allow":
        return (), []
    limited = {written.partition("(")[0] for written in access.specifiers}
    rules: list[PermissionRule] = []
    problems: list[Diagnostic] = []
    for written in (*(name for name in access.names if name not in limited), *access.specifiers):
        parsed = _parse_or_none(written, "allow", source, "skill", base)
        if parsed is None:
            what = f"`{written}` is not a valid rule and grants nothing"
            fix = "use a form such as `allowed-tools: Read, Bash(git log:*)`"
            problems.append(
                Diagnostic(severity="warning", code="skill-grant", file=source, line=0, problem=what, fix=fix)
            )
        rules += parsed or ()
    return tuple(rules), problems


def _parse_or_none(
    written: str, effect: Effect, source: str, scope: RuleScope, base: str
) -> list[PermissionRule] | None:
    try:
        return list(parse_rules(written, effect, source, scope, base))
    except UsageError:
        return None
