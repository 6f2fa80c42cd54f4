"""What an agent's tool list takes away and what a skill's `allowed-tools` adds, as rules.

Used by decide and by whoever loads a skill; uses rules and the library's ToolAccess. An agent's list never allows
anything by itself. A skill's rules are the weakest that allow: they never beat one that denies or asks, and what they
allow runs in a sandbox.
"""

from kitbag.errors import Diagnostic, UsageError
from kitbag.library.dialects.tool_lists import ToolAccess
from kitbag.permissions.model import Effect
from kitbag.permissions.rules.rule import Rule, Scope, parse_rules

Limits = dict[str, tuple[tuple[Rule, ...], ...]]
"""Tool to groups of rules: of each group one must match."""


def limits_of(access: ToolAccess, source: str, base: str) -> tuple[Limits, tuple[Rule, ...]]:
    """The only uses of tools that have some, and the uses that are denied. What can't be read takes the tool away."""
    only: dict[str, list[Rule]] = {}
    for written in access.specifiers:
        tool = written.partition("(")[0]
        only.setdefault(tool, []).extend(_parsed(written, "allow", source, "agent", base) or ())
    denied: list[Rule] = []
    for written in access.denied:
        tool = written.partition("(")[0]
        denied += _parsed(written, "deny", source, "agent", base) or [
            Rule("deny", tool, None, written, source, "agent", base)
        ]
    return {tool: (tuple(rules),) for tool, rules in only.items()}, tuple(denied)


def grants_of(access: ToolAccess, source: str, base: str) -> tuple[tuple[Rule, ...], list[Diagnostic]]:
    """For one turn: what a skill asks for, by name. `*` asks for nothing by name, and gets nothing."""
    if access.mode != "allow":
        return (), []
    limited = {written.partition("(")[0] for written in access.specifiers}
    rules: list[Rule] = []
    problems: list[Diagnostic] = []
    for written in (*(name for name in access.names if name not in limited), *access.specifiers):
        parsed = _parsed(written, "allow", source, "skill", base)
        if parsed is None:
            what = f"`{written}` can't be read as a rule, so it allows nothing"
            fix = "write `allowed-tools: Read, Bash(git log:*)`"
            problems.append(Diagnostic("warning", "skill-grant", source, 0, what, fix))
        rules += parsed or ()
    return tuple(rules), problems


def _parsed(written: str, effect: Effect, source: str, scope: Scope, base: str) -> list[Rule] | None:
    try:
        return list(parse_rules(written, effect, source, scope, base))
    except UsageError:
        return None
