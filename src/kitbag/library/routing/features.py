"""The features of a skill for a message: absolute numbers that mean the same for every message and library.

Used by ranking; ranking_model turns them into a probability, and `explain` shows them.
"""

import math
from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec

from kitbag.library.names import slugify
from kitbag.library.routing.message_terms import AnalyzedMessage, MessageTerm
from kitbag.library.routing.skill_text import SkillProfile

_SATURATION: Final = 1.2
_LENGTH_SHARE: Final = 0.5
_USUAL_LENGTH: Final = 30
"""Terms in a usual description."""
_SHORT_SUMMARY: Final = 10
"""A shorter description gets no bonus: it would beat a name."""
_MAX_SLUG: Final = 20_000
_REPEATED_SHARE: Final = 0.3
_MIN_BODY_SHARE, _FULL_BODY_TERMS = 0.15, 60
_MAX_BODY_TERMS: Final = 6
_SHORT_MESSAGE: Final = 12
"""Number of terms: in a longer message, a trigger may be there by chance."""


class SkillFeatures(msgspec.Struct, frozen=True, kw_only=True):
    summary: float
    """BM25 of description and when to use, as a share of the message's weight."""
    body: float
    """The same for body and headings."""
    name: float
    """The weights of the terms in the name, as a share of the message's weight."""
    summary_sum: float
    """BM25 of description and when to use, on a logarithmic scale, as are the following two."""
    body_sum: float
    name_sum: float
    keywords: float
    """The weights of the terms in tags and triggers, as a share of the message's weight."""
    coverage: float
    """Which share of the message's weight is in name, description or keywords."""
    body_coverage: float
    """The same with the body."""
    passage: float
    """The best coverage of a single passage, by name, description and keywords."""
    rarest: float
    """The highest weight of a term in name, description or keywords, as a share of the highest possible one."""
    rarest_share: float
    """The same, as a share of the message's highest weight."""
    second: float
    """As `rarest`, for the second highest weight."""
    body_rarest: float
    """As `rarest`, for terms that only the body has."""
    body_terms: float
    """How many terms only the body has, at most 6."""
    name_share: float
    """Which share of the name is in the message."""
    is_called: float
    """1 if the message has the whole name, 3 if it is the name."""
    trigger: float
    """1 if a trigger matches; more if it is a phrase of several words, less if the message is long."""
    path: float
    """1 if a file in the message matches `paths`."""
    size: float
    """The weight of the whole message, on a logarithmic scale: the same for all skills."""
    terms: float
    """How many terms the message has: the same for all skills."""
    similarity: float
    """The cosine of message and skill as vectors; 0 without vectors."""


class MatchDetails(msgspec.Struct, frozen=True, kw_only=True):
    words: dict[str, float]
    """Words of the message that name, description, tags or triggers contain, with their weights, highest first."""
    body_words: dict[str, float]
    """Words of the message that only the body contains."""
    passage: str
    """The passage of the message that matches best."""


class MessageWeights(NamedTuple):
    """What is the same for all skills."""

    message: AnalyzedMessage
    weights: Mapping[str, float]
    """The inverse document frequency of each term, by key."""
    total: float
    highest: float
    """The highest weight of a term."""
    limit: float
    """The weight of a term that no skill has."""
    slug: str
    """The whole message as a slug, between hyphens."""


def weigh_message(message: AnalyzedMessage, weights: Mapping[str, float], limit: float) -> MessageWeights:
    """`limit`: the weight of a term that no skill has."""
    each = [weights.get(key, 0.0) for key in message.terms]
    slug = f"-{slugify(message.text[:_MAX_SLUG])}-"
    return MessageWeights(message, weights, sum(each) or 1.0, max(each, default=0.0) or 1.0, limit, slug)


def compute_features(
    profile: SkillProfile,
    weighed: MessageWeights,
    bodies: Mapping[str, float],
    keywords: "set[str] | None",
    *,
    trigger: float,
    has_path: bool,
    similarity: float,
) -> tuple[SkillFeatures, MatchDetails]:
    message, weights, total = weighed.message, weighed.weights, weighed.total
    terms = message.terms
    norm = _SATURATION * (1 - _LENGTH_SHARE + _LENGTH_SHARE * max(profile.length, _SHORT_SUMMARY) / _USUAL_LENGTH)
    summary = name = body = keyword = 0.0
    field_weights: dict[str, float] = {}
    body_weights: dict[str, float] = {}
    for key, count in profile.summary.items():  # in an order that no hash changes, so that sums are the same
        if key not in terms:
            continue
        weight = field_weights[key] = weights.get(key, 0.0)
        summary += weight * repeated_weight(terms[key].count) * count * (_SATURATION + 1) / (count + norm)
    matched_name = 0
    for key in profile.name_keys:
        if key in terms:
            matched_name += 1
            weight = field_weights[key] = weights.get(key, 0.0)
            name += weight
    for key in sorted(keywords or ()):
        if key in terms:
            weight = field_weights[key] = weights.get(key, 0.0)
            keyword += weight
    for key, frequency in bodies.items():
        weight = weights.get(key, 0.0)
        body += weight * frequency * repeated_weight(terms[key].count)
        if key not in field_weights:
            body_weights[key] = weight
    body *= body_share(len(terms))
    covered = sum(field_weights.values())
    passage, coverage = _best_passage(message, field_weights, body_weights)
    rarest, second, *_ = *sorted(field_weights.values(), reverse=True), 0.0, 0.0
    features = SkillFeatures(
        summary=summary / total,
        body=body / total,
        name=name / total,
        summary_sum=math.log1p(summary),
        body_sum=math.log1p(body),
        name_sum=math.log1p(name),
        keywords=keyword / total,
        coverage=covered / total,
        body_coverage=(covered + sum(body_weights.values())) / total,
        passage=coverage,
        rarest=rarest / weighed.limit,
        rarest_share=rarest / weighed.highest,
        second=second / weighed.limit,
        body_rarest=max(body_weights.values(), default=0.0) / weighed.limit,
        body_terms=float(min(len(body_weights), _MAX_BODY_TERMS)),
        name_share=matched_name / max(len(profile.name_keys), 1),
        is_called=_is_called(profile, weighed.slug),
        trigger=trigger * min(1.0, _SHORT_MESSAGE / max(len(terms), 1)),
        path=float(has_path),
        size=math.log1p(total),
        terms=float(len(terms)),
        similarity=similarity,
    )
    return features, MatchDetails(
        words=_words(terms, field_weights), body_words=_words(terms, body_weights), passage=passage
    )


def body_share(terms: int) -> float:
    """What words in a body count for a message of so many terms: a body mentions many things, so that for a short
    message it proves little."""
    return min(_MIN_BODY_SHARE + (1.0 - _MIN_BODY_SHARE) * terms / _FULL_BODY_TERMS, 1.0)


def repeated_weight(count: int) -> float:
    """What a term counts that the message has so often."""
    return 1.0 + _REPEATED_SHARE * math.log(count) if count > 1 else 1.0


def _is_called(profile: SkillProfile, slug: str) -> float:
    """A name of one word is called only if it is marked as a name: it may be an ordinary word."""
    for form in profile.slugs:
        if f"-{form}-" in slug:
            if slug == f"-{form}-":
                return 3.0
            if "-" in form or f"-{form}-skill-" in slug or f"-skill-{form}-" in slug:
                return 1.0
    return 0.0


def _words(terms: Mapping[str, MessageTerm], weights: Mapping[str, float]) -> dict[str, float]:
    ordered = sorted(weights, key=lambda key: (-weights[key], key))
    return {terms[key].word: round(weights[key], 3) for key in ordered}


def _best_passage(
    message: AnalyzedMessage, field_weights: Mapping[str, float], body_weights: Mapping[str, float]
) -> tuple[str, float]:
    if not message.passages:
        return "", 0.0
    matched = [0.0] * len(message.passages)
    for key, weight in field_weights.items():
        for number in message.terms[key].passages:
            matched[number] += weight
    for key, weight in body_weights.items():
        for number in message.terms[key].passages:
            matched[number] += 0.1 * weight
    best = max(range(len(matched)), key=matched.__getitem__)
    return message.passages[best], math.log1p(matched[best])
