"""How tests wait: for a condition and never for a time, with one limit that only a hang reaches.

Used wherever another process, thread or task has to get somewhere first.
"""

import asyncio
import os
import select
import time
from collections.abc import Callable
from typing import Final, TypeVar

T = TypeVar("T")
TEST_TIMEOUT: Final = 60.0
"""Seconds. On a slow and busy machine everything here takes a small part of that."""
_POLL_SECONDS: Final = 0.005
Problem = str | Callable[[], object]
"""What to say when the condition never came true; a function is called only then."""
_NEVER: Final = "the condition never came true"


def wait_until(condition: Callable[[], T], problem: Problem = _NEVER) -> T:
    """What the condition gave when it came true. It may raise for what can't come true any more."""
    deadline = time.monotonic() + TEST_TIMEOUT
    while not (found := condition()):
        assert time.monotonic() < deadline, _said(problem)
        time.sleep(_POLL_SECONDS)
    return found


async def until_true(condition: Callable[[], T], problem: Problem = _NEVER) -> T:
    """`wait_until` in an event loop, which runs on meanwhile."""
    deadline = time.monotonic() + TEST_TIMEOUT
    while not (found := condition()):
        assert time.monotonic() < deadline, _said(problem)
        await asyncio.sleep(_POLL_SECONDS)
    return found


def read_some(descriptor: int, *, or_end: bool = False) -> bytes:
    """What comes next from a pipe or a terminal. At its end: empty where that is awaited, else it fails."""
    assert select.select([descriptor], [], [], TEST_TIMEOUT)[0], "nothing came"
    try:
        found = os.read(descriptor, 65_536)
    except OSError:  # of a terminal, this is the end
        found = b""
    assert found or or_end, "it ended"
    return found


def _said(problem: Problem) -> object:
    return problem() if callable(problem) else problem
