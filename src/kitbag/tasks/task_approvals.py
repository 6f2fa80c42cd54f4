"""Which questions of the queue belong to which tasks.

Used by whoever shows tasks. A question is asked under the name of its task, also where that runs in front of one that
a worker hosts; its number on the board may be another one after a restart.
"""

from collections.abc import Iterable

from kitbag.permissions.approvals.queue import ApprovalQueue, PendingApproval
from kitbag.tasks.board import Board
from kitbag.tasks.task import Task, requester_label


def pending_task_questions(queue: ApprovalQueue, tasks: Iterable[Task]) -> list[tuple[Task, PendingApproval]]:
    """The oldest first."""
    waiting = queue.pending()
    if not waiting:
        return []
    askers = {requester_label(task.agent, task.id): task for task in tasks if task.kind == "agent"}
    return [(askers[one.request.asked_by], one) for one in waiting if one.request.asked_by in askers]


def with_descendants(board: Board, task: Task) -> list[Task]:
    return [task, *board.descendants(task.id)]
