"""Creates placeholders for missing control paths, so that a sandboxed command can't create them.

A mount needs a mount point. For a file it is a socket, which git and searches ignore and which never blocks; for a
directory an empty directory, which git ignores. A distinctive timestamp identifies placeholders of a killed run, and
the next run removes them. A lock on the root keeps runs from removing each other's.
"""

import contextlib
import errno
import fcntl
import os
import stat
import time
from collections.abc import Generator, Iterable
from typing import Final, Literal, NamedTuple

from kitbag.errors import InvalidError
from kitbag.permissions.model import is_inside

STAMP: Final = 0x4B495442
"""The modification time that identifies a placeholder, in whole seconds, which every file system stores."""
_LOCK_SECONDS = 10.0
_COMMON_FOLDER = "commondir"
_SAME_FOLDER = b".\n"
"""Content of a `commondir` that changes nothing; git treats an empty one as corrupt."""
_FOLDERS = frozenset(
    (
        ".git", ".kitbag", ".claude", ".codex", ".gemini", ".opencode", ".cursor", ".agents", ".windsurf", ".roo",
        ".kiro", ".continue", ".qwen", ".crush", ".vscode", ".idea", ".zed", ".fleet", ".devcontainer", ".husky",
        ".yarn", ".mise", ".circleci", ".bashrc.d", ".oh-my-zsh", ".vim", ".emacs.d", ".ssh", ".gnupg", "agents",
        "skills", "hooks", "workflows", "actions", "instructions", "prompts", "chatmodes", "git", "fish", "nushell",
        "autostart", "systemd", "environment.d", "nvim", "tmux", "direnv", "zed", "opencode", "kitbag", "mise", "bin",
        "code", "plasma-workspace", "applications", "dbus-1", "cli-plugins", "init.d", "modules", "worktrees",
    )
)  # fmt: skip
"""Control names that are directories; all others are files."""


class SandboxError(InvalidError):
    """The sandbox could not be created; the command did not run."""


PlaceholderKind = Literal["file", "folder", "same", "parent", "there"]


class HeldPath(NamedTuple):
    path: str
    kind: PlaceholderKind
    """What the command sees: an empty file, an empty directory, a `commondir` that changes nothing, a parent of those
    (writable but not movable), or the existing path."""


def is_placeholder(path: str) -> bool:
    try:
        return _is_ours(os.lstat(path), os.path.basename(path))
    except OSError:
        return False


def link_error(path: str) -> SandboxError:
    problem = f"{path} is a symbolic link, which the sandbox cannot protect"
    return SandboxError(problem, "replace it with the directory or file itself")


@contextlib.contextmanager
def placeholders(missing: Iterable[str], roots: Iterable[str]) -> Generator[tuple[HeldPath, ...], None, None]:
    """Occupies every missing path that is inside one of the roots."""
    roots = tuple(roots)
    by_root: dict[str, list[str]] = {}
    for path in sorted(set(missing)):
        holding = [root for root in roots if is_inside(path, root) and path != root]
        if holding:
            by_root.setdefault(max(holding, key=len), []).append(path)
    held: list[HeldPath] = []
    with contextlib.ExitStack() as stack:
        for root, paths in sorted(by_root.items()):
            held += stack.enter_context(_in_root(root, paths))
        yield tuple(dict.fromkeys(held))


@contextlib.contextmanager
def _in_root(root: str, paths: list[str]) -> Generator[list[HeldPath], None, None]:
    try:
        top = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        fix = "start Kitbag in a directory that you can access"
        raise SandboxError(f"cannot open {root}: {error.strerror}", fix) from error
    taking = _RootPlaceholders(top, root)
    try:
        _lock(top, root)
        for path in paths:
            taking.take(path)
        for path, kind in taking.held.items():
            if kind == "parent":
                _stamp(top, os.path.relpath(path, root))
        yield [HeldPath(path, kind) for path, kind in taking.held.items()]
    finally:
        # The last run cleans up: the kernel grants the exclusive lock only if no other run holds one.
        with contextlib.suppress(OSError):
            fcntl.flock(top, fcntl.LOCK_EX | fcntl.LOCK_NB)
            taking.clear()
        taking.close()


def _lock(top: int, root: str) -> None:
    deadline = time.monotonic() + _LOCK_SECONDS
    while True:
        try:
            return fcntl.flock(top, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno != errno.EWOULDBLOCK or time.monotonic() > deadline:
                raise SandboxError(
                    f"{root} is locked by another program", "wait for it to finish, or stop it"
                ) from error
        time.sleep(0.005)


class _RootPlaceholders:
    """The placeholders of one root. Opens directories one by one from the root, so no link leads elsewhere."""

    __slots__ = ("_folders", "_root", "_socket", "held")

    def __init__(self, top: int, root: str) -> None:
        self._root = root
        self._folders = {root: top}
        self._socket = ""
        self.held: dict[str, PlaceholderKind] = {}

    def take(self, path: str) -> None:
        *parents, name = os.path.relpath(path, self._root).split(os.sep)
        here = self._root
        try:
            for part in parents:
                above, here = here, os.path.join(here, part)
                if here in self._folders:
                    continue
                kind = self._make(self._folders[above], part, here, "parent")
                if kind == "parent" or not _is_folder(self._folders[above], part):
                    self.held[here] = kind
                if self.held.get(here) == "there":
                    return
                self._open(here, above, part)
            kind = "same" if name == _COMMON_FOLDER else "folder" if name.casefold() in _FOLDERS else "file"
            self.held[path] = self._make(self._folders[here], name, path, kind)
        except OSError as error:
            if error.errno != errno.EROFS:  # read-only: the command can't create it either
                fix = "make its directory writable, or start Kitbag in another directory"
                raise SandboxError(f"cannot protect {path}: {error.strerror}", fix) from error

    def clear(self) -> None:
        # Check first: removing an entry changes the directory's timestamp.
        mine = [path for path, kind in self.held.items() if kind == "parent" or is_placeholder(path)]
        for path in sorted(mine, key=lambda path: path.count(os.sep), reverse=True):
            parent, name = os.path.split(path)
            with contextlib.suppress(OSError):
                if self.held[path] in ("folder", "parent"):
                    os.rmdir(name, dir_fd=self._folders[parent])  # fails if it is not empty
                else:
                    os.unlink(name, dir_fd=self._folders[parent])

    def close(self) -> None:
        for folder in self._folders.values():
            os.close(folder)

    def _open(self, path: str, above: str, part: str) -> None:
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        self._folders[path] = os.open(part, flags, dir_fd=self._folders[above])

    def _make(self, folder: int, name: str, path: str, kind: PlaceholderKind) -> PlaceholderKind:
        try:
            if kind == "file":
                self._make_socket(folder, name, path)
                return kind
            if kind == "same":
                descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o444, dir_fd=folder)
                try:
                    os.write(descriptor, _SAME_FOLDER)
                finally:
                    os.close(descriptor)
            else:
                os.mkdir(name, 0o755 if kind == "parent" else 0o555, dir_fd=folder)
        except FileExistsError:
            found = os.stat(name, dir_fd=folder, follow_symlinks=False)
            if stat.S_ISLNK(found.st_mode):
                raise link_error(path) from None
            if not _is_ours(found, name):
                return "there"
            if stat.S_ISDIR(found.st_mode):
                return "parent" if kind == "parent" else "folder"
            return "there" if kind == "parent" else "file" if stat.S_ISSOCK(found.st_mode) else "same"
        _stamp(folder, name)
        return kind

    def _make_socket(self, folder: int, name: str, path: str) -> None:
        """One socket with hard links to it, which is faster."""
        if self._socket:
            try:
                return os.link(self._socket, name, src_dir_fd=self._folders[self._root], dst_dir_fd=folder)
            except FileExistsError:
                raise
            except OSError:
                pass  # not supported by every file system
        os.mknod(name, stat.S_IFSOCK | 0o400, dir_fd=folder)
        _stamp(folder, name)
        self._socket = self._socket or os.path.relpath(path, self._root)
        return None


def _stamp(folder: int, path: str) -> None:
    os.utime(path, (STAMP, STAMP), dir_fd=folder, follow_symlinks=False)


def _is_folder(folder: int, name: str) -> bool:
    return stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)


def _is_ours(found: os.stat_result, name: str) -> bool:
    if stat.S_ISSOCK(found.st_mode) and stat.S_IMODE(found.st_mode) == 0o400:
        return True  # killed before it got its timestamp
    if int(found.st_mtime) != STAMP:
        return False
    if name == _COMMON_FOLDER:
        return stat.S_ISREG(found.st_mode) and found.st_size == len(_SAME_FOLDER)
    return stat.S_ISSOCK(found.st_mode) or stat.S_ISDIR(found.st_mode)
