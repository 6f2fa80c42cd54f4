"""Searches skills by words: names and triggers weigh most, then descriptions; rare words more than common ones.

Used by `kitbag skills search`, SearchSkills, packing/suggestions and packing/skill_selection. Returns only skills
that a model may find (visibility). Uses search_index, or plain word overlap where SQLite has no FTS5.
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
# Common in any message: they count little.
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
"""CPU time, so that load on the machine does not change the result."""
_RARE_SHARE = 0.2


class SkillSearchResult(NamedTuple):
    skill: Skill
    visibility: Verdict
    score: float
    is_confident: bool = False
    """Matches the name, a trigger, or at least two rare words."""


_indexes: "weakref.WeakKeyDictionary[Registry, tuple[Namespace[Skill], SearchIndex | None]]" = (
    weakref.WeakKeyDictionary()
)
"""The index of each registry in use and the skills it was built from; None without FTS5."""


def stem_words(text: str) -> set[str]:
    """Lower-case stems, so that `reviews` and `reviewing` match `review`."""
    return {_stem(word) for word in _WORD.findall(text.lower().replace("_", " ")) if word not in _STOP_WORDS}


def _stem(word: str) -> str:
    for ending in ("ing", "ed", "ies", "es", "s"):
        if word.endswith(ending) and len(word) - len(ending) >= 3 and not word.endswith("ss"):
            word = word[: -len(ending)] + ("y" if ending == "ies" else "")
            if ending in ("ing", "ed") and word[-1] == word[-2] and word[-1] not in "ls":
                word = word[:-1]  # debugging, committed
            break
    return word.removesuffix("e") if len(word) > 3 else word


def search_skills(registry: Registry, query: str, limit: int = 10) -> list[SkillSearchResult]:
    """Best first, then by name."""
    query = query[:_MAX_QUERY]
    index = _get_index(registry)
    results = _search_by_overlap(registry, query) if index is None else _Scorer(index, query).results()
    ordered = sorted(results, key=lambda result: (-result[1], result[0].full_name.lower()))
    return list(_visible_matches(registry, ordered, limit))


def _visible_matches(
    registry: Registry, results: Iterable[tuple[Skill, float, bool]], limit: int
) -> Iterator[SkillSearchResult]:
    view = registry.visibility_context()
    for skill, score, is_confident in results:
        if limit <= 0:
            return
        visibility = registry.evaluate(skill, view)
        if visibility.searchable:
            limit -= 1
            yield SkillSearchResult(skill, visibility, score, is_confident)


def _get_index(registry: Registry) -> SearchIndex | None:
    skills = registry.skills
    cached = _indexes.get(registry)
    if cached is None or cached[0] is not skills:
        try:
            cached = (skills, SearchIndex(registry))
        except SearchIndexUnavailableError:
            cached = (skills, None)
        _indexes[registry] = cached
    return cached[1]


def _query_words(query: str) -> list[str]:
    """The search words of a query, in order, without duplicates."""
    words: dict[str, None] = {}
    for run in _WORD_RUN.finditer(query.lower()):
        if run["joined"]:
            words.update(dict.fromkeys(query_bigrams(run[0])))
        elif run[0] not in _STOP_WORDS:
            words[run[0]] = None
    return list(words)[:_MAX_WORDS]


class _Scorer:
    """Scores the skills for one query."""

    def __init__(self, index: SearchIndex, query: str) -> None:
        self._documents = index.documents
        self._words = {word: index.find_word(word) for word in _query_words(query)}
        self._query = query
        self._asked = slugify(query)
        self._slug = f"-{self._asked}-"
        self._scores: dict[int, float] = {}
        self._points: dict[int, float] = {}
        """Points for rare words by position; a word in the name or a trigger counts double."""
        self._named: dict[int, int] = {}
        """How many words of a skill's name are in the query."""
        self._certain: set[int] = set()

    def results(self) -> Iterator[tuple[Skill, float, bool]]:
        total_weight = sum(self._weight(word, occurrences) for word, occurrences in self._words.items()) or 1.0
        for word, occurrences in self._words.items():
            self._add(word, occurrences)
        self._whole_names()
        self._triggers()
        for position, score in self._scores.items():
            document = self._documents[position]
            named_words = self._named.get(position, 0)
            is_confident = position in self._certain or self._points.get(position, 0.0) >= (3.0 if named_words else 2.0)
            exact = _EXACT_BONUS if self._asked and self._asked in document.slugs else 0.0
            yield document.skill, round(score / total_weight + exact, 3), is_confident

    def _weight(self, word: str, occurrences: WordOccurrences) -> float:
        count, total = len(occurrences.everywhere), len(self._documents)
        rarity = math.log(1.0 + (total - count + 0.5) / (count + 0.5))
        return max(rarity, 0.1) * (_WEAK_SHARE if word in _WEAK_WORDS else 1.0)

    def _add(self, word: str, occurrences: WordOccurrences) -> None:
        weight = self._weight(word, occurrences)
        is_rare = word not in _WEAK_WORDS and len(occurrences.everywhere) <= max(3, len(self._documents) * _RARE_SHARE)
        for position in occurrences.everywhere:
            in_name, in_triggers = position in occurrences.name, position in occurrences.triggers
            share = (
                _NAME_WEIGHT
                if in_name
                else _TRIGGER_WEIGHT
                if in_triggers
                else _SUMMARY_WEIGHT / self._length(position)
            )
            self._scores[position] = self._scores.get(position, 0.0) + weight * share
            self._named[position] = self._named.get(position, 0) + (in_name and word not in _WEAK_WORDS)
            if is_rare:
                self._points[position] = self._points.get(position, 0.0) + (2.0 if in_name or in_triggers else 1.0)

    def _length(self, position: int) -> float:
        """Normalizes for length: long descriptions contain many words by chance."""
        return 0.7 + 0.3 * min(self._documents[position].length, 150) / 40

    def _whole_names(self) -> None:
        for position, named_words in self._named.items():
            document = self._documents[position]
            if named_words and f"-{document.slugs[0]}-" in self._slug:
                self._certain.add(position)
                self._scores[position] += named_words * _NAME_WEIGHT

    def _triggers(self) -> None:
        """Adds trigger phrases in the query and trigger patterns that match it, within a CPU time limit."""
        deadline = time.thread_time() + _PATTERN_SECONDS
        text = self._query[:MAX_TRIGGER_TEXT]
        for position, document in enumerate(self._documents):
            for phrase in document.phrases:
                if f"-{phrase}-" in self._slug:
                    self._trigger(position)
            for pattern in document.patterns:
                if time.thread_time() < deadline and pattern.search(text):
                    self._trigger(position)

    def _trigger(self, position: int) -> None:
        self._certain.add(position)
        self._scores[position] = self._scores.get(position, 0.0) + 2 * _TRIGGER_WEIGHT


def _search_by_overlap(registry: Registry, query: str) -> Iterator[tuple[Skill, float, bool]]:
    """Without FTS5: compares every skill."""
    query_words = stem_words(query)
    phrase = " ".join(query.lower().split())
    for skill in registry.skills if query_words else ():
        entry = registry.manifest_entry(skill)
        in_name = query_words & stem_words(skill.full_name)
        in_triggers = query_words & stem_words(" ".join(entry.dispatch_triggers if entry else ()))
        in_summary = query_words & stem_words(skill.summary)
        score = 3.0 * len(in_name) + 2.0 * len(in_triggers) + len(in_summary)
        is_name = phrase in (skill.name.lower(), skill.full_name.lower())
        if not phrase.isascii() and phrase in f"{skill.full_name} {skill.summary}".lower():
            score += 2  # scripts without spaces between words
        if score > 0:
            shared = len(in_name | in_triggers | in_summary)
            is_confident = is_name or (shared > 1 and bool(in_name or in_triggers))
            yield skill, round(score / len(query_words) + (_EXACT_BONUS if is_name else 0.0), 3), is_confident
