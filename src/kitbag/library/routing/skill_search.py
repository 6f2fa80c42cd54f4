"""Ranks the skills of a library for a message: the one ranking behind search, suggestions, dispatch and `explain`.

Returns only skills that a model may find (visibility), each with the probability that the message needs it, its
features and a reason. Uses retrieval, features and ranking_model; the search index is built at the first call.
"""

import os
import weakref
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from kitbag.errors import Diagnostic
from kitbag.library.registry import Registry
from kitbag.library.routing.features import MatchDetails, SkillFeatures, compute_features, weigh_message
from kitbag.library.routing.ranking_model import load_models
from kitbag.library.routing.retrieval import Candidate, Retrieval, retrieve_candidates, term_weight
from kitbag.library.routing.search_index import SearchIndex
from kitbag.library.routing.terms import term_keys
from kitbag.library.routing.usage_prior import get_usage_prior
from kitbag.library.skills import Skill
from kitbag.library.visibility import Verdict

_REASON_WORDS: Final = 4
TOUCHED_PATH, TOUCHED_EXTENSION = 2.0, 1.0
"""What files that were used before the message add to the score of a skill for such files: a good match scores 10 to
20."""


class SkillMatch(msgspec.Struct, frozen=True, kw_only=True):
    skill: Skill
    visibility: Verdict
    probability: float
    """How likely the message needs the skill, from its features alone: means the same for every message."""
    score: float
    """What results are sorted by. Compares skills for one message only."""
    is_confident: bool
    """Probable enough to be suggested."""
    features: SkillFeatures
    words: dict[str, float]
    """Words of the message that name, description, tags or triggers contain, with their weights, highest first."""
    body_words: dict[str, float]
    """Words of the message that only the body contains."""
    passage: str
    """The passage of the message that matches best."""
    usage: float = 0.0
    """What past use in this workspace adds to the score."""
    touched: float = 0.0
    """What files that were used before the message add to the score."""
    touched_rule: str = ""
    """Why they do."""

    @property
    def reason(self) -> str:
        """Why, in a few words."""
        if self.features.is_called:
            return "named in the message"
        if self.features.trigger:
            return "trigger"
        if self.features.path:
            return "file matches its paths"
        if self.words:
            return f"matches {', '.join(list(self.words)[:_REASON_WORDS])}"
        if self.body_words:
            return f"its instructions mention {', '.join(list(self.body_words)[:_REASON_WORDS])}"
        return "similar meaning"


_indexes: "weakref.WeakKeyDictionary[Registry, SearchIndex]" = weakref.WeakKeyDictionary()


def get_search_index(registry: Registry, wait: float = 0.0) -> SearchIndex:
    """The index of the registry as it is now. `wait`: seconds to wait for bodies that are being indexed."""
    index = _indexes.get(registry)
    if index is None or not index.is_current(registry):
        index = _indexes[registry] = SearchIndex(registry, index)
    if wait:
        index.wait_until_filled(wait)
    return index


def list_index_problems(registry: Registry) -> list[Diagnostic]:
    """Why the index that was built for this registry can't be saved. Builds none."""
    index = _indexes.get(registry)
    return list(index.problems) if index is not None else []


def search_skills(
    registry: Registry,
    message: str,
    limit: int = 10,
    *,
    wait: float = 0.0,
    hidden: bool = False,
    touched: Sequence[str] = (),
) -> list[SkillMatch]:
    """Best first, then by name. Bodies of many new skills are indexed in the background: `wait` for them at most so
    many seconds. `hidden`: also skills that a model may not find. `touched`: files that were used before the message;
    they change the order and no probability."""
    if limit <= 0 or not message.strip():
        return []
    index = get_search_index(registry, wait)
    retrieval = retrieve_candidates(index, message, touched)
    if index.is_damaged:
        index = get_search_index(registry, wait)
        retrieval = retrieve_candidates(index, message, touched)
    ranked = _raise_touched(index, rank_candidates(index, retrieval), touched)
    ranked = _add_prior(ranked, get_usage_prior(registry))
    return list(_visible_matches(registry, ranked, limit, hidden=hidden))


def _raise_touched(
    index: SearchIndex, ranked: list["RankedCandidate"], touched: Sequence[str]
) -> list["RankedCandidate"]:
    """Raises skills whose `paths` match a file that was used, or whose name or description has its extension. A skill
    that has nothing else of the message is no match."""
    if not touched:
        return ranked
    by_extension: dict[str, str] = {}
    for file in touched:
        for key in term_keys(os.path.splitext(file)[1]):
            by_extension.setdefault(key, file)
    raised: list[RankedCandidate] = []
    for one in ranked:
        if one.score <= 0.0:
            continue
        touched_by, rules = 0.0, list[str]()
        if file := one.touched_file:
            touched_by += TOUCHED_PATH
            rules.append(f"{os.path.basename(file)}, used before, matches its `paths`")
        profile = index.profile(one.position)
        if key := next((key for key in by_extension if key in profile.summary or key in profile.name_keys), ""):
            touched_by += TOUCHED_EXTENSION
            rules.append(f"it is about files like {os.path.basename(by_extension[key])}, used before")
        if rules:
            one = msgspec.structs.replace(
                one, score=one.score + touched_by, touched=touched_by, touched_rule="; ".join(rules)
            )
        raised.append(one)
    return sorted(raised, key=lambda one: (-one.score, one.skill.full_name.lower()))


def _add_prior(ranked: list["RankedCandidate"], prior: Mapping[str, float]) -> list["RankedCandidate"]:
    if not any(one.skill.full_name in prior for one in ranked):
        return ranked
    raised = [
        msgspec.structs.replace(one, score=one.score + usage, usage=usage)
        if (usage := prior.get(one.skill.full_name, 0.0))
        else one
        for one in ranked
    ]
    return sorted(raised, key=lambda one: (-one.score, one.skill.full_name.lower()))


class RankedCandidate(msgspec.Struct, frozen=True, kw_only=True):
    skill: Skill
    score: float
    probability: float
    is_confident: bool
    features: SkillFeatures
    details: MatchDetails
    position: int
    touched_file: str
    usage: float = 0.0
    touched: float = 0.0
    touched_rule: str = ""


def rank_candidates(index: SearchIndex, retrieval: Retrieval) -> list[RankedCandidate]:
    models = load_models()
    model = (models.semantic if retrieval.has_vectors else models.lexical).choose(len(retrieval.message.terms))
    weighed = weigh_message(retrieval.message, retrieval.weights, term_weight("", len(index.skills), 0))
    found: list[tuple[Skill, float, SkillFeatures, MatchDetails, Candidate]] = []
    for candidate in retrieval.candidates:
        skill = index.skills[candidate.position]
        features, details = compute_features(
            index.profile(candidate.position),
            weighed,
            candidate.bodies,
            index.keywords.keys.get(candidate.position),
            trigger=candidate.trigger,
            has_path=candidate.has_path,
            similarity=candidate.similarity,
        )
        found.append((skill, model.rank(features), features, details, candidate))
    found.sort(key=lambda one: (-one[1], one[0].full_name.lower()))
    ranked: list[RankedCandidate] = []
    best = next((at for at, one in enumerate(found) if not one[2].path), 0)  # a file says nothing about the words
    for number, (skill, score, features, details, candidate) in enumerate(found):
        probability = model.estimate(features, score, is_best=number in (0, best))
        ranked.append(
            RankedCandidate(
                skill=skill,
                score=score,
                probability=probability,
                is_confident=probability >= model.confident,
                features=features,
                details=details,
                position=candidate.position,
                touched_file=candidate.touched_file,
            )
        )
    return ranked


def _visible_matches(
    registry: Registry, ranked: list[RankedCandidate], limit: int, *, hidden: bool
) -> Iterator[SkillMatch]:
    view = registry.visibility_context()
    for one in ranked:
        if limit <= 0:
            return
        visibility = registry.evaluate(one.skill, view)
        if visibility.searchable or hidden:
            limit -= 1
            yield SkillMatch(
                skill=one.skill,
                visibility=visibility,
                probability=round(one.probability, 4),
                score=round(one.score, 4),
                is_confident=one.is_confident,
                features=one.features,
                words=one.details.words,
                body_words=one.details.body_words,
                passage=one.details.passage,
                usage=one.usage,
                touched=one.touched,
                touched_rule=one.touched_rule,
            )
