"""Parses text with colors (SGR sequences) into prompt_toolkit fragments.

Used by terminal_ui for the unfinished end of a reply. Other escape sequences are shown, not executed.
"""

import re
from typing import Final

from prompt_toolkit.formatted_text import ANSI, to_formatted_text

from kitbag.chat.terminal.text_fragments import FragmentLine

_COLOUR: Final = re.compile(r"\x1b\[([0-9;]*)m")
_STYLES: Final[dict[str, str]] = {}
_MOST_STYLES: Final = 1000


def parse_ansi_lines(text: str) -> list[FragmentLine]:
    """A trailing line break adds no line."""
    lines: list[FragmentLine] = []
    colours = ""
    for row in text.removesuffix("\n").split("\n") if text else []:
        line: FragmentLine = []
        for at, part in enumerate(_COLOUR.split(row)):
            if at % 2:
                colours = "" if part in ("", "0") else f"{colours}\x1b[{part}m"
            elif part:
                line.append((_style(colours), part))
        lines.append(line)
    return lines


def _style(colours: str) -> str:
    if not colours:
        return ""
    found = _STYLES.get(colours)
    if found is None:
        if len(_STYLES) >= _MOST_STYLES:
            _STYLES.clear()
        pieces = to_formatted_text(ANSI(f"{colours}x"))
        found = _STYLES[colours] = pieces[0][0] if pieces else ""
    return found
