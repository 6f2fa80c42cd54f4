"""What is known about the model of a run, and which models could be had here: keys, local servers, words, `offline`.

Used by `kitbag models` and by `/model`. Never gives a key away: only the names of variables, and whether they are set.
"""

from typing import Any, NamedTuple

from kitbag.errors import KitbagError
from kitbag.models.catalog import look_up_model, model_aliases
from kitbag.models.local_servers import LOCAL_PORTS, local_models
from kitbag.models.model_selection import ModelSources, SelectedModel, provider_endpoint, resolve_model
from kitbag.runtime.connect_model import ProviderState, list_provider_states

_MAX_LOCAL_MODELS = 20


def model_to_json(chosen: SelectedModel) -> dict[str, Any]:
    known = chosen.info
    return {
        "name": chosen.name,
        "why": chosen.reason,
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


def format_price(dollars: dict[str, float | None]) -> str:
    """`dollars_per_million` of about_model."""
    if dollars["input"]:
        out = f", ${dollars['output']:g} out" if dollars["output"] is not None else ""
        return f"${dollars['input']:g} in{out} for a million tokens"
    return "free" if dollars["input"] == 0 else "not known"


def providers_to_json(sources: ModelSources) -> list[dict[str, Any]]:
    return [
        {
            "name": state.name,
            "key_variable": state.key_variable,
            "has_key": state.has_key,
            "address": state.address,
            "needs_key": needs_key(state, sources),
            "problem": state.problem,
        }
        for state in list_provider_states(sources)
    ]


def needs_key(state: ProviderState, sources: ModelSources) -> bool:
    return not state.problem and provider_endpoint(state.name, sources).needs_key


class AvailableModel(NamedTuple):
    """A model that could be used at once."""

    name: str
    """What leads to it."""
    why: str
    """Why it can be had: a key, a server, nothing needed."""
    aliases: tuple[str, ...]
    """Short names for it, such as `sonnet`."""
    window: int
    price: str


def list_available_models(sources: ModelSources) -> list[AvailableModel]:
    """Those of providers with a key, of servers that answer on this machine, those that the settings describe, and
    `offline`. Asks local servers: blocks for a moment."""
    found: dict[str, AvailableModel] = {}
    states = {state.name: state for state in list_provider_states(sources)}
    for state in states.values():
        if state.has_key:
            why = f"{state.key_variable} is {'kept by setup' if state.key == 'kept' else 'set'}"
            _add_aliases(found, state.name, why, sources)
        elif state.name in LOCAL_PORTS and state.address and sources.probe_local:
            for model in local_models(provider_endpoint(state.name, sources).address)[:_MAX_LOCAL_MODELS]:
                _add(found, f"{state.name}/{model}", f"{state.name} answers at {state.address}", sources)
    for name in sources.models:
        state = states.get(name.partition("/")[0])
        if state is not None and state.address and (state.has_key or not needs_key(state, sources)):
            _add(found, name, "described in your settings", sources)
    if sources.model_setting:
        _add_default(found, sources)
    _add(found, "offline", "needs no key: for trying things out", sources)
    return list(found.values())


def _add_aliases(found: dict[str, AvailableModel], provider: str, why: str, sources: ModelSources) -> None:
    by_model: dict[str, list[str]] = {}
    for word, model in model_aliases(provider).items():
        by_model.setdefault(model, []).append(word)
    for model, words in by_model.items():
        _add(found, f"{provider}/{model}", why, sources, tuple(words))


def _add_default(found: dict[str, AvailableModel], sources: ModelSources) -> None:
    try:
        usual = resolve_model(sources.model_setting, sources, "`model` in your settings")
        usual.connect()
    except KitbagError:
        return
    _add(found, usual.reference, usual.reason, sources)


def _add(
    found: dict[str, AvailableModel], name: str, why: str, sources: ModelSources, words: tuple[str, ...] = ()
) -> None:
    known = look_up_model(name, sources.models)
    price = format_price({"input": known.input, "output": known.said})
    found.setdefault(name, AvailableModel(name, why, words, known.window, price))


def list_missing_keys(sources: ModelSources) -> list[tuple[str, str]]:
    """(provider, variable) of those that would answer if they had a key."""
    return [
        (state.name, state.key_variable)
        for state in list_provider_states(sources)
        if state.key == "missing" and needs_key(state, sources)
    ]
