"""The files a model has seen in this session, with fingerprints, so that it never overwrites content it does not know.

Read, Write and Edit record files; Write and Edit check before they change one. Kept in memory only: after a session is
resumed, files must be read again.
"""

import os
import threading
from typing import Final, Literal

MAX_BYTES: Final = 10_000_000
"""No tool changes larger files, so they are not recorded."""
_MAX_FILES = 10_000


class SeenFiles:
    """Compares content, not times: a file that was touched, or changed and changed back, counts as seen."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[int, int]] = {}
        self._lock = threading.Lock()

    def record(self, resolved: str, data: bytes) -> None:
        with self._lock:
            self._seen.pop(resolved, None)  # to move it to the end, as the newest
            self._seen[resolved] = _fingerprint(data)
            if len(self._seen) > _MAX_FILES:
                del self._seen[next(iter(self._seen))]

    def record_open_file(self, resolved: str, descriptor: int) -> None:
        """Does not move the descriptor's offset."""
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
    # hash() is seeded per process, which is as long as the fingerprints live.
    return len(data), hash(data)
