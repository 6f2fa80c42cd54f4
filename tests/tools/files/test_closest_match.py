"""Near misses: the right place, the difference in view, and bounded time."""

import pytest

from kitbag.tools.files.closest_match import MAX_ROW_CHARS, MAX_ROWS, find_closest_match
from support.cost import processor_limit

LINES = [f"line {number} with some words {number * 7_919 % 100_003}\n" for number in range(100_000)]
TEXT = "".join(LINES)


@pytest.mark.parametrize(("start", "end", "changed"), [(100, 101, 100), (100, 180, 150), (1_000, 90_000, 50_000)])
def test_the_line_that_differs_is_found_and_shown_however_long_the_rest_is(start: int, end: int, changed: int) -> None:
    wanted = LINES[start:end]
    wanted[changed - start] = wanted[changed - start].replace("some", "any")
    near = find_closest_match(TEXT, "".join(wanted))
    assert near is not None
    assert near.first <= changed + 1 <= near.last
    at = near.rows.index(f"- {'':6}\tline {changed} with any words {changed * 7_919 % 100_003}")
    assert near.rows[at + 1] == f"+ {changed + 1:6d}\tline {changed} with some words {changed * 7_919 % 100_003}"


def test_a_line_that_was_left_out_is_shown() -> None:
    near = find_closest_match("one(1)\n\n\ntwo(2)\nthree(3)\n", "one(1)\n\ntwo(2)\nthree(3)\n")
    assert near is not None
    assert (near.first, near.last) == (1, 5)


def test_a_difference_far_to_the_right_is_in_view() -> None:
    line = "value = " + ", ".join(f"item_{number}" for number in range(60))
    near = find_closest_match(f"before\n{line}\nafter\n", line.replace("item_50", "item_x"))
    assert near is not None
    assert (near.first, near.last) == (2, 2)
    assert "item_x" in near.rows[0]
    assert "item_50" in near.rows[1]


def test_in_a_file_of_one_line_the_place_is_in_view() -> None:
    text = "[" + ",".join(f'{{"id": {number}}}' for number in range(100_000)) + "]"
    near = find_closest_match(text, '{"id": 77776},{"id":77777}')
    assert near is not None
    assert '"id": 77777}' in near.rows[1]


def test_rows_are_few_and_short() -> None:
    wanted = "".join(line.replace("words", "wurds") for line in LINES[:500])
    near = find_closest_match(TEXT, wanted)
    assert near is not None
    assert len(near.rows) == MAX_ROWS + 1
    assert max(len(row) for row in near.rows) < MAX_ROW_CHARS + 60


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("word and " * 1_000_000, "word and wrod"),
        ("ab" * 4_000_000, "ba" * 50_000 + "c"),
        ("\n" * 3_000_000, "\n\n x"),
        ("a\n" * 2_000_000, "a\nb\na"),
        (TEXT, " ".join(f"w{number}" for number in range(100_000))),
        (TEXT, "\n" * 100_000),
        ("", "x"),
        ("x", "\n"),
    ],
    ids=range(8),
)
def test_whatever_the_texts_are_it_costs_little(text: str, wanted: str) -> None:
    with processor_limit():
        find_closest_match(text, wanted)
