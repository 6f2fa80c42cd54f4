"""`/undo`: shows the file changes of the last message and reverts them if the files are still as the agent left them.

`/undo N` reverts what the user's Nth message caused, `/undo redo` re-applies what was undone last. Uses runtime/undo.
"""

import asyncio
from typing import Final

from kitbag.agent.shield import run_ignoring_cancellation
from kitbag.agent.undo.plan import UndoStep
from kitbag.chat.commands import CommandContext
from kitbag.dialogs.form import Form, FormOption
from kitbag.errors import UsageError
from kitbag.runtime.undo import ACTION_VERBS, INTERRUPTED_NOTICE, SessionUndo, UndoPlan, describe_result, failure_error
from kitbag.text.human_format import format_count, shorten_path
from kitbag.views.blocks import Block, DiffBlock, NoticeBlock, TableBlock, text_block

_MAX_ROWS: Final = 100
_MAX_DIFFS: Final = 20


async def undo_command(chat: CommandContext, arguments: str) -> None:
    number, redo = _parse(arguments.split())
    if is_session_empty(chat):
        return
    agent = chat.agent

    def plan() -> tuple[SessionUndo, UndoPlan, Block]:
        undo = SessionUndo(
            agent.journal, agent.environment.places, agent.session.id, agent.environment.workspace.identity
        )
        planned = undo.make_plan(number, redo)
        return undo, planned, _table(undo, planned)

    undo, planned, table = await asyncio.to_thread(plan)
    if undo.recovered or planned.message.interrupted:
        chat.show(NoticeBlock("warning", INTERRUPTED_NOTICE))
    if notice := undo.running_notice():
        chat.show(NoticeBlock("warning", notice))
    undo.check(planned, force=True)
    chat.show(table)
    if not await _confirm(chat, undo, planned):
        chat.show(text_block("nothing changed"))
        return
    restored = await run_ignoring_cancellation(asyncio.to_thread(undo.restore, planned))
    chat.show(text_block(describe_result(planned, restored)))
    chat.show(*(NoticeBlock("info", f"skipped {shorten_path(path)}: {why}") for path, why in restored.skipped))
    error = failure_error(restored)
    if error is not None:
        raise error
    again = "" if redo else "; redo it with /undo redo"
    chat.show(text_block(f"the model is notified with your next message{again}", "dim"))


def is_session_empty(chat: CommandContext) -> bool:
    """A session without messages is not recorded yet, which the user learns."""
    session = chat.agent.session
    if session.totals.turns or session.about:
        return False
    chat.show(NoticeBlock("info", "this session has no messages yet"))
    return True


def _parse(parts: list[str]) -> tuple[int | None, bool]:
    """Raises UsageError."""
    redo = "redo" in parts
    numbers = [part for part in parts if part != "redo"]
    if not numbers:
        return None, redo
    if len(numbers) > 1 or not numbers[0].isascii() or not numbers[0].isdigit() or len(numbers[0]) > 9:
        raise UsageError(f"{' '.join(numbers)!r} is not a message number", "type /undo, /undo 3 or /undo redo")
    return int(numbers[0]), redo


def describe_action(undo: SessionUndo, step: UndoStep) -> tuple[str, str]:
    """The first columns of a table: what is done to the path, and how much of it changes."""
    verb = "keep" if step.problem else ACTION_VERBS[step.effect]
    return verb, "folder" if step.kind == "folder" else undo.describe_step(step)


def _table(undo: SessionUndo, planned: UndoPlan) -> Block:
    shown = planned.steps[:_MAX_ROWS]
    rows = tuple((*describe_action(undo, step), shorten_path(step.path), step.problem) for step in shown)
    more = len(planned.steps) - len(shown)
    verb = "Redo" if planned.redo else "Undo"
    about = f": {planned.message.about}" if planned.message.about else ""
    foot = f"{format_count(more, 'more file')}" if more else ""
    headers = ("ACTION", "CHANGE", "FILE", "PROBLEM")
    columns = 4 if any(step.problem for step in shown) else 3
    cut = tuple(row[:columns] for row in rows)
    return TableBlock(
        headers=headers[:columns], rows=cut, title=f"{verb} message {planned.message.number}{about}", foot=foot
    )


async def _confirm(chat: CommandContext, undo: SessionUndo, planned: UndoPlan) -> bool:
    """Files changed since then need an explicit answer."""
    while True:
        form_answer = await chat.ui.ask(_form(planned))
        answer = form_answer.keys[0] if form_answer is not None and form_answer.keys else "n"
        if answer != "d":
            return answer in ("y", "f")
        chat.show(*await asyncio.to_thread(_diffs, undo, planned))


def _form(planned: UndoPlan) -> Form:
    blocked = planned.conflicts
    show_diffs, keep = FormOption(key="d", label="show the diff"), FormOption(key="n", label="no, change nothing")
    if not blocked:
        verb = "redo" if planned.redo else "undo"
        return Form(
            prompt=f"{verb.capitalize()} these changes?",
            options=(FormOption(key="y", label=f"yes, {verb}"), show_diffs, keep),
        )
    impossible = sum(not step.possible for step in blocked)
    note = f"{format_count(impossible, 'file')} can't be restored and will be skipped" if impossible else ""
    force = FormOption(key="f", label="overwrite; the overwritten content is kept", note=note)
    named = format_count(len(blocked), "file")
    above = (NoticeBlock("warning", f"{named} changed since then or can't be restored; see the PROBLEM column"),)
    return Form(prompt="Overwrite later changes?", options=(force, show_diffs, keep), above=above)


def _diffs(undo: SessionUndo, planned: UndoPlan) -> list[Block]:
    blocks: list[Block] = []
    for step in planned.steps[:_MAX_DIFFS]:
        diff_found = undo.diff_step(step)
        if diff_found is not None and diff_found.text:
            blocks.append(DiffBlock(diff_found.text))
    more = len(planned.steps) - _MAX_DIFFS
    if more > 0:
        blocks.append(text_block(f"{more:,} more; show all with `kitbag undo --show`", "dim"))
    return blocks or [text_block("no text changes to show", "dim")]
