"""The picture of what fills a window: one bar of all shares, and below it what each is and how large.

Used by rendering. Without colour each share is drawn with a letter of its own; what is smaller than a column still
gets one, so that nothing that is there is not seen.
"""

from collections.abc import Sequence
from typing import Final

from kitbag.text.terminal_width import cut, padded, width_of
from kitbag.views.blocks import Bar, Bars
from kitbag.views.rendering.styled_text import TONES, Cleaner, Run, wrapped

_WIDEST: Final = 72
_FILLS: Final = "█▓▒"
_FREE: Final = "░"
_LETTERS: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_LONGEST_LABEL: Final = 28


def bars_rows(bars: Bars, width: int, clean: Cleaner, *, colour: bool) -> list[list[Run]]:
    rows = wrapped([Run(clean.line(bars.title), TONES["strong"])], width) if bars.title else []
    whole = max(bars.whole, sum(max(bar.tokens, 0) for bar in bars.bars))
    marks = _marks(bars.bars, colour)
    free = Run(_FREE if colour else ".", TONES["dim"])
    room = min(width, _WIDEST)
    cells = shares([max(bar.tokens, 0) for bar in bars.bars], whole, room)
    line = [Run(mark.text * count, mark.style) for mark, count in zip(marks, cells, strict=True)]
    rows.append([*line, Run(free.text * (room - sum(cells)), free.style)])
    rows += _legend(bars, marks, free, whole, width, clean)
    if bars.foot:
        rows += wrapped([Run(clean.line(bars.foot), TONES["dim"])], width)
    return rows


def _marks(bars: Sequence[Bar], colour: bool) -> list[Run]:
    """Two of the same colour differ in how dense they are."""
    seen: dict[str, int] = {}
    marks: list[Run] = []
    for at, bar in enumerate(bars):
        style = TONES[bar.tone]
        times = seen.get(style, 0)
        seen[style] = times + 1
        letter = _LETTERS[at % len(_LETTERS)]
        marks.append(Run(_FILLS[times % len(_FILLS)] if colour else letter, style))
    return marks


def shares(parts: Sequence[int], whole: int, room: int) -> list[int]:
    """Columns for each part: at least one for what is not nothing, as far as there are so many, and never more than
    there are in all."""
    if whole <= 0 or room <= 0:
        return [0] * len(parts)
    cells = [part * room // whole for part in parts]
    left = room - sum(cells)
    if sum(parts) < whole:
        left -= left > 0  # what is free is seen, too
    for at, part in enumerate(parts):
        if part and not cells[at] and left > 0:
            cells[at] = 1
            left -= 1
    return cells


def _legend(bars: Bars, marks: Sequence[Run], free: Run, whole: int, width: int, clean: Cleaner) -> list[list[Run]]:
    left = whole - sum(max(bar.tokens, 0) for bar in bars.bars)
    shown = [
        (mark, clean.line(bar.label), max(bar.tokens, 0), clean.line(bar.note))
        for mark, bar in zip(marks, bars.bars, strict=True)
    ]
    shown.append((free, "free", left, ""))
    figures = max(len(f"{tokens:,}") for _, _, tokens, _ in shown)
    longest = min(max(width_of(label) for _, label, _, _ in shown), _LONGEST_LABEL, max(width - figures - 12, 4))
    rows: list[list[Run]] = []
    for mark, label, tokens, note in shown:
        name = padded(cut(label, longest), longest)
        row = [mark, Run(f" {name}  {tokens:>{figures},}  "), Run(per_cent(tokens, whole), TONES["dim"])]
        used = sum(width_of(run.text) for run in row)
        if note and width - used > 6:
            row.append(Run("  " + cut(note, width - used - 2), TONES["dim"]))
        rows.append(row)
    return rows


def per_cent(part: int, whole: int) -> str:
    share = 100 * part / whole if whole > 0 else 0.0
    return f"{share:>5.1f}%"
