"""Tasks as they are shown: live figures of what runs, and what a task cost with all that it began.

Used by the commands, and by whatever shows a board. The sums close: a whole is its own part and those of its children.
"""

import time
from collections import deque
from collections.abc import Iterable
from datetime import datetime
from typing import Any, Final, NamedTuple

from kitbag.agent.session import PREFIX
from kitbag.messages import ToolResult, message_from_json, part_from_json
from kitbag.store.journal import Journal
from kitbag.tasks.board import Board
from kitbag.tasks.reports import report_of
from kitbag.tasks.task import Task
from kitbag.text.human_format import duration, money
from kitbag.tools.delegation import Report

_LONGEST_COMMAND: Final = 200


class Costs(NamedTuple):
    id: str
    name: str
    tokens: int
    cost: float | None
    """Its own part; None where a price is not known."""
    children: "tuple[Costs, ...]" = ()

    @property
    def all_tokens(self) -> int:
        return self.tokens + sum(child.all_tokens for child in self.children)

    @property
    def all_cost(self) -> float | None:
        parts = [self.cost, *(child.all_cost for child in self.children)]
        known = [part for part in parts if part is not None]
        return sum(known) if len(known) == len(parts) else None

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


def live_tasks(board: Board, tasks: Iterable[Task]) -> list[Report]:
    return [report_of(board, task) for task in tasks]


def costs_of(board: Board, task: Task) -> Costs:
    report = report_of(board, task)
    children = [child for child in board.below(task.id) if child.parent == task.id]
    return Costs(task.id, report.name, report.tokens, report.cost, tuple(costs_of(board, child) for child in children))


def what_it_does(board: Board, task: Task, report: Report) -> str:
    """What it was begun for, so that one is known from another, and what it does now or why it failed."""
    about = task.description
    if not about and task.kind == "command":
        about = board.wish(task.id).command[:_LONGEST_COMMAND]
    return " · ".join(part for part in (about, report.error or report.activity) if part)


def fields_of(board: Board, task: Task, report: Report) -> list[tuple[str, str]]:
    """(label, value); those without a value need not be shown."""
    is_agent = not report.is_command
    return [
        ("task", task.id),
        ("agent", report.name),
        ("status", task.status),
        ("about", task.description),
        ("error", report.error),
        ("now", report.activity),
        ("exit code", "" if report.code is None else str(report.code)),
        ("turns", str(report.turns) if is_agent else ""),
        ("tokens", f"{report.tokens:,}" if is_agent else ""),
        ("cost", money(report.cost) if is_agent else ""),
        ("time", duration(seconds_of(task, report))),
        ("began", _moment(task.started or task.created)),
        ("ended", _moment(task.ended)),
        ("directory", board.wish(task.id).starts_in or task.directory),
        ("branch", report.branch),
        ("session", task.session if is_agent else ""),
        ("begun by", task.parent or task.root),
        ("begun", f"{task.run} times" if task.run > 1 else ""),
        *(("warning", warning) for warning in task.warnings),
    ]


def _moment(at: str) -> str:
    """`2026-03-02 14:20:00 UTC`, of what the journal writes."""
    return f"{at[:19].replace('T', ' ')} UTC" if at.endswith("Z") else at


def seconds_of(task: Task, report: Report) -> float:
    """How long it took, or takes so far."""
    if report.seconds or not task.started:
        return report.seconds
    return seconds_since(task.started, task.ended)


def seconds_since(at: str, until: str = "") -> float:
    """As the journal writes times; until now, if nothing else is said."""
    try:
        end = datetime.fromisoformat(until).timestamp() if until else time.time()
        return max(end - datetime.fromisoformat(at).timestamp(), 0.0)
    except ValueError:
        return 0.0


class Step(NamedTuple):
    """A call that a task has made."""

    title: str
    summary: str
    is_error: bool = False
    is_done: bool = False


def last_steps(journal: Journal, task: Task, most: int = 12) -> list[Step]:
    """What it did last, of what can be read."""
    from kitbag.agent.execute import title

    calls: deque[tuple[str, str]] = deque(maxlen=most)
    ends: dict[str, Step] = {}
    for record in journal.read(PREFIX + task.session):
        try:
            if record.kind == "reply":
                message = message_from_json(record.body["message"])
                calls.extend((call.id, title(call.name, call.arguments)) for call in message.calls)
            elif record.kind == "result":
                result = part_from_json(record.body["result"])
                if isinstance(result, ToolResult):
                    summary = str(record.body.get("summary", ""))
                    ends[result.call_id] = Step("", summary, result.is_error, is_done=True)
        except (KeyError, TypeError, ValueError, AttributeError):
            continue  # damaged, or of another version
    unknown = Step("", "")
    return [ends.get(call_id, unknown)._replace(title=name) for call_id, name in calls]


class LiveReports:
    """Reports of many tasks, asked for again and again: what has not changed is not read again."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._known: dict[str, tuple[Task, int, Report]] = {}

    def of(self, task: Task) -> Report:
        """Without what a command has printed."""
        if task.kind == "command":
            return report_of(self._board, task, 0, 0)
        last = None if task.is_finished else self._board.journal.last(PREFIX + task.session)
        seq = last.seq if last is not None else 0
        known = self._known.get(task.id)
        if known is None or known[:2] != (task, seq):
            known = (task, seq, report_of(self._board, task))
            self._known[task.id] = known
        return known[2]
