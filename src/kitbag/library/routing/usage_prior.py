"""What a workspace's past use of skills adds to their scores: little, capped, and never to a probability.

Re-orders near ties in skill_search, so it hides and suggests nothing by itself. assembly registers where the counts
come from (agent/skill_usage); without that, or with `routing.learning` off, the ranking is the same for everyone.
"""

import math
import weakref
from collections.abc import Callable, Mapping
from typing import Final

from kitbag.library.registry import Registry

MAX_PRIOR: Final = 1.0
"""About what one more rare word in a description is worth."""
_FULL_AT: Final = 20
"""Number of loads that earn the whole prior."""

LoadCounter = Callable[[], Mapping[str, int]]
"""Returns how often each skill was loaded for a message in this workspace, by full name."""
_counters: "weakref.WeakKeyDictionary[Registry, LoadCounter]" = weakref.WeakKeyDictionary()
_priors: "weakref.WeakKeyDictionary[Registry, Mapping[str, float]]" = weakref.WeakKeyDictionary()


def set_load_counter(registry: Registry, counter: LoadCounter) -> None:
    """`counter` is called once, at the first search."""
    _counters[registry] = counter
    _priors.pop(registry, None)


def has_load_counter(registry: Registry) -> bool:
    return registry in _counters


def get_usage_prior(registry: Registry) -> Mapping[str, float]:
    """By full name; empty without a counter, or if the user turned learning off."""
    counter = _counters.get(registry)
    if counter is None or registry.settings.get("routing.learning") == "off":
        return {}
    prior = _priors.get(registry)
    if prior is None:
        prior = _priors[registry] = {name: weigh_loads(count) for name, count in counter().items() if count > 0}
    return prior


def weigh_loads(count: int) -> float:
    return round(MAX_PRIOR * min(1.0, math.log1p(count) / math.log1p(_FULL_AT)), 4)
