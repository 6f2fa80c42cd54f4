"""Tells which of many words a text contains, in one pass over its distinct words.

A detector searches for words such as `os.system(` before it applies an expression. The core of a word is its longest
part without punctuation; only words whose core occurs are searched for. A part between punctuation, such as `tool` in
`.tool(`, has to be a whole word of the text; one beside punctuation has to begin or end a word. A short word with a
blank, such as `nc `, is never the end of a longer one. Used by regions and patterns.
"""

import functools
import re
from typing import Final, Generic, NamedTuple, TypeVar

_PUNCTUATION: Final = str.maketrans({chr(code): " " for code in range(128) if not chr(code).isalnum()})
_EDGE: Final = "\0"
"""Stands for the start or end of a word of the text in a core; no text has it after `without_punctuation`."""
_SIGNS: Final = "$\\~^{}[]@<>|\"'`(:=+*%!&;#/.-"
"""A text without one of these has no word with it: one look saves searches for many words."""
_MAX_SIGNS_CACHED: Final = 1000
_START: Final = 3
Key = TypeVar("Key")
_MAX_TOKEN: Final = 200
_MAX_CACHED: Final = 200_000
_numbers: dict[str, int] = {}
"""Each indexed word and its number."""
_by_core: dict[str, list[tuple[str, tuple[str, ...]]]] = {}
"""For each core, the words that have it and their other parts. All parts may have edges."""
_by_token: dict[str, list[tuple[str, tuple[str, ...]]]] = {}
"""The same for words with a part that has to be a whole word."""
_SHORT_WORD: Final = re.compile(r"([a-z]{2,4}) ")
_by_sign: dict[str, set[str]] = {sign: set() for sign in _SIGNS}
"""For each sign, the words that have it."""


class CoreIndex(dict[str, tuple[str, ...]]):
    """For each word of the texts that were read, which of some cores it contains; most words occur in many texts."""

    def __init__(self) -> None:
        self._all: dict[str, None] = {}
        self._by_start: dict[str, list[str]] = {}
        """By their first letters."""
        self._short: list[str] = []
        """Those with fewer letters."""
        self._short_foreign: list[str] = []
        """Those that no ASCII token contains."""
        self.common = set[str]()
        """Those of one letter or none: every text is taken to have them."""

    def add(self, core: str) -> None:
        if core in self._all:
            return
        self._all[core] = None
        for token, cores in self.items():
            if core in f"{_EDGE}{token}{_EDGE}":
                self[token] = (*cores, core)
        if len(core.strip(_EDGE)) < 2 and core.isascii():
            self.common.add(core)
        elif len(core) < _START:
            (self._short if core.isascii() else self._short_foreign).append(core)
        else:
            self._by_start.setdefault(core[:_START], []).append(core)

    def find(self, tokens: set[str]) -> set[str]:
        """The cores that some words contain."""
        return self.common.union(*map(self.__getitem__, tokens))

    def __missing__(self, token: str) -> tuple[str, ...]:
        found = self._find_in_token(token)
        if len(token) <= _MAX_TOKEN and len(self) < _MAX_CACHED:
            self[token] = found
        return found

    def _find_in_token(self, token: str) -> tuple[str, ...]:
        edged = f"{_EDGE}{token}{_EDGE}"
        if len(token) > _MAX_TOKEN:
            return tuple(core for core in self._all if core in edged)
        short = self._short if token.isascii() else self._short + self._short_foreign
        return tuple(
            core
            for at in range(len(edged) - _START + 1)
            for core in self._by_start.get(edged[at : at + _START], ())
            if edged.startswith(core, at)
        ) + tuple(core for core in short if core in edged)


_cores: Final = CoreIndex()


class WordGroup(NamedTuple):
    """Words that a detector searches for together."""

    words: frozenset[str]
    last: int
    """The highest number of a word: texts that were indexed later know all of them."""


def index_words(words: tuple[str, ...]) -> WordGroup:
    """Texts read from now on know whether they contain the words."""
    for word in words:
        if word not in _numbers:
            _numbers[word] = len(_numbers)
            for sign in _by_sign.keys() & set(word):
                _by_sign[sign].add(word)
            if short := _SHORT_WORD.fullmatch(word):
                _by_token.setdefault(short[1], []).append((word, ()))
                continue
            core, *others = parts_with_edges(word)
            needed = tuple(part for part in others if len(part) >= _START)
            for part in (core, *needed):
                _add_core(part)
            if whole := _whole_parts(word):
                _by_token.setdefault(max(whole, key=len), []).append((word, (core, *needed)))
            else:
                _by_core[core].append((word, needed))
    _words_with.cache_clear()
    last = max((_numbers[word] for word in words), default=-1)
    return WordGroup(frozenset(words), last)


def parts_with_edges(word: str) -> list[str]:
    """Its parts without punctuation; the first is its core. They have an edge where punctuation begins or ends a part,
    so that no longer word of a text has it."""
    spaced = without_punctuation(word)
    parts = [f"{_EDGE}{part}{_EDGE}" for part in spaced.split()] or [""]
    if parts[0] and not spaced[0].isspace():
        parts[0] = parts[0].removeprefix(_EDGE)
    if parts[-1] and not spaced[-1].isspace():
        parts[-1] = parts[-1].removesuffix(_EDGE)
    return sorted(parts, key=lambda part: len(part.strip(_EDGE)), reverse=True)


@functools.lru_cache(_MAX_SIGNS_CACHED)
def _words_with(signs: str) -> set[str]:
    """The words with any of some signs."""
    return set[str]().union(*map(_by_sign.__getitem__, signs))


def _whole_parts(word: str) -> list[str]:
    """The parts with punctuation on both sides; other ones may be a piece of a longer word."""
    return without_punctuation(f"x{word}x").split()[1:-1]


def _add_core(core: str) -> None:
    _by_core.setdefault(core, [])
    _cores.add(core)


def without_punctuation(lower: str) -> str:
    return lower.translate(_PUNCTUATION)


class TextWords:
    """The indexed words of one lowercase text."""

    __slots__ = ("_lower", "_maybe", "_size", "_sure", "possible", "spaced")

    def __init__(self, lower: str) -> None:
        self._lower = lower
        self._size = len(_numbers)
        self.spaced = without_punctuation(lower)
        """The text with blanks for punctuation; offsets are the same."""
        tokens = set(self.spaced.split())
        cores = _cores.find(tokens)
        self._maybe = {
            word for core in cores for word, needed in _by_core[core] if not needed or cores.issuperset(needed)
        }
        """Words whose parts occur; not yet searched for."""
        self._maybe.update(
            word for token in tokens & _by_token.keys() for word, needed in _by_token[token] if cores.issuperset(needed)
        )
        self._maybe -= _words_with("".join([sign for sign in _SIGNS if sign not in lower]))
        self.possible = frozenset(self._maybe)
        """All words that may occur; most detectors search for none of them."""
        self._sure = self._maybe & cores - _cores.common
        """Words that occur: one without punctuation is its own core."""
        self._maybe -= self._sure

    def knows(self, number: int) -> bool:
        """Whether the word with a number was indexed before the text was read."""
        return number < self._size

    def has(self, word: str) -> bool:
        number = _numbers.get(word)
        if number is None:
            index_words((word,))
        if word in self._sure:
            return True
        if number is not None and number < self._size and word not in self._maybe:
            return False
        self._maybe.discard(word)
        if word in self._lower:
            self._sure.add(word)
            return True
        return False

    def of_group(self, group: WordGroup) -> list[str]:
        """Those of the words that the text contains, in a stable order."""
        if group.last >= self._size:
            return sorted(word for word in group.words if self.has(word))
        if group.words.isdisjoint(self.possible):
            return []
        for word in group.words & self._maybe:
            self.has(word)
        return sorted(group.words & self._sure)


class WordTable(Generic[Key]):
    """Tells which of many detectors have a word in a text, in one look at its words."""

    __slots__ = ("_keys", "_keys_by_word", "_last")

    def __init__(self, words_by_key: dict[Key, tuple[str, ...]]) -> None:
        self._keys = frozenset(words_by_key)
        self._last = max(index_words(words).last for words in words_by_key.values())
        self._keys_by_word: dict[str, list[Key]] = {}
        for key, words in words_by_key.items():
            for word in words:
                self._keys_by_word.setdefault(word, []).append(key)

    def find(self, words: TextWords) -> frozenset[Key] | set[Key]:
        """The keys that a text may have a word of."""
        if not words.knows(self._last):
            return self._keys
        by_word = self._keys_by_word
        return {key for word in words.possible if word in by_word for key in by_word[word]}
