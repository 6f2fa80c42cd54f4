"""How Write and Edit change a file: read it, record its content for undo, and replace it if it is still the same.

Used by write and edit. paths authorizes the path again and permissions/safe_open opens it without following links. A
canceled change is applied completely or not at all.
"""

import os
import stat
import threading
from collections.abc import Callable
from typing import NamedTuple, TypeVar

from kitbag.errors import InvalidError
from kitbag.permissions.safe_open import open_for_reading, write_file
from kitbag.processes.run_process import run_in_thread
from kitbag.tools.base import ToolContext, ToolOutput, error_output
from kitbag.tools.files.lines import is_binary
from kitbag.tools.files.paths import AuthorizedPath, authorize_path, display_path, error_to_output, visible_line
from kitbag.tools.files.read import format_size
from kitbag.tools.seen_files import MAX_BYTES

T = TypeVar("T")
_CHECK_AND_WRITE_LOCK = threading.Lock()
"""Concurrent agents may change the same file: no other write happens between the check of its content and the write."""


class FileTarget(NamedTuple):
    """A file that can be changed or created."""

    authorized: AuthorizedPath
    shown_path: str
    """The path as shown to the model."""
    before: bytes | None
    """None: the file does not exist."""


class FileChange(NamedTuple):
    target: FileTarget
    after: bytes
    output: ToolOutput
    """What the tool returns after the change."""


async def apply_change(context: ToolContext, prepare: Callable[[], FileChange | ToolOutput]) -> ToolOutput:
    """`prepare` runs in a thread, may raise InvalidError, and changes nothing."""
    prepared = await run_in_thread(lambda _: _catch_file_errors(prepare))
    if isinstance(prepared, ToolOutput):
        return prepared
    target = prepared.target
    if context.change_recorder is not None:
        await context.change_recorder.record(
            context.call_id, target.authorized.facts.resolved, target.before, prepared.after
        )
    return await run_in_thread(lambda stop: _catch_file_errors(lambda: _write_change(prepared, context, stop)))


def _catch_file_errors(work: Callable[[], T]) -> T | ToolOutput:
    try:
        return work()
    except InvalidError as error:
        return error_to_output(error)
    except OSError as error:  # another process changed the folder
        return error_output(f"cannot access the file: {error.strerror or error}", "Check the path and retry.")


def find_target(context: ToolContext, tool: str, file_path: str) -> FileTarget:
    """Raises InvalidError if it is known in advance that the file can't be changed."""
    if file_path.endswith("/"):
        raise InvalidError(f"{visible_line(file_path)} is a directory, not a file", "Remove the trailing slash.")
    authorized = authorize_path(context, tool, {"file_path": file_path}, file_path)
    path = display_path(authorized.facts.requested, context)
    before = _read_content(context, authorized.facts.resolved, path)
    _check_writable(authorized.facts.resolved, path, before is not None)
    if before is not None and is_binary(before):
        raise InvalidError(
            f"{path} is a binary file of {format_size(len(before))}, not text",
            "Change it with a command, or delete it first.",
        )
    return FileTarget(authorized, path, before)


def _read_content(context: ToolContext, resolved: str, path: str) -> bytes | None:
    try:
        status = os.lstat(resolved)
    except (FileNotFoundError, NotADirectoryError):
        return None
    if stat.S_ISDIR(status.st_mode):
        raise InvalidError(f"{path} is a directory", "Provide a file path.")
    descriptor = open_for_reading(resolved, context.workspace, expected_resolved=resolved)
    with open(descriptor, "rb", buffering=0) as file:
        size = os.fstat(descriptor).st_size
        data = _read_all(file.fileno(), size) if size <= MAX_BYTES else b""
    if max(size, len(data)) > MAX_BYTES:
        problem = f"{path} is too large to edit: {format_size(max(size, len(data)))}, maximum {format_size(MAX_BYTES)}"
        raise InvalidError(problem, "Use a command such as sed.")
    return data


def _read_all(descriptor: int, size: int) -> bytes:
    """Also reads what a growing file gains meanwhile, up to the limit."""
    chunks: list[bytes] = []
    remaining = MAX_BYTES + 1
    while remaining > 0 and (chunk := os.read(descriptor, min(remaining, size + 1))):
        chunks.append(chunk)
        remaining -= len(chunk)
    return b"".join(chunks)


def _check_writable(resolved: str, path: str, exists: bool) -> None:
    """Checked before the change is recorded. If access changes later, the write itself fails."""
    if exists and not os.access(resolved, os.W_OK, follow_symlinks=False):
        raise InvalidError(f"{path} is read-only", "Make it writable first if you intend to change it.")
    folder, mode = _nearest_existing(os.path.dirname(resolved))
    if not stat.S_ISDIR(mode):
        raise InvalidError(f"cannot create {path}: {visible_line(folder)} is not a directory")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise InvalidError(f"cannot write {path}: no write permission for directory {visible_line(folder)}")


def _nearest_existing(folder: str) -> tuple[str, int]:
    """The folder or its nearest parent that exists, and its mode."""
    while True:
        try:
            return folder, os.lstat(folder).st_mode
        except (FileNotFoundError, NotADirectoryError):
            folder = os.path.dirname(folder)


def _write_change(change: FileChange, context: ToolContext, stop: threading.Event) -> ToolOutput:
    target, resolved = change.target, change.target.authorized.facts.resolved
    with _CHECK_AND_WRITE_LOCK:
        if stop.is_set():
            return error_output("canceled; nothing was changed")
        now = _read_content(context, resolved, target.shown_path)
        if now != target.before:
            what = (
                "was deleted"
                if now is None
                else "was created"
                if target.before is None
                else "was changed by another process"
            )
            return error_output(f"{target.shown_path} {what} during this edit; nothing was written", "Read it again.")
        write_file(resolved, change.after, context.workspace, expected_resolved=resolved)
    if context.seen_files is not None:
        context.seen_files.record(resolved, change.after)
    return change.output


def unseen_problem(context: ToolContext, target: FileTarget, *, must_be_seen: bool) -> ToolOutput | None:
    """Why an existing file must not be changed yet. An empty file has nothing to lose."""
    if context.seen_files is None or not target.before:
        return None
    state = context.seen_files.compare(target.authorized.facts.resolved, target.before)
    if state == "changed":
        return error_output(
            f"{target.shown_path} has changed since it was last read", "Read it again before changing it."
        )
    if state == "unseen" and must_be_seen:
        return error_output(
            f"{target.shown_path} exists and has not been read in this session",
            "Read it first, or use Edit.",
        )
    return None
