"""Text with styles in lines that fit: cleaned, wrapped at words, and written for a terminal or without colour.

Used by everything that renders blocks. `Cleaner` is the one place through which texts of others come in; `written` is
the only one that makes escape sequences, and they are nothing but colours.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from kitbag.text.hidden_characters import escape_for_terminal
from kitbag.text.terminal_width import chunk_to_width, text_width, truncate_to_width, wrap_tokens
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
_MAX_LINE_CHARS: Final = 2_000
"""Of a field that is one line: more can't be seen anyway."""


_MIN_FILL_CHARS: Final = 40
"""Characters from which on words are not laid one by one."""


class StyledRun(NamedTuple):
    text: str
    style: str = ""
    """What stands in an escape sequence: `1;36`."""


Row = Sequence[StyledRun]


class Cleaner:
    """Takes secrets out, then makes visible whatever would act on a terminal or hide in it."""

    def __init__(self, hide: Callable[[str], str]) -> None:
        self._hide = hide

    def text(self, text: str) -> str:
        """Of several lines."""
        if "\r" in text:
            text = text.replace("\r\n", "\n")
        return escape_for_terminal(self._hide(text)).expandtabs(_TAB)

    def line(self, text: str) -> str:
        """Of one."""
        shown = self._hide(text)
        if len(shown) > _MAX_LINE_CHARS:
            shown = shown[:_MAX_LINE_CHARS] + "…"
        return escape_for_terminal(" ".join(shown.splitlines()) if "\n" in shown else shown).expandtabs(_TAB)


class _LineFiller:
    """Lines as they are filled."""

    def __init__(self, width: int, first: Row, rest: Row) -> None:
        self.rows: list[list[StyledRun]] = []
        self._width = width
        self._rest = rest
        self._room = width - sum(text_width(run.text) for run in rest)
        self._begin(first)

    def _begin(self, prefix: Row) -> None:
        self._row: list[StyledRun] = list(prefix)
        self._used = sum(text_width(run.text) for run in prefix)
        self._blanks: list[StyledRun] = []
        self._blank_width = 0
        self._is_fresh = True

    def end_line(self) -> None:
        self.rows.append(self._row)
        self._begin(self._rest)

    def blanks(self, run: StyledRun) -> None:
        """Kept only where a word follows on the same line."""
        self._blanks.append(run)
        self._blank_width += len(run.text)

    def word(self, parts: list[StyledRun], width: int) -> None:
        if self._used + self._blank_width + width > self._width and not self._is_fresh:
            self.end_line()
        if self._blank_width and self._used + self._blank_width < self._width:
            self._row += self._blanks
            self._used += self._blank_width
        self._blanks, self._blank_width = [], 0
        for text, style in parts:
            if self._used + len(text) <= self._width and text.isascii():
                self._row.append(StyledRun(text, style))
                self._used += len(text)
                continue
            first, *others = chunk_to_width(text, self._width - self._used, self._room)
            self._row.append(StyledRun(first, style))
            self._used += text_width(first)
            for piece in others:
                self.end_line()
                self._row.append(StyledRun(piece, style))
                self._used += text_width(piece)
        self._is_fresh = False

    def fill(self, text: str, style: str) -> None:
        """Words of ASCII with blanks before and between them, a line at a time."""
        while text:
            room = self._width - self._used
            if len(text) <= room:
                self._row.append(StyledRun(text, style))
                self._used += len(text)
                self._is_fresh = False
                return
            at = text.rfind(" ", 0, room + 1)
            if text[:at].strip(" ") if at > 0 else False:
                self._row.append(StyledRun(text[:at], style))
                self.end_line()
            elif not self._is_fresh:
                self.end_line()
            else:  # a word that is longer than a line
                word, _, rest = text.lstrip(" ").partition(" ")
                self.word([StyledRun(word, style)], len(word))
                text = f" {rest}" if rest.strip(" ") else ""
                continue
            text = text[max(at, 0) :].lstrip(" ")


def _find_middle(text: str) -> tuple[int, int]:
    """Of a long text of plain words, all between the first and the last, which may go on in what is beside them."""
    if len(text) > _MIN_FILL_CHARS and text.isascii() and "\n" not in text:
        start = text.find(" ")
        end = text.rfind(" ")
        if 0 <= start < end and text[start:end].strip(" "):
            return start, end
    return len(text), len(text)


def wrap_row(row: Iterable[StyledRun], width: int, first: Row = (), rest: Row | None = None) -> list[list[StyledRun]]:
    """Between words. `first` stands before the first line, `rest` before the others."""
    page = _LineFiller(width, *_fit_prefixes(first, rest, width))
    parts: list[StyledRun] = []
    size = 0
    for text, style in row:
        while text:
            start, end = _find_middle(text)
            for piece in wrap_tokens(text[:start]):
                if piece[0] not in " \n" and (len(piece) > 1 or piece.isascii()):
                    parts.append(StyledRun(piece, style))
                    size += text_width(piece)
                    continue
                if parts:
                    page.word(parts, size)
                    parts, size = [], 0
                if piece[0] == "\n":
                    page.end_line()
                elif piece[0] == " ":
                    page.blanks(StyledRun(piece, style))
                else:
                    page.word([StyledRun(piece, style)], text_width(piece))
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


def chop_row(row: Iterable[StyledRun], width: int, first: Row = (), rest: Row | None = None) -> list[list[StyledRun]]:
    """Of one line where blanks count, such as code: cut where it is too long, not between words."""
    first, rest = _fit_prefixes(first, rest, width)
    current = list(first)
    row = list(row)
    if len(row) == 1 and len(row[0].text) < width // 2 and row[0].text.isascii():
        return [[*current, *row]]  # as most lines are; half of it may be what stands before
    used = sum(text_width(run.text) for run in first)
    start = sum(text_width(run.text) for run in rest)
    rows: list[list[StyledRun]] = []
    for text, style in row:
        head, *others = chunk_to_width(text, width - used, width - start)
        current.append(StyledRun(head, style))
        used += text_width(head)
        for piece in others:
            rows.append(current)
            current = [*rest, StyledRun(piece, style)]
            used = start + text_width(piece)
    rows.append(current)
    return rows


def _fit_prefixes(first: Row, rest: Row | None, width: int) -> tuple[Row, Row]:
    """What stands before lines, unless it leaves no room for them."""
    rest = first if rest is None else rest
    most = width - min(8, width // 2 + 1)
    first_fits, rest_fits = (sum(text_width(run.text) for run in one) <= most for one in (first, rest))
    return first if first_fits else (), rest if rest_fits else ()


def write_rows(rows: Iterable[Row], width: int, *, color: bool) -> str:
    """Each line with its end, without blanks at the end, never wider than the width."""
    return "".join(_write_row(row, width, color) for row in rows)


def _write_row(row: Row, width: int, color: bool) -> str:
    runs = _strip_trailing(_merge_runs(row))
    if sum(text_width(run.text) for run in runs) > width:
        left = width
        for at, (text, style) in enumerate(runs):
            runs[at] = StyledRun(truncate_to_width(text, left), style)
            left -= text_width(runs[at].text)
        runs = _strip_trailing(runs)
    parts = [f"\x1b[{style}m{text}\x1b[0m" if color and style and text else text for text, style in runs]
    return "".join((*parts, "\n"))


def _merge_runs(row: Row) -> list[StyledRun]:
    joined: list[StyledRun] = []
    for run in row:
        if joined and joined[-1].style == run.style:
            joined[-1] = StyledRun(joined[-1].text + run.text, run.style)
        elif run.text:
            joined.append(run)
    return [
        StyledRun(_CONTROL.sub("?", text), style) if _CONTROL.search(text) else StyledRun(text, style)
        for text, style in joined
    ]


def _strip_trailing(runs: list[StyledRun]) -> list[StyledRun]:
    """Without blanks at the end."""
    while runs and not runs[-1].text.rstrip(" "):
        runs.pop()
    if runs and runs[-1].text.endswith(" "):
        runs[-1] = runs[-1]._replace(text=runs[-1].text.rstrip(" "))
    return runs


def combine_styles(outer: str, inner: str) -> str:
    """Two styles at once."""
    return f"{outer};{inner}" if outer and inner else outer or inner
