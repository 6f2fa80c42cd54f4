"""Tasks as users see them: live figures of running tasks, and the cost of a task with its subtasks.

Used by `kitbag tasks` and `/tasks`. A total is always the task's own part plus its children's totals.
"""

import time
from collections import deque
from collections.abc import Iterable
from datetime import datetime
from typing import Any, Final

import msgspec

from kitbag.agent.session import STREAM_PREFIX
from kitbag.messages import ToolResult, message_from_json, part_from_json
from kitbag.store.journal import Journal, NotFetchedError
from kitbag.tasks.board import Board
from kitbag.tasks.fleet import waiting_reason
from kitbag.tasks.reports import build_report, waiting_messages
from kitbag.tasks.task import Task, TaskRequest
from kitbag.text.hidden_characters import collapse_whitespace
from kitbag.text.human_format import format_cost, format_count, format_duration
from kitbag.tools.delegation import TaskReport

COSTS_TITLE: Final = "Cost, including subtasks"
_MAX_COMMAND_CHARS: Final = 200


class TaskCosts(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    name: str
    tokens: int
    cost: float | None
    """Its own part; None if a price is unknown."""
    children: "tuple[TaskCosts, ...]" = ()

    @property
    def all_tokens(self) -> int:
        return self.tokens + sum(child.all_tokens for child in self.children)

    @property
    def all_cost(self) -> float | None:
        parts = [self.cost, *(child.all_cost for child in self.children)]
        known_costs = [part for part in parts if part is not None]
        return sum(known_costs) if len(known_costs) == len(parts) else None

    def to_json(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "name": self.name,
            "tokens": self.tokens,
            "cost": self.cost,
            "all_tokens": self.all_tokens,
            "all_cost": self.all_cost,
            "children": [child.to_json() for child in self.children],
        }


def report_tasks(board: Board, tasks: Iterable[Task]) -> list[TaskReport]:
    return [build_report(board, task) for task in tasks]


def compute_task_costs(board: Board, task: Task) -> TaskCosts:
    report = build_report(board, task)
    children = [child for child in board.descendants(task.id) if child.parent == task.id]
    return TaskCosts(
        id=task.id,
        name=report.name,
        tokens=report.tokens,
        cost=report.cost,
        children=tuple(compute_task_costs(board, child) for child in children),
    )


def cost_lines(costs: TaskCosts, indent: str = "") -> list[str]:
    """The cost of a task, and below it those of its subtasks."""
    own = f"{indent}{collapse_whitespace(costs.name)} {costs.id}: {costs.tokens:,} tokens, {format_cost(costs.cost)}"
    total = f"  (total {costs.all_tokens:,}, {format_cost(costs.all_cost)})" if costs.children else ""
    return [own + total, *(line for child in costs.children for line in cost_lines(child, f"{indent}  "))]


def request_sections(request: TaskRequest) -> list[tuple[str, str]]:
    """(title, text): the command or the prompt, and the last message to a resumed task."""
    sections = [("Command", request.command) if request.command else ("Prompt", request.prompt)]
    return [*sections, ("Follow-up", request.message)] if request.message else sections


def output_title(task: Task) -> str:
    return "Output so far" if not task.is_finished else "Output" if task.kind == "command" else "Answer"


def describe_activity(board: Board, task: Task, report: TaskReport) -> str:
    """The task's description, and its current activity or error."""
    about = task.description
    if not about and task.kind == "command":
        about = board.request(task.id).command[:_MAX_COMMAND_CHARS]
    return " · ".join(part for part in (about, report.error or report.activity) if part)


def task_fields(board: Board, task: Task, report: TaskReport) -> list[tuple[str, str]]:
    """(label, value); pairs without a value are not shown."""
    is_agent = not report.is_command
    return [
        ("task", task.id),
        ("agent", report.name),
        ("status", task.shown_status),
        ("waits for", waiting_reason(board, task)),
        ("queue", task.queue if task.queue != board.journal.home_queue else ""),
        ("priority", str(task.priority) if task.priority else ""),
        ("key", task.key),
        ("description", task.description),
        ("error", report.error),
        ("activity", report.activity),
        ("exit code", "" if report.exit_code is None else str(report.exit_code)),
        ("turns", str(report.turns) if is_agent else ""),
        ("tokens", f"{report.tokens:,}" if is_agent else ""),
        ("cost", format_cost(report.cost) if is_agent else ""),
        ("duration", format_duration(task_seconds(task, report))),
        ("started", format_time(task.started or task.created)),
        ("ended", format_time(task.ended)),
        ("directory", board.request(task.id).start_directory or task.directory),
        ("repository", task.repository),
        ("snapshot", task.snapshot[:12]),
        ("branch", report.branch),
        ("changes", f"patch; apply it with `kitbag tasks apply {task.id}`" if report.patch else ""),
        ("session", task.session if is_agent else ""),
        ("started by", task.parent or task.root),
        ("runs", str(task.run) if task.run > 1 else ""),
        *(("pending message", text) for text in waiting_messages(board, task) if not task.is_finished),
        *(("warning", warning) for warning in report.warnings),
    ]


def format_time(at: str) -> str:
    """`2026-03-02 14:20:00 UTC`, from a journal timestamp."""
    return f"{at[:19].replace('T', ' ')} UTC" if at.endswith("Z") else at


def task_seconds(task: Task, report: TaskReport) -> float:
    """How long it took, or has taken so far."""
    if report.seconds or not task.started:
        return report.seconds
    return seconds_since(task.started, task.ended)


def seconds_since(at: str, until: str = "") -> float:
    """Between journal timestamps; until now by default."""
    try:
        end = datetime.fromisoformat(until).timestamp() if until else time.time()
        return max(end - datetime.fromisoformat(at).timestamp(), 0.0)
    except ValueError:
        return 0.0


_BAR_STATUS: Final = {
    "completed": "done",
    "running": "running",
    "queued": "waiting",
    "waiting-approval": "waiting",
    "cancelled": "stopped",
    "interrupted": "stopped",
}
"""Every other status is a failure."""


def draw_tasks(board: Board, tasks: Iterable[Task], title: str = "Tasks", *, with_style: bool = True) -> str:
    """The tasks on a timeline, as SVG, each below the one that started it."""
    from kitbag.views.pictures.task_timeline import TaskBar, draw_task_timeline

    ordered = _order_as_tree(tasks)
    bars: list[TaskBar] = []
    reports = [build_report(board, task, 0, 0) for _, task in ordered]
    for (depth, task), report in zip(ordered, reports, strict=True):
        start = _timestamp(task.started or task.created)
        about = collapse_whitespace(describe_activity(board, task, report))
        figures = "" if report.is_command else f"{format_count(report.turns, 'turn')}, {format_cost(report.cost)}"
        bars.append(
            TaskBar(
                key=task.id,
                label=f"{report.name}: {about}" if about else report.name,
                depth=depth,
                status=_BAR_STATUS.get(task.status, "failed"),
                start=start,
                end=max(_timestamp(task.ended) if task.ended else time.time(), start),
                summary=format_duration(task_seconds(task, report)),
                detail=f"{task.id}, {figures}" if figures else task.id,
            )
        )
    costs = [report.cost for report in reports if not report.is_command]
    total = None if None in costs else sum(cost for cost in costs if cost is not None)
    subtitle = f"{format_count(len(bars), 'task')} · {format_cost(total)}"
    return draw_task_timeline(bars, title, subtitle, with_style=with_style)


def _order_as_tree(tasks: Iterable[Task]) -> list[tuple[int, Task]]:
    """(depth, task), oldest first; a task whose parent is not among them starts a tree."""
    ordered = sorted(tasks, key=lambda task: (task.created, task.id))
    known = {task.id for task in ordered}
    children: dict[str, list[Task]] = {}
    for task in ordered:
        children.setdefault(task.parent if task.parent in known else "", []).append(task)
    found: list[tuple[int, Task]] = []
    waiting = [(0, task) for task in reversed(children.get("", []))]
    while waiting:
        depth, task = waiting.pop()
        found.append((depth, task))
        waiting += [(depth + 1, child) for child in reversed(children.get(task.id, []))]
    return found


def _timestamp(at: str) -> float:
    try:
        return datetime.fromisoformat(at).timestamp()
    except ValueError:
        return time.time()


class TaskStep(msgspec.Struct, frozen=True, kw_only=True):
    """A call that a task made."""

    title: str
    summary: str
    is_error: bool = False
    is_done: bool = False


def read_last_steps(journal: Journal, task: Task, max_steps: int = 12) -> list[TaskStep]:
    """The last calls of a task; damaged records are skipped."""
    from kitbag.agent.execute import describe_call

    calls: deque[tuple[str, str]] = deque(maxlen=max_steps)
    ends: dict[str, TaskStep] = {}
    try:
        records = journal.read(STREAM_PREFIX + task.session)
    except NotFetchedError:  # shown at the next look
        return []
    for record in records:
        try:
            if record.kind == "reply":
                message = message_from_json(record.body["message"])
                calls.extend((call.id, describe_call(call.name, call.arguments)) for call in message.calls)
            elif record.kind == "result":
                result = part_from_json(record.body["result"])
                if isinstance(result, ToolResult):
                    summary = str(record.body.get("summary", ""))
                    ends[result.call_id] = TaskStep(title="", summary=summary, is_error=result.is_error, is_done=True)
        except (KeyError, TypeError, ValueError, AttributeError):
            continue  # damaged, or of another version
    unknown = TaskStep(title="", summary="")
    return [msgspec.structs.replace(ends.get(call_id, unknown), title=name) for call_id, name in calls]


class ReportCache:
    """Caches the reports of many tasks that are polled repeatedly."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._reports: dict[str, tuple[Task, int, TaskReport]] = {}

    def get(self, task: Task) -> TaskReport:
        """Without a command's output."""
        if task.kind == "command":
            return build_report(self._board, task, 0, 0)
        last = None if task.is_finished else self._board.journal.last(STREAM_PREFIX + task.session)
        seq = last.seq if last is not None else 0
        cached = self._reports.get(task.id)
        if cached is None or cached[:2] != (task, seq):
            is_fetched = self._board.journal.is_fetched(STREAM_PREFIX + task.session)
            cached = (task, seq if is_fetched else -1, build_report(self._board, task))
            self._reports[task.id] = cached
        return cached[2]

    def last_seq(self, task: Task) -> int:
        """The last record of its session when its report was built; 0 for a finished task."""
        cached = self._reports.get(task.id)
        return cached[1] if cached is not None else 0
