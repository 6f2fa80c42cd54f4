"""Aligns the rows of a panel in columns and limits their width.

Used by task_blocks and by the commands that open panels.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from kitbag.chat.ui import PanelRow
from kitbag.text.hidden_characters import collapse_whitespace
from kitbag.text.terminal_width import text_width, truncate_to_width
from kitbag.views.blocks import Span, StyledLine

_MAX_WIDTH: Final = 28
_SEPARATOR: Final = "  "


class PanelCells(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    spans: tuple[Span, ...]
    """The last one may have any length."""


def align_rows(rows: Sequence[PanelCells], right_aligned: frozenset[int] = frozenset()) -> tuple[PanelRow, ...]:
    """`right_aligned`: indexes of right-aligned columns. Empty columns take no space."""
    shown = [[Span(collapse_whitespace(span.text), span.tone) for span in row.spans] for row in rows]
    columns = max((len(spans) for spans in shown), default=0)
    widths = [
        min(max((text_width(spans[index].text) for spans in shown if index < len(spans) - 1), default=0), _MAX_WIDTH)
        for index in range(columns)
    ]
    return tuple(
        PanelRow(id=row.id, line=_line(spans, widths, right_aligned)) for row, spans in zip(rows, shown, strict=True)
    )


def _line(spans: list[Span], widths: list[int], right_aligned: frozenset[int]) -> StyledLine:
    line: list[Span] = []
    for index, span in enumerate(spans[:-1]):
        if widths[index]:
            text = truncate_to_width(span.text, widths[index])
            padding = " " * (widths[index] - text_width(text))
            line.append(Span((padding + text if index in right_aligned else text + padding) + _SEPARATOR, span.tone))
    return (*line, *spans[-1:])
