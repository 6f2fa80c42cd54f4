"""Many values are found in one pass: exactly those that a search for each of them finds."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kitbag.store import known_values
from kitbag.store.known_values import KnownValues
from kitbag.store.redaction import Redactor
from kitbag.store.streaming_redaction import StreamingRedactor
from support.matrix import sample

LETTERS = st.text("abAB-é日\n\ud800", max_size=30)


@given(st.lists(LETTERS, max_size=8), st.lists(LETTERS, max_size=8), st.integers(0, 20))
def test_what_is_found_is_what_a_search_for_each_finds(values: list[str], pieces: list[str], shift: int) -> None:
    text = "x" * shift + "".join(piece for pair in zip(pieces, values, strict=False) for piece in pair)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(known_values, "_PLAIN_SEARCH_LIMIT", -1)
        found = KnownValues(values).find_in(text)
    assert sorted(set(found)) == sorted({value for value in values if value and value in text})


@pytest.mark.parametrize("length", sample(range(1, 41), 10))
def test_a_value_of_any_length_is_found_at_any_offset(length: int) -> None:
    chance = random.Random(length)
    value = "".join(chance.choices("abcdefgh", k=length))
    others = ["".join(chance.choices("ijklm", k=1 + at % 40)) for at in range(2_000)]
    known = KnownValues([value, *others])
    for shift in range(20):
        assert known.find_in("-" * shift + value + "-" * (19 - shift)) == [value]


@given(st.lists(LETTERS, max_size=6), st.lists(LETTERS, max_size=6), st.integers(1, 12))
def test_a_stream_is_redacted_like_the_whole(values: list[str], pieces: list[str], size: int) -> None:
    secrets = [f"{value}-1" for value in values]  # no plain words, which depend on what surrounds them
    known = Redactor(secrets)
    text = "".join(piece for pair in zip(pieces, secrets, strict=False) for piece in pair)
    streaming = StreamingRedactor(known.redact_known, known.known_values)
    shown = [streaming.feed(text[at : at + size]) for at in range(0, len(text), size)]
    assert "".join(shown) + streaming.flush() == known.redact_known(text)
