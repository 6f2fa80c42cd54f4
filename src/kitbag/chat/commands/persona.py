"""`/persona`: shows what another persona changes in skills, agents, tokens and model, and switches to it; `--preview`
only shows the changes.

Uses assembly/switch_persona, through the agent, for both the preview and the switch.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from kitbag.chat.commands import CommandContext
from kitbag.dialogs.form import Form, FormOption
from kitbag.errors import NotFoundError, UsageError
from kitbag.library.registry import NO_PERSONA
from kitbag.views.blocks import Block, FieldsBlock, NoticeBlock, TableBlock, text_block

if TYPE_CHECKING:
    from kitbag.assembly.switch_persona import PersonaChange
    from kitbag.library.registry import Registry

_USAGE: Final = "type /persona [TEAM/]NAME or /persona none; --preview only shows what would change"
_MAX_NAMED: Final = 12


class _PersonaArguments(NamedTuple):
    name: str = ""
    only_preview: bool = False


async def persona_command(chat: CommandContext, arguments: str) -> None:
    parsed = _parse(arguments)
    name = parsed.name or await _choose(chat, chat.agent.environment.library)
    if name:
        await _change(chat, name, parsed.only_preview)


def _parse(arguments: str) -> _PersonaArguments:
    """Raises UsageError."""
    names = arguments.split()
    flags = {name for name in names if name.startswith("-")}
    names = [name for name in names if name not in flags]
    unknown = sorted(flags - {"--preview"})
    if unknown or len(names) > 1:
        problem = f"/persona has no option {unknown[0]}" if unknown else "/persona takes one name"
        raise UsageError(problem, _USAGE)
    return _PersonaArguments(names[0] if names else "", bool(flags))


async def _choose(chat: CommandContext, library: "Registry") -> str:
    """The full name, or `none`; empty if nothing is to change."""
    personas = list(library.personas)
    if not personas:
        chat.show(text_block("no personas found; docs/personas.md explains how to write one"))
        return ""
    now = library.persona.full_name if library.persona is not None else NO_PERSONA
    if chat.ui.is_plain:
        rows = tuple(("*" if one.full_name == now else "", one.full_name, one.description) for one in personas)
        foot = f"* current · switch with /persona NAME · remove it with /persona {NO_PERSONA}"
        chat.show(TableBlock(headers=("", "PERSONA", "DESCRIPTION"), rows=rows), text_block(foot, "dim"))
        return ""
    descriptions = {one.full_name: one.description for one in personas}
    descriptions[NO_PERSONA] = "no persona; load a team's skills by their full names"
    keys = {str(at): name for at, name in enumerate(descriptions, 1)}
    options = [
        FormOption(key=key, label=f"{name} (current)" if name == now else name, note=descriptions[name])
        for key, name in keys.items()
    ]
    default = next((key for key, name in keys.items() if name == now), "")
    form_answer = await chat.ui.ask(Form(prompt="Choose a persona", options=tuple(options), default=default))
    return keys[form_answer.keys[0]] if form_answer is not None and form_answer.keys else ""


async def _change(chat: CommandContext, name: str, only_preview: bool) -> None:
    """Raises KitbagError if the persona does not exist or can't be used."""
    preview = await _preview(chat, name)
    if preview.before == preview.after:
        chat.show(text_block(f"already using {preview.after or 'no persona'}"))
        return
    chat.show(*preview_blocks(preview))
    if only_preview:
        return
    # No confirmation: /persona with the previous name reverts it, and skills can be loaded again.
    change_made = await chat.agent.use_persona(name)
    chat.show(text_block(f"switched to {change_made.after or 'no persona'}", "good"), *_dropped_blocks(change_made))
    chat.refresh()


async def _preview(chat: CommandContext, name: str) -> "PersonaChange":
    try:
        return await chat.agent.preview_persona(name)
    except NotFoundError as error:
        known = [one.full_name for one in chat.agent.environment.library.personas]
        if error.fix.startswith("did you mean") or not known:
            raise
        more = f" and {len(known) - _MAX_NAMED} more" if len(known) > _MAX_NAMED else ""
        raise NotFoundError(error.problem, f"use one of: {', '.join(known[:_MAX_NAMED])}{more}") from None


def preview_blocks(change: "PersonaChange") -> tuple[Block, ...]:
    """Shown before the switch, so that its effects are no surprise."""
    pairs = (
        ("skills", _format_changes(change.skills_gained, change.skills_lost)),
        ("on demand", _format_changes(change.on_demand_gained, change.on_demand_lost)),
        ("agents", _format_changes(change.agents_gained, change.agents_lost)),
        ("unloads", ", ".join(change.dropped)),
        ("model", change.model),
        ("prompt", _format_tokens(change.tokens_before, change.tokens_after)),
    )
    title = f"{change.before or 'no persona'} → {change.after or 'no persona'}"
    return FieldsBlock(pairs, title), *(NoticeBlock("warning", warning) for warning in change.warnings)


def _format_changes(added: Sequence[str], removed: Sequence[str]) -> str:
    return "  ".join([*(f"+{name}" for name in added), *(f"-{name}" for name in removed)])


def _format_tokens(before: int, after: int) -> str:
    return f"{before:,} → {after:,} tokens ({after - before:+,})"


def _dropped_blocks(change: "PersonaChange") -> list[Block]:
    if not change.dropped:
        return []
    reason = f"not available to {change.after}" if change.after else "not available without a persona"
    return [NoticeBlock("info", f"unloaded ({reason}): {', '.join(change.dropped)}")]
