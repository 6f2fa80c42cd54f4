"""Tells which of many words a text contains, in one pass over its distinct words.

A detector searches for words such as `os.system(` before it applies an expression. The core of a word is its longest
part without punctuation; only words whose core occurs are searched for. A short word with a blank, such as `nc `, is
never the end of a longer one. Used by regions and patterns.
"""

import re
from typing import Final, NamedTuple

_PUNCTUATION: Final = str.maketrans({chr(code): " " for code in range(128) if not chr(code).isalnum()})
_START: Final = 3
_MAX_TOKEN: Final = 200
_MAX_CACHED: Final = 200_000
_numbers: dict[str, int] = {}
"""Each indexed word and its number."""
_by_core: dict[str, list[tuple[str, tuple[str, ...]]]] = {}
"""For each core, the words that have it and their other parts."""
_by_token: dict[str, list[str]] = {}
"""Short words with a blank."""
_SHORT_WORD: Final = re.compile(r"([a-z]{2,4}) ")
_by_start: dict[str, list[str]] = {}
"""Cores by their first letters."""
_short: set[str] = set()
_short_ascii: set[str] = set()
_seen: set[str] = set()
"""Words of texts that were searched for cores; most occur in many texts."""
_cores_in: dict[str, tuple[str, ...]] = {}
"""Those of them that have cores."""


class WordGroup(NamedTuple):
    """Words that a detector searches for together."""

    words: frozenset[str]
    last: int
    """The highest number of a word: texts that were indexed later know all of them."""
    cores: frozenset[str]
    """A text that contains one of the words contains one of these."""


def index_words(words: tuple[str, ...]) -> WordGroup:
    """Texts read from now on know whether they contain the words."""
    for word in words:
        if word not in _numbers:
            _numbers[word] = len(_numbers)
            if short := _SHORT_WORD.fullmatch(word):
                _by_token.setdefault(short[1], []).append(word)
                continue
            core, *others = _parts(word)
            needed = tuple(part for part in others if len(part) >= _START)
            for part in (core, *needed):
                _add_core(part)
            _by_core[core].append((word, needed))
    last = max((_numbers[word] for word in words), default=-1)
    return WordGroup(frozenset(words), last, frozenset(map(word_core, words)))


def _parts(word: str) -> list[str]:
    """Its parts without punctuation; the first is its core."""
    return sorted(word.translate(_PUNCTUATION).split() or [""], key=len, reverse=True)


def word_core(word: str) -> str:
    return _parts(word)[0]


def _add_core(core: str) -> None:
    if core in _by_core:
        return
    _by_core[core] = []
    _cores_in.clear()
    _seen.clear()
    if len(core) < _START:
        _short.add(core)
        if core.isascii():
            _short_ascii.add(core)
    else:
        _by_start.setdefault(core[:_START], []).append(core)


class TextWords:
    """The indexed words of one lowercase text."""

    __slots__ = ("_lower", "_maybe", "_possible", "_size", "_sure", "short_cores")

    def __init__(self, lower: str) -> None:
        self._lower = lower
        self._size = len(_numbers)
        tokens = set(lower.translate(_PUNCTUATION).split())
        cores = find_cores(lower, tokens)
        self.short_cores = cores & _short
        """No part of the text has others."""
        self._maybe = {
            word for core in cores for word, needed in _by_core[core] if not needed or cores.issuperset(needed)
        }
        """Words whose parts occur; not yet searched for."""
        self._maybe.update(word for token in tokens & _by_token.keys() for word in _by_token[token])
        self._possible = frozenset(self._maybe)
        """All words that may occur; most detectors search for none of them."""
        self._sure = self._maybe & cores
        """Words that occur: one without punctuation is its own core."""
        self._maybe -= cores

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
        if group.words.isdisjoint(self._possible):
            return []
        for word in group.words & self._maybe:
            self.has(word)
        return sorted(group.words & self._sure)


def find_cores(lower: str, tokens: set[str] | None = None, short: set[str] | None = None) -> set[str]:
    """The indexed cores that a lowercase text, with these tokens and at most these short cores, contains."""
    if tokens is None:
        tokens = set(lower.translate(_PUNCTUATION).split())
    if short is None:
        short = _short_ascii if lower.isascii() else _short
    present = {core for core in short if core in lower}
    for token in tokens - _seen:
        found = _find_in_token(token)
        if len(token) > _MAX_TOKEN or len(_seen) >= _MAX_CACHED:
            present.update(found)
            continue
        _seen.add(token)
        if found:
            _cores_in[token] = found
    for token in tokens & _cores_in.keys():
        present.update(_cores_in[token])
    return present


def _find_in_token(token: str) -> tuple[str, ...]:
    if len(token) > _MAX_TOKEN:
        return tuple(core for core in _by_core if core in token)
    return tuple(
        core
        for at in range(len(token) - _START + 1)
        for core in _by_start.get(token[at : at + _START], ())
        if token.startswith(core, at)
    )
