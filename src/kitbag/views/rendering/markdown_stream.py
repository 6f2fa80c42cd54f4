"""Splits a streaming reply into complete Markdown blocks: a complete block can be printed for good, the rest may
change.

Used by chat/event_blocks for streaming replies and by render for long ones. The pieces add up to the text; each line
is examined once. Knows only enough Markdown to see where a block ends.
"""

import re
from typing import Final

import msgspec

MAX_PIECE_CHARS: Final = 8_000
"""A longer block is emitted in parts."""
MAX_PIECE_LINES: Final = 60
_MAX_LIST_LINES: Final = 12
"""A longer list is emitted at its next item."""
_MAX_MARK_CHARS: Final = 200
"""A longer line can only start a paragraph."""

_FENCE = re.compile(r"( *)(`{3,}(?=[^`]*$)|~{3,})")
_ITEM = re.compile(r"( {0,3})([-*+]|\d{1,9}[.)])( +(?=\S)|$)")
_HEADING = re.compile(r" {0,3}#{1,6}(?:\s|$)")
_RULE = re.compile(r" {0,3}([-*_])[ \t]*(?:\1[ \t]*){2,}$")
_TABLE_RULE: Final = frozenset("|:- \t")


class MarkdownPiece(msgspec.Struct, frozen=True):
    text: str
    """As received."""
    head: str = ""
    """Lines of an earlier piece that this one needs: the opening of a code block or a table."""


class MarkdownStream:
    def __init__(self) -> None:
        self._lines: list[str] = []
        self._size = 0
        self._partial = ""
        self._kind = ""
        """Of the open block: paragraph, list, fence; empty: none."""
        self._head = ""
        self._fence = ""
        """The shortest marker that closes the open code block."""
        self._opening = ""
        self._inset = 0
        """A closing marker can't be indented further."""
        self._is_inside_line = False
        self._indent = 0
        """Where the text of the last list item starts."""
        self._number = ""
        self._after_blank = False
        self._made: list[MarkdownPiece] = []

    def add(self, delta: str) -> list[MarkdownPiece]:
        """Returns the blocks that are complete now."""
        first, *others = delta.split("\n")
        self._partial += first
        for line in others:
            self._take_line(self._partial, "\n")
            self._partial = line
        while len(self._partial) > MAX_PIECE_CHARS:
            self._chop()
        return self._take_pieces()

    def finish(self) -> list[MarkdownPiece]:
        """Returns everything that is left, complete or not."""
        if self._partial:
            self._take_line(self._partial, "")
            self._partial = ""
        self._release()
        pieces = self._take_pieces()
        self.__init__()
        return pieces

    @property
    def tail(self) -> str:
        """The incomplete rest."""
        return "".join((self._head, *self._lines, self._partial))

    def _take_pieces(self) -> list[MarkdownPiece]:
        pieces, self._made = self._made, []
        return pieces

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
        """Emits part of an overlong line."""
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
        """In a list item."""
        fence = _FENCE.match(line, start)
        if fence and len(line) <= _MAX_MARK_CHARS:
            self._open_fence(fence[2], line[start:].strip(), fence.start(2))

    def _interrupts(self, line: str) -> bool:
        """Whether the line ends a paragraph instead of continuing it."""
        mark = line[:_MAX_MARK_CHARS]
        fence, item = _FENCE.match(mark), _ITEM.match(mark)
        if (fence and len(fence[1]) < 4) or _HEADING.match(mark):
            return True
        return bool(item and item[3] and (item[2] in "-*+" or item[2][:-1] == "1"))

    def _continues_list(self, line: str) -> bool:
        """Emits what precedes an item if that is long enough; does not add the line."""
        item = _ITEM.match(line[:_MAX_MARK_CHARS])
        indent = len(line) - len(line.lstrip(" "))
        if item and indent < max(self._indent, 2) and not _RULE.match(line[:_MAX_MARK_CHARS]):
            # Items that all have the same number are numbered by the renderer and must stay together.
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
        """What the next piece of this block needs at its start."""
        if self._fence:
            return self._opening
        if self._kind != "paragraph":
            return ""
        if self._head:
            return self._head
        lines = self._lines
        for index in range(min(len(lines) - 1, 4)):
            head, rule = lines[index].rstrip(), lines[index + 1].rstrip()
            if "|" in head and "-" in rule and _TABLE_RULE.issuperset(rule):
                return f"{head}\n{rule}\n"
        return ""


def markdown_pieces(text: str, head: str = "") -> list[MarkdownPiece]:
    """A whole text in pieces small enough to parse quickly."""
    if len(text) <= MAX_PIECE_CHARS:
        return [MarkdownPiece(text, head)]
    stream = MarkdownStream()
    head_pieces = stream.add(head) if head else []
    pieces = [*head_pieces, *stream.add(text), *stream.finish()]
    return [piece for piece in pieces if piece.text.strip()]
