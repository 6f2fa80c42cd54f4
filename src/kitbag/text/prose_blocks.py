"""Finds the ranges of a Markdown text that are prose, and the fences that contain commands.

Implements the CommonMark block rules that matter for this: quotes, list items, fences, indented code, comments,
paragraphs with lazy continuation. HTML except comments counts as text, so a fence inside it is a fence.
Used by reference_syntax.
"""

import re
from typing import NamedTuple

_MARKER = re.compile(r"(?:[-+*]|(\d{1,9})[.)])(?=[ \t\r]|$)")
_FENCE = re.compile(r"(`{3,})([^`]*)$|(~{3,})(.*)$")
_BREAK = re.compile(r"(?:(?:-[ \t]*){3,}|(?:\*[ \t]*){3,}|(?:_[ \t]*){3,})\r?$")
_UNDERLINE = re.compile(r"(?:=+|-+)[ \t]*\r?$")
_HEADING = re.compile(r"#{1,6}(?=[ \t\r]|$)")
_HTML = re.compile(
    r"</?(?:address|article|aside|base|basefont|blockquote|body|caption|center|col|colgroup|dd|details|dialog|dir|div|dl"
    r"|dt|fieldset|figcaption|figure|footer|form|frame|frameset|h[1-6]|head|header|hr|html|iframe|legend|li|link|main"
    r"|menu|menuitem|nav|noframes|ol|optgroup|option|p|param|search|section|summary|table|tbody|td|tfoot|th|thead|title"
    r"|tr|track|ul|pre|script|style|textarea)(?=[\s/>]|$)|</?[A-Za-z][A-Za-z0-9-]*(?:\s[^<>]*)?/?>\s*$",
    re.IGNORECASE,
)
# Unindented text that starts with a letter can't start another block; nor can such text after a list marker.
_PLAIN_LINES = re.compile(r"[^\W\d_][^\n]*(?:\n[^\W\d_][^\n]*)*")
_PLAIN_ITEM = re.compile(r"((?:[-+*]|1[.)]) )(?:\*\*)?(?:[^\W\d_]|`(?!`))[^\n]*")
_QUOTE = -1
"""In `containers`: a block quote. Other numbers are the indentation of a list item."""
_CODE_INDENT = 4
_MAX_CONTAINERS = 100
"""Deeper nesting is text, which bounds the cost of a line."""


class CommandFence(NamedTuple):
    start: int
    end: int
    text: str


class MarkdownBlocks(NamedTuple):
    prose: list[tuple[int, int]]
    """Start and end of each paragraph, heading or table row; inline markup can't span two of them."""
    commands: list[CommandFence]
    unclosed: list[int]
    """Start offsets of command fences that are never closed."""


class _Fence(NamedTuple):
    marker: str
    indent: int
    start: int
    command: bool


def scan_blocks(text: str) -> MarkdownBlocks:
    scanner = _Scanner(text)
    start, size = 0, len(text)
    while start <= size:
        end = scanner.skip_plain(start)
        if end > start:
            start = end
            continue
        end = text.find("\n", start)
        if end < 0:
            end = size
        scanner.read_line(start, end)
        start = end + 1
    scanner.close_leaf()
    return MarkdownBlocks([(start, end) for start, end in scanner.prose], scanner.commands, scanner.unclosed)


class _Scanner:
    """Counts columns from the start of the line, with tab stops every four, so a container may end inside a tab."""

    __slots__ = (
        "base", "column", "commands", "containers", "content", "empty_lines", "fence", "in_comment", "in_html",
        "in_paragraph", "position", "prose", "row", "text", "unclosed",
    )  # fmt: skip

    def __init__(self, text: str) -> None:
        self.text = text
        self.prose: list[list[int]] = []
        self.commands: list[CommandFence] = []
        self.unclosed: list[int] = []
        self.containers: list[int] = []
        self.fence: _Fence | None = None
        self.content: list[str] = []
        self.in_comment = False
        self.in_paragraph = False
        self.in_html = False
        self.empty_lines = 0
        self.row = ""
        self.position = self.column = self.base = 0

    def skip_plain(self, start: int) -> int:
        """The offset after lines that need no parsing, which are most of a file; `start` if there are none."""
        if self.in_comment:
            return start
        if (fence := self.fence) is not None:
            if fence.command or self.containers:
                return start
            closing = re.compile(rf"^ {{0,3}}{fence.marker}", re.MULTILINE).search(self.text, start)
            return closing.start() if closing else len(self.text) + 1
        if self.text.startswith("\n", start) and not self.empty_lines and _QUOTE not in self.containers:
            self.in_paragraph = False
            return start + 1
        lines = _PLAIN_LINES.match(self.text, start)
        if lines is not None:
            self._leave_containers()
            self._extend_paragraph(start, lines.end())
            return lines.end() + 1
        item = _PLAIN_ITEM.match(self.text, start)
        if item is not None:
            self.containers = [item.end(1) - start]
            self.in_paragraph = False
            self.empty_lines = 0
            self._extend_paragraph(item.end(1), item.end())
            return item.end() + 1
        return start

    def _leave_containers(self) -> None:
        """An unindented line of plain text continues a paragraph in any container, or closes all containers."""
        if not self.in_paragraph or (self.in_html and self.containers):
            self.containers.clear()
            self.in_paragraph = False
            self.empty_lines = 0

    def read_line(self, start: int, end: int) -> None:
        self.row = self.text[start:end]
        self.position = self.column = self.base = 0
        self._skip_blanks()
        matched = self._match_containers()
        if self.fence is not None or self.in_comment:
            if matched == len(self.containers):
                self._continue_leaf(start, end)
                return
            self.close_leaf()
        self._open_blocks(start, end, matched)

    def _skip_blanks(self) -> None:
        row, position, column = self.row, self.position, self.column
        size = len(row)
        while position < size:
            char = row[position]
            if char == " ":
                column += 1
            elif char == "\t":
                column += 4 - column % 4
            else:
                break
            position += 1
        self.position, self.column = position, column

    def _is_blank(self) -> bool:
        return self.position >= len(self.row) or self.row[self.position :] == "\r"

    def _match_containers(self) -> int:
        """How many open containers this line continues; moves the cursor after their prefixes."""
        matched = 0
        for width in self.containers:
            if width == _QUOTE:
                if not self._enter_quote():
                    break
            elif not self._is_blank():
                if self.column - self.base < width:
                    break
                self.base += width
            matched += 1
        return matched

    def _enter_quote(self) -> bool:
        if self.row[self.position : self.position + 1] != ">" or self.column - self.base >= _CODE_INDENT:
            return False
        self.position += 1
        self.column += 1
        self.base = self.column
        self._skip_blanks()
        if self.column > self.base:
            self.base += 1
        return True

    def _continue_leaf(self, start: int, end: int) -> None:
        row, at = self.row, self.position
        if self.in_comment:
            closed = row.find("-->", at)
            if closed >= 0:
                self.in_comment = False
                self._add_prose(start + closed + 3, end)
            return
        fence = self.fence
        if fence is None:
            return
        rest = row[at:].rstrip(" \t\r")
        is_mark = len(rest) >= len(fence.marker) and not rest.strip(fence.marker[0])
        if is_mark and self.column - self.base < _CODE_INDENT:
            if fence.command:
                self.commands.append(CommandFence(fence.start, start + at + len(rest), "\n".join(self.content)))
            self.fence = None
        elif fence.command:
            self.content.append(" " * max(0, self.column - self.base - fence.indent) + row[at:].rstrip("\r"))

    def close_leaf(self) -> None:
        """Closes the open fence or comment at the end of the text or container."""
        if self.fence is not None and self.fence.command:
            self.unclosed.append(self.fence.start)
        self.fence = None
        self.in_comment = False

    def _open_blocks(self, start: int, end: int, matched: int) -> None:
        whole = matched == len(self.containers)
        if self.in_html and not whole:  # a paragraph continues without its `>` or indentation, an HTML block does not
            self.in_paragraph = False
        while not self._is_blank() and self.column - self.base < _CODE_INDENT and matched < _MAX_CONTAINERS:
            char = self.row[self.position]
            if char == ">":
                self._push(matched, _QUOTE)
                self._enter_quote()
            elif (char in "-+*" or char.isdigit()) and self._enter_item(matched, self.in_paragraph and whole):
                pass
            else:
                break
            matched = len(self.containers)
            whole = True
        self._read_leaf(start, end, matched)

    def _push(self, matched: int, container: int) -> None:
        del self.containers[matched:]
        self.containers.append(container)
        self.in_paragraph = False
        self.empty_lines = 0

    def _enter_item(self, matched: int, interrupts: bool) -> bool:
        marker = _MARKER.match(self.row, self.position)
        if marker is None or _BREAK.match(self.row, self.position):
            return False
        after = marker.end()
        is_empty = not self.row[after:].strip(" \t\r")
        if interrupts and (is_empty or marker[1] not in (None, "1")):
            return False
        begin = self.column + after - self.position
        self.position, self.column = after, begin
        self._skip_blanks()
        gap = self.column - begin
        if is_empty or gap > _CODE_INDENT:
            gap = 1
        width = begin - self.base + gap
        self._push(matched, width)
        self.base += width
        self.empty_lines = int(is_empty)
        return True

    def _read_leaf(self, start: int, end: int, matched: int) -> None:
        row, at = self.row, self.position
        if self._is_blank():
            del self.containers[matched:]
            if self.empty_lines == 2 and self.containers:
                self.containers.pop()  # a list item starts with at most one blank line
            self.empty_lines = 2 if self.empty_lines == 1 else 0
            self.in_paragraph = False
            return
        self.empty_lines = 0
        indented = self.column - self.base >= _CODE_INDENT
        if indented and not self.in_paragraph:
            del self.containers[matched:]
            return
        if not indented and self._read_special_leaf(start, end, matched):
            return
        if not self.in_paragraph:
            del self.containers[matched:]
        if row[at] == "|":
            self._add_prose(start + at, end)
            self.in_paragraph = True
        else:
            begins_html = row[at] == "<" and not self.in_paragraph and _HTML.match(row, at) is not None
            self._extend_paragraph(start + at, end)
            self.in_html = self.in_html or begins_html

    def _read_special_leaf(self, start: int, end: int, matched: int) -> bool:
        """Handles a fence, comment, heading or rule; each ends a paragraph."""
        row, at = self.row, self.position
        char = row[at]
        if char in "`~":
            fence = _FENCE.match(row.rstrip("\r"), at)
            if fence is None:
                return False
            command = fence[1] is not None and fence[2].strip() == "!"
            self.fence = _Fence(fence[1] or fence[3], self.column - self.base, start + at, command)
            self.content = []
        elif row.startswith("<!--", at):
            closed = row.find("-->", at + 2)
            self.in_comment = closed < 0
            if closed >= 0:
                self._add_prose(start + closed + 3, end)
        elif char == "#" and _HEADING.match(row, at):
            self._add_prose(start + at, end)
        elif not self._is_rule(char, matched):
            return False
        self.in_paragraph = False
        del self.containers[matched:]
        return True

    def _is_rule(self, char: str, matched: int) -> bool:
        if char in "=-" and self.in_paragraph and matched == len(self.containers):
            return _UNDERLINE.match(self.row, self.position) is not None or self._is_break(char)
        return self._is_break(char)

    def _is_break(self, char: str) -> bool:
        return char in "-*_" and _BREAK.match(self.row, self.position) is not None

    def _extend_paragraph(self, start: int, end: int) -> None:
        if self.in_paragraph and self.prose:
            self.prose[-1][1] = end
        else:
            self.prose.append([start, end])
            self.in_paragraph = True
            self.in_html = False

    def _add_prose(self, start: int, end: int) -> None:
        self.prose.append([start, end])
