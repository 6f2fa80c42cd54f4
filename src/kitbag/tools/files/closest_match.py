"""Finds the lines of a text that are most similar to a text it does not contain, for a model that misquoted.

Used by Edit. Rare fragments of the wanted text vote for the line where it could start; the best few candidates are then
compared. Takes about a second at most, whatever the size of both.
"""

import re
import time
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator
from difflib import SequenceMatcher, get_close_matches
from itertools import accumulate
from typing import Final, NamedTuple

from kitbag.text.hidden_characters import find_hidden, reveal_hidden
from kitbag.tools.files.diff import common_prefix_length

TIMEOUT_SECONDS: Final = 0.5
"""For the search for candidates, and again for comparing them."""
_MAX_CHARS = 20_000
"""Of the wanted text; the start of a long one is enough."""
_MAX_FRAGMENTS = 30
"""Lines, and as many words."""
_MAX_OCCURRENCES = 200
"""A fragment that occurs more often is not distinctive."""
_MAX_CANDIDATES = 12
_MAX_TOKENS = 400
_MAX_LINES = 200
_MAX_WORDS = 5_000
_MAX_WORD_SCAN_CHARS = 2_000_000
_LONG_LINE_CHARS = 1_000
_SHORT_TEXT_CHARS = 20
_MIN_SIMILARITY = 0.6
_MAX_SIMILARITY = 0.99
"""For a difference in more than whitespace."""
MAX_ROWS: Final = 24
MAX_ROW_CHARS: Final = 160
_CONTEXT_ROWS = 2
_QUOTES: Final = str.maketrans("‘’‚‛“”„‟′″`´‐‑‒–—−\u00a0", "''''\"\"\"\"'\"''------ ")


class ClosestMatch(NamedTuple):
    first: int
    """Line numbers, from 1."""
    last: int
    difference: str
    """A short description; empty if more than one kind of character differs."""
    whitespace_only: bool
    """Only whitespace differs; the rows mark it."""
    rows: tuple[str, ...]
    """Wanted lines that are missing after `-`, lines of the text after `+`, with line numbers."""


def find_closest_match(text: str, wanted: str) -> ClosestMatch | None:
    """None if nothing is similar."""
    text, wanted = text.replace("\r\n", "\n"), wanted.replace("\r\n", "\n")
    # Line breaks around the wanted text are not distinctive, and would shift the lines against each other.
    wanted_lines = _differing_part(text, wanted).strip("\n").split("\n")[:_MAX_LINES]
    lines = text.split("\n")
    found = _best_range(text, lines, wanted_lines)
    if found is None:
        return None
    start, end = found
    there = [_relevant_part(line, wanted_lines) for line in lines[start:end]]
    remark = _describe_difference("\n".join(wanted_lines), "\n".join(there))
    marked = _collapse_whitespace("\n".join(wanted_lines)) in _collapse_whitespace("\n".join(there))
    return ClosestMatch(start + 1, end, remark, marked, tuple(_diff_rows(wanted_lines, there, start + 1, marked)))


def _differing_part(text: str, wanted: str) -> str:
    """The part of a long text where it starts to differ, with some context before it."""
    if len(wanted) <= _MAX_CHARS and wanted.count("\n") < _MAX_LINES:
        return wanted
    there, beyond = 0, len(wanted)
    while there + 1 < beyond:  # binary search for the longest prefix that occurs
        middle = (there + beyond) // 2
        there, beyond = (middle, beyond) if wanted[:middle] in text else (there, middle)
    start = wanted.rfind("\n", 0, max(0, wanted.rfind("\n", 0, there))) + 1
    start = max(start, there - MAX_ROW_CHARS // 2)
    return wanted[start : start + _MAX_CHARS]


def _best_range(text: str, lines: list[str], wanted: list[str]) -> tuple[int, int] | None:
    """The start and end index of the most similar lines."""
    best, score = (0, 0), 0.0
    deadline = time.monotonic() + TIMEOUT_SECONDS
    for start in _candidate_starts(text, lines, wanted):
        for more in (0, 1, 2):  # lines that the wanted text omits
            end = min(len(lines), start + len(wanted) + more)
            there = "\n".join(_relevant_part(line, wanted) for line in lines[start:end])
            found = _similarity("\n".join(wanted), there) - more / 1_000
            if found > score:
                best, score = (start, end), found
        if score > _MAX_SIMILARITY or time.monotonic() > deadline:
            break
    return best if score >= _MIN_SIMILARITY else None


def _relevant_part(line: str, wanted: list[str]) -> str:
    """Of a very long line, the part around the longest fragment that both contain."""
    if len(line) <= max(_LONG_LINE_CHARS, 2 * len(max(wanted, key=len))):
        return line
    for piece, index in _fragments(wanted):
        at = line.find(piece)
        if at >= 0:
            start = max(0, at - wanted[index].find(piece))
            return line[start : start + max(MAX_ROW_CHARS, len(wanted[index]))]
    return line[:_LONG_LINE_CHARS]


def _candidate_starts(text: str, lines: list[str], wanted: list[str]) -> list[int]:
    """Line indexes where the wanted text could start, most likely first."""
    starts = list(accumulate((len(line) + 1 for line in lines), initial=0))
    votes: dict[int, float] = defaultdict(float)
    deadline = time.monotonic() + TIMEOUT_SECONDS
    pieces = _fragments(wanted)
    for piece, index in pieces:
        _vote(text, starts, piece, index, votes)
        if time.monotonic() > deadline:
            break
    if not votes:
        for piece, index in _similar_words(text, pieces):
            _vote(text, starts, piece, index, votes)
    return sorted(votes, key=lambda start: -votes[start])[:_MAX_CANDIDATES]


def _fragments(wanted: list[str]) -> list[tuple[str, int]]:
    """Lines and words of the wanted text, longest first, each with its line index."""
    lines: dict[str, int] = {}
    words: dict[str, int] = {}
    for index, line in enumerate(wanted):
        if line.strip():
            lines.setdefault(line.strip(), index)
        for word in re.findall(r"\w{2,}", line):
            words.setdefault(word, index)
    longest = [sorted(pieces.items(), key=lambda item: -len(item[0]))[:_MAX_FRAGMENTS] for pieces in (lines, words)]
    return [*longest[0], *longest[1]]


def _vote(text: str, starts: list[int], piece: str, index: int, votes: dict[int, float]) -> None:
    places: list[int] = []
    at = text.find(piece)
    while at >= 0:
        places.append(at)
        if len(places) > _MAX_OCCURRENCES:
            return
        at = text.find(piece, at + 1)
    for place in places:
        votes[max(0, bisect_right(starts, place) - 1 - index)] += len(piece) / len(places)


def _similar_words(text: str, pieces: Iterable[tuple[str, int]]) -> Iterator[tuple[str, int]]:
    """Words of the text that resemble wanted words it does not contain."""
    every = set(re.findall(r"\w{3,}", text[:_MAX_WORD_SCAN_CHARS]))
    words = [
        (piece, index) for piece, index in pieces if 2 < len(piece) < MAX_ROW_CHARS and re.fullmatch(r"\w+", piece)
    ]
    for word, index in words[:3]:
        alike = [other for other in every if abs(len(other) - len(word)) <= 2][:_MAX_WORDS]
        yield from ((other, index) for other in get_close_matches(word, alike, 1, 0.7))


def _similarity(wanted: str, there: str) -> float:
    if _collapse_whitespace(wanted) in _collapse_whitespace(there):
        return 1.0
    tokens = [re.findall(r"\w+|[^\w\s]", text)[:_MAX_TOKENS] for text in (wanted, there)]
    by_tokens = SequenceMatcher(None, *tokens, autojunk=False).ratio()
    characters = SequenceMatcher(None, wanted[:300], there[:300], autojunk=False)
    least = 2 if len(wanted) < _SHORT_TEXT_CHARS else 3  # single letters match everywhere
    runs = [block.size for block in characters.get_matching_blocks() if block.size >= least]
    covered = sum(runs) / len(wanted[:300] or "x")
    return min(_MAX_SIMILARITY, max(by_tokens, characters.ratio(), 0.9 * covered))


def _collapse_whitespace(text: str) -> str:
    return " ".join(text.split())


def _describe_difference(wanted: str, there: str) -> str:
    if _collapse_whitespace(wanted) in _collapse_whitespace(there):
        return _describe_whitespace(wanted, there)
    plain, plain_there = (_collapse_whitespace(text.translate(_QUOTES)) for text in (wanted, there))
    if plain in plain_there:
        return "quotation marks, dashes or special blanks differ"
    if plain.casefold() in plain_there.casefold():
        return "capital letters differ"
    if find_hidden(there) and _collapse_whitespace(wanted) in _collapse_whitespace(reveal_hidden(there)):
        return "`[U+...]` stands for one hidden character, which has to be sent as it is"
    return ""


def _describe_whitespace(wanted: str, there: str) -> str:
    if wanted in "\n".join(line.rstrip() for line in there.split("\n")):
        return "the file has blanks at the ends of lines"
    if "\n".join(line.rstrip() for line in wanted.split("\n")) in there:
        return "the file has no blanks at the ends of lines"
    if ("\t" in wanted) != ("\t" in there):
        has, sent = ("tabs", "blanks") if "\t" in there else ("blanks", "tabs")
        return f"the file has {has} where you sent {sent}"
    if [line.strip() for line in wanted.split("\n")] == [line.strip() for line in there.split("\n")]:
        return "the indentation differs"
    return "only white space differs"


def _diff_rows(wanted: list[str], there: list[str], first: int, marked: bool) -> Iterator[str]:
    compared = SequenceMatcher(None, wanted, there, autojunk=False)
    rows: list[str] = []
    for tag, start, end, there_start, there_end in compared.get_opcodes():
        if tag == "equal":
            same = [f"  {first + at:6d}\t{_format_row(there[at])}" for at in range(there_start, there_end)]
            rows += _trim_equal_rows(same, start > 0, end < len(wanted))
        else:
            sent, found = wanted[start:end], there[there_start:there_end]
            if len(sent) == len(found):
                pairs = [_trim_common_start(*pair) for pair in zip(sent, found, strict=True)]
                sent, found = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
            rows += [f"- {'':6}\t{_format_row(line, marked)}" for line in sent]
            rows += [f"+ {first + at:6d}\t{_format_row(line, marked)}" for at, line in enumerate(found, there_start)]
    yield from rows[:MAX_ROWS]
    if len(rows) > MAX_ROWS:
        yield f"  [{len(rows) - MAX_ROWS} more lines]"


def _trim_common_start(line: str, other: str) -> tuple[str, str]:
    """Both lines without their common start if it is too long to show."""
    same = common_prefix_length(line, other)
    if same < MAX_ROW_CHARS // 2:
        return line, other
    start = same - MAX_ROW_CHARS // 4
    return f"...{line[start:]}", f"...{other[start:]}"


def _trim_equal_rows(rows: list[str], before: bool, after: bool) -> list[str]:
    """Of many equal rows, those next to a difference."""
    if len(rows) <= 2 * _CONTEXT_ROWS + 1:
        return rows
    head, tail = rows[: _CONTEXT_ROWS * before], rows[len(rows) - _CONTEXT_ROWS * after :]
    return [*head, f"  [{len(rows) - len(head) - len(tail)} lines are the same]", *tail]


def _format_row(line: str, marked: bool = False) -> str:
    """`marked`: make leading and trailing whitespace visible."""
    text = reveal_hidden(line[:MAX_ROW_CHARS])
    if marked:
        body = text.strip(" \t")
        left = text[: len(text) - len(text.lstrip(" \t"))]
        right = text[len(left) + len(body) :]
        text = _mark_blanks(left) + body.replace("\t", "→") + _mark_blanks(right)
    return text + (" ..." if len(line) > MAX_ROW_CHARS else "")


def _mark_blanks(blanks: str) -> str:
    return blanks.replace(" ", "·").replace("\t", "→")
