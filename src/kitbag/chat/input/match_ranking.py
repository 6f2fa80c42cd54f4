"""Ranks names by how well they match typed text: prefix, prefix of a word, substring, or letters in order.

Used by completion for commands, skills and the like; workspace_files ranks its many paths on its own.
"""

import re
from collections.abc import Callable, Iterable
from typing import TypeVar

T = TypeVar("T")
_WORD_ENDS = "-_/:. "
_LETTERS = 4


def rank(typed: str, name: str) -> int | None:
    """Smaller is better; None: no match."""
    typed, name = typed.casefold(), name.casefold()
    if name.startswith(typed):
        return int(name != typed)
    at = name.find(typed)
    while at > 0:
        if name[at - 1] in _WORD_ENDS:
            return 2
        at = name.find(typed, at + 1)
    if typed in name:
        return 3
    rest = iter(name)
    return _LETTERS if all(char in rest for char in typed) else None


def rank_items(typed: str, items: Iterable[T], name_of: Callable[[T], str]) -> list[T]:
    """Matching items, best first, otherwise in their original order. Matches of letters in order count only if there
    are no others."""
    found = [(fit, at, item) for at, item in enumerate(items) if (fit := rank(typed, name_of(item))) is not None]
    if any(fit < _LETTERS for fit, _, _ in found):
        found = [one for one in found if one[0] < _LETTERS]
    found.sort(key=lambda one: one[:2])
    return [item for _, _, item in found]


def letters_in_order_pattern(typed: str) -> "re.Pattern[str]":
    """Matches each line, with the line break before it, that contains these letters in order. Never backtracks, so
    letters that occur nowhere take no longer."""
    return re.compile("\n" + "".join(f"[^\n{re.escape(char)}]*{re.escape(char)}" for char in typed))
