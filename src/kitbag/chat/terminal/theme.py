"""Colors of the chat for a dark or a light background, or none.

Used by terminal_ui. On a light background the terminal's own yellow, cyan and green are often too pale and replaced; on
a dark one they are used.
"""

import re
from collections.abc import Mapping
from typing import Final

from prompt_toolkit.styles import Attrs, DummyStyleTransformation, StyleTransformation

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


_PART: Final = "([0-9a-fA-F]{1,4})"
_COLOR: Final = re.compile(rf"rgba?:{_PART}/{_PART}/{_PART}(?:/[0-9a-fA-F]+)?")
_SHORT_COLOR: Final = re.compile("#([0-9a-fA-F]{2})([0-9a-fA-F]{2})([0-9a-fA-F]{2})")
_WEIGHTS: Final = (0.299, 0.587, 0.114)
"""How bright red, green and blue look (ITU-R BT.601)."""


class ChatTheme:
    def __init__(self, setting: str, environment: Mapping[str, str]) -> None:
        """`setting`: `chat.theme`."""
        self.is_colored = not environment.get("NO_COLOR")
        self.follows_terminal = self.is_colored and setting == "auto"
        """The background decides; until the terminal has reported it, `COLORFGBG`."""
        is_light = setting == "light" or (self.follows_terminal and has_light_background(environment))
        self._is_light = self.is_colored and is_light

    def set_background(self, color: str) -> None:
        """As the terminal reported it."""
        is_light = is_light_color(color)
        if self.follows_terminal and is_light is not None:
            self._is_light = is_light

    @property
    def style_transformation(self) -> StyleTransformation:
        """For what prompt_toolkit draws."""
        return _DarkenedColors() if self._is_light else DummyStyleTransformation()

    def apply(self, text: str) -> str:
        """For rendered text."""
        return _SGR.sub(_darken, text) if self._is_light else text


def is_light_color(color: str) -> bool | None:
    """`rgb:ffff/ffff/ffff` or `#ffffff`; None if it is no color."""
    found = _COLOR.fullmatch(color) or _SHORT_COLOR.fullmatch(color)
    if found is None or len({len(part) for part in found.groups()}) > 1:
        return None
    parts = [int(part, 16) / (16 ** len(part) - 1) for part in found.groups()]
    return sum(part * weight for part, weight in zip(parts, _WEIGHTS, strict=True)) > 0.5


def has_light_background(environment: Mapping[str, str]) -> bool:
    """As terminals such as rxvt and Konsole report it: `COLORFGBG=0;15`."""
    return environment.get("COLORFGBG", "").rpartition(";")[2] in ("7", "15")


def _darken(found: "re.Match[str]") -> str:
    return f"\x1b[{';'.join(_CODES.get(code, code) for code in found[1].split(';'))}m"


class _DarkenedColors(StyleTransformation):
    def transform_attrs(self, attrs: Attrs) -> Attrs:
        rgb = _NAMES.get(attrs.color or "")
        return attrs._replace(color=rgb) if rgb else attrs
