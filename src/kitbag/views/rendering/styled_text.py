"""Text with styles in lines that fit: cleaned, wrapped at words, and written for a terminal or without colour.

Used by everything that renders blocks. `Cleaner` is the one place through which texts of others come in; `written` is
the only one that makes escape sequences, and they are nothing but colours.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from kitbag.text.hidden_characters import for_terminal
from kitbag.text.terminal_width import chop, cut, tokens, width_of
from kitbag.views.blocks import Tone

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


_LONG: Final = 40
"""Characters from which on words are not laid one by one."""


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
        self._room = width - sum(width_of(run.text) for run in rest)
        self._begin(first)

    def _begin(self, prefix: Row) -> None:
        self._row: list[Run] = list(prefix)
        self._used = sum(width_of(run.text) for run in prefix)
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
        for text, style in parts:
            if self._used + len(text) <= self._width and text.isascii():
                self._row.append(Run(text, style))
                self._used += len(text)
                continue
            first, *others = chop(text, self._width - self._used, self._room)
            self._row.append(Run(first, style))
            self._used += width_of(first)
            for piece in others:
                self.end_line()
                self._row.append(Run(piece, style))
                self._used += width_of(piece)
        self._is_fresh = False

    def fill(self, text: str, style: str) -> None:
        """Words of ASCII with blanks before and between them, a line at a time."""
        while text:
            room = self._width - self._used
            if len(text) <= room:
                self._row.append(Run(text, style))
                self._used += len(text)
                self._is_fresh = False
                return
            at = text.rfind(" ", 0, room + 1)
            if text[:at].strip(" ") if at > 0 else False:
                self._row.append(Run(text[:at], style))
                self.end_line()
            elif not self._is_fresh:
                self.end_line()
            else:  # a word that is longer than a line
                word, _, rest = text.lstrip(" ").partition(" ")
                self.word([Run(word, style)], len(word))
                text = f" {rest}" if rest.strip(" ") else ""
                continue
            text = text[max(at, 0) :].lstrip(" ")


def _middle(text: str) -> tuple[int, int]:
    """Of a long text of plain words, all between the first and the last, which may go on in what is beside them."""
    if len(text) > _LONG and text.isascii() and "\n" not in text:
        start = text.find(" ")
        end = text.rfind(" ")
        if 0 <= start < end and text[start:end].strip(" "):
            return start, end
    return len(text), len(text)


def wrapped(row: Iterable[Run], width: int, first: Row = (), rest: Row | None = None) -> list[list[Run]]:
    """Between words. `first` stands before the first line, `rest` before the others."""
    page = _Page(width, *_before(first, rest, width))
    parts: list[Run] = []
    size = 0
    for text, style in row:
        while text:
            start, end = _middle(text)
            for piece in tokens(text[:start]):
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
            if start < end:
                if parts:
                    page.word(parts, size)
                    parts, size = [], 0
                page.fill(text[start:end], style)
            text = text[end:] if start < end else ""
    if parts:
        page.word(parts, size)
    page.end_line()
    return page.rows


def chopped(row: Iterable[Run], width: int, first: Row = (), rest: Row | None = None) -> list[list[Run]]:
    """Of one line where blanks count, such as code: cut where it is too long, not between words."""
    first, rest = _before(first, rest, width)
    current = list(first)
    row = list(row)
    if len(row) == 1 and len(row[0].text) < width // 2 and row[0].text.isascii():
        return [[*current, *row]]  # as most lines are; half of it may be what stands before
    used = sum(width_of(run.text) for run in first)
    start = sum(width_of(run.text) for run in rest)
    rows: list[list[Run]] = []
    for text, style in row:
        head, *others = chop(text, width - used, width - start)
        current.append(Run(head, style))
        used += width_of(head)
        for piece in others:
            rows.append(current)
            current = [*rest, Run(piece, style)]
            used = start + width_of(piece)
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
    runs = _stripped(_joined(row))
    if sum(width_of(run.text) for run in runs) > width:
        left = width
        for at, (text, style) in enumerate(runs):
            runs[at] = Run(cut(text, left), style)
            left -= width_of(runs[at].text)
        runs = _stripped(runs)
    parts = [f"\x1b[{style}m{text}\x1b[0m" if colour and style and text else text for text, style in runs]
    return "".join((*parts, "\n"))


def _joined(row: Row) -> list[Run]:
    joined: list[Run] = []
    for run in row:
        if joined and joined[-1].style == run.style:
            joined[-1] = Run(joined[-1].text + run.text, run.style)
        elif run.text:
            joined.append(run)
    return [
        Run(_CONTROL.sub("?", text), style) if _CONTROL.search(text) else Run(text, style) for text, style in joined
    ]


def _stripped(runs: list[Run]) -> list[Run]:
    """Without blanks at the end."""
    while runs and not runs[-1].text.rstrip(" "):
        runs.pop()
    if runs and runs[-1].text.endswith(" "):
        runs[-1] = runs[-1]._replace(text=runs[-1].text.rstrip(" "))
    return runs


def both(outer: str, inner: str) -> str:
    """Two styles at once."""
    return f"{outer};{inner}" if outer and inner else outer or inner
