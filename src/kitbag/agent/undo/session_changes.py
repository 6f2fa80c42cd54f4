"""Records what the tools of a session change, so that `kitbag undo` can revert it.

Passed to tools as `changes` of their ToolContext. Bytes go to store/content_store, change records to the session's
journal stream. A tool that knows what it changes announces it; around a command the workspace is scanned twice. An
edit by another program during a command is attributed to the command.
"""

import asyncio
import contextlib
import os
import threading
from collections.abc import AsyncGenerator, Callable, Collection, Iterable
from typing import Final

import msgspec

from kitbag.agent.session import STREAM_PREFIX, Session
from kitbag.agent.shield import run_to_completion
from kitbag.agent.undo.change_records import (
    CHANGE,
    UNKNOWN_MODE,
    ChangeRecord,
    FileState,
    PathChange,
    decode_change_record,
    encode_change_record,
)
from kitbag.agent.undo.snapshot import (
    SnapshotLimitError,
    SnapshotLimits,
    WorkspaceSnapshot,
    diff_snapshots,
    snapshot_paths,
    take_snapshot,
)
from kitbag.agent.undo.snapshot_cache import SnapshotCache
from kitbag.errors import KitbagError
from kitbag.events import Notice
from kitbag.permissions.model import Workspace
from kitbag.permissions.paths import resolve_links
from kitbag.permissions.workspace_identity import WorkspaceIdentity
from kitbag.processes.run_process import run_in_thread
from kitbag.store.content_store import ContentStore, content_digest
from kitbag.store.journal import Journal

EmitNotice = Callable[[Notice], None]
_MIN_SECONDS_AFTER: Final = 15.0
"""The snapshot after a command may take longer than the one before: without it the command can't be undone."""
_MAX_ATTEMPTS = 3
_MAX_NAMED: Final = 300
_CANNOT_UNDO: Final = "changes by commands in this workspace can't be undone"
CANNOT_RECORD = (KitbagError, OSError, ValueError, RecursionError)
_DEFAULT_LIMITS = SnapshotLimits()


class SessionChanges:
    """One per running session. `emit_notice` can be replaced; it receives what can't be undone."""

    def __init__(
        self,
        session: Session,
        workspace: Workspace,
        emit_notice: EmitNotice,
        *,
        record_in: str = "",
        limits: SnapshotLimits = _DEFAULT_LIMITS,
    ) -> None:
        """`record_in`: the session that the changes belong to if it is another one; for a subagent, the user's
        session."""
        self.emit_notice = emit_notice
        self._session = session
        self._record_in = record_in
        self._stream = STREAM_PREFIX + (record_in or session.id)
        self._content_store = ContentStore(workspace.kitbag_home)
        self._snapshots = WorkspaceSnapshots(workspace, session.id, self._content_store, limits)
        self._disabled_reason = ""
        """Why commands can't be undone here; then no more snapshots are taken."""
        self._failed_attempts = 0
        self._moved_calls: set[str] = set()
        """Calls whose commands were moved to the background."""
        self._pruned = False

    async def record(self, call_id: str, path: str, before: bytes | None, after: bytes | None) -> None:
        """Raises StoreError: then the file must not be changed."""
        await run_to_completion(self._record_file(call_id, path, before, after))

    async def _record_file(self, call_id: str, path: str, before: bytes | None, after: bytes | None) -> None:
        changes = await asyncio.to_thread(_make_changes, self._content_store, path, before, after)
        await self._record(call_id, changes)
        await self._prune()

    @contextlib.asynccontextmanager
    async def record_command(self, call_id: str, named: tuple[str, ...] = ()) -> AsyncGenerator[None, None]:
        """Never fails: without a snapshot it warns once and the command runs. `named`: paths that it writes, recorded
        even if git ignores them or there is no snapshot."""
        started_at = self._session.journal.last_seq()
        before = await self._before_command(call_id)
        states = await self._named_states(named)
        try:
            yield
        finally:
            if before is not None or states is not None:
                since = started_at if call_id in self._moved_calls else None
                await run_to_completion(self._after_command(call_id, before, states, since))

    def move_to_background(self, call_id: str) -> None:
        self._moved_calls.add(call_id)

    async def _named_states(self, named: Iterable[str]) -> "_NamedStates | None":
        paths = tuple(named)[:_MAX_NAMED]
        if not paths:
            return None
        try:
            return await asyncio.to_thread(_NamedStates, paths, self._content_store)
        except (*CANNOT_RECORD, SnapshotLimitError) as error:
            reason = error.reason if isinstance(error, SnapshotLimitError) else describe_error(error)
            text = f"changes by this command to the files it names can't be undone: {reason}"
            self.emit_notice(Notice(severity="warning", text=text))
            return None

    async def _before_command(self, call_id: str) -> WorkspaceSnapshot | None:
        if self._disabled_reason:
            return None
        try:
            interrupted = await asyncio.to_thread(self._snapshots.recover_interrupted)
            if interrupted is not None:
                await self._record(interrupted[0], interrupted[1], interrupted=True)
                self._snapshots.recovered()
            return await run_in_thread(lambda stop: self._snapshots.before_command(call_id, stop))
        except asyncio.CancelledError:
            self._snapshots.command_done()  # the command will not run
            raise
        except SnapshotLimitError as error:
            self._failed_attempts += 1
            # Files read so far are cached, so the next attempt gets further.
            if error.partial is None or self._failed_attempts >= _MAX_ATTEMPTS:
                self._disabled_reason = error.reason
            if self._failed_attempts == 1 or (self._disabled_reason and self._failed_attempts == _MAX_ATTEMPTS):
                retry_hint = "" if self._disabled_reason else "; Kitbag retries at the next command"
                self.emit_notice(
                    Notice(
                        severity="warning",
                        text=f"{_CANNOT_UNDO}: {error.reason}{retry_hint}",
                        fix="commit or back up your files first",
                    )
                )
        except CANNOT_RECORD as error:
            self._disabled_reason = describe_error(error)
            self.emit_notice(
                Notice(
                    severity="warning", text=f"{_CANNOT_UNDO}: {self._disabled_reason}", fix=getattr(error, "fix", "")
                )
            )
        return None

    async def _after_command(
        self, call_id: str, before: WorkspaceSnapshot | None, states: "_NamedStates | None", since: int | None
    ) -> None:
        """`since`: others worked meanwhile; what they recorded since then is theirs."""
        changes: list[PathChange] = []
        try:
            if before is not None:
                changes = await asyncio.to_thread(self._snapshots.after_command, before)
            if states is not None:
                changes += await asyncio.to_thread(states.changes, {change.path for change in changes})
            if since is not None:
                journal, stream, store = self._session.journal, self._stream, self._content_store
                changes = await asyncio.to_thread(without_recorded, changes, journal, stream, since, store)
            if changes:
                await self._record(call_id, changes)
        except SnapshotLimitError as error:
            self.emit_notice(
                Notice(severity="warning", text=f"changes by this command can't be undone: {error.reason}")
            )
        except CANNOT_RECORD as error:
            self.emit_notice(
                Notice(severity="warning", text=f"changes by this command can't be undone: {describe_error(error)}")
            )
        finally:
            if before is not None:
                self._snapshots.command_done()
        await self._prune()

    async def _record(self, call_id: str, changes: Iterable[PathChange], interrupted: bool = False) -> None:
        call = self._session.calls.get(call_id)
        qualified_id = qualify_call_id(call_id, self._session.id, self._record_in)
        record = ChangeRecord(
            files=tuple(changes), call=qualified_id, by=call.name if call is not None else "", interrupted=interrupted
        )
        journal = self._session.journal
        body = await asyncio.to_thread(encode_change_record, record, journal, self._content_store)
        await journal.write(self._stream, CHANGE, body)

    async def _prune(self) -> None:
        if self._pruned:
            return
        self._pruned = True
        with contextlib.suppress(*CANNOT_RECORD):
            pruned = await asyncio.to_thread(self._content_store.prune_if_due)
            await asyncio.to_thread(self._snapshots.prune)
            if pruned is not None and pruned.files:
                size = f"{pruned.bytes / 1e6:,.1f} MB"
                message = f"removed {pruned.files:,} stored files ({size}) that had not been used for a long time"
                self.emit_notice(
                    Notice(severity="info", text=f"{message}; changes that need them can no longer be undone")
                )


class _NamedStates:
    """The files that a command names, as they are before it."""

    def __init__(self, paths: tuple[str, ...], content_store: ContentStore) -> None:
        self._paths = paths
        self._content_store = content_store
        with content_store.open_writer() as keep:
            self._before = snapshot_paths(paths, keep)
            keep.make_durable(state.digest for state in self._before.values() if state.kind != "folder")

    def changes(self, known: Collection[str]) -> list[PathChange]:
        """What changed, except for the paths that are `known` to have changed."""
        with self._content_store.open_writer() as keep:
            after = snapshot_paths(self._paths, keep)
        changed = (path for path in self._paths if path not in known and self._before.get(path) != after.get(path))
        return [PathChange(path=path, before=self._before.get(path), after=after.get(path)) for path in changed]


class WorkspaceSnapshots:
    """The workspace snapshots of one session. Blocks; use from one thread at a time."""

    def __init__(
        self,
        workspace: Workspace,
        session_id: str,
        content_store: ContentStore,
        limits: SnapshotLimits = _DEFAULT_LIMITS,
    ) -> None:
        self._workspace = workspace
        self._roots = tuple(dict.fromkeys(workspace.write_roots))
        self._excluded = {workspace.kitbag_home, os.path.realpath(workspace.kitbag_home)}
        self._content_store = content_store
        self._limits = limits
        self._cache = SnapshotCache(workspace.kitbag_home, self._roots, session_id)
        self._last_snapshot: WorkspaceSnapshot | None = None
        self._has_snapshot = False
        self._running_commands = 0
        """Commands that run in parallel; if all are killed, only the first one's call is known."""
        self._running_marker: int | None = None

    def before_command(self, call_id: str, stop: threading.Event | None = None) -> WorkspaceSnapshot:
        """Raises SnapshotLimitError, WorkspaceMovedError, OSError and StoreError, like `after_command`."""
        previous = self._last_snapshot.files if self._last_snapshot is not None else {}
        if not self._has_snapshot:
            previous = self._cache.load_newest(self._content_store.digests())
        try:
            with self._content_store.open_writer() as keep:
                roots, excluded, limits = self._roots, self._excluded, self._limits
                if not previous:  # every file would have to be read, so check the limits first
                    take_snapshot(roots, keep, previous, exclude=excluded, limits=limits, stop=stop, only_count=True)
                snapshot = take_snapshot(roots, keep, previous, exclude=excluded, limits=limits, stop=stop)
                self._workspace.check_in_place()
        except SnapshotLimitError as error:
            if error.partial is not None:
                self._has_snapshot, self._last_snapshot = (
                    True,
                    WorkspaceSnapshot(
                        files={**previous, **error.partial},
                        ignore_rules={},
                        unreadable_folders=frozenset(),
                        files_read=0,
                        started_ns=0,
                    ),
                )
            raise
        if not self._has_snapshot or snapshot.files != previous:
            self._cache.save(snapshot)
        self._has_snapshot, self._last_snapshot = True, snapshot
        if not self._running_commands:
            identity = self._workspace.identity
            record = identity.to_record() if identity is not None else ()
            self._running_marker = self._cache.mark_running(call_id, record)
        self._running_commands += 1
        return snapshot

    def after_command(self, before: WorkspaceSnapshot) -> list[PathChange]:
        """What changed; the previous bytes are durable when it returns."""
        limits = msgspec.structs.replace(self._limits, seconds=max(self._limits.seconds, _MIN_SECONDS_AFTER))
        with self._content_store.open_writer() as keep:
            rules = before.ignore_rules or None  # a cached snapshot has none
            now = take_snapshot(
                self._roots, keep, before.files, ignore_rules=rules, exclude=self._excluded, limits=limits
            )
            self._workspace.check_in_place()  # or everything would seem to be deleted
            changes = diff_snapshots(before, now)
            keep.make_durable(change.before.digest for change in changes if change.before is not None)
        self._last_snapshot = now
        return changes

    def command_done(self) -> None:
        """Call when a command has ended and its changes are recorded."""
        self._running_commands = max(0, self._running_commands - 1)
        if self._running_marker is not None and not self._running_commands:
            self._cache.clear_running(self._running_marker)
            self._running_marker = None

    def recover_interrupted(self) -> tuple[str, list[PathChange]] | None:
        """For a command that was killed with its session: its call and the changes since it started; none if they can't
        be known, e.g. because another directory has taken the workspace's place. Call `recovered` once they are
        recorded."""
        if self._has_snapshot or self._running_marker is not None:
            return None
        interrupted = self._cache.find_interrupted()
        if interrupted is None:
            return None
        call, self._running_marker = interrupted
        try:
            identity = WorkspaceIdentity.from_record(self._cache.interrupted_workspace(self._running_marker))
            if identity is not None and not identity.is_at(self._workspace.root):
                return call, []
            snapshot = self._cache.load()
            return call, self.after_command(snapshot) if snapshot is not None else []
        except SnapshotLimitError:
            return call, []
        except BaseException:
            os.close(self._running_marker)  # keep the file, so that the next process can retry
            self._running_marker = None
            raise

    def recovered(self) -> None:
        self.command_done()

    def prune(self) -> None:
        self._cache.prune()


def recover_interrupted_command(
    journal: Journal,
    owner_id: str,
    workspace: Workspace,
    content_store: ContentStore,
    *,
    record_in: str = "",
    is_background: bool = False,
) -> bool:
    """Records the changes of a command that was killed with its session, if there is one. `owner_id`: the session, or
    the task of a background command (`is_background`). `record_in`: as in SessionChanges. Raises StoreError and
    OSError."""
    snapshots = WorkspaceSnapshots(workspace, owner_id, content_store)
    interrupted = snapshots.recover_interrupted()
    if interrupted is None:
        return False
    try:
        call, changes = interrupted
        record = ChangeRecord(
            files=tuple(changes),
            call=call if is_background else qualify_call_id(call, owner_id, record_in),
            by="Bash",
            interrupted=True,
        )
        journal.append(
            STREAM_PREFIX + (record_in or owner_id), CHANGE, encode_change_record(record, journal, content_store)
        )
    finally:
        snapshots.recovered()
    return bool(changes)


def without_recorded(
    changes: Iterable[PathChange], journal: Journal, stream: str, since: int, content_store: ContentStore
) -> list[PathChange]:
    """Without what others recorded in the same session while a background command ran."""
    recorded: dict[str, FileState | None] = {}
    for record in journal.read(stream, since, kind=CHANGE, brief=True):
        for change in decode_change_record(record.body, content_store).files:
            recorded[change.path] = change.after
    return [
        change
        for change in changes
        if change.path not in recorded or _content(recorded[change.path]) != _content(change.after)
    ]


def _content(state: FileState | None) -> tuple[str, str] | None:
    return (state.kind, state.digest) if state is not None else None


def qualify_call_id(call_id: str, session_id: str, record_in: str) -> str:
    """Call ids are unique only within a session."""
    return call_id if record_in in ("", session_id) else f"{session_id}/{call_id}"


def _make_changes(
    content_store: ContentStore, path: str, before: bytes | None, after: bytes | None
) -> list[PathChange]:
    """Includes the folders that must be created for it."""
    resolved = resolve_links(os.path.abspath(path)).resolved
    mode = UNKNOWN_MODE
    with contextlib.suppress(OSError):
        mode = os.lstat(resolved).st_mode & 0o7777
    state_before = FileState("file", content_store.put(before), mode) if before is not None else None
    state_after = FileState("file", content_digest(after)) if after is not None else None
    folders: list[PathChange] = []
    parent = os.path.dirname(resolved)
    while after is not None and parent != "/" and not os.path.lexists(parent):
        folders.append(PathChange(path=parent, before=None, after=FileState("folder")))
        parent = os.path.dirname(parent)
    return [*reversed(folders), PathChange(path=resolved, before=state_before, after=state_after)]


def describe_error(error: BaseException) -> str:
    return error.problem if isinstance(error, KitbagError) else getattr(error, "strerror", None) or str(error)
