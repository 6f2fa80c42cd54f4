"""Splits text into the tokens of BERT's uncased vocabulary: words, and the longest known pieces of unknown words.

Used by sentence_encoder. Reads `vocab.txt`, one token per line.
"""

import re
from collections.abc import Iterator

from kitbag.library.routing.terms import strip_accents

_WORD = re.compile(r"[^\W_]+|[^\w\s]|_")
_CJK = re.compile(r"([\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff])")
_MAX_WORD = 100
_MAX_CACHED = 20_000


class VocabularyError(Exception):
    """The file is not a vocabulary of BERT."""


class WordPieceTokenizer:
    def __init__(self, vocabulary: str) -> None:
        self._ids = {token: number for number, token in enumerate(vocabulary.split("\n"))}
        try:
            self.start, self.end, self._unknown = self._ids["[CLS]"], self._ids["[SEP]"], self._ids["[UNK]"]
        except KeyError as error:
            raise VocabularyError(f"no token {error}") from error
        self.size = len(vocabulary.rstrip("\n").split("\n"))
        self._cache: dict[str, tuple[int, ...]] = {}

    def tokenize(self, text: str) -> list[int]:
        """Without the tokens that start and end a text."""
        plain = _CJK.sub(r" \1 ", strip_accents(text) if not text.isascii() else text.lower())
        return [number for word in _WORD.findall(plain) for number in self._pieces(word)]

    def _pieces(self, word: str) -> tuple[int, ...]:
        pieces = self._cache.get(word)
        if pieces is None:
            if len(self._cache) >= _MAX_CACHED:
                self._cache.clear()
            pieces = self._cache[word] = tuple(self._split(word))
        return pieces

    def _split(self, word: str) -> list[int]:
        if len(word) > _MAX_WORD:
            return [self._unknown]
        found = list(self._longest_pieces(word))
        return [self._unknown] if -1 in found else found

    def _longest_pieces(self, word: str) -> Iterator[int]:
        start = 0
        while start < len(word):
            for end in range(len(word), start, -1):
                piece = word[start:end] if start == 0 else f"##{word[start:end]}"
                if piece in self._ids:
                    yield self._ids[piece]
                    start = end
                    break
            else:
                yield -1
                return
