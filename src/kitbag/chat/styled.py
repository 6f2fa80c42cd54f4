"""Text with styles in lines that fit: cleaned, wrapped at words, and written for a terminal or without colour.

Used by everything that renders blocks. `Cleaner` is the one place through which texts of others come in; `written` is
the only one that makes escape sequences, and they are nothing but colours.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from kitbag.chat.blocks import Tone
from kitbag.chat.cells import cut, split, tokens, width_of
from kitbag.text.hidden import for_terminal

TONES: Final[dict[Tone, str]] = {
    "plain": "",
    "strong": "1",
    "dim": "2",
    "good": "32",
    "warning": "33",
    "bad": "31",
    "accent": "36",
}
_TAB: Final = 4
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")
_LONGEST_LINE: Final = 2_000
"""Of a field that is one line: more can't be seen anyway."""


class Run(NamedTuple):
    text: str
    style: str = ""
    """What stands in an escape sequence: `1;36`."""


Row = Sequence[Run]


class Cleaner:
    """Takes secrets out, then makes visible whatever would act on a terminal or hide in it."""

    def __init__(self, hide: Callable[[str], str]) -> None:
        self._hide = hide

    def text(self, text: str) -> str:
        """Of several lines."""
        if "\r" in text:
            text = text.replace("\r\n", "\n")
        return for_terminal(self._hide(text)).expandtabs(_TAB)

    def line(self, text: str) -> str:
        """Of one."""
        shown = self._hide(text)
        if len(shown) > _LONGEST_LINE:
            shown = shown[:_LONGEST_LINE] + "…"
        return for_terminal(" ".join(shown.splitlines()) if "\n" in shown else shown).expandtabs(_TAB)


class _Page:
    """Lines as they are filled."""

    def __init__(self, width: int, first: Row, rest: Row) -> None:
        self.rows: list[list[Run]] = []
        self._width = width
        self._rest = rest
        self._begin(first)

    def _begin(self, prefix: Row) -> None:
        self._row: list[Run] = list(prefix)
        self._used = self._start = sum(width_of(run.text) for run in prefix)
        self._blanks: list[Run] = []
        self._blank_width = 0
        self._is_fresh = True

    def end_line(self) -> None:
        self.rows.append(self._row)
        self._begin(self._rest)

    def blanks(self, run: Run) -> None:
        """Kept only where a word follows on the same line."""
        self._blanks.append(run)
        self._blank_width += len(run.text)

    def word(self, parts: list[Run], width: int) -> None:
        if self._used + self._blank_width + width > self._width and not self._is_fresh:
            self.end_line()
        if self._blank_width and self._used + self._blank_width < self._width:
            self._row += self._blanks
            self._used += self._blank_width
        self._blanks, self._blank_width = [], 0
        self._is_fresh = False
        for text, style in parts:
            while self._used + width_of(text) > self._width:
                fitting, text = split(text, max(self._width - self._used, 1))
                if width_of(fitting) > self._width - self._used and self._used > self._start:
                    fitting, text = "", fitting + text
                self._row.append(Run(fitting, style))
                if not text:
                    self._used += width_of(fitting)
                    break
                self.end_line()
                self._is_fresh = False
                if self._start + 1 >= self._width:
                    return  # nothing fits here: a terminal of a few columns
            else:
                self._row.append(Run(text, style))
                self._used += width_of(text)


def wrapped(row: Iterable[Run], width: int, first: Row = (), rest: Row | None = None) -> list[list[Run]]:
    """Between words. `first` stands before the first line, `rest` before the others."""
    page = _Page(width, *_before(first, rest, width))
    parts: list[Run] = []
    size = 0
    for text, style in row:
        for piece in tokens(text):
            if piece[0] not in " \n" and (len(piece) > 1 or piece.isascii()):
                parts.append(Run(piece, style))
                size += width_of(piece)
                continue
            if parts:
                page.word(parts, size)
                parts, size = [], 0
            if piece[0] == "\n":
                page.end_line()
            elif piece[0] == " ":
                page.blanks(Run(piece, style))
            else:
                page.word([Run(piece, style)], width_of(piece))
    if parts:
        page.word(parts, size)
    page.end_line()
    return page.rows


def chopped(row: Iterable[Run], width: int, first: Row = (), rest: Row | None = None) -> list[list[Run]]:
    """Of one line where blanks count, such as code: cut where it is too long, not between words."""
    first, rest = _before(first, rest, width)
    current = list(first)
    used = start = sum(width_of(run.text) for run in first)
    rows: list[list[Run]] = []
    for text, style in row:
        while used + width_of(text) > width:
            fitting, text = split(text, max(width - used, 1))
            if width_of(fitting) > width - used and used > start:
                fitting, text = "", fitting + text
            current.append(Run(fitting, style))
            rows.append(current)
            current = list(rest)
            used = start = sum(width_of(run.text) for run in rest)
            if start + 1 >= width:
                return rows  # nothing fits here
        if text:
            current.append(Run(text, style))
            used += width_of(text)
    rows.append(current)
    return rows


def _before(first: Row, rest: Row | None, width: int) -> tuple[Row, Row]:
    """What stands before lines, unless it leaves no room for them."""
    rest = first if rest is None else rest
    most = width - min(8, width // 2 + 1)
    first_fits, rest_fits = (sum(width_of(run.text) for run in one) <= most for one in (first, rest))
    return first if first_fits else (), rest if rest_fits else ()


def written(rows: Iterable[Row], width: int, *, colour: bool) -> str:
    """Each line with its end, without blanks at the end, never wider than the width."""
    return "".join(_written_row(row, width, colour) for row in rows)


def _written_row(row: Row, width: int, colour: bool) -> str:
    runs: list[Run] = []
    left = width
    for text, style in _joined(row):
        text = _CONTROL.sub("?", text)
        if width_of(text) > left:
            text = cut(text, left)
        left -= width_of(text)
        runs.append(Run(text, style))
    while runs and not runs[-1].text.rstrip(" "):
        runs.pop()
    if runs:
        runs[-1] = runs[-1]._replace(text=runs[-1].text.rstrip(" "))
    parts = [f"\x1b[{style}m{text}\x1b[0m" if colour and style and text else text for text, style in runs]
    return "".join((*parts, "\n"))


def _joined(row: Row) -> list[Run]:
    joined: list[Run] = []
    for run in row:
        if joined and joined[-1].style == run.style:
            joined[-1] = Run(joined[-1].text + run.text, run.style)
        elif run.text:
            joined.append(run)
    return joined


def both(outer: str, inner: str) -> str:
    """Two styles at once."""
    return f"{outer};{inner}" if outer and inner else outer or inner
