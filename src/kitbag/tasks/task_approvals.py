"""Maps questions in the approval queue to their tasks.

Used by the views and commands that show tasks. A question carries the label of its task, including foreground children
of a worker's task; ids on the board may be outdated after a restart.
"""

from collections.abc import Iterable

from kitbag.permissions.approvals.queue import ApprovalQueue, PendingApproval
from kitbag.tasks.board import Board
from kitbag.tasks.task import Task, requester_label


def pending_task_questions(queue: ApprovalQueue, tasks: Iterable[Task]) -> list[tuple[Task, PendingApproval]]:
    """Oldest first."""
    waiting = queue.pending()
    if not waiting:
        return []
    askers = {requester_label(task.agent, task.id): task for task in tasks if task.kind == "agent"}
    return [(askers[one.request.asked_by], one) for one in waiting if one.request.asked_by in askers]


def with_descendants(board: Board, task: Task) -> list[Task]:
    return [task, *board.descendants(task.id)]
