"""Reads the tasks and pending approvals of a chat's session, and of its earlier sessions, as the journal grows.

Used by background. Reads each record once and reports each end and each question once. Uses tasks/board and
permissions/approvals.
"""

import contextlib
import json
import time
from itertools import chain
from typing import Final

import msgspec

from kitbag.agent.execute import describe_call
from kitbag.permissions.approvals.queue import ApprovalQueue, PendingApproval
from kitbag.store.journal import Journal
from kitbag.tasks.board import Board
from kitbag.tasks.notifications import finished_background_tasks
from kitbag.tasks.spending import TaskSpending
from kitbag.tasks.task import Task
from kitbag.tasks.task_approvals import pending_task_questions
from kitbag.tasks.worker_process import ensure_tasks_hosted
from kitbag.text.human_format import format_duration
from kitbag.views.blocks import Block, NoticeBlock
from kitbag.views.tasks import seconds_since

_CHECK_SECONDS: Final = 2.0
"""How often to check that a worker runs the queued tasks."""
_MAX_CHECK_SECONDS: Final = 60.0
"""Longest interval, if workers keep exiting."""


class BackgroundSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    running: int
    questions: int
    cost: float | None
    has_unreported: bool
    """A task ended, not canceled, and the model has not been notified."""
    blocks: tuple[Block, ...]
    """What the user has not seen yet."""


class BackgroundWatcher:
    def __init__(
        self, journal: Journal, session: str, kitbag_home: str, earlier: "BackgroundWatcher | None" = None
    ) -> None:
        """Reads the journal. `earlier`: the watcher of the session before. Raises StoreError."""
        self._journal = journal
        self._session = session
        self._home = kitbag_home
        self._board = Board(journal)
        self._board.refresh()
        self._queue = ApprovalQueue(journal)
        self._queue.pending()
        self._spending = TaskSpending(journal)
        self._last_seq = -1
        self.sessions = [session, *self._sessions_with_tasks(earlier)]
        """This one, and those before it whose tasks had not ended when this one was opened."""
        # Ends that the model was notified of were shown to the user, too.
        self._reported_ends = {
            _end_key(task) for task in finished_background_tasks(self._board, session) if task.notified
        }
        self._reported_ends |= earlier._reported_ends if earlier is not None else set()
        self._reported_questions: set[str] = set()
        self._next_check = 0.0
        self._check_seconds = _CHECK_SECONDS

    def _sessions_with_tasks(self, earlier: "BackgroundWatcher | None") -> list[str]:
        return [
            session
            for session in (earlier.sessions if earlier is not None else ())
            if session != self._session and any(not task.is_finished for task in self._board.descendants(session))
        ]

    def has_new_records(self) -> bool:
        return self._journal.last_seq() != self._last_seq

    def snapshot(self) -> BackgroundSnapshot:
        self._last_seq = self._journal.last_seq()
        self._board.refresh()
        tasks = [task for session in self.sessions for task in self._board.descendants(session)]
        own, *others = (finished_background_tasks(self._board, session) for session in self.sessions)
        pending = pending_task_questions(self._queue, tasks)
        costs = [self._spending.cost_of(task) for task in self._board.descendants(self._session)]
        known = [cost for cost in costs if cost is not None]
        return BackgroundSnapshot(
            running=sum(task.background and not task.is_finished for task in tasks),
            questions=len(pending),
            cost=sum(known) if len(known) == len(costs) else None,
            has_unreported=any(not task.notified and task.status != "cancelled" for task in own),
            blocks=(*self._new_ends([*own, *chain.from_iterable(others)]), *self._new_questions(pending)),
        )

    def _new_ends(self, ended: list[Task]) -> list[Block]:
        new = [task for task in ended if _end_key(task) not in self._reported_ends]
        self._reported_ends |= {_end_key(task) for task in new}
        return [_describe_end(task) for task in new]

    def _new_questions(self, pending: list[tuple[Task, PendingApproval]]) -> list[Block]:
        new = [(task, one) for task, one in pending if one.request.id not in self._reported_questions]
        self._reported_questions |= {one.request.id for _, one in new}
        return [_describe_question(task, one) for task, one in new]

    def is_worker_check_due(self) -> bool:
        return time.monotonic() >= self._next_check

    async def ensure_worker(self) -> str:
        """Starts a worker if none runs, also after one crashed. Returns the problem, or an empty string."""
        hosting = await ensure_tasks_hosted(self._board, self._home)
        self._check_seconds = min(self._check_seconds * 2, _MAX_CHECK_SECONDS) if hosting.started else _CHECK_SECONDS
        self._next_check = time.monotonic() + self._check_seconds
        return hosting.problem


def _end_key(task: Task) -> tuple[str, int]:
    """Identifies one end of a task: a resumed task ends again."""
    return task.id, task.ended_run


def _describe_end(task: Task) -> NoticeBlock:
    end = task.result
    is_ok = task.status in ("completed", "empty", "cancelled")
    about = f" ({task.description})" if task.description else ""
    seconds = seconds_since(task.started, task.ended) if task.started else 0.0
    error = f": {end.error}" if end is not None and end.error else ""
    text = f"{task.agent or 'Bash'} {task.id}{about} ended after {format_duration(seconds)}: {task.status}{error}"
    return NoticeBlock("info" if is_ok else "warning", text, f"show it with /tasks show {task.id}")


def _describe_question(task: Task, pending: PendingApproval) -> NoticeBlock:
    question = pending.request
    if question.tool == "AskUser":
        from kitbag.tools.ask_user import parse_questions

        with contextlib.suppress(msgspec.MsgspecError):
            asked = parse_questions(question.arguments)[0].text
            return NoticeBlock("info", f"{task.agent} {task.id} asks: {asked}", f"answer with /tasks answer {task.id}")
    try:
        call = describe_call(question.tool, json.loads(question.arguments))
    except (ValueError, AttributeError):
        call = question.tool
    return NoticeBlock(
        "warning", f"{task.agent} {task.id} needs approval: {call}", f"answer with /tasks answer {task.id}"
    )
