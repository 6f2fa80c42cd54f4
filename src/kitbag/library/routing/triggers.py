"""Triggers that are regular expressions: from files nobody vouches for, so each must be quick whatever it is given.

Used by the router and by dispatch. What Python's `re` could take long for is refused by a bound on the number of ways
in which a pattern can match: each repeat counts 50, each `?` 2, each group as many as it has alternatives.
"""

import re
from typing import Final

MAX_TRIGGER_TEXT: Final = 400
"""What is searched of a request."""
_MAX_PATTERN = 200
_MAX_WAYS = 5_000
_REPEAT_WAYS = 50
# What makes a trigger a pattern; `C++`, `what?` and `node.js` are words.
_REGEX_CHARACTERS = frozenset("\\^$([|")
_REGEX_TOKEN = re.compile(
    r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|(?P<open>\((?:\?(?::|[=!]|<[=!]|P<\w+>))?)|(?P<close>\))|(?P<bar>\|)"
    r"|(?P<repeat>[*+]|\{\d*,?\d*\})[?+]?|(?P<maybe>\?)[?+]?|.",
    re.DOTALL,
)


def is_regex_trigger(written: str) -> bool:
    return not _REGEX_CHARACTERS.isdisjoint(written)


def compile_trigger(written: str) -> "tuple[re.Pattern[str] | None, str]":
    """The pattern, or why it is not used as one."""
    if len(written) > _MAX_PATTERN:
        return None, "too long"
    if not _is_bounded(written):
        return None, "it could take for ever"
    try:
        pattern = re.compile(written, re.IGNORECASE)
    except (re.error, OverflowError, RecursionError) as error:
        return None, str(error)
    return (None, "it matches everything") if pattern.search("") else (pattern, "")


def _is_bounded(written: str) -> bool:
    ways, alternatives, after_group = 1, [1], False
    for piece in _REGEX_TOKEN.finditer(written):
        if piece["repeat"]:
            if after_group:
                return False
            ways *= _REPEAT_WAYS
        elif piece["maybe"]:
            ways *= 2
        elif piece["bar"]:
            alternatives[-1] += 1
        elif piece["open"]:
            alternatives.append(1)
        elif piece["close"] and len(alternatives) > 1:
            ways *= alternatives.pop()
        after_group = bool(piece["close"])
    return ways <= _MAX_WAYS
