"""Scores texts that have only a name and a description, such as agents and the tools of MCP servers, for a message.

Scores as skill_search scores skills, without an index: for some hundred texts. With a registry that has an encoder, by
meaning too, once the vectors of the texts are there. Used by agent_search and tools/on_demand_tools.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from kitbag.library.registry import Registry
from kitbag.library.routing.features import compute_features, weigh_message
from kitbag.library.routing.message_terms import analyze_message
from kitbag.library.routing.ranking_model import load_models
from kitbag.library.routing.retrieval import term_weight
from kitbag.library.routing.skill_text import make_profile
from kitbag.library.routing.vectors.find_encoder import find_encoder

if TYPE_CHECKING:
    from kitbag.library.routing.vectors.text_vectors import TextVectors

_SIMILAR: Final = 0.3
"""A text without any of the message's words matches from this similarity on."""


class DescriptionMatch(NamedTuple):
    score: float
    """0 if nothing matches."""
    words: dict[str, float]
    """Words of the message that name or description contain, with their weights."""
    is_similar: bool
    """By vectors."""


class DescriptionSearch:
    def __init__(self, texts: Sequence[tuple[str, str]], registry: Registry | None = None) -> None:
        """`texts`: (name, description). `registry`: says which encoder there is; None: none."""
        self._profiles = [make_profile(name, name, description) for name, description in texts]
        self._vectors = _open_vectors(texts, registry) if registry is not None else None

    def wait_until_filled(self, seconds: float) -> None:
        if self._vectors is not None:
            self._vectors.wait_until_filled(seconds)

    def match(self, message: str) -> list[DescriptionMatch]:
        """One for each text."""
        profiles, analyzed = self._profiles, analyze_message(message)
        counts = {key: sum(key in one.summary or key in one.name_keys for one in profiles) for key in analyzed.terms}
        weights = {key: term_weight(key, len(profiles), count) for key, count in counts.items()}
        weighed = weigh_message(analyzed, weights, term_weight("", len(profiles), 0))
        similarities = self._similarities(message, weights)
        models = load_models()
        model = (models.lexical if similarities is None else models.semantic).choose(len(analyzed.terms))
        found: list[DescriptionMatch] = []
        for profile, similarity in zip(profiles, similarities or [0.0] * len(profiles), strict=True):
            features, details = compute_features(
                profile, weighed, {}, None, trigger=0.0, has_path=False, similarity=max(similarity, 0.0)
            )
            is_similar = similarity >= _SIMILAR
            score = round(model.rank(features), 4) if details.words or is_similar else 0.0
            found.append(DescriptionMatch(score, details.words, is_similar))
        return found

    def _similarities(self, message: str, weights: Mapping[str, float]) -> list[float] | None:
        found = self._vectors.similarities(message, weights) if self._vectors is not None else None
        return None if found is None else found.tolist()


def _open_vectors(texts: Sequence[tuple[str, str]], registry: Registry) -> "TextVectors | None":
    encoder = find_encoder(registry)
    if encoder is None:
        return None
    from kitbag.library.routing.vectors.text_vectors import TextVectors

    described = [f"{name.replace('_', ' ').replace('-', ' ')}. {description}" for name, description in texts]
    return TextVectors(encoder, registry.places.kitbag_home, described)


def score_descriptions(texts: Sequence[tuple[str, str]], message: str) -> list[float]:
    """`texts`: (name, description). One score for each; 0 if nothing matches. Without vectors."""
    return [one.score for one in DescriptionSearch(texts).match(message)]
