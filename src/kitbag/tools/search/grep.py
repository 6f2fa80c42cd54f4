"""Grep: a regular expression in the contents of files. ripgrep searches where there is one, search_process elsewhere.

Used by the loop. Whoever searches, each file is held against the Read rules before anything of it is shown. A single
file is opened by us and fed to the process, so that its kind, its size and the length of its lines are bounded.
"""

import contextlib
import os
import re
import stat
import threading
from collections.abc import Callable, Iterator
from typing import Annotated, Final

from msgspec import Meta, field

from kitbag.errors import InvalidError
from kitbag.permissions.safe_open import open_to_read
from kitbag.processes.run_process import Ended, Feed, Folder, in_thread, run_process
from kitbag.text.no_follow import open_directory
from kitbag.tools.base import Arguments, Context, Outcome, Tool, description, failure
from kitbag.tools.files.lines import SNIFFED, chunks, is_binary, shortened
from kitbag.tools.files.paths import Place, missing, refused, settle, shown, visible
from kitbag.tools.search.file_filter import FileFilter, narrowing
from kitbag.tools.search.glob import opened
from kitbag.tools.search.glob_patterns import GlobError
from kitbag.tools.search.grep_results import Mode, Results, Search
from kitbag.tools.search.list_files import Which, list_files
from kitbag.tools.search.ripgrep import find_ripgrep, walking
from kitbag.tools.search.search_process import LARGEST_FILE, LONGEST_LINE, Job, words_for

SECONDS: Final = 20.0
DEFAULT_LIMIT: Final = 200
MOST_LIMIT: Final = 2_000
MOST_AT_ONCE: Final = 64 << 20
"""Bytes of a single file that are searched across its lines."""
MOST_LOOKED: Final = 20_000
"""Files whose size is asked for to say what was not searched."""
_FAILED = 2
_PLAIN = re.compile(r"[\w ]+")

Lines = Annotated[int, Meta(ge=0, le=1_000)]


class GrepArguments(Arguments, frozen=True):
    pattern: Annotated[str, Meta(min_length=1, max_length=5_000, description="Regular expression.")]
    path: Annotated[str, Meta(max_length=4_096, description="File or folder, if not the working directory.")] = ""
    glob: Annotated[str, Meta(max_length=2_000, description="Only such files: *.{ts,tsx}")] = ""
    type: Annotated[str, Meta(max_length=80, description="Only such files: py, js, rust ...")] = ""
    output_mode: Mode = "files_with_matches"
    ignore_case: bool = field(default=False, name="-i")
    line_numbers: bool = field(default=True, name="-n")
    after: Lines = field(default=0, name="-A")
    before: Lines = field(default=0, name="-B")
    around: Lines = field(default=0, name="-C")
    head_limit: Annotated[int, Meta(ge=0, le=MOST_LIMIT, description="Most lines or files.")] = DEFAULT_LIMIT
    multiline: Annotated[bool, Meta(description="A match may span lines.")] = False


async def _grep(arguments: GrepArguments, context: Context) -> Outcome:
    return await in_thread(lambda stop: _grep_now(arguments, context, stop))


def _grep_now(arguments: GrepArguments, context: Context, stop: threading.Event) -> Outcome:
    if "\0" in arguments.pattern or not _is_whole(arguments.pattern):
        return failure("the pattern has a character that no text has", "Leave out NUL and half surrogate pairs.")
    given = {"pattern": arguments.pattern, "path": arguments.path, "glob": arguments.glob}
    try:
        place = settle(
            context, "Grep", {key: value for key, value in given.items() if value}, arguments.path or context.directory
        )
    except InvalidError as error:
        return refused(error)
    try:
        if stat.S_ISDIR(os.lstat(place.facts.resolved).st_mode):
            return _in_folder(arguments, place, context, stop)
        return _in_file(arguments, place, context, stop)
    except (FileNotFoundError, NotADirectoryError):
        return missing(context, place.facts)
    except InvalidError as error:
        return refused(error)
    except GlobError as error:
        return failure(visible(str(error)), "Correct `glob` or `type`.")


def _is_whole(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _job(arguments: GrepArguments) -> Job:
    before, after = arguments.before or arguments.around, arguments.after or arguments.around
    case, whole = arguments.ignore_case, arguments.multiline
    return Job(arguments.pattern, arguments.output_mode, case, whole, before=before, after=after)


def _search(
    arguments: GrepArguments, place: Place, context: Context, wanted: FileFilter, folder: Folder | None = None
) -> Search:
    around = bool(arguments.before or arguments.after or arguments.around)
    most = arguments.head_limit or MOST_LIMIT
    return Search(arguments.output_mode, most, arguments.line_numbers, around, place, context, wanted, folder)


def _in_folder(arguments: GrepArguments, place: Place, context: Context, stop: threading.Event) -> Outcome:
    folder = opened(context, place)
    if isinstance(folder, Outcome):
        return folder
    try:
        below = os.path.relpath(folder.resolved, context.directory)
        prefix = "" if below.startswith("..") or below == "." else f"{below}/"
        job = _job(arguments)._replace(
            glob=arguments.glob, file_type=arguments.type, prefix=prefix, resolved=folder.resolved
        )
        wanted = FileFilter(job.glob, job.file_type, prefix)

        def start(words: list[str], results: Results) -> Ended:
            return run_process(words, folder, results.take, stop, SECONDS)

        search = _search(arguments, place, context, wanted, folder)
        ended, results = _searched(job, search, _walking(folder, wanted, job), start)
        notes = [] if results.some else [*_spanning(arguments), *_too_large(folder, wanted, context, stop)]
        return results.outcome(ended, notes, stop)
    finally:
        os.close(folder.descriptor)


def _in_file(arguments: GrepArguments, place: Place, context: Context, stop: threading.Event) -> Outcome:
    """We open and read it, the process gets it on its standard input."""
    resolved = place.facts.resolved
    descriptor = open_to_read(resolved, context.workspace, expected_resolved=resolved)
    with open(descriptor, "rb", buffering=0):
        if is_binary(os.pread(descriptor, SNIFFED, 0)):
            return failure(f"{shown(place.facts.requested, context)} is a binary file", "Grep searches text.")
        feeding = _Feeding(descriptor, stop, MOST_AT_ONCE if arguments.multiline else 0)

        def start(words: list[str], results: Results) -> Ended:
            nowhere = Folder(open_directory("/"), "/")
            try:
                with Feed(feeding.write) as feed:
                    return run_process(words, nowhere, results.take, stop, SECONDS, feed.readable)
            finally:
                os.close(nowhere.descriptor)

        search = _search(arguments, place, context, FileFilter())
        ended, results = _searched(_job(arguments), search, ["--", "-"], start)
    notes = [*feeding.notes, *([] if results.some else _spanning(arguments))]
    return results.outcome(ended, notes, stop)


class _Feeding:
    """A file for a process to search: as text, its lines cut, up to where it turns binary."""

    def __init__(self, descriptor: int, stop: threading.Event, most: int) -> None:
        self._descriptor = descriptor
        self._stop = stop
        self._most = most
        self.notes: list[str] = []

    def write(self, target: int) -> None:
        os.lseek(self._descriptor, 0, os.SEEK_SET)
        self.notes = []
        for piece in shortened(self._pieces(), LONGEST_LINE, self._cut):
            left = memoryview(piece)
            while left:
                left = left[os.write(target, left) :]

    def _pieces(self) -> Iterator[bytes]:
        given = 0
        for piece in chunks(self._descriptor):
            if (text_ends := piece.find(b"\0")) >= 0:
                self.notes.append(f"it is binary from byte {given + text_ends:,} on, and was searched up to there")
                yield piece[:text_ends]
                return
            if self._most and given >= self._most:
                self.notes.append(f"only its first {self._most >> 20} MB were searched")
                return
            if self._stop.is_set():
                return
            yield piece
            given += len(piece)

    def _cut(self) -> None:
        note = f"of long lines only the first {LONGEST_LINE:,} bytes were searched"
        if note not in self.notes:
            self.notes.append(note)


def _walking(folder: Folder, wanted: FileFilter, job: Job) -> list[str]:
    words = [*walking(folder.resolved, hidden=True, ignore=True), f"--max-filesize={LARGEST_FILE}"]
    if job.mode != "files_with_matches":
        words.append("--glob=!*\n*")  # names with a line break can't be told from two lines
    return [*words, *narrowing(wanted.names()), "--", "./"]


def _searched(
    job: Job, search: Search, where: list[str], start: Callable[[list[str], Results], Ended]
) -> tuple[Ended, Results]:
    """By ripgrep; by our own process where there is none, where it does not run, or can't read the pattern."""
    program = find_ripgrep(search.context.workspace)
    if program:
        with contextlib.suppress(OSError):
            words = ripgrep_words(program, job)
            # Files in any order come from all processors at once; if that is too much, one after the other will end
            # early, because there is so much to be found.
            results = Results(search, in_order=search.folder is None)
            ended = start([*words, *where], results)
            if results.too_many:
                results = Results(search)
                ended = start([*words, "--sort=path", *where], results)
            results.arrange()
            if ended.status != _FAILED or results.some or "(os error " in ended.errors:
                return ended, results
    results = Results(search)
    return start(words_for(job), results), results


def ripgrep_words(program: str, job: Job) -> list[str]:
    """What it is to search for, and how to print it; what follows says where."""
    words = [program, "--no-config", "--with-filename", "--null", "--no-pre", "--no-search-zip"]
    if not _PLAIN.fullmatch(job.pattern):
        words.append("--crlf")  # slower by a quarter, and of no use for what is no more than a word
    if job.mode == "content":
        # Long lines are cut by us; ripgrep only keeps them from becoming very long.
        words += ["--no-heading", "--line-number", "--no-context-separator"]
        words += ["--max-columns=2048", "--max-columns-preview"]
        words += [f"--before-context={job.before}", f"--after-context={job.after}"]
    else:
        words.append("--count" if job.mode == "count" else "--files-with-matches")
    words.append("--ignore-case" if job.ignore_case else "--case-sensitive")
    words += ["--multiline", "--multiline-dotall"] if job.multiline else []
    return [*words, "-e", job.pattern]


def _spanning(arguments: GrepArguments) -> list[str]:
    across = not arguments.multiline and ("\\n" in arguments.pattern or "\n" in arguments.pattern)
    return ["a pattern that spans lines needs multiline"] if across else []


def _too_large(folder: Folder, wanted: FileFilter, context: Context, stop: threading.Event) -> list[str]:
    """Files that were not searched: looked for only when nothing was found, because it takes nearly as long."""
    found = looked = 0

    def take(paths: list[str]) -> bool:
        nonlocal found, looked
        look, descriptor = os.stat, folder.descriptor
        for path in paths:
            with contextlib.suppress(OSError):
                large = look(path, dir_fd=descriptor, follow_symlinks=False).st_size > LARGEST_FILE
                found += large and wanted.wants(path)
        looked += len(paths)
        return looked < MOST_LOOKED

    list_files(find_ripgrep(context.workspace), folder, Which(hidden=True, names=wanted.names()), take, stop)
    limit = f"over {LARGEST_FILE >> 20} MB were not searched: give one as path to search it"
    if found:
        return [f"{'at least ' if looked >= MOST_LOOKED else ''}{found:,} files {limit}"]
    return [f"files {limit}"] if looked >= MOST_LOOKED else []


GREP = Tool("Grep", description("Grep"), GrepArguments, _grep, reads_only=True)
