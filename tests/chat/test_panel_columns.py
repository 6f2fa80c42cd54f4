"""Rows of a panel stand in columns."""

from kitbag.chat.panel_columns import PanelCells, align_rows
from kitbag.views.blocks import Span


def lines(*rows: tuple[str, ...], numbers: frozenset[int] = frozenset()) -> list[str]:
    made = align_rows([PanelCells(id=str(at), spans=tuple(map(Span, row))) for at, row in enumerate(rows)], numbers)
    assert [row.id for row in made] == [str(at) for at in range(len(rows))]
    return ["".join(span.text for span in row.line) for row in made]


def test_columns_stand_below_one_another_and_numbers_at_the_right() -> None:
    rows = (("on", "short", "5", "x"), ("off", "漢字", "1,200", "a longer end"))
    assert lines(*rows, numbers=frozenset((2,))) == ["on   short      5  x", "off  漢字   1,200  a longer end"]


def test_what_is_empty_everywhere_takes_no_room_and_what_is_too_wide_is_cut() -> None:
    assert lines(("a", "", "b"), ("c", "", "d")) == ["a  b", "c  d"]
    (line,) = lines(("n" * 100, "end"))
    assert line == f"{'n' * 27}…  end"


def test_a_line_break_in_a_name_makes_no_row_of_its_own() -> None:
    assert "\n" not in lines(("a\nb", "c"))[0]


def test_nothing_is_nothing() -> None:
    assert lines() == []
