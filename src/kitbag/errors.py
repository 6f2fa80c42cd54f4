"""Diagnostics and exceptions: the bottom layer, which imports nothing from Kitbag.

Reading a user's file never raises: problems with it are Diagnostics. Exceptions are for requests that can't be
fulfilled, and each has an exit code:

    KitbagError
    ├── UsageError          2   the request itself is wrong
    ├── NotFoundError       4   nothing has that name
    ├── AmbiguousError      5   several things have that name
    ├── InvalidError        6   found, but unusable or denied
    │   └── QueueFullError  6   too many background tasks are waiting
    ├── ModelError          7   the model failed (models/provider)
    └── UntrustedItemError 13   the workspace is not trusted (library/untrusted_items)
"""

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

Severity = Literal["error", "warning", "info"]

SEVERITIES: tuple[Severity, ...] = ("error", "warning", "info")


class Diagnostic(NamedTuple):
    """One problem with a file: where it is and how to fix it."""

    severity: Severity
    code: str
    """A stable identifier for this kind of problem, such as `yaml-recovered`."""
    file: str
    line: int
    """1-based; 0 means the whole file."""
    problem: str
    fix: str

    @property
    def place(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file


def worst_first(diagnostics: Iterable[Diagnostic]) -> list[Diagnostic]:
    """Sorts by severity and location, without duplicates; the order is deterministic."""
    return sorted(set(diagnostics), key=lambda d: (SEVERITIES.index(d.severity), *d[2:], d.code))


def first_diagnostics(diagnostics: Sequence[Diagnostic], limit: int = 10) -> list[Diagnostic]:
    """For a start, which must not be flooded by one file; `kitbag doctor` lists all."""
    if len(diagnostics) <= limit:
        return list(diagnostics)
    last = diagnostics[-1]
    more = f"{len(diagnostics) - limit} more problems"
    return [*diagnostics[:limit], last._replace(line=0, problem=more, fix="run `kitbag doctor` to list them")]


class KitbagError(Exception):
    exit_code = 1

    def __init__(self, problem: str, fix: str = "") -> None:
        super().__init__(problem)
        self.problem = problem
        self.fix = fix


class UsageError(KitbagError):
    exit_code = 2


class NotFoundError(KitbagError):
    exit_code = 4


class AmbiguousError(KitbagError):
    exit_code = 5


class InvalidError(KitbagError):
    exit_code = 6


class QueueFullError(InvalidError):
    """Retrying later can succeed."""
