"""What a search prints, taken in while it runs, and the answer that is made of it.

Used by grep. Nothing of a file is shown that was not held against the filter and the Read rules after it was read; when
there is enough, the search is told to end.
"""

import os
import re
import threading
from typing import Final, Literal, NamedTuple

from kitbag.processes.run_process import Ended, Folder
from kitbag.text.hidden_characters import reveal_hidden
from kitbag.tools.base import Context, Outcome, answer, failure
from kitbag.tools.files.lines import decoded
from kitbag.tools.files.paths import Place, number_of, shown, visible
from kitbag.tools.search.file_filter import FileFilter
from kitbag.tools.search.glob import MOST_CHARACTERS, MOST_JUDGED, Dated, choose, remarks
from kitbag.tools.search.list_files import MOST_UNOPENED, Listed, unopened_in
from kitbag.tools.search.readable import Readable

Mode = Literal["files_with_matches", "content", "count"]
LONGEST_SHOWN: Final = 500
MOST_FILES: Final = 50_000
MOST_UNSORTED: Final = 1 << 18
"""Bytes of matching lines that are put in order here: many times of what is shown."""
_LONGEST_RECORD = 1 << 16
_ROW = re.compile(rb"(\d+)([:-])(.*)", re.DOTALL)


class Search(NamedTuple):
    mode: Mode
    most: int
    """Lines or files."""
    numbers: bool
    around: bool
    """Whether lines around a match are shown: then groups are set apart."""
    place: Place
    context: Context
    wanted: FileFilter
    folder: Folder | None = None
    """None when a single file is searched."""


class Results:
    def __init__(self, search: Search, *, in_order: bool = True) -> None:
        """`in_order`: whether the search gives files in the order of their paths. Where it does not, lines are kept
        until it has ended, and `too_many` says that they became too many for that.
        """
        self.some = False
        """Whether anything at all was found."""
        self.too_many = False
        self._search = search
        self._in_order = in_order or search.mode != "content"
        self._rest = b""
        self._readable = Readable(search.place, search.context, at_once=search.mode != "content" or not in_order)
        self._names: dict[str, str] = {}
        """Paths as they are shown; empty for those that are not."""
        self._withheld = 0
        self._dated = Dated(search.folder) if search.folder is not None else None
        self._counts: list[tuple[str, int]] = []
        self._unsorted: list[bytes] = []
        self._unsorted_size = 0
        self._rows: list[str] = []
        self._lines = 0
        """Rows without those that set groups apart."""
        self._last: tuple[str, int] = ("", 0)
        self._characters = 0
        self._full = False

    def take(self, chunk: bytes) -> bool:
        """Whether more is wanted."""
        mode = self._search.mode
        end = b"\0" if mode == "files_with_matches" else b"\n"
        *records, self._rest = (self._rest + chunk).split(end)
        self._rest = self._rest[:_LONGEST_RECORD]  # of a line that goes on and on the beginning is enough
        if mode == "files_with_matches":
            return self._take_files(records)
        if mode == "count":
            return all(self._take_count(record) for record in records)
        if self._in_order:
            return all(self._take_row(record) for record in records)
        self._unsorted += records
        self._unsorted_size += len(chunk)
        self.too_many = self._unsorted_size > MOST_UNSORTED
        return not self.too_many

    def _take_files(self, records: list[bytes]) -> bool:
        paths = [path for record in records if b"\n" not in record and self._wants(path := _path(record))]
        self.some = self.some or bool(paths)
        if self._dated is None:
            return True
        self._dated.add(paths)
        return len(self._dated) < MOST_FILES

    def _take_count(self, record: bytes) -> bool:
        written, _, count = record.partition(b"\0")
        path = _path(written)
        if self._wants(path):
            self.some = True
            self._counts.append((path, int(count) if count.strip().isdigit() else 0))
        return len(self._counts) < MOST_FILES

    def _wants(self, path: str) -> bool:
        return self._search.folder is None or self._search.wanted.wants(path)

    def _take_row(self, record: bytes) -> bool:
        written, is_row, rest = record.partition(b"\0")
        row = _ROW.fullmatch(rest)
        if not is_row or row is None:
            return True  # a remark about a binary file
        path = _path(written)
        name = self._names.get(path)
        if name is None:
            name = self._names[path] = self._judged(path)
        if not name:
            return True
        if self._lines >= self._search.most or self._characters > MOST_CHARACTERS:
            self._full = True
            return False
        self._add(name, int(row[1]), row[2].decode(), _shown_line(row[3]))
        return True

    def arrange(self) -> None:
        """When the search has ended. The lines of one file came together, only files came in any order."""
        ordered = sorted(enumerate(self._unsorted), key=lambda one: (_order(_path(one[1].partition(b"\0")[0])), one[0]))
        for _, record in ordered:
            if not self._take_row(record):
                return

    def _add(self, name: str, number: int, mark: str, text: str) -> None:
        if self._search.around and self._rows and self._last != (name, number - 1):
            self._rows.append("--")
        self._last = (name, number)
        self._lines += 1
        row = f"{name}{mark}{number}{mark}{text}" if self._search.numbers else f"{name}{mark}{text}"
        self._rows.append(row)
        self._characters += len(row) + 1

    def _judged(self, path: str) -> str:
        """The name to show a file by; empty when nothing of it is shown."""
        if self._search.folder is None:
            self.some = True
            return shown(self._search.place.facts.requested, self._search.context)
        if not self._search.wanted.wants(path):
            return ""
        self.some = True
        name = self._readable.name(path)
        self._withheld += not name
        return name

    def outcome(self, ended: Ended, notes: list[str], stop: threading.Event) -> Outcome:
        """`notes`: what the caller knows to be missing."""
        broken = _complaint(ended)
        if broken and not self.some:
            return failure(f"the search failed: {visible(broken)}", "Correct the pattern.")
        mode = self._search.mode
        if mode == "content":
            rows, summary = self._rows, number_of(self._lines, "line")
            limit = "more match: narrow the search or raise head_limit" if self._full else ""
        elif mode == "count":
            rows, limit, summary = self._counted(stop)
        else:
            rows, limit, summary = self._files(stop)
        every = [limit] if limit else []
        unopened = unopened_in(ended.errors)
        listed = Listed(ended.stopped, unopened[:MOST_UNOPENED], len(unopened))
        every += remarks(self._withheld, listed, self._readable)
        every += [*notes, f"the search broke off: {visible(broken)}"] if broken else notes
        cut = "; ".join(every)
        if not rows:
            return answer(f"No matches{f' ({cut})' if cut else ''}.", "no matches", cut)
        return answer("\n".join([*rows, f"[{cut}]"] if cut else rows), summary, cut)

    def _files(self, stop: threading.Event) -> tuple[list[str], str, str]:
        search = self._search
        if self._dated is None:
            return [shown(search.place.facts.requested, search.context)] if self.some else [], "", "1 file"
        chosen = choose(self._dated.newest_first(), self._readable, search.most, stop)
        self._withheld += chosen.withheld
        limit = f"{chosen.more:,} more files match: narrow the search or raise head_limit" if chosen.more else ""
        return chosen.paths, limit, number_of(len(chosen.paths), "file")

    def _counted(self, stop: threading.Event) -> tuple[list[str], str, str]:
        rows: list[str] = []
        ordered = sorted(self._counts, key=lambda one: _order(one[0]))
        total = left = characters = 0
        for at, (path, count) in enumerate(ordered):
            full = len(rows) == self._search.most or characters > MOST_CHARACTERS
            if full or at == MOST_JUDGED or stop.is_set():
                left = len(ordered) - at
                break
            if name := self._judged(path):
                rows.append(f"{name}:{count}")
                total += count
                characters += len(rows[-1]) + 1
        limit = f"{left:,} more files match: narrow the search or raise head_limit" if left else ""
        return rows, limit, f"{total:,} in {number_of(len(rows), 'file')}"


def _path(written: bytes) -> str:
    return os.fsdecode(written.removeprefix(b"./"))


def _order(path: str) -> list[bytes]:
    """Files in the order in which a walk by name comes to them."""
    return os.fsencode(path).split(b"/")


def _shown_line(data: bytes) -> str:
    data = data.removesuffix(b"\r")
    try:
        text = decoded(data)
    except UnicodeDecodeError:
        text = data.decode("cp1252", "replace")
    cut = " [line cut]" if len(text) > LONGEST_SHOWN else ""
    return reveal_hidden(text[:LONGEST_SHOWN]) + cut


def _complaint(ended: Ended) -> str:
    """What went wrong, other than that something could not be opened; its last line says it best."""
    told = [line.strip() for line in ended.errors.splitlines() if line.strip() and "(os error " not in line]
    if told:
        return told[-1][:500]
    return f"signal {-ended.status}" if ended.status < 0 and not ended.stopped else ""
