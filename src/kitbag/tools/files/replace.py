"""Replaces a text in the content of a file, whatever its line ends are: a model sends `\\n` for both kinds.

Used by Edit.
"""

from bisect import bisect_left
from collections.abc import Iterator
from typing import Final, NamedTuple

from kitbag.tools.files.diff import common_prefix_length, common_suffix_length

MAX_POSITIONS: Final = 10


class Replacement(NamedTuple):
    text: str
    occurrences: int
    spans: tuple[tuple[int, int], ...]
    """Start and end of the first replacements, in the new text."""


class AmbiguousMatch(NamedTuple):
    """The text occurs more than once, and replace_all is not set."""

    occurrences: int
    lines: tuple[int, ...]
    """Of the first occurrences."""


class ReplacementTooLong(NamedTuple):
    """`length`: the characters of the result."""

    length: int


def replace_text(
    text: str, old: str, new: str, *, replace_all: bool, max_length: int
) -> Replacement | AmbiguousMatch | ReplacementTooLong | None:
    """None if `old`, which must not be empty, does not occur. Changes nothing else."""
    if "\r" in old:  # these line ends are meant if they occur
        found = _replace_exact(text, old, new, replace_all, max_length)
        if found is not None or "\r\n" not in old:
            return found
        old, new = old.replace("\r\n", "\n"), new.replace("\r\n", "\n")
    if "\r" not in old and ("\n" in old or "\n" in new) and "\r\n" in text:
        if text.count("\r\n") < text.count("\n"):
            return _replace_mixed_endings(text, old, new, replace_all, max_length)
        old, new = old.replace("\n", "\r\n"), new.replace("\r\n", "\n").replace("\n", "\r\n")
    return _replace_exact(text, old, new, replace_all, max_length)


def _replace_exact(
    text: str, old: str, new: str, replace_all: bool, max_length: int
) -> Replacement | AmbiguousMatch | ReplacementTooLong | None:
    at = text.find(old)
    if at < 0:
        return None
    if not replace_all and text.find(old, at + 1) >= 0:  # overlapping occurrences are ambiguous too
        return AmbiguousMatch(max(2, text.count(old)), _match_lines(text, old))
    if not replace_all:
        result = f"{text[:at]}{new}{text[at + len(old) :]}"
        return (
            Replacement(result, 1, ((at, at + len(new)),))
            if len(result) <= max_length
            else ReplacementTooLong(len(result))
        )
    count = text.count(old)
    length = len(text) + count * (len(new) - len(old))
    if length > max_length:
        return ReplacementTooLong(length)
    spans: list[tuple[int, int]] = []
    for index in range(min(count, MAX_POSITIONS)):
        start = at + index * (len(new) - len(old))
        spans.append((start, start + len(new)))
        at = text.find(old, at + len(old))
    return Replacement(text.replace(old, new), count, tuple(spans))


def _match_lines(text: str, old: str) -> tuple[int, ...]:
    found: list[int] = []
    at, line, counted = text.find(old), 1, 0
    while at >= 0 and len(found) < MAX_POSITIONS:
        line += text.count("\n", counted, at)
        counted = at
        found.append(line)
        at = text.find(old, at + 1)
    return tuple(dict.fromkeys(found))


def _replace_mixed_endings(
    text: str, old: str, new: str, replace_all: bool, max_length: int
) -> Replacement | AmbiguousMatch | ReplacementTooLong | None:
    """For a file with both kinds of line ends: ignores them when searching and uses the surrounding ones in
    replacements."""
    plain = text.replace("\r\n", "\n")
    found = _replace_exact(plain, old, new, replace_all, max_length)
    if not isinstance(found, Replacement):
        return found
    # The common start and end keep their line ends.
    head = common_prefix_length(old, new)
    tail = common_suffix_length(old, new, min(len(old), len(new)) - head)
    middle = new[head : len(new) - tail].replace("\r\n", "\n")
    returns = list(_carriage_returns(text))
    parts: list[str] = []
    spans: list[tuple[int, int]] = []
    done, length, at = 0, 0, plain.find(old)
    while at >= 0:
        # Add the number of carriage returns removed before each position.
        first, last = at + head, at + len(old) - tail
        start, end = first + bisect_left(returns, first), last + bisect_left(returns, last)
        part = middle.replace("\n", _line_ending_near(text, start, end))
        parts += (text[done:start], part)
        length += start - done + len(part)
        spans.append((length - len(part), length))
        done, at = end, plain.find(old, at + len(old))
    return Replacement("".join((*parts, text[done:])), found.occurrences, tuple(spans[:MAX_POSITIONS]))


def _carriage_returns(text: str) -> Iterator[int]:
    """Positions of the line ends that lose a carriage return, in the text without them."""
    at, count = text.find("\r\n"), 0
    while at >= 0:
        yield at - count
        at, count = text.find("\r\n", at + 2), count + 1


def _line_ending_near(text: str, start: int, end: int) -> str:
    """The line end of the last line that is replaced, else of the next line, else of the previous one."""
    at = text.rfind("\n", start, end)
    at = at if at >= 0 else text.find("\n", end)
    at = at if at >= 0 else text.rfind("\n", 0, start)
    return "\r\n" if at > 0 and text[at - 1] == "\r" else "\n"
