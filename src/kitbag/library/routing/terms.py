"""Turns text into search terms: stems of words, identifiers whole and in parts, bigrams of unspaced scripts.

Used for messages and for the texts of skills, so that both agree. A term has a key, by which texts
are compared, and the word to show. The terms of each raw word are cached.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from kitbag.library.routing.stemming import stem_word

UNSPACED_LETTERS: Final = "[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\U00020000-\U0003ffff]"
"""Letters of scripts without spaces between words (Chinese, Japanese), and Korean, whose words take suffixes."""
_UNSPACED_RUN = re.compile(f"({UNSPACED_LETTERS}+)")
_RAW_BYTES = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-+#") | set(range(128, 256))
_SEPARATE = bytes(byte if byte in _RAW_BYTES else 32 for byte in range(256))
_LETTERS = bytes(byte if byte > 127 or chr(byte).isalnum() else 32 for byte in range(256))
_PART = re.compile(r"[A-Z]{2,}s(?![A-Za-z])|[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_RAW_PART = re.compile(_PART.pattern.encode())
_LETTERS_AND_DIGITS = re.compile(r"[A-Za-z0-9]+")
_LANGUAGES: Final = {"c++": "cplusplus", "c#": "csharp", "f#": "fsharp"}
_WORD = re.compile(r"[^\W_]+")
_MAX_RAW, _MAX_DIGITS, _MAX_PARTS = 48, 4, 8
_MAX_CACHED: Final = 10_000
_MAX_BODY_WORDS, _MAX_BODY_WORD = 100_000, 72
STOP_WORDS: Final = frozenset(
    (
        "a", "about", "above", "after", "again", "all", "also", "am", "an", "and", "any", "anyone", "anything", "are",
        "as", "at", "be", "because", "been", "before", "being", "between", "both", "but", "by", "can", "could", "d",
        "did", "do", "does", "doesn", "doing", "don", "done", "each", "etc", "for", "from", "get", "gets", "getting",
        "give", "go", "got", "had", "has", "have", "having", "he", "help", "her", "here", "hers", "hi", "hey", "him",
        "his", "how", "i", "if", "in", "into", "is", "isn", "it", "its", "just", "know", "let", "lets", "like", "ll",
        "m", "make", "many", "may", "maybe", "me", "might", "more", "most", "much", "must", "my", "need", "needs",
        "never", "no", "nor", "not", "now", "of", "off", "on", "once", "one", "only", "or", "other", "our", "out",
        "over", "own", "please", "re", "s", "same", "shall", "she", "should", "so", "some", "something",
        "such", "t", "tell", "than",
        "thank", "thanks", "that", "the", "their", "them", "then", "there", "these", "they", "thing", "things", "this",
        "those", "through", "to", "too", "under", "until", "up", "us", "use", "used", "user", "users", "uses", "using",
        "ve", "very", "want", "wants", "was", "way", "we", "were", "what", "when", "where", "whether", "which", "while",
        "who", "whom", "why", "will", "with", "would", "you", "your", "yours",
    )
)  # fmt: skip

_COMMON_BIGRAMS: Final = frozenset(
    (
        "帮我", "请帮", "帮忙", "我的", "我们", "你的", "给我", "我想", "我要", "想要", "需要", "这个", "那个", "这些",
        "那些", "哪些", "哪个", "一个", "一下", "一些", "可以", "能不", "不能", "没有", "什么", "怎么", "怎样", "如何",
        "为什", "么样", "是否", "现在", "然后", "还有", "因为", "所以", "但是", "以及", "或者", "如果", "并且", "谢谢",
        "幫我", "請幫", "這個", "這些", "一個", "什麼", "怎麼", "沒有", "我們",
        "くだ", "ださ", "さい", "てく", "して", "する", "した", "しま", "ます", "まし", "です", "でし", "てい", "いる",
        "この", "その", "あの", "これ", "それ", "どの", "どう", "たい", "ない", "ある", "から", "まで", "よう", "こと",
        "もの", "ので", "って", "とい", "いう", "お願", "願い", "いし", "ませ", "せん",
        "해줘", "해주", "주세", "세요", "하는", "합니", "니다", "있는", "있어", "어떻", "떻게", "이거", "에서", "으로",
    )
)  # fmt: skip
"""Pairs of letters of Chinese, Japanese and Korean words that every message may have, as stop words."""


class Term(NamedTuple):
    key: str
    """The stem: equal for words that count as the same."""
    word: str
    """As written, in lower case: a word, or the parts of an identifier."""

    @property
    def form(self) -> str:
        """What tells words with the same key apart: `tests` from `testing`. The key, for an identifier and `c++`."""
        return self.word if self.word.isalnum() else self.key


_cache: dict[bytes, tuple[Term, ...]] = {}


def split_raw_words(text: str) -> list[bytes]:
    return text.encode("utf-8", "replace").translate(_SEPARATE).split()


def list_terms(text: str) -> list[Term]:
    """The terms of a text in order, with duplicates."""
    return [term for raw in split_raw_words(text) for term in analyze_word(raw)]


def term_keys(text: str) -> list[str]:
    return [term.key for raw in split_raw_words(text) for term in analyze_word(raw)]


def count_terms(text: str) -> dict[str, int]:
    """How often each term occurs, by key."""
    return dict(Counter(term_keys(text)))


class _BodyWords(dict[bytes, str]):
    """Key and form of each word: "" for a stop word, a name in `several` for a word with several keys, such as
    `python3`. Not cleared when it is full: words that come early are the frequent ones."""

    def __init__(self) -> None:
        self.several: dict[str, tuple[str, ...]] = {}

    def __missing__(self, raw: bytes) -> str:
        is_word = raw.isascii() and raw.isalpha()
        if is_word and not raw.islower() and (raw[1:].islower() or raw.isupper()):
            name = self[raw.lower()]
        elif is_word and raw.islower():
            word = raw.decode()
            name = "" if len(word) > _MAX_RAW or word in STOP_WORDS else join_form(Term(stem_word(word), word))
        else:
            forms = self._split(raw)
            name = forms[0] if len(forms) == 1 else ""
            if len(forms) > 1:
                name = f"\0{raw.hex()}"
                self.several[name] = forms
        if len(self) < _MAX_BODY_WORDS:
            self[raw] = name
        return name

    def _split(self, raw: bytes) -> tuple[str, ...]:
        """What `_analyze` returns, as forms. Parts of identifiers are words that are known already."""
        if not raw.isascii():
            return tuple(join_form(term) for term in _analyze(raw)) if len(raw) <= _MAX_BODY_WORD else ()
        parts = _RAW_PART.findall(raw.lower() if raw.isupper() else raw) if len(raw) <= _MAX_RAW else []
        if not parts or len(parts) > _MAX_PARTS:
            return ()
        forms = {
            (part.decode() if part.isdigit() else self[part.lower()]): None
            for part in parts
            if (len(part) > 1 or len(parts) == 1) and not part[_MAX_DIGITS:].isdigit()
        }
        if len(parts) > 1 and not raw.isdigit():
            whole = raw.decode().lower()
            forms[join_form(Term(stem_word(whole), whole))] = None
        forms.pop("", None)
        return tuple(forms)


def join_form(term: Term) -> str:
    """Key and form in one, as bodies are indexed; sorts by key."""
    return term.key if term.form == term.key else f"{term.key}\t{term.form}"


class BodyTermCounter:
    """Counts the terms of many long texts by key and form, much faster than `count_terms`: identifiers with `_`, `-` or
    `.` count by their parts, others also whole."""

    def __init__(self) -> None:
        self._words = _BodyWords()

    def count(self, text: str) -> dict[str, int]:
        words = text.encode("utf-8", "replace").translate(_LETTERS).split()
        counts = Counter(map(self._words.__getitem__, words))
        counts.pop("", None)
        several = self._words.several
        for name in counts.keys() & several.keys():
            count = counts.pop(name)
            for key in several[name]:
                counts[key] += count
        return counts


def stem_words(text: str) -> set[str]:
    """The stems of a text without stop words: `reviews` and `reviewing` match `review`."""
    return set(term_keys(text))


def analyze_word(raw: bytes) -> tuple[Term, ...]:
    terms = _cache.get(raw)
    if terms is None:
        terms = _analyze(raw)
        if len(raw) <= _MAX_RAW:
            if len(_cache) >= _MAX_CACHED:
                _cache.clear()
            _cache[raw] = terms
    return terms


def _analyze(raw: bytes) -> tuple[Term, ...]:
    if not raw.isascii():
        return tuple(_analyze_unicode(raw.decode("utf-8", "replace")))
    word = raw.decode().strip("._-")
    if len(word) > _MAX_RAW:
        return ()
    if word.isalpha() and (word.islower() or word.isupper() or word[1:].islower()):
        lower = word.lower()
        return () if lower in STOP_WORDS else (Term(stem_word(lower), lower),)
    return tuple(dict.fromkeys(_analyze_identifier(word)))


def _analyze_identifier(word: str) -> Iterator[Term]:
    """`snake_case`, `camelCase`, `file.name`, `3d`: the parts, and all parts in one, so that spellings match."""
    language = _LANGUAGES.get(word.lower())
    if language:
        yield Term(language, word.lower())
        return
    parts = [part.lower() for part in _PART.findall(word)]
    if not parts or len(parts) > _MAX_PARTS:
        return
    for part in parts:
        if part not in STOP_WORDS and (len(part) > 1 or len(parts) == 1) and not part[_MAX_DIGITS:].isdigit():
            yield Term(stem_word(part), part)
    pieces = _LETTERS_AND_DIGITS.findall(word)
    whole = "".join(parts)
    if len(parts) > 1 and not whole.isdigit():
        yield Term(stem_word(whole), " ".join(pieces).lower())


def _analyze_unicode(word: str) -> Iterator[Term]:
    for at, run in enumerate(_UNSPACED_RUN.split(word)):
        if at % 2:
            for bigram in _bigrams(run):
                if bigram not in _COMMON_BIGRAMS:
                    yield Term(bigram, bigram)
            continue
        for part in _WORD.findall(run):
            plain = strip_accents(part)
            if plain.isascii():
                yield from analyze_word(plain.encode())
            elif len(plain) <= _MAX_RAW:
                yield Term(plain, plain)


def strip_accents(text: str) -> str:
    decomposed = unicodedata.normalize("NFKD", text.casefold())
    return "".join(letter for letter in decomposed if not unicodedata.combining(letter))


def _bigrams(run: str) -> Iterable[str]:
    return [run[start : start + 2] for start in range(max(1, len(run) - 1))]
