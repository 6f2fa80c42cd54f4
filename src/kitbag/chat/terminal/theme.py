"""Colors for a light background: the terminal's own yellow, cyan and green are often too pale there.

Used by terminal_ui if the background is light. On a dark one, the terminal's own colors are used.
"""

import re
from typing import Final

from prompt_toolkit.styles import Attrs, StyleTransformation

_PALETTE: Final = {
    "red": ("31", "91", 124, "af0000"),
    "green": ("32", "92", 28, "008700"),
    "yellow": ("33", "93", 94, "875f00"),
    "blue": ("34", "94", 19, "0000af"),
    "magenta": ("35", "95", 90, "870087"),
    "cyan": ("36", "96", 24, "005f87"),
}
"""Name: SGR codes, normal and bright; the color of the 256 that replaces both, and its RGB value."""
_CODES: Final = {code: f"38;5;{index}" for *codes, index, _ in _PALETTE.values() for code in codes}
_NAMES: Final = {name: rgb for color, (*_, rgb) in _PALETTE.items() for name in (f"ansi{color}", f"ansibright{color}")}
_SGR: Final = re.compile(r"\x1b\[([0-9;]+)m")


def darken_text(text: str) -> str:
    """Replaces the colors of rendered text."""
    return _SGR.sub(lambda found: f"\x1b[{';'.join(_CODES.get(code, code) for code in found[1].split(';'))}m", text)


class DarkenedColors(StyleTransformation):
    """Replaces the colors of what prompt_toolkit draws."""

    def transform_attrs(self, attrs: Attrs) -> Attrs:
        rgb = _NAMES.get(attrs.color or "")
        return attrs._replace(color=rgb) if rgb else attrs
