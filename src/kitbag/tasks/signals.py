"""Tells tasks that run in this process when they are to stop, whoever wants it and in whatever process.

One follower looks for all of them, so that a thousand tasks cost as much as one. Used by task_runner.
"""

import asyncio
import contextlib
from collections.abc import Generator

from kitbag.tasks.board import Board


class Signals:
    """For one event loop."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._waiting: dict[str, asyncio.Event] = {}
        self._follower: asyncio.Task[None] | None = None

    @contextlib.contextmanager
    def of(self, task_id: str, run: int) -> Generator[asyncio.Event, None, None]:
        """Set when the task is to stop, or when somebody else has written its end."""
        event = self._waiting[task_id] = asyncio.Event()
        task = self._board.find(task_id)
        if task.stop_wanted or task.is_finished or task.run != run:
            event.set()
        if self._follower is None or self._follower.done():
            self._follower = asyncio.create_task(self._follow())
        try:
            yield event
        finally:
            self._waiting.pop(task_id, None)
            if not self._waiting:
                self._follower.cancel()
                self._follower = None

    async def _follow(self) -> None:
        async for changed in self._board.follow():
            for task in changed:
                event = self._waiting.get(task.id)
                if event is not None and (task.stop_wanted or task.is_finished):
                    event.set()
