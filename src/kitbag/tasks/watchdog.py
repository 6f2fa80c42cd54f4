"""Watches over a task by what it does at the moment: it warns before it acts, and what was done is kept.

Used by runner. Waiting for a person is patient, a model that says nothing is not; a tool has limits of its own.
"""

import time
from typing import Final, Literal, NamedTuple

Name = Literal["model", "tool", "answer"]
LIMITS: Final[dict[Name, float]] = {"model": 900.0, "tool": 3_600.0, "answer": 7 * 86_400.0}
"""Seconds without a sign of life."""
_WARN_AT = 0.5
_LOOKS = 30
"""In the time of the shortest limit."""
_WHAT: Final[dict[Name, str]] = {
    "model": "the model has said nothing",
    "tool": "a tool runs",
    "answer": "nobody answers",
}


class Phase(NamedTuple):
    name: Name
    about: str = ""


class Watchdog:
    def __init__(self, limits: dict[Name, float] | None = None) -> None:
        self.limits = {**LIMITS, **(limits or {})}
        self.phase = Phase("model")
        self.acted = ""
        """Why the task was ended, when it was."""
        self._since = time.monotonic()
        self._warned = False

    @property
    def every(self) -> float:
        """Seconds between two looks: often enough for the shortest limit, and not more, for there may be many tasks."""
        return min(max(min(self.limits.values()) / _LOOKS, 0.05), 30.0)

    def enter(self, phase: Phase) -> None:
        self.phase = phase
        self.touch()

    def wait_for_person(self, waits: bool) -> None:
        """Whether that is so now; the time of a wait counts from when it was first seen."""
        if waits and self.phase.name != "answer":
            self.enter(Phase("answer"))
        elif not waits and self.phase.name == "answer":
            self.enter(Phase("tool"))

    def touch(self) -> None:
        """A sign of life."""
        self._since = time.monotonic()
        self._warned = False

    def look(self) -> tuple[str, str]:
        """What to warn of, and why to end it; both empty when all is well."""
        waited = time.monotonic() - self._since
        limit = self.limits[self.phase.name]
        about = f" ({self.phase.about})" if self.phase.about else ""
        if waited >= limit:
            return (
                "",
                f"{_WHAT[self.phase.name]} for {waited:.0f} s{about}: it was ended, what it did until then is kept",
            )
        if waited >= limit * _WARN_AT and not self._warned:
            self._warned = True
            return f"{_WHAT[self.phase.name]} for {waited:.0f} s{about}; it is ended after {limit:.0f} s", ""
        return "", ""
