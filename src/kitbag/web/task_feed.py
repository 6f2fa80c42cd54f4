"""The topic `tasks`: the tasks of all processes, read from the journal in a thread while a browser follows it.

Used by server_state. A slot for each task, so that only changed ones are sent; `listing` has their order, `questions`
the approvals that wait.
"""

import asyncio
import importlib
import logging
import time
from typing import TYPE_CHECKING, Final

from kitbag.agent.shield import run_to_completion
from kitbag.errors import KitbagError, NotFoundError
from kitbag.library.scopes import Places
from kitbag.web.topics import Payload, Topic

if TYPE_CHECKING:
    from kitbag.tasks.board import Board
    from kitbag.web.task_questions import TaskQuestions

TOPIC_NAME: Final = "tasks"
_POLL_SECONDS: Final = 1.0
"""A command's output changes without a record in the journal."""
_MIN_SECONDS: Final = 0.25
_HOSTING_SECONDS: Final = 5.0


class TaskFeed:
    def __init__(self, places: Places) -> None:
        self.topic = Topic(TOPIC_NAME)
        self.topic.on_followed = self._on_followed
        self._places = places
        self._polling: asyncio.Task[None] | None = None
        self._shown: set[str] = set()
        self._questions: TaskQuestions | None = None

    @property
    def questions(self) -> "TaskQuestions":
        """Created when it is first needed: its imports are heavy."""
        if self._questions is None:
            from kitbag.web.task_questions import TaskQuestions

            self._questions = TaskQuestions()
        return self._questions

    def _on_followed(self, is_followed: bool) -> None:
        if self._polling is not None:
            self._polling.cancel()
        self._polling = asyncio.create_task(self._poll()) if is_followed else None

    async def _poll(self) -> None:
        """Runs until cancelled."""
        for module in ("task_reader", "task_questions"):  # in a thread, so that chats go on meanwhile
            await asyncio.to_thread(importlib.import_module, f"kitbag.web.{module}")
        from kitbag.web.task_reader import open_board

        while True:
            try:
                async with open_board(self._places) as board:
                    await self._follow(board)
            except NotFoundError:
                self._publish([], {}, 0)
            except KitbagError as error:
                self.topic.set("problem", {"problem": error.problem, "fix": error.fix})
            except Exception as error:
                problem = f"internal error: {type(error).__name__}: {error}"
                self.topic.set("problem", {"problem": problem, "fix": "report this bug"})
                logging.getLogger(__name__).exception("reading tasks failed")
            await asyncio.sleep(_POLL_SECONDS)

    async def _follow(self, board: "Board") -> None:
        from kitbag.tasks.worker_process import ensure_tasks_hosted
        from kitbag.web.task_reader import BoardReader

        reader = BoardReader(board, self._places.cwd)
        hosted_at, seen, has_changed = 0.0, 0, True
        while True:
            if time.monotonic() - hosted_at > _HOSTING_SECONDS:
                hosting = await ensure_tasks_hosted(board, self._places.kitbag_home)
                hosted_at = time.monotonic()
                self.topic.set("problem", {"problem": hosting.problem, "fix": ""})
            if has_changed or reader.has_live_output:
                seen = board.journal.last_seq()
                await run_to_completion(asyncio.to_thread(reader.read))
                self._publish(reader.rows, reader.titles, reader.omitted)
                redact = board.journal.redactor.redact_text
                await run_to_completion(asyncio.to_thread(self.questions.update, reader.pending, redact))
                self.publish_questions()
            await run_to_completion(asyncio.to_thread(reader.read_fleet))
            self.topic.set("fleet", reader.fleet)
            await asyncio.sleep(_MIN_SECONDS)
            has_changed = await board.journal.wait_async(seen, _POLL_SECONDS)

    def _publish(self, rows: list[Payload], titles: dict[str, str], omitted: int) -> None:
        ids = [row["id"] for row in rows]
        for row in rows:
            self.topic.set(f"task/{row['id']}", row)
        for gone in self._shown.difference(ids):
            self.topic.drop(f"task/{gone}")
        self._shown = set(ids)
        listing = {"ids": ids, "sessions": titles, "omitted": omitted, "directory": self._places.cwd}
        self.topic.set("listing", listing)

    def publish_questions(self) -> None:
        self.topic.set("questions", {"questions": self.questions.to_json()})
