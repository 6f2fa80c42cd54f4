"""Numbers and places as a person reads them."""

import pytest

from kitbag.text.human_format import format_age, format_cost, format_count, format_duration


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(-1, "0.0s"), (3.21, "3.2s"), (45.4, "45s"), (125, "2m 5s"), (3_600, "1h 0m"), (90_000, "25h 0m")],
)
def test_how_long(seconds: float, words: str) -> None:
    assert format_duration(seconds) == words


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0, "just now"), (59, "just now"), (61, "1 minute ago"), (7_300, "2 hours ago"), (260_000, "3 days ago")],
)
def test_how_long_ago(seconds: float, words: str) -> None:
    assert format_age(seconds) == words


def test_money_and_counts() -> None:
    assert (format_cost(None), format_cost(0.01234), format_count(1, "task"), format_count(2_000, "task")) == (
        "?",
        "$0.0123",
        "1 task",
        "2,000 tasks",
    )
