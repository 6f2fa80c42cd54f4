"""Glob: files by pattern, newest first. Never names a file that Read would deny.

Used by the agent loop. glob_patterns parses the pattern, list_files finds the files, files/paths authorizes the folder,
readable checks each file against the rules.
"""

import os
import re
import stat
import threading
from collections.abc import Iterable
from typing import Annotated, Final, NamedTuple

import msgspec
from msgspec import Meta

from kitbag.errors import InvalidError
from kitbag.processes.run_process import OpenDirectory, run_in_thread
from kitbag.text.glob_patterns import (
    MAX_PATTERN_CHARS,
    GlobError,
    expand_braces,
    glob_regex,
    has_wildcard,
    matches_hidden,
    max_depth,
    split_fixed_prefix,
)
from kitbag.text.human_format import format_count
from kitbag.text.no_follow import open_directory
from kitbag.tools.base import (
    NOT_ADVERTISED,
    Arguments,
    Tool,
    ToolContext,
    ToolOutput,
    error_output,
    load_description,
    text_output,
)
from kitbag.tools.files.paths import (
    AuthorizedPath,
    authorize_path,
    display_path,
    error_to_output,
    missing_path_output,
    visible_line,
)
from kitbag.tools.search.file_filter import simple_name_patterns
from kitbag.tools.search.list_files import TIMEOUT_SECONDS, ListingStatus, ListOptions, list_files
from kitbag.tools.search.readable import ReadFilter
from kitbag.tools.search.ripgrep import find_ripgrep

MAX_SHOWN: Final = 100
MAX_MATCHES: Final = 100_000
MAX_CHARS: Final = 40_000
MAX_CHECKED: Final = 2_000
"""Files checked against the rules to find those that may be shown."""


DEFAULT_TIMEOUT_MS: Final = int(TIMEOUT_SECONDS * 1_000)
SearchTimeout = Annotated[int, Meta(ge=1, le=DEFAULT_TIMEOUT_MS), NOT_ADVERTISED]


class GlobArguments(Arguments, frozen=True):
    pattern: Annotated[str, Meta(min_length=1, max_length=MAX_PATTERN_CHARS)]
    path: Annotated[str, Meta(max_length=4_096, description="Directory to search.")] = ""
    timeout: SearchTimeout = DEFAULT_TIMEOUT_MS


class ReadableFiles(NamedTuple):
    """The files of a result."""

    paths: list[str]
    denied: int
    """Omitted because the model may not read them."""
    remaining: int
    """Not checked."""


async def _glob(arguments: GlobArguments, context: ToolContext) -> ToolOutput:
    return await run_in_thread(lambda stop: _glob_blocking(arguments, context, stop))


def _glob_blocking(arguments: GlobArguments, context: ToolContext, stop: threading.Event) -> ToolOutput:
    fixed, rest = split_fixed_prefix(arguments.pattern)
    if ".." in re.split(r"[/{},]", rest):
        return error_output("`..` is only allowed at the start of a pattern", "Pass the directory as path.")
    start = os.path.join(arguments.path or context.directory, fixed)
    if fixed.startswith("~"):
        start = fixed
    checked_arguments = {"pattern": arguments.pattern} | ({"path": arguments.path} if arguments.path else {})
    try:
        authorized = authorize_path(context, "Glob", checked_arguments, start)
    except InvalidError as error:
        return error_to_output(error)
    folder = open_search_folder(context, authorized)
    if isinstance(folder, ToolOutput):
        return folder
    try:
        return _find_files(rest, authorized, folder, context, stop, arguments.timeout / 1_000)
    except GlobError as error:
        return error_output(f"invalid pattern: {visible_line(str(error))}", "Use a simpler pattern.")
    finally:
        os.close(folder.descriptor)


def open_search_folder(context: ToolContext, authorized: AuthorizedPath) -> OpenDirectory | ToolOutput:
    """Open the folder, or return the error."""
    facts = authorized.facts
    try:
        return OpenDirectory(open_directory(facts.resolved), facts.resolved)
    except FileNotFoundError:
        return missing_path_output(context, facts)
    except NotADirectoryError:
        if os.path.lexists(facts.resolved):
            return error_output(
                f"{display_path(facts.requested, context)} is not a directory", "Pass its directory as path."
            )
        return missing_path_output(context, facts)
    except OSError as error:
        return error_output(f"cannot search {display_path(facts.requested, context)}: {error.strerror or error}")


def _find_files(
    rest: str,
    authorized: AuthorizedPath,
    folder: OpenDirectory,
    context: ToolContext,
    stop: threading.Event,
    timeout_seconds: float,
) -> ToolOutput:
    # Names may contain brackets, so the pattern also matches literally.
    matches = re.compile(f"{glob_regex(rest)}|{re.escape(rest)}").fullmatch
    found = FilesByTime(folder)

    def take(paths: list[str]) -> bool:
        found.add([path for path in paths if matches(path)])
        return len(found) < MAX_MATCHES

    # A file named in full is found even if git ignores it.
    which = ListOptions(
        include_hidden=matches_hidden(rest),
        respect_gitignore=has_wildcard(rest),
        max_depth=max_depth(rest),
        name_patterns=_name_patterns(rest),
        timeout_seconds=timeout_seconds,
    )
    listed = list_files(find_ripgrep(context.workspace), folder, which, take, stop)
    readable = ReadFilter(authorized, context)
    chosen = select_readable(found.newest_first(), readable, MAX_SHOWN, stop)
    notes = incomplete_notes(chosen.denied, listed, readable)
    output = _render_output(chosen, notes, listed, authorized, context)
    return msgspec.structs.replace(output, notices=timeout_notices("Glob", listed, folder.path, timeout_seconds))


def timeout_notices(tool: str, listed: ListingStatus, folder: str, timeout_seconds: float) -> tuple[str, ...]:
    """For the user; none if the search ended in time."""
    if listed.stopped != "time":
        return ()
    return (f"{tool} stopped searching {folder} after {timeout_seconds:g} s; more may match",)


def _name_patterns(rest: str) -> tuple[str, ...]:
    """Name patterns of the matching files, including a file with literal braces in its name."""
    names = simple_name_patterns(one.rpartition("/")[2] for one in expand_braces(rest))
    literal = re.sub(r"[^\w.]+", "*", rest.rpartition("/")[2])
    return (*names, literal) if names and "{" in rest else names


class FilesByTime:
    """Files sorted by modification time. Each is statted when it is found, while the search runs."""

    def __init__(self, folder: OpenDirectory) -> None:
        self._folder = folder.descriptor
        self._found: list[tuple[int, str]] = []

    def __len__(self) -> int:
        return len(self._found)

    def add(self, paths: Iterable[str]) -> None:
        """Skips what is gone or no longer a regular file."""
        stat_file, is_file, append, folder = os.stat, stat.S_ISREG, self._found.append, self._folder
        for path in paths:
            try:
                status = stat_file(path, dir_fd=folder, follow_symlinks=False)
            except OSError:
                continue
            if is_file(status.st_mode):
                append((-status.st_mtime_ns, path))

    def newest_first(self) -> list[str]:
        """Ties are sorted by name."""
        return [path for _, path in sorted(self._found)]


def select_readable(paths: list[str], readable: ReadFilter, limit: int, stop: threading.Event) -> ReadableFiles:
    """The display names of up to `limit` files that may be read."""
    names: list[str] = []
    withheld = characters = 0
    for at, path in enumerate(paths):
        if len(names) == limit or characters > MAX_CHARS or at == MAX_CHECKED or stop.is_set():
            return ReadableFiles(names, withheld, len(paths) - at)
        name = readable.display_name_if_exists(path)
        if name:
            names.append(name)
            characters += len(name) + 1
        elif name is not None:
            withheld += 1
    return ReadableFiles(names, withheld, 0)


def incomplete_notes(withheld: int, listed: ListingStatus, readable: ReadFilter) -> list[str]:
    """What is missing from a result, and why."""
    notes: list[str] = []
    if withheld:
        notes.append(f"{withheld:,} omitted: no permission to read")
    if listed.unopened_count:
        notes.append(readable.describe_unopened(listed.unopened, listed.unopened_count))
    if listed.stopped == "time":
        notes.append("timed out; more may match")
    return notes


def _render_output(
    chosen: ReadableFiles, notes: list[str], listed: ListingStatus, authorized: AuthorizedPath, context: ToolContext
) -> ToolOutput:
    if chosen.remaining:
        atleast = "at least " if listed.stopped else ""
        notes.insert(0, f"{atleast}{chosen.remaining:,} more match: narrow the pattern")
    truncation = "; ".join(notes)
    if not chosen.paths:
        note = f" ({truncation})" if truncation else ""
        is_working_directory = authorized.facts.requested == context.directory
        inside = "" if is_working_directory else f" in {display_path(authorized.facts.requested, context)}"
        text = f"No files match{inside}{note}. Hidden and git-ignored files are not searched unless named explicitly."
        return text_output(text, "no files found", truncation)
    lines = [*chosen.paths, f"[{truncation}]"] if truncation else chosen.paths
    return text_output("\n".join(lines), format_count(len(chosen.paths), "file"), truncation)


GLOB = Tool(name="Glob", description=load_description("Glob"), arguments=GlobArguments, run=_glob, read_only=True)
