"""Bounds the time of a search for items, on slow disks and in huge folders. What is cut is reported.

Used by the registry, which has one budget for all its roots, and by trust; passed to discover, index and item_files.
"""

import contextlib
import time
from collections.abc import Callable, Generator
from typing import Final

from kitbag.errors import Diagnostic

MAX_SECONDS: Final = 1.8
"""For all roots of one library, so that a command starts within two seconds."""
MIN_COUNT: Final = 200
"""So many steps of each kind are taken in each root in any case: a huge root hides no others, and on a busy machine a
small library is complete."""
TOO_SLOW: Final = "too-slow"


class ScanBudget:
    """Counts only the time between `start` and `stop`."""

    __slots__ = ("_clock", "_counts", "_deadline", "_half_time", "_left", "_started", "is_cut")

    def __init__(self, seconds: float = MAX_SECONDS, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._left = seconds
        self._started = self._deadline = self._half_time = 0.0
        self._counts: dict[str, int] = {}
        """Of the current root."""
        self.is_cut = False
        """The search of the current root was cut."""

    def start(self) -> None:
        """For the next root."""
        self._started = self._clock()
        self._deadline, self._half_time = self._started + self._left, self._started + self._left / 2
        self._counts = {}
        self.is_cut = False

    def stop(self) -> None:
        self._left -= self._clock() - self._started

    def is_half_spent(self) -> bool:
        """Checking a cached scan takes no more than this, so that there is time to search."""
        return self._clock() > self._half_time

    def take(self, step: str = "") -> bool:
        """Counts one step, such as a directory that is listed or a file that is read. False if there is no time left
        for it; then the search is cut."""
        count = self._counts.get(step, 0)
        if count >= MIN_COUNT and self._clock() > self._deadline:
            self.is_cut = True
            return False
        self._counts[step] = count + 1
        return True

    @contextlib.contextmanager
    def spend_on(self, path: str, diagnostics: list[Diagnostic]) -> Generator[None, None, None]:
        """`start`, `stop`, and a diagnostic if the search of this root was cut."""
        self.start()
        try:
            yield
        finally:
            if self.is_cut:
                diagnostics.append(self.diagnostic(path))
            self.stop()

    def diagnostic(self, path: str, unit: str = "directories") -> Diagnostic:
        """For a root whose search was cut."""
        seconds = self._clock() - self._started
        count = max(self._counts.values(), default=0)
        problem = f"stopped searching after {seconds:.1f} s and {count:,} {unit}; items in the rest are missing"
        return Diagnostic(
            severity="error",
            code=TOO_SLOW,
            file=path,
            line=0,
            problem=problem,
            fix="remove directories that hold no items, or move them to a faster disk",
        )
