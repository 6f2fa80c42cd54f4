"""What is known about the model of a run, and which models could be had here: keys, local servers, words, `offline`.

Used by `kitbag models` and by `/model`. Never gives a key away: only the names of variables, and whether they are set.
"""

from typing import Any, NamedTuple

from kitbag.errors import KitbagError
from kitbag.models.catalog import aliases, look_up
from kitbag.models.local_servers import PORTS, local_models
from kitbag.models.model_selection import Chosen, Sources, endpoint, resolve
from kitbag.runtime.connect_model import ProviderState, provider_states

_MOST_LOCAL = 20


def about_model(chosen: Chosen) -> dict[str, Any]:
    known = chosen.known
    return {
        "name": chosen.name,
        "why": chosen.why,
        "window": known.window,
        "max_output": known.max_output,
        "images": known.images,
        "dollars_per_million": {
            "input": known.input,
            "cached": known.cached,
            "written": known.written,
            "output": known.said,
        },
        "source": known.source,
    }


def price_in_words(dollars: dict[str, float | None]) -> str:
    """`dollars_per_million` of about_model."""
    if dollars["input"]:
        out = f", ${dollars['output']:g} out" if dollars["output"] is not None else ""
        return f"${dollars['input']:g} in{out} for a million tokens"
    return "free" if dollars["input"] == 0 else "not known"


def about_providers(sources: Sources) -> list[dict[str, Any]]:
    return [
        {
            "name": state.name,
            "key_variable": state.key_variable,
            "has_key": state.has_key,
            "address": state.address,
            "needs_key": needs_key(state, sources),
            "problem": state.problem,
        }
        for state in provider_states(sources)
    ]


def needs_key(state: ProviderState, sources: Sources) -> bool:
    return not state.problem and endpoint(state.name, sources).needs_key


class Had(NamedTuple):
    """A model that could be used at once."""

    name: str
    """What leads to it."""
    why: str
    """Why it can be had: a key, a server, nothing needed."""
    words: tuple[str, ...]
    """Short names for it, such as `sonnet`."""
    window: int
    price: str


def models_to_have(sources: Sources) -> list[Had]:
    """Those of providers with a key, of servers that answer on this machine, those that the settings describe, and
    `offline`. Asks local servers: blocks for a moment."""
    found: dict[str, Had] = {}
    states = {state.name: state for state in provider_states(sources)}
    for state in states.values():
        if state.has_key:
            why = f"{state.key_variable} is {'kept by setup' if state.key == 'kept' else 'set'}"
            _add_words(found, state.name, why, sources)
        elif state.name in PORTS and state.address and sources.probe:
            for model in local_models(endpoint(state.name, sources).address)[:_MOST_LOCAL]:
                _add(found, f"{state.name}/{model}", f"{state.name} answers at {state.address}", sources)
    for name in sources.models:
        state = states.get(name.partition("/")[0])
        if state is not None and state.address and (state.has_key or not needs_key(state, sources)):
            _add(found, name, "described in your settings", sources)
    if sources.setting:
        _add_usual(found, sources)
    _add(found, "offline", "needs no key: for trying things out", sources)
    return list(found.values())


def _add_words(found: dict[str, Had], provider: str, why: str, sources: Sources) -> None:
    by_model: dict[str, list[str]] = {}
    for word, model in aliases(provider).items():
        by_model.setdefault(model, []).append(word)
    for model, words in by_model.items():
        _add(found, f"{provider}/{model}", why, sources, tuple(words))


def _add_usual(found: dict[str, Had], sources: Sources) -> None:
    try:
        usual = resolve(sources.setting, sources, "`model` in your settings")
        usual.connect()
    except KitbagError:
        return
    _add(found, usual.again, usual.why, sources)


def _add(found: dict[str, Had], name: str, why: str, sources: Sources, words: tuple[str, ...] = ()) -> None:
    known = look_up(name, sources.models)
    price = price_in_words({"input": known.input, "output": known.said})
    found.setdefault(name, Had(name, why, words, known.window, price))


def missing_keys(sources: Sources) -> list[tuple[str, str]]:
    """(provider, variable) of those that would answer if they had a key."""
    return [
        (state.name, state.key_variable)
        for state in provider_states(sources)
        if state.key == "missing" and needs_key(state, sources)
    ]
