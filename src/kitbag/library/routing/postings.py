"""The postings of a term: which rows of a text store contain it, and how much it counts there.

Used by text_store and retrieval. A posting is a 32-bit integer: the row, then the level, its part of BM25 in
hundredths. Levels depend on the text alone, so that adding a skill changes no other posting.
"""

import array
import sys
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final

from kitbag.library.routing.terms import BodyTermCounter, count_terms

MAX_ROW: Final = (1 << 24) - 1
_MAX_LEVEL: Final = 255
_SUMMARY_SATURATION, _SUMMARY_LENGTH_SHARE, _USUAL_SUMMARY = 1.2, 0.5, 30
_BODY_SATURATION, _BODY_LENGTH_SHARE, _USUAL_BODY = 1.6, 0.6, 330
"""The usual parameters of BM25, fitted on tasks; the usual number of terms in what is indexed of a text."""
_NAME_LEVEL: Final = 140
_HEADING_COUNT: Final = 2
"""A word in a heading counts as so many more."""


def field_levels(names: str, summary: str) -> dict[str, int]:
    counts = count_terms(summary)
    by_count = _levels(counts, _SUMMARY_SATURATION, _SUMMARY_LENGTH_SHARE, _USUAL_SUMMARY)
    levels = {key: by_count[count] for key, count in counts.items()}
    for key in count_terms(names):
        levels[key] = min(levels.get(key, 0) + _NAME_LEVEL, _MAX_LEVEL)
    return levels


def body_levels(counter: BodyTermCounter, body: str, headings: str) -> dict[str, int]:
    counts = counter.count(body)
    for key, count in counter.count(headings).items():
        counts[key] = counts.get(key, 0) + count * _HEADING_COUNT
    by_count = _levels(counts, _BODY_SATURATION, _BODY_LENGTH_SHARE, _USUAL_BODY)
    return {key: by_count[count] for key, count in counts.items()}


def _levels(counts: Mapping[str, int], saturation: float, length_share: float, usual: int) -> dict[int, int]:
    """The level of each count."""
    norm = saturation * (1.0 - length_share + length_share * sum(counts.values()) / usual)
    most = 100.0 * (saturation + 1.0)
    return {count: min(int(most * count / (count + norm)) or 1, _MAX_LEVEL) for count in set(counts.values())}


class PostingsBuilder:
    """Collects the postings of many rows."""

    def __init__(self) -> None:
        self._postings: defaultdict[str, list[int]] = defaultdict(list)

    def add(self, row: int, levels: Mapping[str, int]) -> None:
        start, postings = row << 8, self._postings
        for key, level in levels.items():
            postings[key].append(start | level)

    def packed(self) -> Iterable[tuple[str, bytes]]:
        """Ordered by term, as it is stored fastest."""
        return ((key, _pack(self._postings[key])) for key in sorted(self._postings))


def _pack(postings: list[int]) -> bytes:
    packed = array.array("I", postings)
    if sys.byteorder == "big":
        packed.byteswap()
    return packed.tobytes()


def unpack_postings(data: bytes, rows: int) -> list[int]:
    """The postings of the first `rows` rows, by row. Other processes may have added more, in any order."""
    packed = array.array("I")
    packed.frombytes(data[: len(data) // packed.itemsize * packed.itemsize])
    if sys.byteorder == "big":
        packed.byteswap()
    postings = sorted(packed)
    return postings if not postings or postings[-1] >> 8 < rows else postings[: bisect_left(postings, rows << 8)]


def find_level(postings: list[int], row: int) -> int:
    """0 if the row does not contain the term."""
    at = bisect_left(postings, row << 8)
    return postings[at] & _MAX_LEVEL if at < len(postings) and postings[at] >> 8 == row else 0
