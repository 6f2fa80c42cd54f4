"""The files below a folder, by ripgrep where there is one and by walk where not: the same ones, only slower.

Used by Glob, and by Grep to say what it did not search.
"""

import os
import threading
import time
from collections.abc import Callable
from typing import Final, NamedTuple

from kitbag.tools.ripgrep import walking
from kitbag.tools.running import Folder, Stopped, run_process
from kitbag.tools.walk import ignoring_above, walk

SECONDS: Final = 20.0
_FLAWED = 2
"""ripgrep's status when something went wrong, however small."""


class Listed(NamedTuple):
    stopped: Stopped = ""
    unreadable: int = 0
    """Folders that could not be looked into."""


class Which(NamedTuple):
    hidden: bool
    ignore: bool = True
    deepest: int = 0
    """1 is the folder alone, 0 everything."""


def list_files(
    program: str, folder: Folder, which: Which, take: Callable[[str], bool], stop: threading.Event
) -> Listed:
    """`take` is given each path, relative to the folder, and says whether it wants more."""
    if program:
        listed = _by_ripgrep(program, folder, which, take, stop)
        if listed is not None:
            return listed
    return _by_walking(folder, which, take, stop)


def _by_ripgrep(
    program: str, folder: Folder, which: Which, take: Callable[[str], bool], stop: threading.Event
) -> Listed | None:
    """None when ripgrep does not work here."""
    words = [program, "--files", "--null", *walking(folder.resolved, hidden=which.hidden, ignore=which.ignore)]
    words += [f"--max-depth={which.deepest}"] if which.deepest else []
    rest = b""
    some = False

    def taken(chunk: bytes) -> bool:
        nonlocal rest, some
        *paths, rest = (rest + chunk).split(b"\0")
        some = some or bool(paths)
        return all(take(os.fsdecode(path.removeprefix(b"./"))) for path in paths)

    try:
        ended = run_process([*words, "--", "./"], folder, taken, stop, SECONDS)
    except OSError:
        return None
    unreadable = count_unreadable(ended.errors)
    if ended.status == _FLAWED and not some and not unreadable:
        return None
    return Listed(ended.stopped, unreadable)


def count_unreadable(errors: str) -> int:
    return sum("(os error " in line for line in errors.splitlines())


def _by_walking(folder: Folder, which: Which, take: Callable[[str], bool], stop: threading.Event) -> Listed:
    deadline = time.monotonic() + SECONDS
    unreadable: list[str] = []
    above = ignoring_above(folder.resolved)[0] if which.ignore else None
    found = walk(
        folder.descriptor,
        above,
        hidden=which.hidden,
        deepest=which.deepest,
        stopped=lambda: stop.is_set() or time.monotonic() >= deadline,
        unreadable=lambda path, _: unreadable.append(path),
    )
    for path, _, _ in found:
        if not take(path):
            return Listed("enough", len(unreadable))
    late = time.monotonic() >= deadline
    return Listed("cancelled" if stop.is_set() else "time" if late else "", len(unreadable))
