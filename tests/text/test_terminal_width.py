"""How wide a text is at a terminal, and what of it fits."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kitbag.text.terminal_width import chunk_to_width, pad_to_width, split_at_width, text_width, truncate_to_width


@pytest.mark.parametrize(
    ("text", "width"), [("", 0), ("abc", 3), ("日本", 4), ("e\u0301", 1), ("\u200b", 0), ("ｆ", 2), ("é", 1)]
)
def test_a_text_takes_as_many_columns_as_a_terminal_gives_it(text: str, width: int) -> None:
    assert text_width(text) == width


@pytest.mark.parametrize(
    ("text", "width", "shown"),
    [
        ("short", 9, "short"),
        ("too long a text", 9, "too long…"),
        ("src/kitbag/text/cells.py", 12, "…xt/cells.py"),
        ("日本日本", 5, "日本…"),
        ("日本", 2, "…"),
        ("abc", 1, "…"),
        ("abc", 0, ""),
    ],
)
def test_what_does_not_fit_is_cut_and_says_so(text: str, width: int, shown: str) -> None:
    assert truncate_to_width(text, width) == shown


def test_a_text_is_padded_to_a_width_on_either_side() -> None:
    assert pad_to_width("日", 4) == "日  "
    assert pad_to_width("日", 4, right=True) == "  日"


@given(st.text(max_size=60), st.integers(0, 30))
def test_whatever_is_cut_fits(text: str, width: int) -> None:
    assert text_width(truncate_to_width(text, width)) <= width


@given(st.text(max_size=60), st.integers(0, 20), st.integers(2, 20))
def test_pieces_together_are_the_text_and_each_fits(text: str, first: int, width: int) -> None:
    pieces = chunk_to_width(text, first, width)
    assert "".join(pieces) == text
    head, rest = split_at_width(text, width)
    assert head + rest == text
