"""Lines of styled pieces, as prompt_toolkit draws them: cut, wrapped and put together.

Used by all parts of the terminal face. Measured by cells, as everything that is rendered.
"""

from typing import Final, cast

from prompt_toolkit.formatted_text import StyleAndTextTuples

from kitbag.text.terminal_width import text_width, truncate_to_width
from kitbag.views.blocks import StyledLine, Tone
from kitbag.views.rendering.styled_text import StyledRun, wrap_row

Fragment = tuple[str, str]
"""(style, text), as prompt_toolkit has them."""
FragmentLine = list[Fragment]
"""One line."""

STYLES: Final[dict[Tone, str]] = {
    "plain": "",
    "strong": "bold",
    "dim": "dim",
    "good": "ansigreen",
    "warning": "ansiyellow",
    "bad": "ansired",
    "accent": "ansicyan",
}
"""The sixteen colours of the terminal's own theme, and no backgrounds: readable on light and on dark."""


def cut_line(line: FragmentLine, width: int) -> FragmentLine:
    """What fits, with `…` where something is left out."""
    left = width - sum(text_width(text) for _, text in line)
    if left >= 0:
        return line
    kept: FragmentLine = []
    for style, text in line:
        size = text_width(text)
        if size >= width:
            return [*kept, (style, truncate_to_width(text + " ", width))]
        kept.append((style, text))
        width -= size
    return kept


def wrap(text: str, width: int) -> list[str]:
    """Lines of at most `width` columns, broken between words where they can be."""
    return ["".join(run.text for run in row) for row in wrap_row([StyledRun(text)], max(width, 2))]


def join_lines(lines: list[FragmentLine]) -> StyleAndTextTuples:
    """For a control that draws several lines."""
    pieces: FragmentLine = []
    for at, line in enumerate(lines):
        if at:
            pieces.append(("", "\n"))
        pieces.extend(line)
    return as_formatted_text(pieces)


def as_formatted_text(line: FragmentLine) -> StyleAndTextTuples:
    """As prompt_toolkit's types have it."""
    return cast("StyleAndTextTuples", line)


def styled_fragments(line: StyledLine, more: str = "") -> FragmentLine:
    return [(f"{STYLES[span.tone]} {more}".strip(), span.text) for span in line]


def visible_range(count: int, marked: int, height: int) -> range:
    """Those of `count` lines that are shown in `height`, with the marked one among them."""
    height = max(height, 1)
    first = min(max(marked - height // 2, 0), max(count - height, 0))
    return range(first, min(first + height, count))
