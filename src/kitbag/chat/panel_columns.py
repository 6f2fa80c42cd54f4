"""Rows of a panel in columns, so that the eye finds what it looks for, and what matters most fits into a narrow one.

Used by the commands that open panels.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from kitbag.chat.ui import Row
from kitbag.text.hidden_characters import one_line
from kitbag.text.terminal_width import cut, width_of
from kitbag.views.blocks import Line, Span

_WIDEST: Final = 28
_BETWEEN: Final = "  "


class Cells(NamedTuple):
    id: str
    spans: tuple[Span, ...]
    """The last is as long as it likes."""


def aligned(rows: Sequence[Cells], numbers: frozenset[int] = frozenset()) -> tuple[Row, ...]:
    """`numbers`: the columns that stand at the right. Columns in which nothing stands take no room."""
    shown = [[span._replace(text=one_line(span.text)) for span in row.spans] for row in rows]
    columns = max((len(spans) for spans in shown), default=0)
    widths = [
        min(max((width_of(spans[at].text) for spans in shown if at < len(spans) - 1), default=0), _WIDEST)
        for at in range(columns)
    ]
    return tuple(Row(row.id, _line(spans, widths, numbers)) for row, spans in zip(rows, shown, strict=True))


def _line(spans: list[Span], widths: list[int], numbers: frozenset[int]) -> Line:
    line: list[Span] = []
    for at, span in enumerate(spans[:-1]):
        if widths[at]:
            text = cut(span.text, widths[at])
            blanks = " " * (widths[at] - width_of(text))
            line.append(Span((blanks + text if at in numbers else text + blanks) + _BETWEEN, span.tone))
    return (*line, *spans[-1:])
