"""Columns that fit into a width: cells wrapped where they must be, and below each other where there is no room beside.

Used by rendering for tables and fields of ours and by markdown_view for those of a model.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from kitbag.text.terminal_width import cut, width_of
from kitbag.views.blocks import Fields, Table
from kitbag.views.rendering.styled_text import TONES, Cleaner, Row, Run, both, wrapped

_BETWEEN: Final = 2
_NARROWEST: Final = 6
_NARROWEST_LAST: Final = 16
_LONGEST_WORD: Final = 24
"""So much of a word stays whole."""
_MOST_LINES: Final = 3
"""Of a cell in a table of ours."""
_FIGURES: Final = frozenset("0123456789,.%$+-–~ ")


class Cells(NamedTuple):
    """Rows of as many cells as there are heads."""

    heads: Sequence[Row]
    rows: Sequence[Sequence[Row]]
    right: frozenset[int] = frozenset()
    """Columns whose cells stand at their right edge."""


def table_rows(table: Table, width: int, clean: Cleaner) -> list[list[Run]]:
    count = max(len(table.headers), *(len(row) for row in table.rows), 0)
    texts = [[clean.line(cell) for cell in (*row, *[""] * (count - len(row)))] for row in table.rows]
    heads = [clean.line(head) for head in (*table.headers, *[""] * (count - len(table.headers)))]
    right = frozenset(at for at in range(count - 1) if texts and all(_is_figure(row[at]) for row in texts))
    cells = Cells([[Run(head)] for head in heads], [[[Run(cell)] for cell in row] for row in texts], right)
    rows: list[list[Run]] = []
    if table.title:
        rows += wrapped([Run(clean.line(table.title), TONES["strong"])], width)
    if texts and count:
        rows += columns(cells, width, most_lines=_MOST_LINES)
    if table.foot:
        rows += wrapped([Run(clean.line(table.foot), TONES["dim"])], width)
    return rows


def _is_figure(text: str) -> bool:
    return _FIGURES.issuperset(text)


def columns(cells: Cells, width: int, *, rule: bool = False, most_lines: int = 0) -> list[list[Run]]:
    """`rule`: a line below the heads. `most_lines`: of a cell, what is more is cut; 0: all."""
    natural = [max(map(_width, column)) for column in zip(cells.heads, *cells.rows, strict=True)]
    widths = _narrowed(natural, [_longest_word(column) for column in zip(cells.heads, *cells.rows, strict=True)], width)
    if widths is None:
        return _below_each_other(cells, width)
    heads = [[Run(text, both(TONES["strong"], style)) for text, style in head] for head in cells.heads]
    rows = _beside(heads, widths, cells.right, 0) if any(map(_width, heads)) else []
    if rule:
        line = (" " * _BETWEEN).join("─" * size for size in widths)
        rows.append([Run(line, TONES["dim"])])
    for row in cells.rows:
        rows += _beside(row, widths, cells.right, most_lines)
    return rows


def _width(row: Row) -> int:
    return max(width_of(line) for line in "".join(run.text for run in row).split("\n"))


def _longest_word(column: Sequence[Row]) -> int:
    words = (word for cell in column for word in "".join(run.text for run in cell).split())
    return max(map(width_of, words), default=0)


def _narrowed(natural: list[int], words: list[int], width: int) -> list[int] | None:
    """What is taken comes from the widest; the first, by which a row is found, and the last, which says most, keep
    more. None: there is no room for all of them without tearing words."""
    between = _BETWEEN * (len(natural) - 1)
    least = [min(size, max(_NARROWEST, min(word, _LONGEST_WORD))) for size, word in zip(natural, words, strict=True)]
    least[-1] = min(natural[-1], _NARROWEST_LAST)
    if sum(least) + between > width:
        return None
    widths = list(natural)
    over = sum(widths) + between - width
    weight = [0] * len(widths)
    weight[0] = 10 if len(widths) > 1 else 0
    while over > 0:
        able = [at for at in range(len(widths)) if widths[at] > least[at]]
        top = max(widths[at] - weight[at] for at in able)
        widest = [at for at in able if widths[at] - weight[at] == top]
        others = [widths[at] - weight[at] for at in able if at not in widest]
        # All of the widest at once, down to the next, so that a huge cell costs no more than a small one.
        room = min(top - max(others, default=0), *(widths[at] - least[at] for at in widest))
        step = max(1, min(room, over // len(widest)))
        for at in widest:
            taken = min(step, over)
            widths[at] -= taken
            over -= taken
    return widths


def _beside(row: Sequence[Row], widths: Sequence[int], right: frozenset[int], most_lines: int) -> list[list[Run]]:
    cells = [_cell(cell, size, most_lines) for cell, size in zip(row, widths, strict=True)]
    lines: list[list[Run]] = []
    for at in range(max(map(len, cells))):
        line: list[Run] = []
        for column, cell in enumerate(cells):
            shown = cell[at] if at < len(cell) else []
            blanks = Run(" " * max(0, widths[column] - sum(width_of(run.text) for run in shown)))
            line += [blanks, *shown] if column in right else [*shown, blanks]
            line.append(Run(" " * _BETWEEN))
        lines.append(line)
    return lines


def _cell(cell: Row, width: int, most_lines: int) -> list[list[Run]]:
    lines = wrapped(cell, max(width, 1))
    if not most_lines or len(lines) <= most_lines:
        return lines
    last = lines[most_lines - 1]
    text = "".join(run.text for run in last)
    return [*lines[: most_lines - 1], [Run(cut(f"{text} ……"[: len(text) + 2], width), last[0].style if last else "")]]


def _below_each_other(cells: Cells, width: int) -> list[list[Run]]:
    """Each row as `head: cell` lines."""
    rows: list[list[Run]] = []
    for at, row in enumerate(cells.rows):
        if at:
            rows.append([])
        for head, cell in zip(cells.heads, row, strict=True):
            if not _width(cell):
                continue
            named = [Run(text, both(TONES["strong"], style)) for text, style in head if text]
            between = [Run(": ")] if named else []
            rows += wrapped([*named, *between, *cell], width, rest=[Run("  ")])
    return rows


def field_rows(fields: Fields, width: int, clean: Cleaner) -> list[list[Run]]:
    pairs = [(clean.line(label), clean.text(value).strip("\n")) for label, value in fields.pairs if value.strip()]
    margin = min(max((width_of(label) for label, _ in pairs), default=0) + 2, max(width // 2, 2))
    rows = wrapped([Run(clean.line(fields.title), TONES["strong"])], width) if fields.title else []
    for label, value in pairs:
        shown = cut(label, margin - 1)
        head = [Run(shown, TONES["dim"]), Run(" " * (margin - width_of(shown)))]
        rows += wrapped([Run(value)], width, first=head, rest=[Run(" " * margin)])
    return rows
