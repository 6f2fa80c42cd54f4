"""The files below a folder, by ripgrep where there is one and by walk where not: the same ones, only slower.

Used by Glob; and by Grep for what could not be opened.
"""

import os
import re
import threading
import time
from collections.abc import Callable
from itertools import islice
from typing import Final, NamedTuple

from kitbag.processes.run_process import Folder, Stopped, run_process
from kitbag.tools.search.file_filter import narrowing
from kitbag.tools.search.ripgrep import walking
from kitbag.tools.search.walk import ignoring_above, walk

SECONDS: Final = 20.0
MOST_UNOPENED: Final = 20
_AT_ONCE = 256
_UNOPENED = re.compile(r"(?:rg: )?(?:\./)?(.*?): (?:IO error for operation on .*: )?[^:]* \(os error \d+\)")
_FLAWED = 2
"""ripgrep's status when something went wrong, however small."""


class Listed(NamedTuple):
    stopped: Stopped = ""
    unopened: tuple[str, ...] = ()
    """Files and folders that could not be opened, relative to the folder that was searched: the first of them."""
    unopened_count: int = 0


class Which(NamedTuple):
    hidden: bool
    ignore: bool = True
    deepest: int = 0
    """1 is the folder alone, 0 everything."""
    names: tuple[str, ...] = ()
    """Files with other names are of no use (file_filter.plain_names); they may come nevertheless."""


def list_files(
    program: str, folder: Folder, which: Which, take: Callable[[list[str]], bool], stop: threading.Event
) -> Listed:
    """`take` is given paths, relative to the folder, as they are found, and says whether it wants more."""
    if program:
        listed = _by_ripgrep(program, folder, which, take, stop)
        if listed is not None:
            return listed
    return _by_walking(folder, which, take, stop)


def _by_ripgrep(
    program: str, folder: Folder, which: Which, take: Callable[[list[str]], bool], stop: threading.Event
) -> Listed | None:
    """None when ripgrep does not work here."""
    words = [program, "--files", "--null", *walking(folder.resolved, hidden=which.hidden, ignore=which.ignore)]
    words += [*narrowing(which.names), *([f"--max-depth={which.deepest}"] if which.deepest else [])]
    rest = b""
    some = False

    def taken(chunk: bytes) -> bool:
        nonlocal rest, some
        whole, end, rest = (rest + chunk).rpartition(b"\0")
        some = some or bool(end)
        return not end or take(os.fsdecode(whole).removeprefix("./").split("\0./"))

    try:
        ended = run_process([*words, "--", "./"], folder, taken, stop, SECONDS)
    except OSError:
        return None
    unopened = unopened_in(ended.errors)
    if ended.status == _FLAWED and not some and not unopened:
        return None
    return Listed(ended.stopped, unopened[:MOST_UNOPENED], len(unopened))


def unopened_in(errors: str) -> tuple[str, ...]:
    """The paths of what could not be opened, from what a search said: `./a/b: Permission denied (os error 13)`."""
    found = [one for line in errors.splitlines() if (one := _UNOPENED.fullmatch(line)) is not None]
    return tuple(dict.fromkeys(one[1] for one in found))


def _by_walking(folder: Folder, which: Which, take: Callable[[list[str]], bool], stop: threading.Event) -> Listed:
    deadline = time.monotonic() + SECONDS
    unopened: list[str] = []
    above = ignoring_above(folder.resolved)[0] if which.ignore else None
    found = walk(
        folder.descriptor,
        above,
        hidden=which.hidden,
        deepest=which.deepest,
        stopped=lambda: stop.is_set() or time.monotonic() >= deadline,
        unreadable=lambda path, _: unopened.append(path.rstrip("/")),
    )
    stopped: Stopped = ""
    while some := [path for path, _, _ in islice(found, _AT_ONCE)]:
        if not take(some):
            stopped = "enough"
            break
    else:
        late = time.monotonic() >= deadline
        stopped = "cancelled" if stop.is_set() else "time" if late else ""
    return Listed(stopped, tuple(unopened[:MOST_UNOPENED]), len(unopened))
