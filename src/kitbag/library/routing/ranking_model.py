"""Two logistic models: how likely a message needs a skill, from the features of the pair, and how likely it needs any,
from its best matches.

Used by skill_search. `scripts/train_ranking` fits the weights in `ranking_model.json`.
"""

import math
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Final

import msgspec

from kitbag.library.routing.features import SkillFeatures

_MAX_LOGIT: Final = 30.0
_SHORT_MESSAGE: Final = 3.2
"""As a `size`: about five rare words."""
_SIMILAR: Final = 0.45
BEST_MATCHES: Final = 5
"""So many of the best matches say whether a message needs any skill."""


class RankingModel(msgspec.Struct, frozen=True, kw_only=True):
    score: dict[str, float]
    """Weights by the name of the feature: their sum orders the skills for a message."""
    probability: dict[str, float]
    """Weights of the features, of `total` (the score) and of `bias`: their sum is the logarithm of the odds that the
    message needs the skill."""
    confident: float
    """The probability of a skill that the message needs for sure."""
    need: dict[str, float]
    """Weights of the numbers in `summarize_matches` and of `bias`: their sum is the logarithm of the odds that the
    message needs any skill."""
    needed: float
    """A message with at least this sum needs a skill."""

    def rank(self, features: SkillFeatures) -> float:
        return sum(weight * getattr(features, name) for name, weight in self.score.items())

    def estimate(self, features: SkillFeatures, score: float) -> float:
        """The probability that the message needs the skill. Of a short message, words that only the body has prove
        nothing."""
        has_evidence = features.coverage or features.trigger or features.path or features.similarity >= _SIMILAR
        if features.size < _SHORT_MESSAGE and not has_evidence:
            return 0.0
        known = {"bias": 1.0, "total": score}
        logit = sum(
            weight * (known[name] if name in known else getattr(features, name))
            for name, weight in self.probability.items()
        )
        return 1.0 / (1.0 + math.exp(-max(-_MAX_LOGIT, min(_MAX_LOGIT, logit))))

    def needs_any(self, matches: Sequence[tuple[SkillFeatures, float]]) -> bool:
        """Whether a message with these matches needs a skill: features and scores, best first."""
        if not matches:
            return False
        summary = {"bias": 1.0, **summarize_matches(matches)}
        return sum(weight * summary[name] for name, weight in self.need.items()) >= self.needed


def summarize_matches(matches: Sequence[tuple[SkillFeatures, float]]) -> Mapping[str, float]:
    """The highest value of each feature among the best matches, which share of a name is in the message if its words
    are rare (`named`), and by how much the best match leads (`margin`). A single match may be weak in each, while
    together they show what a message is about."""
    best = matches[:BEST_MATCHES]
    summary = {name: max(getattr(one, name) for one, _ in best) for name in SkillFeatures.__struct_fields__}
    summary["named"] = max(one.name_share * min(one.name_sum, 1.0) for one, _ in best)
    summary["margin"] = best[0][1] - (best[-1][1] if len(best) == BEST_MATCHES else 0.0)
    return summary


class RankingModels(msgspec.Struct, frozen=True, kw_only=True):
    lexical: RankingModel
    semantic: RankingModel
    """With vectors."""


@cache
def load_models() -> RankingModels:
    data = files("kitbag.library.routing").joinpath("ranking_model.json").read_bytes()
    return msgspec.json.decode(data, type=RankingModels)
