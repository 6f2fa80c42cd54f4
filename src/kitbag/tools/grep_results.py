"""What a search prints, taken in while it runs, and the answer that is made of it.

Used by grep. A file is held against the filter and the Read rules when it first comes up, and only then is anything of
it kept; when there is enough, the search is told to end.
"""

import os
import re
import threading
from typing import Final, Literal, NamedTuple

from kitbag.text.hidden import reveal_hidden
from kitbag.tools.base import Context, Outcome, answer, failure
from kitbag.tools.file_filter import FileFilter
from kitbag.tools.glob import MOST_CHARACTERS, MOST_JUDGED, choose, newest_first, remarks
from kitbag.tools.lines import decoded
from kitbag.tools.listing import Listed, count_unreadable
from kitbag.tools.places import Place, may_read, number_of, shown, visible
from kitbag.tools.running import Ended, Folder

Mode = Literal["files_with_matches", "content", "count"]
LONGEST_SHOWN: Final = 500
MOST_FILES: Final = 50_000
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
    def __init__(self, search: Search) -> None:
        self.some = False
        """Whether anything at all was found."""
        self._search = search
        self._rest = b""
        self._names: dict[str, str] = {}
        """Paths as they are shown; empty for those that are not."""
        self._withheld = 0
        self._found: list[tuple[str, int]] = []
        """(path, count)"""
        self._rows: list[str] = []
        self._lines = 0
        """Rows without those that set groups apart."""
        self._last: tuple[str, int] = ("", 0)
        self._characters = 0
        self._full = False

    def take(self, chunk: bytes) -> bool:
        """Whether more is wanted."""
        end = b"\0" if self._search.mode == "files_with_matches" else b"\n"
        *records, self._rest = (self._rest + chunk).split(end)
        self._rest = self._rest[:_LONGEST_RECORD]  # of a line that goes on and on the beginning is enough
        take_one = self._take_row if self._search.mode == "content" else self._take_file
        return all(take_one(record) for record in records)

    def _take_file(self, record: bytes) -> bool:
        written, _, count = record.partition(b"\0")
        path = os.fsdecode(written.removeprefix(b"./"))
        if self._search.folder is None or self._search.wanted.wants(path):
            self.some = True
            self._found.append((path, int(count) if count.strip().isdigit() else 0))
        return len(self._found) < MOST_FILES

    def _take_row(self, record: bytes) -> bool:
        written, is_row, rest = record.partition(b"\0")
        row = _ROW.fullmatch(rest)
        if not is_row or row is None:
            return True  # a remark about a binary file
        path = os.fsdecode(written.removeprefix(b"./"))
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
        search = self._search
        requested = search.place.facts.requested
        if search.folder is None:
            self.some = True
            return shown(requested, search.context)
        if not search.wanted.wants(path):
            return ""
        self.some = True
        whole = os.path.join(requested, path)
        if may_read(search.context, whole, search.place):
            return shown(whole, search.context)
        self._withheld += 1
        return ""

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
            rows, limit, summary = self._counts(stop)
        else:
            rows, limit, summary = self._files(stop)
        every = [limit] if limit else []
        every += remarks(self._withheld, Listed(ended.stopped, count_unreadable(ended.errors)))
        every += [*notes, f"the search broke off: {visible(broken)}"] if broken else notes
        cut = "; ".join(every)
        if not rows:
            return answer(f"No matches{f' ({cut})' if cut else ''}.", "no matches", cut)
        return answer("\n".join([*rows, f"[{cut}]"] if cut else rows), summary, cut)

    def _files(self, stop: threading.Event) -> tuple[list[str], str, str]:
        search = self._search
        if search.folder is None:
            rows = [shown(search.place.facts.requested, search.context)] if self._found else []
            return rows, "", "1 file"
        paths = newest_first((path for path, _ in self._found), search.folder)
        chosen = choose(paths, search.place, search.context, search.most, stop)
        self._withheld += chosen.withheld
        limit = f"{chosen.more:,} more files match: narrow the search or raise head_limit" if chosen.more else ""
        return chosen.paths, limit, number_of(len(chosen.paths), "file")

    def _counts(self, stop: threading.Event) -> tuple[list[str], str, str]:
        rows: list[str] = []
        ordered = sorted(self._found, key=lambda one: [os.fsencode(part) for part in one[0].split("/")])
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
