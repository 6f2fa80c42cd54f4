"""Delegation that is made when it is first needed: most runs start no agent, and what it takes is much to import.

Used by Agent for the one that a person talks to; passes everything on to delegation.
"""

from collections.abc import Callable

from kitbag.permissions.decide import Permissions
from kitbag.permissions.model import Judgement
from kitbag.tools.delegation import Delegation, Errand, Report, Stopped


class LaterDelegation:
    def __init__(self, make: Callable[[], Delegation], *, has_past: bool) -> None:
        """`has_past`: work may be on the board that was begun before, by an earlier beginning of the same session."""
        self._make = make
        self._has_past = has_past
        self._made: Delegation | None = None

    @property
    def _inner(self) -> Delegation:
        if self._made is None:
            self._made = self._make()
        return self._made

    @property
    def has_begun(self) -> bool:
        """Whether there may be work on the board."""
        return self._made is not None or self._has_past

    def facts(self, agent: str, resume: str) -> tuple[tuple[str, str], ...]:
        return self._inner.facts(agent, resume)

    async def refused(self, errand: Errand, permissions: Permissions, directory: str) -> str:
        return await self._inner.refused(errand, permissions, directory)

    async def start(self, errand: Errand, progress: Callable[[str], None]) -> Report:
        return await self._inner.start(errand, progress)

    async def start_command(
        self, command: str, description: str, directory: str, seconds: float, judgement: Judgement
    ) -> Report:
        return await self._inner.start_command(command, description, directory, seconds, judgement)

    async def report(self, task_id: str, seconds: float, offset: int = 0) -> Report:
        return await self._inner.report(task_id, seconds, offset)

    async def stop(self, task_id: str) -> Stopped:
        return await self._inner.stop(task_id)

    async def news(self) -> str:
        return await self._inner.news() if self.has_begun else ""

    def has_news(self) -> bool:
        return self._inner.has_news() if self.has_begun else False

    def spent(self) -> tuple[int, float]:
        return self._inner.spent() if self.has_begun else (0, 0.0)

    def unfinished(self) -> list[Report]:
        return self._inner.unfinished() if self.has_begun else []
