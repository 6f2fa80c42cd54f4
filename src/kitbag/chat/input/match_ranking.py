"""Ranks names by how well they match typed text: prefix, prefix of a word, substring, or letters in order.

Used by completion for commands, skills and the like; workspace_files ranks its many paths on its own.
"""

import re
from collections.abc import Callable, Iterable
from typing import TypeVar

from kitbag.text.unicode_forms import fold

T = TypeVar("T")
_WORD_ENDS = "-_/:. "
_LETTERS_IN_ORDER = 4


def rank(typed: str, name: str) -> int | None:
    """Smaller is better; None: no match."""
    typed, name = fold(typed), fold(name)
    if name.startswith(typed):
        return int(name != typed)
    index = name.find(typed)
    while index > 0:
        if name[index - 1] in _WORD_ENDS:
            return 2
        index = name.find(typed, index + 1)
    if typed in name:
        return 3
    rest = iter(name)
    return _LETTERS_IN_ORDER if all(char in rest for char in typed) else None


def rank_items(typed: str, items: Iterable[T], name_of: Callable[[T], str]) -> list[T]:
    """Matching items, best first, otherwise in their original order. Matches of letters in order count only if there
    are no others."""
    matches = [
        (quality, index, item)
        for index, item in enumerate(items)
        if (quality := rank(typed, name_of(item))) is not None
    ]
    if any(quality < _LETTERS_IN_ORDER for quality, _, _ in matches):
        matches = [match for match in matches if match[0] < _LETTERS_IN_ORDER]
    matches.sort(key=lambda match: match[:2])
    return [item for _, _, item in matches]


def letters_in_order_pattern(typed: str) -> "re.Pattern[str]":
    """Matches each line, with the line break before it, that contains these letters in order. Never backtracks, so
    letters that occur nowhere take no longer."""
    return re.compile("\n" + "".join(f"[^\n{re.escape(char)}]*{re.escape(char)}" for char in typed))
