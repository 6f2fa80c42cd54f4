"""Splits a long Markdown text into parts of limited size whose concatenation is the text, byte for byte.

A part ends before a heading where possible, else after a blank line, else after a line; not inside a code fence unless
the fence itself is too long. Used by packing/skill_parts; uses sections.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from itertools import accumulate

from kitbag.text.sections import MarkdownSection, find_fences

_CHARS_PER_TOKEN = 16
"""A part is at most this many times its tokens long, so that blank space ends, too."""
_MIN_FILL = 4
"""A better place to split is used if the part is at least one fourth full there."""


def split_markdown(
    text: str, sections: list[MarkdownSection], max_tokens: int, count: Callable[[str], int]
) -> list[tuple[int, int]]:
    """(start, end) of each part. `sections`: of this text."""
    levels = _split_places(text, sections)
    parts: list[tuple[int, int]] = []
    start = 0
    while start < len(text):
        furthest = _furthest_end(text, start, max_tokens, count)
        end = furthest if furthest == len(text) else _best_place(levels, start, furthest)
        parts.append((start, end))
        start = end
    return parts or [(0, 0)]


def _split_places(text: str, sections: list[MarkdownSection]) -> list[list[int]]:
    """Offsets at which a part may end, the best kind first, each sorted."""
    lines = text.split("\n")
    starts = [0, *accumulate(len(line) + 1 for line in lines[:-1])]
    in_fence = {line for fence in find_fences(text) for line in range(fence.first + 1, fence.end)}
    after_blank = [
        starts[at]
        for at in range(1, len(lines))
        if at not in in_fence and not lines[at - 1].strip() and lines[at].strip()
    ]
    outside = [starts[at] for at in range(1, len(lines)) if at not in in_fence]
    return [[section.start for section in sections if section.start], after_blank, outside, starts[1:]]


def _furthest_end(text: str, start: int, max_tokens: int, count: Callable[[str], int]) -> int:
    """The end of the longest part that fits; at least one character."""
    low, high = start + 1, min(len(text), start + max(max_tokens, 1) * _CHARS_PER_TOKEN)
    if count(text[start:high]) <= max_tokens:
        return high
    while high - low > 1:
        middle = (low + high) // 2
        if count(text[start:middle]) <= max_tokens:
            low = middle
        else:
            high = middle
    return low


def _best_place(levels: list[list[int]], start: int, furthest: int) -> int:
    least = start + max((furthest - start) // _MIN_FILL, 1)
    for places in levels:
        at = bisect_right(places, furthest) - 1
        if at >= bisect_left(places, least):
            return places[at]
    return furthest
