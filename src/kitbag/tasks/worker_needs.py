"""What a task needs from the machine that runs it, and what this one lacks: its directory, and API keys of its model
providers.

Only for tasks of named queues, which other machines can run: one that only this machine runs starts, and fails with a
message that says what to do. Used by the worker.
"""

import os
import time
from collections.abc import Iterable
from typing import Final

from kitbag.assembly.model_sources import load_model_sources
from kitbag.library.scopes import find_places
from kitbag.models.model_selection import can_connect, known_providers
from kitbag.settings import Settings, load_settings
from kitbag.store.journal import Journal
from kitbag.tasks.queue_counts import count_queues
from kitbag.tasks.task import Task

DEFAULT_QUEUE: Final = "default"
"""The name, in settings, of the queue that only this machine runs."""
_CHECK_SECONDS: Final = 1.0


def served_queues(journal: Journal, queues: Iterable[str]) -> frozenset[str]:
    """The queues of a worker that was started with these. Where a file is the journal: all, because tasks of others can
    only have been copied from a database."""
    copied = () if journal.is_shared else (queue for queue, _ in count_queues(journal))
    return frozenset(("", journal.home_queue, *(tuple(queues) or (journal.queue,)), *copied))


def read_queue_limits(settings: Settings) -> tuple[dict[str, int], list[str]]:
    """How many tasks of a queue may run at once, and problems with the setting."""
    limits: dict[str, int] = {}
    problems: list[str] = []
    for entry in settings.get("tasks.queue_limits"):
        name, _, number = str(entry).rpartition("=")
        if name.strip() and number.strip().isdecimal() and int(number):
            limits[name.strip()] = int(number)
        else:
            problems.append(f"ignored {entry!r} in `tasks.queue_limits`; write NAME=NUMBER, as in build=10")
    return limits, problems


class WorkerNeeds:
    """Safe to ask often: looks again once a second."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._looked_at = 0.0
        self._directories: dict[str, bool] = {}
        self._connectable: dict[str, bool] = {}

    def is_named(self, queue: str) -> bool:
        """Whether workers of other machines may serve it too, as they do for tasks that were copied from a file."""
        return self._journal.is_shared if queue == "" else queue != self._journal.home_queue

    def missing(self, task: Task) -> str:
        """What this machine lacks for the task; empty if nothing."""
        if not self.is_named(task.queue):
            return ""
        if time.monotonic() - self._looked_at >= _CHECK_SECONDS:
            self._looked_at = time.monotonic()
            self._directories.clear()
            self._connectable.clear()
        if task.directory and not task.repository and not self._has_directory(task.directory):
            return f"no directory {task.directory}"
        lacking = [name for name in task.providers if not self._can_connect(name)]
        return f"no API key for {', '.join(lacking)}" if lacking else ""

    def _has_directory(self, directory: str) -> bool:
        if directory not in self._directories:
            self._directories[directory] = os.path.isdir(directory)
        return self._directories[directory]

    def _can_connect(self, provider: str) -> bool:
        if provider not in self._connectable:
            sources, _ = load_model_sources(load_settings(find_places().kitbag_home, ()), probe=False)
            self._connectable[provider] = can_connect(provider, sources)
        return self._connectable[provider]

    def providers(self) -> list[str]:
        """Those that this machine can use."""
        sources, _ = load_model_sources(load_settings(find_places().kitbag_home, ()), probe=False)
        return [name for name in known_providers(sources) if can_connect(name, sources)]
