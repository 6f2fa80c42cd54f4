"""Stops a task, whichever process runs it: requests the stop, records the result if the owner does not, and kills its
processes.

Used by TaskStop, the CLI and the chat. What the task does afterwards has no effect: its result is final and its tools
refuse to run. Its descendants are stopped with it, including those that start meanwhile.
"""

import asyncio
import time
from typing import Final

from kitbag.errors import KitbagError
from kitbag.permissions.approvals.queue import ApprovalQueue
from kitbag.tasks.board import Board
from kitbag.tasks.reports import build_report, fetch_sessions, finish_for_owner
from kitbag.tasks.runner import STOP_GRACE_SECONDS
from kitbag.tasks.task import Task, requester_label
from kitbag.tasks.task_processes import kill_processes
from kitbag.text.human_format import format_count
from kitbag.tools.delegation import TaskStopResult

_STOP_TIMEOUT: Final = STOP_GRACE_SECONDS + 0.3
"""Time for the owner to record the result itself."""
_KILL_SECONDS: Final = 0.5
_POLL_SECONDS: Final = 0.2


async def stop_task(board: Board, task: Task, by: str) -> TaskStopResult:
    """Takes at most three seconds. A finished task stays as it is."""
    was_finished = task.is_finished
    requested: set[str] = set()
    deadline, is_late = time.monotonic() + _STOP_TIMEOUT, False
    while not was_finished and (unfinished := _unfinished_tasks(board, task.id)):
        if is_late and time.monotonic() >= deadline + 1.0:
            break  # the report shows what is left
        seen = board.journal.last_seq()
        new = [one for one in unfinished if one.id not in requested]
        requested.update(one.id for one in new)
        if new:
            await board.request_stop(new, by)
        is_late = time.monotonic() >= deadline
        ended = [await _cancel_for_owner(board, one) for one in unfinished if is_late or _has_no_live_owner(board, one)]
        if not ended:
            await board.journal.wait_async(seen, min(_POLL_SECONDS, max(deadline - time.monotonic(), 0.01)))
    ids = {task.id, *requested}
    left = await asyncio.to_thread(lambda: kill_processes(*ids, timeout=_KILL_SECONDS))
    await _withdraw_questions(board, requested)
    await fetch_sessions(board.journal, task)
    return TaskStopResult(
        report=build_report(board, board.find(task.id)),
        was_finished=was_finished,
        subtask_count=len(requested - {task.id}),
        process_count=left,
    )


def stopped_message(stopped: TaskStopResult) -> str:
    """For the user: the outcome for the task and its descendants."""
    report = stopped.report
    if stopped.was_finished:
        return f"{report.id} had already ended: {report.status}"
    others = f", with {format_count(stopped.subtask_count, 'task')} it started" if stopped.subtask_count else ""
    return f"{report.id} stopped: {report.status}{others}; processes left: {stopped.process_count}"


def _unfinished_tasks(board: Board, task_id: str) -> list[Task]:
    return [one for one in (board.find(task_id), *board.descendants(task_id)) if not one.is_finished]


def _has_no_live_owner(board: Board, task: Task) -> bool:
    """It is queued, or its owner has died."""
    return task.status == "queued" or task.owner is None or board.check_alive(task.owner) is False


async def _cancel_for_owner(board: Board, task: Task) -> None:
    """A queued task is claimed first, so that nothing else can start it."""
    if task.status == "queued":
        if not await board.claim(task):
            return
        task = board.find(task.id)
    await finish_for_owner(board, task, "cancelled")


async def _withdraw_questions(board: Board, task_ids: set[str]) -> None:
    tasks = [board.find(task_id) for task_id in task_ids]
    if any(task.kind == "agent" for task in tasks):
        queue = ApprovalQueue(board.journal)
        for task in tasks:
            try:
                await queue.withdraw(requester_label(task.agent, task.id))
            except KitbagError:
                return  # a stale question does no harm
