"""Lists the workspace's files and directories for completion, in the background, and searches the listing fast.

Used by completion. Lists files as the search tools do and caches the listing for a moment. `best_matches` waits briefly
for a newer listing, and answers from the cache if that takes longer.
"""

import os
import threading
import time
from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate
from typing import Final

from kitbag.chat.input.match_ranking import letters_in_order_pattern
from kitbag.permissions.model import Workspace
from kitbag.processes.run_process import OpenDirectory
from kitbag.text.hidden_characters import find_hidden
from kitbag.text.no_follow import open_directory
from kitbag.tools.search.list_files import ListOptions, list_files
from kitbag.tools.search.ripgrep import find_ripgrep

MAX_FILES: Final = 200_000
CACHE_SECONDS: Final = 1.0
_UPDATE_WAIT: Final = 0.3
"""Longest wait for a newer listing."""
_MAX_TYPED = 200
_WORD_SEPARATORS = "-_. "


class _Listing:
    """One listing. Short and shallow paths come first, so that the first matches are the best."""

    def __init__(self, files: list[str]) -> None:
        folders = {parent for path in files for parent in _parents(path)}
        # Skip names that can't be displayed or typed.
        paths = [path for path in (*files, *folders) if path.isprintable() or not _is_unusable(path)]
        paths.sort(key=lambda path: (path.count("/", 0, -1), path.startswith("."), len(path), path))
        self.paths = paths
        lowered = [path.lower() for path in paths]
        names = [path.rstrip("/").rpartition("/")[2] for path in lowered]
        # One string each, with a line break before each entry: str.find is faster than a loop over the entries.
        self._path_text, self._path_starts = _joined([f"/{path}" for path in lowered])
        self._name_text, self._name_starts = _joined(names)

    def best(self, typed: str, limit: int) -> list[str]:
        typed = typed[:_MAX_TYPED].lower()
        indexes: dict[int, None] = {}
        for at in self._matches(typed):
            indexes[at] = None
            if len(indexes) >= limit:
                break
        return [self.paths[at] for at in indexes]

    def _matches(self, typed: str) -> Iterator[int]:
        """Indexes into `paths`, best first, possibly repeated."""
        if not typed:
            yield from range(len(self.paths))
            return
        in_path = self._path_text, self._path_starts
        if "/" in typed:
            yield from _lines_with(f"\n/{typed}", *in_path)
            yield from _lines_with(f"/{typed}", *in_path)
            yield from _lines_with(typed, *in_path)
        else:
            in_name = self._name_text, self._name_starts
            yield from _lines_with(f"\n{typed}", *in_name)
            for separator in _WORD_SEPARATORS:
                yield from _lines_with(f"{separator}{typed}", *in_name)
            yield from _lines_with(typed, *in_name)
            yield from _lines_with(f"/{typed}", *in_path)
            yield from _lines_with(typed, *in_path)
            yield from _lines_in_order(typed, *in_name)
        yield from _lines_in_order(typed, *in_path)


def _parents(path: str) -> Iterator[str]:
    at = path.rfind("/")
    while at > 0:
        yield path[: at + 1]
        at = path.rfind("/", 0, at)


def _is_unusable(path: str) -> bool:
    return "\n" in path or "\t" in path or bool(find_hidden(path))


def _joined(lines: list[str]) -> tuple[str, list[int]]:
    """The text and the start of each line, at the line break before it."""
    return "".join(f"\n{line}" for line in lines), list(accumulate((len(line) + 1 for line in lines), initial=0))[:-1]


def _lines_with(part: str, text: str, starts: list[int]) -> Iterator[int]:
    at = text.find(part)
    while at >= 0:
        number = bisect_right(starts, at) - 1
        yield number
        if number + 1 == len(starts):
            return
        at = text.find(part, starts[number + 1])


def _lines_in_order(typed: str, text: str, starts: list[int]) -> Iterator[int]:
    for match in letters_in_order_pattern(typed).finditer(text):
        yield bisect_right(starts, match.start()) - 1


class WorkspaceFiles:
    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._listing: _Listing | None = None
        self._listed_at = 0.0
        self._lock = threading.Lock()
        self._has_listing = threading.Event()
        self._is_current = threading.Event()
        """No listing is running."""
        self._stop = threading.Event()
        self._running = False

    def best_matches(self, typed: str, limit: int, wait: float = 0.0) -> list[str]:
        """Paths relative to the workspace root; directories end with a slash. `wait`: seconds to wait for the first
        listing. Later calls wait briefly for a newer one, then use the cached one without what was deleted since."""
        self.refresh()
        if self._listing is None and wait:
            self._has_listing.wait(wait)
        elif self._running and wait:
            self._is_current.wait(min(wait, _UPDATE_WAIT))
        found = self._listing.best(typed, limit) if self._listing is not None else []
        return [path for path in found if os.path.lexists(os.path.join(self._workspace.root, path))]

    def close(self) -> None:
        self._stop.set()

    def refresh(self) -> None:
        """Starts a listing in the background unless the cache is fresh."""
        with self._lock:
            is_fresh = self._listing is not None and time.monotonic() - self._listed_at < CACHE_SECONDS
            if is_fresh or self._running or self._stop.is_set():
                return
            self._running = True
            self._is_current.clear()
        threading.Thread(target=self._list, daemon=True, name="workspace-files").start()

    def _list(self) -> None:
        listed: list[str] = []

        def take(paths: list[str]) -> bool:
            listed.extend(paths)
            return len(listed) < MAX_FILES

        try:
            root = os.path.realpath(self._workspace.root)
            folder = OpenDirectory(open_directory(root), root)
            try:
                list_files(find_ripgrep(self._workspace), folder, ListOptions(include_hidden=True), take, self._stop)
            finally:
                os.close(folder.descriptor)
        except OSError:
            pass  # an unreadable directory has no completions
        finally:
            if not self._stop.is_set():
                self._listing = _Listing(listed[:MAX_FILES])
            self._listed_at = time.monotonic()
            self._running = False
            self._has_listing.set()
            self._is_current.set()
