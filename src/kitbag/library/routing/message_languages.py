"""Lowers the weights of a message's words that skills can't be expected to have: fragments of words in scripts without
spaces, and the words of another language that no skill has. The Latin words in such a message tell more.

Used by retrieval. Changes nothing for a message in English.
"""

import re
from collections.abc import Collection, Iterator
from typing import Final

from kitbag.library.routing.common_words import technicality
from kitbag.library.routing.message_terms import AnalyzedMessage
from kitbag.library.routing.terms import UNSPACED_LETTERS, strip_accents

_RUN = re.compile("([\u30a0-\u30ff]+)|([\uac00-\ud7af]+)|([\u3040-\u309f]+)|([\u3400-\u9fff\U00020000-\U0003ffff]+)")
"""One word in katakana, one in Korean, a run of hiragana, a run of Chinese characters."""
_UNSPACED = re.compile(UNSPACED_LETTERS)
_WORD = re.compile(r"[^\W\d_]+")
_CHINESE, _HIRAGANA, _ACROSS = 0.6, 0.15, 0.1
"""What a pair of letters counts: Chinese words overlap in a run, hiragana is mostly grammar, and a pair of two scripts
is no word."""
_UNKNOWN: Final = 0.3
"""What a word of another language counts that no skill has."""
_MIN_LATIN, _FRAGMENT_SHARE = 3, 0.3
"""A pair of letters counts at most this share of the rarest Latin word beside it."""
_EVERYDAY, _TECHNICAL = -0.5, 0.5
"""As technicality."""
_MIN_FUNCTION_WORDS, _MIN_SHARE = 2, 0.1
"""So many of the different words of a message, and this share, are function words of its language."""
_FUNCTION_WORDS: Final = (
    "aber auf aus bei bitte das dass dem den der die diese diesen dieser dieses ein eine einem einen einer er es fur"
    " hat haben ich ihr im ist kann kannst mein meine meinem meinen mir mit nach nicht oder sich sie sind uber um und"
    " uns von vom was welche wenn wie wir wird zu zum zur",
    "au aux avec ce ces cette comment dans de des du elle en est et il je la le les leur ma mes moi mon nous ou par pas"
    " peux pour que quel quelle qui sa se ses son sont sur te ton tu un une vos votre vous y",
    "al como con cual de del donde el ella en es esta este esto hay la las lo los me mi mis necesito o para pero por"
    " puedes que quiero se sin son su sus te tu un una y",
    "al che ci come con cosa da dal de dei del della di e gli ho i il in io la le lo mi mia mio nel non o per perche"
    " piu puoi questa questo si sono su una un uno voglio",
    "ao as com como da das de do dos e ela ele em essa esse esta este eu isso ja mais me meu minha na nao no nos o os"
    " para pela pelo por posso preciso que se sem sua um uma voce",
    "aan als bij dat de deze die dit een en er het hoe ik in is je kan maar met mij mijn naar niet of om op te van"
    " voor wat wij ze zijn",
)
"""Of German, French, Spanish, Italian, Portuguese and Dutch, without accents."""
_LANGUAGES = tuple(frozenset(words.split()) for words in _FUNCTION_WORDS)
_SHARED: Final = (
    "a al an as come con da de del den die do e el en er es he i il in io is la las les lo los man me mi mis mon o of"
    " os per son sur ton tu un was no com se te y du des dit op kan si par ma hat dat pour to so at be"
)
_ENGLISH = frozenset(_SHARED.split())
"""Function words that English messages have too, also in names: they prove no language."""


def lower_foreign_words(message: AnalyzedMessage, weights: dict[str, float], known: Collection[str]) -> None:
    """`known`: the keys that some skill has."""
    if not message.text.isascii():
        _lower_fragments(message, weights, known)
        _prefer_latin_words(message, weights, known)
    language = find_function_words(message.text)
    for key in message.terms:
        if _UNSPACED.search(key):
            if key not in known:
                weights[key] *= _UNKNOWN
        elif key in language or message.terms[key].word in language:
            weights[key] = 0.0
        elif language and key not in known:
            weights[key] *= _UNKNOWN


def _lower_fragments(message: AnalyzedMessage, weights: dict[str, float], known: Collection[str]) -> None:
    factors: dict[str, float] = {}
    for bigrams, factor in _list_runs(message.text, weights, known):
        for bigram in bigrams:
            factors[bigram] = max(factors.get(bigram, 0.0), factor)
    for key in message.terms:
        if _UNSPACED.search(key):
            weights[key] *= factors.get(key, _ACROSS)


def _prefer_latin_words(message: AnalyzedMessage, weights: dict[str, float], known: Collection[str]) -> None:
    """`PDF` in a Chinese message: writers use such words for what their language has no word of its own for."""
    latin = [weights[key] for key in known if key in message.terms and key.isascii() and len(key) >= _MIN_LATIN]
    most = _FRAGMENT_SHARE * max(latin, default=0.0)
    if most:
        for key in message.terms:
            if _UNSPACED.search(key):
                weights[key] = min(weights[key], most)


def _list_runs(text: str, weights: dict[str, float], known: Collection[str]) -> Iterator[tuple[list[str], float]]:
    for match in _RUN.finditer(text):
        run = match[0]
        bigrams = [one for at in range(len(run) - 1) if (one := run[at : at + 2]) in weights]
        if match[1] or match[2]:  # one word: its parts together count as the best of them
            total = sum(weights[one] for one in bigrams)
            share = max((weights[one] for one in bigrams), default=0.0) / (total or 1.0)
            is_unknown = bool(match[1]) and any(one not in known for one in bigrams)  # no skill has the whole word
            yield bigrams, share * _UNKNOWN if is_unknown else share
        elif match[3]:
            yield bigrams, _HIRAGANA
        else:
            yield bigrams, 1.0 if len(run) == 2 else _CHINESE


def is_foreign(text: str) -> bool:
    return bool(_UNSPACED.search(text) or find_function_words(text))


def find_borrowed_words(message: AnalyzedMessage) -> frozenset[str]:
    """The keys of words such as `PDF` in a Chinese or German message; none in an English one. Everyday ones, such as
    `iPhone`, do not count."""
    if _UNSPACED.search(message.text):
        least = _EVERYDAY
    elif find_function_words(message.text):
        least = _TECHNICAL  # other words may be of that language
    else:
        return frozenset()
    return frozenset(
        key for key in message.terms if key.isascii() and len(key) >= _MIN_LATIN and technicality(key) >= least
    )


def find_function_words(text: str) -> frozenset[str]:
    """The function words of the message's language; empty for English and for too little text."""
    words = {strip_accents(word) for word in _WORD.findall(text[:2_000])}
    counts = [len(words & (language - _ENGLISH)) for language in _LANGUAGES]
    best = max(counts)
    return _LANGUAGES[counts.index(best)] if best >= max(_MIN_FUNCTION_WORDS, _MIN_SHARE * len(words)) else frozenset()
