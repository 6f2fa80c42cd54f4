"""What a terminal does with lines that no longer fit when it becomes narrower: rewraps or truncates them.

Used by inline_screen, which erases the last frame after a resize, and terminal_ui.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from kitbag.chat.terminal.text_fragments import FragmentLine, cut_line
from kitbag.text.terminal_width import text_width

_REFLOWING_VARIABLES: Final = (
    "VTE_VERSION",
    "KITTY_WINDOW_ID",
    "WEZTERM_PANE",
    "ALACRITTY_WINDOW_ID",
    "KONSOLE_VERSION",
    "WT_SESSION",
    "GHOSTTY_RESOURCES_DIR",
    "ITERM_SESSION_ID",
)
_REFLOWING_TERMS: Final = ("xterm-kitty", "alacritty", "foot", "xterm-ghostty", "wezterm", "rxvt-unicode")
_REFLOWING_NAMES: Final = (
    "tmux",
    "kitty",
    "wezterm",
    "vte(",
    "iterm2",
    "foot",
    "ghostty",
    "konsole",
    "contour",
    "mintty",
    "xterm.js",
)
_TRUNCATING_NAMES: Final = ("xterm(", "screen")
"""Starts of the names that terminals report (XTVERSION)."""


class Reflow(msgspec.Struct, frozen=True, kw_only=True):
    """What the terminal does with lines that no longer fit when it becomes narrower."""

    rewraps: bool = False
    """It rewraps them, so that the last frame takes more rows. Otherwise it truncates them, as xterm does."""
    is_tmux: bool = False
    """tmux rewraps a row at the widest text it ever held, even where that was erased since, and may tell programs of
    its new size a quarter of a second later."""


class RewrapRoom(msgspec.Struct, frozen=True, kw_only=True):
    """What part of a frame may take if the terminal becomes narrower: what scrolls away can't be erased."""

    columns: int
    """Of the narrow terminal."""
    added: int
    """Rows that may be added. tmux scrolls for each, even if rows below are empty."""
    rows: int
    """All rows."""

    def cut(self, lines: list[FragmentLine]) -> list[FragmentLine]:
        """The longest first, until they fit."""
        lines = list(lines)
        for at in sorted(range(len(lines)), key=lambda at: line_width(lines[at]), reverse=True):
            if self._fits(lines):
                break
            lines[at] = cut_line(lines[at], self.columns)
        return lines

    def fit_tail(self, tail: list[FragmentLine], below: list[FragmentLine]) -> list[FragmentLine]:
        """The last lines: as many as fit, and at least one that is not blank."""
        last = max((at for at, line in enumerate(tail) if line), default=0)
        start = next((at for at in range(last) if self._fits([*tail[at:], *below])), last)
        return tail[start:]

    def _fits(self, lines: list[FragmentLine]) -> bool:
        added = added_rows(lines, self.columns)
        return added <= self.added and len(lines) + added <= self.rows


def added_rows(lines: list[FragmentLine], columns: int) -> int:
    """By rewrapping the lines."""
    return sum((max(line_width(line), 1) - 1) // columns for line in lines)


def line_width(line: FragmentLine) -> int:
    return sum(text_width(text) for _, text in line)


def guess_reflow(environment: Mapping[str, str]) -> Reflow:
    """What the environment says. A wrong guess that lines are rewrapped would erase text above the frame, so an unknown
    terminal is taken for one that truncates."""
    kind = environment.get("TERM", "")
    if environment.get("STY") and not kind.startswith("tmux"):
        return Reflow()  # GNU screen truncates; other variables are those of the terminal it runs in
    if environment.get("TMUX") or kind.startswith("tmux"):
        return Reflow(rewraps=True, is_tmux=True)
    return Reflow(
        rewraps=any(environment.get(name) for name in _REFLOWING_VARIABLES)
        or kind.startswith(_REFLOWING_TERMS)
        or environment.get("TERM_PROGRAM", "") in ("vscode", "Apple_Terminal")
    )


def reflow_of(name: str, guess: Reflow) -> Reflow:
    """For the name that the terminal reported, also through SSH; `guess` if the name is unknown."""
    name = name.lower()
    if name.startswith(_REFLOWING_NAMES):
        return Reflow(rewraps=True, is_tmux=name.startswith("tmux"))
    return Reflow() if name.startswith(_TRUNCATING_NAMES) else guess
