"""Resumes a finished task in the background, with a new message.

Used by `kitbag tasks resume` and the chat.
"""

import asyncio
from typing import Final

import msgspec

from kitbag.agent.resume import read_totals
from kitbag.agent.session import STREAM_PREFIX
from kitbag.errors import InvalidError
from kitbag.tasks.agent_permissions import FINGERPRINT_KEY
from kitbag.tasks.board import Board
from kitbag.tasks.task import Task
from kitbag.tasks.worker_process import WorkerStart, ensure_worker

DEFAULT_PROMPT: Final = (
    "Continue your task. Calls that were running when you were interrupted may have taken effect; check first."
)
"""Used if the user gives no message."""


async def resume_task(board: Board, task: Task, message: str, kitbag_home: str) -> WorkerStart:
    """The task is queued on return. Raises InvalidError if it can't be resumed in the background."""
    check_resumable(task)
    request = board.request(task.id)
    has_started = board.journal.last(STREAM_PREFIX + task.session) is not None
    previous_turns = read_totals(board.journal, task.session).turns if has_started else 0
    # The user's resume also approves a changed agent file.
    options = {name: value for name, value in request.options.items() if name != FINGERPRINT_KEY}
    request = msgspec.structs.replace(
        request, message=message or DEFAULT_PROMPT, previous_turns=previous_turns, options=options
    )
    if not await board.requeue(task, request):
        raise InvalidError(f"task {task.id} was resumed by another process", "see `kitbag tasks show`")
    return await asyncio.to_thread(ensure_worker, kitbag_home)


def check_resumable(task: Task) -> None:
    """Raises InvalidError."""
    if task.kind != "agent":
        raise InvalidError(f"task {task.id} is a command, which can't be resumed", "run it again")
    if not task.is_finished:
        raise InvalidError(f"task {task.id} is {task.status}", "wait for it to end, or stop it")
    if not task.background:
        raise InvalidError(
            f"task {task.id} ran in the foreground",
            f"resume it with `kitbag agents run {task.agent} PROMPT --resume {task.id}`",
        )
