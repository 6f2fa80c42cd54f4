"""Scores texts that have only a name and a description, such as agents and the tools of MCP servers, for a message.

Scores as skill_search scores skills, without an index: for some hundred texts. Used by agent_search and tools/toolset.
"""

from collections.abc import Sequence

from kitbag.library.routing.features import compute_features, weigh_message
from kitbag.library.routing.message_terms import analyze_message
from kitbag.library.routing.ranking_model import load_models
from kitbag.library.routing.retrieval import term_weight
from kitbag.library.routing.skill_text import make_profile


def score_descriptions(texts: Sequence[tuple[str, str]], message: str) -> list[float]:
    """`texts`: (name, description). One score for each; 0 if nothing matches."""
    profiles = [make_profile(name, name, description) for name, description in texts]
    analyzed = analyze_message(message)
    counts = {key: sum(key in one.summary or key in one.name_keys for one in profiles) for key in analyzed.terms}
    weights = {key: term_weight(key, len(profiles), count) for key, count in counts.items()}
    weighed = weigh_message(analyzed, weights, term_weight("", len(profiles), 0))
    model = load_models().lexical.choose(len(analyzed.terms))
    features = [
        compute_features(profile, weighed, {}, None, trigger=0.0, has_path=False, similarity=0.0)[0]
        for profile in profiles
    ]
    return [round(model.rank(one), 4) for one in features]
