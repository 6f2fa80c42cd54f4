"""Reads an untrusted workspace within limits on files, bytes and time.

Never blocks on a pipe, enters no directory twice, and records what it could not read. Used by `workspace_items`.
Walks on its own: it follows links inside the workspace, because loaders do, and ignored files count.
"""

import hashlib
import os
import stat
import time
from collections.abc import Iterator

import msgspec

from kitbag.library.plugins.fingerprint import active_content
from kitbag.library.scopes import Places, project_boundary
from kitbag.permissions.model import is_inside
from kitbag.permissions.trust.capabilities import Capability
from kitbag.text.source_files import BODY_LIMIT, SourceError, open_regular_file, read_text, with_trailing_slash

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
    def __init__(self, places: Places, limits: ReadLimits) -> None:
        self.cwd = places.cwd
        self.root = places.project
        self.real_root = os.path.realpath(places.project)
        self.boundary = project_boundary(places)
        self.limits = limits
        self.problems: list[str] = []
        self.is_complete = True
        self.linked: set[str] = set()
        """Paths reached through a link, as returned by `relative`."""
        self._deadline = time.monotonic() + limits.seconds
        self._files_left = limits.files
        self._bytes_left = limits.bytes

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

    def files_below(self, top: str, max_depth: int = _MAX_DEPTH) -> Iterator[str]:
        """Every file below a directory, sorted within each. Follows links and enters each directory once."""
        pending = [(top, 0)] if not self.refusal_reason(top) else []
        seen: set[str] = set()
        while pending:
            folder, depth = pending.pop()
            self.charge()
            real_path = os.path.realpath(folder)
            if real_path in seen:
                continue
            seen.add(real_path)
            try:
                with os.scandir(folder) as listed:
                    entries = sorted(listed, key=lambda entry: entry.name)
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:
                self.add_gap(f"{self.relative(folder)}: cannot list directory: {(error.strerror or '').lower()}")
                continue
            for entry in entries:
                if not _is_directory(entry) or (entry.is_symlink() and self.refusal_reason(entry.path)):
                    yield entry.path
                elif entry.name not in _SKIPPED_DIRECTORIES:
                    if depth < max_depth:
                        pending.append((entry.path, depth + 1))
                    elif max_depth:
                        self.add_gap(f"{self.relative(entry.path)}: nested too deeply to scan")

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
                with os.scandir(path) as listed:
                    entries = list(listed)
            except OSError:
                continue
            yield from (entry.path for entry in entries if entry.is_symlink())
            if depth < _MAX_DEPTH:
                folders = (entry for entry in entries if entry.is_dir(follow_symlinks=False))
                pending += [(entry.path, depth + 1) for entry in folders if entry.name not in _SKIPPED_DIRECTORIES]

    def refusal_reason(self, path: str) -> str:
        """Why a directory or the target of a link is not read; empty if it is."""
        return self.boundary.violation(with_trailing_slash(os.path.realpath(path)))

    def link_capabilities(self, path: str, name: str, problem: str = "") -> list[Capability]:
        """The capability of a file or directory reached through a link; empty for anything else."""
        real = os.path.realpath(path)
        if real == os.path.join(self.real_root, self.relative(path)):
            return []
        self.linked.add(self.relative(path))
        return [Capability(kind="link", text=f"{name} -> {self.relative(real)}", note=problem)]

    def script_capabilities(self, path: str, name: str, only_executable: bool = False) -> tuple[list[Capability], str]:
        """The file as a script, bound to its bytes. `only_executable`: nothing for prose and images."""
        self.charge(1)
        try:
            descriptor, status = open_regular_file(path, self.boundary)
        except SourceError as error:
            return [], error.problem
        try:
            if status.st_size > self.limits.script_bytes:
                self.add_gap(f"{self.relative(path)}: too large to read completely")
                return [], "too large to read completely"
            digest = hashlib.sha256()
            start = b""
            while chunk := os.read(descriptor, 1 << 20):
                self.charge(size=len(chunk))
                digest.update(chunk)
                start += chunk if len(start) <= BODY_LIMIT else b""
        except OSError as error:
            return [], f"cannot be read: {(error.strerror or '').lower()}"
        finally:
            os.close(descriptor)
        is_inert = not status.st_mode & 0o111 and len(start) <= BODY_LIMIT and active_content(name, start) is None
        return (
            []
            if only_executable and is_inert
            else [Capability(kind="script", text=name, line=0, digest=digest.hexdigest())]
        ), ""

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


def _is_directory(entry: "os.DirEntry[str]") -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link that leads to itself
        return False
