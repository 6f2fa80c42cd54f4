"""The features of a skill for a message: absolute numbers that mean the same for every message and library.

Used by ranking; ranking_model turns them into a probability, and `explain` shows them.
"""

import math
import os.path
from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec

from kitbag.library.names import slugify
from kitbag.library.routing.common_words import technicality
from kitbag.library.routing.message_languages import find_borrowed_words
from kitbag.library.routing.message_terms import AnalyzedMessage, MessageTerm
from kitbag.library.routing.skill_text import SkillProfile
from kitbag.library.routing.terms import term_keys

_SATURATION: Final = 1.2
_LENGTH_SHARE: Final = 0.5
_USUAL_LENGTH: Final = 30
"""Terms in a usual description."""
_NAME_COUNT: Final = 1
"""A term of the name counts as if the description had it once more."""
_SHORT_SUMMARY: Final = 20
"""A shorter description gets no bonus: it would beat better matches of longer ones."""
_MAX_SLUG: Final = 20_000
_REPEATED_SHARE: Final = 0.3
_SHORT_MESSAGE: Final = 12
"""Number of terms: in a longer message, a trigger may be there by chance."""
_MANY_FILES: Final = 3


class SkillFeatures(msgspec.Struct, frozen=True, kw_only=True):
    summary: float
    """BM25 of name, description and when to use, as a share of the message's weight."""
    body: float
    """The same for body and headings."""
    name: float
    """The weights of the terms in the name, as a share of the message's weight."""
    body_sum: float
    """The same as `body`, not as a share, on a logarithmic scale."""
    keywords: float
    """The weights of the terms in tags and triggers, as a share of the message's weight."""
    coverage: float
    """Which share of the message's weight is in name, description or keywords."""
    body_coverage: float
    """The same with the body."""
    rarest: float
    """The highest weight of a term in name, description or keywords, as a share of the highest possible one."""
    body_rarest: float
    """As `rarest`, for terms that only the body has."""
    name_share: float
    """Which share of the name is in the message."""
    passage: float
    """The highest BM25 of a passage, as a share of the message's weight."""
    is_called: float
    """1 if the message has the whole name, 3 if it is the name."""
    trigger: float
    """1 if a trigger matches; more if it is a phrase of several words, less if the message is long."""
    path: float
    """1 if a file in the message matches `paths`."""
    technical: float
    """How typical the message's words are of skills (above 0) or of everyday messages: the same for all skills."""
    size: float
    """The weight of the whole message, on a logarithmic scale: the same for all skills."""
    terms: float
    """How many terms the message has, on a logarithmic scale: the same for all skills."""
    brevity: float
    """1 divided by the number of terms."""
    files: float
    """1 if the message names three files or more, less for fewer, 0 for none: the same for all skills."""
    extension: float
    """The highest weight of a file extension in the message that name or description has, as a share of the highest
    possible one."""
    similarity: float
    """The cosine of message and skill as vectors; 0 without vectors."""


class BodyMatch(NamedTuple):
    frequency: float
    """How often a term occurs in a body, as BM25 counts."""
    exactness: float
    """1 if it occurs in the form that the message has."""


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
    technical: float
    limit: float
    """The weight of a term that no skill has."""
    slug: str
    """The whole message as a slug, between hyphens."""
    extensions: frozenset[str]
    """The keys of the extensions of the files that the message names."""
    borrowed: frozenset[str]
    """The keys of the English words in a message of another language."""


def weigh_message(message: AnalyzedMessage, weights: Mapping[str, float], limit: float) -> MessageWeights:
    """`limit`: the weight of a term that no skill has."""
    total = sum(weights.get(key, 0.0) for key in message.terms) or 1.0
    technical = sum(weights.get(key, 0.0) * technicality(key) for key in message.terms) / total
    slug = f"-{slugify(message.text[:_MAX_SLUG])}-"
    extensions = frozenset(key for file in message.files for key in term_keys(os.path.splitext(file)[1]))
    borrowed = find_borrowed_words(message)
    return MessageWeights(message, weights, total, technical, limit, slug, extensions, borrowed)


class _FieldMatch(NamedTuple):
    """What name, description, tags and triggers of a skill have of a message."""

    summary: float
    name: float
    keywords: float
    matched_names: int
    weights: dict[str, float]
    """The weight of each term that one of them has, by key."""
    parts: dict[str, float]
    """What each term adds to the BM25 of the skill, by key."""


def compute_features(
    profile: SkillProfile,
    weighed: MessageWeights,
    bodies: Mapping[str, BodyMatch],
    keywords: "set[str] | None",
    *,
    trigger: float,
    has_path: bool,
    similarity: float,
) -> tuple[SkillFeatures, MatchDetails]:
    message, total = weighed.message, weighed.total
    terms = message.terms
    fields = _match_fields(profile, weighed, keywords)
    body, body_weights = _match_body(weighed, bodies, fields)
    passage, best = _best_passage(message, fields.parts)
    covered = sum(fields.weights.values())
    features = SkillFeatures(
        summary=fields.summary / total,
        body=body / total,
        name=fields.name / total,
        body_sum=math.log1p(body),
        keywords=fields.keywords / total,
        coverage=covered / total,
        body_coverage=(covered + sum(body_weights.values())) / total,
        rarest=max(fields.weights.values(), default=0.0) / weighed.limit,
        body_rarest=max(body_weights.values(), default=0.0) / weighed.limit,
        name_share=fields.matched_names / max(len(profile.name_keys), 1),
        passage=best / total,
        is_called=_is_called(profile, weighed),
        trigger=trigger * min(1.0, _SHORT_MESSAGE / max(len(terms), 1)),
        path=float(has_path),
        technical=weighed.technical,
        size=math.log1p(total),
        terms=math.log(max(len(terms), 1)),
        brevity=1.0 / max(len(terms), 1),
        files=min(len(message.files) / _MANY_FILES, 1.0),
        extension=max((fields.weights.get(key, 0.0) for key in weighed.extensions), default=0.0) / weighed.limit,
        similarity=similarity,
    )
    return features, MatchDetails(
        words=_words(terms, fields.weights),
        body_words=_words(terms, body_weights),
        passage=passage,
    )


def _match_fields(profile: SkillProfile, weighed: MessageWeights, keywords: "set[str] | None") -> _FieldMatch:
    """In an order that no hash changes, so that sums are the same."""
    terms, weights = weighed.message.terms, weighed.weights
    norm = _SATURATION * (1 - _LENGTH_SHARE + _LENGTH_SHARE * max(profile.length, _SHORT_SUMMARY) / _USUAL_LENGTH)
    matched: dict[str, float] = {}
    parts: dict[str, float] = {}
    counts = profile.summary | {key: profile.summary.get(key, 0) + _NAME_COUNT for key in profile.name_keys}
    for key, count in counts.items():
        if key in terms:
            weight = matched[key] = weights.get(key, 0.0)
            parts[key] = weight * repeated_weight(terms[key].count) * count * (_SATURATION + 1) / (count + norm)
    summary = sum(parts.values())
    names = [matched[key] for key in profile.name_keys if key in terms]
    keyword_weights: list[float] = []
    for key in sorted(keywords or ()):
        if key in terms:
            weight = matched[key] = weights.get(key, 0.0)
            keyword_weights.append(weight)
            parts[key] = parts.get(key, 0.0) + weight
    return _FieldMatch(summary, sum(names), sum(keyword_weights), len(names), matched, parts)


def _match_body(
    weighed: MessageWeights, bodies: Mapping[str, BodyMatch], fields: _FieldMatch
) -> tuple[float, dict[str, float]]:
    """The BM25 of the body, which is added to the parts of the fields, and the weights of terms that only it has."""
    terms, weights = weighed.message.terms, weighed.weights
    body = 0.0
    only_here: dict[str, float] = {}
    for key, (frequency, exactness) in bodies.items():
        weight = weights.get(key, 0.0)
        part = weight * frequency * repeated_weight(terms[key].count)
        body += part
        fields.parts[key] = fields.parts.get(key, 0.0) + part
        if key not in fields.weights:
            only_here[key] = weight * exactness
    return body, only_here


def repeated_weight(count: int) -> float:
    """What a term counts that the message has so often."""
    return 1.0 + _REPEATED_SHARE * math.log(count) if count > 1 else 1.0


def _is_called(profile: SkillProfile, weighed: MessageWeights) -> float:
    """A name of one word is called only if it is marked as a name, as it may be an ordinary word, or if a message in
    another language has it from English."""
    slug = weighed.slug
    for form in profile.slugs:
        if f"-{form}-" in slug:
            if slug == f"-{form}-":
                return 3.0
            if "-" in form or f"-{form}-skill-" in slug or f"-skill-{form}-" in slug:
                return 1.0
    return float(len(profile.name_keys) == 1 and profile.name_keys[0] in weighed.borrowed)


def _words(terms: Mapping[str, MessageTerm], weights: Mapping[str, float]) -> dict[str, float]:
    ordered = sorted(weights, key=lambda key: (-weights[key], key))
    return {terms[key].word: round(weights[key], 3) for key in ordered}


def _best_passage(message: AnalyzedMessage, parts: Mapping[str, float]) -> tuple[str, float]:
    """The passage whose terms have the highest sum, and the sum."""
    if len(message.passages) <= 1:
        return "".join(message.passages), sum(parts.values())
    matched = [0.0] * len(message.passages)
    for key, part in parts.items():
        for number in message.terms[key].passages:
            matched[number] += part
    best = max(range(len(matched)), key=matched.__getitem__)
    return message.passages[best], matched[best]
