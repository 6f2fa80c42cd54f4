"""Where a text comes near to another that does not hold it: for a model that did not quote exactly.

Used by Edit. Words of the wanted text that are rare in the other vote for the line where it could begin; the best few
places are then compared. Takes at most about a second, however large both are.
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
from kitbag.tools.files.diff import same_start

SECONDS: Final = 0.5
"""For looking around; comparing what was found takes no longer than that."""
_MOST_CHARACTERS = 20_000
"""Of what is wanted: the beginning of a long text tells enough."""
_MOST_PIECES = 30
"""Lines, and as many words."""
_MOST_PLACES = 200
"""A word that occurs more often tells nothing."""
_MOST_CANDIDATES = 12
_MOST_TOKENS = 400
_MOST_LINES = 200
_MOST_WORDS = 5_000
_WORDS_IN = 2_000_000
_LONG = 1_000
_SHORT = 20
_LEAST = 0.6
_MOST_LIKE = 0.99
"""For what differs in more than white space."""
MOST_ROWS: Final = 24
LONGEST_ROW: Final = 160
_BESIDE = 2
_QUOTES: Final = str.maketrans("‘’‚‛“”„‟′″`´‐‑‒–—−\u00a0", "''''\"\"\"\"'\"''------ ")


class Near(NamedTuple):
    first: int
    """Line numbers, from 1."""
    last: int
    remark: str
    """What differs, in a few words; empty when it is more than a kind of character."""
    marked: bool
    """Only white space differs, and is marked in the rows."""
    rows: tuple[str, ...]
    """The wanted lines that are not there after `-`, those that are there after `+`, with their numbers."""


def nearest(text: str, wanted: str) -> Near | None:
    """None when nothing comes near."""
    text, wanted = text.replace("\r\n", "\n"), wanted.replace("\r\n", "\n")
    # Line breaks before and after it say nothing, and would move the lines apart.
    wanted_lines = _telling(text, wanted).strip("\n").split("\n")[:_MOST_LINES]
    lines = text.split("\n")
    found = _best(text, lines, wanted_lines)
    if found is None:
        return None
    start, end = found
    there = [_part(line, wanted_lines) for line in lines[start:end]]
    remark = _remark("\n".join(wanted_lines), "\n".join(there))
    marked = _collapsed("\n".join(wanted_lines)) in _collapsed("\n".join(there))
    return Near(start + 1, end, remark, marked, tuple(_rows(wanted_lines, there, start + 1, marked)))


def _telling(text: str, wanted: str) -> str:
    """Of a long text the part where it begins to differ, with a little before."""
    if len(wanted) <= _MOST_CHARACTERS and wanted.count("\n") < _MOST_LINES:
        return wanted
    there, beyond = 0, len(wanted)
    while there + 1 < beyond:  # so much of its beginning is there
        middle = (there + beyond) // 2
        there, beyond = (middle, beyond) if wanted[:middle] in text else (there, middle)
    start = wanted.rfind("\n", 0, max(0, wanted.rfind("\n", 0, there))) + 1
    start = max(start, there - LONGEST_ROW // 2)
    return wanted[start : start + _MOST_CHARACTERS]


def _best(text: str, lines: list[str], wanted: list[str]) -> tuple[int, int] | None:
    """The lines from one index up to another."""
    best, score = (0, 0), 0.0
    deadline = time.monotonic() + SECONDS
    for start in _candidates(text, lines, wanted):
        for more in (0, 1, 2):  # lines that were left out
            end = min(len(lines), start + len(wanted) + more)
            there = "\n".join(_part(line, wanted) for line in lines[start:end])
            found = _likeness("\n".join(wanted), there) - more / 1_000
            if found > score:
                best, score = (start, end), found
        if score > _MOST_LIKE or time.monotonic() > deadline:
            break
    return best if score >= _LEAST else None


def _part(line: str, wanted: list[str]) -> str:
    """Of a very long line the part that matters: where the longest piece stands that both have."""
    if len(line) <= max(_LONG, 2 * len(max(wanted, key=len))):
        return line
    for piece, index in _pieces(wanted):
        at = line.find(piece)
        if at >= 0:
            start = max(0, at - wanted[index].find(piece))
            return line[start : start + max(LONGEST_ROW, len(wanted[index]))]
    return line[:_LONG]


def _candidates(text: str, lines: list[str], wanted: list[str]) -> list[int]:
    """Where it could begin, as indexes of lines, the most likely first."""
    starts = list(accumulate((len(line) + 1 for line in lines), initial=0))
    votes: dict[int, float] = defaultdict(float)
    deadline = time.monotonic() + SECONDS
    pieces = _pieces(wanted)
    for piece, index in pieces:
        _vote(text, starts, piece, index, votes)
        if time.monotonic() > deadline:
            break
    if not votes:
        for piece, index in _misspelled(text, pieces):
            _vote(text, starts, piece, index, votes)
    return sorted(votes, key=lambda start: -votes[start])[:_MOST_CANDIDATES]


def _pieces(wanted: list[str]) -> list[tuple[str, int]]:
    """Lines and words of it, the longest first, each with the index of the line where it stands."""
    lines: dict[str, int] = {}
    words: dict[str, int] = {}
    for index, line in enumerate(wanted):
        if line.strip():
            lines.setdefault(line.strip(), index)
        for word in re.findall(r"\w{2,}", line):
            words.setdefault(word, index)
    longest = [sorted(pieces.items(), key=lambda item: -len(item[0]))[:_MOST_PIECES] for pieces in (lines, words)]
    return [*longest[0], *longest[1]]


def _vote(text: str, starts: list[int], piece: str, index: int, votes: dict[int, float]) -> None:
    places: list[int] = []
    at = text.find(piece)
    while at >= 0:
        places.append(at)
        if len(places) > _MOST_PLACES:
            return
        at = text.find(piece, at + 1)
    for place in places:
        votes[max(0, bisect_right(starts, place) - 1 - index)] += len(piece) / len(places)


def _misspelled(text: str, pieces: Iterable[tuple[str, int]]) -> Iterator[tuple[str, int]]:
    """Words that are there and look like those that are not."""
    every = set(re.findall(r"\w{3,}", text[:_WORDS_IN]))
    words = [(piece, index) for piece, index in pieces if 2 < len(piece) < LONGEST_ROW and re.fullmatch(r"\w+", piece)]
    for word, index in words[:3]:
        alike = [other for other in every if abs(len(other) - len(word)) <= 2][:_MOST_WORDS]
        yield from ((other, index) for other in get_close_matches(word, alike, 1, 0.7))


def _likeness(wanted: str, there: str) -> float:
    if _collapsed(wanted) in _collapsed(there):
        return 1.0
    tokens = [re.findall(r"\w+|[^\w\s]", text)[:_MOST_TOKENS] for text in (wanted, there)]
    by_tokens = SequenceMatcher(None, *tokens, autojunk=False).ratio()
    characters = SequenceMatcher(None, wanted[:300], there[:300], autojunk=False)
    least = 2 if len(wanted) < _SHORT else 3  # single letters are everywhere
    runs = [block.size for block in characters.get_matching_blocks() if block.size >= least]
    covered = sum(runs) / len(wanted[:300] or "x")
    return min(_MOST_LIKE, max(by_tokens, characters.ratio(), 0.9 * covered))


def _collapsed(text: str) -> str:
    return " ".join(text.split())


def _remark(wanted: str, there: str) -> str:
    if _collapsed(wanted) in _collapsed(there):
        return _white_space(wanted, there)
    plain, plain_there = (_collapsed(text.translate(_QUOTES)) for text in (wanted, there))
    if plain in plain_there:
        return "quotation marks, dashes or special blanks differ"
    if plain.casefold() in plain_there.casefold():
        return "capital letters differ"
    if find_hidden(there) and _collapsed(wanted) in _collapsed(reveal_hidden(there)):
        return "`[U+...]` stands for one hidden character, which has to be sent as it is"
    return ""


def _white_space(wanted: str, there: str) -> str:
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


def _rows(wanted: list[str], there: list[str], first: int, marked: bool) -> Iterator[str]:
    compared = SequenceMatcher(None, wanted, there, autojunk=False)
    rows: list[str] = []
    for tag, start, end, there_start, there_end in compared.get_opcodes():
        if tag == "equal":
            same = [f"  {first + at:6d}\t{_shown(there[at])}" for at in range(there_start, there_end)]
            rows += _ends(same, start > 0, end < len(wanted))
        else:
            sent, found = wanted[start:end], there[there_start:there_end]
            if len(sent) == len(found):
                pairs = [_where_they_differ(*pair) for pair in zip(sent, found, strict=True)]
                sent, found = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
            rows += [f"- {'':6}\t{_shown(line, marked)}" for line in sent]
            rows += [f"+ {first + at:6d}\t{_shown(line, marked)}" for at, line in enumerate(found, there_start)]
    yield from rows[:MOST_ROWS]
    if len(rows) > MOST_ROWS:
        yield f"  [{len(rows) - MOST_ROWS} more lines]"


def _where_they_differ(line: str, other: str) -> tuple[str, str]:
    """Two lines without the beginning that both have, where that is too long to be shown."""
    same = same_start(line, other)
    if same < LONGEST_ROW // 2:
        return line, other
    start = same - LONGEST_ROW // 4
    return f"...{line[start:]}", f"...{other[start:]}"


def _ends(rows: list[str], before: bool, after: bool) -> list[str]:
    """Of many rows those beside a difference."""
    if len(rows) <= 2 * _BESIDE + 1:
        return rows
    head, tail = rows[: _BESIDE * before], rows[len(rows) - _BESIDE * after :]
    return [*head, f"  [{len(rows) - len(head) - len(tail)} lines are the same]", *tail]


def _shown(line: str, marked: bool = False) -> str:
    """`marked`: the white space around it can be seen."""
    text = reveal_hidden(line[:LONGEST_ROW])
    if marked:
        body = text.strip(" \t")
        left = text[: len(text) - len(text.lstrip(" \t"))]
        right = text[len(left) + len(body) :]
        text = _marks(left) + body.replace("\t", "→") + _marks(right)
    return text + (" ..." if len(line) > LONGEST_ROW else "")


def _marks(blanks: str) -> str:
    return blanks.replace(" ", "·").replace("\t", "→")
