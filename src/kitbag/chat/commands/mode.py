"""`/mode`: what is done without asking, and what each mode means; Shift-Tab goes through those that are used most."""

import asyncio
from typing import TYPE_CHECKING, Final

from kitbag.chat.ui import Form, Option
from kitbag.errors import UsageError
from kitbag.library.dialects.permission_modes import MEANINGS, Mode
from kitbag.permissions.rules.load import mode_said
from kitbag.text.human_format import did_you_mean
from kitbag.views.blocks import Block, Remark, Table, words
from kitbag.views.permissions import protection_in_words

if TYPE_CHECKING:
    from kitbag.chat.chat import Chat

ORDER: Final[tuple[Mode, ...]] = ("default", "acceptEdits", "plan", "locked", "autonomous")
_NEXT: Final[dict[str, Mode]] = {"default": "acceptEdits", "acceptEdits": "plan"}
"""From all others, Shift-Tab leads to `default`: what is freer or closed for good is chosen by name."""
_SHORT: Final[dict[str, str]] = {
    "default": "it asks before it changes something",
    "acceptEdits": "it changes files in the workspace without asking",
    "plan": "it reads, and changes nothing",
}


async def mode_command(chat: "Chat", arguments: str) -> None:
    wanted = arguments.strip()
    if wanted:
        await change_mode(chat, _mode(wanted))
        return
    chat.show(_table(chat))
    if chat.face.is_plain:
        chat.show(words("/mode NAME chooses one", "dim"))
        return
    now = chat.agent.permissions.mode_now
    options = tuple(Option(str(at), mode) for at, mode in enumerate(ORDER, 1))
    default = str(ORDER.index(now) + 1)
    filled = await chat.face.ask(Form("What may it do without asking?", options, default=default))
    if filled is not None and filled.keys:
        await change_mode(chat, ORDER[int(filled.keys[0]) - 1])


async def next_mode(chat: "Chat") -> None:
    """What Shift-Tab does. Who goes round with it wants no sentence each time."""
    mode = _NEXT.get(chat.agent.permissions.mode_now, "default")
    await change_mode(chat, mode, words(f"{mode}: {_SHORT[mode]}", "dim"))


async def change_mode(chat: "Chat", mode: Mode, brief: Block | None = None) -> None:
    """Asks where it is the freest one. Raises what `Agent.use_mode` raises."""
    permissions = chat.agent.permissions
    if mode == permissions.mode_now == permissions.mode:  # else the settings alone hold it, and may let go
        chat.show(words(f"the mode is {mode} already"))
        return
    if mode == "autonomous" and not await _agrees(chat):
        chat.show(words(f"the mode stays {chat.agent.permissions.mode_now}"))
        return
    agent = chat.agent
    known = len(agent.notices)
    await agent.use_mode(mode)
    chat.show(brief or words(f"{mode}: {MEANINGS[mode]}"))
    # What is missing for autonomous work has been said in the question.
    told, agent.notices = agent.notices[known:], agent.notices[:known]
    chat.show(*(Remark(*notice) for notice in told if mode != "autonomous"))
    chat.refresh()


async def _agrees(chat: "Chat") -> bool:
    """Trying the sandbox may take a moment."""
    permissions = chat.agent.permissions
    protection = await asyncio.to_thread(lambda: permissions.protection)
    above: list[Block] = [words(f"autonomous: {MEANINGS['autonomous']}")]
    if protection.holds("workspace"):
        above.append(words(f"sandbox: {protection_in_words(protection)}", "dim"))
    else:
        missing = "there is no sandbox" if protection.kind == "none" else "the sandbox does not hold all of it"
        problem = f"{missing} ({protection.problem or protection.kind}): {_without(protection.kind)}"
        above.append(Remark("warning", problem, protection.fix))
    options = (Option("y", "yes, work on its own"), Option("n", "no, stay as it is"))
    filled = await chat.face.ask(Form("Nothing will be asked any more. Go on?", options, tuple(above)))
    return filled is not None and filled.keys == ("y",)


def _without(kind: str) -> str:
    if kind == "none":
        return "no command runs in this mode, and files in the workspace are changed without asking"
    return "commands that could change control files do not run"


def _mode(word: str) -> Mode:
    """As other tools spell it, too. Raises UsageError with what may be meant."""
    try:
        return mode_said(word)
    except UsageError as error:
        raise UsageError(error.problem, did_you_mean(word, ORDER)) from None


def _table(chat: "Chat") -> Block:
    now = chat.agent.permissions.mode_now
    rows = tuple((mode, "yes" if mode == now else "", MEANINGS[mode]) for mode in ORDER)
    return Table(("MODE", "NOW", "WHAT IT MEANS"), rows, f"The mode is {now}")
