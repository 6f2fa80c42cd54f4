"""Connects a model: reports the current state, tests a model with one small request, and saves the choice.

Used by `kitbag setup`, `kitbag models` and the chat. Reads and writes only the user's own settings and keys; projects
have no influence, and a key is sent only to its provider.
"""

import os
import re
import time
from typing import Any, Final, Literal
from urllib.parse import urlsplit

import msgspec

from kitbag.assembly.model_sources import load_model_sources, with_stored_keys
from kitbag.errors import Diagnostic, KitbagError, NotFoundError, UsageError
from kitbag.messages import Message, Text, Usage
from kitbag.models.local_servers import LOCAL_PORTS, local_models
from kitbag.models.model_selection import (
    BUILT_IN_MODELS,
    ModelSources,
    ProviderSettings,
    SelectedModel,
    connect_provider,
    is_stored_key,
    key_variable,
    known_providers,
    provider_endpoint,
    resolve_model,
    select_model,
)
from kitbag.models.provider import ModelError, ModelReply, ModelRequest
from kitbag.settings import load_settings
from kitbag.store.api_keys import KEYS_FILE, delete_key, key_problem, store_key
from kitbag.store.redaction import Redactor
from kitbag.store.toml_file import edit_toml

KeyState = Literal["environment", "kept", "missing", "not needed"]
TRIAL_TIMEOUT: Final = 120.0
"""Seconds. A local server may have to load the model from disk first."""
_TRIAL_PROMPT: Final = "Answer with one short sentence: are you ready?"
_TRIAL_MAX_OUTPUT: Final = 300
_PROVIDER_NAME: Final = re.compile(r"[a-z][a-z0-9_-]{0,39}", re.ASCII)
_KEY_PREFIXES: Final = {"sk-ant-": "anthropic", "sk-or-": "openrouter"}
"""Keys with these prefixes must not be sent to another provider."""


class ProviderState(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    address: str
    """Without user, password and query."""
    key_variable: str
    key: KeyState
    problem: str = ""

    @property
    def has_key(self) -> bool:
        return self.key in ("environment", "kept")

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "address": self.address,
            "key_variable": self.key_variable,
            "key": self.key,
            "problem": self.problem,
        }


class ModelStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The current state."""

    chosen: SelectedModel | None
    problem: str
    """Why no model is chosen, or why it can't be used."""
    fix: str
    providers: tuple[ProviderState, ...]
    local: dict[str, list[str]]
    """Models by local server that responds."""
    diagnostics: tuple[Diagnostic, ...]
    settings_file: str
    keys_file: str


class ModelSetup(msgspec.Struct, frozen=True, kw_only=True):
    """What the user has chosen so far."""

    provider: str
    model: str = ""
    own: ProviderSettings = ProviderSettings()
    """Settings to save for the provider; empty ones stay unchanged."""
    key: str = ""
    """Typed by the user, to be stored."""


class TrialResult(msgspec.Struct, frozen=True, kw_only=True):
    text: str = ""
    usage: Usage = Usage()
    cost: float | None = None
    seconds: float = 0.0
    problem: str = ""
    """Empty: it works."""
    fix: str = ""
    blames: Literal["", "key", "model", "account", "network", "server"] = ""


# --- current state ----------------------------------------------------------------------------------------------


def load_model_status(kitbag_home: str) -> ModelStatus:
    """Queries local servers only."""
    sources, diagnostics = load_model_sources(load_settings(kitbag_home, ()))
    chosen, problem, fix = None, "", ""
    try:
        chosen = select_model(sources)
        chosen.connect()
    except KitbagError as error:
        problem, fix = error.problem, error.fix
    local = {name: models for name in LOCAL_PORTS if (models := _list_local_models(name, sources))}
    settings_file, keys_file = os.path.join(kitbag_home, "settings.toml"), os.path.join(kitbag_home, KEYS_FILE)
    states = list_provider_states(sources)
    return ModelStatus(
        chosen=chosen,
        problem=problem,
        fix=fix,
        providers=states,
        local=local,
        diagnostics=tuple(diagnostics),
        settings_file=settings_file,
        keys_file=keys_file,
    )


def _list_local_models(name: str, sources: ModelSources) -> list[str]:
    try:
        return local_models(provider_endpoint(name, sources).address)
    except UsageError:
        return []


def list_provider_states(sources: ModelSources) -> tuple[ProviderState, ...]:
    """Variable names and whether they are set; never their values."""
    states: list[ProviderState] = []
    for name in known_providers(sources):
        variable = key_variable(name, sources)
        key: KeyState = "missing" if variable else "not needed"
        if variable and sources.environment.get(variable, "").strip():
            key = "kept" if is_stored_key(variable, sources) else "environment"
        try:
            states.append(
                ProviderState(
                    name=name,
                    address=redact_address(provider_endpoint(name, sources).address),
                    key_variable=variable,
                    key=key,
                )
            )
        except UsageError as error:
            states.append(ProviderState(name=name, address="", key_variable=variable, key=key, problem=error.problem))
    return tuple(states)


def redact_address(address: str) -> str:
    """Removes user name, password and query, which may contain a key."""
    scheme, _, rest = address.partition("://")
    host, slash, path = rest.partition("?")[0].partition("/")
    return f"{scheme}://{host.rpartition('@')[2]}{slash}{path}" if address else ""


# --- checking input ---------------------------------------------------------------------------------------------


def address_problem(address: str) -> str:
    """Why the address can't be used; empty: it can."""
    try:
        parts = urlsplit(address)
        port = parts.port
    except ValueError:
        return "not a URL: enter http://… or https://…"
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        return "not a URL: enter http://… or https://…"
    if not address.isascii() or not address.isprintable() or " " in address:
        return "the URL contains invalid characters"
    if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
        return "enter the URL without user, password, query or fragment; the key is entered separately"
    return ""


def complete_address(address: str, protocol: str) -> str:
    """Adds `/v1`, the default path of OpenAI's protocol, if there is no path."""
    address = address.strip().rstrip("/")
    return address if protocol == "anthropic" or urlsplit(address).path else f"{address}/v1"


def unprotected_address(provider: str, sources: ModelSources) -> str:
    """The address if what is sent to it, the key included, is unencrypted; else empty."""
    try:
        address = provider_endpoint(provider, sources).address
        parts = urlsplit(address)
    except (UsageError, ValueError):
        return ""
    is_open = parts.scheme == "http" and parts.hostname not in ("127.0.0.1", "localhost", "::1")
    return redact_address(address) if is_open else ""


def name_problem(name: str, sources: ModelSources) -> str:
    """For a user-defined provider."""
    if not _PROVIDER_NAME.fullmatch(name):
        return "use lowercase letters, digits, - and _, starting with a letter"
    reserved = {*known_providers(sources)} - {*sources.providers}
    return f"{name} is reserved; choose another name" if name in reserved or name in BUILT_IN_MODELS else ""


def default_key_variable(provider: str, sources: ModelSources) -> str:
    return key_variable(provider, sources) or f"{provider.upper().replace('-', '_')}_API_KEY"


def variable_for_new_key(provider: str, sources: ModelSources) -> str:
    """The variable under which a typed key is stored. A variable of the same name in the environment would override
    it."""
    variable = default_key_variable(provider, sources)
    return f"KITBAG_{variable}" if os.environ.get(variable, "").strip() else variable


def typed_key_problem(provider: str, key: str) -> str:
    """Why this is not a key for the provider; the message does not contain the key."""
    owner = next((name for start, name in _KEY_PREFIXES.items() if key.startswith(start)), provider)
    is_official = provider in ("anthropic", "openai", "openrouter")
    if is_official and owner != provider:
        return f"this key belongs to {owner} and must not be sent to {provider}"
    return key_problem(key)


# --- trying a model ---------------------------------------------------------------------------------------------


def preview_sources(kitbag_home: str, setup: ModelSetup) -> ModelSources:
    """The sources as they would be after saving."""
    sources, _ = load_model_sources(load_settings(kitbag_home, ()), probe=False)
    current = sources.providers.get(setup.provider, ProviderSettings())
    merged = ProviderSettings(
        base_url=setup.own.base_url or current.base_url,
        protocol=setup.own.protocol or current.protocol,
        key_env=setup.own.key_env or current.key_env,
    )
    if merged != ProviderSettings():
        sources = msgspec.structs.replace(sources, providers={**sources.providers, setup.provider: merged})
    variable = key_variable(setup.provider, sources)
    if setup.key and variable:
        stored = {**sources.stored_keys, variable: setup.key}
        return msgspec.structs.replace(
            sources, stored_keys=stored, environment={**sources.environment, variable: setup.key}
        )
    return with_stored_keys(sources)


async def try_model(kitbag_home: str, setup: ModelSetup) -> TrialResult:
    """Sends one small request, like any other. Never raises KitbagError."""
    import asyncio

    sources = preview_sources(kitbag_home, setup)
    secrets = [setup.key, sources.environment.get(key_variable(setup.provider, sources), "")]
    redactor = Redactor(secret for secret in secrets if secret)
    started = time.monotonic()
    try:
        async with asyncio.timeout(TRIAL_TIMEOUT):
            reply = await _send_trial(setup, sources)
    except ModelError as error:
        return _describe_failure(error, redactor)
    except KitbagError as error:
        return TrialResult(problem=redactor.redact_text(error.problem), fix=error.fix, blames="key")
    except TimeoutError:
        return TrialResult(
            problem=f"no answer within {TRIAL_TIMEOUT:.0f} seconds", fix="try again later", blames="server"
        )
    model_info = resolve_model(f"{setup.provider}/{setup.model}", sources, "").info
    text = redactor.redact_text(reply.message.text.strip())
    return TrialResult(
        text=text, usage=reply.usage, cost=model_info.cost(reply.usage), seconds=time.monotonic() - started
    )


async def _send_trial(setup: ModelSetup, sources: ModelSources) -> ModelReply:
    from contextlib import aclosing

    provider = connect_provider(setup.provider, sources)
    try:
        request = ModelRequest(
            model=setup.model,
            system=(),
            messages=(Message("user", (Text(_TRIAL_PROMPT),)),),
            max_output=_TRIAL_MAX_OUTPUT,
        )
        async with aclosing(provider.stream(request)) as stream:
            async for event in stream:
                if isinstance(event, ModelReply):
                    return event
    finally:
        await provider.close()
    raise ModelError("cut", "the reply was truncated", "try again")


def _describe_failure(error: ModelError, redactor: Redactor) -> TrialResult:
    """With a fix that fits the setup dialog."""
    problem = redactor.redact_text(error.problem)
    if error.kind == "auth":
        return TrialResult(
            problem=problem, fix="the API key is invalid or has no access to this model; enter another", blames="key"
        )
    if error.kind == "spent":
        return TrialResult(
            problem=problem, fix="the API key is valid, but the account is out of credit or quota", blames="account"
        )
    if error.kind == "unreachable":
        return TrialResult(
            problem=problem, fix="check the URL, the network, and that the server is running", blames="network"
        )
    if error.status == 404 or (error.kind == "bad-request" and "model" in problem.lower()):
        fix = "unknown model or path; choose another model or check the URL"
        return TrialResult(problem=problem, fix=fix, blames="model")
    if error.is_retryable:
        return TrialResult(problem=problem, fix="this may be temporary; try again", blames="server")
    return TrialResult(problem=problem, fix=error.fix, blames="server")


# --- saving -----------------------------------------------------------------------------------------------------


def save_model_setup(kitbag_home: str, setup: ModelSetup) -> None:
    """Raises InvalidError. Stores the key first: settings without their key would be useless."""
    sources = preview_sources(kitbag_home, setup)
    variable = key_variable(setup.provider, sources)
    if setup.key:
        store_key(kitbag_home, variable, setup.key)

    def change(document: Any) -> None:
        document["model"] = (
            f"{setup.provider}/{setup.model}" if setup.provider not in BUILT_IN_MODELS else setup.provider
        )
        settings = {name: value for name, value in msgspec.structs.asdict(setup.own).items() if value}
        if settings:
            _get_table(_get_table(document, "providers"), setup.provider).update(settings)

    edit_toml(os.path.join(kitbag_home, "settings.toml"), change)


def _get_table(parent: Any, name: str) -> Any:
    import tomlkit

    if name not in parent:
        parent[name] = tomlkit.table(name == "providers")
    return parent[name]


class RemovedKey(msgspec.Struct, frozen=True, kw_only=True):
    variable: str
    model: str = ""
    """The chosen model, if it was removed from the settings because it needs the key."""


def remove_provider_key(kitbag_home: str, provider: str) -> RemovedKey:
    """Removes the stored key of a provider. Raises NotFoundError."""
    sources, _ = load_model_sources(load_settings(kitbag_home, ()), probe=False)
    variable = key_variable(provider, sources)
    providers_with_key = [
        name for name in known_providers(sources) if key_variable(name, sources) in sources.stored_keys
    ]
    if not variable or not delete_key(kitbag_home, variable):
        fix = f"keys are stored for {', '.join(providers_with_key)}" if providers_with_key else "no keys are stored"
        if variable and os.environ.get(variable, "").strip():
            fix = f"the key is in the environment variable {variable}; unset it there"
        raise NotFoundError(f"no key is stored for {provider!r}", fix)
    after, _ = load_model_sources(load_settings(kitbag_home, ()), probe=False)
    if not after.model_setting.startswith(f"{provider}/") or after.environment.get(variable, "").strip():
        return RemovedKey(variable=variable)
    edit_toml(os.path.join(kitbag_home, "settings.toml"), lambda document: document.pop("model", None))
    return RemovedKey(variable=variable, model=after.model_setting)
