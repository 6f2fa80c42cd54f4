"""Splits a message into passages and terms: what ranking searches for.

A passage is a sentence or a line, or several short ones: a need that a skill may cover. Of a message that is too long,
the start, the end and samples between are used.
"""

import re
from typing import Final, NamedTuple

from kitbag.library.routing.terms import list_terms

_MAX_MESSAGE, _LEADING, _TRAILING = 48_000, 24_000, 12_000
_SAMPLES, _SAMPLE_SIZE = 12, 1_000
_MAX_PASSAGES: Final = 96
_MIN_WORDS, _MAX_CHARACTERS = 5, 400
_BREAK = re.compile(r"\n+|(?<=[.!?;:])\s+|(?<=[。！？；])")
_FILE = re.compile(
    r"(?<![\w/.:@-])(?:~?/[A-Za-z][\w.-]*(?:/[\w.-]+)*|(?:[\w-]+/)*[\w-]+\.(?!(?:com|org|net|io|ai)\b)[A-Za-z]\w{1,5}(?!\w))"
)
_MAX_FILE_TEXT: Final = 20_000
_DIGITS = re.compile(r"\d+")
_MAX_TERMS: Final = 600


class MessageTerm:
    __slots__ = ("count", "forms", "key", "passages", "word")

    def __init__(self, key: str, word: str) -> None:
        self.key = key
        self.word = word
        self.count = 0
        self.forms: set[str] = set()
        """The forms that the message has; empty if all forms count the same."""
        self.passages: list[int] = []
        """The passages that contain it."""


class AnalyzedMessage(NamedTuple):
    text: str
    passages: list[str]
    terms: dict[str, MessageTerm]
    """By key, in the order of the message."""
    files: frozenset[str] = frozenset()
    """The files and folders that the message names."""


def analyze_message(message: str) -> AnalyzedMessage:
    text = _sample(message)
    passages = split_passages(text)
    terms: dict[str, MessageTerm] = {}
    for number, passage in enumerate(passages):
        for found in list_terms(passage):
            term = terms.get(found.key)
            if term is None:
                if len(terms) >= _MAX_TERMS:
                    continue
                term = terms[found.key] = MessageTerm(*found)
            term.count += 1
            term.forms.add(found.form)
            if not term.passages or term.passages[-1] != number:
                term.passages.append(number)
    return AnalyzedMessage(text, passages, terms, frozenset(_FILE.findall(text[:_MAX_FILE_TEXT])))


def _sample(message: str) -> str:
    if len(message) <= _MAX_MESSAGE:
        return message
    step = (len(message) - _LEADING - _TRAILING) // _SAMPLES
    samples = [message[start : start + _SAMPLE_SIZE] for start in range(_LEADING, len(message) - _TRAILING, step)]
    return "\n".join((message[:_LEADING], *samples[:_SAMPLES], message[-_TRAILING:]))


def split_passages(text: str) -> list[str]:
    """Lines that differ only in digits, as in logs, count once."""
    passages: list[str] = []
    seen: set[str] = set()
    for piece in _BREAK.split(text):
        piece = piece.strip()
        if not piece:
            continue
        form = _DIGITS.sub("0", piece)
        if form in seen:
            continue
        seen.add(form)
        if passages and (piece.count(" ") < _MIN_WORDS - 1 or passages[-1].count(" ") < _MIN_WORDS - 1):
            joined = f"{passages[-1]} {piece}"
            if len(joined) <= _MAX_CHARACTERS:
                passages[-1] = joined
                continue
        passages.append(piece)
    if len(passages) <= _MAX_PASSAGES:
        return passages
    half = _MAX_PASSAGES // 2
    return [*passages[:half], *passages[-half:]]
