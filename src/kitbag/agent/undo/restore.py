"""Carries out a plan of undo: what is overwritten is kept first, then every place is made what it was.

Used by `kitbag undo`. Each place is reached without following a link (permissions/beneath) and looked at once more
right before it is touched. What was about to be done is in the journal before, and that it is done after.
"""

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from kitbag.agent.session import PREFIX
from kitbag.agent.undo.change_records import REDONE, UNDOING, UNDONE, UNKNOWN, Body, Change, State, to_body
from kitbag.agent.undo.plan import Step, state_of
from kitbag.errors import KitbagError
from kitbag.permissions.model import Workspace
from kitbag.permissions.safe_open import BeneathError, folder_of, make_directory, remove_file, write_file
from kitbag.store.content_store import KeptFiles
from kitbag.store.journal import Journal

_LARGEST_KEPT = 64 << 20
"""What is larger is not kept when it is removed, so that can't be done again."""
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_PLACE = getattr(os, "O_PATH", os.O_RDONLY) | os.O_NOFOLLOW | os.O_CLOEXEC
_MOST_TOLD = 20


class Restored(NamedTuple):
    done: tuple[Step, ...]
    left: tuple[tuple[str, str], ...]
    """Places that stay as they are, and why."""
    failed: tuple[tuple[str, str], ...]


class Restorer:
    """For one session."""

    def __init__(self, journal: Journal, session_id: str, kept: KeptFiles, workspace: Workspace) -> None:
        self._journal = journal
        self._stream = PREFIX + session_id
        self._kept = kept
        self._workspace = workspace
        self._done: list[Step] = []
        self._left: list[tuple[str, str]] = []
        self._failed: list[tuple[str, str]] = []

    def undo(self, turn: int, steps: Sequence[Step], *, redo: bool = False) -> Restored:
        """Does every step that can be done; whether any should be refused is the caller's to say. Raises StoreError
        before anything is changed."""
        wanted = [step for step in steps if step.possible]
        self._left = [(step.path, step.problem) for step in steps if not step.possible]
        changes = tuple(Change(step.path, self._keep(step), step.target) for step in wanted)
        if not redo:
            self._append(UNDOING, Body(changes, turn=turn))
        self._carry_out(wanted)
        if not self._failed:
            self._append(REDONE if redo else UNDONE, Body((), turn=turn, told=_told(turn, self._done, redo=redo)))
        return Restored(tuple(self._done), tuple(self._left), tuple(self._failed))

    def _append(self, kind: str, body: Body) -> None:
        self._journal.append(self._stream, kind, to_body(body, self._journal, self._kept))

    def _keep(self, step: Step) -> State | None:
        """What is there now, as it can be brought back."""
        now = step.now
        if now is None or now.kind == "folder" or (step.target and step.target.digest == now.digest):
            return now
        with folder_of(step.path) as (folder, name):
            if now.kind == "link":
                self._kept.put(os.fsencode(os.readlink(name, dir_fd=folder)))
                return now
            try:
                descriptor = os.open(name, _READ, dir_fd=folder)
            except PermissionError:
                return now
            with open(descriptor, "rb") as file:
                data = file.read(_LARGEST_KEPT + 1) if stat.S_ISREG(os.fstat(descriptor).st_mode) else b""
        return now._replace(digest=self._kept.put(data)) if len(data) <= _LARGEST_KEPT else now

    def _carry_out(self, steps: Sequence[Step]) -> None:
        """From the outside to the inside where something is made, from the inside to the outside where it goes."""
        outside_first = sorted(steps, key=lambda step: step.path)
        inside_first = outside_first[::-1]
        self._each([step for step in outside_first if _stays_folder(step)], self._open_folder)
        self._each([step for step in inside_first if _goes(step, "file", "link")], self._remove)
        self._each([step for step in inside_first if _goes(step, "folder")], self._remove_folder)
        self._each([step for step in outside_first if _comes(step, "folder")], self._make_folder)
        self._each([step for step in outside_first if _comes(step, "file", "link")], self._write)
        self._each([step for step in inside_first if _has_folder_mode(step)], self._set_folder_mode)
        not_done = {path for path, _ in (*self._failed, *self._left)}
        self._done = [step for step in steps if step.path not in not_done]

    def _each(self, steps: Iterable[Step], act: Callable[[Step], None]) -> None:
        failed = {path for path, _ in self._failed}
        for step in steps:
            if step.path in failed:
                continue
            try:
                act(step)
            except KitbagError as error:
                self._failed.append((step.path, error.problem))
            except OSError as error:
                self._failed.append((step.path, error.strerror or str(error)))

    def _check(self, step: Step, *, removed: bool = False) -> None:
        """Between the look and now somebody may have saved the file. `removed`: what was there is gone by us."""
        if state_of(step.path, (step.now,)) != (None if removed else step.now):
            raise BeneathError(f"{step.path} was changed just now; it was left as it is")

    def _open_folder(self, step: Step) -> None:
        """So that what is in it can be reached; it gets its own rights in the end."""
        _set_mode(step.path, (step.now.mode if step.now else 0) | 0o700)

    def _remove(self, step: Step) -> None:
        self._check(step)
        remove_file(step.path, self._workspace, expected_resolved=step.path)

    def _remove_folder(self, step: Step) -> None:
        try:
            with folder_of(step.path) as (folder, name):
                os.rmdir(name, dir_fd=folder)
        except BeneathError as error:
            cause = error.__cause__
            if step.target is None and isinstance(cause, OSError) and cause.errno in (errno.ENOTEMPTY, errno.EEXIST):
                self._left.append((step.path, "it is not empty"))
                return
            if not isinstance(cause, FileNotFoundError):
                raise

    def _make_folder(self, step: Step) -> None:
        make_directory(step.path, self._workspace, expected_resolved=step.path)

    def _write(self, step: Step) -> None:
        now, target = step.now, step.target
        assert target is not None
        self._check(step, removed=now is not None and now.kind != target.kind)
        if now is not None and now.kind == target.kind and now.digest == target.digest:
            return _set_mode(step.path, target.mode)
        data = self._kept.get(target.digest)
        if data is None:
            raise BeneathError("what it held before is no longer kept")
        if target.kind == "link":
            return self._write_link(step.path, data)
        if now is not None and now.kind == "file" and not now.mode & 0o200:
            remove_file(step.path, self._workspace, expected_resolved=step.path)  # a read-only one is not written to
        write_file(
            step.path,
            data,
            self._workspace,
            mode=None if target.mode == UNKNOWN else target.mode,
            expected_resolved=step.path,
        )
        return None

    def _write_link(self, path: str, leads_to: bytes) -> None:
        make_directory(os.path.dirname(path), self._workspace, expected_resolved=os.path.dirname(path))
        temporary = f".kitbag-{os.urandom(8).hex()}.tmp"
        with folder_of(path) as (folder, name):
            os.symlink(leads_to, os.fsencode(temporary), dir_fd=folder)
            try:
                os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(temporary, dir_fd=folder)
                raise

    def _set_folder_mode(self, step: Step) -> None:
        _set_mode(step.path, step.target.mode if step.target else 0)


def _set_mode(path: str, mode: int) -> None:
    """Never through a link, and also of what may not be read."""
    with folder_of(path) as (folder, name):
        descriptor = os.open(name, _PLACE, dir_fd=folder)
        try:
            if not stat.S_ISLNK(os.fstat(descriptor).st_mode):
                os.chmod(f"/proc/self/fd/{descriptor}", mode & 0o777)
        finally:
            os.close(descriptor)


def _stays_folder(step: Step) -> bool:
    return bool(step.now and step.target and step.now.kind == step.target.kind == "folder")


def _goes(step: Step, *kinds: str) -> bool:
    """A file that becomes another file is replaced at once instead."""
    return step.now is not None and step.now.kind in kinds and (not step.target or step.target.kind != step.now.kind)


def _comes(step: Step, *kinds: str) -> bool:
    if step.target is None or step.target.kind not in kinds:
        return False
    return step.target.kind != "folder" or step.now is None or step.now.kind != "folder"


def _has_folder_mode(step: Step) -> bool:
    return step.target is not None and step.target.kind == "folder" and step.target.mode != UNKNOWN


def _told(turn: int, done: Sequence[Step], *, redo: bool) -> str:
    """For the model, which believes that the files are as it left them."""
    words = {"created": "removed", "changed": "restored", "deleted": "brought back"}
    if redo:
        words = {"created": "removed", "changed": "changed again", "deleted": "written again"}
    files = [step for step in done if step.kind != "folder"]
    named = [f"{step.path} ({words[step.done]})" for step in files[:_MOST_TOLD]]
    more = f", and {len(files) - _MOST_TOLD} more" if len(files) > _MOST_TOLD else ""
    what = "has done again what it had taken back" if redo else "has taken back what you did"
    return f"The user {what} in answer to message {turn}: {', '.join(named) or 'folders only'}{more}."
