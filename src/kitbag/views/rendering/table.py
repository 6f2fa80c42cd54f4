"""Lays out columns in a width: wraps cells where needed, and stacks them if they don't fit side by side.

Used by render for tables and fields, and by markdown for the tables of a reply.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from kitbag.text.terminal_width import text_width, truncate_to_width
from kitbag.views.blocks import FieldsBlock, TableBlock
from kitbag.views.rendering.styled_text import TONES, Cleaner, Row, StyledRun, combine_styles, wrap_row

_BETWEEN: Final = 2
_MIN_WIDTH: Final = 6
_MIN_LAST_WIDTH: Final = 16
_MAX_WORD_WIDTH: Final = 24
"""Words up to this width are not broken."""
_MAX_CELL_LINES: Final = 3
"""Of a cell in Kitbag's own tables."""
_FIGURES: Final = frozenset("0123456789,.%$+-–~ ")


class TableCells(msgspec.Struct, frozen=True, kw_only=True):
    """Rows with as many cells as there are heads."""

    heads: Sequence[Row]
    rows: Sequence[Sequence[Row]]
    right: frozenset[int] = frozenset()
    """Right-aligned columns."""


def table_rows(table: TableBlock, width: int, clean: Cleaner) -> list[list[StyledRun]]:
    count = max(len(table.headers), *(len(row) for row in table.rows), 0)
    texts = [[clean.line(cell) for cell in (*row, *[""] * (count - len(row)))] for row in table.rows]
    heads = [clean.line(head) for head in (*table.headers, *[""] * (count - len(table.headers)))]
    right = frozenset(column for column in range(count - 1) if texts and all(is_figure(row[column]) for row in texts))
    cells = TableCells(
        heads=[[StyledRun(head)] for head in heads],
        rows=[[[StyledRun(cell)] for cell in row] for row in texts],
        right=right,
    )
    rows: list[list[StyledRun]] = []
    if table.title:
        rows += wrap_row([StyledRun(clean.line(table.title), TONES["strong"])], width)
    if texts and count:
        rows += layout_columns(cells, width, max_lines=_MAX_CELL_LINES)
    if table.foot:
        rows += wrap_row([StyledRun(clean.line(table.foot), TONES["dim"])], width)
    return rows


def is_figure(text: str) -> bool:
    return _FIGURES.issuperset(text)


def layout_columns(cells: TableCells, width: int, *, rule: bool = False, max_lines: int = 0) -> list[list[StyledRun]]:
    """`rule`: draw a line below the heads. `max_lines`: truncate cells to this many lines; 0: don't."""
    natural = [max(map(_width, column)) for column in zip(cells.heads, *cells.rows, strict=True)]
    widths = _fit_widths(
        natural, [_longest_word(column) for column in zip(cells.heads, *cells.rows, strict=True)], width
    )
    if widths is None:
        return _stacked_rows(cells, width)
    heads = [[StyledRun(text, combine_styles(TONES["strong"], style)) for text, style in head] for head in cells.heads]
    rows = _row_lines(heads, widths, cells.right, 0) if any(map(_width, heads)) else []
    if rule:
        line = (" " * _BETWEEN).join("─" * size for size in widths)
        rows.append([StyledRun(line, TONES["dim"])])
    for row in cells.rows:
        rows += _row_lines(row, widths, cells.right, max_lines)
    return rows


def _width(row: Row) -> int:
    return max(text_width(line) for line in "".join(run.text for run in row).split("\n"))


def _longest_word(column: Sequence[Row]) -> int:
    words = (word for cell in column for word in "".join(run.text for run in cell).split())
    return max(map(text_width, words), default=0)


def _fit_widths(natural: list[int], words: list[int], width: int) -> list[int] | None:
    """Narrows the widest columns; the first, which identifies the row, and the last, which says most, keep more. None:
    they don't fit without breaking words."""
    between = _BETWEEN * (len(natural) - 1)
    least = [min(size, max(_MIN_WIDTH, min(word, _MAX_WORD_WIDTH))) for size, word in zip(natural, words, strict=True)]
    least[-1] = min(natural[-1], _MIN_LAST_WIDTH)
    if sum(least) + between > width:
        return None
    widths = list(natural)
    over = sum(widths) + between - width
    weight = [0] * len(widths)
    weight[0] = 10 if len(widths) > 1 else 0
    while over > 0:
        able = [column for column in range(len(widths)) if widths[column] > least[column]]
        top = max(widths[column] - weight[column] for column in able)
        widest = [column for column in able if widths[column] - weight[column] == top]
        others = [widths[column] - weight[column] for column in able if column not in widest]
        # Narrows all of the widest columns at once, down to the next, so that a huge cell costs no more than a small
        # one.
        slack = min(top - max(others, default=0), *(widths[column] - least[column] for column in widest))
        step = max(1, min(slack, over // len(widest)))
        for column in widest:
            reduction = min(step, over)
            widths[column] -= reduction
            over -= reduction
    return widths


def _row_lines(
    row: Sequence[Row], widths: Sequence[int], right: frozenset[int], max_lines: int
) -> list[list[StyledRun]]:
    cells = [_cell_lines(cell, size, max_lines) for cell, size in zip(row, widths, strict=True)]
    lines: list[list[StyledRun]] = []
    for index in range(max(map(len, cells))):
        line: list[StyledRun] = []
        for column, cell in enumerate(cells):
            runs = cell[index] if index < len(cell) else []
            blanks = StyledRun(" " * max(0, widths[column] - sum(text_width(run.text) for run in runs)))
            line += [blanks, *runs] if column in right else [*runs, blanks]
            line.append(StyledRun(" " * _BETWEEN))
        lines.append(line)
    return lines


def _cell_lines(cell: Row, width: int, max_lines: int) -> list[list[StyledRun]]:
    lines = wrap_row(cell, max(width, 1))
    if not max_lines or len(lines) <= max_lines:
        return lines
    last = lines[max_lines - 1]
    text = "".join(run.text for run in last)
    return [
        *lines[: max_lines - 1],
        [StyledRun(truncate_to_width(f"{text} ……"[: len(text) + 2], width), last[0].style if last else "")],
    ]


def _stacked_rows(cells: TableCells, width: int) -> list[list[StyledRun]]:
    """Each row as `head: cell` lines."""
    rows: list[list[StyledRun]] = []
    for index, row in enumerate(cells.rows):
        if index:
            rows.append([])
        for head, cell in zip(cells.heads, row, strict=True):
            if not _width(cell):
                continue
            named = [StyledRun(text, combine_styles(TONES["strong"], style)) for text, style in head if text]
            between = [StyledRun(": ")] if named else []
            rows += wrap_row([*named, *between, *cell], width, rest=[StyledRun("  ")])
    return rows


def field_rows(fields: FieldsBlock, width: int, clean: Cleaner) -> list[list[StyledRun]]:
    pairs = [(clean.line(label), clean.text(value).strip("\n")) for label, value in fields.pairs if value.strip()]
    margin = min(max((text_width(label) for label, _ in pairs), default=0) + 2, max(width // 2, 2))
    rows = wrap_row([StyledRun(clean.line(fields.title), TONES["strong"])], width) if fields.title else []
    for label, value in pairs:
        cut_label = truncate_to_width(label, margin - 1)
        prefix = [StyledRun(cut_label, TONES["dim"]), StyledRun(" " * (margin - text_width(cut_label)))]
        rows += wrap_row([StyledRun(value)], width, first=prefix, rest=[StyledRun(" " * margin)])
    return rows
