"""Styled text in rows that fit a width: cleaned, wrapped at words, written with or without color.

Used by everything that renders blocks. All foreign text enters through `Cleaner`; only `write_rows` writes escape
sequences, and only colors.
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
"""Of a one-line field: more would not be visible."""


_MIN_FILL_CHARS: Final = 40
"""Longer plain text is filled line by line instead of word by word."""


class StyledRun(NamedTuple):
    text: str
    style: str = ""
    """Parameters of an escape sequence: `1;36`."""


Row = Sequence[StyledRun]


class Cleaner:
    """Redacts secrets, then makes visible everything that would control or hide in a terminal."""

    def __init__(self, hide: Callable[[str], str], *, keeps_tabs: bool = False) -> None:
        """`keeps_tabs`: where text is copied, tabs stay; in a terminal they become spaces."""
        self._hide = hide
        self._keeps_tabs = keeps_tabs

    def text(self, text: str) -> str:
        """For several lines."""
        if "\r" in text:
            text = text.replace("\r\n", "\n")
        visible = escape_for_terminal(self._hide(text))
        return visible if self._keeps_tabs else visible.expandtabs(_TAB)

    def line(self, text: str) -> str:
        """For one line."""
        redacted = self._hide(text)
        if len(redacted) > _MAX_LINE_CHARS:
            redacted = redacted[:_MAX_LINE_CHARS] + "…"
        return escape_for_terminal(" ".join(redacted.splitlines()) if "\n" in redacted else redacted).expandtabs(_TAB)


class _LineFiller:
    """Fills lines with words."""

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
        """Kept only if a word follows on the same line."""
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
        """ASCII words with spaces before and between them, a line at a time."""
        while text:
            columns_left = self._width - self._used
            if len(text) <= columns_left:
                self._row.append(StyledRun(text, style))
                self._used += len(text)
                self._is_fresh = False
                return
            break_at = text.rfind(" ", 0, columns_left + 1)
            if text[:break_at].strip(" ") if break_at > 0 else False:
                self._row.append(StyledRun(text[:break_at], style))
                self.end_line()
            elif not self._is_fresh:
                self.end_line()
            else:  # a word longer than a line
                word, _, rest = text.lstrip(" ").partition(" ")
                self.word([StyledRun(word, style)], len(word))
                text = f" {rest}" if rest.strip(" ") else ""
                continue
            text = text[max(break_at, 0) :].lstrip(" ")


def _find_middle(text: str) -> tuple[int, int]:
    """In long plain text everything between the first and the last word, which may continue in the adjacent runs."""
    if len(text) > _MIN_FILL_CHARS and text.isascii() and "\n" not in text:
        start = text.find(" ")
        end = text.rfind(" ")
        if 0 <= start < end and text[start:end].strip(" "):
            return start, end
    return len(text), len(text)


def wrap_row(row: Iterable[StyledRun], width: int, first: Row = (), rest: Row | None = None) -> list[list[StyledRun]]:
    """At words. `first` precedes the first line, `rest` the others."""
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
    """For a line in which whitespace matters, such as code: cut at the width, not at words."""
    first, rest = _fit_prefixes(first, rest, width)
    current = list(first)
    row = list(row)
    if len(row) == 1 and len(row[0].text) < width // 2 and row[0].text.isascii():
        return [[*current, *row]]  # the common case; the prefix may take the other half
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
    """The line prefixes, unless they leave no room for text."""
    rest = first if rest is None else rest
    max_prefix = width - min(8, width // 2 + 1)
    first_fits, rest_fits = (sum(text_width(run.text) for run in prefix) <= max_prefix for prefix in (first, rest))
    return first if first_fits else (), rest if rest_fits else ()


def write_rows(rows: Iterable[Row], width: int, *, color: bool) -> str:
    """One line per row, without trailing spaces, never wider than the width."""
    return "".join(_write_row(row, width, color) for row in rows)


def _write_row(row: Row, width: int, color: bool) -> str:
    runs = _strip_trailing(_merge_runs(row))
    if sum(text_width(run.text) for run in runs) > width:
        columns_left = width
        for index, (text, style) in enumerate(runs):
            runs[index] = StyledRun(truncate_to_width(text, columns_left), style)
            columns_left -= text_width(runs[index].text)
        runs = _strip_trailing(runs)
    parts = [f"\x1b[{style}m{text}\x1b[0m" if color and style and text else text for text, style in runs]
    return "".join((*parts, "\n"))


def _merge_runs(row: Row) -> list[StyledRun]:
    merged: list[StyledRun] = []
    for run in row:
        if merged and merged[-1].style == run.style:
            merged[-1] = StyledRun(merged[-1].text + run.text, run.style)
        elif run.text:
            merged.append(run)
    return [
        StyledRun(_CONTROL.sub("?", text), style) if _CONTROL.search(text) else StyledRun(text, style)
        for text, style in merged
    ]


def _strip_trailing(runs: list[StyledRun]) -> list[StyledRun]:
    """Without trailing spaces."""
    while runs and not runs[-1].text.rstrip(" "):
        runs.pop()
    if runs and runs[-1].text.endswith(" "):
        runs[-1] = runs[-1]._replace(text=runs[-1].text.rstrip(" "))
    return runs


def combine_styles(outer: str, inner: str) -> str:
    """Both styles at once."""
    return f"{outer};{inner}" if outer and inner else outer or inner
