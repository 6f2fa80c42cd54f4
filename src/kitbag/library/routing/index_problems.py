"""Why the search index of a root can't be saved, so that each process builds it again in memory; and how to fix that.

Used by search_index when saving fails, and by `kitbag doctor`, which checks without writing.
"""

import errno
import os
import stat
from collections.abc import Iterator
from typing import Final

from kitbag.errors import Diagnostic
from kitbag.library.index import MIN_INDEXED_SKILLS, index_path
from kitbag.library.registry import Registry
from kitbag.library.scopes import Root

_PROBLEM: Final = "the search index can't be saved, so each command builds it again"
_MIN_FREE_BYTES: Final = 256 * 1024


def store_path(registry: Registry, root: Root) -> str:
    return f"{index_path(registry.places.kitbag_home, root).removesuffix('.index')}.routing"


def describe_failure(path: str, error: Exception) -> Diagnostic:
    """After saving failed."""
    code = error.errno if isinstance(error, OSError) else 0
    if code == errno.ENOSPC or "disk is full" in str(error):
        return _problem(path, "the disk is full", "free disk space")
    if code == errno.EDQUOT:
        return _problem(path, "your disk quota is used up", "free disk space")
    reason = (error.strerror if isinstance(error, OSError) else "") or str(error)
    return find_problem(path) or _problem(path, reason.lower(), "check that this file can be written")


def find_problem(path: str) -> Diagnostic | None:
    """What is wrong with the place of an index, as far as can be seen without writing."""
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return _find_directory_problem(path)
    except NotADirectoryError:
        return _find_directory_problem(path)
    except OSError as error:
        return _problem(path, (error.strerror or str(error)).lower(), _writable_fix(os.path.dirname(path)))
    if stat.S_ISLNK(mode):
        return _problem(path, "it is a symbolic link", "remove the link")
    if not stat.S_ISREG(mode):
        what = "directory" if stat.S_ISDIR(mode) else "special file"
        return _problem(path, f"there is a {what} in its place", f"move or remove the {what}")
    if not os.access(path, os.W_OK):
        return _problem(path, "it is read-only", _writable_fix(path))
    return _find_directory_problem(path)


def _find_directory_problem(path: str) -> Diagnostic | None:
    directory = os.path.dirname(path)
    while not os.path.lexists(directory) and directory != os.path.dirname(directory):
        directory = os.path.dirname(directory)
    if not os.path.isdir(directory):
        return _problem(path, f"{directory} is not a directory", "move or remove that file")
    if not os.access(directory, os.W_OK | os.X_OK):
        return _problem(path, f"{directory} is read-only", _writable_fix(directory))
    status = os.statvfs(directory)
    if status.f_bavail * status.f_frsize < _MIN_FREE_BYTES and status.f_blocks:
        return _problem(path, "the disk is full", "free disk space")
    return None


def _writable_fix(path: str) -> str:
    return f"make {path} writable, or set KITBAG_HOME to a writable directory"


def _problem(path: str, reason: str, fix: str) -> Diagnostic:
    problem = f"{_PROBLEM}: {reason}"
    return Diagnostic(severity="warning", code="search-index", file=path, line=0, problem=problem, fix=fix)


def check_search_indexes(registry: Registry) -> Iterator[Diagnostic]:
    """For the roots whose index is saved."""
    counts: dict[Root, int] = {}
    for skill in registry.skills:
        counts[skill.root] = counts.get(skill.root, 0) + 1
    for root, count in counts.items():
        if registry.uses_index and root.scope != "built-in" and count >= MIN_INDEXED_SKILLS:
            problem = find_problem(store_path(registry, root))
            if problem is not None:
                yield problem
