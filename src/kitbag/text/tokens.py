"""Counts tokens: an estimate that needs no vocabulary, and an exact count if a tokenizer is installed.

The estimate follows how tokenizers split text: words, runs of punctuation, digits and newlines, and letters of other
scripts individually. Its weights are fitted to o200k; `bench/tokens.py` measures the error.
"""

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

_SMALL, _CAPITAL, _HUMP, _DIGIT, _PUNCTUATION, _SPACE, _LINE = 1, 3, 2, 4, 8, 16, 32
"""Classes of ASCII characters, as bits: a capital contains the bit of a small letter, so `aB` starts a run only for
the capital's own bit."""
_MAX_CHARS_PER_TOKEN = 5
"""Bounds the length of a token: one endless word is not one token."""
_SCRIPTS = (
    # First and last block of 256 characters, tokens per character. Later rows override earlier ones.
    (0x00, 0xFF, 1.1),
    (0x00, 0x00, 1.2),  # accented letters, inside words that are already counted
    (0x01, 0x02, 1.5),
    (0x03, 0x03, 0.4),  # Greek
    (0x04, 0x04, 0.26),  # Cyrillic
    (0x05, 0x05, 0.5),  # Armenian, Hebrew
    (0x06, 0x08, 0.36),  # Arabic
    (0x09, 0x0D, 0.39),  # the scripts of India
    (0x0E, 0x0E, 0.44),  # Thai, Lao
    (0x0F, 0x1F, 1.5),
    (0x10, 0x10, 0.5),  # Burmese, Georgian
    (0x1E, 0x1E, 0.0),  # Vietnamese: its words have enough other accents
    (0x20, 0x20, 0.7),  # dashes and quotes
    (0x25, 0x25, 0.7),  # box drawing
    (0x30, 0x30, 0.74),  # kana
    (0x31, 0x4D, 2.0),
    (0x4E, 0x9F, 0.71),  # Chinese characters
    (0xAC, 0xD7, 0.65),  # Hangul
    (0xD8, 0xDB, 1.8),  # high surrogates: emoji, rare characters
    (0xDC, 0xDF, 0.0),
    (0xFB, 0xFE, 0.5),
    (0xFF, 0xFF, 0.85),  # full width
)
_EXACT_ENCODING = "o200k_base"


def _build_char_classes() -> bytes:
    """The class of each ASCII byte."""
    table = bytearray([_PUNCTUATION]) * 256
    table[ord("a") : ord("z") + 1] = bytes([_SMALL]) * 26
    table[ord("A") : ord("Z") + 1] = bytes([_CAPITAL]) * 26
    table[ord("0") : ord("9") + 1] = bytes([_DIGIT]) * 10
    table[ord(" ")] = _SPACE
    for line in b"\t\n\r":
        table[line] = _LINE
    return bytes(table)


def _build_script_rows() -> bytes:
    """The row of `_SCRIPTS` for each block of 256 characters."""
    table = bytearray(256)
    for row, (first, last, _) in enumerate(_SCRIPTS):
        table[first : last + 1] = bytes([row]) * (last + 1 - first)
    return bytes(table)


_CHAR_CLASSES = _build_char_classes()
_SCRIPT_ROWS = _build_script_rows()


def estimate_tokens(text: str) -> int:
    if not text:
        return 0
    ascii_text = text.encode("ascii", "ignore")
    tokens = _ascii_tokens(ascii_text)
    if len(ascii_text) < len(text):
        tokens += _other_tokens(text, len(ascii_text))
    return max(1, round(tokens))


def _ascii_tokens(text: bytes) -> float:
    """Processes all characters at once, as the bytes of one large integer: a loop would be a hundred times slower."""
    kinds = text.translate(_CHAR_CLASSES)
    size = len(kinds)
    number = int.from_bytes(kinds, "big")
    first_of_run = number & ~(number >> 8)
    starts = first_of_run.to_bytes(size, "big")
    wide_starts = (first_of_run & number << 8).to_bytes(size + 1, "big")
    digits, marks = kinds.count(_DIGIT), kinds.count(_PUNCTUATION)
    capitals = kinds.count(_CAPITAL)
    tokens = (
        0.99 * starts.count(_SMALL)
        + 0.82 * starts.count(_CAPITAL)
        + 0.13 * starts.count(_HUMP)
        + 0.11 * capitals
        + 0.98 * starts.count(_DIGIT)
        + 0.12 * digits
        + 0.55 * starts.count(_PUNCTUATION)
        + 0.27 * marks
        + 1.0 * starts.count(_LINE)
        + 0.32 * wide_starts.count(_SPACE)
    )
    visible = kinds.count(_SMALL) + capitals + digits + marks
    return max(tokens, visible / _MAX_CHARS_PER_TOKEN)


def _other_tokens(text: str, ascii_count: int) -> float:
    """Accepts lone surrogates, since text from a file may contain anything."""
    blocks = text.encode("utf-16-le", "surrogatepass")[1::2].translate(_SCRIPT_ROWS)
    tokens = -ascii_count * _SCRIPTS[_SCRIPT_ROWS[0]][2]
    for row, (_, _, weight) in enumerate(_SCRIPTS):
        tokens += blocks.count(row) * weight
    return tokens


class TokenCounter(NamedTuple):
    name: str
    """Shown to the user: "estimate", "splintr o200k"."""
    exact: bool
    count: Callable[[str], int]  # pyright: ignore[reportIncompatibleMethodOverride]
    """Overrides `tuple.count`, which no caller needs."""
    upper_bound: Callable[[str], int]
    """At least the count. Cheap: where it fits a budget, the exact count is not needed."""


@cache
def exact_counter() -> Callable[[str], int] | None:
    """Counts with a real vocabulary if the extra `tokens` is installed, else None. The first count builds the table of
    tokens, which takes long."""
    try:
        import splintr  # pyright: ignore[reportMissingImports]
    except ImportError:
        return None
    load_tokenizer = cache(lambda: splintr.Tokenizer.from_pretrained(_EXACT_ENCODING))  # pyright: ignore

    def count(text: str) -> int:
        tokenizer = load_tokenizer()  # pyright: ignore
        try:
            if "<|" in text:
                # The name of a control token is plain text here.
                return len(tokenizer.encode_ordinary(text))  # pyright: ignore
            return len(tokenizer.encode_flat(text)) // 4  # pyright: ignore
        except UnicodeEncodeError:  # a lone surrogate
            return count(text.encode(errors="replace").decode())

    return count


def _count_bytes(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


def token_counter(exact: bool | None = None) -> TokenCounter:
    """`exact` None: the best available. True: raises RuntimeError if no tokenizer is installed."""
    count = None if exact is False else exact_counter()
    if count is not None:
        return TokenCounter("splintr o200k", True, count, _count_bytes)  # a token has at least one byte
    if exact:
        raise RuntimeError("no tokenizer is installed: pip install 'kitbag[tokens]'")
    return TokenCounter("estimate", False, estimate_tokens, estimate_tokens)
