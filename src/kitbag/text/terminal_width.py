"""How many terminal columns a text takes, and how to wrap or truncate it to fit.

Used by everything that draws in a terminal. Measures each character with the tables that prompt_toolkit uses; where
terminals disagree, it overestimates: joined emoji count as their parts.
"""

import re
from functools import cache, lru_cache

_EMOJI_SELECTOR = "\ufe0f"
"""Turns a character of one column into an emoji of two."""
_JOINER = "\u200d"
_UNSPACED = "\u1100-\u115f\u2e80-\u303e\u3041-\ua4cf\uac00-\ud7a3\uf900-\ufaff\uff00-\uff60\U00020000-\U0003ffff"
"""Letters of scripts in which a line may break between any two characters."""


@cache
def _token_pattern() -> "re.Pattern[str]":
    """Compiled on first use: that takes 3 ms, and a listing in a pipe needs none."""
    return re.compile(f"\n| +|[{_UNSPACED}]|[^\n {_UNSPACED}]+")


@lru_cache(8192)
def _char_width(char: str) -> int:
    from wcwidth import wcwidth

    return 1 if char == _EMOJI_SELECTOR else max(wcwidth(char), 0)


def text_width(text: str) -> int:
    return len(text) if text.isascii() else sum(map(_char_width, text))


def wrap_tokens(text: str) -> list[str]:
    """Words, spaces, newlines, and single characters that a line may break after."""
    return _token_pattern().findall(text)


def split_at_width(text: str, width: int) -> tuple[str, str]:
    """The prefix that fits, at least one character, and the rest. Splits a joined sequence only if it is too wide."""
    if text.isascii():
        at = max(width, 1)
        return text[:at], text[at:]
    used, boundary = 0, 0
    for at, char in enumerate(text):
        size = _char_width(char)
        if size and char != _EMOJI_SELECTOR and text[at - 1 : at] != _JOINER:
            boundary = at
        used += size
        if used > width and at:
            end = boundary or at
            return text[:end], text[end:]
    return text, ""


def chunk_to_width(text: str, first_width: int, width: int) -> list[str]:
    """Splits into chunks: the first fits into `first_width` columns and may be empty, the others into `width`."""
    first_width, width = max(first_width, 0), max(width, 1)
    if text.isascii():
        return [text[:first_width], *(text[at : at + width] for at in range(first_width, len(text), width))]
    chunks: list[str] = []
    start = boundary = used = used_before = 0
    limit = first_width
    for at, char in enumerate(text):
        size = _char_width(char)
        if size and char != _EMOJI_SELECTOR and text[at - 1 : at] != _JOINER:
            boundary, used_before = at, used
        if used + size > limit and (at > start or not chunks):
            end, removed = (boundary, used_before) if boundary > start else (at, used)
            chunks.append(text[start:end])
            start, used, used_before, limit = end, used - removed, used_before - removed, width
        used += size
    return [*chunks, text[start:]]


def truncate_to_width(text: str, width: int) -> str:
    """Truncates to one line; a path is truncated at its start."""
    if text_width(text) <= width:
        return text
    if width <= 1:
        return "…"[:width]
    if "/" in text and " " not in text and text.isascii():
        return "…" + text[len(text) - width + 1 :]
    fitting = split_at_width(text, width - 1)[0]
    return f"{fitting.rstrip()}…" if text_width(fitting) < width else "…"


def pad_to_width(text: str, width: int, *, right: bool = False) -> str:
    blanks = " " * (width - text_width(text))
    return blanks + text if right else text + blanks
