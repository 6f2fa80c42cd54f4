"""A secret that comes in pieces is seen in none of them."""

import base64

import pytest

from kitbag.store.known_values import KnownValues
from kitbag.store.redaction import Redactor
from kitbag.store.streaming_redaction import StreamingRedactor

SECRET = "tok-0123456789abcdef"


@pytest.mark.parametrize("size", range(1, 25))
def test_a_secret_in_pieces_is_held_back_until_it_is_known(size: int) -> None:
    text = f"x{SECRET[:5]}{SECRET} and {SECRET}{SECRET[:3]} end {SECRET[:7]}"
    held = StreamingRedactor(Redactor((SECRET,)).redact_known, KnownValues((SECRET,)))
    shown = [held.feed(text[at : at + size]) for at in range(0, len(text), size)]
    whole = "".join(shown) + held.flush()
    assert SECRET not in whole
    assert whole == text.replace(SECRET, "[REDACTED]")
    assert held.flush() == ""


@pytest.mark.parametrize("size", range(1, 16))
@pytest.mark.parametrize(
    ("secrets", "text"),
    [
        (("tok-0123-456t",), "x tok-0123-456t y"),
        (("tok-0123-456s", "sk-abcdef-01"), "x tok-0123-456s y"),
        (("alpha-1-beta-2", "beta-2-gamma-3"), "x alpha-1-beta-2-gamma-3 y alpha-1-beta-2-delta beta-2-gamma-3"),
        (("alpha-1-alpha",), "x alpha-1-alpha-1-alpha-1 y"),
        (("alpha-1-beta-2-gamma-3", "beta-2-delta"), "x alpha-1-beta-2-delta alpha-1-beta-2-gamma-3 y"),
    ],
)
def test_where_the_end_of_a_secret_may_begin_another_it_is_held_back_whole(
    secrets: tuple[str, ...], text: str, size: int
) -> None:
    redactor = Redactor(secrets)
    held = StreamingRedactor(redactor.redact_known, redactor.known_values)
    shown = [held.feed(text[at : at + size]) for at in range(0, len(text), size)]
    assert "".join(shown) + held.flush() == redactor.redact_known(text)


def test_what_can_be_no_secret_is_shown_at_once() -> None:
    held = StreamingRedactor(Redactor((SECRET,)).redact_known, KnownValues((SECRET,)))
    assert held.feed("Hello.") == "Hello."
    assert held.feed("see tok") == "see "
    assert held.feed("yo") == "tokyo"


def test_other_spellings_of_a_secret_are_held_back_too() -> None:
    redactor = Redactor((SECRET,))
    encoded = base64.b64encode(SECRET.encode()).decode()
    held = StreamingRedactor(redactor.redact_known, redactor.known_values)
    shown = [held.feed(char) for char in f"see {encoded} there"]
    assert encoded[:10] not in "".join(shown) + held.flush()
    assert not any("dG9rL" in piece for piece in shown)
