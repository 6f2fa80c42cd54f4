"""Selects what of a long text to show: a window, or the sections that match a query, in order.

Used by WebFetch. Counts plain words; says what is omitted and at which offset.
"""

import math
import re
from collections import Counter
from typing import Final, NamedTuple

MAX_CHARS: Final = 50_000
_MAX_SECTION_CHARS = 3_000
_MAX_WORDS = 40
_MAX_SCORED_CHARS = 2_000_000
_WORD = re.compile(r"\w{2,}")
_STOP_WORDS: Final = """
the an and or of to in on for with from by at as is are was were be been it its this that these those what which who
when where why how does do did can could should would will not no all any some each about into than then there their
page pages website site article document content text information find list give tell show me us you your please
summarize summary describe extract explain return get main key details provide including include
"""
"""Words that every prompt has."""


class Excerpt(NamedTuple):
    text: str
    note: str
    """What is omitted and how to get it; empty if complete."""


def excerpt_window(text: str, offset: int) -> Excerpt:
    """From an offset on, up to a line end."""
    end = len(text)
    if end - offset > MAX_CHARS:
        end = offset + MAX_CHARS
        line_end = text.rfind("\n", offset + MAX_CHARS // 2, end)
        end = line_end + 1 if line_end >= 0 else end
    if offset == 0 and end == len(text):
        return Excerpt(text, "")
    more = f" Continue with offset={end}." if end < len(text) else ""
    return Excerpt(text[offset:end], f"Characters {offset + 1:,}-{end:,} of {len(text):,}.{more}")


def relevant_excerpt(text: str, query: str) -> Excerpt:
    """The start and the best matching sections; the plain window if nothing matches."""
    common = _STOP_WORDS.split()
    words = list(dict.fromkeys(word for word in _words(query) if word not in common))[:_MAX_WORDS]
    if len(text) <= MAX_CHARS or not words:
        return excerpt_window(text, 0)
    parts = _split_sections(text[:_MAX_SCORED_CHARS])
    scores = _score_sections(text, parts, words)
    if not any(scores):
        return excerpt_window(text, 0)
    chosen = {0}
    remaining_chars = MAX_CHARS - (parts[0][1] - parts[0][0])
    for at in sorted(range(len(parts)), key=lambda at: -scores[at]):
        size = parts[at][1] - parts[at][0] + 60  # plus a line about what is omitted
        if scores[at] and at not in chosen and size <= remaining_chars:
            chosen.add(at)
            remaining_chars -= size
    shown_parts: list[str] = []
    end = 0
    for at in sorted(chosen):
        start = parts[at][0]
        if start > end:
            shown_parts.append(f"[… {start - end:,} characters omitted, from offset={end} …]\n")
        shown_parts.append(text[start : parts[at][1]])
        end = parts[at][1]
    note = f"The page has {len(text):,} characters. Showing its start and the sections most relevant to the prompt."
    return Excerpt("".join(shown_parts), f"{note} Use offset to read other parts, or omit prompt to read it in order.")


def _words(text: str) -> list[str]:
    return _WORD.findall(text.casefold())


def _split_sections(text: str) -> list[tuple[int, int]]:
    """Split at headings; long sections at the end of a paragraph or line."""
    parts: list[tuple[int, int]] = []
    borders = [found.start() + 1 for found in re.finditer(r"\n#{1,6} ", text)]
    start = 0
    for border in [*borders, len(text)]:
        while border - start > _MAX_SECTION_CHARS:
            half, most = start + _MAX_SECTION_CHARS // 2, start + _MAX_SECTION_CHARS
            end = max(text.rfind("\n\n", half, most) + 2, half)
            end = end if end > half else max(text.rfind("\n", half, most) + 1, half)
            end = end if end > half else most
            parts.append((start, end))
            start = end
        if border > start:
            parts.append((start, border))
            start = border
    return parts


def _score_sections(text: str, parts: list[tuple[int, int]], words: list[str]) -> list[float]:
    """Like BM25: rare words weigh more, repetitions less, words in headings double."""
    query_words = re.compile(rf"\b(?:{'|'.join(map(re.escape, words))})\b", re.IGNORECASE)
    counts = [Counter(map(str.casefold, query_words.findall(text, start, end))) for start, end in parts]
    weights = {word: math.log(1 + len(parts) / (1 + sum(word in found for found in counts))) for word in words}
    scores: list[float] = []
    for (start, end), found in zip(parts, counts, strict=True):
        score = sum(weights[word] * found[word] / (found[word] + 1.5) for word in words if word in found)
        if found and text.startswith("#", start):
            heading = set(_words(text[start : min(end, start + 200)].partition("\n")[0]))
            score += sum(weights[word] for word in words if word in heading)
        scores.append(score)
    return scores
