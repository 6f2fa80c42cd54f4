"""Other agents for one call: on ground that is laid when the call needs it, and left when the call ends.

Satisfies tools/delegation.Delegation. Used by calls; uses house and tasks/delegation.
"""

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Self

from kitbag.mcp_server.client_sessions import Client
from kitbag.mcp_server.server_state import House
from kitbag.permissions.approvals.approval import Approvals, Approver
from kitbag.permissions.decisions.decide import Permissions
from kitbag.permissions.model import Judgement
from kitbag.tools.delegation import Errand, Report, Stopped

if TYPE_CHECKING:
    from kitbag.tasks.delegation import Delegated


class Delegating:
    def __init__(self, house: House, client: Client, approver: Approver | None) -> None:
        self._house = house
        self._client = client
        self._approver = approver
        self._stack = contextlib.AsyncExitStack()
        self._made: Delegated | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._stack.aclose()

    async def _delegated(self) -> "Delegated":
        if self._made is None:
            from kitbag.tasks.delegation import Delegated

            inherited, shared = await self._stack.enter_async_context(self._house.inherited())
            settings_file = inherited.ground.library.settings.user_file
            inherited = inherited._replace(approvals=Approvals(self._approver, settings_file))
            self._made = Delegated(lambda: inherited, self._client.id, shared=shared)
        return self._made

    @property
    def has_begun(self) -> bool:
        return self._made is not None and self._made.has_begun

    def facts(self, agent: str, resume: str) -> tuple[tuple[str, str], ...]:
        return self._made.facts(agent, resume) if self._made is not None else ()

    async def refused(self, errand: Errand, permissions: Permissions, directory: str) -> str:
        return await (await self._delegated()).refused(errand, permissions, directory)

    async def start(self, errand: Errand, progress: Callable[[str], None]) -> Report:
        report = await (await self._delegated()).start(errand, progress)
        if not report.is_finished:
            self._client.has_background = True
        return report

    async def start_command(
        self, command: str, description: str, directory: str, seconds: float, judgement: Judgement
    ) -> Report:
        return await (await self._delegated()).start_command(command, description, directory, seconds, judgement)

    async def report(self, task_id: str, seconds: float, offset: int = 0) -> Report:
        return await (await self._delegated()).report(task_id, seconds, offset)

    async def stop(self, task_id: str) -> Stopped:
        return await (await self._delegated()).stop(task_id)

    async def news(self) -> str:
        return await (await self._delegated()).news()

    def has_news(self) -> bool:
        return self._made.has_news() if self._made is not None else False

    def spent(self) -> tuple[int, float]:
        return self._made.spent() if self._made is not None else (0, 0.0)

    def unfinished(self) -> list[Report]:
        return self._made.unfinished() if self._made is not None else []
