"""A statistical classifier: how much a text resembles skills that attack, by the words that stand near each other.

Used by examine_item and likeness. The weights are a data file that `scripts/train_audit_classifier` writes. A text is
read in overlapping windows, so that an attack in the middle of a long file counts nearly as much as a short file that
has nothing else.
"""

import functools
import math
import re
from collections.abc import Iterable
from importlib.resources import files
from itertools import chain, islice
from typing import Final, NamedTuple

from kitbag.audit.urls import is_local_host, is_ordinary_host

HALF_WINDOW: Final = 25
"""Windows are twice as many tokens, and each starts in the middle of the one before."""
MIN_TOKENS: Final = 25
"""Fewer prove nothing."""
MAX_TEXT: Final = 200_000
_MIN_WINDOWS: Final = 4
_CHANCE: Final = 0.4
"""How fast the score of a long text grows by chance."""
BEST: Final = 5
"""How many windows count."""
_MAX_WORDS: Final = 4
_MAX_CACHED_TOKENS: Final = 100_000
_MAX_CACHED_PIECES: Final = 200_000
_MAX_CACHED_PIECE: Final = 40
_NUMBER: Final = (1 << 32) - 1
_LETTERS: Final = "A-Za-zÀ-ÖØ-öø-ÿ"
_IDEOGRAPHS: Final = "\u3040-\u30ff\u3400-\u9fff"
# Words come first: most tokens are one, and an alternative that begins with a set costs nothing where it can't match.
_TOKEN = re.compile(
    r"[a-gi-zß-öø-ÿ][a-zß-öø-ÿ]*|(?!https?://[\w.-])h[a-zß-öø-ÿ]*|[A-ZÀ-ÖØ-Þ](?:[a-zß-öø-ÿ]+|[A-ZÀ-ÖØ-Þ]*)"
    r"|[|<>$~&][|<>$~&]*|[.](?:(?:com|net|org|io|dev|app|xyz|site|ru|example|invalid|test)\b(?!\()|\.?/)"
    r"|https?://[\w.-]+|\d(?:\d{0,2}(?:\.\d{1,3}){3}|\d*)"
    rf"|[{_IDEOGRAPHS}]|[^\W\d_{_LETTERS}{_IDEOGRAPHS}][^\W\d_{_LETTERS}{_IDEOGRAPHS}]*"
)


_FRONTMATTER = re.compile(r"---[ \t]*\r?\n(?:[^\n]{0,20000}\n){0,200}?---[ \t]*\r?\n")


class Likeness(NamedTuple):
    best: tuple[float, ...]
    """The scores of the windows most like an attack."""
    window: int
    """The number of the first of them."""
    windows: int
    """How many there are."""

    @property
    def score(self) -> float:
        """The higher, the more like an attack: what the best windows add up to, less what a long text reaches by
        chance. The thresholds of the weights say what it means."""
        return math.log(sum(map(math.exp, self.best))) - _CHANCE * math.log(self.windows)


Followers = dict[int, tuple[int, float]]
"""By the number of another word: the number of the pair and its weight."""


class WordRow(NamedTuple):
    """The weights of a word: alone, before another word, and before the word after that."""

    alone: float
    next: Followers
    second: Followers


class Weights(NamedTuple):
    bias: float
    thresholds: dict[str, float]
    """The least score for a finding of a severity; `beside-medium` for a high one beside a medium one of a rule;
    `beside-high` for a high one of a rule to stay high. Below `ordinary`, nothing in it resembles attacks."""
    words: dict[str, int]
    """The number of each word that has a weight, alone or in a pair."""
    values: dict[int, float]
    """By number of a word or `pair_number`."""
    rows: list[WordRow]
    """The same by number of the first word."""


def list_tokens(text: str) -> list[str]:
    """Words in lower case, parts of identifiers, and signs; addresses as what they are. Without frontmatter."""
    return [_normalize(token) for token in _TOKEN.findall(text, body_start(text), MAX_TEXT)]


def body_start(text: str) -> int:
    front = _FRONTMATTER.match(text)
    return front.end() if front else 0


def _normalize(token: str) -> str:
    first = token[0]
    if first.isdigit():
        return "0" if "." not in token else "<local>" if is_local_host(token) else "<address>"
    if first == ".":
        return token if token.endswith("/") else "<host>"
    if token.startswith(("http://", "https://")):
        return _describe_host(token.partition("://")[2].rstrip(".").lower())
    return token.lower()


@functools.lru_cache(maxsize=4096)
def _describe_host(host: str) -> str:
    if is_local_host(host):
        return "<local>"
    if host[:1].isdigit():
        return "<address>"
    return "<known-url>" if is_ordinary_host(host) else "<url>"


def windows(length: int) -> list[tuple[int, int]]:
    """The tokens of each window of a text with so many."""
    starts = range(0, max(length - HALF_WINDOW, 1), HALF_WINDOW)
    return [(start, min(start + 2 * HALF_WINDOW, length)) for start in starts]


def scale(tokens: int) -> float:
    """What a feature of a window with so many tokens counts."""
    return 1.0 / math.sqrt(max(tokens, 1))


def pair_number(first: int, second: int, distance: int) -> int:
    """Of two words that follow each other (distance 1) or have one word between them (2)."""
    return (first << 34) + (second << 2) + distance


def classify(text: str) -> Likeness | None:
    """None for a text of few words."""
    weights = load_weights()
    # No token contains white space.
    pieces = text[body_start(text) : MAX_TEXT].split()
    numbers = list(chain.from_iterable(map(_piece_numbers().__getitem__, pieces)))
    length = len(numbers)
    if length < MIN_TOKENS:
        return None
    numbers += (0, 0)
    blocks = [
        _features(numbers[start : min(start + HALF_WINDOW, length) + 2], weights.rows)
        for start in range(0, length, HALF_WINDOW)
    ]
    scores: list[float] = []
    for number, (start, end) in enumerate(windows(length)):
        found = blocks[number] | blocks[number + 1] if number + 1 < len(blocks) else blocks[number]
        scores.append(weights.bias + sum(found.values()) * scale(end - start))
    best = sorted(scores, reverse=True)[:BEST]
    return Likeness(tuple(best), scores.index(best[0]), len(scores))


def combine(likenesses: Iterable[Likeness]) -> Likeness | None:
    """Of texts that belong together. The number of the window is that of the text most like an attack."""
    likest = sorted(likenesses, key=lambda one: -one.best[0])
    if not likest:
        return None
    best = sorted(chain.from_iterable(one.best for one in likest), reverse=True)[:BEST]
    return Likeness(tuple(best), likest[0].window, sum(one.windows for one in likest))


class _TokenNumbers(dict[str, int]):
    """The number of each token's word in the weights; 0 for words without one."""

    def __missing__(self, token: str) -> int:
        number = load_weights().words.get(_normalize(token), 0)
        if len(self) < _MAX_CACHED_TOKENS:
            self[token] = number
        return number


class _PieceNumbers(dict[str, tuple[int, ...]]):
    """The numbers of the tokens between white space; most pieces of a text occur often."""

    def __init__(self) -> None:
        self._tokens = _TokenNumbers()

    def __missing__(self, piece: str) -> tuple[int, ...]:
        numbers = tuple(map(self._tokens.__getitem__, _TOKEN.findall(piece)))
        if len(piece) <= _MAX_CACHED_PIECE and len(self) < _MAX_CACHED_PIECES:
            self[piece] = numbers
        return numbers


@functools.cache
def _piece_numbers() -> _PieceNumbers:
    return _PieceNumbers()


def is_long(likeness: Likeness) -> bool:
    """Whether there is enough text to tell an accident of words from an attack."""
    return likeness.windows >= _MIN_WINDOWS


def is_ordinary(likeness: Likeness) -> bool:
    """Whether a long text has nothing that resembles attacks."""
    return is_long(likeness) and likeness.score < load_weights().thresholds["ordinary"]


def _features(numbers: list[int], rows: list[WordRow]) -> dict[int, float]:
    """The features that begin at all but the last two of these tokens, with their weights."""
    found: dict[int, float] = {}
    for first, second, third in zip(numbers, numbers[1:], numbers[2:], strict=False):
        if not first:
            continue
        found[first], following, after = rows[first]
        if second in following:
            pair, value = following[second]
            found[pair] = value
        if third in after:
            pair, value = after[third]
            found[pair] = value
    return found


class Explanation(NamedTuple):
    offset: int
    """The start of the line that counts most."""
    words: tuple[str, ...]
    """What counts most for an attack."""


def explain(text: str, window: int) -> Explanation:
    weights = load_weights()
    start = window * HALF_WINDOW
    matches = list(islice(_TOKEN.finditer(text, body_start(text), MAX_TEXT), start, start + 2 * HALF_WINDOW))
    tokens = [_normalize(match[0]) for match in matches]
    numbers = [*map(weights.words.get, tokens), None, None]
    best: dict[str, float] = {}
    lines: dict[int, float] = {}
    for at, first in enumerate(numbers[:-2]):
        if first is None:
            continue
        for distance in (0, 1, 2):
            other = numbers[at + distance]
            if other is None:
                continue
            value = weights.values.get(pair_number(first, other, distance) if distance else first, 0.0)
            name = f"{tokens[at]}{' … ' if distance == 2 else ' '}{tokens[at + distance]}" if distance else tokens[at]
            line = text.rfind("\n", 0, matches[at].start()) + 1
            lines[line] = lines.get(line, 0.0) + value
            if value > 0:
                best[name] = value
    ordered = sorted(best, key=lambda name: (-best[name], name))
    return Explanation(max(lines, key=lines.__getitem__, default=0), tuple(ordered[:_MAX_WORDS]))


@functools.cache
def load_weights() -> Weights:
    """Lines of the data file: a setting with its value, or a weight in thousandths with `word`, `word word` or
    `word * word`."""
    settings: dict[str, float] = {}
    words: dict[str, int] = {}
    values: dict[int, float] = {}
    for line in files("kitbag.audit").joinpath("text_classifier.txt").read_text("utf-8").splitlines():
        value, _, name = line.partition("\t")
        if not value.lstrip("-").isdigit():
            settings[value] = float(name)
            continue
        parts = name.split(" ")
        first, last = (words.setdefault(part, len(words) + 1) for part in (parts[0], parts[-1]))
        key = first if len(parts) == 1 else pair_number(first, last, len(parts) - 1)
        values[key] = int(value) / 1000.0
    bias = settings.pop("bias")
    rows = [WordRow(values.get(number, 0.0), {}, {}) for number in range(len(words) + 1)]
    for key, value in values.items():
        if distance := key & 3 if key >> 34 else 0:
            followers = rows[key >> 34].next if distance == 1 else rows[key >> 34].second
            followers[(key >> 2) & _NUMBER] = key, value
    return Weights(bias, settings, words, values, rows)
