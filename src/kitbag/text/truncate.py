"""Truncates a Markdown text to a number of tokens, and records what was omitted and why.

By sections first (`truncate_by_sections`), then by lines, and inside code or a line only where that would leave much of
the budget unused; never the text that `extract_essential` returns. Used by packing; uses `sections` and the token
counter it is given.
"""

import re
from bisect import bisect_right
from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

from kitbag.text.sections import CodeFence, MarkdownSection, find_fences, parse_sections
from kitbag.text.tokens import estimate_tokens

MARKER = "... [truncated for context budget]"
MAX_ESSENTIAL_INTRO = 200
"""Text before the first heading counts as essential up to this many tokens."""

MIN_FILL = 95
"""Percentage of the budget that a truncated text should use; then it ends where the text has an end of its own."""

CountTokens = Callable[[str], int]


class Omission(NamedTuple):
    what: str
    """The title of a section, or "lines"."""
    tokens: int
    reason: str


class TruncatedText(NamedTuple):
    text: str
    tokens: int
    omissions: tuple[Omission, ...]


class _Span(NamedTuple):
    """A range of text that may be omitted."""

    start: int
    end: int
    what: str
    reason: str
    closing: str = ""
    """Closes the code fence that `start` is in."""


def truncate_to_first_lines(body: str, lines: int = 50, count: CountTokens = estimate_tokens) -> TruncatedText:
    """The first lines; a fence that would be cut is omitted or closed."""
    unchanged = TruncatedText(body, count(body), ())
    text = _without_end_marker(body)
    all_lines = text.split("\n")
    if not "".join(all_lines[lines:]).strip():
        return unchanged
    kept = _leading_lines(all_lines, lines, find_fences(text), max_lines=lines)
    return _with_lines_cut(body, unchanged.tokens, kept, f"only the first {lines} lines are used", count)


def truncate_by_lines(text: str, max_tokens: int, count: CountTokens) -> TruncatedText:
    """As many lines as fit, with the marker at the end. Empty if not even the marker fits."""
    tokens = count(text)
    if tokens <= max_tokens:
        return TruncatedText(text, tokens, ())
    all_lines = text.split("\n")
    fences = find_fences(text)
    reason = f"truncated to {max_tokens} tokens"
    low, high = -1, len(all_lines)
    while high - low > 1:
        middle = (low + high) // 2
        kept = _leading_lines(all_lines, middle, fences, max_lines=middle + 1)
        if count(_with_marker(kept)) <= max_tokens:
            low = middle
        else:
            high = middle
    if low < 0:
        return TruncatedText("", 0, (Omission("lines", tokens, reason),))
    return _with_lines_cut(text, tokens, _leading_lines(all_lines, low, fences, max_lines=low + 1), reason, count)


def truncate_by_sections(body: str, max_tokens: int, count: CountTokens) -> TruncatedText:
    """Drops references and appendix, all examples but one, then other sections from the end, until the text fits.

    Keeps summary and rules, or the first section if there are none, so the result may still be too long.
    """
    tokens = count(body)
    if tokens <= max_tokens:
        return TruncatedText(body, tokens, ())
    return _without_spans(body, tokens, _spans_to_drop(body, _droppable_spans(body, count), max_tokens, count), count)


def _spans_to_drop(body: str, spans: list[_Span], max_tokens: int, count: CountTokens) -> list[_Span]:
    """The fewest of the first spans without which the text fits; all of them if it never does."""
    low, high = 0, len(spans)
    while high - low > 1:
        middle = (low + high) // 2
        if count(_remove_spans(body, spans[:middle])) <= max_tokens:
            high = middle
        else:
            low = middle
    return spans[:high]


def extract_essential(body: str, count: CountTokens) -> TruncatedText:
    """What is never dropped: a short introduction, and Summary and Core Rules with their subsections."""
    sections = parse_sections(body)
    kept = _essential_sections(body, sections, count, _has_document_title(body, sections))
    droppable = [at for at in range(len(sections)) if at not in kept]
    return _without_spans(body, count(body), _removable_spans(body, sections, droppable, kept, "not essential"), count)


def truncate_body(body: str, max_tokens: int, count: CountTokens, *, keep_essential: bool = True) -> TruncatedText:
    """By sections, then by lines of the non-essential rest; too long only if the essential text is, unless that may be
    cut, too. Uses most of the budget: where whole sections leave too much of it, the last one that is dropped stays in
    part."""
    by_sections = truncate_by_sections(body, max_tokens, count)
    if by_sections.tokens <= max_tokens and (not by_sections.omissions or _is_filled(by_sections.tokens, max_tokens)):
        return by_sections
    spans = _droppable_spans(body, count)
    if by_sections.tokens > max_tokens:
        sections = parse_sections(body)
        kept = _essential_sections(body, sections, count, _has_document_title(body, sections))
        backwards = sorted(range(len(sections)), key=lambda at: (at in kept, -at))
        if keep_essential:
            backwards = [at for at in backwards if at not in kept]
        else:
            kept = set[int]()
        spans += _removable_spans(body, sections, backwards, kept, f"truncated to {max_tokens} tokens")
    spans = _spans_to_drop(body, spans, max_tokens, count)
    if spans and count(_remove_spans(body, spans)) <= max_tokens:
        spans[-1] = _shrink_last_span(body, spans, max_tokens, count)
    return _without_spans(body, count(body), spans, count)


def _is_filled(tokens: int, max_tokens: int) -> bool:
    return tokens * 100 >= max_tokens * MIN_FILL


def _shrink_last_span(text: str, spans: list[_Span], max_tokens: int, count: CountTokens) -> _Span:
    """The last span, shortened so that as much of its beginning as possible stays: whole lines and whole fences; part
    of a fence, and then part of a line, if that leaves too much of the budget unused."""
    span, others = spans[-1], spans[:-1]
    best, tokens = span, count(_remove_spans(text, spans))

    def keep_most(candidates: list[_Span]) -> None:
        """The last candidate that fits; each keeps more than the one before it."""
        nonlocal best, tokens
        low, high = -1, len(candidates)
        while high - low > 1:
            middle = (low + high) // 2
            if count(_remove_spans(text, [*others, candidates[middle]])) <= max_tokens:
                low = middle
            else:
                high = middle
        found = candidates[low] if low >= 0 else span
        if (size := count(_remove_spans(text, [*others, found]))) > tokens:
            best, tokens = found, size

    def shortened(start: int, closing: str = "") -> _Span:
        return span._replace(start=start, what="lines", closing=closing)

    closings = _closing_lines(text)
    starts = _line_starts(text, span)
    keep_most([shortened(start) for line, start in starts if line not in closings])
    if not _is_filled(tokens, max_tokens):
        keep_most([shortened(start, closings.get(line, "")) for line, start in starts if start >= best.start])
    if not _is_filled(tokens, max_tokens):
        start = span.end - len(text[best.start : span.end].lstrip())  # blank lines cost nothing
        line = text.count("\n", 0, start)
        end = min(text.find("\n", start) % (len(text) + 1), span.end)
        if not _FENCE_LINE.match(text, start):
            ends = [start + match.end() for match in _WORD_END.finditer(text[start:end])]
            keep_most([shortened(at, closings.get(line, "")) for at in ends])
    return best


_WORD_END = re.compile(r"(?<=\S)(?=\s)|(?<=[^\s]{40})")
"""After a word; also inside one that is very long."""
_FENCE_LINE = re.compile(r"[ \t>*+.)\d-]*(?:```|~~~)")
"""Part of such a line could open a fence."""


def _line_starts(text: str, span: _Span) -> list[tuple[int, int]]:
    """(line, offset) of each line that starts inside the span."""
    line, start = text.count("\n", 0, span.start), span.start
    starts: list[tuple[int, int]] = []
    for content in text[span.start : span.end].split("\n")[:-1]:
        line, start = line + 1, start + len(content) + 1
        starts.append((line, start))
    return starts


def _closing_lines(text: str) -> dict[int, str]:
    """For each line that is inside a fence but is not its first line: the line that closes the fence before it."""
    return {line: fence.closing_line for fence in find_fences(text) for line in range(fence.first + 1, fence.end)}


def _essential_sections(body: str, sections: list[MarkdownSection], count: CountTokens, titled: bool) -> set[int]:
    """Indexes into `sections`."""
    kept: set[int] = set()
    for at, section in enumerate(sections):
        if section.level == 0:
            opening = body[: section.end].replace(MARKER, "")
            if count(opening) <= MAX_ESSENTIAL_INTRO:
                kept.add(at)
        elif section.role in ("summary", "rules"):
            kept.add(at)
            if not titled or section.level > 1:
                kept.update(_child_sections(sections, at))
    return kept


def _has_document_title(body: str, sections: list[MarkdownSection]) -> bool:
    """Whether a single top heading is the document's title, whose role does not apply to every section.

    Unknown if text was omitted before.
    """
    levels = [section.level for section in sections if section.level]
    return levels[:1] == [1] and 1 not in levels[1:] and MARKER not in body


def _child_sections(sections: list[MarkdownSection], at: int) -> range:
    end = at + 1
    while end < len(sections) and sections[end].start < sections[at].end_with_children:
        end += 1
    return range(at + 1, end)


def _droppable_spans(body: str, count: CountTokens) -> list[_Span]:
    """Spans in the order in which they are dropped."""
    sections = parse_sections(body)
    kept = _essential_sections(body, sections, count, _has_document_title(body, sections))
    kept.update(at for at, section in enumerate(sections) if section.level == 0)
    example = _first_example(body, sections, kept)
    kept.update(example)
    if sections and not kept:
        kept.add(0)
    backwards = range(len(sections) - 1, -1, -1)
    extras = [at for at in backwards if at not in kept and sections[at].role in ("references", "appendix")]
    examples = [at for at in backwards if at not in kept and sections[at].role == "examples"]
    others = [at for at in backwards if at not in kept and sections[at].role == "other"]
    return [
        *_removable_spans(body, sections, extras, kept, "references and appendix are removed first"),
        *_removable_spans(body, sections, examples, kept, "one example is kept"),
        *_after_first_fence(body, sections, example),
        *_removable_spans(body, sections, others, kept, "later sections are removed before earlier ones"),
    ]


def _first_example(body: str, sections: list[MarkdownSection], stays: set[int]) -> list[int]:
    """The first section of examples; if it only introduces them, also its first subsection."""
    for at, section in enumerate(sections):
        if section.role == "examples" and at not in stays:
            below = _child_sections(sections, at)
            if (
                below
                and below[0] not in stays
                and sections[below[0]].role == "examples"
                and not _contains_code(body, section)
            ):
                return [at, below[0], *(child for child in _child_sections(sections, below[0]) if child not in stays)]
            return [at]
    return []


def _contains_code(body: str, section: MarkdownSection) -> bool:
    text = body[section.body_start : section.end]
    return "```" in text or "~~~" in text


def _after_first_fence(body: str, sections: list[MarkdownSection], example: list[int]) -> list[_Span]:
    """The text after the first code block of the example that stays, if more code follows."""
    at = next((at for at in example if _contains_code(body, sections[at])), None)
    if at is None:
        return []
    section = sections[at]
    text = body[section.start : section.end]
    fences = find_fences(text)
    if len(fences) < 2:
        return []
    start = section.start + sum(len(line) + 1 for line in text.split("\n")[: fences[0].end])
    return [_Span(start, section.end, section.title, "one example is kept")]


def _removable_spans(
    body: str, sections: list[MarkdownSection], indexes: list[int], kept: set[int], reason: str
) -> list[_Span]:
    """The parts of the sections at `indexes` that can be dropped: not a heading above something that stays."""
    starts = sorted(sections[at].start for at in kept)
    spans: list[_Span] = []
    for at in indexes:
        section = sections[at]
        after = bisect_right(starts, section.start)
        is_parent = after < len(starts) and starts[after] < section.end_with_children
        start = section.body_start if is_parent else section.start
        if body[start : section.end].replace(MARKER, "").strip():
            spans.append(_Span(start, section.end, section.title or "opening", reason))
    return spans


def _remove_spans(body: str, spans: list[_Span]) -> str:
    """The text with one marker, in a paragraph of its own, for each run of spans."""
    if not spans:
        return body
    kept: list[tuple[str, str]] = []
    at = 0
    for span in sorted(spans):
        piece = body[at : span.start]
        if piece.strip() or not kept:
            kept.append((piece, span.closing))
        at = max(at, span.end)
    rest = body[at:] if body[at:].strip() else ""
    text = ""
    for (piece, closing), (following, _) in pairwise([*kept, (rest, "")]):
        text = (text or piece).rstrip("\r\n") + (f"\n{closing}" if closing else "")
        if not text.endswith(MARKER):
            text += f"\n\n{MARKER}" if text else MARKER
        text += "\n\n" + following.lstrip("\r\n") if following else ""
    return text


def _without_spans(body: str, tokens: int, spans: list[_Span], count: CountTokens) -> TruncatedText:
    text = _remove_spans(body, spans)
    remaining = count(text)
    if remaining >= tokens:
        return TruncatedText(body, tokens, ())
    omissions = (Omission(span.what, count(body[span.start : span.end]), span.reason) for span in sorted(spans))
    return TruncatedText(text, remaining, tuple(omissions))


def _leading_lines(lines: list[str], end: int, fences: list[CodeFence], max_lines: int) -> list[str]:
    """The lines before `end`; if that is inside a fence, ends before the fence, or closes it if it started in the first
    half. `max_lines` includes the closing line."""
    kept = lines[:end]
    fence = next((fence for fence in fences if fence.first < end < fence.end), None)
    if fence:
        end = min(end, max_lines - 1)
        kept = lines[:end]
        if fence.first * 2 >= end or fence.first + 1 >= end:
            kept = lines[: fence.first]
        else:
            return [*kept, fence.closing_line]
    while kept and not kept[-1].strip():
        kept.pop()
    return kept


def _with_marker(kept: list[str]) -> str:
    return "\n".join([*kept, MARKER])


def _without_end_marker(body: str) -> str:
    text = body.rstrip()
    return text[: -len(MARKER)].rstrip("\n") if text.endswith("\n" + MARKER) else body


def _with_lines_cut(body: str, tokens: int, kept: list[str], reason: str, count: CountTokens) -> TruncatedText:
    text = _with_marker(kept)
    remaining = count(text)
    if remaining >= tokens:
        return TruncatedText(body, tokens, ())
    return TruncatedText(text, remaining, (Omission("lines", tokens - count("\n".join(kept)), reason),))
