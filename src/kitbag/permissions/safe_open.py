"""Opens, writes and removes files without races: only the path that was approved is touched.

Resolves a path once, then opens its directories one by one from `/` without following links; a link put in the way
meanwhile raises an error. Used by tools; uses `paths`. Each function takes a path inside the roots, or as
`expected_resolved` the exact `PathFacts.resolved` that a decision allowed, inside the roots or not.
"""

import contextlib
import errno
import os
import stat
from collections.abc import Generator
from typing import Literal, NamedTuple

from kitbag.errors import InvalidError
from kitbag.permissions.control_paths import file_type_reason
from kitbag.permissions.model import Workspace, is_inside
from kitbag.permissions.paths import PathFacts, examine_path
from kitbag.permissions.workspace_identity import WorkspaceMovedError

# O_PATH needs no read permission on the directory; Linux only.
_OPEN_DIRECTORY = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_OPEN_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_OPEN_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_ASK_FIX = "ask the user to allow this exact path"
_CHANGED_FIX = "check the path again; another process may be changing this directory"


class SafeOpenError(InvalidError):
    """The path can't be used: outside the workspace, protected, not a file, missing, or changed while opening."""


class DirectoryEntry(NamedTuple):
    name: str
    kind: Literal["file", "directory", "link", "other"]


def open_for_reading(path: str, workspace: Workspace, *, expected_resolved: str = "") -> int:
    """Return a descriptor of a regular file, opened without blocking. The caller closes it."""
    resolved = expected_resolved or _resolve_for_reading(path, workspace)
    with _open_parent(resolved, workspace) as (parent, name), _map_errors(resolved):
        _require_file(resolved, os.lstat(name, dir_fd=parent))  # check first: opening a device can have side effects
        descriptor = os.open(name, _OPEN_READ, dir_fd=parent)
        try:
            _require_file(resolved, os.fstat(descriptor))
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor


def read_directory(path: str, workspace: Workspace, *, expected_resolved: str = "") -> list[DirectoryEntry]:
    """Sorted by name."""
    resolved = expected_resolved or _resolve_for_reading(path, workspace)
    with _open_directory(resolved, workspace) as folder, _map_errors(resolved):
        readable = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folder)
        try:
            with os.scandir(readable) as entries:
                return sorted(DirectoryEntry(entry.name, _entry_kind(entry)) for entry in entries)
        finally:
            os.close(readable)


def write_file(
    path: str, data: bytes, workspace: Workspace, *, mode: int | None = None, expected_resolved: str = ""
) -> None:
    """Replace the file atomically and create missing parent directories. An existing file keeps its mode and owner. A
    link as the last component is followed if it leads inside the roots."""
    if path.endswith("/"):
        raise SafeOpenError(f"{path} is a directory, not a file", "remove the trailing slash")
    resolved = expected_resolved or _resolve_for_writing(path, workspace)
    with _open_parent(resolved, workspace, create=True) as (parent, name), _map_errors(resolved):
        existing = _stat_existing(resolved, name, parent)
        temporary = f".kitbag-{os.urandom(8).hex()}.tmp"
        # A new file gets the umask's mode; content that had a stricter mode is never exposed with a wider one.
        descriptor = os.open(temporary, _OPEN_NEW, 0o666 if existing is None and mode is None else 0o600, dir_fd=parent)
        try:
            with open(descriptor, "wb", buffering=0) as file:
                _write_all(file.fileno(), data)
                _copy_owner_and_mode(file.fileno(), existing, mode)
            os.rename(temporary, name, src_dir_fd=parent, dst_dir_fd=parent)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary, dir_fd=parent)
            raise


def make_directory(path: str, workspace: Workspace, *, expected_resolved: str = "") -> None:
    """Create missing parents too; succeed if it already exists."""
    with _open_directory(expected_resolved or _resolve_for_writing(path, workspace), workspace, create=True):
        pass


def remove_file(path: str, workspace: Workspace, *, expected_resolved: str = "") -> None:
    """Remove a link itself, not its target."""
    if not expected_resolved:
        folder, name = os.path.split(path)
        if name in ("", ".", ".."):
            raise SafeOpenError(f"{path} is a directory, not a file")
        # Follow only the links of its parent directory.
        expected_resolved = f"{_resolve_for_writing(folder or '.', workspace)}/{name}"
        if reason := examine_path(expected_resolved, workspace).control_reason:
            raise SafeOpenError(f"{path} is protected: {reason}", _ASK_FIX)
    with _open_parent(expected_resolved, workspace) as (parent, name), _map_errors(expected_resolved):
        os.unlink(name, dir_fd=parent)


@contextlib.contextmanager
def open_parent(resolved: str, workspace: Workspace | None = None) -> Generator[tuple[int, str], None, None]:
    """For operations without a function here: open the parent directory without following links, and give the name.
    Pass the workspace to change anything there."""
    with _open_parent(resolved, workspace) as parent, _map_errors(resolved):
        yield parent


def _resolve_for_reading(path: str, workspace: Workspace) -> str:
    facts = examine_path(path, workspace)
    if not facts.special_reason and not facts.readable:
        raise _outside_error(facts, "read")
    return _require_usable(facts)


def _resolve_for_writing(path: str, workspace: Workspace) -> str:
    facts = examine_path(path, workspace)
    if not facts.special_reason and not facts.writable:
        raise _outside_error(facts, "write")
    if facts.control_reason:
        raise SafeOpenError(f"{facts.requested} is protected: {facts.control_reason}", _ASK_FIX)
    return _require_usable(facts)


def _outside_error(facts: PathFacts, action: str) -> SafeOpenError:
    target = f"it resolves to {facts.resolved}, which is " if facts.resolved != facts.requested else ""
    return SafeOpenError(
        f"cannot {action} {facts.requested}: {target}outside the workspace", "use a path inside the workspace"
    )


def _require_usable(facts: PathFacts) -> str:
    if facts.special_reason:
        raise SafeOpenError(f"cannot use {facts.requested}: {facts.special_reason}")
    return facts.resolved


@contextlib.contextmanager
def _open_parent(
    resolved: str, workspace: Workspace | None, *, create: bool = False
) -> Generator[tuple[int, str], None, None]:
    folder, name = os.path.split(resolved)
    if name in ("", ".", ".."):
        raise SafeOpenError(f"{resolved} is a directory, not a file")
    with _open_directory(folder, workspace, create=create) as descriptor:
        yield descriptor, name


@contextlib.contextmanager
def _open_directory(resolved: str, workspace: Workspace | None, *, create: bool = False) -> Generator[int, None, None]:
    """Open a directory component by component without following links. The workspace must be the one in which the work
    began, and is never created."""
    if not resolved.startswith("/") or ".." in resolved.split("/"):
        raise SafeOpenError(f"{resolved} is not a resolved path")
    root = workspace.root if workspace is not None and is_inside(resolved, workspace.root) else ""
    identity = workspace.identity if workspace is not None and root else None
    depth_of_root = len(list(filter(None, root.split("/")))) if identity is not None else 0
    with _map_errors(resolved):
        descriptor = os.open("/", _OPEN_DIRECTORY)
    try:
        for count, part in enumerate(filter(None, resolved.split("/")), 1):
            with _map_errors(resolved) if count > depth_of_root else _map_moved(root):
                deeper = _open_child(descriptor, part, create=create and count > depth_of_root)
            os.close(descriptor)
            descriptor = deeper
            if count == depth_of_root and identity is not None and not identity.matches(os.fstat(descriptor)):
                raise WorkspaceMovedError(root)
        yield descriptor
    finally:
        os.close(descriptor)


def _open_child(folder: int, part: str, *, create: bool) -> int:
    try:
        return os.open(part, _OPEN_DIRECTORY, dir_fd=folder)
    except FileNotFoundError:
        if not create:
            raise
    with contextlib.suppress(FileExistsError):
        os.mkdir(part, dir_fd=folder)
    return os.open(part, _OPEN_DIRECTORY, dir_fd=folder)


def _stat_existing(resolved: str, name: str, parent: int) -> os.stat_result | None:
    try:
        existing = os.lstat(name, dir_fd=parent)
    except FileNotFoundError:
        return None
    _require_file(resolved, existing)
    if not os.access(name, os.W_OK, dir_fd=parent, effective_ids=True, follow_symlinks=False):
        raise SafeOpenError(f"{resolved} is read-only", "make it writable first if you intend to change it")
    return existing


def _require_file(resolved: str, status: os.stat_result) -> None:
    if stat.S_ISLNK(status.st_mode):
        raise SafeOpenError(f"{resolved} has become a symbolic link", _CHANGED_FIX)
    if stat.S_ISDIR(status.st_mode):
        raise SafeOpenError(f"{resolved} is a directory, not a file")
    if reason := file_type_reason(status.st_mode):
        raise SafeOpenError(f"cannot use {resolved}: {reason}")


def _write_all(descriptor: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(descriptor, left) :]


def _copy_owner_and_mode(descriptor: int, existing: os.stat_result | None, mode: int | None) -> None:
    """Drops set-user-ID and set-group-ID bits: new content must not run as another user."""
    if existing is not None:
        now = os.fstat(descriptor)
        if (now.st_uid, now.st_gid) != (existing.st_uid, existing.st_gid):
            with contextlib.suppress(PermissionError):
                os.fchown(descriptor, existing.st_uid, existing.st_gid)
    if mode is None and existing is not None:
        mode = existing.st_mode
    if mode is not None:
        os.fchmod(descriptor, mode & 0o777)


def _entry_kind(entry: "os.DirEntry[str]") -> Literal["file", "directory", "link", "other"]:
    if entry.is_symlink():
        return "link"
    if entry.is_dir(follow_symlinks=False):
        return "directory"
    return "file" if entry.is_file(follow_symlinks=False) else "other"


@contextlib.contextmanager
def _map_moved(root: str) -> Generator[None, None, None]:
    try:
        yield
    except OSError as error:
        raise WorkspaceMovedError(root) from error


@contextlib.contextmanager
def _map_errors(resolved: str) -> Generator[None, None, None]:
    """Map OSError and ValueError to SafeOpenError."""
    try:
        yield
    except FileNotFoundError as error:
        raise SafeOpenError(f"{resolved} does not exist") from error
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            problem = f"cannot reach {resolved}: a parent is not a directory or has become a symbolic link"
            raise SafeOpenError(problem, _CHANGED_FIX) from error
        raise SafeOpenError(f"cannot use {resolved}: {error.strerror or error}") from error
    except ValueError as error:  # a NUL character or a lone surrogate
        raise SafeOpenError(f"cannot use {resolved}: {error}") from error
