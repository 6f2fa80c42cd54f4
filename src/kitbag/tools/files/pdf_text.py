"""The text of a PDF, page by page, as Read shows it. Only pdf_process reads the document itself.

Used by Read and WebFetch. pypdfium2 comes with the extra `documents`; without it the error says how to install it.
"""

import os
import re
import threading
from importlib.util import find_spec
from typing import Final

import msgspec

from kitbag.processes.run_process import OpenDirectory, ProcessResult, run_process
from kitbag.text.hidden_characters import reveal_hidden
from kitbag.text.human_format import format_count
from kitbag.text.no_follow import open_directory
from kitbag.tools.base import ToolOutput, error_output, text_output
from kitbag.tools.files.pdf_process import pdf_command

MAX_PAGES: Final = 20
"""Shown if no pages are requested."""
MAX_CHARS: Final = 50_000
MAX_BYTES: Final = 500 << 20
TIMEOUT_SECONDS: Final = 6.0
_MAX_PRINTED_BYTES = 4 << 20
_RANGE = re.compile(r"(\d{1,6})(?:\s*-\s*(\d{0,6}))?")

PageRanges = list[tuple[int, int]]
"""First and last page; a last page of 0 is the last one of the document."""


class PageRangeError(ValueError):
    """`pages` can't be parsed; says why."""


class _PdfRecord(msgspec.Struct):
    count: int = -1
    problem: str = ""
    page: int = 0
    text: str | None = None


def parse_page_ranges(text: str) -> PageRanges:
    """`1-5`, `3`, `2,7`, `10-`: sorted, and no page twice. Raises PageRangeError."""
    found: PageRanges = []
    for part in text.replace(";", ",").split(","):
        one = _RANGE.fullmatch(part.strip())
        if one is None:
            raise PageRangeError(f"`{part.strip()}` is not a page or page range")
        first = int(one[1])
        last = first if one[2] is None else int(one[2] or 0)
        if not first or (one[2] and not last):
            raise PageRangeError("page numbers start at 1")
        if last and last < first:
            raise PageRangeError(f"`{part.strip()}` is a reversed range")
        found.append((first, last))
    merged: PageRanges = []
    for first, last in sorted(found):
        before = merged[-1] if merged else (0, -1)
        if before[1] == 0 or first <= before[1] + 1:
            merged[-1] = before[0], 0 if 0 in (before[1], last) else max(before[1], last)
        else:
            merged.append((first, last))
    return merged


def format_page_ranges(ranges: PageRanges) -> str:
    """The inverse of `parse_page_ranges`."""
    return ",".join(str(first) if first == last else f"{first}-{last or ''}" for first, last in ranges)


def read_pdf(descriptor: int, path: str, pages: str, stop: threading.Event) -> ToolOutput:
    """`path` is the display path. A child process reads the descriptor from its start."""
    packages = _find_pypdfium2()
    if not packages:
        fix = "Ask the user to run `pip install 'kitbag[documents]'`, or convert it to text with a command."
        return error_output(f"{path} is a PDF, and PDF support is not installed", fix)
    if os.fstat(descriptor).st_size > MAX_BYTES:
        return error_output(f"{path} is a PDF larger than {MAX_BYTES >> 20} MB", "Split it into smaller files.")
    try:
        ranges = parse_page_ranges(pages) if pages.strip() else [(1, MAX_PAGES)]
    except PageRangeError as error:
        return error_output(f"invalid pages: {error}", 'Use a form such as "3", "1-5", "2,7" or "10-".')
    records, ended = _run_pdf_process(descriptor, packages, ranges, stop)
    return _PdfPages(path, ranges, records, ended).output(requested=bool(pages.strip()))


def _find_pypdfium2() -> str:
    """The folder where pypdfium2 is installed; empty if it is not. Does not import it."""
    spec = find_spec("pypdfium2")
    return os.path.dirname(os.path.dirname(spec.origin)) if spec is not None and spec.origin else ""


def _run_pdf_process(
    descriptor: int, packages: str, ranges: PageRanges, stop: threading.Event
) -> tuple[list[_PdfRecord], ProcessResult]:
    printed = bytearray()

    def take(chunk: bytes) -> bool:
        printed.extend(chunk)
        return len(printed) < _MAX_PRINTED_BYTES

    nowhere = OpenDirectory(open_directory("/"), "/")
    try:
        ended = run_process(pdf_command(packages, ranges, MAX_CHARS), nowhere, take, stop, TIMEOUT_SECONDS, descriptor)
    finally:
        os.close(nowhere.descriptor)
    records: list[_PdfRecord] = []
    for line in bytes(printed).split(b"\n")[:-1]:
        try:
            records.append(msgspec.json.decode(line, type=_PdfRecord))
        except (msgspec.DecodeError, UnicodeDecodeError):
            return [_PdfRecord(problem="damaged")], ended  # the document took control of the process
    return records, ended


class _PdfPages:
    def __init__(self, path: str, ranges: PageRanges, records: list[_PdfRecord], ended: ProcessResult) -> None:
        self._path = path
        self._ranges = ranges
        self._pages = [one for one in records if one.page > 0]
        self._problem = next((one.problem for one in records if one.problem), "")
        self._count = next((one.count for one in records if one.count >= 0), -1)
        self._ended = ended

    def output(self, *, requested: bool) -> ToolOutput:
        path = self._path
        if self._problem == "password":
            return error_output(f"{path} is encrypted and needs a password", "Ask the user for an unencrypted copy.")
        if self._problem or self._count == 0:
            return error_output(f"{path} is not a valid PDF")
        if self._count < 0:
            return error_output(f"cannot read {path}: {self._abort_reason or 'the PDF reader crashed'}")
        count = format_count(self._count, "page")
        if not self._pages and self._abort_reason:
            others = format_page_ranges(self._remaining_ranges(self._ranges[0][0], requested=requested))
            problem = f"cannot read page {self._ranges[0][0]} of {path}: {self._abort_reason}"
            return error_output(problem, f'Try the other pages: pages="{others}".' if others else "")
        if not self._pages:
            first = self._ranges[0][0]
            return error_output(f"{path} has {count}, so there is no page {first}", f"Use pages up to {self._count}.")
        rows, last, notes = self._render_rows()
        remaining = self._remaining_ranges(last, requested=requested)
        if remaining and last == self._pages[-1].page and self._abort_reason:
            notes.append(f"page {remaining[0][0]} could not be read: {self._abort_reason}")
            remaining = self._remaining_ranges(remaining[0][0], requested=requested)
        shown = [page for page in self._pages if page.page <= last]
        if remaining:
            pages = format_page_ranges(remaining)
            notes.append(f'showing {_describe_pages(shown)} of {self._count:,}; continue with pages="{pages}"')
        truncation = "; ".join(notes)
        if not any((page.text or "").strip() for page in shown) and None not in [page.text for page in shown]:
            note = f" ({truncation})" if truncation else ""
            what = f"{path} has {count}; there is no text on {_describe_pages(shown)}{note}"
            return text_output(
                f"{what}. It may be scanned: Read shows the text of a PDF, not its images.", what, truncation
            )
        text = "\n".join([*rows, f"[{truncation[0].upper()}{truncation[1:]}.]"] if truncation else rows)
        return text_output(text, f"{format_count(len(shown), 'page')} of {path}", truncation)

    @property
    def _abort_reason(self) -> str:
        """Why the process ended early; empty if it did not."""
        if self._ended.stop_reason == "time":
            return f"timed out after {TIMEOUT_SECONDS:g} s"
        if self._ended.stop_reason or self._ended.status:
            return "it needs too much memory or is damaged"
        return ""

    def _render_rows(self) -> tuple[list[str], int, list[str]]:
        """The rows, the last page shown, and what is missing."""
        rows: list[str] = []
        notes: list[str] = []
        remaining_chars, last = MAX_CHARS, 0
        for page in self._pages:
            text = "[this page is damaged]" if page.text is None else reveal_hidden(page.text.strip("\n"))
            page_mark = f"--- page {page.page} of {self._count} ---"
            if len(page_mark) + len(text) > remaining_chars and rows:
                break
            if len(text) > MAX_CHARS:
                text = text[:MAX_CHARS]
                notes.append(f"page {page.page} has more than {MAX_CHARS:,} characters and is truncated")
            rows += [page_mark, text or "[no text: blank page or image]"]
            remaining_chars -= len(page_mark) + len(text) + 2
            last = page.page
        return rows, last, notes

    def _remaining_ranges(self, last: int, *, requested: bool) -> PageRanges:
        """What remains to be read: of the requested pages, or of the document."""
        if not requested:
            return [(last + 1, min(last + MAX_PAGES, self._count))] if last < self._count else []
        remaining = [(max(first, last + 1), min(end or self._count, self._count)) for first, end in self._ranges]
        return [(first, end) for first, end in remaining if first <= end]


def _describe_pages(pages: list[_PdfRecord]) -> str:
    numbers = [page.page for page in pages]
    return (
        f"page {numbers[0]}"
        if len(numbers) == 1
        else f"pages {format_page_ranges(parse_page_ranges(_joined(numbers)))}"
    )


def _joined(numbers: list[int]) -> str:
    return ",".join(str(number) for number in numbers)
