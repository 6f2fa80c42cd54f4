"""Triggers that are regular expressions: from files nobody vouches for, so each must be quick whatever it is given.

Used by the router and by dispatch. What Python's `re` could take long for is refused by a bound on the number of ways
in which a pattern can match: each repeat counts 50, each `?` 2, each group as many as it has alternatives.
"""

import re
from typing import Final

LONGEST_TEXT: Final = 400
"""What is searched of a request."""
_LONGEST_PATTERN = 200
_MOST_WAYS = 5_000
_REPEAT = 50
# What makes a trigger a pattern; `C++`, `what?` and `node.js` are words.
_MARKS = frozenset("\\^$([|")
_PIECE = re.compile(
    r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|(?P<open>\((?:\?(?::|[=!]|<[=!]|P<\w+>))?)|(?P<close>\))|(?P<bar>\|)"
    r"|(?P<repeat>[*+]|\{\d*,?\d*\})[?+]?|(?P<maybe>\?)[?+]?|.",
    re.DOTALL,
)


def is_pattern(written: str) -> bool:
    return not _MARKS.isdisjoint(written)


def read_pattern(written: str) -> "tuple[re.Pattern[str] | None, str]":
    """The pattern, or why it is not used as one."""
    if len(written) > _LONGEST_PATTERN:
        return None, "too long"
    if not _is_quick(written):
        return None, "it could take for ever"
    try:
        pattern = re.compile(written, re.IGNORECASE)
    except (re.error, OverflowError, RecursionError) as error:
        return None, str(error)
    return (None, "it matches everything") if pattern.search("") else (pattern, "")


def _is_quick(written: str) -> bool:
    ways, alternatives, after_group = 1, [1], False
    for piece in _PIECE.finditer(written):
        if piece["repeat"]:
            if after_group:
                return False
            ways *= _REPEAT
        elif piece["maybe"]:
            ways *= 2
        elif piece["bar"]:
            alternatives[-1] += 1
        elif piece["open"]:
            alternatives.append(1)
        elif piece["close"] and len(alternatives) > 1:
            ways *= alternatives.pop()
        after_group = bool(piece["close"])
    return ways <= _MOST_WAYS
