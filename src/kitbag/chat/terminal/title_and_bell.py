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
_SAVE_TITLE: Final = "\x1b[22;2t"
_RESTORE_TITLE: Final = "\x1b]2;\x1b\\\x1b[23;2t"
"""Clears the title, then restores the saved one if the terminal saved it."""
_TITLE_TERMS: Final = (
    "xterm",
    "tmux",
    "screen",
    "rxvt",
    "alacritty",
    "foot",
    "konsole",
    "wezterm",
    "contour",
    "st-",
    "vte",
)
"""Prefixes of TERM that support titles; others might print them."""
_MARKS: Final = {"asks": "? ", "works": "… ", "rests": ""}
_MAX_TITLE_LENGTH: Final = 60

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
        self._bell = bell
        self._has_title = environment.get("TERM", "").startswith(_TITLE_TERMS)
        self._last_key = clock()
        self._state: AttentionState = "rests"
        self._title = ""

    def record_key(self) -> None:
        self._last_key = self._clock()

    def update(self, state: AttentionState, directory: str) -> None:
        before, self._state = self._state, state
        self._update_title(state, directory)
        is_notable = state == "asks" or (state == "rests" and before == "works")
        if self._bell and is_notable and state != before and self._clock() - self._last_key >= AWAY_SECONDS:
            self._write(_BELL)

    def _update_title(self, state: AttentionState, directory: str) -> None:
        folder = self._clean(os.path.basename(directory))
        title = f"{_MARKS[state]}kitbag{f' · {folder}' if folder else ''}"[:_MAX_TITLE_LENGTH]
        if not self._has_title or title == self._title:
            return
        self._write(f"{'' if self._title else _SAVE_TITLE}\x1b]2;{title}\x1b\\")
        self._title = title

    def restore(self) -> None:
        """Restores the previous title."""
        if self._title:
            self._title = ""
            self._write(_RESTORE_TITLE)
