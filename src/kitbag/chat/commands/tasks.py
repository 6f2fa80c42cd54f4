"""`/tasks` and `/stop`: lists background tasks, shows their output, stops and resumes them, answers their questions.

Opens a live panel; a UI without panels shows a table, and arguments do the same. Uses task_blocks and the tasks
package.
"""

import asyncio
import contextlib
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Final

from kitbag.agent.shield import run_ignoring_cancellation
from kitbag.chat.commands import CommandContext
from kitbag.chat.task_blocks import COLUMNS, TaskList, output_page, page_blocks, task_detail_blocks, task_table
from kitbag.chat.ui import Panel, PanelAction
from kitbag.dialogs.form import Form, FormOption
from kitbag.errors import KitbagError, NotFoundError, UsageError
from kitbag.permissions.approvals.approval import ApprovalAnswer
from kitbag.permissions.approvals.queue import CONTAINS_CREDENTIALS, ApprovalQueue, PendingApproval, require_person
from kitbag.tasks.board import Board
from kitbag.tasks.resume import check_resumable, resume_task
from kitbag.tasks.send import send_to_task
from kitbag.tasks.stop import stop_task, stopped_message
from kitbag.tasks.task import Task
from kitbag.tasks.task_approvals import pending_task_questions, with_descendants
from kitbag.tasks.worker_process import ensure_tasks_hosted
from kitbag.views.blocks import NoticeBlock, text_block

_VERBS: Final = ("all", "show", "output", "send", "stop", "resume", "answer")
_REFRESH_SECONDS: Final = 1.0
_ACTIONS: Final = (
    PanelAction(key="enter", label="show"),
    PanelAction(key="s", label="stop"),
    PanelAction(key="r", label="resume"),
    PanelAction(key="a", label="answer"),
)


async def tasks_command(chat: CommandContext, arguments: str) -> None:
    verb, _, rest = arguments.strip().partition(" ")
    rest = rest.strip()
    board = await _board(chat)
    match verb:
        case "" | "all":
            await _show_list(chat, board, show_all=verb == "all")
        case "show":
            await _show(chat, board, _find(board, rest, verb))
        case "output":
            name, _, offset = rest.partition(" ")
            task = _find(board, name, verb)
            page = await asyncio.to_thread(output_page, board, task, _offset(offset.strip()))
            chat.show(*page_blocks(page, task))
        case "stop":
            await _stop(chat, board, [_find(board, name, verb) for name in rest.split() or [""]])
        case "send":
            name, _, text = rest.partition(" ")
            task = _find(board, name, verb)
            await send_to_task(board, task, text)
            chat.show(text_block(f"sent to {task.agent} {task.id}; it gets the message after its running tool calls"))
        case "resume":
            name, _, request = rest.partition(" ")
            await _resume(chat, board, _find(board, name, verb), request.strip())
        case "answer":
            await _answer(chat, board, rest)
        case _:
            await _show(chat, board, _find_or_suggest(board, arguments.strip()))


async def stop_command(chat: CommandContext, arguments: str) -> None:
    names = arguments.split()
    if not names:
        if not await chat.cancel():
            left = chat.background.running
            fix = "stop background tasks with /stop ID or /stop all; list them with /tasks" if left else ""
            chat.show(NoticeBlock("info", "nothing is running in the foreground", fix))
        return
    board = await _board(chat)
    if names == ["all"]:
        was_working = await chat.cancel()
        tasks = _topmost(_watched_tasks(chat, board))
        if tasks:
            await _stop(chat, board, tasks)
        elif not was_working:
            chat.show(NoticeBlock("info", "nothing is running in this session"))
        return
    await _stop(chat, board, [_find(board, name, "stop") for name in names])


def _watched_tasks(chat: CommandContext, board: Board) -> list[Task]:
    """Those that the status line counts."""
    return [task for session in chat.background.sessions for task in board.descendants(session)]


def _topmost(tasks: list[Task]) -> list[Task]:
    """Running tasks whose parent is not running: stopping a task stops its children."""
    running = {task.id: task for task in tasks if not task.is_finished}
    return [task for task in running.values() if task.parent not in running]


async def _board(chat: CommandContext) -> Board:
    """Reads in a thread: the journal may be long."""
    board = Board(chat.agent.journal)
    await asyncio.to_thread(board.refresh)
    if notice := board.unreadable_notice():
        chat.show(NoticeBlock("warning", notice))
    return board


def _kitbag_home(chat: CommandContext) -> str:
    return chat.agent.environment.places.kitbag_home


def _find(board: Board, name: str, verb: str) -> Task:
    if not name:
        raise UsageError(f"/tasks {verb} needs a task ID", "list tasks with /tasks")
    try:
        return board.find(name)
    except NotFoundError as error:
        fix = error.fix if error.fix.startswith("did you") else "list all tasks with /tasks all"
        raise NotFoundError(error.problem, fix) from None


def _find_or_suggest(board: Board, text: str) -> Task:
    try:
        return _find(board, text, "show")
    except NotFoundError as error:
        close = get_close_matches(text.split()[0].lower(), _VERBS, 1, 0.6)
        if not close:
            raise
        raise UsageError(error.problem, f"did you mean /tasks {close[0]}?") from None


def _offset(text: str) -> int:
    if text and not (text.isascii() and text.isdecimal() and len(text) < 16):
        raise UsageError(f"invalid output offset {text[:40]!r}", "use the number shown below the last page")
    return int(text or 0)


# The list


async def _show_list(chat: CommandContext, board: Board, *, show_all: bool) -> None:
    hosting = await ensure_tasks_hosted(board, _kitbag_home(chat))
    if hosting.problem:
        chat.show(NoticeBlock("warning", hosting.problem))
    directory = "" if show_all else chat.agent.environment.places.cwd
    task_list = TaskList(Board(chat.agent.journal), chat.agent.session.id, directory)
    listed = await asyncio.to_thread(task_list.refresh)
    if not await _open_panel(chat, board, task_list):
        chat.show(task_table(listed, task_list.omitted))


async def _open_panel(chat: CommandContext, board: Board, task_list: TaskList) -> bool:
    async def keep_fresh() -> None:
        while True:
            await asyncio.sleep(_REFRESH_SECONDS)
            with contextlib.suppress(KitbagError):  # keep showing the last snapshot
                await asyncio.to_thread(task_list.refresh)

    async def act(key: str, task_id: str) -> None:
        try:
            await _act(chat, board, key, board.find(task_id))
            await asyncio.to_thread(task_list.refresh)
        except KitbagError as error:
            chat.show(NoticeBlock("error", error.problem, error.fix))

    refreshing = asyncio.create_task(keep_fresh())
    try:
        empty = "no tasks in this directory; list all with /tasks all"
        return await chat.ui.open(
            Panel(title=f"Tasks: {COLUMNS}", rows=task_list.rows, actions=_ACTIONS, run_action=act, empty_message=empty)
        )
    finally:
        refreshing.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await refreshing


async def _act(chat: CommandContext, board: Board, key: str, task: Task) -> None:
    match key:
        case "enter":
            await _show(chat, board, task, asks=True)
        case "s":
            await _stop(chat, board, [task])
        case "r":
            await _ask_and_resume(chat, board, task)
        case _:
            await _answer_tasks(chat, with_descendants(board, task))


# One task


async def _show(chat: CommandContext, board: Board, task: Task, *, asks: bool = False) -> None:
    """`asks`: shows further pages as long as the user wants more."""
    chat.show(*await asyncio.to_thread(task_detail_blocks, board, task))
    offset = 0
    while True:
        page = await asyncio.to_thread(output_page, board, task, offset)
        if not page.text and not offset:
            return
        chat.show(*page_blocks(page, task))
        if not asks or not page.next_offset:
            return
        form = Form(
            prompt="Show more?",
            options=(FormOption(key="m", label="next page"), FormOption(key="q", label="close")),
            default="m",
        )
        form_answer = await chat.ui.ask(form)
        if form_answer is None or form_answer.keys != ("m",):
            return
        offset = page.next_offset


async def _stop(chat: CommandContext, board: Board, tasks: Iterable[Task]) -> None:
    """Concurrently, since each may take a while."""
    stopped = await asyncio.gather(*(stop_task(board, task, "person") for task in tasks))
    for warning in (warning for one in stopped for warning in one.report.warnings):
        chat.show(NoticeBlock("warning", warning))
    chat.show(text_block("\n".join(stopped_message(one) for one in stopped)))
    chat.background.refresh()
    chat.refresh()


async def _ask_and_resume(chat: CommandContext, board: Board, task: Task) -> None:
    check_resumable(task)
    prompt = f"Message for {task.agent} {task.id} (optional):"
    form_answer = await chat.ui.ask(
        Form(prompt=prompt, free_text_hint="a message, or press Enter to resume without one")
    )
    if form_answer is not None:
        await _resume(chat, board, task, form_answer.text.strip())


async def _resume(chat: CommandContext, board: Board, task: Task, request: str) -> None:
    hosting = await resume_task(board, task, request, _kitbag_home(chat))
    chat.show(text_block(f"resumed {task.id} in the background"))
    if hosting.problem:
        chat.show(NoticeBlock("warning", hosting.problem))
    chat.background.refresh()
    chat.refresh()


# Questions of tasks


async def _answer(chat: CommandContext, board: Board, name: str) -> None:
    """`name`: a task, including its descendants, or a question id; empty: all that the status line counts."""
    if not name:
        await _answer_tasks(chat, _watched_tasks(chat, board))
        return
    try:
        tasks = with_descendants(board, _find(board, name, "answer"))
    except NotFoundError:
        queue = ApprovalQueue(chat.agent.journal)
        if not any(one.request.id.startswith(name) for one in queue.pending()):
            raise
        await _answer_one(chat, queue, queue.find(name))
        return
    await _answer_tasks(chat, tasks)


async def _answer_tasks(chat: CommandContext, tasks: Iterable[Task]) -> None:
    queue = ApprovalQueue(chat.agent.journal)
    pending = await asyncio.to_thread(pending_task_questions, queue, tuple(tasks))
    if not pending:
        chat.show(NoticeBlock("info", "no pending approvals"))
    for _, one in pending:
        if not await _answer_one(chat, queue, one):
            return


async def _answer_one(chat: CommandContext, queue: ApprovalQueue, pending: PendingApproval) -> bool:
    """False if the user cancels and the question remains."""
    require_person()
    question = pending.request
    if not pending.is_complete:
        chat.show(NoticeBlock("warning", f"this call can only be denied: {CONTAINS_CREDENTIALS}"))
    answer = await _ask_unless_answered(chat, queue, pending)
    if answer is None:
        chat.show(
            NoticeBlock(
                "info", f"approval {question.id} is still pending", f"answer it with /tasks answer {question.id}"
            )
        )
        return False
    if isinstance(answer, ApprovalAnswer):
        await run_ignoring_cancellation(asyncio.to_thread(queue.answer, question.id, answer, "chat"))
        done = "denied" if answer.choice == "deny" else "allowed" if answer.scope != "once" else "allowed once"
        done = "answered" if answer.answers else done
        chat.show(text_block(f"{done}: {question.asked_by}", "bad" if answer.choice == "deny" else "good"))
    else:
        chat.show(NoticeBlock("info", f"approval {question.id} was answered elsewhere or is no longer needed"))
    chat.background.refresh()
    chat.refresh()
    return True


async def _ask_unless_answered(
    chat: CommandContext, queue: ApprovalQueue, pending: PendingApproval
) -> ApprovalAnswer | bool | None:
    """The user's answer; None if they cancel; True if it was answered elsewhere meanwhile."""
    from kitbag.chat.dialog import ChatDialog
    from kitbag.dialogs.approver import approval_forms
    from kitbag.dialogs.asker import answer_forms

    question = pending.request
    dialog = ChatDialog(chat.ui)
    if question.tool == "AskUser" and pending.is_complete:
        asking = asyncio.create_task(dialog.run(answer_forms(question)))
    else:
        asking = asyncio.create_task(dialog.run(approval_forms(question, can_allow=pending.is_complete, can_wait=True)))
    answered = asyncio.create_task(queue.wait(question.id))
    try:
        await asyncio.wait((asking, answered), return_when=asyncio.FIRST_COMPLETED)
        if asking.done():
            return asking.result()
        answered.result()  # raise its error, if any
        return True
    finally:
        for task in (asking, answered):
            task.cancel()
        await asyncio.gather(asking, answered, return_exceptions=True)
