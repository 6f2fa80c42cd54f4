"""Reads an untrusted workspace within limits on files, bytes and time.

Never blocks on a pipe, enters no directory twice, and records what it could not read. Used by `workspace_items`.
Walks on its own: it follows links inside the workspace, because loaders do, and ignored files count.
"""

import hashlib
import os
import stat
import time
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Literal

import msgspec

from kitbag.library.scopes import Places, project_boundary
from kitbag.permissions.model import is_inside
from kitbag.permissions.trust.capabilities import Capability, document_capabilities
from kitbag.permissions.trust.content_cache import ContentCache
from kitbag.text.source_files import (
    BODY_LIMIT,
    FileStamp,
    SourceError,
    file_stamp,
    open_regular_file,
    read_text,
    with_trailing_slash,
)

_EntryKind = Literal["directory", "file", "link"]
_Listing = tuple[tuple[str, _EntryKind], ...]

_SKIPPED_DIRECTORIES = frozenset((".git", "node_modules", "__pycache__", ".venv", "venv"))
_MAX_DEPTH = 8


class ReadLimits(msgspec.Struct, frozen=True, kw_only=True):
    files: int = 30_000
    bytes: int = 256 * 1024 * 1024
    seconds: float = 15.0
    folders: int = 20_000
    """For one root of skills or commands."""
    agent_folders: int = 2_000
    script_bytes: int = 64 * 1024 * 1024
    """For one file that is hashed as a whole."""


class ReadLimitError(Exception):
    """A limit was reached; the scan stops."""


class BoundedReader:
    def __init__(self, places: Places, limits: ReadLimits, clock: Callable[[], int] = time.time_ns) -> None:
        """`clock`: tells how old a file is, in nanoseconds."""
        self.cwd = places.cwd
        self.root = places.project
        self.real_root = os.path.realpath(places.project)
        self.boundary = project_boundary(places)
        self.limits = limits
        self.problems: list[str] = []
        self.is_complete = True
        self.linked: set[str] = set()
        """Paths reached through a link, as returned by `relative`."""
        self._places, self._clock = places, clock
        self._listings: dict[str, _Listing] = {}
        """Of this scan."""
        self._real_folders: dict[str, str] = {}
        self._stamps: dict[str, FileStamp | None] = {}
        self._deadline = time.monotonic() + limits.seconds
        self._files_left = limits.files
        self._bytes_left = limits.bytes

    @cached_property
    def cache(self) -> ContentCache:
        return ContentCache(self._places, self._clock)

    def charge(self, files: int = 0, size: int = 0) -> None:
        self._files_left -= files
        self._bytes_left -= size
        if self._files_left < 0:
            raise ReadLimitError(f"more than {self.limits.files:,} files")
        if self._bytes_left < 0:
            raise ReadLimitError(f"more than {self.limits.bytes >> 20:,} MiB")
        if time.monotonic() > self._deadline:
            raise ReadLimitError(f"the scan timed out after {self.limits.seconds:g} seconds")

    @property
    def seconds_left(self) -> float:
        return max(0.0, self._deadline - time.monotonic())

    def add_gap(self, problem: str) -> None:
        self.is_complete = False
        self.problems.append(problem)

    def relative(self, path: str) -> str:
        for root in (self.root, self.real_root):
            if path != root and is_inside(path, root):
                return path[len(root) :].lstrip(os.sep)
        return path

    def read_text(self, path: str) -> tuple[str, str]:
        """The text of a file, or why it is not used."""
        self.charge(1)
        try:
            text, _, _ = read_text(path, self.boundary)
        except SourceError as error:
            return "", error.problem
        self.charge(size=len(text))
        return text, ""

    def document_capabilities(self, path: str) -> tuple[list[Capability], str]:
        """What a file with frontmatter would run or allow, or why it is not used."""
        stamp = self._stamp(path)
        if stamp is not None and (known := self.cache.find("document", path, stamp)) is not None:
            self.charge(1, known[0])
            return [Capability(kind=kind, text=text, line=line) for kind, text, line in known[1]], ""
        text, problem = self.read_text(path)
        capabilities = document_capabilities(text)[0]
        if stamp is not None and not problem:
            found = [(one.kind, one.text, one.line) for one in capabilities]
            self.cache.add("document", path, stamp, (len(text), found))
        return capabilities, problem

    def files_below(self, top: str, max_depth: int = _MAX_DEPTH) -> Iterator[str]:
        """Every file below a directory, sorted within each. Follows links and enters each directory once."""
        pending = [(top, 0)] if not self.refusal_reason(top) else []
        seen: set[str] = set()
        while pending:
            folder, depth = pending.pop()
            self.charge()
            real_path = self.real_path(folder)
            if real_path in seen:
                continue
            seen.add(real_path)
            try:
                entries = self._list_directory(folder)
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:
                self.add_gap(f"{self.relative(folder)}: cannot list directory: {(error.strerror or '').lower()}")
                continue
            for name, kind in entries:
                path = f"{folder}/{name}"
                if kind == "file" or (kind == "link" and (not _is_directory(path) or self.refusal_reason(path))):
                    yield path
                elif name not in _SKIPPED_DIRECTORIES:
                    if depth < max_depth:
                        pending.append((path, depth + 1))
                    elif max_depth:
                        self.add_gap(f"{self.relative(path)}: nested too deeply to scan")

    def _list_directory(self, folder: str) -> _Listing:
        """Sorted by name. Anything that is neither a directory nor a link is a file. Raises OSError."""
        if folder in self._listings:
            return self._listings[folder]
        stamp = self._stamp(folder)
        cached = self.cache.find("listing", folder, stamp) if stamp is not None else None
        entries: _Listing | None = cached
        if entries is None:
            with os.scandir(folder) as listed:
                entries = tuple(sorted((entry.name, _kind_of(entry)) for entry in listed))
            # Where a link leads can change without a change of the directory, so every link is looked at.
            if stamp is not None and all(kind != "link" for _, kind in entries):
                self.cache.add("listing", folder, stamp, entries)
        self._listings[folder] = entries
        return entries

    def links_below(self, directory: str, folder: str) -> Iterator[str]:
        """Every link on the way to a directory and below it; follows none."""
        path = directory
        for part in folder.split("/"):
            path = os.path.join(path, part)
            if os.path.islink(path):
                yield from [path] if os.path.lexists(os.path.join(directory, folder)) else []
                return
        pending = [(path, 0)]
        while pending:
            path, depth = pending.pop()
            self.charge()
            try:
                entries = self._list_directory(path)
            except OSError:
                continue
            yield from (f"{path}/{name}" for name, kind in entries if kind == "link")
            if depth < _MAX_DEPTH:
                folders = (name for name, kind in entries if kind == "directory")
                pending += [(f"{path}/{name}", depth + 1) for name in folders if name not in _SKIPPED_DIRECTORIES]

    def real_path(self, path: str) -> str:
        """As `os.path.realpath`, but each directory on the way is resolved once per scan."""
        folder, _, name = path.rpartition("/")
        if not folder or name in ("", ".", "..") or self._stamp(path) is None:
            return os.path.realpath(path)
        real_folder = self._real_folders.get(folder)
        if real_folder is None:
            real_folder = self._real_folders[folder] = self.real_path(folder)
        return f"{real_folder}/{name}"

    def _stamp(self, path: str) -> FileStamp | None:
        """Read once per scan. None for a link, so that nothing behind a link is cached, and for what can't be read."""
        if path not in self._stamps:
            try:
                status = os.lstat(path)
            except (OSError, ValueError):
                self._stamps[path] = None
            else:
                self._stamps[path] = None if stat.S_ISLNK(status.st_mode) else file_stamp(status)
        return self._stamps[path]

    def refusal_reason(self, path: str) -> str:
        """Why a directory or the target of a link is not read; empty if it is."""
        return self.boundary.violation(with_trailing_slash(self.real_path(path)))

    def link_capabilities(self, path: str, name: str, problem: str = "") -> list[Capability]:
        """The capability of a file or directory reached through a link; empty for anything else."""
        real = self.real_path(path)
        if real == os.path.join(self.real_root, self.relative(path)):
            return []
        self.linked.add(self.relative(path))
        return [Capability(kind="link", text=f"{name} -> {self.relative(real)}", note=problem)]

    def script_capabilities(
        self, path: str, name: str, only_executable: bool = False, use_cache: bool = True
    ) -> tuple[list[Capability], str]:
        """The file as a script, bound to its bytes. `only_executable`: nothing for prose and images."""
        stamp = self._stamp(path) if use_cache else None
        key = f"{path}\0{name}"  # whether a file is prose depends on its name, too
        known = self.cache.find("script", key, stamp) if stamp is not None else None
        if known is None:
            known, problem = self._hash_script(path, name)
            if known is None:
                return [], problem
            if stamp is not None:
                self.cache.add("script", key, stamp, known)
        else:
            self.charge(1, known[2])
        digest, is_inert, _ = known
        if only_executable and is_inert:
            return [], ""
        return [Capability(kind="script", text=name, line=0, digest=digest)], ""

    def _hash_script(self, path: str, name: str) -> tuple[tuple[str, bool, int] | None, str]:
        """(sha256, whether it is prose or an image, size) of a file, or why it is not used."""
        self.charge(1)
        try:
            descriptor, status = open_regular_file(path, self.boundary)
        except SourceError as error:
            return None, error.problem
        try:
            if status.st_size > self.limits.script_bytes:
                self.add_gap(f"{self.relative(path)}: too large to read completely")
                return None, "too large to read completely"
            digest = hashlib.sha256()
            start = b""
            size = 0
            while chunk := os.read(descriptor, 1 << 20):
                self.charge(size=len(chunk))
                size += len(chunk)
                digest.update(chunk)
                start += chunk if len(start) <= BODY_LIMIT else b""
        except OSError as error:
            return None, f"cannot be read: {(error.strerror or '').lower()}"
        finally:
            os.close(descriptor)
        from kitbag.library.plugins.fingerprint import active_content

        is_inert = not status.st_mode & 0o111 and len(start) <= BODY_LIMIT and active_content(name, start) is None
        return (digest.hexdigest(), is_inert, size), ""

    def resolve_file(self, word: str, directory: str) -> str:
        """The workspace file that a word of a command refers to; empty if there is none."""
        self.charge()
        if not word or len(word) > 1024 or "\0" in word:
            return ""
        for base in dict.fromkeys((self.cwd, self.root, directory)):
            path = os.path.normpath(os.path.join(base, word))
            try:
                regular = stat.S_ISREG(os.stat(path).st_mode)
            except (OSError, ValueError):
                continue
            if regular and (is_inside(path, self.root) or is_inside(os.path.realpath(path), self.real_root)):
                return path
        return ""


def _kind_of(entry: "os.DirEntry[str]") -> _EntryKind:
    if entry.is_symlink():
        return "link"
    return "directory" if entry.is_dir(follow_symlinks=False) else "file"


def _is_directory(path: str) -> bool:
    """False for a link that leads to itself, too."""
    return os.path.isdir(path)
