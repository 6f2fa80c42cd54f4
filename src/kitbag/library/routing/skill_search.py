"""Finds skills for a request by the words they share: names and triggers count most, then descriptions; rare words
count more than common ones.

Used by `kitbag skills search`, SearchSkills, suggestions and dispatch. Only what the visibility rule lets a model find
is returned. Matches with SQLite's FTS5; where there is none, by the overlap of words.
"""

import math
import re
import time
import weakref
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from kitbag.library.names import Namespace, slugify
from kitbag.library.registry import Registry
from kitbag.library.routing.search_index import (
    UNSPACED_LETTERS,
    SearchIndex,
    SearchIndexUnavailableError,
    WordOccurrences,
    query_bigrams,
)
from kitbag.library.routing.triggers import MAX_TRIGGER_TEXT
from kitbag.library.skills import Skill
from kitbag.library.visibility import Verdict

_WORD = re.compile(r"\w+")
_WORD_RUN = re.compile(rf"(?P<joined>{UNSPACED_LETTERS}+)|(?:(?!{UNSPACED_LETTERS})[^\W_])+")
_STOP_WORDS = frozenset(
    (
        "a", "an", "and", "are", "as", "at", "be", "by", "for", "from", "how", "i", "in", "is", "it", "of", "on", "or",
        "that", "the", "this", "to", "use", "when", "with", "you",
    )
)  # fmt: skip
# Words of any request: they speak for a skill only a little.
_WEAK_WORDS: Final = frozenset(
    (
        "about", "after", "all", "also", "any", "been", "before", "but", "can", "could", "did", "do", "does", "get",
        "give", "has", "have", "help", "here", "if", "into", "its", "just", "let", "like", "make", "me", "my", "need",
        "new", "no", "not", "now", "our", "out", "please", "should", "so", "some", "tell", "than", "them", "then",
        "there", "they", "thing", "up", "us", "using", "want", "was", "way", "we", "were", "what", "where", "which",
        "who", "why", "will", "work", "would", "your",
    )
)  # fmt: skip
_NAME_WEIGHT, _TRIGGER_WEIGHT, _SUMMARY_WEIGHT, _WEAK_SHARE = 3.0, 2.5, 1.0, 0.15
_EXACT_BONUS = 10.0
_MAX_WORDS = 32
_MAX_QUERY = 4_000
_PATTERN_SECONDS = 0.1
"""Of a processor: on a busy machine no trigger is passed over because others had their turn."""
_RARE_SHARE = 0.2


class SkillMatch(NamedTuple):
    skill: Skill
    visibility: Verdict
    score: float
    is_confident: bool = False
    """More than chance: the name, a trigger, or at least two words that few skills have."""


_indexes: "weakref.WeakKeyDictionary[Registry, tuple[Namespace[Skill], SearchIndex | None]]" = (
    weakref.WeakKeyDictionary()
)
"""For each registry that is in use, the index of its present state; None: there is no FTS5."""


def stem_words(text: str) -> set[str]:
    """Lower-case words without endings, so that `reviews` and `reviewing` find `review`."""
    return {_stem(word) for word in _WORD.findall(text.lower().replace("_", " ")) if word not in _STOP_WORDS}


def _stem(word: str) -> str:
    for ending in ("ing", "ed", "ies", "es", "s"):
        if word.endswith(ending) and len(word) - len(ending) >= 3 and not word.endswith("ss"):
            word = word[: -len(ending)] + ("y" if ending == "ies" else "")
            if ending in ("ing", "ed") and word[-1] == word[-2] and word[-1] not in "ls":
                word = word[:-1]  # debugging, committed
            break
    return word.removesuffix("e") if len(word) > 3 else word


def search_skills(registry: Registry, query: str, limit: int = 10) -> list[SkillMatch]:
    """Best first; of equal ones, in the order of their names."""
    query = query[:_MAX_QUERY]
    index = _get_index(registry)
    found = _search_by_overlap(registry, query) if index is None else _Scorer(index, query).results()
    ordered = sorted(found, key=lambda one: (-one[1], one[0].full_name.lower()))
    return list(_visible_matches(registry, ordered, limit))


def _visible_matches(
    registry: Registry, found: Iterable[tuple[Skill, float, bool]], limit: int
) -> Iterator[SkillMatch]:
    view = registry.visibility_context()
    for skill, score, sure in found:
        if limit <= 0:
            return
        verdict = registry.evaluate(skill, view)
        if verdict.searchable:
            limit -= 1
            yield SkillMatch(skill, verdict, score, sure)


def _get_index(registry: Registry) -> SearchIndex | None:
    skills = registry.skills
    known = _indexes.get(registry)
    if known is None or known[0] is not skills:
        try:
            known = (skills, SearchIndex(registry))
        except SearchIndexUnavailableError:
            known = (skills, None)
        _indexes[registry] = known
    return known[1]


def _query_words(query: str) -> list[str]:
    """As they are looked up, each once, in their order."""
    words: dict[str, None] = {}
    for run in _WORD_RUN.finditer(query.lower()):
        if run["joined"]:
            words.update(dict.fromkeys(query_bigrams(run[0])))
        elif run[0] not in _STOP_WORDS:
            words[run[0]] = None
    return list(words)[:_MAX_WORDS]


class _Scorer:
    """What one request finds."""

    def __init__(self, index: SearchIndex, query: str) -> None:
        self._documents = index.documents
        self._words = {word: index.find_word(word) for word in _query_words(query)}
        self._query = query
        self._asked = slugify(query)
        self._slug = f"-{self._asked}-"
        self._scores: dict[int, float] = {}
        self._points: dict[int, float] = {}
        """How much speaks for a document by words that few have: a name's or a trigger's count double."""
        self._named: dict[int, int] = {}
        """How many words of its name are in the request."""
        self._certain: set[int] = set()

    def results(self) -> Iterator[tuple[Skill, float, bool]]:
        whole = sum(self._weight(word, where) for word, where in self._words.items()) or 1.0
        for word, where in self._words.items():
            self._add(word, where)
        self._whole_names()
        self._triggers()
        for at, score in self._scores.items():
            document = self._documents[at]
            named = self._named.get(at, 0)
            sure = at in self._certain or self._points.get(at, 0.0) >= (3.0 if named else 2.0)
            exact = _EXACT_BONUS if self._asked and self._asked in document.slugs else 0.0
            yield document.skill, round(score / whole + exact, 3), sure

    def _weight(self, word: str, where: WordOccurrences) -> float:
        count, total = len(where.everywhere), len(self._documents)
        rarity = math.log(1.0 + (total - count + 0.5) / (count + 0.5))
        return max(rarity, 0.1) * (_WEAK_SHARE if word in _WEAK_WORDS else 1.0)

    def _add(self, word: str, where: WordOccurrences) -> None:
        weight = self._weight(word, where)
        rare = word not in _WEAK_WORDS and len(where.everywhere) <= max(3, len(self._documents) * _RARE_SHARE)
        for at in where.everywhere:
            in_name, in_triggers = at in where.name, at in where.triggers
            share = _NAME_WEIGHT if in_name else _TRIGGER_WEIGHT if in_triggers else _SUMMARY_WEIGHT / self._length(at)
            self._scores[at] = self._scores.get(at, 0.0) + weight * share
            self._named[at] = self._named.get(at, 0) + (in_name and word not in _WEAK_WORDS)
            if rare:
                self._points[at] = self._points.get(at, 0.0) + (2.0 if in_name or in_triggers else 1.0)

    def _length(self, at: int) -> float:
        """Long descriptions have many words by chance."""
        return 0.7 + 0.3 * min(self._documents[at].length, 150) / 40

    def _whole_names(self) -> None:
        for at, named in self._named.items():
            document = self._documents[at]
            if named and f"-{document.slugs[0]}-" in self._slug:
                self._certain.add(at)
                self._scores[at] += named * _NAME_WEIGHT

    def _triggers(self) -> None:
        """Phrases that stand in the request, and patterns that match it, as long as that takes no time."""
        until = time.thread_time() + _PATTERN_SECONDS
        text = self._query[:MAX_TRIGGER_TEXT]
        for at, document in enumerate(self._documents):
            for phrase in document.phrases:
                if f"-{phrase}-" in self._slug:
                    self._trigger(at)
            for pattern in document.patterns:
                if time.thread_time() < until and pattern.search(text):
                    self._trigger(at)

    def _trigger(self, at: int) -> None:
        self._certain.add(at)
        self._scores[at] = self._scores.get(at, 0.0) + 2 * _TRIGGER_WEIGHT


def _search_by_overlap(registry: Registry, query: str) -> Iterator[tuple[Skill, float, bool]]:
    """Without an index: every skill is looked at."""
    wanted = stem_words(query)
    phrase = " ".join(query.lower().split())
    for skill in registry.skills if wanted else ():
        entry = registry.manifest_entry(skill)
        in_name = wanted & stem_words(skill.full_name)
        in_triggers = wanted & stem_words(" ".join(entry.dispatch_triggers if entry else ()))
        in_summary = wanted & stem_words(skill.summary)
        score = 3.0 * len(in_name) + 2.0 * len(in_triggers) + len(in_summary)
        is_name = phrase in (skill.name.lower(), skill.full_name.lower())
        if not phrase.isascii() and phrase in f"{skill.full_name} {skill.summary}".lower():
            score += 2  # scripts that put no blanks between words
        if score > 0:
            shared = len(in_name | in_triggers | in_summary)
            sure = is_name or (shared > 1 and bool(in_name or in_triggers))
            yield skill, round(score / len(wanted) + (_EXACT_BONUS if is_name else 0.0), 3), sure
