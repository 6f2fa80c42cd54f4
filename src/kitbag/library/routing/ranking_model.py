"""A logistic model: how likely a message needs a skill, from the features of the pair.

Used by skill_search. `scripts/train_ranking` fits the weights in `ranking_model.json`.
"""

import math
import os
from functools import cache
from typing import Final

import msgspec

from kitbag.library.routing.features import SkillFeatures

_MAX_LOGIT: Final = 30.0
_SHORT_MESSAGE: Final = 3.2
"""As a `size`: about five rare words."""
_SIMILAR: Final = 0.45
LONG_MESSAGE: Final = 40
"""Number of different terms, so that repeated lines make no message long."""


class RankingModel(msgspec.Struct, frozen=True, kw_only=True):
    score: dict[str, float]
    """Weights by the name of the feature: their sum orders the skills for a message."""
    probability: dict[str, float]
    """Weights of the features, of `total` (the score, on a logarithmic scale), `is_best` (1 for the skill with the
    highest score) and `bias`: their sum is the logarithm of the odds that the message needs the skill."""
    confident: float
    """If no skill has at least this probability, the message needs none."""

    def rank(self, features: SkillFeatures) -> float:
        return sum(weight * getattr(features, name) for name, weight in self.score.items())

    def estimate(self, features: SkillFeatures, score: float, is_best: bool) -> float:
        """The probability that the message needs the skill. Of a short message, words that only the body has prove
        nothing."""
        has_evidence = features.coverage or features.trigger or features.path or features.similarity >= _SIMILAR
        if features.size < _SHORT_MESSAGE and not has_evidence:
            return 0.0
        known = {"bias": 1.0, "total": math.log1p(max(score, 0.0)), "is_best": float(is_best)}
        logit = sum(
            weight * (known[name] if name in known else getattr(features, name))
            for name, weight in self.probability.items()
        )
        return 1.0 / (1.0 + math.exp(-max(-_MAX_LOGIT, min(_MAX_LOGIT, logit))))


class ModelsByLength(msgspec.Struct, frozen=True, kw_only=True):
    short: RankingModel
    long: RankingModel
    """For messages of LONG_MESSAGE terms or more: they tell more, and words in bodies prove more."""

    def choose(self, terms: int) -> RankingModel:
        return self.long if terms >= LONG_MESSAGE else self.short


class RankingModels(msgspec.Struct, frozen=True, kw_only=True):
    lexical: ModelsByLength
    semantic: ModelsByLength
    """With vectors."""


@cache
def load_models() -> RankingModels:
    with open(os.path.join(os.path.dirname(__file__), "ranking_model.json"), "rb") as file:
        return msgspec.json.decode(file.read(), type=RankingModels)
