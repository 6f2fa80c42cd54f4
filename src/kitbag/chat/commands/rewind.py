"""`/rewind`: shows what changed since one of the user's messages, and restores the conversation, the files or both.

`/rewind N` names the message, `/rewind undo` undoes the last rewind. Uses runtime/rewind.
"""

import asyncio
from typing import Final

import msgspec

from kitbag.agent.shield import run_ignoring_cancellation
from kitbag.agent.undo.plan import MessageChanges
from kitbag.agent.user_text import written_text
from kitbag.chat.commands import CommandContext
from kitbag.chat.commands.undo import describe_action, is_session_empty
from kitbag.chat.ui import Submitted
from kitbag.dialogs.form import Form, FormOption
from kitbag.errors import UsageError
from kitbag.runtime.rewind import RewindPlan, RewindScope, SessionRewind
from kitbag.runtime.undo import INTERRUPTED_NOTICE, SessionUndo, describe_result, failure_error
from kitbag.text.human_format import format_count, shorten_path
from kitbag.views.blocks import Block, DiffBlock, NoticeBlock, TableBlock, text_block

_MAX_CHOICES: Final = 20
_MAX_ROWS: Final = 100
_MAX_DIFFS: Final = 20
_SCOPES: Final[dict[str, RewindScope]] = {"b": "both", "c": "conversation", "f": "files", "o": "both"}


async def rewind_command(chat: CommandContext, arguments: str) -> None:
    number, is_undo = _parse(arguments.split())
    if is_session_empty(chat):
        return
    rewind = await asyncio.to_thread(_open, chat)
    if notice := rewind.undo.running_notice():
        chat.show(NoticeBlock("warning", notice))
    if number is None and not is_undo:
        number = await _choose(chat, rewind)
        if number is None:
            chat.show(text_block("nothing changed"))
            return
    plan, table = await asyncio.to_thread(_plan, rewind, number, is_undo)
    if rewind.undo.recovered or plan.message.interrupted:
        chat.show(NoticeBlock("warning", INTERRUPTED_NOTICE))
    chat.show(*table)
    answer = await _confirm(chat, rewind, plan)
    if answer is None:
        chat.show(text_block("nothing changed"))
        return
    scope = _SCOPES[answer]
    result = await run_ignoring_cancellation(asyncio.to_thread(rewind.run, plan, scope, overwrite=answer == "o"))
    error = failure_error(result)
    if scope != "files" and error is None:
        await _reopen(chat, rewind, plan)
    if result.done or scope == "files":
        chat.show(text_block(describe_result(plan.files, result)))
    chat.show(*(NoticeBlock("info", f"kept {shorten_path(path)}: {why}") for path, why in result.skipped))
    if error is not None:
        raise error
    fix = "/undo redo" if scope == "files" else "/rewind undo"
    chat.show(text_block(f"undo this with {fix}", "dim"))


def _parse(parts: list[str]) -> tuple[int | None, bool]:
    """Raises UsageError."""
    if parts in ([], ["undo"]):
        return None, bool(parts)
    if len(parts) > 1 or not parts[0].isascii() or not parts[0].isdigit() or len(parts[0]) > 9:
        raise UsageError(f"{' '.join(parts)!r} is not a message number", "type /rewind, /rewind 3 or /rewind undo")
    return int(parts[0]), False


def _open(chat: CommandContext) -> SessionRewind:
    agent = chat.agent
    return SessionRewind(
        SessionUndo(agent.journal, agent.environment.places, agent.session.id, agent.environment.workspace.identity)
    )


async def _choose(chat: CommandContext, rewind: SessionRewind) -> int | None:
    """The number of a message; None if the user cancels."""
    if len(rewind.messages) < 2:
        return rewind.make_plan().message.number  # raises if there is none
    newest = rewind.messages[::-1][:_MAX_CHOICES]
    options = tuple(
        FormOption(key=str(message.number), label=message.about or "(no text)", note=_note(message))
        for message in newest
    )
    answer = await chat.ui.ask(Form(prompt="Rewind to before which message?", options=options))
    return int(answer.keys[0]) if answer is not None and answer.keys else None


def _note(message: MessageChanges) -> str:
    files = len({change.path for change in message.changes})
    return f"message {message.number}" + (f" · changed {format_count(files, 'file')}" if files else "")


def _plan(rewind: SessionRewind, number: int | None, is_undo: bool) -> tuple[RewindPlan, list[Block]]:
    plan = rewind.plan_undo() if is_undo else rewind.make_plan(number)
    steps = plan.files.steps
    rows = tuple(
        (
            *describe_action(rewind.undo, step),
            shorten_path(step.path),
            plan.changed_by.get(step.path, ""),
            step.problem,
        )
        for step in steps[:_MAX_ROWS]
    )
    about = f": {plan.message.about}" if plan.message.about else ""
    verb = "Undo the rewind" if plan.undoes_rewind else "Rewind"
    title = f"{verb} to before message {plan.message.number}{about}"
    columns = 5 if any(step.problem for step in steps[:_MAX_ROWS]) else 4
    headers = ("ACTION", "CHANGE", "FILE", "CHANGED BY (MESSAGE)", "KEPT, BECAUSE")
    more = len(steps) - len(rows)
    foot = format_count(more, "more file") if more else ""
    dropped = "conversation: as before the rewind" if plan.undoes_rewind else "conversation: as before that message"
    if plan.dropped:
        dropped += f", without {format_count(plan.dropped, 'message')}"
    dropped += f"; files: {len(plan.clean_steps):,} restored"
    if not rows:
        return plan, [text_block(title, "strong"), text_block(f"{dropped} (none changed since)")]
    cut = tuple(row[:columns] for row in rows)
    return plan, [TableBlock(headers=headers[:columns], rows=cut, title=title, foot=foot), text_block(dropped)]


async def _confirm(chat: CommandContext, rewind: SessionRewind, plan: RewindPlan) -> str | None:
    """The key of the answer; None: change nothing."""
    while True:
        answer = await chat.ui.ask(_form(plan))
        key = answer.keys[0] if answer is not None and answer.keys else "n"
        if key != "d":
            return key if key in _SCOPES else None
        chat.show(*await asyncio.to_thread(_diffs, rewind, plan))


def _form(plan: RewindPlan) -> Form:
    conflicts = plan.files.conflicts
    options = [FormOption(key="c", label="conversation only; leave all files")]
    if plan.clean_steps:
        files = format_count(len(plan.clean_steps), "file")
        options.insert(0, FormOption(key="b", label=f"conversation and {files}"))
        options.append(FormOption(key="f", label=f"{files} only; keep the conversation"))
    above: tuple[Block, ...] = ()
    if conflicts:
        named = format_count(len(conflicts), "file")
        above = (NoticeBlock("warning", f"{named} changed since then or can't be restored: see the last column"),)
        if any(step.possible for step in conflicts):
            options.append(FormOption(key="o", label=f"both, and overwrite {named}; the overwritten content is kept"))
    if plan.files.steps:
        options.append(FormOption(key="d", label="show the diff"))
    return Form(prompt="Restore what?", options=(*options, FormOption(key="n", label="nothing")), above=above)


def _diffs(rewind: SessionRewind, plan: RewindPlan) -> list[Block]:
    found = (rewind.undo.diff_step(step) for step in plan.files.steps[:_MAX_DIFFS])
    blocks: list[Block] = [DiffBlock(one.text) for one in found if one is not None and one.text]
    return blocks or [text_block("no text changes to show", "dim")]


async def _reopen(chat: CommandContext, rewind: SessionRewind, plan: RewindPlan) -> None:
    """Replays the session as it is now; the message returns to the input line."""
    agent = chat.agent
    text, images = ("", ()) if plan.undoes_rewind else await asyncio.to_thread(rewind.read_message, plan.message)
    chat.ui.clear()
    await chat.open_session(msgspec.structs.replace(agent.options, resume=agent.session.id, fork=False))
    typed = written_text(text)
    if typed or images:
        chat.ui.insert(Submitted(text=typed, images=images))
