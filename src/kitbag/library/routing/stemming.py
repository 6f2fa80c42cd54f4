"""Reduces English words to stems by the rules that M. F. Porter published in 1980, as SQLite's `porter` tokenizer.

Used by terms. `porter_stem` finds a word in the vocabulary of an FTS5 table; `stem_word` also unifies spellings that
Porter's rules keep apart. Words with other letters than a to z are returned unchanged.
"""

import re
from functools import lru_cache
from typing import Final

# A `y` counts as a consonant at the start of a word and after a vowel.
_VOWEL = re.compile(r"[aeiou]|(?<!^)(?<![aeiou])y")
_SEQUENCE = re.compile(r"(?:[aeiou]|(?<!^)(?<![aeiou])y)+(?:[^aeiouy]|(?<=[aeiou])y)+")
_SHORT_SYLLABLE = re.compile(r"(?:[^aeiouy]|^y|(?<=[aeiou])y)(?:[aeiou]|(?<![aeiou])y)[^aeiouywx]$")
_DOUBLE = re.compile(r"([^aeiouylsz])\1$")
_MIN_LENGTH, _MAX_LENGTH = 3, 64
_SPELLING = re.compile(r"(?<=[a-z]{2}[iy])s(?=(?:e[drs]?|ing|ations?|able)$)")
_KEEPS_S: Final = re.compile(
    r"(?:w|exerc|prom|prec|conc|rai|noi|enterpr|franch|merchand|expert|prem|surpr|advert|superv|rev|adv|prai|cru|disgu"
    r"|r|ar|parad|comprom|telev|improv|dev|d|ra|no|pra)ise[drs]?$|(?:r|prom|rev|adv|superv|advert|comprom|exerc)ising$"
)
_STEP_2: Final = (
    ("ational", "ate"), ("tional", "tion"), ("enci", "ence"), ("anci", "ance"), ("izer", "ize"), ("logi", "log"),
    ("bli", "ble"), ("alli", "al"), ("entli", "ent"), ("eli", "e"), ("ousli", "ous"), ("ization", "ize"),
    ("ation", "ate"), ("ator", "ate"), ("alism", "al"), ("iveness", "ive"), ("fulness", "ful"), ("ousness", "ous"),
    ("aliti", "al"), ("iviti", "ive"), ("biliti", "ble"),
)  # fmt: skip
_STEP_3: Final = (
    ("icate", "ic"), ("ative", ""), ("alize", "al"), ("iciti", "ic"), ("ical", "ic"), ("ful", ""), ("ness", ""),
)  # fmt: skip
_LONG_ENDINGS: Final = tuple(ending for ending, _ in (*_STEP_2, *_STEP_3))
_STEP_4: Final = (
    "ement", "ance", "ence", "able", "ible", "ment", "ant", "ent", "ism", "ate", "iti", "ous", "ive", "ize", "ion",
    "al", "er", "ic", "ou",
)  # fmt: skip
_CHANGED_ENDINGS: Final = ("s", "e", "y", "ed", "ing", "ll", *_LONG_ENDINGS, *_STEP_4)
_IRREGULAR: Final = {
    "analysis": "analyz", "analyses": "analyz", "analyst": "analyz", "analytics": "analyt", "indices": "index",
    "vertices": "vertex", "matrices": "matrix", "written": "write", "wrote": "write", "built": "build",
    "sent": "send", "chose": "choos", "chosen": "choos", "drew": "draw", "drawn": "draw", "children": "child",
}  # fmt: skip


@lru_cache(30_000)
def stem_word(word: str) -> str:
    """`visualise` and `visualize`, `deploy` and `deployment`, `analyze` and `analysis` have the same stem."""
    stem = _IRREGULAR.get(word) or porter_stem(american_spelling(word))
    return f"{stem[:-1]}y" if stem.endswith("i") and len(stem) > 2 else stem


def american_spelling(word: str) -> str:
    return word if ("is" not in word and "ys" not in word) or _KEEPS_S.search(word) else _SPELLING.sub("z", word)


@lru_cache(4_096)
def porter_stem(word: str) -> str:
    if not _MIN_LENGTH <= len(word) <= _MAX_LENGTH or not (word.isascii() and word.isalpha()):
        return word
    if not word.endswith(_CHANGED_ENDINGS):
        return word
    word = _strip_verb_ending(_strip_plural(word))
    if word.endswith("y") and _VOWEL.search(word[:-1]):
        word = f"{word[:-1]}i"
    if word.endswith(_LONG_ENDINGS):
        word = _replace_ending(_replace_ending(word, _STEP_2), _STEP_3)
    return _strip_final(_strip_derivation(word))


def _measure(stem: str) -> int:
    """The number of vowel-consonant sequences."""
    return len(_SEQUENCE.findall(stem))


def _strip_plural(word: str) -> str:
    if word.endswith(("sses", "ies")):
        return word[:-2]
    return word[:-1] if word.endswith("s") and not word.endswith("ss") else word


def _strip_verb_ending(word: str) -> str:
    if word.endswith("eed"):
        return word[:-1] if _measure(word[:-3]) > 0 else word
    for ending in ("ed", "ing"):
        if word.endswith(ending):
            stem = word[: -len(ending)]
            return _restore_stem(stem) if _VOWEL.search(stem) else word
    return word


def _restore_stem(stem: str) -> str:
    if stem.endswith(("at", "bl", "iz")):
        return f"{stem}e"
    if _DOUBLE.search(stem):
        return stem[:-1]
    return f"{stem}e" if _measure(stem) == 1 and _SHORT_SYLLABLE.search(stem) else stem


def _replace_ending(word: str, endings: tuple[tuple[str, str], ...]) -> str:
    for ending, replacement in endings:
        if word.endswith(ending):
            stem = word[: -len(ending)]
            return stem + replacement if _measure(stem) > 0 else word
    return word


def _strip_derivation(word: str) -> str:
    if not word.endswith(_STEP_4):
        return word
    ending = next(ending for ending in _STEP_4 if word.endswith(ending))
    stem = word[: -len(ending)]
    return stem if _measure(stem) > 1 and (ending != "ion" or stem.endswith(("s", "t"))) else word


def _strip_final(word: str) -> str:
    if word.endswith("e"):
        stem = word[:-1]
        measure = _measure(stem)
        if measure > 1 or (measure == 1 and not _SHORT_SYLLABLE.search(stem)):
            word = stem
    return word[:-1] if word.endswith("ll") and _measure(word) > 1 else word
