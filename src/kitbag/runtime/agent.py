"""The Agent of every interface: a session with its model, prompt, tools and permissions; it can start other agents.

    async with Agent("anthropic/claude-sonnet-4-5") as agent, agent.run("What does this project do?") as run:
        async for event in run: ...

Entering it opens the journal and chooses the model; leaving it closes both. `ask` is for scripts.
"""

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from kitbag.agent.ask_model import Emit
from kitbag.agent.inbox import InboxMessage
from kitbag.agent.session_list import newest_session
from kitbag.assembly.base_agent import BaseAgent
from kitbag.assembly.run_options import Options
from kitbag.errors import UsageError
from kitbag.events import Notice, RunEnded
from kitbag.messages import Image
from kitbag.runtime.session_in_use import SessionInUseError
from kitbag.runtime.session_locks import share_session
from kitbag.store.journal_prune import is_pruning_due
from kitbag.store.private_files import StoreError
from kitbag.tasks.delegation import TaskDelegation, import_for_start
from kitbag.text.human_format import format_count

_IDLE_SECONDS: Final = 0.05
"""By then the request has been sent; no model replies sooner."""
__all__ = ["Agent", "Options", "ask", "newest_session"]


class Agent(BaseAgent):
    _import_timer: asyncio.TimerHandle | None = None

    async def _open(self) -> None:
        await super()._open()
        self._exit_stack.push_async_callback(self._close_delegation)
        days = int(self.environment.library.settings.get("store.retention_days"))
        home = self.environment.places.kitbag_home
        with contextlib.suppress(StoreError):  # another process is busy with the journal; the next start tries again
            if not is_pruning_due(self.journal, days):
                return
            from kitbag.runtime.retention import prune_daily

            report = await asyncio.to_thread(prune_daily, self.journal, home, days, self.session.id)
            if report is not None:
                text = f"deleted {format_count(len(report.sessions), 'session')} and the data of "
                text += f"{format_count(len(report.tasks), 'task')} unused for {days} days"
                self.notices.append(
                    Notice(severity="info", text=text, fix="keep them longer with store.retention_days")
                )

    async def _close_delegation(self) -> None:
        if isinstance(self.delegation, TaskDelegation):
            await self.delegation.close()

    def move_to_background(self) -> int:
        """Commands and agents that the run waits for continue in the background, and the run goes on without them.
        Returns how many."""
        return self._background_switch.request()

    def _on_request(self) -> None:
        super()._on_request()
        self.import_ahead(_IDLE_SECONDS)

    def import_ahead(self, seconds: float) -> None:
        """Imports what starting an agent needs in a moment without work: in the chat while the user types, otherwise
        while the model's first reply is awaited."""
        if self.delegation is not None and self._import_timer is None:
            self._import_timer = asyncio.get_running_loop().call_later(seconds, import_for_start)

    async def _run_request(
        self, request: str, images: Sequence[Image], message: InboxMessage | None, first_later: int, emit: Emit
    ) -> RunEnded:
        """An agent of a task is restarted with what its answer asks for. Here only the user can give it that, so a
        completed run failed if its answer asks for something."""
        ended = await super()._run_request(request, images, message, first_later, emit)
        if self.definition is None or ended.status != "completed":
            return ended
        from kitbag.tasks.missing_needs import describe_needs

        problems = describe_needs(ended.text, self.skills)
        for problem in problems:
            emit(Notice(severity="warning", text=problem.problem, fix=problem.fix))
        if not problems:
            return ended
        return msgspec.structs.replace(ended, status="failed", error="the agent lacks a skill or file it needs")

    def make_delegation(self) -> TaskDelegation:
        return TaskDelegation(self.parent_context, self.session.id, may_have_tasks=bool(self.options.resume))

    async def claim_session(self, kitbag_home: str) -> None:
        """Held until the agent is closed."""
        if self.options.resume and not self.options.fork:
            self._check_no_task_runs()
        self._exit_stack.enter_context(share_session(kitbag_home, self.session.id))
        if self.journal.is_shared:
            from kitbag.runtime.session_leases import lease_session

            await self._exit_stack.enter_async_context(lease_session(self.session))

    def _check_no_task_runs(self) -> None:
        """Raises InvalidError if the session is that of a task that has not ended."""
        from kitbag.tasks.board import Board

        task = Board(self.journal).get(self.session.id)
        if task is not None and not task.is_finished:
            fix = f"wait for it, stop it with `kitbag tasks stop {task.id}`, or resume a copy with --fork"
            raise SessionInUseError(f"session {task.session} belongs to task {task.id}, which is {task.status}", fix)


def ask(request: str, model: str = "", **options: Any) -> RunEnded:
    """Sends one request and returns how the run ended. `options`: fields of Options, such as `directory`, `mode` or
    `limits`, and further arguments of Agent. Raises KitbagError for errors before the run starts."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(_ask(request, model, options))
    raise UsageError("an event loop is already running", "use `async with Agent(...)` instead of ask()")


async def _ask(request: str, model: str, options: dict[str, Any]) -> RunEnded:
    known = Options.__struct_fields__
    run_options = {name: value for name, value in options.items() if name in known}
    agent_arguments = {name: value for name, value in options.items() if name not in known}
    unknown = sorted(set(agent_arguments) - {"provider", "approver", "journal", "retry_policy"})
    if unknown:
        raise UsageError(f"ask() has no option {unknown[0]!r}", f"valid options: {', '.join(known)}")
    async with Agent(model, options=Options(**run_options), **agent_arguments) as agent, agent.run(request) as run:
        return await run.wait()
