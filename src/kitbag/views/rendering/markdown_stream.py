"""A reply cut into whole blocks of Markdown while it comes: what is whole can be shown for good, the rest may change.

Used by event_view for replies as they stream, and by rendering for long ones. All pieces together are the text; each
line is looked at once. Knows as much of Markdown as it takes to see where a block ends.
"""

import re
from typing import Final, NamedTuple

MAX_PIECE_CHARS: Final = 8_000
"""Characters of a block after which a part of it is given."""
MAX_PIECE_LINES: Final = 60
_MAX_LIST_LINES: Final = 12
"""After as many, a list is given at its next item."""
_MAX_MARK_CHARS: Final = 200
"""A line that is longer opens nothing but a paragraph."""

_FENCE = re.compile(r"( *)(`{3,}(?=[^`]*$)|~{3,})")
_ITEM = re.compile(r"( {0,3})([-*+]|\d{1,9}[.)])( +(?=\S)|$)")
_HEADING = re.compile(r" {0,3}#{1,6}(?:\s|$)")
_RULE = re.compile(r" {0,3}([-*_])[ \t]*(?:\1[ \t]*){2,}$")
_TABLE_RULE: Final = frozenset("|:- \t")


class MarkdownPiece(NamedTuple):
    text: str
    """As it came."""
    head: str = ""
    """Lines of an earlier piece that it can't be read without: what opens a code block, or a table."""


class MarkdownStream:
    def __init__(self) -> None:
        self._lines: list[str] = []
        self._size = 0
        self._partial = ""
        self._kind = ""
        """Of the open block: paragraph, list, fence; empty: none is open."""
        self._head = ""
        self._fence = ""
        """What closes the code block that is open, at least."""
        self._opening = ""
        self._inset = 0
        """Further in than this, nothing closes it."""
        self._is_inside_line = False
        self._indent = 0
        """Where the text of the last item of a list begins."""
        self._number = ""
        self._after_blank = False
        self._made: list[MarkdownPiece] = []

    def add(self, delta: str) -> list[MarkdownPiece]:
        """What is whole now."""
        first, *others = delta.split("\n")
        self._partial += first
        for line in others:
            self._take_line(self._partial, "\n")
            self._partial = line
        while len(self._partial) > MAX_PIECE_CHARS:
            self._chop()
        return self._take_pieces()

    def finish(self) -> list[MarkdownPiece]:
        """The end: all that is left, whole or not."""
        if self._partial:
            self._take_line(self._partial, "")
            self._partial = ""
        self._release()
        made = self._take_pieces()
        self.__init__()
        return made

    @property
    def tail(self) -> str:
        """Markdown that is not whole yet."""
        return "".join((self._head, *self._lines, self._partial))

    def _take_pieces(self) -> list[MarkdownPiece]:
        made, self._made = self._made, []
        return made

    def _release(self, head: str = "") -> None:
        if self._lines:
            self._made.append(MarkdownPiece("".join(self._lines), self._head))
        self._lines, self._size, self._head = [], 0, head

    def _close(self) -> None:
        self._release()
        self._kind = self._fence = self._opening = ""

    def _append(self, line: str) -> None:
        self._lines.append(line)
        self._size += len(line)

    # Lines

    def _chop(self) -> None:
        """Of a line without end."""
        chunk, self._partial = self._partial[:MAX_PIECE_CHARS], self._partial[MAX_PIECE_CHARS:]
        if not self._kind:
            self._open(chunk)
        self._append(chunk)
        self._release(self._repeated_head())
        self._is_inside_line = True

    def _take_line(self, line: str, end: str) -> None:
        while len(line) > MAX_PIECE_CHARS:
            self._partial = line
            self._chop()
            line = self._partial
        if self._is_inside_line:
            self._is_inside_line = False
            self._append(line + end)
        else:
            self._classify_line(line.rstrip("\r"), line + end)
        if self._size > MAX_PIECE_CHARS or len(self._lines) > MAX_PIECE_LINES:
            self._release(self._repeated_head())

    def _classify_line(self, line: str, whole: str) -> None:
        if self._fence:
            self._append(whole)
            self._in_fence(line)
        elif not line.strip():
            self._append(whole)
            self._after_blank = True
            if self._kind == "paragraph":
                self._close()
        elif self._kind == "list" and self._continues_list(line):
            self._append(whole)
            self._after_blank = False
        elif self._kind == "paragraph" and not self._interrupts(line):
            self._append(whole)
        else:
            if self._kind:
                self._close()
            self._open(line)
            self._append(whole)
            self._after_blank = False
            if self._kind == "line":
                self._close()

    def _in_fence(self, line: str) -> None:
        stripped = line.strip()
        inset = len(line) - len(line.lstrip())
        if inset <= self._inset and stripped.startswith(self._fence) and not stripped.strip(self._fence[0]):
            self._fence = ""
            if self._kind == "fence":
                self._close()

    def _open(self, line: str) -> None:
        mark = line[:_MAX_MARK_CHARS]
        fence, item = _FENCE.match(mark), _ITEM.match(mark)
        if fence and len(fence[1]) < 4 and len(line) <= _MAX_MARK_CHARS:
            self._kind = "fence"
            self._open_fence(fence[2], line, 0)
        elif _HEADING.match(mark) or (len(line) <= _MAX_MARK_CHARS and _RULE.match(line)):
            self._kind = "line"
        elif item:
            self._kind = "list"
            self._start_item(item)
            self._open_inner_fence(line, item.end())
        else:
            self._kind = "paragraph"

    def _open_fence(self, marks: str, line: str, inset: int) -> None:
        self._fence, self._opening, self._inset = marks, f"{line.rstrip()}\n", inset + 3

    def _open_inner_fence(self, line: str, start: int) -> None:
        """In an item of a list."""
        fence = _FENCE.match(line, start)
        if fence and len(line) <= _MAX_MARK_CHARS:
            self._open_fence(fence[2], line[start:].strip(), fence.start(2))

    def _interrupts(self, line: str) -> bool:
        """Whether it ends a paragraph, and is no part of it."""
        mark = line[:_MAX_MARK_CHARS]
        fence, item = _FENCE.match(mark), _ITEM.match(mark)
        if (fence and len(fence[1]) < 4) or _HEADING.match(mark):
            return True
        return bool(item and item[3] and (item[2] in "-*+" or item[2][:-1] == "1"))

    def _continues_list(self, line: str) -> bool:
        """Adds nothing; gives what is before an item where that is long enough."""
        item = _ITEM.match(line[:_MAX_MARK_CHARS])
        indent = len(line) - len(line.lstrip(" "))
        if item and indent < max(self._indent, 2) and not _RULE.match(line[:_MAX_MARK_CHARS]):
            # Where all have the same number they are counted by the one who reads, and must stay together.
            if len(self._lines) >= _MAX_LIST_LINES and (item[2] in "-*+" or item[2] != self._number):
                self._release()
            self._start_item(item)
            self._open_inner_fence(line, item.end())
            return True
        if indent >= self._indent:
            self._open_inner_fence(line, 0)
            return True
        return not self._after_blank and not self._interrupts(line) and not line.startswith(">")

    def _start_item(self, item: "re.Match[str]") -> None:
        self._indent = len(item[1]) + len(item[2]) + 1
        self._number = item[2]

    def _repeated_head(self) -> str:
        """What the next piece of this block can't be read without."""
        if self._fence:
            return self._opening
        if self._kind != "paragraph":
            return ""
        if self._head:
            return self._head
        lines = self._lines
        for at in range(min(len(lines) - 1, 4)):
            head, rule = lines[at].rstrip(), lines[at + 1].rstrip()
            if "|" in head and "-" in rule and _TABLE_RULE.issuperset(rule):
                return f"{head}\n{rule}\n"
        return ""
