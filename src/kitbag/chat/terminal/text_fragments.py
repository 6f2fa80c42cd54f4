"""Lines of prompt_toolkit fragments: parses, truncates, wraps and joins them.

Used by all modules of the terminal UI. Widths are in terminal cells, as in views/rendering.
"""

import re
from typing import Final, cast

from prompt_toolkit.formatted_text import ANSI, StyleAndTextTuples, to_formatted_text

from kitbag.text.terminal_width import text_width, truncate_to_width
from kitbag.views.blocks import StyledLine, Tone
from kitbag.views.rendering.styled_text import StyledRun, wrap_row

Fragment = tuple[str, str]
"""(style, text), as in prompt_toolkit."""
FragmentLine = list[Fragment]

STYLES: Final[dict[Tone, str]] = {
    "plain": "",
    "strong": "bold",
    "dim": "dim",
    "good": "ansigreen",
    "warning": "ansiyellow",
    "bad": "ansired",
    "accent": "ansicyan",
}
"""Colors of the terminal's theme without backgrounds: readable on light and dark."""
_COLOR: Final = re.compile(r"\x1b\[([0-9;]*)m")
_STYLES_BY_COLOR: Final[dict[str, str]] = {}
_MAX_STYLES: Final = 1000


def cut_line(line: FragmentLine, width: int) -> FragmentLine:
    """Truncates to `width`, with `…` at the end."""
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
    """Lines of at most `width` columns, broken between words if possible."""
    return ["".join(run.text for run in row) for row in wrap_row([StyledRun(text)], max(width, 2))]


def join_lines(lines: list[FragmentLine]) -> StyleAndTextTuples:
    """For a control with several lines."""
    fragments: FragmentLine = []
    for at, line in enumerate(lines):
        if at:
            fragments.append(("", "\n"))
        fragments.extend(line)
    return as_formatted_text(fragments)


def as_formatted_text(line: FragmentLine) -> StyleAndTextTuples:
    """Casts to prompt_toolkit's invariant type."""
    return cast("StyleAndTextTuples", line)


def styled_fragments(line: StyledLine, extra_style: str = "") -> FragmentLine:
    return [(f"{STYLES[span.tone]} {extra_style}".strip(), span.text) for span in line]


def visible_range(count: int, cursor: int, height: int) -> range:
    """The range of `count` lines to show in `height` rows so that line `cursor` is visible."""
    height = max(height, 1)
    first = min(max(cursor - height // 2, 0), max(count - height, 0))
    return range(first, min(first + height, count))


def parse_ansi_lines(text: str) -> list[FragmentLine]:
    """Parses text with colors (SGR sequences). Other escape sequences are shown, not executed. A trailing line break
    adds no line."""
    lines: list[FragmentLine] = []
    colors = ""
    for row in text.removesuffix("\n").split("\n") if text else []:
        line: FragmentLine = []
        for at, part in enumerate(_COLOR.split(row)):
            if at % 2:
                colors = "" if part in ("", "0") else f"{colors}\x1b[{part}m"
            elif part:
                line.append((_style(colors), part))
        lines.append(line)
    return lines


def _style(colors: str) -> str:
    if not colors:
        return ""
    style = _STYLES_BY_COLOR.get(colors)
    if style is None:
        if len(_STYLES_BY_COLOR) >= _MAX_STYLES:
            _STYLES_BY_COLOR.clear()
        fragments = to_formatted_text(ANSI(f"{colors}x"))
        style = _STYLES_BY_COLOR[colors] = fragments[0][0] if fragments else ""
    return style
