"""Replaces one text by another in the text of a file, whatever its line ends are: a model sends `\\n` and means both.

Used by Edit.
"""

from bisect import bisect_left
from collections.abc import Iterator
from typing import Final, NamedTuple

from kitbag.tools.files.diff import same_end, same_start

MOST_PLACES: Final = 10


class Replaced(NamedTuple):
    text: str
    times: int
    places: tuple[tuple[int, int], ...]
    """Where the first of the new pieces begin and end, in the new text."""


class Several(NamedTuple):
    """It occurs more than once, and only one was meant."""

    times: int
    lines: tuple[int, ...]
    """Of the first ones."""


class TooLong(NamedTuple):
    """What it would become, in characters."""

    length: int


def replace(text: str, old: str, new: str, *, every: bool, longest: int) -> Replaced | Several | TooLong | None:
    """None when it does not occur. `old` is not empty. Elsewhere nothing is changed."""
    if "\r" in old:  # these very line ends are meant, if they are there
        found = _plainly(text, old, new, every, longest)
        if found is not None or "\r\n" not in old:
            return found
        old, new = old.replace("\r\n", "\n"), new.replace("\r\n", "\n")
    if "\r" not in old and ("\n" in old or "\n" in new) and "\r\n" in text:
        if text.count("\r\n") < text.count("\n"):
            return _in_mixed(text, old, new, every, longest)
        old, new = old.replace("\n", "\r\n"), new.replace("\r\n", "\n").replace("\n", "\r\n")
    return _plainly(text, old, new, every, longest)


def _plainly(text: str, old: str, new: str, every: bool, longest: int) -> Replaced | Several | TooLong | None:
    at = text.find(old)
    if at < 0:
        return None
    if not every and text.find(old, at + 1) >= 0:  # also where they overlap: either could be meant
        return Several(max(2, text.count(old)), _lines(text, old))
    if not every:
        made = f"{text[:at]}{new}{text[at + len(old) :]}"
        return Replaced(made, 1, ((at, at + len(new)),)) if len(made) <= longest else TooLong(len(made))
    count = text.count(old)
    length = len(text) + count * (len(new) - len(old))
    if length > longest:
        return TooLong(length)
    places: list[tuple[int, int]] = []
    for index in range(min(count, MOST_PLACES)):
        moved = at + index * (len(new) - len(old))
        places.append((moved, moved + len(new)))
        at = text.find(old, at + len(old))
    return Replaced(text.replace(old, new), count, tuple(places))


def _lines(text: str, old: str) -> tuple[int, ...]:
    found: list[int] = []
    at, line, counted = text.find(old), 1, 0
    while at >= 0 and len(found) < MOST_PLACES:
        line += text.count("\n", counted, at)
        counted = at
        found.append(line)
        at = text.find(old, at + 1)
    return tuple(dict.fromkeys(found))


def _in_mixed(text: str, old: str, new: str, every: bool, longest: int) -> Replaced | Several | TooLong | None:
    """For a file with both kinds of line ends: found without regard to them, and each new piece gets those around."""
    plain = text.replace("\r\n", "\n")
    found = _plainly(plain, old, new, every, longest)
    if not isinstance(found, Replaced):
        return found
    # What is the same in both keeps its own.
    head = same_start(old, new)
    tail = same_end(old, new, min(len(old), len(new)) - head)
    middle = new[head : len(new) - tail].replace("\r\n", "\n")
    returns = list(_returns(text))
    pieces: list[str] = []
    places: list[tuple[int, int]] = []
    done, length, at = 0, 0, plain.find(old)
    while at >= 0:
        # So many returns were left out before it.
        first, last = at + head, at + len(old) - tail
        start, end = first + bisect_left(returns, first), last + bisect_left(returns, last)
        piece = middle.replace("\n", _line_end(text, start, end))
        pieces += (text[done:start], piece)
        length += start - done + len(piece)
        places.append((length - len(piece), length))
        done, at = end, plain.find(old, at + len(old))
    return Replaced("".join((*pieces, text[done:])), found.times, tuple(places[:MOST_PLACES]))


def _returns(text: str) -> Iterator[int]:
    """Where the line ends are that lose their return, counted without the returns before."""
    at, count = text.find("\r\n"), 0
    while at >= 0:
        yield at - count
        at, count = text.find("\r\n", at + 2), count + 1


def _line_end(text: str, start: int, end: int) -> str:
    """Of the last line that is replaced; where it has none, of the one before."""
    at = text.rfind("\n", start, end)
    at = at if at >= 0 else text.find("\n", end)
    at = at if at >= 0 else text.rfind("\n", 0, start)
    return "\r\n" if at > 0 and text[at - 1] == "\r" else "\n"
