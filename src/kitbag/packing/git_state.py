"""The branch and the commit a workspace is at, read from git's own files. No git process runs: a repository's
configuration can make git run anything.

Used by the main prompt and by agents' environment.
"""

import os
import re
from typing import NamedTuple

_LONGEST = 4_096
_MOST_PACKED = 4 << 20
_REF = re.compile(r"refs/[^\s\x00-\x1f~^:?*\[\\]{1,200}")
_SHA = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")


class GitState(NamedTuple):
    branch: str
    """Empty when no branch is checked out."""
    commit: str
    """The first twelve digits; empty before the first commit."""

    def render(self) -> str:
        if self.branch:
            return f"{self.branch} at {self.commit}" if self.commit else f"{self.branch}, no commits yet"
        return f"no branch, at {self.commit}" if self.commit else ""


def git_state(directory: str) -> GitState | None:
    """None where no repository can be recognised."""
    git = _git_directory(directory)
    if not git:
        return None
    head = _line(os.path.join(git, "HEAD"))
    if _SHA.fullmatch(head):
        return GitState("", head[:12])
    ref = head.removeprefix("ref: ").strip()
    if not head.startswith("ref: ") or not _REF.fullmatch(ref) or ".." in ref:
        return None
    common = _line(os.path.join(git, "commondir"))
    shared = os.path.normpath(os.path.join(git, common)) if common else git
    sha = _line(os.path.join(git, ref)) or _line(os.path.join(shared, ref)) or _packed(shared, ref)
    return GitState(ref.removeprefix("refs/heads/"), sha[:12] if _SHA.fullmatch(sha) else "")


def _git_directory(directory: str) -> str:
    path = os.path.join(directory, ".git")
    if os.path.isdir(path):
        return path
    line = _line(path)  # a worktree or a submodule
    if not line.startswith("gitdir: "):
        return ""
    return os.path.normpath(os.path.join(directory, line.removeprefix("gitdir: ")))


def _line(path: str) -> str:
    """The first line of a small regular file; empty for everything else."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError):
        return ""
    try:
        data = os.read(descriptor, _LONGEST)
    except OSError:
        return ""
    finally:
        os.close(descriptor)
    return data.decode("utf-8", "replace").partition("\n")[0].strip()


def _packed(git: str, ref: str) -> str:
    try:
        with open(os.path.join(git, "packed-refs"), encoding="utf-8", errors="replace") as file:
            text = file.read(_MOST_PACKED)
    except OSError:
        return ""
    found = re.search(rf"^([0-9a-f]{{40,64}}) {re.escape(ref)}$", text, re.MULTILINE)
    return found[1] if found else ""
