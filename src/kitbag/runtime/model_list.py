"""Describes the model of a run, and lists the models available here: by key, local server, alias, settings, and
`offline`.

Used by `kitbag models` and `/model`. Never shows a key: only variable names and whether they are set.
"""

from typing import Any

import msgspec

from kitbag.errors import KitbagError
from kitbag.models.catalog import look_up_model, model_aliases
from kitbag.models.local_servers import LOCAL_PORTS, local_models
from kitbag.models.model_selection import ModelSources, SelectedModel, provider_endpoint, resolve_model
from kitbag.runtime.connect_model import ProviderState, list_provider_states

_MAX_LOCAL_MODELS = 20


def model_to_json(chosen: SelectedModel) -> dict[str, Any]:
    info = chosen.info
    return {
        "name": chosen.name,
        "why": chosen.reason,
        "window": info.window,
        "max_output": info.max_output,
        "images": info.images,
        "dollars_per_million": {
            "input": info.input_price,
            "cached": info.cache_read_price,
            "written": info.cache_write_price,
            "output": info.output_price,
        },
        "source": info.source,
    }


def format_price(dollars: dict[str, float | None]) -> str:
    """`dollars`: `dollars_per_million` of model_to_json."""
    if dollars["input"]:
        out = f", ${dollars['output']:g} out" if dollars["output"] is not None else ""
        return f"${dollars['input']:g} in{out} per million tokens"
    return "free" if dollars["input"] == 0 else "unknown"


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


class AvailableModel(msgspec.Struct, frozen=True, kw_only=True):
    """A model that can be used now."""

    name: str
    """The name that selects it."""
    why: str
    """Why it is available: a key, a server, nothing needed."""
    aliases: tuple[str, ...]
    """Short names, such as `sonnet`."""
    window: int
    price: str


def list_available_models(sources: ModelSources) -> list[AvailableModel]:
    """Models of providers with a key, of local servers that respond, those in the settings, and `offline`. Queries
    local servers: blocks briefly."""
    models: dict[str, AvailableModel] = {}
    states = {state.name: state for state in list_provider_states(sources)}
    for state in states.values():
        if state.has_key:
            reason = f"{state.key_variable} is {'stored by setup' if state.key == 'kept' else 'set'}"
            _add_aliases(models, state.name, reason, sources)
        elif state.name in LOCAL_PORTS and state.address and sources.probe_local:
            for model in local_models(provider_endpoint(state.name, sources).address)[:_MAX_LOCAL_MODELS]:
                _add(models, f"{state.name}/{model}", f"{state.name} is running at {state.address}", sources)
    for name in sources.models:
        state = states.get(name.partition("/")[0])
        if state is not None and state.address and (state.has_key or not needs_key(state, sources)):
            _add(models, name, "configured in your settings", sources)
    if sources.model_setting:
        _add_default(models, sources)
    _add(models, "offline", "needs no key; for trying Kitbag out", sources)
    return list(models.values())


def _add_aliases(models: dict[str, AvailableModel], provider: str, reason: str, sources: ModelSources) -> None:
    by_model: dict[str, list[str]] = {}
    for word, model in model_aliases(provider).items():
        by_model.setdefault(model, []).append(word)
    for model, names in by_model.items():
        _add(models, f"{provider}/{model}", reason, sources, tuple(names))


def _add_default(models: dict[str, AvailableModel], sources: ModelSources) -> None:
    try:
        default = resolve_model(sources.model_setting, sources, "`model` in your settings")
        default.connect()
    except KitbagError:
        return
    _add(models, default.reference, default.reason, sources)


def _add(
    models: dict[str, AvailableModel], name: str, reason: str, sources: ModelSources, names: tuple[str, ...] = ()
) -> None:
    info = look_up_model(name, sources.models)
    price = format_price({"input": info.input_price, "output": info.output_price})
    models.setdefault(name, AvailableModel(name=name, why=reason, aliases=names, window=info.window, price=price))


def list_missing_keys(sources: ModelSources) -> list[tuple[str, str]]:
    """(provider, variable) of providers that only lack a key."""
    return [
        (state.name, state.key_variable)
        for state in list_provider_states(sources)
        if state.key == "missing" and needs_key(state, sources)
    ]
