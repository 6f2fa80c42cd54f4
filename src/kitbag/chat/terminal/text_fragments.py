"""Lines of styled pieces, as prompt_toolkit draws them: cut, wrapped and put together.

Used by all parts of the terminal face. Measured by cells, as everything that is rendered.
"""

from typing import Final, cast

from prompt_toolkit.formatted_text import StyleAndTextTuples

from kitbag.text.terminal_width import cut, width_of
from kitbag.views.blocks import Line, Tone
from kitbag.views.rendering.styled_text import Run, wrapped

Piece = tuple[str, str]
"""(style, text), as prompt_toolkit has them."""
Drawn = list[Piece]
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


def cut_line(line: Drawn, width: int) -> Drawn:
    """What fits, with `…` where something is left out."""
    left = width - sum(width_of(text) for _, text in line)
    if left >= 0:
        return line
    kept: Drawn = []
    for style, text in line:
        size = width_of(text)
        if size >= width:
            return [*kept, (style, cut(text + " ", width))]
        kept.append((style, text))
        width -= size
    return kept


def wrap(text: str, width: int) -> list[str]:
    """Lines of at most `width` columns, broken between words where they can be."""
    return ["".join(run.text for run in row) for row in wrapped([Run(text)], max(width, 2))]


def joined(lines: list[Drawn]) -> StyleAndTextTuples:
    """For a control that draws several lines."""
    pieces: Drawn = []
    for at, line in enumerate(lines):
        if at:
            pieces.append(("", "\n"))
        pieces.extend(line)
    return drawable(pieces)


def drawable(line: Drawn) -> StyleAndTextTuples:
    """As prompt_toolkit's types have it."""
    return cast("StyleAndTextTuples", line)


def styled(line: Line, more: str = "") -> Drawn:
    return [(f"{STYLES[span.tone]} {more}".strip(), span.text) for span in line]


def around(count: int, marked: int, height: int) -> range:
    """Those of `count` lines that are shown in `height`, with the marked one among them."""
    height = max(height, 1)
    first = min(max(marked - height // 2, 0), max(count - height, 0))
    return range(first, min(first + height, count))
