"""Reads the tasks of all processes from the journal, as rows of the tree. Blocks.

Used by task_feed in a thread, and by task_routes. Uses chat/task_blocks, which lists tasks for the terminal.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncGenerator
from typing import Any, Final

import msgspec

from kitbag.agent.session_list import named_sessions
from kitbag.agent.shield import run_to_completion
from kitbag.assembly.open_journal import open_journal
from kitbag.assembly.open_store import has_journal
from kitbag.chat.task_blocks import STATUS_LABELS, STATUS_TONES, ListedTask, TaskList
from kitbag.errors import InvalidError, NotFoundError
from kitbag.library.scopes import Places
from kitbag.permissions.approvals.queue import ApprovalQueue, PendingApproval
from kitbag.store.journal import Journal
from kitbag.tasks.board import Board
from kitbag.tasks.fleet import queue_label, read_fleet
from kitbag.tasks.resume import check_resumable
from kitbag.tasks.task import Task
from kitbag.tasks.task_approvals import pending_task_questions
from kitbag.text.human_format import format_cost, format_duration
from kitbag.views.rendering.styled_text import Cleaner
from kitbag.views.tasks import task_seconds
from kitbag.web.topics import Payload

MAX_ROWS: Final = 1_000
"""Of this directory, and again of all."""
_MAX_TEXT: Final = 300
_MAX_TRIES: Final = 5
"""To find a session's title."""


@contextlib.asynccontextmanager
async def open_board(places: Places) -> AsyncGenerator[Board, None]:
    """Raises NotFoundError if there is no journal yet: reading creates none."""
    if not has_journal(places.kitbag_home):
        raise NotFoundError("no tasks yet", "start one: kitbag agents run Explore 'What is this?' --background")
    journal = await asyncio.to_thread(open_journal, places.kitbag_home)
    try:
        yield Board(journal)
    finally:
        await run_to_completion(asyncio.to_thread(journal.close))


class BoardReader:
    """Reads what the topic shows. Blocks."""

    def __init__(self, board: Board, directory: str) -> None:
        self.rows: list[Payload] = []
        self.titles: dict[str, str] = {}
        """Of the sessions at the top of the trees."""
        self.omitted = 0
        self.pending: list[tuple[Task, PendingApproval]] = []
        self.fleet: Payload = {}
        """Workers and queues; empty if there is only this machine's queue."""
        self._board = board
        self._clean = Cleaner(board.journal.redactor.redact_text)
        self._lists = (TaskList(board, "", directory, MAX_ROWS), TaskList(board, "", "", MAX_ROWS))
        self._queue = ApprovalQueue(board.journal)
        self._tries: Counter[str] = Counter()

    @property
    def has_live_output(self) -> bool:
        """Whether something may change without a record in the journal."""
        return any(row["is_command"] and not row["is_finished"] for row in self.rows)

    def read_fleet(self) -> None:
        """Changes also without a record."""
        if not self._board.journal.is_shared:
            return
        status = read_fleet(self._board)
        workers = [
            {
                "id": self._clean.line(one.id),
                "running": one.running,
                "concurrency": one.concurrency,
                "queues": [self._clean.line(queue_label(name)) for name in one.queues],
                "providers": [self._clean.line(name) for name in one.providers],
                "version": self._clean.line(one.version),
                "is_draining": one.is_draining,
            }
            for one in status.workers
        ]
        queues = [
            {
                **msgspec.to_builtins(one),
                "name": self._clean.line(queue_label(one.name)),
                "oldest": format_duration(one.oldest_seconds) if one.queued else "",
                "waits_for": self._clean.line(one.waits_for),
            }
            for one in status.queues
        ]
        self.fleet = {"workers": workers, "queues": queues}

    def read(self) -> None:
        listed = {one.task.id: one for tasks in self._lists for one in tasks.refresh()}
        ordered = sorted(listed.values(), key=lambda one: one.task.created, reverse=True)
        self.omitted = max(self._board.count() - len(ordered), 0)
        self.rows = [describe_task(one, self._clean) for one in ordered]
        self.pending = pending_task_questions(self._queue, (one.task for one in ordered if not one.task.is_finished))
        for root in {one.task.root for one in ordered if one.task.root and not self.titles.get(one.task.root)}:
            if self._tries[root] < _MAX_TRIES:  # it gets its title with the first message
                self._tries[root] += 1
                self.titles[root] = self._clean.line(_session_title(self._board.journal, root))[:_MAX_TEXT]


def _session_title(journal: Journal, session_id: str) -> str:
    found = next((one for one in named_sessions(journal, session_id) if one.id == session_id), None)
    return found.about if found is not None else ""


def describe_task(listed: ListedTask, clean: Cleaner) -> dict[str, Any]:
    """A row of the tree. The browser counts the duration of a running task."""
    task, report = listed.task, listed.report
    is_running = bool(task.started) and not task.is_finished
    return {
        "id": task.id,
        "parent": task.parent,
        "root": task.root,
        "directory": task.directory,
        "name": clean.line(report.name)[:_MAX_TEXT],
        "about": clean.line(listed.activity)[:_MAX_TEXT],
        "status": task.status,
        "label": STATUS_LABELS.get(task.status, task.shown_status),
        "tone": STATUS_TONES.get(task.status, "plain"),
        "is_background": task.background,
        "is_command": report.is_command,
        "is_finished": task.is_finished,
        "is_resumable": _is_resumable(task),
        "turns": report.turns,
        "tokens": report.tokens,
        "cost": "" if report.is_command else format_cost(report.cost),
        "size": report.output_size,
        "created": task.created,
        "has_started": bool(task.started),
        "started": task.started if is_running else "",
        "seconds": 0.0 if is_running else round(task_seconds(task, report), 1),
        "version": listed.version,
    }


def _is_resumable(task: Task) -> bool:
    try:
        check_resumable(task)
    except InvalidError:
        return False
    return True
