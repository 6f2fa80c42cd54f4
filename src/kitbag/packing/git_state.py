"""Reads the branch and commit of a workspace from git's files, without running git: a repository's configuration can
make git run arbitrary programs.

Accepts only values that look like a ref or a commit hash, and a repository outside the workspace only if it points
back to it. Used by agent_prompt for the environment section; uses text.source_files.
"""

import os
import re

import msgspec

from kitbag.text.source_files import PathBoundary, SourceError, open_regular_file, read_bytes, with_trailing_slash

_MAX_LINE_BYTES = 4_096
_MAX_PACKED_BYTES = 64 << 20
_CHUNK = 1 << 20
_REF = re.compile(r"refs/[^\s\x00-\x1f\x7f~^:?*\[\\]{1,200}")
_SHA = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_WORKTREE = re.compile(r"^\s*worktree\s*=\s*\"?([^\"\n]+?)\"?\s*$", re.MULTILINE | re.IGNORECASE)
_REFTABLE_HEAD = "refs/heads/.invalid"
"""Content of HEAD in repositories with the reftable format, which only git can read."""


class GitState(msgspec.Struct, frozen=True, kw_only=True):
    branch: str
    """Empty if HEAD is detached."""
    commit: str
    """First twelve digits of the hash; empty if there is none or it can't be determined."""
    unborn: bool = False
    """True if the branch has no commits yet."""

    def render(self) -> str:
        if not self.branch:
            return f"detached at {self.commit}" if self.commit else ""
        if self.commit:
            return f"{self.branch} at {self.commit}"
        return f"{self.branch}, no commits yet" if self.unborn else self.branch


def read_git_state(directory: str) -> GitState | None:
    """None if the directory is not the root of a readable repository."""
    git = _git_directory(directory)
    if not git:
        return None
    head = _read_first_line(git, "HEAD")
    if _SHA.fullmatch(head):
        return GitState(branch="", commit=head[:12])
    ref = head.removeprefix("ref:").strip()
    if not head.startswith("ref:") or not _REF.fullmatch(ref) or ".." in ref or "//" in ref or ref == _REFTABLE_HEAD:
        return None
    common = _common_directory(git)
    for folder in dict.fromkeys((git, common)):
        sha = _read_first_line(folder, ref)
        if _SHA.fullmatch(sha):
            return GitState(branch=_branch_name(ref), commit=sha[:12])
    sha, is_searched = _find_packed_ref(common, ref)
    return GitState(
        branch=_branch_name(ref),
        commit=sha[:12],
        unborn=is_searched and not sha and not os.path.lexists(os.path.join(common, ref)),
    )


def _branch_name(ref: str) -> str:
    return ref.removeprefix("refs/heads/")


def _git_directory(directory: str) -> str:
    """The resolved `.git` directory, or the one that a `.git` file names if it points back here; else empty."""
    directory = os.path.realpath(directory)
    path = os.path.join(directory, ".git")
    if os.path.isdir(path) and not os.path.islink(path):
        return path
    line = _read_first_line(directory, ".git")
    if not line.startswith("gitdir:") or "\0" in line:
        return ""
    git = os.path.realpath(os.path.join(directory, line.removeprefix("gitdir:").strip()))
    return git if _points_back(git, directory) else ""


def _points_back(git: str, here: str) -> bool:
    """Keeps a workspace from showing another repository's branch to a model."""
    back = _read_first_line(git, "gitdir")
    if back:  # a worktree's git directory names the `.git` file that belongs to it
        return os.path.realpath(os.path.join(git, back)) == os.path.join(here, ".git")
    try:
        text = read_bytes(os.path.join(git, "config"), _repository_boundary(git), _CHUNK)[0].decode("utf-8", "replace")
    except SourceError:
        return False
    return any(os.path.realpath(os.path.join(git, path)) == here for path in _WORKTREE.findall(text))


def _common_directory(git: str) -> str:
    """Where a worktree's branches are stored: two directories up, and nowhere else."""
    common = _read_first_line(git, "commondir")
    parent = os.path.dirname(os.path.dirname(git))
    return parent if common and os.path.normpath(os.path.join(git, common)) == parent else git


def _repository_boundary(folder: str) -> PathBoundary:
    """Symlinks may not leave the repository: the first line of another file could look like a commit hash."""
    return PathBoundary((with_trailing_slash(folder),))


def _read_first_line(folder: str, name: str) -> str:
    """The first line of a small regular file, not a symlink; empty for everything else."""
    path = os.path.join(folder, name)
    if os.path.islink(path):
        return ""
    try:
        data, _, _ = read_bytes(path, _repository_boundary(folder), _MAX_LINE_BYTES)
    except SourceError:
        return ""
    return data.decode("utf-8", "replace").partition("\n")[0].strip()


def _find_packed_ref(common: str, ref: str) -> tuple[str, bool]:
    """The commit of a ref in packed-refs, and whether the whole file was searched."""
    path = os.path.join(common, "packed-refs")
    try:
        descriptor, status = open_regular_file(path, _repository_boundary(common))
    except SourceError:
        return "", not os.path.lexists(path)
    pattern = re.compile(rb"\n([0-9a-f]{40}(?:[0-9a-f]{24})?) " + re.escape(ref.encode()) + rb"\r?\n")
    buffer, remaining = b"\n", _MAX_PACKED_BYTES
    try:
        while remaining > 0 and (chunk := os.read(descriptor, _CHUNK)):
            remaining -= len(chunk)
            buffer += chunk
            if match := pattern.search(buffer):
                return match[1].decode(), True
            tail = buffer[buffer.rfind(b"\n") :]
            buffer = tail if len(tail) <= _MAX_LINE_BYTES else b"\0"  # too long to be a ref
    except OSError:
        return "", False
    finally:
        os.close(descriptor)
    match = pattern.search(buffer + b"\n")
    return (match[1].decode() if match else ""), status.st_size <= _MAX_PACKED_BYTES
