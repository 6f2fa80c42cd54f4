"""How Write and Edit change a file: look at it, keep what it was, and replace it if it still is what was looked at.

Used by write and edit. The place is settled once more (places) and touched through permissions.beneath, so that no
link that was put in the way is followed; a change that was cancelled has happened wholly or not at all.
"""

import os
import stat
import threading
from collections.abc import Callable
from typing import NamedTuple, TypeVar

from kitbag.errors import InvalidError
from kitbag.permissions.safe_open import open_to_read, write_file
from kitbag.processes.run_process import in_thread
from kitbag.tools.base import Context, Outcome, failure
from kitbag.tools.files.lines import is_binary
from kitbag.tools.files.paths import Place, refused, settle, shown, visible
from kitbag.tools.files.read import amount
from kitbag.tools.seen_files import MOST_BYTES

T = TypeVar("T")
_LOOK_AND_WRITE = threading.Lock()
"""Agents that work side by side may change one file: between a look at it and its writing no other writes."""


class Target(NamedTuple):
    """A file that may be changed, or made."""

    place: Place
    path: str
    """As it is shown."""
    before: bytes | None
    """None: it does not exist."""


class Change(NamedTuple):
    target: Target
    after: bytes
    outcome: Outcome
    """Once it is done."""


async def change(context: Context, prepare: Callable[[], Change | Outcome]) -> Outcome:
    """`prepare` runs in a thread, may raise InvalidError, and changes nothing."""
    prepared = await in_thread(lambda _: _unless_refused(prepare))
    if isinstance(prepared, Outcome):
        return prepared
    target = prepared.target
    if context.changes is not None:
        await context.changes.keep(context.call_id, target.place.facts.resolved, target.before, prepared.after)
    return await in_thread(lambda stop: _unless_refused(lambda: _do(prepared, context, stop)))


def _unless_refused(work: Callable[[], T]) -> T | Outcome:
    try:
        return work()
    except InvalidError as error:
        return refused(error)
    except OSError as error:  # somebody else is at work in that folder
        return failure(f"the file can't be used: {error.strerror or error}", "Look at it again.")


def find_target(context: Context, tool: str, file_path: str) -> Target:
    """Raises InvalidError where it can be told beforehand that the file can't be changed."""
    if file_path.endswith("/"):
        raise InvalidError(f"{visible(file_path)} names a folder, not a file", "Leave out the slash at its end.")
    place = settle(context, tool, {"file_path": file_path}, file_path)
    path = shown(place.facts.requested, context)
    before = _content(context, place.facts.resolved, path)
    _must_be_writable(place.facts.resolved, path, before is not None)
    if before is not None and is_binary(before):
        raise InvalidError(
            f"{path} is a binary file of {amount(len(before))}, not text",
            "Use a command to change it, or remove it first.",
        )
    return Target(place, path, before)


def _content(context: Context, resolved: str, path: str) -> bytes | None:
    try:
        status = os.lstat(resolved)
    except (FileNotFoundError, NotADirectoryError):
        return None
    if stat.S_ISDIR(status.st_mode):
        raise InvalidError(f"{path} is a folder", "Name a file in it.")
    descriptor = open_to_read(resolved, context.workspace, expected_resolved=resolved)
    with open(descriptor, "rb", buffering=0) as file:
        size = os.fstat(descriptor).st_size
        data = _read_all(file.fileno(), size) if size <= MOST_BYTES else b""
    if max(size, len(data)) > MOST_BYTES:
        problem = f"{path} has {amount(max(size, len(data)))}; files of up to {amount(MOST_BYTES)} are changed"
        raise InvalidError(problem, "Use a command such as sed for it.")
    return data


def _read_all(descriptor: int, size: int) -> bytes:
    """Reads on where a file grows meanwhile, but not for ever."""
    pieces: list[bytes] = []
    left = MOST_BYTES + 1
    while left > 0 and (piece := os.read(descriptor, min(left, size + 1))):
        pieces.append(piece)
        left -= len(piece)
    return b"".join(pieces)


def _must_be_writable(resolved: str, path: str, exists: bool) -> None:
    """Told before anything is kept. Whoever comes too late for this is told by the system."""
    if exists and not os.access(resolved, os.W_OK, follow_symlinks=False):
        raise InvalidError(f"{path} is read-only", "Make it writable first if it is meant to be changed.")
    folder, mode = _deepest(os.path.dirname(resolved))
    if not stat.S_ISDIR(mode):
        raise InvalidError(f"{path} can't be made: {visible(folder)} is no folder")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise InvalidError(f"{path} can't be changed: there is no right to write in the folder {visible(folder)}")


def _deepest(folder: str) -> tuple[str, int]:
    """The folder itself or the first above it that exists, and what it is."""
    while True:
        try:
            return folder, os.lstat(folder).st_mode
        except (FileNotFoundError, NotADirectoryError):
            folder = os.path.dirname(folder)


def _do(change: Change, context: Context, stop: threading.Event) -> Outcome:
    target, resolved = change.target, change.target.place.facts.resolved
    with _LOOK_AND_WRITE:
        if stop.is_set():
            return failure("it was cancelled; nothing was changed")
        now = _content(context, resolved, target.path)
        if now != target.before:
            what = (
                "vanished" if now is None else "appeared" if target.before is None else "was changed by somebody else"
            )
            return failure(f"{target.path} {what} in this moment; nothing was written", "Look at it again with Read.")
        write_file(resolved, change.after, context.workspace, expected_resolved=resolved)
    if context.seen is not None:
        context.seen.note(resolved, change.after)
    return change.outcome


def unseen_problem(context: Context, target: Target, *, must_be_seen: bool) -> Outcome | None:
    """Why a file that exists may not be changed yet. What is empty holds nothing to be lost."""
    if context.seen is None or not target.before:
        return None
    state = context.seen.compare(target.place.facts.resolved, target.before)
    if state == "changed":
        return failure(f"{target.path} has changed since it was last read", "Read it again before you change it.")
    if state == "unseen" and must_be_seen:
        return failure(
            f"{target.path} exists and has not been read in this session", "Read it first, or change it with Edit."
        )
    return None
