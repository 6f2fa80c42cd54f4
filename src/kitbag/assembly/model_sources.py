"""Loads what the choice of a model depends on: the user's environment, settings and stored keys.

Used by base_agent, reload, switch_model, open_journal and runtime. Project settings are ignored: they can set neither
a key nor an address.
"""

import os
from typing import Any, Final

import msgspec

from kitbag.errors import Diagnostic
from kitbag.models.catalog import check_model_settings
from kitbag.models.model_selection import ModelSources, ProviderSettings, key_variable, known_providers
from kitbag.models.reply_limits import ReplyLimits
from kitbag.settings import Settings
from kitbag.store.api_keys import KEYS_FILE, read_keys

_RATES: Final = ("requests_per_minute", "tokens_per_minute")
_PROTOCOLS: Final = ("", "anthropic", "chat", "responses")


def load_model_sources(settings: Settings, *, probe: bool = True) -> tuple[ModelSources, list[Diagnostic]]:
    problems: list[Diagnostic] = []
    models: dict[str, dict[str, Any]] = {}
    for name, table in settings.tables("models").items():
        models[name], found = check_model_settings(name, table, settings.user_file)
        problems += found
    providers: dict[str, ProviderSettings] = {}
    for name, table in settings.tables("providers").items():
        providers[name] = _parse_provider(name, table, settings.user_file, problems)
    stored = read_keys(os.path.dirname(settings.user_file))
    if stored.problem:
        file = os.path.join(os.path.dirname(settings.user_file), KEYS_FILE)
        problems.append(
            Diagnostic(severity="warning", code="keys", file=file, line=0, problem=stored.problem, fix=stored.fix)
        )
    sources = ModelSources(
        environment=dict(os.environ),
        model_setting=str(settings.get("model")),
        providers=providers,
        models=models,
        probe_local=probe,
        stored_keys=stored.keys,
        reply_limits=_read_reply_limits(settings),
    )
    return with_stored_keys(sources), problems


def _read_reply_limits(settings: Settings) -> ReplyLimits:
    return ReplyLimits(
        first_byte=settings.get("timeouts.first_byte"),
        first_byte_local=settings.get("timeouts.first_byte_local"),
        event=settings.get("timeouts.event"),
        reply=settings.get("timeouts.reply"),
        characters=settings.get("limits.reply"),
    )


def with_stored_keys(sources: ModelSources) -> ModelSources:
    """Stored keys apply where the environment has none, and only to provider variables."""
    variables = {key_variable(name, sources) for name in known_providers(sources)}
    missing = {
        name: key
        for name, key in sources.stored_keys.items()
        if name in variables and not sources.environment.get(name, "").strip()
    }
    return msgspec.structs.replace(sources, environment={**sources.environment, **missing})


def list_key_values(sources: ModelSources) -> list[str]:
    """Values that must never be recorded, whatever their variables are called."""
    variables = {key_variable(name, sources) for name in known_providers(sources)} - {""}
    return [
        *(sources.environment[name] for name in variables if sources.environment.get(name)),
        *sources.stored_keys.values(),
    ]


def _parse_provider(name: str, table: dict[str, Any], file: str, problems: list[Diagnostic]) -> ProviderSettings:
    valid: dict[str, Any] = {}
    for key, value in table.items():
        if key in _RATES:
            if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
                valid[key] = value
                continue
            problem, fix = (
                f"`providers.{name}.{key}` is not a non-negative integer",
                "use a number such as 50; 0: no limit",
            )
        elif key not in ProviderSettings.__struct_fields__ or not isinstance(value, str):
            problem, fix = (
                f"`providers.{name}.{key}` is unknown or not a string",
                f"available keys: {', '.join(ProviderSettings.__struct_fields__)}",
            )
        elif key == "protocol" and value not in _PROTOCOLS:
            problem, fix = (
                f"invalid value for `providers.{name}.protocol`: {value!r}",
                "use anthropic, chat or responses",
            )
        elif key == "base_url" and not value.startswith(("http://", "https://")):
            problem, fix = f"`providers.{name}.base_url` is not a URL", "use http://… or https://…"
        else:
            valid[key] = value
            continue
        problems.append(Diagnostic(severity="warning", code="setting", file=file, line=0, problem=problem, fix=fix))
    return ProviderSettings(**valid)
