"""Finds which of many fixed values occur in a text, in one pass over the text however many values there are.

Used by redaction and streaming_redaction. Reads the text as 8-byte (or 4-byte) integers at fixed steps: wherever a
value starts, one of the first few integers of its bytes is among them. Only values with a match are searched for.
"""

import sys
from collections.abc import Iterable, Iterator
from typing import Literal

_PLAIN_SEARCH_LIMIT = 20_000
"""Up to this product of text length and number of values, searching for each value is faster."""
_MIN_START = 4
# Bytes of an integer, its format, and the step between integers: of a value at least as long as both, less one,
# an occurrence contains a whole integer.
_WORD_CLASSES: tuple[tuple[int, Literal["Q", "I"], int], ...] = ((8, "Q", 8), (4, "I", 4), (4, "I", 2))


class KnownValues:
    """Safe to share between threads: what it builds on first use is always the same."""

    __slots__ = ("_classes", "_longest", "_starts", "values")

    def __init__(self, values: Iterable[str]) -> None:
        self.values = tuple(sorted({value for value in values if value}, key=lambda value: (-len(value), value)))
        self._longest = len(self.values[0]) if self.values else 0
        self._classes: tuple[list[_WordClass], list[str]] | None = None
        self._starts: tuple[dict[str, list[str]], frozenset[str], frozenset[str]] | None = None

    def find_in(self, text: str) -> list[str]:
        """The values that occur in the text."""
        if len(text) * len(self.values) <= _PLAIN_SEARCH_LIMIT:
            return [value for value in self.values if value in text]
        if self._classes is None:
            self._classes = _group_by_length(self.values)
        classes, short = self._classes
        data = text.encode("utf-8", "surrogatepass")
        candidates = [*short, *(value for group in classes for value in group.candidates(data))]
        return [value for value in candidates if value in text]

    def find_partial(self, text: str) -> int:
        """The offset where the text ends with the incomplete start of a value; the text's length if it does not."""
        if self._starts is None:
            self._starts = _index_starts(self.values)
        starts, short_starts, inner = self._starts
        size = len(text)
        if text[-_MIN_START:] in inner:  # otherwise it ends with no start of this length or more
            for at in range(max(0, size - self._longest + 1), size - _MIN_START + 1):
                for value in starts.get(text[at : at + _MIN_START], ()):
                    if len(value) > size - at and value.startswith(text[at:]):
                        return at
        return next((at for at in range(max(0, size - _MIN_START + 1), size) if text[at:] in short_starts), size)

    def extend_left(self, text: str, start: int) -> int:
        """The offset, or the start of a value that extends beyond it: split there, it would not be found."""
        while True:
            around = text[max(0, start - self._longest + 1) : start + self._longest]
            first = start
            for value in self.find_in(around):
                at = text.find(value, max(0, start - len(value) + 1), start + len(value) - 1)
                first = at if 0 <= at < first else first
            if first == start:
                return start
            start = first


class _WordClass:
    """Values of similar length, by their integers."""

    __slots__ = ("_format", "_owners", "_size", "_step", "_words")

    def __init__(self, size: int, letter: Literal["Q", "I"], step: int, values: list[str]) -> None:
        self._size, self._step = size, step
        self._format: Literal["Q", "I"] = letter
        self._owners: dict[int, list[tuple[str, int]]] = {}
        """For the first integer: the values, and their last integer at the same step."""
        for value in values:
            for first, last in self._ends(value.encode("utf-8", "surrogatepass")):
                self._owners.setdefault(first, []).append((value, last))
        self._words = frozenset((*self._owners, *(last for found in self._owners.values() for _, last in found)))

    def _ends(self, data: bytes) -> Iterator[tuple[int, int]]:
        for shift in range(self._step):
            last = shift + (len(data) - shift - self._size) // self._step * self._step
            yield self._word(data, shift), self._word(data, last)

    def _word(self, data: bytes, at: int) -> int:
        return int.from_bytes(data[at : at + self._size], sys.byteorder)

    def candidates(self, data: bytes) -> set[str]:
        found: set[int] = set()
        for offset in range(0, self._size, self._step):
            end = offset + max(0, len(data) - offset) // self._size * self._size
            found |= self._words.intersection(memoryview(data)[offset:end].cast(self._format))
        return {value for word in found for value, last in self._owners.get(word, ()) if last in found}


def _group_by_length(values: Iterable[str]) -> tuple[list[_WordClass], list[str]]:
    """The values by class, and those that are too short for any."""
    groups: list[list[str]] = [[] for _ in range(len(_WORD_CLASSES) + 1)]
    for value in values:
        size = len(value.encode("utf-8", "surrogatepass"))
        fitting = (at for at, (word, _, step) in enumerate(_WORD_CLASSES) if size >= word + step - 1)
        groups[next(fitting, -1)].append(value)
    classes = [_WordClass(*shape, group) for shape, group in zip(_WORD_CLASSES, groups, strict=False) if group]
    return classes, groups[-1]


def _index_starts(values: Iterable[str]) -> tuple[dict[str, list[str]], frozenset[str], frozenset[str]]:
    """The values by their first characters, all shorter starts, and all sequences as long inside of values."""
    starts: dict[str, list[str]] = {}
    for value in values:
        starts.setdefault(value[:_MIN_START], []).append(value)
    short_starts = frozenset(value[:end] for value in values for end in range(1, min(_MIN_START, len(value))))
    return (
        starts,
        short_starts,
        frozenset(value[at : at + _MIN_START] for value in values for at in range(len(value) - _MIN_START)),
    )
