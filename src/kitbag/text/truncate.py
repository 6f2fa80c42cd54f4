"""Truncates a Markdown text to a number of tokens, and records what was omitted and why.

By sections first (`truncate_by_sections`), then by lines; never inside fenced code, and never the text that
`extract_essential` returns. Used by packing; uses `sections` and the token counter it is given.
"""

from bisect import bisect_right
from collections.abc import Callable
from typing import NamedTuple

from kitbag.text.sections import CodeFence, MarkdownSection, find_fences, parse_sections
from kitbag.text.tokens import estimate_tokens

MARKER = "... [truncated for context budget]"
MAX_ESSENTIAL_INTRO = 200
"""Text before the first heading counts as essential up to this many tokens."""

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
    spans = _droppable_spans(body, count)
    low, high = 0, len(spans)
    while high - low > 1:
        middle = (low + high) // 2
        if count(_remove_spans(body, spans[:middle])) <= max_tokens:
            high = middle
        else:
            low = middle
    return _without_spans(body, tokens, spans[:high], count)


def extract_essential(body: str, count: CountTokens) -> TruncatedText:
    """What is never dropped: a short introduction, and Summary and Core Rules with their subsections."""
    sections = parse_sections(body)
    kept = _essential_sections(body, sections, count, _has_document_title(body, sections))
    droppable = [at for at in range(len(sections)) if at not in kept]
    return _without_spans(body, count(body), _removable_spans(body, sections, droppable, kept, "not essential"), count)


def truncate_body(body: str, max_tokens: int, count: CountTokens) -> TruncatedText:
    """By sections, then by lines of the non-essential rest; too long only if the essential text is."""
    by_sections = truncate_by_sections(body, max_tokens, count)
    if by_sections.tokens <= max_tokens:
        return by_sections
    text = by_sections.text
    sections = parse_sections(text)
    kept = _essential_sections(text, sections, count, _has_document_title(body, parse_sections(body)))
    droppable = [at for at in range(len(sections) - 1, -1, -1) if at not in kept]
    spans: list[_Span] = []
    for span in _removable_spans(text, sections, droppable, kept, f"truncated to {max_tokens} tokens"):
        spans.append(span)
        if count(_remove_spans(text, spans)) <= max_tokens:
            spans[-1] = _shrink_last_span(text, spans, max_tokens, count)
            break
    by_lines = _without_spans(text, by_sections.tokens, spans, count)
    return by_lines._replace(omissions=by_sections.omissions + by_lines.omissions)


def _shrink_last_span(text: str, spans: list[_Span], max_tokens: int, count: CountTokens) -> _Span:
    """The last span, shortened so that as many of its first lines as possible stay; fences stay whole."""
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
        shorter = span._replace(start=starts[middle])
        if count(_remove_spans(text, [*spans[:-1], shorter])) <= max_tokens:
            low = middle
        else:
            high = middle
    return span._replace(start=starts[low], what="lines" if low else span.what)


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
