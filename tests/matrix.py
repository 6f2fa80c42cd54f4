"""How much of a matrix is tried: a part of it in `make test`, all of it in `make test-long`.

`make test` has one path through every promise and is run all the time; what only adds more of the same belongs here.
"""

import os
from collections.abc import Sequence
from typing import Final, TypeVar

import pytest

T = TypeVar("T")
LONG: Final = os.environ.get("KITBAG_TESTS") == "long"
"""Set by `make test-long`."""
long = pytest.mark.skipif(not LONG, reason="make test-long runs it")


def examples(count: int) -> int:
    """Of a property test; `count` says how it compares with others, which have 100."""
    return 10 * count if LONG else min(count, 100)


def sample(cases: Sequence[T], count: int) -> list[T]:
    """So many of the cases, from the first to the last at equal distances; all of them in the long run."""
    if LONG or len(cases) <= count:
        return list(cases)
    return [cases[number * (len(cases) - 1) // (count - 1)] for number in range(count)]
