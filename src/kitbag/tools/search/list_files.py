"""Lists the files below a folder, with ripgrep or, without it, with walk: the same files.

Used by Glob, by Grep to report large files, and by the chat's completion.
"""

import os
import re
import threading
import time
from collections.abc import Callable
from itertools import islice
from typing import Final, NamedTuple

import msgspec

from kitbag.processes.run_process import OpenDirectory, ProcessStopReason, run_process
from kitbag.tools.search.file_filter import ripgrep_type_options
from kitbag.tools.search.ripgrep import walk_options
from kitbag.tools.search.walk import parent_ignore_rules, walk_files

TIMEOUT_SECONDS: Final = 20.0
MAX_UNOPENED: Final = 20
_BATCH_SIZE = 256
_UNOPENED = r"(?:rg: )?(?:\./)?(.*?): (?:IO error for operation on .*: )?[^:]* \(os error \d+\)"
_EXIT_ERROR = 2
"""ripgrep's exit status after any error."""


class ListingStatus(NamedTuple):
    stopped: ProcessStopReason = ""
    unopened: tuple[str, ...] = ()
    """The first files and folders that could not be opened, relative to the searched folder."""
    unopened_count: int = 0


class ListOptions(msgspec.Struct, frozen=True, kw_only=True):
    include_hidden: bool
    respect_gitignore: bool = True
    max_depth: int = 0
    """1 is the folder itself, 0 unlimited."""
    name_patterns: tuple[str, ...] = ()
    timeout_seconds: float = TIMEOUT_SECONDS
    """A hint that only files with these names are needed (file_filter.simple_name_patterns); others may be listed too.
    """


def list_files(
    program: str, folder: OpenDirectory, options: ListOptions, take: Callable[[list[str]], bool], stop: threading.Event
) -> ListingStatus:
    """Calls `take` with batches of paths relative to the folder; it returns whether it wants more."""
    if program:
        listed = _list_with_ripgrep(program, folder, options, take, stop)
        if listed is not None:
            return listed
    return _list_with_walk(folder, options, take, stop)


def _list_with_ripgrep(
    program: str, folder: OpenDirectory, options: ListOptions, take: Callable[[list[str]], bool], stop: threading.Event
) -> ListingStatus | None:
    """None if ripgrep does not work here."""
    command = [
        program,
        "--files",
        "--null",
        *walk_options(folder.path, include_hidden=options.include_hidden, respect_gitignore=options.respect_gitignore),
    ]
    command += [
        *ripgrep_type_options(options.name_patterns),
        *([f"--max-depth={options.max_depth}"] if options.max_depth else []),
    ]
    rest = b""
    has_paths = False

    def taken(chunk: bytes) -> bool:
        nonlocal rest, has_paths
        complete, end, rest = (rest + chunk).rpartition(b"\0")
        has_paths = has_paths or bool(end)
        return not end or take(os.fsdecode(complete).removeprefix("./").split("\0./"))

    try:
        ended = run_process([*command, "--", "./"], folder, taken, stop, options.timeout_seconds)
    except OSError:
        return None
    unopened = parse_unopened(ended.errors)
    if ended.status == _EXIT_ERROR and not has_paths and not unopened:
        return None
    return ListingStatus(ended.stop_reason, unopened[:MAX_UNOPENED], len(unopened))


def parse_unopened(errors: str) -> tuple[str, ...]:
    """The paths that could not be opened, from error output such as `./a/b: Permission denied (os error 13)`."""
    found = [one for line in errors.splitlines() if (one := re.fullmatch(_UNOPENED, line)) is not None]
    return tuple(dict.fromkeys(one[1] for one in found))


def _list_with_walk(
    folder: OpenDirectory, options: ListOptions, take: Callable[[list[str]], bool], stop: threading.Event
) -> ListingStatus:
    deadline = time.monotonic() + options.timeout_seconds
    unopened: list[str] = []
    above = parent_ignore_rules(folder.path)[0] if options.respect_gitignore else None
    walked = walk_files(
        folder.descriptor,
        above,
        include_hidden=options.include_hidden,
        max_depth=options.max_depth,
        is_stopped=lambda: stop.is_set() or time.monotonic() >= deadline,
        on_error=lambda path, _: unopened.append(path.rstrip("/")),
    )
    stopped: ProcessStopReason = ""
    while batch := [path for path, _, _ in islice(walked, _BATCH_SIZE)]:
        if not take(batch):
            stopped = "enough"
            break
    else:
        timed_out = time.monotonic() >= deadline
        stopped = "cancelled" if stop.is_set() else "time" if timed_out else ""
    return ListingStatus(stopped, tuple(unopened[:MAX_UNOPENED]), len(unopened))
