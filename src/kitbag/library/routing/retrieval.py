"""Finds the candidates for a message in the search index: the skills that share its rarest terms, and those whose
triggers or `paths` match.

Used by skill_search. Every passage of a message contributes its rarest terms; how many rows they find is bounded, and
so is the time. Never raises: an index that can't be read finds nothing.
"""

import math
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from heapq import nlargest
from typing import Final, NamedTuple

from kitbag.library.names import slugify
from kitbag.library.routing.common_words import common_share
from kitbag.library.routing.message_terms import AnalyzedMessage, MessageTerm, analyze_message
from kitbag.library.routing.search_index import SearchIndex
from kitbag.library.routing.stemming import american_spelling, porter_stem, stem_word
from kitbag.library.routing.terms import term_keys
from kitbag.library.routing.triggers import MAX_TRIGGER_TEXT

MAX_CANDIDATES: Final = 24
MAX_SIMILAR, _MIN_SIMILARITY = 16, 0.2
_MIN_SCORE_SHARE: Final = 0.15
_FIELD_ROWS, _BODY_ROWS = 1_800, 600
"""How many rows the terms of a message may find in names and descriptions, and in bodies: bounds the time."""
_PER_PASSAGE: Final = 3
"""The rarest terms of each passage are always searched."""
_BACKGROUND: Final = 100
"""Skills without any of the message's words that each library is thought to have besides: so that a word that only
one of three skills has is as telling as one that only one of a hundred has."""
_PATTERN_SECONDS: Final = 0.1
"""CPU time, so that load on the machine does not change the result."""
_BODY_SHARE: Final = 0.4
"""What a term in a body counts in choosing candidates, compared with one in a description."""
_MAX_COMPLETED, _MIN_PREFIX = 8, 3
_BRITISH = re.compile(r"(?<=[a-z]{2}[iy])z(?=(?:e[drs]?|ing|ations?|able)$)")
_MENT = re.compile(r"ments?$")
_FILE = re.compile(r"(?<![\w/.-])(?:[\w.-]{1,80}/){0,20}[\w.-]{0,80}[\w-]\.[A-Za-z]\w{0,7}(?![\w/-]|\.\w)")


class _SearchTerm(NamedTuple):
    term: MessageTerm
    query: str
    frequencies: list[tuple[int, int]]
    """How many rows have it, in fields and in bodies, for each store."""
    fields: int
    bodies: int


class Candidate:
    """A skill that shares something with the message."""

    __slots__ = ("bodies", "has_path", "position", "similarity", "trigger")

    def __init__(self, position: int) -> None:
        self.position = position
        self.bodies: dict[str, float] = {}
        """How often a term occurs in the body, as BM25 counts, by key."""
        self.trigger = 0.0
        self.similarity = 0.0
        self.has_path = False


class Retrieval(NamedTuple):
    message: AnalyzedMessage
    weights: dict[str, float]
    """The inverse document frequency of each term, by key."""
    candidates: list[Candidate]
    has_vectors: bool = False
    """Whether candidates have a similarity."""


def retrieve_candidates(index: SearchIndex, text: str) -> Retrieval:
    message = analyze_message(text)
    if not index.is_available:
        return _retrieve_without_index(index, message)
    terms = _look_up(index, message.terms)
    total = len(index.skills)
    weights = {one.term.key: term_weight(one.term.key, total, max(one.fields, one.bodies)) for one in terms}
    scores = [0.0] * (total + 1)  # the last one is for rows without a skill: -1
    passages = len(message.passages)
    _score_fields(index, _select_rarest(terms, passages, lambda one: one.fields, _FIELD_ROWS), weights, scores)
    searched = _select_rarest(terms, passages, lambda one: one.bodies, _BODY_ROWS)
    found = _score_bodies(index, searched, weights, scores)
    scores[-1] = 0.0
    least = max(scores) * _MIN_SCORE_SHARE
    probable = [position for position, score in enumerate(scores) if score > least]
    best = nlargest(MAX_CANDIDATES, probable, scores.__getitem__)
    candidates = {position: Candidate(position) for position in best}
    _add_keyword_matches(index, message, candidates)
    for key, frequencies in found.items():
        for position in candidates.keys() & frequencies.keys():
            candidates[position].bodies[key] = frequencies[position]
    for key in message.terms:  # words that no skill has count too: they are what the message is about
        if key not in weights:
            weights[key] = term_weight(key, total, 0)
    has_vectors = _add_similar(index, message, candidates)
    return Retrieval(message, weights, list(candidates.values()), has_vectors)


def _add_similar(index: SearchIndex, message: AnalyzedMessage, candidates: dict[int, Candidate]) -> bool:
    """Adds the most similar skills, and the similarity of all candidates."""
    similarities = index.vectors.similarities(message.text) if index.vectors is not None else None
    if similarities is None:
        return False
    values: list[float] = similarities.tolist()
    for position in nlargest(MAX_SIMILAR, range(len(values)), values.__getitem__):
        if values[position] >= _MIN_SIMILARITY:
            candidates.setdefault(position, Candidate(position))
    for position, candidate in candidates.items():
        candidate.similarity = max(values[position], 0.0)
    return True


def _retrieve_without_index(index: SearchIndex, message: AnalyzedMessage) -> Retrieval:
    """Without FTS5: compares the name and description of every skill."""
    keys = [set(term_keys(f"{skill.full_name} {skill.summary}")) for skill in index.skills]
    counts = {key: sum(key in one for one in keys) for key in message.terms}
    weights = {key: term_weight(key, len(keys), count) for key, count in counts.items()}
    candidates = {
        position: Candidate(position) for position, one in enumerate(keys) if not one.isdisjoint(message.terms)
    }
    _add_keyword_matches(index, message, candidates)
    return Retrieval(message, weights, list(candidates.values()))


def term_weight(key: str, total: int, frequency: int) -> float:
    """The inverse document frequency. Words that are common in any text have a lower one in a small library, too."""
    total += _BACKGROUND
    count = frequency + common_share(key) * _BACKGROUND
    return math.log(1.0 + (total - count + 0.5) / (count + 0.5))


def _score_fields(
    index: SearchIndex, terms: Sequence[_SearchTerm], weights: Mapping[str, float], scores: list[float]
) -> None:
    for number, store in enumerate(index.stores):
        some = [one for one in terms if one.frequencies[number][0]]
        positions = store.positions
        for one, rows in zip(some, store.find_in_fields([one.query for one in some]), strict=False):
            weight = weights[one.term.key] * (1.0 + math.log(one.term.count))
            for (row,) in rows:
                scores[positions[row]] += weight


def _score_bodies(
    index: SearchIndex, terms: Sequence[_SearchTerm], weights: Mapping[str, float], scores: list[float]
) -> dict[str, dict[int, float]]:
    """Adds to the scores, and returns how often each term occurs, by key and position."""
    found: dict[str, dict[int, float]] = {one.term.key: {} for one in terms}
    for number, store in enumerate(index.stores):
        some = [one for one in terms if one.frequencies[number][1]]
        positions = store.positions
        results = store.find_in_bodies([(one.query, one.frequencies[number][1]) for one in some])
        for one, rows in zip(some, results, strict=False):
            weight = weights[one.term.key] * _BODY_SHARE * (1.0 + math.log(one.term.count))
            counts = found[one.term.key]
            for row, frequency in rows:
                position = positions[row]
                counts[position] = frequency
                scores[position] += weight * frequency
    return found


def _look_up(index: SearchIndex, terms: dict[str, MessageTerm]) -> list[_SearchTerm]:
    """The terms that occur in the index, each with its spellings that occur. Of a short message, a word that occurs
    nowhere may be the start of one that does: `kube`."""
    forms = {key: _word_forms(term.word) for key, term in terms.items()}
    stems = sorted({stem for words in forms.values() for _, parts in words for stem in parts})
    known = [store.frequencies(stems) for store in index.stores]
    has_uncounted = index.has_uncounted()
    found: list[_SearchTerm] = []
    for key, term in list(terms.items()):
        used: list[str] = []
        counts = [(0, 0)] * len(known)
        for form, parts in forms[key]:
            some = [_count_phrase(frequencies, parts) for frequencies in known]
            if has_uncounted or any(one != (0, 0) for one in some):
                counts = [(a[0] + b[0], a[1] + b[1]) for a, b in zip(counts, some, strict=True)] if used else some
                used.append(f'"{form}"')
        if used:
            if has_uncounted:
                counts = [(max(fields, 1), max(bodies, 1)) for fields, bodies in counts]
            fields, bodies = counts[0] if len(counts) == 1 else map(sum, zip(*counts, strict=True))
            found.append(_SearchTerm(term, " OR ".join(used), counts, fields, bodies))
        elif len(terms) <= _MAX_COMPLETED and len(term.word) >= _MIN_PREFIX and term.word.isalnum():
            found += _complete(index, term, terms)
    return found


def _count_phrase(frequencies: dict[str, tuple[int, int]], stems: Sequence[str]) -> tuple[int, int]:
    """At most so many rows have all the stems, in fields and in bodies."""
    if len(stems) == 1:
        return frequencies.get(stems[0], (0, 0))
    counts = [frequencies.get(stem, (0, 0)) for stem in stems]
    return min(one[0] for one in counts), min(one[1] for one in counts)


def _complete(index: SearchIndex, term: MessageTerm, terms: dict[str, MessageTerm]) -> Iterable[_SearchTerm]:
    for word in index.find_prefix(term.word):
        completed = terms.setdefault(stem_word(word), MessageTerm(stem_word(word), word))
        completed.count, completed.passages = term.count, term.passages
        counts = [store.frequencies([word]).get(word, (0, 0)) for store in index.stores]
        yield _SearchTerm(completed, f'"{word}" *', counts, sum(c[0] for c in counts), sum(c[1] for c in counts))


@lru_cache(8_192)
def _word_forms(word: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Spellings that the tokenizer of the index keeps apart, each with its stems: deploy and deployment, organise and
    organize."""
    forms = [word, american_spelling(word), _BRITISH.sub("s", word)]
    if len(word) > 4 and word.isascii():
        base = _MENT.sub("", word)
        if base != word or base.endswith("oy"):
            forms += [base, f"{base}ment"]
    return tuple((form, tuple(map(porter_stem, form.split()))) for form in dict.fromkeys(forms))


def _select_rarest(
    terms: Sequence[_SearchTerm], passages: int, count: Callable[[_SearchTerm], int], budget: int
) -> list[_SearchTerm]:
    """The rarest terms of each passage, then the rarest of all, until they would find too many rows."""
    taken: list[_SearchTerm] = []
    per_passage = [0] * passages
    left = budget
    for one in sorted(terms, key=count):
        rows = count(one)
        is_wanted = any(per_passage[passage] < _PER_PASSAGE for passage in one.term.passages)
        if rows <= left or (is_wanted and rows <= left + budget // 2):
            for passage in one.term.passages:
                per_passage[passage] += 1
            taken.append(one)
            left -= rows
    return taken


def _add_keyword_matches(index: SearchIndex, message: AnalyzedMessage, candidates: dict[int, Candidate]) -> None:
    keywords = index.keywords
    for key in message.terms:
        for position in keywords.words.get(key, ()):
            candidates.setdefault(position, Candidate(position))
    text = message.text
    if keywords.phrases:
        slug = slugify(text)
        joined = f"-{slug}-"
        for word in dict.fromkeys(slug.split("-")):
            for phrase, position in keywords.phrases.get(word, ()):
                if f"-{phrase}-" in joined:
                    candidate = candidates.setdefault(position, Candidate(position))
                    candidate.trigger = max(candidate.trigger, min(1.0 + 0.2 * phrase.count("-"), 2.0))
    deadline = time.thread_time() + _PATTERN_SECONDS if keywords.patterns else 0.0
    for pattern, position in keywords.patterns:
        if time.thread_time() >= deadline:
            break
        if pattern.search(text[:MAX_TRIGGER_TEXT]):
            candidate = candidates.setdefault(position, Candidate(position))
            candidate.trigger = max(candidate.trigger, 1.0)
    if keywords.suffixes:
        for file in dict.fromkeys(match[0].lower() for match in _FILE.finditer(text[:20_000])):
            name = file.rpartition("/")[2]
            for suffix in {name, *(f".{part}" for part in name.split(".")[1:])}:
                for position in keywords.suffixes.get(suffix, ()):
                    candidates.setdefault(position, Candidate(position)).has_path = True
