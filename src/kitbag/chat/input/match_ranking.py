"""How well a name fits what was typed: its beginning, the beginning of one of its words, a part of it, or its letters
in this order.

Used by completion for commands, skills and the like. Files have their own way (workspace_files), since there are many.
"""

import re
from collections.abc import Callable, Iterable
from typing import TypeVar

T = TypeVar("T")
_WORD_ENDS = "-_/:. "
_LETTERS = 4


def rank(typed: str, name: str) -> int | None:
    """The smaller the better; None: it does not fit."""
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
    """Those that fit, the best first; of equally good ones the order in which they came. Those that have no more than
    the letters are a guess, for where nothing else fits."""
    found = [(fit, at, item) for at, item in enumerate(items) if (fit := rank(typed, name_of(item))) is not None]
    if any(fit < _LETTERS for fit, _, _ in found):
        found = [one for one in found if one[0] < _LETTERS]
    found.sort(key=lambda one: one[:2])
    return [item for _, _, item in found]


def letters_in_order_pattern(typed: str) -> "re.Pattern[str]":
    """Finds each line, with the line break before it, that has these letters in this order. No letter is looked at
    twice, so that it takes no longer for letters that are nowhere."""
    return re.compile("\n" + "".join(f"[^\n{re.escape(char)}]*{re.escape(char)}" for char in typed))
