"""What can go wrong, as values and as exceptions: the bottom layer, imports nothing of Kitbag.

Reading a user's file never raises: what is wrong with it is a Diagnostic. Exceptions are for
requests that can't be met, and each knows its exit code:

    KitbagError
    ├── UsageError      2   the request itself is wrong
    ├── NotFoundError   4   nothing has that name
    ├── AmbiguousError  5   several things have that name
    ├── InvalidError    6   the thing was found and can't be used, or it is refused
    ├── ModelError      7   the model failed (models/provider)
    └── LeftOutError   13   the workspace is not trusted (library/left_out)
"""

from collections.abc import Iterable
from typing import Literal, NamedTuple

Severity = Literal["error", "warning", "info"]

SEVERITIES: tuple[Severity, ...] = ("error", "warning", "info")


class Diagnostic(NamedTuple):
    """One thing that is wrong with a file, where, and what to do about it."""

    severity: Severity
    code: str
    """A stable word for this kind of problem, such as `yaml-recovered`."""
    file: str
    line: int
    """Counted from 1; 0 speaks of the whole file."""
    problem: str
    fix: str

    @property
    def place(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file


def worst_first(diagnostics: Iterable[Diagnostic]) -> list[Diagnostic]:
    """Each once, in an order that does not change from run to run."""
    return sorted(set(diagnostics), key=lambda d: (SEVERITIES.index(d.severity), *d[2:], d.code))


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
