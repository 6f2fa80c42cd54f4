"""What tasks have cost until now, followed as their conversations grow: each record is read once.

Used by the chat's watch over background work, which asks again and again.
"""

from typing import NamedTuple

from kitbag.agent.session import PREFIX
from kitbag.store.journal import Journal
from kitbag.tasks.reports import sessions_of
from kitbag.tasks.task import Task


class _Read(NamedTuple):
    seq: int = 0
    cost: float = 0.0
    unpriced: bool = False


class Spending:
    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._read: dict[str, _Read] = {}

    def of(self, task: Task) -> float | None:
        """US dollars; None where a price is not known."""
        if task.kind == "command":
            return 0.0
        if task.end is not None and task.end.turns:
            return task.end.cost
        parts = [self._of_session(session) for session in sessions_of(task)]
        return None if any(part.unpriced for part in parts) else sum(part.cost for part in parts)

    def _of_session(self, session_id: str) -> _Read:
        found = self._read.get(session_id, _Read())
        for record in self._journal.read(PREFIX + session_id, found.seq):
            found = found._replace(seq=record.seq)
            if record.kind not in ("reply", "compacted"):
                continue
            cost = record.body.get("cost")
            if isinstance(cost, int | float):
                found = found._replace(cost=found.cost + cost)
            else:
                found = found._replace(unpriced=True)
        self._read[session_id] = found
        return found
