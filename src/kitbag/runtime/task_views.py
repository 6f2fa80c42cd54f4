"""Tasks as they are shown: live figures of what runs, and what a task cost with all that it began.

Used by the commands, and by whatever shows a board. The sums close: a whole is its own part and those of its children.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

from kitbag.runtime.task_reports import report_of
from kitbag.tasks.board import Board
from kitbag.tasks.model import Task
from kitbag.tools.delegation import Report


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
