"""Shortening a Markdown text to a number of tokens, with a record of what was cut and why.

By sections first (`truncate_sections`), by lines where that is not enough, never inside fenced code and never
below what `essential` keeps. Used by packing; stands on `sections`, and counts with what it is given.
"""

from bisect import bisect_right
from collections.abc import Callable
from typing import NamedTuple

from kitbag.text.sections import Fence, Section, find_fences, parse_sections

MARKER = "... [truncated for context budget]"
SHORT_OPENING = 200
"""Tokens of text before the first heading that count as essential."""

Count = Callable[[str], int]


class Cut(NamedTuple):
    what: str
    """The title of a section, or "lines"."""
    tokens: int
    reason: str


class Truncated(NamedTuple):
    text: str
    tokens: int
    cuts: tuple[Cut, ...]


class _Span(NamedTuple):
    """A piece that may be left out."""

    start: int
    end: int
    what: str
    reason: str


def first_lines(body: str, lines: int = 50, *, count: Count) -> Truncated:
    """The first lines; where they would end inside a fence, it is left out or closed."""
    whole = Truncated(body, count(body), ())
    text = _without_end_marker(body)
    every = text.split("\n")
    if not "".join(every[lines:]).strip():
        return whole
    kept = _head(every, lines, find_fences(text), room=lines)
    return _marked(body, whole.tokens, kept, f"only the first {lines} lines are used", count)


def truncate_lines(text: str, max_tokens: int, count: Count) -> Truncated:
    """As many lines as fit, with the marker at the end. Nothing at all where not even the marker fits."""
    tokens = count(text)
    if tokens <= max_tokens:
        return Truncated(text, tokens, ())
    every = text.split("\n")
    fences = find_fences(text)
    reason = f"cut to {max_tokens} tokens"
    low, high = -1, len(every)
    while high - low > 1:
        middle = (low + high) // 2
        kept = _head(every, middle, fences, room=middle + 1)
        if count(_with_marker(kept)) <= max_tokens:
            low = middle
        else:
            high = middle
    if low < 0:
        return Truncated("", 0, (Cut("lines", tokens, reason),))
    return _marked(text, tokens, _head(every, low, fences, room=low + 1), reason, count)


def truncate_sections(body: str, max_tokens: int, count: Count) -> Truncated:
    """Drops references and appendix, all examples but one, then other sections, from the end, until it fits.

    Summary and rules stay, so the result may still be too long.
    """
    tokens = count(body)
    if tokens <= max_tokens:
        return Truncated(body, tokens, ())
    spans = _droppable(body, parse_sections(body), count)
    low, high = 0, len(spans)
    while high - low > 1:
        middle = (low + high) // 2
        if count(_without(body, spans[:middle])) <= max_tokens:
            high = middle
        else:
            low = middle
    return _shortened(body, tokens, spans[:high], count)


def essential(body: str, count: Count) -> Truncated:
    """What is never cut: a short text before the first heading, and Summary and Core Rules with what is below them."""
    sections = parse_sections(body)
    kept = _essential(body, sections, count)
    spans = [
        span
        for at, section in enumerate(sections)
        if at not in kept and (span := _span(body, sections, kept, section, "not essential"))
    ]
    return _shortened(body, count(body), spans, count)


def truncate_body(body: str, max_tokens: int, count: Count) -> Truncated:
    """By sections, then the lines of what is left and not essential; too long only if the essential is."""
    cut = truncate_sections(body, max_tokens, count)
    if cut.tokens <= max_tokens:
        return cut
    sections = parse_sections(cut.text)
    kept = _essential(cut.text, sections, count)
    spans: list[_Span] = []
    for at in range(len(sections) - 1, -1, -1):
        section = sections[at]
        if at in kept or not (span := _span(cut.text, sections, kept, section, f"cut to {max_tokens} tokens")):
            continue
        spans.append(span)
        over = count(_without(cut.text, spans)) - max_tokens
        if over <= 0:
            spans[-1] = _shorter(cut.text, spans, -over, count)
            break
    rest = _shortened(cut.text, cut.tokens, spans, count)
    return rest._replace(cuts=cut.cuts + rest.cuts)


def _shorter(body: str, spans: list[_Span], room: int, count: Count) -> _Span:
    """The last span without those of its first lines that fit."""
    span = spans[-1]
    part = body[span.start : span.end]
    head = truncate_lines(part, room, count).text
    while head and part.startswith(head := head.removesuffix(MARKER)):
        less = span._replace(start=span.start + len(head), what="lines")
        if count(_without(body, [*spans[:-1], less])) <= count(_without(body, spans)) + room:
            return less
        head = head.rstrip("\n").rpartition("\n")[0]
    return span
