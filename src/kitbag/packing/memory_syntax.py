"""What in a memory file is an import and what is a comment: `@path` in prose, `<!-- -->` as a block of its own.

Code (fenced, indented, in backticks) is neither. Used by memory; each function takes time that grows with the text.
"""

import bisect
import re
from collections.abc import Iterator
from typing import Final

MAX_IMPORTS: Final = 500
_MAX_PATH = 1_024
_INLINE = re.compile(
    r"\\[\\`@]|(?P<ticks>`+)|(?P<comment><!--)"
    r"|(?<![^\s(\[{*_\"'])@(?:\"(?P<quoted>[^\"\x00-\x1f]+)\"|(?P<path>(?:\\ |[^\s\\`\"<>|\x00-\x1f])+))"
)
_TICKS = re.compile("`+")
_BLOCK = re.compile(r"^ {0,3}(?:(?P<fence>`{3,})[^`\n]*$|(?P<tildes>~{3,})|<!--)", re.MULTILINE)
_BLANK = re.compile(r"[ \t]*(?:\n|\Z)")


def find_imports(text: str) -> list[tuple[int, int, str]]:
    """(start, end, the path as it is meant) of each `@` that may name a file."""
    found: list[tuple[int, int, str]] = []
    if "@" not in text:
        return found
    from kitbag.text.prose_blocks import scan_blocks

    for start, end in scan_blocks(text).prose:
        if text.find("@", start, end) >= 0:
            for one in _imports_in_paragraph(text, start, end):
                found.append(one)
                if len(found) == MAX_IMPORTS:
                    return found
    return found


def _imports_in_paragraph(text: str, start: int, end: int) -> Iterator[tuple[int, int, str]]:
    runs: dict[int, list[int]] | None = None
    last_closing = text.rfind("-->", start, end)
    at = start
    while (found := _INLINE.search(text, at, end)) is not None:
        at = found.end()
        if found["ticks"]:
            if runs is None:
                runs = {}
                for run in _TICKS.finditer(text, found.start(), end):
                    runs.setdefault(len(run[0]), []).append(run.start())
            size = len(found["ticks"])
            closing = bisect.bisect_left(runs[size], at)
            if closing < len(runs[size]):
                at = runs[size][closing] + size
        elif found["comment"]:
            if at <= last_closing:
                at = text.index("-->", at, end) + 3
        elif (path := found["quoted"] or found["path"]) and len(path) <= _MAX_PATH:
            yield found.start(), found.end(), path.replace("\\ ", " ")


def find_block_comments(text: str) -> list[tuple[int, int]]:
    """Start and end of each comment that begins a line outside of fences; one that never ends is text."""
    comments: list[tuple[int, int]] = []
    at = 0
    while (found := _BLOCK.search(text, at)) is not None:
        mark = found["fence"] or found["tildes"]
        if mark:
            pattern = rf"^ {{0,3}}{mark[0]}{{{len(mark)},}}[ \t]*$"
            closing = re.compile(pattern, re.MULTILINE).search(text, found.end())
            if closing is None:
                break
            at = closing.end()
            continue
        end = text.find("-->", found.end() - 2)
        if end < 0:
            break
        at = end + 3
        if blank := _BLANK.match(text, at):
            at = blank.end()
        comments.append((found.start(), at))
    return comments
