"""Parses text with colors (SGR sequences) into prompt_toolkit fragments.

Used by terminal_ui for the unfinished end of a reply. Other escape sequences are shown, not executed.
"""

import re
from typing import Final

from prompt_toolkit.formatted_text import ANSI, to_formatted_text

from kitbag.chat.terminal.text_fragments import FragmentLine

_COLOR: Final = re.compile(r"\x1b\[([0-9;]*)m")
_STYLES: Final[dict[str, str]] = {}
_MAX_STYLES: Final = 1000


def parse_ansi_lines(text: str) -> list[FragmentLine]:
    """A trailing line break adds no line."""
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
    style = _STYLES.get(colors)
    if style is None:
        if len(_STYLES) >= _MAX_STYLES:
            _STYLES.clear()
        fragments = to_formatted_text(ANSI(f"{colors}x"))
        style = _STYLES[colors] = fragments[0][0] if fragments else ""
    return style
