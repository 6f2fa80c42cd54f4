"""Tells tasks in this process when to stop, whichever process asked for it.

One follower of the board serves all tasks, so a thousand cost as much as one. Used by runner and command_task.
"""

import asyncio
import contextlib
from collections.abc import Generator

from kitbag.store.private_files import StoreError
from kitbag.tasks.board import Board
from kitbag.tasks.task import Task

_RETRY_SECONDS = 0.5
"""Seconds before a failed read of the journal is repeated."""


class StopSignals:
    """For one event loop."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._waiting: dict[str, dict[int, asyncio.Event]] = {}
        self._follower: asyncio.Task[None] | None = None

    @contextlib.contextmanager
    def watch(self, task_id: str, run: int) -> Generator[asyncio.Event, None, None]:
        """Yields an event that is set when this run should stop or another process has recorded its result."""
        event = self._waiting.setdefault(task_id, {})[run] = asyncio.Event()
        if _is_over(self._board.find(task_id), run):
            event.set()
        if self._follower is None or self._follower.done():
            self._follower = asyncio.create_task(self._follow())
        try:
            yield event
        finally:
            self._waiting[task_id].pop(run)
            if not self._waiting[task_id]:
                del self._waiting[task_id]
            if not self._waiting:
                self._follower.cancel()
                self._follower = None

    async def _follow(self) -> None:
        while True:
            try:
                # First check all watched tasks: changes before this point would be missed.
                self._board.refresh()
                self._notify([self._board.find(task_id) for task_id in list(self._waiting)])
                async for changed in self._board.follow():
                    self._notify(changed)
            except StoreError:  # e.g. busy or full; writers report it
                await asyncio.sleep(_RETRY_SECONDS)

    def _notify(self, tasks: list[Task]) -> None:
        for task in tasks:
            for run, event in self._waiting.get(task.id, {}).items():
                if _is_over(task, run):
                    event.set()


def _is_over(task: Task, run: int) -> bool:
    return task.stop_requested or task.is_finished or task.run != run
