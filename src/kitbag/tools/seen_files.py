"""Which files a model has seen in this session, and how they were then: nobody overwrites what they do not know.

Read notes what it shows, Write and Edit note what they leave behind, and both ask before they change a file. Kept in
memory alone: whoever goes on with a session after it was closed reads again.
"""

import os
import threading
from typing import Final, Literal

MAX_BYTES: Final = 10_000_000
"""Larger files are changed by no tool, so nothing is noted about them."""
_MAX_FILES = 10_000


class SeenFiles:
    """Compares content, not times: a file that was touched, or changed and changed back, is the one that was seen."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[int, int]] = {}
        self._lock = threading.Lock()

    def record(self, resolved: str, data: bytes) -> None:
        with self._lock:
            self._seen.pop(resolved, None)  # so that it is the newest
            self._seen[resolved] = _fingerprint(data)
            if len(self._seen) > _MAX_FILES:
                del self._seen[next(iter(self._seen))]

    def record_open_file(self, resolved: str, descriptor: int) -> None:
        """Leaves the descriptor where it stands."""
        size = os.fstat(descriptor).st_size
        if size <= MAX_BYTES:
            self.record(resolved, os.pread(descriptor, size + 1, 0))

    def compare(self, resolved: str, data: bytes) -> Literal["unseen", "changed", "same"]:
        with self._lock:
            seen = self._seen.get(resolved)
        if seen is None:
            return "unseen"
        return "same" if seen == _fingerprint(data) else "changed"


def _fingerprint(data: bytes) -> tuple[int, int]:
    # Python's own is keyed by chance for each process, which is as long as it is kept.
    return len(data), hash(data)
