"""Stopping a task, whoever runs it: it is asked, then its end is written for it, and its processes are ended.

Used by TaskStop and the commands. What a task still does after that does not count: its end is written once, and none
of its tools begins anything more. What it began is stopped with it, also what it begins in the meantime.
"""

import asyncio
import time
from typing import Final

from kitbag.errors import KitbagError
from kitbag.permissions.approvals.queue import ApprovalQueue
from kitbag.tasks.board import Board
from kitbag.tasks.reports import build_report, partial_result
from kitbag.tasks.runner import STOP_GRACE_SECONDS
from kitbag.tasks.task import Task, requester_label
from kitbag.tasks.task_processes import kill_processes
from kitbag.text.human_format import format_count
from kitbag.tools.delegation import TaskStopResult

_STOP_TIMEOUT: Final = STOP_GRACE_SECONDS + 0.3
"""Whoever runs it takes this long to write its end itself."""
_KILL_SECONDS: Final = 0.5
_POLL_SECONDS: Final = 0.2


async def stop_task(board: Board, task: Task, by: str) -> TaskStopResult:
    """Within three seconds. One that has ended stays as it is."""
    was_finished = task.is_finished
    asked: set[str] = set()
    deadline, is_late = time.monotonic() + _STOP_TIMEOUT, False
    while not was_finished and (open_ones := _unfinished_tasks(board, task.id)):
        if is_late and time.monotonic() >= deadline + 1.0:
            break  # what is left says so in the report
        seen = board.journal.last_seq()
        new = [one for one in open_ones if one.id not in asked]
        asked.update(one.id for one in new)
        if new:
            await board.request_stop(new, by)
        is_late = time.monotonic() >= deadline
        ended = [await _finish_for_owner(board, one) for one in open_ones if is_late or _has_no_live_owner(one)]
        if not ended:
            await board.journal.wait_async(seen, min(_POLL_SECONDS, max(deadline - time.monotonic(), 0.01)))
    ids = {task.id, *asked}
    left = await asyncio.to_thread(lambda: kill_processes(*ids, timeout=_KILL_SECONDS))
    await _withdraw_questions(board, asked)
    return TaskStopResult(build_report(board, board.find(task.id)), was_finished, len(asked - {task.id}), left)


def stopped_message(stopped: TaskStopResult) -> str:
    """For a person: what became of it, and of what it had begun."""
    report = stopped.report
    if stopped.was_finished:
        return f"{report.id} had ended already: {report.status}"
    others = f", with {format_count(stopped.subtask_count, 'task')} that it had begun" if stopped.subtask_count else ""
    return f"{report.id} is stopped: {report.status}{others}; processes left: {stopped.process_count}"


def _unfinished_tasks(board: Board, task_id: str) -> list[Task]:
    return [one for one in (board.find(task_id), *board.descendants(task_id)) if not one.is_finished]


def _has_no_live_owner(task: Task) -> bool:
    """It waits for somebody to begin it, or for somebody who is gone."""
    return task.status == "queued" or task.owner is None or task.owner.check_alive() is False


async def _finish_for_owner(board: Board, task: Task) -> None:
    """One that waits is begun first, so that nobody else can begin it."""
    if task.status == "queued":
        if not await board.claim(task):
            return
        task = board.find(task.id)
    await board.finish(task.id, task.run, partial_result(board, task, "cancelled"))


async def _withdraw_questions(board: Board, task_ids: set[str]) -> None:
    tasks = [board.find(task_id) for task_id in task_ids]
    if any(task.kind == "agent" for task in tasks):
        queue = ApprovalQueue(board.journal)
        for task in tasks:
            try:
                await queue.withdraw(requester_label(task.agent, task.id))
            except KitbagError:
                return  # a question that nobody needs does no harm
