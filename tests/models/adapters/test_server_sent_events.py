"""Events come out the same, wherever their bytes are cut and however their lines end."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kitbag.models.adapters.server_sent_events import EventParser, EventTooLongError


def read(data: bytes, size: int, longest: int = 1 << 20) -> list[str]:
    reader = EventParser(longest)
    return [event for at in range(0, len(data), size) for event in reader.feed(data[at : at + size])]


@given(
    texts=st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\n"), max_size=20)),
    end=st.sampled_from(["\n", "\r\n", "\r"]),
    size=st.integers(1, 40),
    start=st.sampled_from(["", "\ufeff", ": a comment\n"]),
)
def test_cuts_and_line_ends_change_nothing(texts: list[str], end: str, size: int, start: str) -> None:
    lines = [f"event: x{end}data: {text}{end}id: 1{end}{end}" for text in texts]
    assert read((start + "".join(lines)).encode(), size) == texts


def test_lines_of_one_event_are_joined() -> None:
    assert read(b"data: a\ndata:b\ndata\ndata:  c\n\n", 3) == ["a\nb\n\n c"]


def test_an_event_without_data_and_one_without_an_end_are_none() -> None:
    assert read(b"event: ping\n\n: keep-alive\n\ndata: whole\n\ndata: cut", 5) == ["whole"]


def test_what_is_no_text_is_replaced() -> None:
    assert read(b"data: \xff\n\n", 1) == ["\ufffd"]


@pytest.mark.parametrize("data", [b"data: " + b"x" * 200, b"data: x\n" * 40, b":" + b"x" * 200])
def test_an_event_that_does_not_end_is_an_error(data: bytes) -> None:
    with pytest.raises(EventTooLongError):
        read(data, 7, longest=100)


def test_many_short_events_are_no_long_one() -> None:
    assert len(read(b"data: x\n\n" * 1000, 11, longest=100)) == 1000
