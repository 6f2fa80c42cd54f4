"""Draws what fills a context window: one bar with all shares and a legend below it.

Used by render. Without color each share has its own letter; a share smaller than a column still gets one, so that it
is visible. What is reserved comes last, after the free space.
"""

from collections.abc import Sequence
from typing import Final

from kitbag.text.terminal_width import pad_to_width, text_width, truncate_to_width
from kitbag.views.blocks import Bar, BarsBlock
from kitbag.views.rendering.styled_text import TONES, Cleaner, StyledRun, wrap_row

_MAX_WIDTH: Final = 72
_COLORS: Final = ("36", "32", "35", "33", "34", "31", "96", "92", "95", "93", "94", "91")
"""One per share."""
_FILLS: Final = "█▓▒"
"""Shares with the same color differ in density."""
_FREE: Final = "░"
_RESERVED: Final = "·"
_LETTERS: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_MAX_LABEL_WIDTH: Final = 28


def bars_rows(bars: BarsBlock, width: int, clean: Cleaner, *, color: bool) -> list[list[StyledRun]]:
    rows = wrap_row([StyledRun(clean.line(bars.title), TONES["strong"])], width) if bars.title else []
    whole = max(bars.whole, sum(max(bar.tokens, 0) for bar in bars.bars))
    marks = _marks(bars.bars, color)
    free = StyledRun(_FREE if color else ".", TONES["dim"])
    bar_width = min(width, _MAX_WIDTH)
    cells = bar_widths([max(bar.tokens, 0) for bar in bars.bars], whole, bar_width)
    parts = [
        (bar, StyledRun(mark.text * count, mark.style))
        for bar, mark, count in zip(bars.bars, marks, cells, strict=True)
    ]
    used, reserved = ([run for bar, run in parts if bar.is_reserved == kind] for kind in (False, True))
    rows.append([*used, StyledRun(free.text * (bar_width - sum(cells)), free.style), *reserved])
    rows += _legend_rows(bars, marks, free, whole, width, clean)
    if bars.foot:
        rows += wrap_row([StyledRun(clean.line(bars.foot), TONES["dim"])], width)
    return rows


def _marks(bars: Sequence[Bar], color: bool) -> list[StyledRun]:
    marks: list[StyledRun] = []
    for index, bar in enumerate(bars):
        times, place = divmod(index, len(_COLORS))
        if bar.is_reserved:
            marks.append(StyledRun(_RESERVED if color else "-", TONES["dim"]))
        elif color:
            marks.append(StyledRun(_FILLS[times % len(_FILLS)], _COLORS[place]))
        else:
            marks.append(StyledRun(_LETTERS[index % len(_LETTERS)]))
    return marks


def bar_widths(parts: Sequence[int], whole: int, width: int) -> list[int]:
    """Columns per part: at least one for every nonempty part if there are enough columns, and never more than there
    are."""
    if whole <= 0 or width <= 0:
        return [0] * len(parts)
    cells = [part * width // whole for part in parts]
    columns_left = width - sum(cells)
    if sum(parts) < whole:
        columns_left -= columns_left > 0  # free space is visible, too
    for index, part in enumerate(parts):
        if part and not cells[index] and columns_left > 0:
            cells[index] = 1
            columns_left -= 1
    return cells


def _legend_rows(
    bars: BarsBlock, marks: Sequence[StyledRun], free: StyledRun, whole: int, width: int, clean: Cleaner
) -> list[list[StyledRun]]:
    free_tokens = whole - sum(max(bar.tokens, 0) for bar in bars.bars)
    entries = [
        (mark, clean.line(bar.label), max(bar.tokens, 0), clean.line(bar.note))
        for mark, bar in zip(marks, bars.bars, strict=True)
    ]
    entries.append((free, "free", free_tokens, ""))
    figures = max(len(f"{tokens:,}") for _, _, tokens, _ in entries)
    longest = min(max(text_width(label) for _, label, _, _ in entries), _MAX_LABEL_WIDTH, max(width - figures - 12, 4))
    rows: list[list[StyledRun]] = []
    for mark, label, tokens, note in entries:
        name = pad_to_width(truncate_to_width(label, longest), longest)
        row = [
            mark,
            StyledRun(f" {name}  {tokens:>{figures},}  "),
            StyledRun(format_percent(tokens, whole), TONES["dim"]),
        ]
        used = sum(text_width(run.text) for run in row)
        if note and width - used > 6:
            row.append(StyledRun("  " + truncate_to_width(note, width - used - 2), TONES["dim"]))
        rows.append(row)
    return rows


def format_percent(part: int, whole: int) -> str:
    share = 100 * part / whole if whole > 0 else 0.0
    return f"{share:>5.1f}%"
