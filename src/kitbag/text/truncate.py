"""Shortening a Markdown text to a number of tokens, with a record of what was cut and why.

By sections first (`truncate_sections`), by lines where that is not enough, never inside fenced code and never
below what `essential` keeps. Used by packing; stands on `sections`, and counts with what it is given.
"""

from bisect import bisect_right
from collections.abc import Callable
from typing import NamedTuple

from kitbag.text.sections import Fence, Section, find_fences, parse_sections
from kitbag.text.tokens import estimate_tokens

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


def first_lines(body: str, lines: int = 50, count: Count = estimate_tokens) -> Truncated:
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

    Summary and rules stay, and so does the first section where there are none: the result may still be too long.
    """
    tokens = count(body)
    if tokens <= max_tokens:
        return Truncated(body, tokens, ())
    spans = _droppable(body, count)
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
    kept = _essential(body, sections, count, _titled(body, sections))
    left = [at for at in range(len(sections)) if at not in kept]
    return _shortened(body, count(body), _spans(body, sections, left, kept, "not essential"), count)


def truncate_body(body: str, max_tokens: int, count: Count) -> Truncated:
    """By sections, then by lines of what is left and not essential; too long only where the essential is."""
    cut = truncate_sections(body, max_tokens, count)
    if cut.tokens <= max_tokens:
        return cut
    text = cut.text
    sections = parse_sections(text)
    kept = _essential(text, sections, count, _titled(body, parse_sections(body)))
    left = [at for at in range(len(sections) - 1, -1, -1) if at not in kept]
    spans: list[_Span] = []
    for span in _spans(text, sections, left, kept, f"cut to {max_tokens} tokens"):
        spans.append(span)
        if count(_without(text, spans)) <= max_tokens:
            spans[-1] = _less(text, spans, max_tokens, count)
            break
    rest = _shortened(text, cut.tokens, spans, count)
    return rest._replace(cuts=cut.cuts + rest.cuts)


def _less(text: str, spans: list[_Span], max_tokens: int, count: Count) -> _Span:
    """The last span without as many of its first lines as fit, fences whole."""
    span = spans[-1]
    first = text.count("\n", 0, span.start)
    inside = {line for fence in find_fences(text) for line in range(fence.first + 1, fence.end)}
    starts = [span.start]
    start = span.start
    for at, line in enumerate(text[span.start : span.end].split("\n")[:-1], first + 1):
        start += len(line) + 1
        if at not in inside:
            starts.append(start)
    low, high = 0, len(starts)
    while high - low > 1:
        middle = (low + high) // 2
        less = span._replace(start=starts[middle])
        if count(_without(text, [*spans[:-1], less])) <= max_tokens:
            low = middle
        else:
            high = middle
    return span._replace(start=starts[low], what="lines" if low else span.what)


def _essential(body: str, sections: list[Section], count: Count, titled: bool) -> set[int]:
    """Places in `sections`."""
    kept: set[int] = set()
    for at, section in enumerate(sections):
        if section.level == 0:
            opening = body[: section.end].replace(MARKER, "")
            if count(opening) <= SHORT_OPENING:
                kept.add(at)
        elif section.role in ("summary", "rules"):
            kept.add(at)
            if not titled or section.level > 1:
                kept.update(_children(sections, at))
    return kept


def _titled(body: str, sections: list[Section]) -> bool:
    """A single heading above all others names the text; what it says does not speak for every section.

    Where something was cut before, nobody knows what it was above.
    """
    levels = [section.level for section in sections if section.level]
    return levels[:1] == [1] and 1 not in levels[1:] and MARKER not in body


def _children(sections: list[Section], at: int) -> range:
    end = at + 1
    while end < len(sections) and sections[end].start < sections[at].end_with_children:
        end += 1
    return range(at + 1, end)


def _droppable(body: str, count: Count) -> list[_Span]:
    """In the order they go."""
    sections = parse_sections(body)
    stays = _essential(body, sections, count, _titled(body, sections))
    stays.update(at for at, section in enumerate(sections) if section.level == 0)
    example = _one_example(body, sections, stays)
    stays.update(example)
    if sections and not stays:
        stays.add(0)
    backwards = range(len(sections) - 1, -1, -1)
    extras = [at for at in backwards if at not in stays and sections[at].role in ("references", "appendix")]
    examples = [at for at in backwards if at not in stays and sections[at].role == "examples"]
    others = [at for at in backwards if at not in stays and sections[at].role == "other"]
    return [
        *_spans(body, sections, extras, stays, "references and appendix go first"),
        *_spans(body, sections, examples, stays, "one example is kept"),
        *_after_first_fence(body, sections, example),
        *_spans(body, sections, others, stays, "the sections at the end go before those at the start"),
    ]


def _one_example(body: str, sections: list[Section], stays: set[int]) -> list[int]:
    """The first section of examples; where it only announces them, with the first of those below it."""
    for at, section in enumerate(sections):
        if section.role == "examples" and at not in stays:
            below = _children(sections, at)
            if below and below[0] not in stays and sections[below[0]].role == "examples" and not _shows(body, section):
                return [at, below[0], *(child for child in _children(sections, below[0]) if child not in stays)]
            return [at]
    return []


def _shows(body: str, section: Section) -> bool:
    text = body[section.body_start : section.end]
    return "```" in text or "~~~" in text


def _after_first_fence(body: str, sections: list[Section], example: list[int]) -> list[_Span]:
    """What follows the first code of the one example, if more code does."""
    at = next((at for at in example if _shows(body, sections[at])), None)
    if at is None:
        return []
    section = sections[at]
    text = body[section.start : section.end]
    fences = find_fences(text)
    if len(fences) < 2:
        return []
    start = section.start + sum(len(line) + 1 for line in text.split("\n")[: fences[0].end])
    return [_Span(start, section.end, section.title, "one example is kept")]


def _spans(body: str, sections: list[Section], places: list[int], stays: set[int], reason: str) -> list[_Span]:
    """What can go of the sections at `places`: not the heading above something that stays."""
    starts = sorted(sections[at].start for at in stays)
    spans: list[_Span] = []
    for at in places:
        section = sections[at]
        after = bisect_right(starts, section.start)
        above = after < len(starts) and starts[after] < section.end_with_children
        start = section.body_start if above else section.start
        if body[start : section.end].replace(MARKER, "").strip():
            spans.append(_Span(start, section.end, section.title or "opening", reason))
    return spans


def _without(body: str, spans: list[_Span]) -> str:
    """The text with one marker, a paragraph of its own, for each run of spans."""
    if not spans:
        return body
    kept: list[str] = []
    at = 0
    for span in sorted(spans):
        piece = body[at : span.start]
        if piece.strip() or not kept:
            kept.append(piece)
        at = max(at, span.end)
    kept.append(body[at:] if body[at:].strip() else "")
    text = kept[0]
    for piece in kept[1:]:
        text = text.rstrip("\r\n")
        if not text.endswith(MARKER):
            text += f"\n\n{MARKER}" if text else MARKER
        text += "\n\n" + piece.lstrip("\r\n") if piece else ""
    return text


def _shortened(body: str, tokens: int, spans: list[_Span], count: Count) -> Truncated:
    text = _without(body, spans)
    left = count(text)
    if left >= tokens:
        return Truncated(body, tokens, ())
    cuts = (Cut(span.what, count(body[span.start : span.end]), span.reason) for span in sorted(spans))
    return Truncated(text, left, tuple(cuts))


def _head(lines: list[str], end: int, fences: list[Fence], room: int) -> list[str]:
    """The lines before `end`, less when that is inside a fence: to its start, or closed if it began in the first half.

    `room` is for how many lines there is, with the one that closes.
    """
    kept = lines[:end]
    fence = next((fence for fence in fences if fence.first < end < fence.end), None)
    if fence:
        end = min(end, room - 1)
        kept = lines[:end]
        if fence.first * 2 >= end or fence.first + 1 >= end:
            kept = lines[: fence.first]
        else:
            return [*kept, fence.closing]
    while kept and not kept[-1].strip():
        kept.pop()
    return kept


def _with_marker(kept: list[str]) -> str:
    return "\n".join([*kept, MARKER])


def _without_end_marker(body: str) -> str:
    text = body.rstrip()
    return text[: -len(MARKER)].rstrip("\n") if text.endswith("\n" + MARKER) else body


def _marked(body: str, tokens: int, kept: list[str], reason: str, count: Count) -> Truncated:
    text = _with_marker(kept)
    left = count(text)
    if left >= tokens:
        return Truncated(body, tokens, ())
    return Truncated(text, left, (Cut("lines", tokens - count("\n".join(kept)), reason),))
