"""Lines that explain how a message was matched with skills. Used by `kitbag skills explain` and `/why`."""

from typing import Final

import msgspec

from kitbag.packing.catalog import shorten
from kitbag.packing.routing_explanation import SkillExplanation
from kitbag.text.hidden_characters import collapse_whitespace
from kitbag.text.human_format import shorten_home

_MAX_WORDS: Final = 8
_MAX_PASSAGE: Final = 160


def explanation_fields(one: SkillExplanation) -> list[tuple[str, str]]:
    """Empty values are not shown."""
    match = one.match
    pairs = [("outcome", f"{one.outcome}: {shorten_home(one.rule)}"), ("in catalog", one.listing)]
    if match is None:
        return pairs
    parts = (("past use", match.usage), ("files used before", match.touched))
    added = ", ".join(f"{what} add{'s' * (what == 'past use')} {value:.2f}" for what, value in parts if value)
    usage = f" ({added})" if added else ""
    features = {name: value for name, value in msgspec.structs.asdict(match.features).items() if value}
    return [
        *pairs,
        ("probability", f"{match.probability:.2f}{'' if match.is_confident else ', too low to be suggested alone'}"),
        ("score", f"{match.score:.2f}{usage}"),
        ("words", ", ".join(list(match.words)[:_MAX_WORDS])),
        ("in body", ", ".join(list(match.body_words)[:_MAX_WORDS])),
        ("passage", shorten(collapse_whitespace(match.passage), _MAX_PASSAGE)),
        ("features", ", ".join(f"{name} {value:.2f}" for name, value in features.items())),
    ]
