"""`/mode`: shows and changes the permission mode; Shift-Tab cycles through the most common modes."""

import asyncio
from typing import Final

from kitbag.chat.commands import CommandContext
from kitbag.dialogs.form import Form, FormOption
from kitbag.errors import UsageError
from kitbag.library.dialects.permission_modes import MODE_DESCRIPTIONS, PermissionMode
from kitbag.permissions.rules.load import parse_mode
from kitbag.text.human_format import did_you_mean
from kitbag.views.blocks import Block, NoticeBlock, TableBlock, notice_block, text_block
from kitbag.views.permissions import describe_protection

MODE_ORDER: Final[tuple[PermissionMode, ...]] = ("default", "acceptEdits", "plan", "locked", "autonomous")
_NEXT: Final[dict[str, PermissionMode]] = {"default": "acceptEdits", "acceptEdits": "plan"}
"""From any other mode Shift-Tab switches to `default`: `autonomous` and `locked` must be chosen by name."""
_SHORT: Final[dict[str, str]] = {
    "default": "asks before changing anything",
    "acceptEdits": "edits files in the workspace without asking",
    "plan": "reads only, changes nothing",
}


async def mode_command(chat: CommandContext, arguments: str) -> None:
    name = arguments.strip()
    if name:
        await change_mode(chat, _parse_mode(name))
        return
    chat.show(_table(chat))
    if chat.ui.is_plain:
        chat.show(text_block("change it with /mode NAME", "dim"))
        return
    now = chat.agent.permissions.current_mode
    options = tuple(FormOption(key=str(at), label=mode) for at, mode in enumerate(MODE_ORDER, 1))
    default = str(MODE_ORDER.index(now) + 1)
    form_answer = await chat.ui.ask(Form(prompt="Choose a permission mode", options=options, default=default))
    if form_answer is not None and form_answer.keys:
        await change_mode(chat, MODE_ORDER[int(form_answer.keys[0]) - 1])


async def cycle_mode(chat: CommandContext) -> None:
    """Shift-Tab. Leaves no line, since the user may press it repeatedly."""
    mode = _NEXT.get(chat.agent.permissions.current_mode, "default")
    await change_mode(chat, mode, f"{mode}: {_SHORT[mode]}")


async def change_mode(chat: CommandContext, mode: PermissionMode, hint: str = "") -> None:
    """Asks for confirmation of `autonomous`. Raises what `Agent.use_mode` raises."""
    permissions = chat.agent.permissions
    if mode == permissions.current_mode == permissions.mode:  # otherwise only the settings impose it, and may relax
        chat.show(text_block(f"already in {mode} mode"))
        return
    if mode == "autonomous" and not await _confirm_autonomous(chat):
        chat.show(text_block(f"mode unchanged: {chat.agent.permissions.current_mode}"))
        return
    agent = chat.agent
    count_before = len(agent.notices)
    await agent.use_mode(mode)
    if hint:
        chat.ui.hint(hint)
    else:
        chat.show(text_block(f"{mode}: {MODE_DESCRIPTIONS[mode]}"))
    # The confirmation form already said what is missing for autonomous mode.
    new_notices, agent.notices = agent.notices[count_before:], agent.notices[:count_before]
    chat.show(*(notice_block(notice) for notice in new_notices if mode != "autonomous"))
    chat.refresh()


async def _confirm_autonomous(chat: CommandContext) -> bool:
    """In a thread: probing the sandbox may take a moment."""
    permissions = chat.agent.permissions
    protection = await asyncio.to_thread(lambda: permissions.sandbox_support)
    above: list[Block] = [text_block(f"autonomous: {MODE_DESCRIPTIONS['autonomous']}")]
    if protection.supports("workspace"):
        above.append(text_block(f"sandbox: {describe_protection(protection)}", "dim"))
    else:
        missing = "no sandbox available" if protection.kind == "none" else "the sandbox can't protect everything"
        problem = f"{missing} ({protection.problem or protection.kind}): {_consequence(protection.kind)}"
        above.append(NoticeBlock("warning", problem, protection.fix))
    options = (
        FormOption(key="y", label="yes, switch to autonomous"),
        FormOption(key="n", label="no, keep the current mode"),
    )
    form_answer = await chat.ui.ask(
        Form(prompt="Kitbag will act without asking. Continue?", options=options, above=tuple(above))
    )
    return form_answer is not None and form_answer.keys == ("y",)


def _consequence(kind: str) -> str:
    if kind == "none":
        return "commands don't run in this mode, and files in the workspace are edited without asking"
    return "commands that could modify control files don't run"


def _parse_mode(word: str) -> PermissionMode:
    """Also accepts the names other tools use. Raises UsageError with a suggestion."""
    try:
        return parse_mode(word)
    except UsageError as error:
        raise UsageError(error.problem, did_you_mean(word, MODE_ORDER)) from None


def _table(chat: CommandContext) -> Block:
    now = chat.agent.permissions.current_mode
    rows = tuple((mode, "yes" if mode == now else "", MODE_DESCRIPTIONS[mode]) for mode in MODE_ORDER)
    return TableBlock(headers=("MODE", "CURRENT", "DESCRIPTION"), rows=rows, title=f"Permission mode: {now}")
