"""Triggers that are regular expressions. They come from untrusted files, so matching must be fast for any input.

Used by search_index and packing/skill_selection. Rejects a pattern by the number of ways it can match: each repeat
multiplies by 50, each `?` by 2, each group by its alternatives.
"""

import re
from typing import Final

MAX_TRIGGER_TEXT: Final = 400
"""Patterns are matched against this much of a message."""
_MAX_PATTERN = 200
_MAX_WAYS = 5_000
_REPEAT_WAYS = 50
# A trigger with one of these is a pattern; `C++`, `what?` and `node.js` are words.
_REGEX_CHARACTERS = frozenset("\\^$([|")
_REGEX_TOKEN = re.compile(
    r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|(?P<open>\((?:\?(?::|[=!]|<[=!]|P<\w+>))?)|(?P<close>\))|(?P<bar>\|)"
    r"|(?P<repeat>[*+]|\{\d*,?\d*\})[?+]?|(?P<maybe>\?)[?+]?|.",
    re.DOTALL,
)


def is_regex_trigger(trigger: str) -> bool:
    return not _REGEX_CHARACTERS.isdisjoint(trigger)


def compile_trigger(trigger: str) -> "tuple[re.Pattern[str] | None, str]":
    """The pattern, or the reason why it is rejected."""
    if len(trigger) > _MAX_PATTERN:
        return None, "too long"
    if not _is_bounded(trigger):
        return None, "it could take too long to match"
    try:
        pattern = re.compile(trigger, re.IGNORECASE)
    except (re.error, OverflowError, RecursionError) as error:
        return None, str(error)
    return (None, "it matches everything") if pattern.search("") else (pattern, "")


def _is_bounded(pattern: str) -> bool:
    ways, alternatives, after_group = 1, [1], False
    for token in _REGEX_TOKEN.finditer(pattern):
        if token["repeat"]:
            if after_group:
                return False
            ways *= _REPEAT_WAYS
        elif token["maybe"]:
            ways *= 2
        elif token["bar"]:
            alternatives[-1] += 1
        elif token["open"]:
            alternatives.append(1)
        elif token["close"] and len(alternatives) > 1:
            ways *= alternatives.pop()
        after_group = bool(token["close"])
    return ways <= _MAX_WAYS
