"""Executes an undo plan: stores what it will overwrite, then restores each path.

Used by runtime/undo. Reaches each path without following links (permissions/safe_open) and checks it again right
before it changes it. The journal records the plan before and the result after.
"""

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterable, Sequence

import msgspec

from kitbag.agent.session import STREAM_PREFIX
from kitbag.agent.undo.change_records import (
    REDOING,
    REDONE,
    UNDOING,
    UNDONE,
    UNKNOWN_MODE,
    ChangeRecord,
    FileState,
    PathChange,
    encode_change_record,
)
from kitbag.agent.undo.plan import UndoStep, read_file_state
from kitbag.errors import KitbagError
from kitbag.permissions.model import Workspace
from kitbag.permissions.safe_open import SafeOpenError, make_directory, open_parent, remove_file, write_file
from kitbag.store.content_store import ContentStore
from kitbag.store.fault_points import point
from kitbag.store.journal import Journal, JournalEntry

_MAX_STORED_BYTES = 64 << 20
"""Larger files are not stored before they are removed, so that can't be redone."""
_READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_PATH_FLAGS = getattr(os, "O_PATH", os.O_RDONLY) | os.O_NOFOLLOW | os.O_CLOEXEC
_MAX_LISTED = 20


class RestoreResult(msgspec.Struct, frozen=True, kw_only=True):
    done: tuple[UndoStep, ...]
    skipped: tuple[tuple[str, str], ...]
    """(path, reason) of what stays unchanged."""
    failed: tuple[tuple[str, str], ...]


class Restorer:
    """For one session."""

    def __init__(self, journal: Journal, session_id: str, content_store: ContentStore, workspace: Workspace) -> None:
        self._journal = journal
        self._stream = STREAM_PREFIX + session_id
        self._content_store = content_store
        self._workspace = workspace
        self._done: list[UndoStep] = []
        self._skipped: list[tuple[str, str]] = []
        self._failed: list[tuple[str, str]] = []

    def run(
        self,
        message: int,
        steps: Sequence[UndoStep],
        *,
        redo: bool = False,
        through: int = 0,
        tell_model: bool = True,
        also_record: Callable[[RestoreResult], Sequence[JournalEntry]] = lambda result: (),
    ) -> RestoreResult:
        """Runs every possible step; the caller decides whether to refuse. `through`: the steps are those of all
        messages from `message` to this one. `also_record`: further entries that are committed with the end of the undo,
        unless a step failed. Before anything is changed, raises StoreError and WorkspaceMovedError."""
        self._workspace.check_in_place()
        possible = [step for step in steps if step.possible]
        self._skipped = [(step.path, step.problem) for step in steps if not step.possible]
        changes = tuple(
            PathChange(path=step.path, before=self._store_current(step), after=step.target) for step in possible
        )
        begin = ChangeRecord(files=() if redo else changes, message=message)
        self._append(REDOING if redo else UNDOING, begin)
        self._run_steps(possible)
        point("files-restored")
        result = RestoreResult(done=tuple(self._done), skipped=tuple(self._skipped), failed=tuple(self._failed))
        if not self._failed:
            notice = _describe_for_model(message, self._done, redo=redo) if tell_model else ""
            record = ChangeRecord(files=(), message=message, through=through, model_notice=notice)
            self._append(REDONE if redo else UNDONE, record, also_record(result))
        return result

    def _append(self, kind: str, body: ChangeRecord, more: Sequence[JournalEntry] = ()) -> None:
        encoded = encode_change_record(body, self._journal, self._content_store)
        self._journal.append_all([JournalEntry(self._stream, kind, encoded), *more])

    def _store_current(self, step: UndoStep) -> FileState | None:
        """Stores what is there now, so that it can be restored."""
        now = step.now
        if now is None or now.kind == "folder" or (step.target and step.target.digest == now.digest):
            return now
        with open_parent(step.path) as (folder, name):
            if now.kind == "link":
                self._content_store.put(os.fsencode(os.readlink(name, dir_fd=folder)))
                return now
            try:
                descriptor = os.open(name, _READ_FLAGS, dir_fd=folder)
            except PermissionError:
                return now
            with open(descriptor, "rb") as file:
                data = file.read(_MAX_STORED_BYTES + 1) if stat.S_ISREG(os.fstat(descriptor).st_mode) else b""
        return now._replace(digest=self._content_store.put(data)) if len(data) <= _MAX_STORED_BYTES else now

    def _run_steps(self, steps: Sequence[UndoStep]) -> None:
        """Creates from the outside in and removes from the inside out."""
        outside_first = sorted(steps, key=lambda step: step.path)
        inside_first = outside_first[::-1]
        self._run_each([step for step in outside_first if _keeps_folder(step)], self._open_folder)
        self._run_each([step for step in inside_first if _is_removal(step, "file", "link")], self._remove)
        self._run_each([step for step in inside_first if _is_removal(step, "folder")], self._remove_folder)
        self._run_each([step for step in outside_first if _is_creation(step, "folder")], self._make_folder)
        self._run_each([step for step in outside_first if _is_creation(step, "file", "link")], self._write)
        self._run_each([step for step in inside_first if _has_folder_mode(step)], self._set_folder_mode)
        not_done = {path for path, _ in (*self._failed, *self._skipped)}
        self._done = [step for step in steps if step.path not in not_done]

    def _run_each(self, steps: Iterable[UndoStep], action: Callable[[UndoStep], None]) -> None:
        failed = {path for path, _ in self._failed}
        for step in steps:
            if step.path in failed:
                continue
            try:
                action(step)
            except KitbagError as error:
                self._failed.append((step.path, error.problem))
            except OSError as error:
                self._failed.append((step.path, error.strerror or str(error)))

    def _check_unchanged(self, step: UndoStep, *, removed: bool = False) -> None:
        """The file may have been saved since the plan was made. `removed`: this restore has removed it already."""
        if read_file_state(step.path, (step.now,)) != (None if removed else step.now):
            raise SafeOpenError(f"{step.path} was changed in the meantime; skipped")

    def _open_folder(self, step: UndoStep) -> None:
        """Makes the folder's content reachable; its own mode is set at the end."""
        _set_mode(step.path, (step.now.mode if step.now else 0) | 0o700, self._workspace)

    def _remove(self, step: UndoStep) -> None:
        self._check_unchanged(step)
        remove_file(step.path, self._workspace, expected_resolved=step.path)

    def _remove_folder(self, step: UndoStep) -> None:
        try:
            with open_parent(step.path, self._workspace) as (folder, name):
                os.rmdir(name, dir_fd=folder)
        except SafeOpenError as error:
            cause = error.__cause__
            if step.target is None and isinstance(cause, OSError) and cause.errno in (errno.ENOTEMPTY, errno.EEXIST):
                self._skipped.append((step.path, "not empty"))
                return
            if not isinstance(cause, FileNotFoundError):
                raise

    def _make_folder(self, step: UndoStep) -> None:
        make_directory(step.path, self._workspace, expected_resolved=step.path)

    def _write(self, step: UndoStep) -> None:
        now, target = step.now, step.target
        assert target is not None
        self._check_unchanged(step, removed=now is not None and now.kind != target.kind)
        if now is not None and now.kind == target.kind and now.digest == target.digest:
            return _set_mode(step.path, target.mode, self._workspace)
        data = self._content_store.get(target.digest)
        if data is None:
            raise SafeOpenError("its previous content is no longer stored")
        if target.kind == "link":
            return self._write_link(step.path, data)
        if now is not None and now.kind == "file" and not now.mode & 0o200:
            remove_file(step.path, self._workspace, expected_resolved=step.path)  # a read-only file can't be written to
        write_file(
            step.path,
            data,
            self._workspace,
            mode=None if target.mode == UNKNOWN_MODE else target.mode,
            expected_resolved=step.path,
        )
        return None

    def _write_link(self, path: str, target: bytes) -> None:
        make_directory(os.path.dirname(path), self._workspace, expected_resolved=os.path.dirname(path))
        temporary = f".kitbag-{os.urandom(8).hex()}.tmp"
        with open_parent(path, self._workspace) as (folder, name):
            os.symlink(target, os.fsencode(temporary), dir_fd=folder)
            try:
                os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(temporary, dir_fd=folder)
                raise

    def _set_folder_mode(self, step: UndoStep) -> None:
        _set_mode(step.path, step.target.mode if step.target else 0, self._workspace)


def _set_mode(path: str, mode: int, workspace: Workspace) -> None:
    """Does not follow links; works on unreadable files, too."""
    with open_parent(path, workspace) as (folder, name):
        descriptor = os.open(name, _PATH_FLAGS, dir_fd=folder)
        try:
            if not stat.S_ISLNK(os.fstat(descriptor).st_mode):
                os.chmod(f"/proc/self/fd/{descriptor}", mode & 0o777)
        finally:
            os.close(descriptor)


def _keeps_folder(step: UndoStep) -> bool:
    return bool(step.now and step.target and step.now.kind == step.target.kind == "folder")


def _is_removal(step: UndoStep, *kinds: str) -> bool:
    """A file that becomes another file is replaced instead."""
    return step.now is not None and step.now.kind in kinds and (not step.target or step.target.kind != step.now.kind)


def _is_creation(step: UndoStep, *kinds: str) -> bool:
    if step.target is None or step.target.kind not in kinds:
        return False
    return step.target.kind != "folder" or step.now is None or step.now.kind != "folder"


def _has_folder_mode(step: UndoStep) -> bool:
    return step.target is not None and step.target.kind == "folder" and step.target.mode != UNKNOWN_MODE


def _describe_for_model(message: int, done: Sequence[UndoStep], *, redo: bool) -> str:
    """For the model, which assumes that the files are as it left them."""
    labels = {"created": "removed", "changed": "restored", "deleted": "re-created"}
    if redo:
        labels = {"created": "removed", "changed": "changed again", "deleted": "written again"}
    files = [step for step in done if step.kind != "folder"]
    named = [f"{step.path} ({labels[step.effect]})" for step in files[:_MAX_LISTED]]
    more = f", and {len(files) - _MAX_LISTED} more" if len(files) > _MAX_LISTED else ""
    action = "re-applied changes they had undone" if redo else "undid changes you made"
    return f"The user {action} for message {message}: {', '.join(named) or 'directories only'}{more}."
