"""The text of a PDF, page by page, as Read shows it. The document itself is read by pdf_process, never by us.

Used by Read. pypdfium2 comes with the extra `documents`; without it the model is told how a person gets it.
"""

import os
import re
import threading
from importlib.util import find_spec
from typing import Final

import msgspec

from kitbag.processes.run_process import Ended, Folder, run_process
from kitbag.text.hidden_characters import reveal_hidden
from kitbag.text.no_follow import open_directory
from kitbag.tools.base import Outcome, answer, failure
from kitbag.tools.files.paths import number_of
from kitbag.tools.files.pdf_process import words_for

MOST_PAGES: Final = 20
"""Shown when no pages are asked for."""
MOST_CHARACTERS: Final = 50_000
MOST_BYTES: Final = 500 << 20
SECONDS: Final = 6.0
_MOST_SAID = 4 << 20
_RANGE = re.compile(r"(\d{1,6})(?:\s*-\s*(\d{0,6}))?")

Ranges = list[tuple[int, int]]
"""First and last page; 0 is the last one of the document."""


class PagesError(ValueError):
    """`pages` can't be read; says why."""


class _Said(msgspec.Struct):
    count: int = -1
    problem: str = ""
    page: int = 0
    text: str | None = None


def page_ranges(text: str) -> Ranges:
    """`1-5`, `3`, `2,7`, `10-`: in order, and no page twice. Raises PagesError."""
    found: Ranges = []
    for part in text.replace(";", ",").split(","):
        one = _RANGE.fullmatch(part.strip())
        if one is None:
            raise PagesError(f"`{part.strip()}` is no page and no range of pages")
        first = int(one[1])
        last = first if one[2] is None else int(one[2] or 0)
        if not first or (one[2] and not last):
            raise PagesError("pages are counted from 1")
        if last and last < first:
            raise PagesError(f"`{part.strip()}` runs backwards")
        found.append((first, last))
    merged: Ranges = []
    for first, last in sorted(found):
        before = merged[-1] if merged else (0, -1)
        if before[1] == 0 or first <= before[1] + 1:
            merged[-1] = before[0], 0 if 0 in (before[1], last) else max(before[1], last)
        else:
            merged.append((first, last))
    return merged


def shown_ranges(ranges: Ranges) -> str:
    """As `page_ranges` reads it."""
    return ",".join(str(first) if first == last else f"{first}-{last or ''}" for first, last in ranges)


def read_pdf(descriptor: int, path: str, pages: str, stop: threading.Event) -> Outcome:
    """`path` as it is shown. The descriptor is read from its beginning by another process."""
    packages = _packages()
    if not packages:
        fix = "Ask the user to run `pip install 'kitbag[documents]'`, or use a program that turns it into text."
        return failure(f"{path} is a PDF document, and what reads them is not installed", fix)
    if os.fstat(descriptor).st_size > MOST_BYTES:
        return failure(f"{path} is a PDF document of more than {MOST_BYTES >> 20} MB", "Split it into smaller ones.")
    try:
        ranges = page_ranges(pages) if pages.strip() else [(1, MOST_PAGES)]
    except PagesError as error:
        return failure(f"pages can't be read: {error}", 'Write them as "3", "1-5", "2,7" or "10-".')
    said, ended = _read(descriptor, packages, ranges, stop)
    return _Pages(path, ranges, said, ended).outcome(asked=bool(pages.strip()))


def _packages() -> str:
    """The folder that pypdfium2 is installed in; empty when it is not. It is not loaded here."""
    spec = find_spec("pypdfium2")
    return os.path.dirname(os.path.dirname(spec.origin)) if spec is not None and spec.origin else ""


def _read(descriptor: int, packages: str, ranges: Ranges, stop: threading.Event) -> tuple[list[_Said], Ended]:
    printed = bytearray()

    def take(chunk: bytes) -> bool:
        printed.extend(chunk)
        return len(printed) < _MOST_SAID

    nowhere = Folder(open_directory("/"), "/")
    try:
        ended = run_process(words_for(packages, ranges, MOST_CHARACTERS), nowhere, take, stop, SECONDS, descriptor)
    finally:
        os.close(nowhere.descriptor)
    said: list[_Said] = []
    for line in bytes(printed).split(b"\n")[:-1]:
        try:
            said.append(msgspec.json.decode(line, type=_Said))
        except (msgspec.DecodeError, UnicodeDecodeError):
            return [_Said(problem="damaged")], ended  # it was made to say something else
    return said, ended


class _Pages:
    def __init__(self, path: str, ranges: Ranges, said: list[_Said], ended: Ended) -> None:
        self._path = path
        self._ranges = ranges
        self._pages = [one for one in said if one.page > 0]
        self._problem = next((one.problem for one in said if one.problem), "")
        self._count = next((one.count for one in said if one.count >= 0), -1)
        self._ended = ended

    def outcome(self, *, asked: bool) -> Outcome:
        path = self._path
        if self._problem == "password":
            return failure(f"{path} is encrypted and needs a password", "Ask the user for a copy without one.")
        if self._problem or self._count == 0:
            return failure(f"{path} is damaged: it can't be read as a PDF document")
        if self._count < 0:
            return failure(f"{path} can't be read: {self._broke_off or 'it broke what reads it'}")
        count = number_of(self._count, "page")
        if not self._pages and self._broke_off:
            others = shown_ranges(self._after(self._ranges[0][0], asked=asked))
            problem = f"page {self._ranges[0][0]} of {path} can't be read: {self._broke_off}"
            return failure(problem, f'Try the others: pages="{others}".' if others else "")
        if not self._pages:
            first = self._ranges[0][0]
            return failure(f"{path} has {count}, so there is no page {first}", f"Use pages up to {self._count}.")
        rows, last, remarks = self._rows()
        rest = self._after(last, asked=asked)
        if rest and last == self._pages[-1].page and self._broke_off:
            remarks.append(f"page {rest[0][0]} can't be read: {self._broke_off}")
            rest = self._after(rest[0][0], asked=asked)
        shown = [page for page in self._pages if page.page <= last]
        if rest:
            remarks.append(f'this is {_named(shown)} of {self._count:,}; go on with pages="{shown_ranges(rest)}"')
        cut = "; ".join(remarks)
        if not any((page.text or "").strip() for page in shown) and None not in [page.text for page in shown]:
            note = f" ({cut})" if cut else ""
            what = f"{path} has {count}; there is no text on {_named(shown)}{note}"
            return answer(f"{what}. It may be scanned: Read shows the text of a PDF, not its pictures.", what, cut)
        text = "\n".join([*rows, f"[{cut[0].upper()}{cut[1:]}.]"] if cut else rows)
        return answer(text, f"{number_of(len(shown), 'page')} of {path}", cut)

    @property
    def _broke_off(self) -> str:
        """Why the process did not come to its end; empty when it did."""
        if self._ended.stopped == "time":
            return f"it takes more than {SECONDS:g} s"
        if self._ended.stopped or self._ended.status:
            return "it needs too much memory, or is damaged"
        return ""

    def _rows(self) -> tuple[list[str], int, list[str]]:
        """What is shown, the last page of it, and what is missing from that."""
        rows: list[str] = []
        remarks: list[str] = []
        room, last = MOST_CHARACTERS, 0
        for page in self._pages:
            text = "[this page is damaged]" if page.text is None else reveal_hidden(page.text.strip("\n"))
            mark = f"--- page {page.page} of {self._count} ---"
            if len(mark) + len(text) > room and rows:
                break
            if len(text) > MOST_CHARACTERS:
                text = text[:MOST_CHARACTERS]
                remarks.append(f"page {page.page} has more than {MOST_CHARACTERS:,} characters and is cut")
            rows += [mark, text or "[no text: blank, or a picture]"]
            room -= len(mark) + len(text) + 2
            last = page.page
        return rows, last, remarks

    def _after(self, last: int, *, asked: bool) -> Ranges:
        """What is left to be read: of what was asked for, or of the document."""
        if not asked:
            return [(last + 1, min(last + MOST_PAGES, self._count))] if last < self._count else []
        left = [(max(first, last + 1), min(end or self._count, self._count)) for first, end in self._ranges]
        return [(first, end) for first, end in left if first <= end]


def _named(pages: list[_Said]) -> str:
    numbers = [page.page for page in pages]
    return f"page {numbers[0]}" if len(numbers) == 1 else f"pages {shown_ranges(page_ranges(_joined(numbers)))}"


def _joined(numbers: list[int]) -> str:
    return ",".join(str(number) for number in numbers)
