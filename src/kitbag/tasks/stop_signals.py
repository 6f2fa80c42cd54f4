"""Tells tasks that run in this process when they are to stop, whoever wants it and in whatever process.

One follower looks for all of them, so that a thousand tasks cost as much as one. Used by runner.
"""

import asyncio
import contextlib
from collections.abc import Generator

from kitbag.store.private_files import StoreError
from kitbag.tasks.board import Board
from kitbag.tasks.task import Task

_RETRY_SECONDS = 0.5
"""Seconds before a journal that could not be read is tried again."""


class StopSignals:
    """For one event loop."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._waiting: dict[str, dict[int, asyncio.Event]] = {}
        self._follower: asyncio.Task[None] | None = None

    @contextlib.contextmanager
    def watch(self, task_id: str, run: int) -> Generator[asyncio.Event, None, None]:
        """Set when this beginning of the task is to stop, or when somebody else has written its end."""
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
                # First all that are waited for: what came before we look is seen by nobody else.
                self._notify([self._board.find(task_id) for task_id in list(self._waiting)])
                async for changed in self._board.follow():
                    self._notify(changed)
            except StoreError:  # busy or full, say: whoever writes is told of it
                await asyncio.sleep(_RETRY_SECONDS)

    def _notify(self, changed: list[Task]) -> None:
        for task in changed:
            for run, event in self._waiting.get(task.id, {}).items():
                if _is_over(task, run):
                    event.set()


def _is_over(task: Task, run: int) -> bool:
    return task.stop_wanted or task.is_finished or task.run != run
