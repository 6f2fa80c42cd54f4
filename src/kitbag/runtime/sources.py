"""What the choice of a model may depend on, from the user's environment and settings alone.

Used by runtime/agent and by `kitbag models`. A project's settings have no say: neither in a key nor in an address.
"""

import os
from typing import Any, Final

from kitbag.errors import Diagnostic
from kitbag.models.catalog import check_own
from kitbag.models.choice import ProviderSettings, Sources, key_variable, known_providers
from kitbag.settings import Settings

_PROTOCOLS: Final = ("", "anthropic", "chat", "responses")


def model_sources(settings: Settings, *, probe: bool = True) -> tuple[Sources, list[Diagnostic]]:
    problems: list[Diagnostic] = []
    models: dict[str, dict[str, Any]] = {}
    for name, table in settings.tables("models").items():
        models[name], more = check_own(name, table, settings.user_file)
        problems += more
    providers: dict[str, ProviderSettings] = {}
    for name, table in settings.tables("providers").items():
        providers[name] = _provider(name, table, settings.user_file, problems)
    return Sources(dict(os.environ), str(settings.get("model")), providers, models, probe), problems


def key_values(sources: Sources) -> list[str]:
    """What must never be written down, whatever the variables are called that hold it."""
    variables = {key_variable(name, sources) for name in known_providers(sources)} - {""}
    return [sources.environment[name] for name in variables if sources.environment.get(name)]


def _provider(name: str, table: dict[str, Any], file: str, problems: list[Diagnostic]) -> ProviderSettings:
    good: dict[str, str] = {}
    for key, value in table.items():
        if key not in ProviderSettings._fields or not isinstance(value, str):
            what, fix = (
                f"`providers.{name}.{key}` is not known, or no text",
                f"known: {', '.join(ProviderSettings._fields)}",
            )
        elif key == "protocol" and value not in _PROTOCOLS:
            what, fix = f"`providers.{name}.protocol` is {value!r}", "write anthropic, chat or responses"
        elif key == "base_url" and not value.startswith(("http://", "https://")):
            what, fix = f"`providers.{name}.base_url` is no address", "write http://… or https://…"
        else:
            good[key] = value
            continue
        problems.append(Diagnostic("warning", "setting", file, 0, what, fix))
    return ProviderSettings(**good)
