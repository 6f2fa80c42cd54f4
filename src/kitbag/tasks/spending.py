"""Running cost of tasks, updated as their sessions grow: each record is read once.

Used by the chat's status of background tasks, which polls.
"""

from typing import NamedTuple

from kitbag.agent.session import STREAM_PREFIX
from kitbag.store.journal import Journal
from kitbag.tasks.reports import session_ids
from kitbag.tasks.task import Task


class _SessionCost(NamedTuple):
    seq: int = 0
    cost: float = 0.0
    unpriced: bool = False


class TaskSpending:
    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._costs: dict[str, _SessionCost] = {}

    def cost_of(self, task: Task) -> float | None:
        """US dollars; None if a price is unknown."""
        if task.kind == "command":
            return 0.0
        if task.result is not None and task.result.turns:
            return task.result.cost
        parts = [self._session_cost(session) for session in session_ids(task)]
        return None if any(part.unpriced for part in parts) else sum(part.cost for part in parts)

    def _session_cost(self, session_id: str) -> _SessionCost:
        known = self._costs.get(session_id, _SessionCost())
        for record in self._journal.read(STREAM_PREFIX + session_id, known.seq, brief=True):
            known = known._replace(seq=record.seq)
            if record.kind not in ("reply", "compacted"):
                continue
            cost = record.body.get("cost")
            if isinstance(cost, int | float):
                known = known._replace(cost=known.cost + cost)
            else:
                known = known._replace(unpriced=True)
        self._costs[session_id] = known
        return known
