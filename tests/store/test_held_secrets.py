"""A secret that comes in pieces is seen in none of them."""

import base64

import pytest

from kitbag.store.held_secrets import Held
from kitbag.store.redaction import Redactor

SECRET = "tok-0123456789abcdef"


@pytest.mark.parametrize("size", range(1, 25))
def test_a_secret_in_pieces_is_held_back_until_it_is_known(size: int) -> None:
    text = f"x{SECRET[:5]}{SECRET} and {SECRET}{SECRET[:3]} end {SECRET[:7]}"
    held = Held(Redactor((SECRET,)).known, (SECRET,))
    shown = [held.add(text[at : at + size]) for at in range(0, len(text), size)]
    whole = "".join(shown) + held.rest()
    assert SECRET not in whole
    assert whole == text.replace(SECRET, "[REDACTED]")
    assert held.rest() == ""


def test_what_can_be_no_secret_is_shown_at_once() -> None:
    held = Held(Redactor((SECRET,)).known, (SECRET,))
    assert held.add("Hello.") == "Hello."
    assert held.add("see tok") == "see "
    assert held.add("yo") == "tokyo"


def test_other_spellings_of_a_secret_are_held_back_too() -> None:
    redactor = Redactor((SECRET,))
    encoded = base64.b64encode(SECRET.encode()).decode()
    held = Held(redactor.known, redactor.values)
    shown = [held.add(char) for char in f"see {encoded} there"]
    assert encoded[:10] not in "".join(shown) + held.rest()
    assert not any("dG9rL" in piece for piece in shown)
