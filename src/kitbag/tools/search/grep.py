"""Grep: searches file contents by regular expression, with ripgrep or, without it, with search_process.

Used by the agent loop. Whatever the engine, each file is checked against the Read rules before any of it is shown. A
single file is opened here and piped to the process, which bounds its kind, its size and the length of its lines.
"""

import contextlib
import os
import re
import stat
import threading
from collections.abc import Callable, Iterator
from typing import Annotated, Final

import msgspec
from msgspec import Meta, field

from kitbag.errors import InvalidError
from kitbag.permissions.safe_open import open_for_reading
from kitbag.processes.run_process import OpenDirectory, ProcessResult, StdinFeed, run_in_thread, run_process
from kitbag.text.glob_patterns import GlobError
from kitbag.text.no_follow import open_directory
from kitbag.tools.base import Arguments, Tool, ToolContext, ToolOutput, error_output, load_description
from kitbag.tools.files.lines import SNIFF_BYTES, is_binary, read_chunks, truncate_lines
from kitbag.tools.files.paths import (
    AuthorizedPath,
    authorize_path,
    display_path,
    error_to_output,
    missing_path_output,
    visible_line,
)
from kitbag.tools.search.file_filter import FileFilter, ripgrep_type_options
from kitbag.tools.search.glob import DEFAULT_TIMEOUT_MS, SearchTimeout, open_search_folder, timeout_notices
from kitbag.tools.search.grep_results import GrepMode, GrepRequest, GrepResults
from kitbag.tools.search.list_files import ListingStatus, ListOptions, list_files
from kitbag.tools.search.ripgrep import find_ripgrep, walk_options
from kitbag.tools.search.search_process import MAX_FILE_BYTES, MAX_LINE_BYTES, SearchJob, search_command

TIMEOUT_SECONDS: Final = 20.0
DEFAULT_LIMIT: Final = 200
MAX_LIMIT: Final = 2_000
MAX_MULTILINE_BYTES: Final = 64 << 20
"""Bytes of a single file in a multiline search."""
MAX_SIZE_CHECKS: Final = 20_000
"""Files statted to report what was too large to search."""
_EXIT_ERROR = 2
_PLAIN_WORDS = re.compile(r"[\w ]+")

ContextLines = Annotated[int, Meta(ge=0, le=1_000)]


class GrepArguments(Arguments, frozen=True):
    pattern: Annotated[str, Meta(min_length=1, max_length=5_000)]
    path: Annotated[str, Meta(max_length=4_096, description="File or directory.")] = ""
    glob: Annotated[str, Meta(max_length=2_000, description="*.{ts,tsx}")] = ""
    type: Annotated[str, Meta(max_length=80, description="py, js, rust ...")] = ""
    output_mode: GrepMode = "files_with_matches"
    ignore_case: bool = field(default=False, name="-i")
    line_numbers: bool = field(default=True, name="-n")
    after: ContextLines = field(default=0, name="-A")
    before: ContextLines = field(default=0, name="-B")
    around: ContextLines = field(default=0, name="-C")
    head_limit: Annotated[int, Meta(ge=0, le=MAX_LIMIT, description="Maximum lines or files.")] = DEFAULT_LIMIT
    multiline: Annotated[bool, Meta(description="Matches may span lines.")] = False
    timeout: SearchTimeout = DEFAULT_TIMEOUT_MS


async def _grep(arguments: GrepArguments, context: ToolContext) -> ToolOutput:
    return await run_in_thread(lambda stop: _grep_blocking(arguments, context, stop))


def _grep_blocking(arguments: GrepArguments, context: ToolContext, stop: threading.Event) -> ToolOutput:
    if "\0" in arguments.pattern or not _is_encodable(arguments.pattern):
        return error_output("the pattern contains a NUL character or an unpaired surrogate", "Remove it.")
    checked_arguments = {"pattern": arguments.pattern, "path": arguments.path, "glob": arguments.glob}
    try:
        authorized = authorize_path(
            context,
            "Grep",
            {key: value for key, value in checked_arguments.items() if value},
            arguments.path or context.directory,
        )
    except InvalidError as error:
        return error_to_output(error)
    try:
        if stat.S_ISDIR(os.lstat(authorized.facts.resolved).st_mode):
            return _search_folder(arguments, authorized, context, stop)
        return _search_file(arguments, authorized, context, stop)
    except (FileNotFoundError, NotADirectoryError):
        return missing_path_output(context, authorized.facts)
    except InvalidError as error:
        return error_to_output(error)
    except GlobError as error:
        return error_output(visible_line(str(error)), "Fix `glob` or `type`.")


def _timeout_seconds(arguments: GrepArguments) -> float:
    return min(TIMEOUT_SECONDS, arguments.timeout / 1_000)


def _is_encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _make_job(arguments: GrepArguments) -> SearchJob:
    return SearchJob(
        pattern=arguments.pattern,
        mode=arguments.output_mode,
        ignore_case=arguments.ignore_case,
        multiline=arguments.multiline,
        before=arguments.before or arguments.around,
        after=arguments.after or arguments.around,
    )


def _make_request(
    arguments: GrepArguments,
    authorized: AuthorizedPath,
    context: ToolContext,
    file_filter: FileFilter,
    folder: OpenDirectory | None = None,
) -> GrepRequest:
    has_context = bool(arguments.before or arguments.after or arguments.around)
    limit = arguments.head_limit or MAX_LIMIT
    return GrepRequest(
        mode=arguments.output_mode,
        limit=limit,
        line_numbers=arguments.line_numbers,
        has_context=has_context,
        authorized=authorized,
        context=context,
        file_filter=file_filter,
        folder=folder,
    )


def _search_folder(
    arguments: GrepArguments, authorized: AuthorizedPath, context: ToolContext, stop: threading.Event
) -> ToolOutput:
    folder = open_search_folder(context, authorized)
    if isinstance(folder, ToolOutput):
        return folder
    try:
        below = os.path.relpath(folder.path, context.directory)
        prefix = "" if below.startswith("..") or below == "." else f"{below}/"
        job = _make_job(arguments)._replace(
            glob=arguments.glob, file_type=arguments.type, prefix=prefix, resolved=folder.path
        )
        file_filter = FileFilter(job.glob, job.file_type, prefix)

        def start(words: list[str], results: GrepResults) -> ProcessResult:
            return run_process(words, folder, results.feed, stop, _timeout_seconds(arguments))

        search = _make_request(arguments, authorized, context, file_filter, folder)
        ended, results = _run_search(job, search, _folder_options(folder, file_filter, job), start)
        notes = (
            []
            if results.has_matches or ended.stop_reason == "time"
            else [*_multiline_hint(arguments), *_note_large_files(folder, file_filter, context, stop)]
        )
        notices = timeout_notices("Grep", ListingStatus(ended.stop_reason), folder.path, _timeout_seconds(arguments))
        return msgspec.structs.replace(results.output(ended, notes, stop), notices=notices)
    finally:
        os.close(folder.descriptor)


def _search_file(
    arguments: GrepArguments, authorized: AuthorizedPath, context: ToolContext, stop: threading.Event
) -> ToolOutput:
    """Opens the file here and pipes it to the process."""
    resolved = authorized.facts.resolved
    descriptor = open_for_reading(resolved, context.workspace, expected_resolved=resolved)
    with open(descriptor, "rb", buffering=0):
        if is_binary(os.pread(descriptor, SNIFF_BYTES, 0)):
            return error_output(
                f"{display_path(authorized.facts.requested, context)} is a binary file",
                "Grep searches text files only.",
            )
        feeder = _FileFeeder(descriptor, stop, MAX_MULTILINE_BYTES if arguments.multiline else 0)

        def start(words: list[str], results: GrepResults) -> ProcessResult:
            nowhere = OpenDirectory(open_directory("/"), "/")
            try:
                with StdinFeed(feeder.write) as feed:
                    return run_process(words, nowhere, results.feed, stop, _timeout_seconds(arguments), feed.readable)
            finally:
                os.close(nowhere.descriptor)

        search = _make_request(arguments, authorized, context, FileFilter())
        ended, results = _run_search(_make_job(arguments), search, ["--", "-"], start)
    notes = [*feeder.notes, *([] if results.has_matches else _multiline_hint(arguments))]
    return results.output(ended, notes, stop)


class _FileFeeder:
    """Feeds a file to the search process: as text with long lines cut, up to the first NUL byte."""

    def __init__(self, descriptor: int, stop: threading.Event, max_bytes: int) -> None:
        self._descriptor = descriptor
        self._stop = stop
        self._most = max_bytes
        self.notes: list[str] = []

    def write(self, target: int) -> None:
        os.lseek(self._descriptor, 0, os.SEEK_SET)
        self.notes = []
        for chunk in truncate_lines(self._pieces(), MAX_LINE_BYTES, self._cut):
            remaining = memoryview(chunk)
            while remaining:
                remaining = remaining[os.write(target, remaining) :]

    def _pieces(self) -> Iterator[bytes]:
        sent = 0
        for chunk in read_chunks(self._descriptor):
            if (text_ends := chunk.find(b"\0")) >= 0:
                self.notes.append(f"searched only up to byte {sent + text_ends:,}, where binary data starts")
                yield chunk[:text_ends]
                return
            if self._most and sent >= self._most:
                self.notes.append(f"searched only the first {self._most >> 20} MB")
                return
            if self._stop.is_set():
                return
            yield chunk
            sent += len(chunk)

    def _cut(self) -> None:
        note = f"searched only the first {MAX_LINE_BYTES:,} bytes of long lines"
        if note not in self.notes:
            self.notes.append(note)


def _folder_options(folder: OpenDirectory, file_filter: FileFilter, job: SearchJob) -> list[str]:
    options = [
        *walk_options(folder.path, include_hidden=True, respect_gitignore=True),
        f"--max-filesize={MAX_FILE_BYTES}",
    ]
    if job.mode != "files_with_matches":
        options.append("--glob=!*\n*")  # a name with a line break looks like two lines
    return [*options, *ripgrep_type_options(file_filter.name_patterns()), "--", "./"]


def _run_search(
    job: SearchJob, search: GrepRequest, targets: list[str], start: Callable[[list[str], GrepResults], ProcessResult]
) -> tuple[ProcessResult, GrepResults]:
    """With ripgrep; with search_process if ripgrep is missing, does not run, or rejects the pattern."""
    program = find_ripgrep(search.context.workspace)
    if program:
        with contextlib.suppress(OSError):
            command = ripgrep_command(program, job)
            # Unsorted, ripgrep uses all cores. If there are too many matches to sort here, a sorted search ends early.
            results = GrepResults(search, in_order=search.folder is None)
            ended = start([*command, *targets], results)
            if results.overflowed:
                results = GrepResults(search)
                ended = start([*command, "--sort=path", *targets], results)
            results.sort_rows()
            if ended.status != _EXIT_ERROR or results.has_matches or "(os error " in ended.errors:
                return ended, results
    results = GrepResults(search)
    return start(search_command(job), results), results


def ripgrep_command(program: str, job: SearchJob) -> list[str]:
    """The pattern and output options; the caller appends what to search."""
    command = [program, "--no-config", "--with-filename", "--null", "--no-pre", "--no-search-zip"]
    if not _PLAIN_WORDS.fullmatch(job.pattern):
        command.append("--crlf")  # a quarter slower, and useless for plain words
    if job.mode == "content":
        # grep_results cuts long lines; this only bounds them.
        command += ["--no-heading", "--line-number", "--no-context-separator"]
        command += ["--max-columns=2048", "--max-columns-preview"]
        command += [f"--before-context={job.before}", f"--after-context={job.after}"]
    else:
        command.append("--count" if job.mode == "count" else "--files-with-matches")
    command.append("--ignore-case" if job.ignore_case else "--case-sensitive")
    command += ["--multiline", "--multiline-dotall"] if job.multiline else []
    return [*command, "-e", job.pattern]


def _multiline_hint(arguments: GrepArguments) -> list[str]:
    across = not arguments.multiline and ("\\n" in arguments.pattern or "\n" in arguments.pattern)
    return ["set multiline for a pattern that spans lines"] if across else []


def _note_large_files(
    folder: OpenDirectory, file_filter: FileFilter, context: ToolContext, stop: threading.Event
) -> list[str]:
    """Reports files that were not searched. Only if nothing matched, because it takes nearly as long as the search."""
    large_count = checked = 0

    def take(paths: list[str]) -> bool:
        nonlocal large_count, checked
        stat_file, descriptor = os.stat, folder.descriptor
        for path in paths:
            with contextlib.suppress(OSError):
                large = stat_file(path, dir_fd=descriptor, follow_symlinks=False).st_size > MAX_FILE_BYTES
                large_count += large and file_filter.matches(path)
        checked += len(paths)
        return checked < MAX_SIZE_CHECKS

    list_files(
        find_ripgrep(context.workspace),
        folder,
        ListOptions(include_hidden=True, name_patterns=file_filter.name_patterns()),
        take,
        stop,
    )
    limit = f"over {MAX_FILE_BYTES >> 20} MB were not searched; pass one as path to search it"
    if large_count:
        return [f"{'at least ' if checked >= MAX_SIZE_CHECKS else ''}{large_count:,} files {limit}"]
    return [f"files {limit}"] if checked >= MAX_SIZE_CHECKS else []


GREP = Tool(name="Grep", description=load_description("Grep"), arguments=GrepArguments, run=_grep, read_only=True)
