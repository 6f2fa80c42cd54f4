"""Recognizes known secrets in what is about to leave the machine: URLs, search queries, arguments of network tools.

Used by Redactor.reveals_secret. Compares short runs of letters and digits, ignoring case and everything else, so that a
secret is found encoded, split over several values, or out of order; redaction, which must say where, cannot do that.
"""

import base64
import re
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple
from urllib.parse import unquote

from kitbag.store.secrets_by_pattern import mixes_letters_and_digits

MIN_LENGTH: Final = 8
"""Shorter secrets are not looked for: they would match ordinary URLs."""
MIN_WORD_LENGTH: Final = 12
"""The same for secrets of only letters or only digits, such as a password that is a word."""
_RUN: Final = 6
"""How many letters and digits in a row are compared."""
_MIN_PARTIAL_LENGTH: Final = 20
"""Of a secret of this length, three quarters are enough; of a shorter one, everything."""
_MAX_UNQUOTES: Final = 4
_NOT_ALPHANUMERIC = re.compile(r"[\W_]+")
_ESCAPE = re.compile(r"(?:\\[xu]|0x|&#x?|%)(?:00)?", re.IGNORECASE)
_PART = re.compile(r"[^/?&#;.,:@\s]+")


class EncodedForm(NamedTuple):
    text: str
    """Only letters and digits, in lower case."""
    first_bytes: tuple[int, ...]
    """For each character, the first byte of the secret that it encodes."""
    last_bytes: tuple[int, ...]


class OutboundSecret(NamedTuple):
    value: str
    size: int
    """In bytes."""
    required: int
    """How many of its bytes must occur."""
    forms: tuple[EncodedForm, ...]


def prepare_secrets(values: Iterable[str]) -> tuple[OutboundSecret, ...]:
    return tuple(_prepare(value) for value in sorted(values) if _is_specific(value))


def reveals_secret(texts: Iterable[str], secrets: tuple[OutboundSecret, ...]) -> bool:
    """Whether the texts, which leave together, contain a secret: in any order, encoding and letter case."""
    written = list(texts)
    decoded = [_unquote(text) for text in written]
    joined = "".join(decoded)
    if any(secret.value in joined for secret in secrets):
        return True
    runs = {text[at : at + _RUN] for text in _views(written, decoded) for at in range(len(text) - _RUN + 1)}
    return any(_is_covered(secret, runs) for secret in secrets) if runs else False


def _is_specific(value: str) -> bool:
    if len(value) < MIN_LENGTH or (len(value) < MIN_WORD_LENGTH and (value.isalpha() or value.isdigit())):
        return False
    if not value.startswith(("http://", "https://")):
        return True
    # `AUTH_URL=https://login.example.com/` is an address; a webhook's path and a query with a token are secret.
    host, _, rest = value.partition("://")[2].partition("/")
    return "@" in host or mixes_letters_and_digits(rest)


def _prepare(value: str) -> OutboundSecret:
    data = value.encode("utf-8", "surrogatepass")
    size = len(data)
    return OutboundSecret(
        value, size, size if size < _MIN_PARTIAL_LENGTH else size * 3 // 4, tuple(_forms(value, data))
    )


def _forms(value: str, data: bytes) -> Iterator[EncodedForm]:
    offsets = [0]
    for char in value:
        offsets.append(offsets[-1] + len(char.encode("utf-8", "surrogatepass")))
    yield _make_form((char, start, end - 1) for char, start, end in zip(value, offsets, offsets[1:], strict=False))
    yield _make_form((digit, at // 2, at // 2) for at, digit in enumerate(data.hex()))
    yield _make_form((digit, at, at) for at, byte in enumerate(data) for digit in str(byte))
    for bits, block, encode in ((6, 3, base64.b64encode), (5, 5, base64.b32encode)):
        for before in range(block):  # in a longer text, the secret may start at any byte of a block
            encoded = encode(bytes(before) + data).decode()
            # Without the characters that also depend on its neighbors.
            own = range((before * 8 + bits - 1) // bits, (before + len(data)) * 8 // bits)
            yield _make_form((encoded[at], at * bits // 8 - before, (at * bits + bits - 1) // 8 - before) for at in own)


def _make_form(characters: Iterable[tuple[str, int, int]]) -> EncodedForm:
    kept = [(lower, first, last) for char, first, last in characters for lower in _normalize(char)]
    return EncodedForm(
        "".join(char for char, _, _ in kept), tuple(first for _, first, _ in kept), tuple(last for *_, last in kept)
    )


def _is_covered(secret: OutboundSecret, runs: set[str]) -> bool:
    covered: set[int] = set()
    for text, first_bytes, last_bytes in secret.forms:
        for at in range(len(text) - _RUN + 1):
            if text[at : at + _RUN] in runs:
                covered.update(range(first_bytes[at], last_bytes[at + _RUN - 1] + 1))
    if not covered:
        return False
    # Punctuation at its ends is in no run.
    plain = secret.forms[0]
    if plain.text and plain.first_bytes[0] in covered:
        covered.update(range(plain.first_bytes[0]))
    if plain.text and plain.last_bytes[-1] in covered:
        covered.update(range(plain.last_bytes[-1], secret.size))
    return len(covered) >= secret.required


def _views(written: list[str], decoded: list[str]) -> Iterator[str]:
    """What a receiver could put together from the texts: all of it, only the values, only the names, and reversed."""
    whole = "".join(decoded)
    views = [whole, _ESCAPE.sub("", whole)]
    for texts in (written, decoded):  # a percent-encoded separator may separate, or belong to a value
        parts = [part for text in texts for part in _PART.findall(text)]
        views.append("".join(_unquote(part.partition("=")[2] if "=" in part else part) for part in parts))
        views.append("".join(_unquote(part.partition("=")[0]) for part in parts))
    for text in dict.fromkeys(map(_normalize, views)):
        yield text
        yield text[::-1]


def _unquote(text: str) -> str:
    for _ in range(_MAX_UNQUOTES):
        if "%" not in text or (decoded := unquote(text)) == text:
            break
        text = decoded
    return text


def _normalize(text: str) -> str:
    return _NOT_ALPHANUMERIC.sub("", text).lower()
