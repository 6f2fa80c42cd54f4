"""Which Kitbag this is, and whether another is newer: a worker does not carry out what only a newer one understands.

Used by the board and the worker.
"""

import re
from functools import cache


@cache
def kitbag_version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("kitbag")
    except PackageNotFoundError:  # run from its source, without being installed
        return ""


def is_newer(one: str, other: str) -> bool:
    """By the numbers they begin with; what has none is not newer than anything."""
    return _parse_version(one) > _parse_version(other)


def _parse_version(version: str) -> tuple[int, ...]:
    found = re.match(r"\d{1,9}(?:\.\d{1,9})*", version)
    return tuple(int(number) for number in found[0].split(".")) if found else ()
