"""Notifies a user who looks elsewhere: the window title shows the state, and the bell rings when a question waits or a
turn ended while the user was away.

Used by terminal_ui, which reports the state before each frame. Writes only on changes.
"""

import os
from collections.abc import Callable, Mapping
from typing import Final, Literal

AWAY_SECONDS: Final = 10.0
"""No bell for a user who typed within this time."""
_BELL: Final = "\a"
_KEEP_TITLE: Final = "\x1b[22;2t"
_OLD_TITLE: Final = "\x1b]2;\x1b\\\x1b[23;2t"
"""Clears the title, then restores the saved one if the terminal saved it."""
_TITLED: Final = ("xterm", "tmux", "screen", "rxvt", "alacritty", "foot", "konsole", "wezterm", "contour", "st-", "vte")
"""Prefixes of TERM that support titles; others might print them."""
_MARKS: Final = {"asks": "? ", "works": "… ", "rests": ""}
_LONGEST: Final = 60

AttentionState = Literal["asks", "works", "rests"]


class TitleAndBell:
    def __init__(
        self,
        write: Callable[[str], None],
        clean: Callable[[str], str],
        clock: Callable[[], float],
        environment: Mapping[str, str],
        *,
        bell: bool,
    ) -> None:
        self._write = write
        self._clean = clean
        self._clock = clock
        self._rings = bell
        self._has_title = environment.get("TERM", "").startswith(_TITLED)
        self._last_key = clock()
        self._standing: AttentionState = "rests"
        self._title = ""

    def record_key(self) -> None:
        self._last_key = self._clock()

    def update(self, standing: AttentionState, directory: str) -> None:
        before, self._standing = self._standing, standing
        self._name_window(standing, directory)
        is_news = standing == "asks" or (standing == "rests" and before == "works")
        if self._rings and is_news and standing != before and self._clock() - self._last_key >= AWAY_SECONDS:
            self._write(_BELL)

    def _name_window(self, standing: AttentionState, directory: str) -> None:
        folder = self._clean(os.path.basename(directory))
        title = f"{_MARKS[standing]}kitbag{f' · {folder}' if folder else ''}"[:_LONGEST]
        if not self._has_title or title == self._title:
            return
        self._write(f"{'' if self._title else _KEEP_TITLE}\x1b]2;{title}\x1b\\")
        self._title = title

    def restore(self) -> None:
        """Restores the previous title."""
        if self._title:
            self._title = ""
            self._write(_OLD_TITLE)
