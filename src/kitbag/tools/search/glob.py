"""Glob: files by a pattern, the newest first. Nothing that Read would refuse is named.

Used by the loop. globs reads the pattern, listing finds the files, places settles where, readable holds each that is
shown against the rules.
"""

import os
import re
import stat
import threading
from collections.abc import Iterable
from typing import Annotated, Final, NamedTuple

from msgspec import Meta

from kitbag.errors import InvalidError
from kitbag.processes.run_process import Folder, in_thread
from kitbag.text.no_follow import open_directory
from kitbag.tools.base import Arguments, Context, Outcome, Tool, answer, description, failure
from kitbag.tools.files.paths import Place, missing, number_of, refused, settle, shown, visible
from kitbag.tools.search.file_filter import plain_names
from kitbag.tools.search.glob_patterns import (
    LONGEST,
    GlobError,
    alternatives,
    depth_of,
    glob_regex,
    is_wild,
    split_fixed,
    wants_hidden,
)
from kitbag.tools.search.list_files import Listed, Which, list_files
from kitbag.tools.search.readable import Readable
from kitbag.tools.search.ripgrep import find_ripgrep

MOST_SHOWN: Final = 100
MOST_MATCHES: Final = 100_000
MOST_CHARACTERS: Final = 40_000
MOST_JUDGED: Final = 2_000
"""Files that are held against the rules to find those that may be shown."""


class GlobArguments(Arguments, frozen=True):
    pattern: Annotated[str, Meta(min_length=1, max_length=LONGEST, description="Such as src/**/*.{ts,tsx}")]
    path: Annotated[str, Meta(max_length=4_096, description="Folder to search in, if not the working directory.")] = ""


class Chosen(NamedTuple):
    """The files of a result."""

    paths: list[str]
    withheld: int
    """Left out because they may not be read."""
    more: int
    """Not looked at any more."""


async def _glob(arguments: GlobArguments, context: Context) -> Outcome:
    return await in_thread(lambda stop: _glob_now(arguments, context, stop))


def _glob_now(arguments: GlobArguments, context: Context, stop: threading.Event) -> Outcome:
    fixed, rest = split_fixed(arguments.pattern)
    if ".." in re.split(r"[/{},]", rest):
        return failure("`..` may stand only at the beginning of a pattern", "Give the folder as path.")
    start = os.path.join(arguments.path or context.directory, fixed)
    if fixed.startswith("~"):
        start = fixed
    given = {"pattern": arguments.pattern} | ({"path": arguments.path} if arguments.path else {})
    try:
        place = settle(context, "Glob", given, start)
    except InvalidError as error:
        return refused(error)
    folder = opened(context, place)
    if isinstance(folder, Outcome):
        return folder
    try:
        return _search(rest, place, folder, context, stop)
    except GlobError as error:
        return failure(f"the pattern can't be used: {visible(str(error))}", "Write it in a simpler way.")
    finally:
        os.close(folder.descriptor)


def opened(context: Context, place: Place) -> Folder | Outcome:
    """The folder of a place, held; or why not."""
    facts = place.facts
    try:
        return Folder(open_directory(facts.resolved), facts.resolved)
    except FileNotFoundError:
        return missing(context, facts)
    except NotADirectoryError:
        if os.path.lexists(facts.resolved):
            return failure(f"{shown(facts.requested, context)} is not a folder", "Give its folder as path.")
        return missing(context, facts)
    except OSError as error:
        return failure(f"{shown(facts.requested, context)} can't be searched: {error.strerror or error}")


def _search(rest: str, place: Place, folder: Folder, context: Context, stop: threading.Event) -> Outcome:
    # Names may have brackets in them: what is written is also taken as it stands.
    matches = re.compile(f"{glob_regex(rest)}|{re.escape(rest)}").fullmatch
    found = Dated(folder)

    def take(paths: list[str]) -> bool:
        found.add([path for path in paths if matches(path)])
        return len(found) < MOST_MATCHES

    # One file that is named in full is found even if git ignores it.
    which = Which(wants_hidden(rest), ignore=is_wild(rest), deepest=depth_of(rest), names=_names(rest))
    listed = list_files(find_ripgrep(context.workspace), folder, which, take, stop)
    readable = Readable(place, context)
    chosen = choose(found.newest_first(), readable, MOST_SHOWN, stop)
    return _outcome(chosen, remarks(chosen.withheld, listed, readable), listed, place, context)


def _names(rest: str) -> tuple[str, ...]:
    """What the names of matching files look like, also of one that has the braces in its name."""
    names = plain_names(one.rpartition("/")[2] for one in alternatives(rest))
    literal = re.sub(r"[^\w.]+", "*", rest.rpartition("/")[2])
    return (*names, literal) if names and "{" in rest else names


class Dated:
    """Files with the time of their last change. Looked at as they are found, while the search goes on."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder.descriptor
        self._found: list[tuple[int, str]] = []

    def __len__(self) -> int:
        return len(self._found)

    def add(self, paths: Iterable[str]) -> None:
        """What is gone, or no file any more, is left out."""
        look, is_file, keep, folder = os.stat, stat.S_ISREG, self._found.append, self._folder
        for path in paths:
            try:
                status = look(path, dir_fd=folder, follow_symlinks=False)
            except OSError:
                continue
            if is_file(status.st_mode):
                keep((-status.st_mtime_ns, path))

    def newest_first(self) -> list[str]:
        """Of equally old ones by their names."""
        return [path for _, path in sorted(self._found)]


def choose(paths: list[str], readable: Readable, most: int, stop: threading.Event) -> Chosen:
    """Paths below a place as they are shown, as many as are wanted and may be read."""
    kept: list[str] = []
    withheld = characters = 0
    for at, path in enumerate(paths):
        if len(kept) == most or characters > MOST_CHARACTERS or at == MOST_JUDGED or stop.is_set():
            return Chosen(kept, withheld, len(paths) - at)
        name = readable.name_if_there(path)
        if name:
            kept.append(name)
            characters += len(name) + 1
        elif name is not None:
            withheld += 1
    return Chosen(kept, withheld, 0)


def remarks(withheld: int, listed: Listed, readable: Readable) -> list[str]:
    """What is missing from a result, and why."""
    found: list[str] = []
    if withheld:
        found.append(f"{withheld:,} left out that may not be read")
    if listed.unopened_count:
        found.append(readable.unopened(listed.unopened, listed.unopened_count))
    if listed.stopped == "time":
        found.append("stopped because it took too long, so more may match")
    return found


def _outcome(chosen: Chosen, notes: list[str], listed: Listed, place: Place, context: Context) -> Outcome:
    if chosen.more:
        atleast = "at least " if listed.stopped else ""
        notes.insert(0, f"{atleast}{chosen.more:,} more match: narrow the pattern")
    cut = "; ".join(notes)
    if not chosen.paths:
        note = f" ({cut})" if cut else ""
        here = place.facts.requested == context.directory
        inside = "" if here else f" in {shown(place.facts.requested, context)}"
        text = f"No files match{inside}{note}. Hidden files and what git ignores are not searched unless named."
        return answer(text, "nothing found", cut)
    lines = [*chosen.paths, f"[{cut}]"] if cut else chosen.paths
    return answer("\n".join(lines), number_of(len(chosen.paths), "file"), cut)


GLOB = Tool("Glob", description("Glob"), GlobArguments, _glob, reads_only=True)
