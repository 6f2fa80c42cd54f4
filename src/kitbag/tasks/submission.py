"""What a new task records about the machine that submits it, so that another one can run it: the workspace, its git
repository, and the user's library.

Used by the board. Tasks that are submitted together share one look at the disk, which takes several git commands.
"""

import asyncio
from typing import cast

import msgspec

from kitbag.library.scopes import find_places
from kitbag.store.journal import Journal, JournalEntry
from kitbag.tasks.git_workspace import GIT_KEY, GitWorkspace, WorkspaceMode, describe_git_workspace
from kitbag.tasks.library_snapshot import snapshot_entries, take_snapshot
from kitbag.tasks.task import SNAPSHOT_KEY, WORKSPACE_KEY, TaskRequest
from kitbag.tasks.task_patches import patch_entries


class _Origin(msgspec.Struct, frozen=True):
    repository: tuple[GitWorkspace, bytes] | None
    """And its uncommitted changes."""
    snapshot: tuple[str, bytes] | None


class Submissions:
    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._pending: dict[str, asyncio.Task[_Origin]] = {}
        """Per directory: the check that has not begun yet, which later callers share."""
        self._running: dict[str, asyncio.Task[_Origin]] = {}

    async def describe(
        self, task_id: str, request: TaskRequest, *, is_child: bool, is_background: bool
    ) -> tuple[TaskRequest, list[JournalEntry]]:
        """The request with its repository and its library named; the entries hold what the store lacks of them. The
        tasks of a task run on its machine, in its directory and with its library. Raises InvalidError."""
        options = {name: value for name, value in request.options.items() if name not in (WORKSPACE_KEY, GIT_KEY)}
        origin = await self._look(request.directory) if not is_child else _Origin(None, None)
        entries: list[JournalEntry] = []
        if origin.repository is not None:
            workspace, patch = origin.repository
            options[GIT_KEY] = workspace.to_record()
            entries += patch_entries(task_id, "uncommitted", workspace.uncommitted, patch) if patch else []
        if origin.snapshot is not None and is_background:
            options[SNAPSHOT_KEY] = origin.snapshot[0]
            entries += snapshot_entries(self._journal, *origin.snapshot)
        return msgspec.structs.replace(request, options=options), entries

    async def _look(self, directory: str) -> _Origin:
        task = self._pending.get(directory)
        if task is None or task.done():
            task = asyncio.create_task(self._look_after(directory, self._running.get(directory)))
            self._pending[directory] = task
        return await asyncio.shield(task)

    async def _look_after(self, directory: str, earlier: "asyncio.Task[_Origin] | None") -> _Origin:
        """One at a time. An earlier look may have missed what was changed before this submission."""
        if earlier is not None and not earlier.done():
            await asyncio.wait([earlier])
        self._running[directory] = self._pending.pop(directory)
        try:
            return await asyncio.to_thread(self._read, directory)
        finally:
            self._running.pop(directory, None)

    def _read(self, directory: str) -> _Origin:
        mode = cast("WorkspaceMode", self._journal.workspace_mode)
        repository = describe_git_workspace(directory, mode) if directory and mode != "path" else None
        redactor = self._journal.redactor
        snapshot = take_snapshot(find_places(directory), redactor) if self._journal.takes_snapshots else None
        return _Origin(repository, snapshot)
