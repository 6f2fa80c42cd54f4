"""What all agents of one process share to run tasks: the board, stop signals, concurrency limits, and work that no call
waits for.

Used by delegation, the worker and the MCP server.
"""

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, Final

from kitbag.errors import KitbagError

if TYPE_CHECKING:  # most runs start no agent; imported when one does
    from kitbag.tasks.board import Board
    from kitbag.tasks.task import Task, TaskRequest

MAX_DEPTH: Final = 3
MAX_CONCURRENT: Final = 20


class TaskHost:
    """Shared by all agents of one process: the board, stop signals and concurrency limits."""

    def __init__(self, board: "Board", max_concurrent: int = MAX_CONCURRENT) -> None:
        from kitbag.tasks.stop_signals import StopSignals

        self.board = board
        self.signals = StopSignals(board)
        self._local_tasks: set[asyncio.Task[Any]] = set()
        self._moved_agents: set[str] = set()
        self._slots = [asyncio.Semaphore(max_concurrent) for _ in range(MAX_DEPTH + 1)]

    def slot(self, task: "Task") -> asyncio.Semaphore:
        """The limit applies per depth: a task that waits for its children never blocks their start."""
        return self._slots[min(task.depth, MAX_DEPTH)]

    def run_locally(self, task: "Task", request: "TaskRequest") -> None:
        """Runs a command that no worker can run; it ends with this process."""
        from kitbag.tasks.command_task import CommandTask

        async def run() -> None:
            with contextlib.suppress(KitbagError):  # a task that can't be written stays as it was on the board
                if await self.board.claim(task):
                    await CommandTask(self.board, self.board.find(task.id), self.signals).run(request)

        self.keep(asyncio.create_task(run()))

    def keep(self, running: "asyncio.Task[Any]") -> None:
        """Work of a task that no call waits for; it ends with this process."""
        self._local_tasks.add(running)
        running.add_done_callback(self._local_tasks.discard)

    def keep_agent(self, task_id: str, running: "asyncio.Task[Any]") -> None:
        """An agent that the user moved to the background."""
        self._moved_agents.add(task_id)
        self.keep(running)

    async def close(self, kitbag_home: str) -> None:
        """Ends what runs in this process; a worker continues with agents that were moved to the background."""
        running = list(self._local_tasks)
        for one in running:
            one.cancel()
        if running:
            await asyncio.wait(running)
        for task_id in self._moved_agents:
            from kitbag.tasks.resume import resume_task

            task = self.board.find(task_id)
            if task.status == "cancelled" and not task.stop_requested:
                with contextlib.suppress(KitbagError):  # it can be resumed later
                    await resume_task(self.board, task, "", kitbag_home)
