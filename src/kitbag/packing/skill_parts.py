"""A long skill as several blocks: the first one has an outline that says which part holds which heading.

Used by session_skills. A block is never larger than the limit, as far as the skill's list of files leaves room.
"""

import re
from bisect import bisect_right
from typing import Final, NamedTuple

from kitbag.packing.skill_delivery import CLOSING_TAG, RenderedSkill, opening_tag
from kitbag.text.sections import MarkdownSection, parse_sections
from kitbag.text.split_markdown import split_markdown
from kitbag.text.tokens import estimate_tokens

_OUTLINE_SHARE: Final = 5
"""The outline takes at most one fifth of a part."""
_MAX_TITLE: Final = 120
_FRAME_TOKENS: Final = 120
"""Tags and instructions of a block."""
_PART = re.compile(r'^<skill-invocation name="[^"\n]*" part="(\d+)" parts="\d+">$', re.MULTILINE)


def split_skill(name: str, rendered: RenderedSkill, max_tokens: int) -> tuple[str, ...]:
    """One block per part, as delivered."""
    body, sections = rendered.content, parse_sections(rendered.content)
    outline_tokens = max_tokens // _OUTLINE_SHARE
    room = max_tokens - estimate_tokens(rendered.header) - outline_tokens - _FRAME_TOKENS
    spans = split_markdown(body, sections, max(room, max_tokens // 4, 1), estimate_tokens)
    outline = _render_outline(sections, spans, outline_tokens)
    blocks: list[str] = []
    for number, (start, end) in enumerate(spans, 1):
        frame = [opening_tag(name, number, len(spans))]
        if number == 1:
            frame += [rendered.header, f"This skill arrives in {len(spans)} parts; this is part 1.", outline]
            frame.append("Before work that another part covers, load that part: the same call with part=N.")
        else:
            frame.append(f"Part {number} of {len(spans)}.")
        blocks.append("\n".join([*frame, "", body[start:end], CLOSING_TAG]))
    return tuple(blocks)


class _Heading(NamedTuple):
    part: int
    level: int
    title: str


def _render_outline(sections: list[MarkdownSection], spans: list[tuple[int, int]], max_tokens: int) -> str:
    """The headings of each part. What does not fit is counted: deep headings are omitted first, then later ones."""
    ends = [end for _, end in spans]
    headings = [
        _Heading(bisect_right(ends, section.start) + 1, section.level, section.title[:_MAX_TITLE])
        for section in sections
        if section.level
    ]
    if not headings:
        return "It has no headings."
    by_level = sorted(range(len(headings)), key=lambda at: (headings[at].level, at))
    low, high = 0, len(headings) + 1
    while high - low > 1:
        middle = (low + high) // 2
        if estimate_tokens(_format_outline(headings, by_level[:middle])) <= max_tokens:
            low = middle
        else:
            high = middle
    return _format_outline(headings, by_level[:low])


def _format_outline(headings: list[_Heading], kept: list[int]) -> str:
    lines = ["Outline:"]
    part = 0
    for heading in (headings[at] for at in sorted(kept)):
        if heading.part != part:
            part = heading.part
            lines.append(f"Part {part}:")
        lines.append(f"{'  ' * (heading.level - 1)}- {heading.title}")
    if len(kept) < len(headings):
        lines.append(f"({len(headings) - len(kept)} more headings are omitted.)")
    return "\n".join(lines)


def split_blocks(text: str) -> dict[int, str]:
    """The blocks of a loaded skill by part; empty for a skill that was delivered whole."""
    starts = [match.start() for match in _PART.finditer(text)]
    ends = [*(start - 1 for start in starts[1:]), len(text)]
    return {
        int(match[1]): text[start:end] for match, start, end in zip(_PART.finditer(text), starts, ends, strict=True)
    }


def join_blocks(blocks: dict[int, str]) -> str:
    return "\n".join(block for _, block in sorted(blocks.items()))
