"""Finds imports (`@path` in prose) and block comments (`<!-- -->`) in memory files; code has neither.

All functions run in linear time. Used by memory_files; uses text.prose_blocks.
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
    """(start, end, unescaped path) of each `@` that may name a file."""
    found: list[tuple[int, int, str]] = []
    if "@" not in text:
        return found
    from kitbag.text.prose_blocks import scan_blocks

    for start, end in scan_blocks(text).prose:
        if text.find("@", start, end) >= 0:
            for item in _imports_in_paragraph(text, start, end):
                found.append(item)
                if len(found) == MAX_IMPORTS:
                    return found
    return found


def _imports_in_paragraph(text: str, start: int, end: int) -> Iterator[tuple[int, int, str]]:
    runs: dict[int, list[int]] | None = None
    last_closing = text.rfind("-->", start, end)
    at = start
    while (match := _INLINE.search(text, at, end)) is not None:
        at = match.end()
        if match["ticks"]:
            if runs is None:
                runs = {}
                for run in _TICKS.finditer(text, match.start(), end):
                    runs.setdefault(len(run[0]), []).append(run.start())
            size = len(match["ticks"])
            closing = bisect.bisect_left(runs[size], at)
            if closing < len(runs[size]):
                at = runs[size][closing] + size
        elif match["comment"]:
            if at <= last_closing:
                at = text.index("-->", at, end) + 3
        elif (path := match["quoted"] or match["path"]) and len(path) <= _MAX_PATH:
            yield match.start(), match.end(), path.replace("\\ ", " ")


def find_block_comments(text: str) -> list[tuple[int, int]]:
    """Start and end of each comment at the beginning of a line outside fences; an unclosed one is text."""
    comments: list[tuple[int, int]] = []
    at = 0
    while (match := _BLOCK.search(text, at)) is not None:
        fence = match["fence"] or match["tildes"]
        if fence:
            pattern = rf"^ {{0,3}}{fence[0]}{{{len(fence)},}}[ \t]*$"
            closing = re.compile(pattern, re.MULTILINE).search(text, match.end())
            if closing is None:
                break
            at = closing.end()
            continue
        end = text.find("-->", match.end() - 2)
        if end < 0:
            break
        at = end + 3
        if blank := _BLANK.match(text, at):
            at = blank.end()
        comments.append((match.start(), at))
    return comments
