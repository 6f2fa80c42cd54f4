"""`/permissions`: the rules that count, where each comes from, and what one action would come to, and why.

Nothing is run. Rules are changed in the settings, or by the answer to a question.
"""

import asyncio
from typing import TYPE_CHECKING, Final

from kitbag.errors import UsageError
from kitbag.library.dialects.tool_aliases import CANONICAL, close_to
from kitbag.permissions.decisions.decide import Permissions
from kitbag.permissions.model import Effect, Judgement
from kitbag.permissions.rules.rule import COMPANIONS
from kitbag.permissions.rules.tool_use_syntax import arguments_for, read_use
from kitbag.text.human_format import count, short_path
from kitbag.views.blocks import Block, Fields, Line, Lines, Remark, Span, Table, Tone, words
from kitbag.views.permissions import VERDICTS, examples_in_words, protection_in_words, sandbox_in_words

if TYPE_CHECKING:
    from kitbag.chat.chat import Chat
    from kitbag.runtime.agent import Agent

_TONES: Final[dict[Effect, Tone]] = {"allow": "good", "ask": "warning", "deny": "bad"}
_TOOLS: Final = frozenset((*CANONICAL, *COMPANIONS))


async def permissions_command(chat: "Chat", arguments: str) -> None:
    agent = chat.agent
    permissions = agent.approvals.permissions(agent.permissions)
    verb, _, rest = arguments.strip().partition(" ")
    use = rest.strip() if verb == "test" else arguments.strip()
    if verb == "test" and not use:
        raise UsageError(
            "/permissions test needs a tool and what it is used on", "type: /permissions test Bash git push"
        )
    if not use:
        chat.show(*await asyncio.to_thread(_rules, agent, permissions))
        return
    tool, given = _read(use)
    directory = agent.session.directory or agent.context.directory
    judgement = await asyncio.to_thread(permissions.decide, tool, given, directory)
    chat.show(*await asyncio.to_thread(_explained, tool, judgement, permissions))


def _read(use: str) -> tuple[str, dict[str, object]]:
    """`Bash git push`, `Bash(git push)`, or only the command. Raises UsageError for a tool that is nearly one."""
    first, _, rest = use.partition(" ")
    if rest.strip() and (first in _TOOLS or first.startswith("mcp__")):
        return first, arguments_for(first, rest.strip())
    name, opened, _ = use.partition("(")
    near = close_to(name) if opened and name.isalnum() and name not in _TOOLS else ""
    if near:
        raise UsageError(f"there is no tool {name!r}", f"did you mean {near}({use[len(name) + 1 :]}?")
    tool, subject = read_use(use)
    return tool, {} if subject is None else arguments_for(tool, subject)


def _explained(tool: str, judgement: Judgement, permissions: Permissions) -> list[Block]:
    head = (Span(f"{tool}: ", "strong"), Span(VERDICTS[judgement.effect], _TONES[judgement.effect]))
    lines: list[Line] = [(*head, Span(f": {judgement.reason}"))]
    for part in judgement.parts:
        rule = f" `{part.rule}` ({short_path(part.source)})" if part.rule else ""
        lines.append((Span(f"  {part.effect:<5}  ", _TONES[part.effect]), Span(part.what)))
        lines.append((Span(f"         {part.reason}{rule}", "dim"),))
    sandbox = sandbox_in_words(judgement, permissions.protection)
    return [Lines(tuple(lines)), Fields((("mode", permissions.mode_now), ("sandbox", sandbox)))]


def _rules(agent: "Agent", permissions: Permissions) -> list[Block]:
    loaded, trust = agent.ground.live.now(), agent.ground.trust
    mode = permissions.mode_now
    source = "this conversation" if mode != loaded.mode else short_path(loaded.mode_source)
    if mode != permissions.mode:
        source = "the settings have become stricter"
    head = (
        ("mode", mode if source == "default" else f"{mode} ({source})"),
        ("workspace", trust.state),
        ("sandbox", protection_in_words(permissions.protection)),
        ("better", permissions.protection.fix),
    )
    blocks: list[Block] = [Fields(head, "What it may do")]
    rows = tuple(
        (rule.effect, rule.text, rule.scope, examples_in_words(loaded, rule), short_path(rule.source))
        for rule in permissions.rules_now.all
    )
    if rows:
        title = f"{count(len(rows), 'rule')}: deny before ask before allow"
        blocks.append(Table(("EFFECT", "RULE", "SCOPE", "EXAMPLES", "SOURCE"), rows, title))
    else:
        blocks.append(words("there are no rules: the mode alone decides"))
    if agent.approvals.agreed:
        blocks.append(words(f"{count(agent.approvals.agreed, 'action')} allowed for this conversation, each as shown"))
    if loaded.ignored:
        ignored = tuple((one.setting, one.value, short_path(one.source), one.why) for one in loaded.ignored)
        blocks.append(Table(("IGNORED", "VALUE", "SOURCE", "WHY"), ignored, "What does not count"))
    blocks += [Remark(one.severity, f"{short_path(one.place)}: {one.problem}", one.fix) for one in loaded.diagnostics]
    user_file = short_path(agent.ground.library.settings.user_file)
    change = f"change them in {user_file}, under [permissions]: allow, ask, deny; they count at once"
    blocks.append(words(f"{change} · /permissions test Bash git push explains one", "dim"))
    return blocks
