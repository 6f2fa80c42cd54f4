"""What a terminal does with lines that no longer fit when it becomes narrower: rewraps or truncates them.

Used by inline_screen, which erases the last frame after a resize, and terminal_ui.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

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
