"""Finds the candidates for a message in the search index: the skills that match it best by BM25, and those whose
triggers or `paths` match.

Used by skill_search. All terms of a message count, the rarest first, until they have too many postings: that bounds
the time. Never raises: an index that can't be read finds nothing.
"""

import math
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from heapq import nlargest
from typing import Final, NamedTuple

from kitbag.library.names import slugify
from kitbag.library.routing.common_words import common_share
from kitbag.library.routing.features import BodyMatch, repeated_weight
from kitbag.library.routing.mentioned_files import find_mentioned_files
from kitbag.library.routing.message_languages import is_foreign, lower_foreign_words
from kitbag.library.routing.message_terms import AnalyzedMessage, MessageTerm, analyze_message
from kitbag.library.routing.postings import NO_POSTINGS, Postings, find_level
from kitbag.library.routing.search_index import SearchIndex
from kitbag.library.routing.terms import term_keys
from kitbag.library.routing.triggers import MAX_TRIGGER_TEXT

MAX_CANDIDATES: Final = 24
MAX_SIMILAR, _MIN_SIMILARITY = 16, 0.2
_MIN_SCORE_SHARE: Final = 0.15
_MAX_POSTINGS: Final = 30_000
"""How many postings the terms of a message may have together: bounds the time."""
_BACKGROUND: Final = 100
"""Skills without any of the message's words that each library is thought to have besides: so that a word that only
one of three skills has is as telling as one that only one of a hundred has."""
_FEW_BODIES: Final = 50
"""In a library of so many skills, words in bodies count half: that few others have a word proves little there, and any
long text has it."""
_FEW_POSTINGS: Final = 8
"""So many postings are read in the time in which one is searched."""
_OTHER_FORM: Final = 0.5
"""What another form of a message's word counts in a body."""
_PATTERN_SECONDS: Final = 0.1
"""CPU time, so that load on the machine does not change the result."""
_MAX_COMPLETED, _MIN_PREFIX = 8, 3


class _FormPostings(NamedTuple):
    factor: float
    """What the form counts, as a share of the term's weight: more than 1 for the form that the message has."""
    postings: Postings


class _SearchTerm(NamedTuple):
    key: str
    fields: list[Postings]
    """Its postings in names and descriptions, for each store."""
    bodies: list[list["_FormPostings"]]
    """Its postings in bodies, for each store."""
    frequency: int
    """How many skills have it."""
    total: int
    """How many postings it has."""


class Candidate:
    """A skill that shares something with the message."""

    __slots__ = ("bodies", "has_path", "position", "similarity", "touched_file", "trigger")

    def __init__(self, position: int) -> None:
        self.position = position
        self.bodies: dict[str, BodyMatch] = {}
        """By key."""
        self.trigger = 0.0
        self.similarity = 0.0
        self.has_path = False
        self.touched_file = ""
        """A file that was used before the message and matches the skill's `paths`."""


class Retrieval(NamedTuple):
    message: AnalyzedMessage
    weights: dict[str, float]
    """The inverse document frequency of each term, by key."""
    candidates: list[Candidate]
    has_vectors: bool = False
    """Whether candidates have a similarity."""


def retrieve_candidates(index: SearchIndex, text: str, touched: Sequence[str] = ()) -> Retrieval:
    """`touched`: files that were used before the message."""
    message = analyze_message(text)
    if not index.is_available:
        return _retrieve_without_index(index, message, touched)
    terms = _look_up(index, message)
    total = len(index.skills)
    weights = {one.key: term_weight(one.key, total, one.frequency) for one in terms}
    for key, term in message.terms.items():  # words that no skill has count too: they are what the message is about
        if key not in weights:
            weights[key] = 0.0 if " " in term.word else term_weight(key, total, 0)  # the parts of `budget.xlsx` count
    lower_foreign_words(message, weights, {one.key for one in terms})
    searched = _select_rarest(terms)
    candidates = {one: Candidate(one) for one in _find_best(index, searched, message.terms, weights)}
    _add_keyword_matches(index, message, candidates)
    _add_touched(index, touched, candidates)
    has_vectors = _add_similar(index, message, weights, candidates)
    _add_bodies(index, searched, candidates)
    return Retrieval(message, weights, list(candidates.values()), has_vectors)


def _add_bodies(index: SearchIndex, terms: Sequence[_SearchTerm], candidates: Mapping[int, Candidate]) -> None:
    for number, store in enumerate(index.stores):
        by_row = {row: one for at, one in candidates.items() if (row := store.rows.get(at)) is not None}
        for one in terms:
            for factor, postings in one.bodies[number]:
                for row, level in _levels_of(postings, by_row):
                    match = BodyMatch(level * factor / 100.0, min(factor, 1.0))
                    bodies = by_row[row].bodies
                    known = bodies.get(one.key)
                    if known is None or match > known:
                        bodies[one.key] = match


def _levels_of(postings: Postings, rows: Collection[int]) -> Iterable[tuple[int, int]]:
    """The postings of some rows."""
    if len(postings.rows) <= _FEW_POSTINGS * len(rows):
        return [pair for pair in zip(*postings, strict=False) if pair[0] in rows]
    return [(row, level) for row in rows if (level := find_level(postings, row))]


def _add_similar(
    index: SearchIndex, message: AnalyzedMessage, weights: Mapping[str, float], candidates: dict[int, Candidate]
) -> bool:
    """Adds the most similar skills, and the similarity of all candidates."""
    similarities = index.vectors.similarities(message.text, weights) if index.vectors is not None else None
    if similarities is None:
        return False
    values: list[float] = similarities.tolist()
    for position in similarities.argsort()[::-1][:MAX_SIMILAR].tolist():
        if values[position] >= _MIN_SIMILARITY:
            candidates.setdefault(position, Candidate(position))
    for position, candidate in candidates.items():
        candidate.similarity = max(values[position], 0.0)
    return True


def _retrieve_without_index(index: SearchIndex, message: AnalyzedMessage, touched: Sequence[str]) -> Retrieval:
    """Without SQLite: compares the name and description of every skill."""
    keys = [set(term_keys(f"{skill.full_name} {skill.summary}")) for skill in index.skills]
    counts = {key: sum(key in one for one in keys) for key in message.terms}
    weights = {key: term_weight(key, len(keys), count) for key, count in counts.items()}
    lower_foreign_words(message, weights, {key for key, count in counts.items() if count})
    candidates = {
        position: Candidate(position) for position, one in enumerate(keys) if not one.isdisjoint(message.terms)
    }
    for key in message.terms:
        for position in index.keywords.words.get(key, ()):
            candidates.setdefault(position, Candidate(position))
    _add_keyword_matches(index, message, candidates)
    _add_touched(index, touched, candidates)
    return Retrieval(message, weights, list(candidates.values()))


def term_weight(key: str, total: int, frequency: int) -> float:
    """The inverse document frequency. Words that are common in any text have a lower one in a small library, too."""
    total += _BACKGROUND
    count = frequency + common_share(key) * _BACKGROUND
    return math.log(1.0 + (total - count + 0.5) / (count + 0.5))


def _find_best(
    index: SearchIndex, terms: Sequence[_SearchTerm], counts: Mapping[str, MessageTerm], weights: Mapping[str, float]
) -> list[int]:
    """The positions of the skills with the highest scores."""
    by_store: list[list[float]] = []
    for number, store in enumerate(index.stores):
        try:
            by_store.append(_score(index, number, terms, counts, weights))
        except IndexError:  # a row that does not exist
            store.store.mark_damaged()
            by_store.append([0.0] * len(store.positions))
    least = max((max(scores) for scores in by_store), default=0.0) * _MIN_SCORE_SHARE
    probable = [
        (score, -store.positions[row])
        for scores, store in zip(by_store, index.stores, strict=True)
        for row, score in enumerate(scores)
        if score > least
    ]
    return [-position for _, position in nlargest(MAX_CANDIDATES, probable)]


def _score(
    index: SearchIndex,
    number: int,
    terms: Sequence[_SearchTerm],
    counts: Mapping[str, MessageTerm],
    weights: Mapping[str, float],
) -> list[float]:
    """The score of each row of a store."""
    store = index.stores[number]
    scores = [0.0] * len(store.positions)
    for one in terms:
        weight = weights[one.key] * repeated_weight(counts[one.key].count) / 100.0
        for row, level in zip(*one.fields[number], strict=False):
            scores[row] += weight * level
        for factor, postings in one.bodies[number]:
            part = weight * factor
            for row, level in zip(*postings, strict=False):
                scores[row] += part * level
    for key, term in counts.items():
        weight = weights[key] * repeated_weight(term.count)
        for position in index.keywords.words.get(key, ()):
            row = store.rows.get(position)
            if row is not None:
                scores[row] += weight
    for row in store.dead:
        scores[row] = 0.0
    return scores


def _look_up(index: SearchIndex, message: AnalyzedMessage) -> list[_SearchTerm]:
    """The terms that occur in the index. Of a short message, a word that occurs nowhere may be the start of one that
    does: `kube`. Not the German `mir` of `mirror`."""
    terms = message.terms
    found = _find_terms(index, {key: terms[key] for key in sorted(terms)})
    if len(terms) <= _MAX_COMPLETED and not is_foreign(message.text):
        known = {one.key for one in found}
        for term in [term for key, term in terms.items() if key not in known]:
            if len(term.word) >= _MIN_PREFIX and term.word.isalnum():
                found += _complete(index, term, terms)
    return found


def _find_terms(index: SearchIndex, terms: Mapping[str, MessageTerm]) -> list[_SearchTerm]:
    keys = list(terms)
    fields = [store.find_in_fields(keys) for store in index.stores]
    bodies = [store.find_in_bodies(keys) for store in index.stores]
    found: list[_SearchTerm] = []
    for key, term in terms.items():
        in_fields = [one.get(key, NO_POSTINGS) for one in fields]
        in_bodies = [one.get(key, {}) for one in bodies]
        described = sum(len(one.rows) for one in in_fields)
        if described or any(in_bodies):
            found.append(_weigh_forms(term, len(index.skills), described, in_fields, in_bodies))
    return found


def _weigh_forms(
    term: MessageTerm,
    skills: int,
    described: int,
    in_fields: list[Postings],
    in_bodies: list[dict[str, Postings]],
) -> _SearchTerm:
    """The form that the message has is rarer than the term and counts by its own frequency, others count less: in
    large libraries, forms tell skills apart (`slides` is not `sliding`)."""
    counts: dict[str, int] = {}
    for forms in in_bodies:
        for form, postings in forms.items():
            counts[form] = counts.get(form, 0) + len(postings.rows)
    mentioned = sum(counts.values())
    frequency = max(described, (mentioned + max(counts.values(), default=0)) // 2)  # a skill may have several forms
    weight = term_weight(term.key, skills, frequency)
    whole = skills / (skills + _FEW_BODIES)
    factors = dict.fromkeys(counts, whole * _OTHER_FORM if term.forms else whole)
    for form in term.forms & factors.keys():
        factors[form] = whole * term_weight(term.key, skills, max(counts[form], described)) / weight
    weighed = [[_FormPostings(factors[form], one) for form, one in forms.items()] for forms in in_bodies]
    return _SearchTerm(term.key, in_fields, weighed, frequency, described + mentioned)


def _complete(index: SearchIndex, term: MessageTerm, terms: dict[str, MessageTerm]) -> Iterable[_SearchTerm]:
    keys = index.find_prefix(term.word)
    for key in keys:
        completed = terms.setdefault(key, MessageTerm(key, key))
        completed.count, completed.passages = term.count, term.passages
    return _find_terms(index, {key: terms[key] for key in keys})


def _select_rarest(terms: Sequence[_SearchTerm]) -> list[_SearchTerm]:
    taken: list[_SearchTerm] = []
    left = _MAX_POSTINGS
    for one in sorted(terms, key=lambda one: one.total):
        left -= one.total
        if left < 0 and taken:
            break
        taken.append(one)
    return taken


def _add_keyword_matches(index: SearchIndex, message: AnalyzedMessage, candidates: dict[int, Candidate]) -> None:
    keywords = index.keywords
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
    for position in keywords.paths.find_mentioned(find_mentioned_files(text)):
        candidates.setdefault(position, Candidate(position)).has_path = True


def _add_touched(index: SearchIndex, touched: Sequence[str], candidates: dict[int, Candidate]) -> None:
    for position, file in index.keywords.paths.find(touched).items():
        candidates.setdefault(position, Candidate(position)).touched_file = file
