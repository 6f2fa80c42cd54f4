"""`/permissions`: lists the rules in effect and their sources, and explains the decision on one action.

Runs nothing. Rules are changed in the settings or by answering an approval question.
"""

import asyncio
from typing import TYPE_CHECKING, Final

from kitbag.chat.commands import CommandContext
from kitbag.errors import UsageError
from kitbag.library.dialects.tool_aliases import CANONICAL_TOOLS, closest_tool
from kitbag.permissions.decisions.decide import Permissions
from kitbag.permissions.model import Effect, PermissionDecision
from kitbag.permissions.rules.rule import COMPANION_TOOLS
from kitbag.permissions.rules.tool_use_syntax import arguments_from_subject, parse_tool_use
from kitbag.text.human_format import format_count, shorten_path
from kitbag.views.blocks import Block, FieldsBlock, LinesBlock, Span, StyledLine, Tone, diagnostic_block, text_block
from kitbag.views.permissions import (
    EFFECT_LABELS,
    describe_part,
    describe_protection,
    describe_sandbox,
    ignored_table,
    rule_table,
)

if TYPE_CHECKING:
    from kitbag.runtime.agent import Agent

_TONES: Final[dict[Effect, Tone]] = {"allow": "good", "ask": "warning", "deny": "bad"}
_TOOLS: Final = frozenset((*CANONICAL_TOOLS, *COMPANION_TOOLS))


async def permissions_command(chat: CommandContext, arguments: str) -> None:
    agent = chat.agent
    permissions = agent.approvals.with_session_rules(agent.permissions)
    verb, _, rest = arguments.strip().partition(" ")
    use = rest.strip() if verb == "test" else arguments.strip()
    if verb == "test" and not use:
        raise UsageError("/permissions test needs a tool and its argument", "type /permissions test Bash git push")
    if not use:
        chat.show(*await asyncio.to_thread(_rule_blocks, agent, permissions))
        return
    tool, call_arguments = _parse_use(use)
    directory = agent.session.directory or agent.context.directory
    decision = await asyncio.to_thread(permissions.decide, tool, call_arguments, directory)
    chat.show(*await asyncio.to_thread(_explain, tool, decision, permissions))


def _parse_use(use: str) -> tuple[str, dict[str, object]]:
    """Parses `Bash git push`, `Bash(git push)` or a bare command. Raises UsageError for a misspelled tool."""
    first, _, rest = use.partition(" ")
    if rest.strip() and (first in _TOOLS or first.startswith("mcp__")):
        return first, arguments_from_subject(first, rest.strip())
    name, opened, _ = use.partition("(")
    similar = closest_tool(name) if opened and name.isalnum() and name not in _TOOLS else ""
    if similar:
        raise UsageError(f"no tool named {name!r}", f"did you mean {similar}({use[len(name) + 1 :]}?")
    tool, subject = parse_tool_use(use)
    return tool, {} if subject is None else arguments_from_subject(tool, subject)


def _explain(tool: str, decision: PermissionDecision, permissions: Permissions) -> list[Block]:
    head = (Span(f"{tool}: ", "strong"), Span(EFFECT_LABELS[decision.effect], _TONES[decision.effect]))
    lines: list[StyledLine] = [(*head, Span(f": {decision.reason}"))]
    for part in decision.parts:
        lines.append((Span(f"  {part.effect:<5}  ", _TONES[part.effect]), Span(part.what)))
        lines.append((Span(f"         {describe_part(part)}", "dim"),))
    sandbox = describe_sandbox(decision, permissions.sandbox_support)
    return [LinesBlock(tuple(lines)), FieldsBlock((("mode", permissions.current_mode), ("sandbox", sandbox)))]


def _rule_blocks(agent: "Agent", permissions: Permissions) -> list[Block]:
    loaded, trust = agent.environment.live_rules.current(), agent.environment.trust
    mode = permissions.current_mode
    source = "this session" if mode != loaded.mode else shorten_path(loaded.mode_source)
    if mode != permissions.mode:
        source = "the settings became stricter"
    head = (
        ("mode", mode if source == "default" else f"{mode} ({source})"),
        ("workspace", trust.state),
        ("sandbox", describe_protection(permissions.sandbox_support)),
        ("fix", permissions.sandbox_support.fix),
    )
    blocks: list[Block] = [FieldsBlock(head, "Permissions")]
    rules = permissions.current_rules.all
    if rules:
        blocks.append(
            rule_table(loaded, rules, f"{format_count(len(rules), 'rule')}: deny wins over ask, ask over allow")
        )
    else:
        blocks.append(text_block("no rules; only the mode applies"))
    if agent.approvals.approved_count:
        blocks.append(
            text_block(f"{format_count(agent.approvals.approved_count, 'tool call')} allowed for this session")
        )
    if loaded.ignored:
        blocks.append(ignored_table(loaded, "Ignored settings"))
    blocks += map(diagnostic_block, loaded.diagnostics)
    user_file = shorten_path(agent.environment.library.settings.user_file)
    change = f"edit rules in {user_file} under [permissions] (allow, ask, deny); changes apply immediately"
    blocks.append(text_block(f"{change} · test a tool call with /permissions test Bash git push", "dim"))
    return blocks
