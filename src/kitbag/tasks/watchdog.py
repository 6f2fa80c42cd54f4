"""Stops a task that makes no progress, after a warning; what it has done is kept.

Used by runner. The timeout depends on the phase: short for a silent model, long for an answer by the user; tools have
timeouts of their own.
"""

import time
from typing import Final, Literal, NamedTuple

PhaseName = Literal["model", "tool", "answer"]
TIMEOUTS: Final[dict[PhaseName, float]] = {"model": 900.0, "tool": 3_600.0, "answer": 7 * 86_400.0}
"""Seconds without any activity."""
_WARN_FRACTION = 0.5
_CHECKS_PER_TIMEOUT = 30
"""Within the shortest timeout."""
_DESCRIPTIONS: Final[dict[PhaseName, str]] = {
    "model": "no output from the model",
    "tool": "a tool has been running",
    "answer": "no answer to an approval request",
}


class Phase(NamedTuple):
    name: PhaseName
    detail: str = ""


class Watchdog:
    def __init__(self, timeouts: dict[PhaseName, float] | None = None) -> None:
        self.timeouts = {**TIMEOUTS, **(timeouts or {})}
        self.phase = Phase("model")
        self.stop_reason = ""
        """Why the watchdog stopped the task; empty if it did not."""
        self._since = time.monotonic()
        self._warned = False

    @property
    def check_interval(self) -> float:
        """Seconds between two checks: enough for the shortest timeout, but cheap for many tasks."""
        return min(max(min(self.timeouts.values()) / _CHECKS_PER_TIMEOUT, 0.05), 30.0)

    def enter(self, phase: Phase) -> None:
        self.phase = phase
        self.touch()

    def set_waiting_for_user(self, waiting: bool) -> None:
        """Enters or leaves the waiting phase; its timeout starts when the wait is first seen."""
        if waiting and self.phase.name != "answer":
            self.enter(Phase("answer"))
        elif not waiting and self.phase.name == "answer":
            self.enter(Phase("tool"))

    def touch(self) -> None:
        """Records activity."""
        self._since = time.monotonic()
        self._warned = False

    def check(self) -> tuple[str, str]:
        """A warning and a reason to stop the task; both empty if all is well."""
        waited = time.monotonic() - self._since
        limit = self.timeouts[self.phase.name]
        detail = f" ({self.phase.detail})" if self.phase.detail else ""
        if waited >= limit:
            return (
                "",
                f"{_DESCRIPTIONS[self.phase.name]} for {waited:.0f} s{detail}: stopped; changes so far are kept",
            )
        if waited >= limit * _WARN_FRACTION and not self._warned:
            self._warned = True
            return (
                f"{_DESCRIPTIONS[self.phase.name]} for {waited:.0f} s{detail}; it will be stopped after {limit:.0f} s",
                "",
            )
        return "", ""
