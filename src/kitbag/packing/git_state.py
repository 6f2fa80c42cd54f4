"""The branch and the commit a workspace is at, read from git's own files. No git process runs: a repository's
configuration can make git run anything.

What is read is believed only where it has the shape of a branch's name or a commit's number, and a repository that
lies elsewhere only where it says that it belongs here. Used by compose for the environment of every prompt.
"""

import os
import re
from typing import NamedTuple

from kitbag.text.source_files import PathBoundary, SourceError, open_regular_file, read_bytes, with_trailing_slash

_MAX_LINE_BYTES = 4_096
_MAX_PACKED_BYTES = 64 << 20
_CHUNK = 1 << 20
_REF = re.compile(r"refs/[^\s\x00-\x1f\x7f~^:?*\[\\]{1,200}")
_SHA = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_WORKTREE = re.compile(r"^\s*worktree\s*=\s*\"?([^\"\n]+?)\"?\s*$", re.MULTILINE | re.IGNORECASE)
_REFTABLE_HEAD = "refs/heads/.invalid"
"""What HEAD says where branches are kept in a table that only git reads."""


class GitState(NamedTuple):
    branch: str
    """Empty when no branch is checked out."""
    commit: str
    """The first twelve digits; empty when there is none, or when it can't be told."""
    unborn: bool = False
    """The branch has no commit yet."""

    def render(self) -> str:
        if not self.branch:
            return f"no branch, at {self.commit}" if self.commit else ""
        if self.commit:
            return f"{self.branch} at {self.commit}"
        return f"{self.branch}, no commits yet" if self.unborn else self.branch


def read_git_state(directory: str) -> GitState | None:
    """None where no repository can be recognised."""
    git = _git_directory(directory)
    if not git:
        return None
    head = _read_first_line(git, "HEAD")
    if _SHA.fullmatch(head):
        return GitState("", head[:12])
    ref = head.removeprefix("ref:").strip()
    if not head.startswith("ref:") or not _REF.fullmatch(ref) or ".." in ref or "//" in ref or ref == _REFTABLE_HEAD:
        return None
    shared = _common_directory(git)
    for place in dict.fromkeys((git, shared)):
        sha = _read_first_line(place, ref)
        if _SHA.fullmatch(sha):
            return GitState(_branch_name(ref), sha[:12])
    sha, whole = _find_packed_ref(shared, ref)
    return GitState(_branch_name(ref), sha[:12], whole and not sha and not os.path.lexists(os.path.join(shared, ref)))


def _branch_name(ref: str) -> str:
    return ref.removeprefix("refs/heads/")


def _git_directory(directory: str) -> str:
    """`.git`, or where a worktree's or submodule's `.git` file leads to: if that leads back here. Resolved."""
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
    """So that no workspace can have another repository's branch told to a model."""
    back = _read_first_line(git, "gitdir")
    if back:  # a worktree's folder names the `.git` file it belongs to
        return os.path.realpath(os.path.join(git, back)) == os.path.join(here, ".git")
    try:
        text = read_bytes(os.path.join(git, "config"), _repository_boundary(git), _CHUNK)[0].decode("utf-8", "replace")
    except SourceError:
        return False
    return any(os.path.realpath(os.path.join(git, found)) == here for found in _WORKTREE.findall(text))


def _common_directory(git: str) -> str:
    """Where the branches of a worktree are: two folders up, and nowhere else."""
    common = _read_first_line(git, "commondir")
    above = os.path.dirname(os.path.dirname(git))
    return above if common and os.path.normpath(os.path.join(git, common)) == above else git


def _repository_boundary(folder: str) -> PathBoundary:
    """No link leads out of the repository: another file's first line could have the shape of a commit."""
    return PathBoundary((with_trailing_slash(folder),))


def _read_first_line(folder: str, name: str) -> str:
    """The first line of a small regular file below this folder that is no link; empty for everything else."""
    path = os.path.join(folder, name)
    if os.path.islink(path):
        return ""
    try:
        data, _, _ = read_bytes(path, _repository_boundary(folder), _MAX_LINE_BYTES)
    except SourceError:
        return ""
    return data.decode("utf-8", "replace").partition("\n")[0].strip()


def _find_packed_ref(shared: str, ref: str) -> tuple[str, bool]:
    """The commit of a branch in the file that holds many, and whether all of it was looked at."""
    path = os.path.join(shared, "packed-refs")
    try:
        descriptor, status = open_regular_file(path, _repository_boundary(shared))
    except SourceError:
        return "", not os.path.lexists(path)
    wanted = re.compile(rb"\n([0-9a-f]{40}(?:[0-9a-f]{24})?) " + re.escape(ref.encode()) + rb"\r?\n")
    rest, left = b"\n", _MAX_PACKED_BYTES
    try:
        while left > 0 and (chunk := os.read(descriptor, _CHUNK)):
            left -= len(chunk)
            rest += chunk
            if found := wanted.search(rest):
                return found[1].decode(), True
            last = rest[rest.rfind(b"\n") :]
            rest = last if len(last) <= _MAX_LINE_BYTES else b"\0"  # no branch has so long a line
    except OSError:
        return "", False
    finally:
        os.close(descriptor)
    found = wanted.search(rest + b"\n")
    return (found[1].decode() if found else ""), status.st_size <= _MAX_PACKED_BYTES
