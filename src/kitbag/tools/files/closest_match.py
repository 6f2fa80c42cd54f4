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
from typing import Final

import msgspec

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


class ClosestMatch(msgspec.Struct, frozen=True, kw_only=True):
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
    best_range = _best_range(text, lines, wanted_lines)
    if best_range is None:
        return None
    start, end = best_range
    similar = [_relevant_part(line, wanted_lines) for line in lines[start:end]]
    remark = _describe_difference("\n".join(wanted_lines), "\n".join(similar))
    marked = _collapse_whitespace("\n".join(wanted_lines)) in _collapse_whitespace("\n".join(similar))
    return ClosestMatch(
        first=start + 1,
        last=end,
        difference=remark,
        whitespace_only=marked,
        rows=tuple(_diff_rows(wanted_lines, similar, start + 1, marked)),
    )


def _differing_part(text: str, wanted: str) -> str:
    """The part of a long text where it starts to differ, with some context before it."""
    if len(wanted) <= _MAX_CHARS and wanted.count("\n") < _MAX_LINES:
        return wanted
    prefix_end, upper = 0, len(wanted)
    while prefix_end + 1 < upper:  # binary search for the longest prefix that occurs
        middle = (prefix_end + upper) // 2
        prefix_end, upper = (middle, upper) if wanted[:middle] in text else (prefix_end, middle)
    start = wanted.rfind("\n", 0, max(0, wanted.rfind("\n", 0, prefix_end))) + 1
    start = max(start, prefix_end - MAX_ROW_CHARS // 2)
    return wanted[start : start + _MAX_CHARS]


def _best_range(text: str, lines: list[str], wanted: list[str]) -> tuple[int, int] | None:
    """The start and end index of the most similar lines."""
    best, score = (0, 0), 0.0
    deadline = time.monotonic() + TIMEOUT_SECONDS
    for start in _candidate_starts(text, lines, wanted):
        for extra_lines in (0, 1, 2):  # lines that the wanted text omits
            end = min(len(lines), start + len(wanted) + extra_lines)
            similar = "\n".join(_relevant_part(line, wanted) for line in lines[start:end])
            similarity = _similarity("\n".join(wanted), similar) - extra_lines / 1_000
            if similarity > score:
                best, score = (start, end), similarity
        if score > _MAX_SIMILARITY or time.monotonic() > deadline:
            break
    return best if score >= _MIN_SIMILARITY else None


def _relevant_part(line: str, wanted: list[str]) -> str:
    """Of a very long line, the part around the longest fragment that both contain."""
    if len(line) <= max(_LONG_LINE_CHARS, 2 * len(max(wanted, key=len))):
        return line
    for fragment, index in _fragments(wanted):
        at = line.find(fragment)
        if at >= 0:
            start = max(0, at - wanted[index].find(fragment))
            return line[start : start + max(MAX_ROW_CHARS, len(wanted[index]))]
    return line[:_LONG_LINE_CHARS]


def _candidate_starts(text: str, lines: list[str], wanted: list[str]) -> list[int]:
    """Line indexes where the wanted text could start, most likely first."""
    starts = list(accumulate((len(line) + 1 for line in lines), initial=0))
    votes: dict[int, float] = defaultdict(float)
    deadline = time.monotonic() + TIMEOUT_SECONDS
    fragments = _fragments(wanted)
    for fragment, index in fragments:
        _vote(text, starts, fragment, index, votes)
        if time.monotonic() > deadline:
            break
    if not votes:
        for fragment, index in _similar_words(text, fragments):
            _vote(text, starts, fragment, index, votes)
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
    longest = [
        sorted(fragments.items(), key=lambda item: -len(item[0]))[:_MAX_FRAGMENTS] for fragments in (lines, words)
    ]
    return [*longest[0], *longest[1]]


def _vote(text: str, starts: list[int], fragment: str, index: int, votes: dict[int, float]) -> None:
    positions: list[int] = []
    at = text.find(fragment)
    while at >= 0:
        positions.append(at)
        if len(positions) > _MAX_OCCURRENCES:
            return
        at = text.find(fragment, at + 1)
    for position in positions:
        votes[max(0, bisect_right(starts, position) - 1 - index)] += len(fragment) / len(positions)


def _similar_words(text: str, fragments: Iterable[tuple[str, int]]) -> Iterator[tuple[str, int]]:
    """Words of the text that resemble wanted words it does not contain."""
    text_words = set(re.findall(r"\w{3,}", text[:_MAX_WORD_SCAN_CHARS]))
    words = [
        (fragment, index)
        for fragment, index in fragments
        if 2 < len(fragment) < MAX_ROW_CHARS and re.fullmatch(r"\w+", fragment)
    ]
    for word, index in words[:3]:
        similar_length = [other for other in text_words if abs(len(other) - len(word)) <= 2][:_MAX_WORDS]
        yield from ((other, index) for other in get_close_matches(word, similar_length, 1, 0.7))


def _similarity(wanted: str, similar: str) -> float:
    if _collapse_whitespace(wanted) in _collapse_whitespace(similar):
        return 1.0
    tokens = [re.findall(r"\w+|[^\w\s]", text)[:_MAX_TOKENS] for text in (wanted, similar)]
    by_tokens = SequenceMatcher(None, *tokens, autojunk=False).ratio()
    characters = SequenceMatcher(None, wanted[:300], similar[:300], autojunk=False)
    min_run = 2 if len(wanted) < _SHORT_TEXT_CHARS else 3  # single letters match everywhere
    runs = [block.size for block in characters.get_matching_blocks() if block.size >= min_run]
    covered = sum(runs) / len(wanted[:300] or "x")
    return min(_MAX_SIMILARITY, max(by_tokens, characters.ratio(), 0.9 * covered))


def _collapse_whitespace(text: str) -> str:
    return " ".join(text.split())


def _describe_difference(wanted: str, similar: str) -> str:
    if _collapse_whitespace(wanted) in _collapse_whitespace(similar):
        return _describe_whitespace(wanted, similar)
    plain, plain_similar = (_collapse_whitespace(text.translate(_QUOTES)) for text in (wanted, similar))
    if plain in plain_similar:
        return "quotation marks, dashes or special spaces differ"
    if plain.casefold() in plain_similar.casefold():
        return "letter case differs"
    if find_hidden(similar) and _collapse_whitespace(wanted) in _collapse_whitespace(reveal_hidden(similar)):
        return "`[U+...]` represents one hidden character; send the character itself"
    return ""


def _describe_whitespace(wanted: str, similar: str) -> str:
    if wanted in "\n".join(line.rstrip() for line in similar.split("\n")):
        return "the file has trailing whitespace"
    if "\n".join(line.rstrip() for line in wanted.split("\n")) in similar:
        return "the file has no trailing whitespace"
    if ("\t" in wanted) != ("\t" in similar):
        has, sent = ("tabs", "spaces") if "\t" in similar else ("spaces", "tabs")
        return f"the file has {has} where you sent {sent}"
    if [line.strip() for line in wanted.split("\n")] == [line.strip() for line in similar.split("\n")]:
        return "indentation differs"
    return "only whitespace differs"


def _diff_rows(wanted: list[str], similar: list[str], first: int, marked: bool) -> Iterator[str]:
    compared = SequenceMatcher(None, wanted, similar, autojunk=False)
    rows: list[str] = []
    for tag, start, end, similar_start, similar_end in compared.get_opcodes():
        if tag == "equal":
            same = [f"  {first + at:6d}\t{_format_row(similar[at])}" for at in range(similar_start, similar_end)]
            rows += _trim_equal_rows(same, start > 0, end < len(wanted))
        else:
            sent, found = wanted[start:end], similar[similar_start:similar_end]
            if len(sent) == len(found):
                pairs = [_trim_common_start(*pair) for pair in zip(sent, found, strict=True)]
                sent, found = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
            rows += [f"- {'':6}\t{_format_row(line, marked)}" for line in sent]
            rows += [f"+ {first + at:6d}\t{_format_row(line, marked)}" for at, line in enumerate(found, similar_start)]
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
    return [*head, f"  [{len(rows) - len(head) - len(tail)} unchanged lines]", *tail]


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
