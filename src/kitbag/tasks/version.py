"""Kitbag's version, and its comparison: a worker does not run tasks that need a newer Kitbag.

Used by the board and the worker.
"""

import functools
import re

from kitbag.version import __version__


def kitbag_version() -> str:
    return __version__


@functools.lru_cache(maxsize=64)
def is_newer(version: str, other: str) -> bool:
    """Compares the leading numbers; a version without any is never newer."""
    return version_numbers(version) > version_numbers(other)


def version_numbers(version: str) -> tuple[int, ...]:
    match = re.match(r"\d{1,9}(?:\.\d{1,9})*", version)
    return tuple(int(number) for number in match[0].split(".")) if match else ()
