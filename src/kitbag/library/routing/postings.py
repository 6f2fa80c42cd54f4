"""The postings of a term: which rows of a text store contain it, and how much it counts there.

Used by text_store and retrieval. A posting is a row and a level, its part of BM25 in hundredths. Levels depend on the
text alone, so that adding a skill changes no other posting.
"""

import array
import sys
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from kitbag.library.routing.terms import BodyTermCounter, count_terms

MAX_ROW: Final = (1 << 24) - 1
_MAX_LEVEL: Final = 255
_SUMMARY_SATURATION, _SUMMARY_LENGTH_SHARE, _USUAL_SUMMARY = 1.2, 0.5, 30
_BODY_SATURATION, _BODY_LENGTH_SHARE, _USUAL_BODY = 1.6, 0.6, 800
"""The usual parameters of BM25, fitted on tasks; the usual number of terms in what is indexed of a text."""
_NAME_LEVEL: Final = 140
_HEADING_COUNT: Final = 2
"""A word in a heading counts as so many more."""


class CountedText(NamedTuple):
    counts: Mapping[str, int]
    """How often each term occurs, by key or `terms.join_form`."""
    levels: Mapping[int, int]
    """The level of each count."""


def count_fields(names: str, summary: str) -> CountedText:
    """A term of the name counts as an impossible number of others."""
    counts = count_terms(summary)
    levels = _levels(counts, _SUMMARY_SATURATION, _SUMMARY_LENGTH_SHARE, _USUAL_SUMMARY)
    for key in count_terms(names):
        level = min(levels.get(counts.get(key, 0), 0) + _NAME_LEVEL, _MAX_LEVEL)
        counts[key] = -level
        levels[-level] = level
    return CountedText(counts, levels)


def count_body(counter: BodyTermCounter, body: str, headings: str) -> CountedText:
    counts = counter.count(body)
    for key, count in counter.count(headings).items() if headings else ():
        counts[key] = counts.get(key, 0) + count * _HEADING_COUNT
    return CountedText(counts, _levels(counts, _BODY_SATURATION, _BODY_LENGTH_SHARE, _USUAL_BODY))


def _levels(counts: Mapping[str, int], saturation: float, length_share: float, usual: int) -> dict[int, int]:
    """The level of each count."""
    norm = saturation * (1.0 - length_share + length_share * sum(counts.values()) / usual)
    most = 100.0 * (saturation + 1.0)
    return {count: min(int(most * count / (count + norm)) or 1, _MAX_LEVEL) for count in set(counts.values())}


class PostingsBuilder:
    """Collects the postings of many rows."""

    def __init__(self) -> None:
        self._postings: defaultdict[str, list[int]] = defaultdict(list)

    def add(self, row: int, text: CountedText) -> None:
        postings = self._postings
        packed = {count: row << 8 | level for count, level in text.levels.items()}  # one object for all their terms
        for key, count in text.counts.items():
            postings[key].append(packed[count])

    def packed(self) -> Iterable[tuple[str, str, bytes, bytes]]:
        """Terms, forms ("" if it is the term), rows and levels, in the order in which they are stored fastest."""
        for name in sorted(self._postings):
            key, _, form = name.partition("\t")
            yield key, form, *_pack(self._postings[name])


def _pack(postings: list[int]) -> tuple[bytes, bytes]:
    """Rows as four bytes each, the lowest first, and levels as one."""
    if len(postings) == 1:  # most terms occur in one text
        return (postings[0] >> 8).to_bytes(4, "little"), bytes((postings[0] & _MAX_LEVEL,))
    packed = array.array("I", postings)
    if sys.byteorder == "big":
        packed.byteswap()
    data = packed.tobytes()
    rows = bytearray(len(data))
    rows[0::4], rows[1::4], rows[2::4] = data[1::4], data[2::4], data[3::4]
    return bytes(rows), data[0::4]


class Postings(NamedTuple):
    rows: "array.array[int]"
    """Ascending."""
    levels: bytes


NO_POSTINGS: Final = Postings(array.array("I"), b"")


def unpack_postings(data: bytes, levels: bytes, limit: int, *, is_ordered: bool) -> Postings:
    """The postings of the first `limit` rows. Other processes may have added more."""
    rows = array.array("I")
    rows.frombytes(data)
    if sys.byteorder == "big":
        rows.byteswap()
    if not is_ordered:
        pairs = sorted(zip(rows, levels, strict=False))
        rows, levels = array.array("I", [row for row, _ in pairs]), bytes(level for _, level in pairs)
    if rows and rows[-1] >= limit:
        rows = rows[: bisect_left(rows, limit)]
    return Postings(rows, levels)


def find_level(postings: Postings, row: int) -> int:
    """0 if the row does not contain the term."""
    rows, levels = postings
    at = bisect_left(rows, row)
    return levels[at] if at < len(rows) and rows[at] == row and at < len(levels) else 0
