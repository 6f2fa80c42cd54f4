"""Task delegation for one tool call: loads the agent setup on first use and releases it when the call ends.

Implements tools/delegation.Delegation. Used by tool_calls; uses server_state and tasks/delegation.
"""

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Self

import msgspec

from kitbag.mcp_server.client_sessions import ConnectedClient
from kitbag.mcp_server.server_state import ServerState
from kitbag.permissions.approvals.approval import Approvals, Approver
from kitbag.permissions.decisions.decide import Permissions
from kitbag.permissions.model import PermissionDecision
from kitbag.tools.background_switch import BackgroundSwitch
from kitbag.tools.delegation import DelegationRequest, RunningCommand, TaskReport, TaskStopResult

if TYPE_CHECKING:
    from kitbag.tasks.delegation import TaskDelegation


class CallDelegation:
    def __init__(self, state: ServerState, client: ConnectedClient, approver: Approver | None) -> None:
        self._state = state
        self._client = client
        self._approver = approver
        self._stack = contextlib.AsyncExitStack()
        self._delegation: TaskDelegation | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._stack.aclose()

    async def _open_delegation(self) -> "TaskDelegation":
        if self._delegation is None:
            from kitbag.tasks.delegation import TaskDelegation

            inherited, host = await self._stack.enter_async_context(self._state.agent_setup())
            settings_file = inherited.environment.library.settings.user_file
            inherited = msgspec.structs.replace(inherited, approvals=Approvals(self._approver, settings_file))
            self._delegation = TaskDelegation(lambda: inherited, self._client.id, host=host)
        return self._delegation

    @property
    def end_notice(self) -> str:
        return "Once it has ended, the result of your next tool call says so."

    @property
    def has_started_tasks(self) -> bool:
        return self._delegation is not None and self._delegation.has_started_tasks

    def approval_facts(self, agent: str, resume: str) -> tuple[tuple[str, str], ...]:
        return self._delegation.approval_facts(agent, resume) if self._delegation is not None else ()

    async def request_permission(self, request: DelegationRequest, permissions: Permissions, directory: str) -> str:
        return await (await self._open_delegation()).request_permission(request, permissions, directory)

    async def start(
        self,
        request: DelegationRequest,
        progress: Callable[[str], None],
        background_switch: BackgroundSwitch | None = None,
    ) -> TaskReport:
        report = await (await self._open_delegation()).start(request, progress, background_switch)
        if not report.is_finished:
            self._client.has_background_tasks = True
        return report

    async def start_command(
        self,
        command: str,
        description: str,
        directory: str,
        timeout_seconds: float,
        decision: PermissionDecision,
        started_by: tuple[str, str] = ("", ""),
    ) -> TaskReport:
        return await (await self._open_delegation()).start_command(
            command, description, directory, timeout_seconds, decision, started_by
        )

    async def adopt_command(self, command: RunningCommand) -> TaskReport:
        return await (await self._open_delegation()).adopt_command(command)

    async def report(self, task_id: str, timeout_seconds: float, offset: int = 0) -> TaskReport:
        return await (await self._open_delegation()).report(task_id, timeout_seconds, offset)

    async def wait(self, task_id: str, timeout_seconds: float) -> None:
        await (await self._open_delegation()).wait(task_id, timeout_seconds)

    async def stop(self, task_id: str) -> TaskStopResult:
        return await (await self._open_delegation()).stop(task_id)

    async def take_notifications(self) -> str:
        return await (await self._open_delegation()).take_notifications()

    def take_warnings(self) -> tuple[str, ...]:
        """Results contain them, and that is all a client sees."""
        return ()

    def has_notifications(self) -> bool:
        return self._delegation.has_notifications() if self._delegation is not None else False

    def spent(self) -> tuple[int, float]:
        return self._delegation.spent() if self._delegation is not None else (0, 0.0)

    def unfinished(self) -> list[TaskReport]:
        return self._delegation.unfinished() if self._delegation is not None else []
