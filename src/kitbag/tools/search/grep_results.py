"""Parses the output of a search while it runs and renders the tool output.

Used by grep. Shows nothing of a file that was not checked against the filter and the Read rules after it was read;
stops the search when there is enough.
"""

import os
import re
import threading
from typing import Final, Literal

import msgspec

from kitbag.processes.run_process import OpenDirectory, ProcessResult
from kitbag.text.hidden_characters import reveal_hidden
from kitbag.text.human_format import format_count
from kitbag.tools.base import ToolContext, ToolOutput, error_output, text_output
from kitbag.tools.files.lines import decode_utf8
from kitbag.tools.files.paths import AuthorizedPath, display_path, visible_line
from kitbag.tools.search.file_filter import FileFilter
from kitbag.tools.search.glob import MAX_CHARS, MAX_CHECKED, FilesByTime, incomplete_notes, select_readable
from kitbag.tools.search.list_files import MAX_UNOPENED, ListingStatus, parse_unopened
from kitbag.tools.search.readable import ReadFilter

GrepMode = Literal["files_with_matches", "content", "count"]
MAX_LINE_CHARS: Final = 500
MAX_FILES: Final = 50_000
MAX_UNSORTED_BYTES: Final = 1 << 18
"""Bytes of matching lines that are sorted here: many times what is shown."""
_MAX_RECORD_BYTES = 1 << 16
_ROW = re.compile(rb"(\d+)([:-])(.*)", re.DOTALL)


class GrepRequest(msgspec.Struct, frozen=True, kw_only=True):
    mode: GrepMode
    limit: int
    """Of lines or files."""
    line_numbers: bool
    has_context: bool
    """Whether context lines are shown; then groups are separated."""
    authorized: AuthorizedPath
    context: ToolContext
    file_filter: FileFilter
    folder: OpenDirectory | None = None
    """None for a search in a single file."""


class GrepResults:
    def __init__(self, request: GrepRequest, *, in_order: bool = True) -> None:
        """`in_order`: the search prints files sorted by path. If not, lines are buffered until it ends, and
        `overflowed` says that there were too many to buffer."""
        self.has_matches = False
        """Whether anything matched."""
        self.overflowed = False
        self._request = request
        self._in_order = in_order or request.mode != "content"
        self._rest = b""
        self._readable = ReadFilter(
            request.authorized, request.context, at_once=request.mode != "content" or not in_order
        )
        self._names: dict[str, str] = {}
        """Display names by path; empty for files that are not shown."""
        self._denied = 0
        self._files_by_time = FilesByTime(request.folder) if request.folder is not None else None
        self._counts: list[tuple[str, int]] = []
        self._unsorted: list[bytes] = []
        self._unsorted_size = 0
        self._rows: list[str] = []
        self._lines = 0
        """Rows except group separators."""
        self._last_line: tuple[str, int] = ("", 0)
        self._characters = 0
        self._is_full = False

    def feed(self, chunk: bytes) -> bool:
        """Returns whether more output is wanted."""
        mode = self._request.mode
        end = b"\0" if mode == "files_with_matches" else b"\n"
        *records, self._rest = (self._rest + chunk).split(end)
        self._rest = self._rest[:_MAX_RECORD_BYTES]  # the start of an endless line is enough
        if mode == "files_with_matches":
            return self._feed_files(records)
        if mode == "count":
            return all(self._feed_count(record) for record in records)
        if self._in_order:
            return all(self._feed_row(record) for record in records)
        self._unsorted += records
        self._unsorted_size += len(chunk)
        self.overflowed = self._unsorted_size > MAX_UNSORTED_BYTES
        return not self.overflowed

    def _feed_files(self, records: list[bytes]) -> bool:
        paths = [path for record in records if b"\n" not in record and self._is_included(path := _decode_path(record))]
        self.has_matches = self.has_matches or bool(paths)
        if self._files_by_time is None:
            return True
        self._files_by_time.add(paths)
        return len(self._files_by_time) < MAX_FILES

    def _feed_count(self, record: bytes) -> bool:
        written, _, count = record.partition(b"\0")
        path = _decode_path(written)
        if self._is_included(path):
            self.has_matches = True
            self._counts.append((path, int(count) if count.strip().isdigit() else 0))
        return len(self._counts) < MAX_FILES

    def _is_included(self, path: str) -> bool:
        return self._request.folder is None or self._request.file_filter.matches(path)

    def _feed_row(self, record: bytes) -> bool:
        written, is_row, rest = record.partition(b"\0")
        row = _ROW.fullmatch(rest)
        if not is_row or row is None:
            return True  # a note about a binary file
        path = _decode_path(written)
        name = self._names.get(path)
        if name is None:
            name = self._names[path] = self._checked_name(path)
        if not name:
            return True
        if self._lines >= self._request.limit or self._characters > MAX_CHARS:
            self._is_full = True
            return False
        self._add(name, int(row[1]), row[2].decode(), _format_line(row[3]))
        return True

    def sort_rows(self) -> None:
        """Call after the search. Lines of one file arrive together; only the order of files varies."""
        ordered = sorted(
            enumerate(self._unsorted), key=lambda one: (_sort_key(_decode_path(one[1].partition(b"\0")[0])), one[0])
        )
        for _, record in ordered:
            if not self._feed_row(record):
                return

    def _add(self, name: str, number: int, separator: str, text: str) -> None:
        if self._request.has_context and self._rows and self._last_line != (name, number - 1):
            self._rows.append("--")
        self._last_line = (name, number)
        self._lines += 1
        row = (
            f"{name}{separator}{number}{separator}{text}" if self._request.line_numbers else f"{name}{separator}{text}"
        )
        self._rows.append(row)
        self._characters += len(row) + 1

    def _checked_name(self, path: str) -> str:
        """The display name of a file; empty if it is not shown."""
        if self._request.folder is None:
            self.has_matches = True
            return display_path(self._request.authorized.facts.requested, self._request.context)
        if not self._request.file_filter.matches(path):
            return ""
        self.has_matches = True
        name = self._readable.display_name(path)
        self._denied += not name
        return name

    def output(self, ended: ProcessResult, notes: list[str], stop: threading.Event) -> ToolOutput:
        """`notes`: what else is missing."""
        error = _error_message(ended)
        if error and not self.has_matches:
            return error_output(f"the search failed: {visible_line(error)}", "Fix the pattern.")
        mode = self._request.mode
        if mode == "content":
            rows, summary = self._rows, format_count(self._lines, "line")
            limit = "more lines match: narrow the search or raise head_limit" if self._is_full else ""
        elif mode == "count":
            rows, limit, summary = self._count_rows(stop)
        else:
            rows, limit, summary = self._file_rows(stop)
        all_notes = [limit] if limit else []
        unopened = parse_unopened(ended.errors)
        listed = ListingStatus(ended.stop_reason, unopened[:MAX_UNOPENED], len(unopened))
        all_notes += incomplete_notes(self._denied, listed, self._readable)
        all_notes += [*notes, f"the search stopped early: {visible_line(error)}"] if error else notes
        truncation = "; ".join(all_notes)
        if not rows:
            return text_output(f"No matches{f' ({truncation})' if truncation else ''}.", "no matches", truncation)
        return text_output("\n".join([*rows, f"[{truncation}]"] if truncation else rows), summary, truncation)

    def _file_rows(self, stop: threading.Event) -> tuple[list[str], str, str]:
        search = self._request
        if self._files_by_time is None:
            return (
                [display_path(search.authorized.facts.requested, search.context)] if self.has_matches else [],
                "",
                "1 file",
            )
        chosen = select_readable(self._files_by_time.newest_first(), self._readable, search.limit, stop)
        self._denied += chosen.denied
        limit = (
            f"{chosen.remaining:,} more files match: narrow the search or raise head_limit" if chosen.remaining else ""
        )
        return chosen.paths, limit, format_count(len(chosen.paths), "file")

    def _count_rows(self, stop: threading.Event) -> tuple[list[str], str, str]:
        rows: list[str] = []
        ordered = sorted(self._counts, key=lambda one: _sort_key(one[0]))
        total = remaining = characters = 0
        for at, (path, count) in enumerate(ordered):
            full = len(rows) == self._request.limit or characters > MAX_CHARS
            if full or at == MAX_CHECKED or stop.is_set():
                remaining = len(ordered) - at
                break
            if name := self._checked_name(path):
                rows.append(f"{name}:{count}")
                total += count
                characters += len(rows[-1]) + 1
        limit = f"{remaining:,} more files match: narrow the search or raise head_limit" if remaining else ""
        return rows, limit, f"{total:,} in {format_count(len(rows), 'file')}"


def _decode_path(written: bytes) -> str:
    return os.fsdecode(written.removeprefix(b"./"))


def _sort_key(path: str) -> list[bytes]:
    """Sorts files in the order of a walk by name."""
    return os.fsencode(path).split(b"/")


def _format_line(data: bytes) -> str:
    data = data.removesuffix(b"\r")
    try:
        text = decode_utf8(data)
    except UnicodeDecodeError:
        text = data.decode("cp1252", "replace")
    note = " [line truncated]" if len(text) > MAX_LINE_CHARS else ""
    return reveal_hidden(text[:MAX_LINE_CHARS]) + note


def _error_message(ended: ProcessResult) -> str:
    """What failed, apart from files that could not be opened: the last line is the most specific."""
    lines = [line.strip() for line in ended.errors.splitlines() if line.strip() and "(os error " not in line]
    if lines:
        return lines[-1][:500]
    return f"signal {-ended.status}" if ended.status < 0 and not ended.stop_reason else ""
