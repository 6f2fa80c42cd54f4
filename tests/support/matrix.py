"""How much of a matrix is tried: a part of it in `make test`, all of it in `make test-long`.

`make test` has one path through every promise and is run all the time. What only adds more of the same is `long`:
left out there unless it is named (`pytest tests/x.py::test_it`).
"""

import os
from collections.abc import Iterable, Sequence
from typing import Any, Final

import pytest

LONG: Final = os.environ.get("KITBAG_TESTS") == "long"
"""Set by `make test-long`."""
long: Final = pytest.mark.long


def examples(count: int) -> int:
    """Of a property test; `count` says how it compares with others, which have 100; `make test` has at most 40."""
    return max(count, min(10 * count, 1000)) if LONG else min(count, 40)


def rounds(count: int, fewer: int) -> int:
    """How often something is tried that goes wrong only now and then: `fewer` times in `make test`."""
    return count if LONG else fewer


def sample(cases: Iterable[Any], count: int, *, unpack: bool = False) -> list[Any]:
    """The cases of a parameter, so many of them at equal distances for `make test` and the rest for the long run.
    `unpack`: each is a tuple for several parameters."""
    found: Sequence[Any] = list(cases)
    chosen = {number * (len(found) - 1) // max(count - 1, 1) for number in range(min(count, len(found)))}
    return [
        pytest.param(*(case if unpack else (case,)), marks=() if number in chosen else long)
        for number, case in enumerate(found)
    ]


def leave_out_long(config: pytest.Config, items: list[pytest.Item]) -> None:
    """For `pytest_collection_modifyitems`."""
    if LONG or any("::" in argument for argument in config.args) or config.option.markexpr:
        return
    left_out = [item for item in items if item.get_closest_marker("long")]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker("long")]
