"""Connects a model: what is there now, one small request to see whether it works, and how it is written down.

Used by `kitbag setup`, `kitbag models` and the chat. Reads and writes the user's own settings and keys alone; a project
has no say, and no key leaves this module but to its provider.
"""

import os
import re
import time
from typing import Any, Final, Literal, NamedTuple
from urllib.parse import urlsplit

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
"""A server on this machine may have to read the model from the disk first."""
_TRIAL_PROMPT: Final = "Answer with one short sentence: are you ready?"
_TRIAL_MAX_OUTPUT: Final = 300
_PROVIDER_NAME: Final = re.compile(r"[a-z][a-z0-9_-]{0,39}", re.ASCII)
_KEY_PREFIXES: Final = {"sk-ant-": "anthropic", "sk-or-": "openrouter"}
"""How keys of one provider begin: they are not to be sent to another."""


class ProviderState(NamedTuple):
    name: str
    address: str
    """Without user, password and query."""
    key_variable: str
    key: KeyState
    problem: str = ""

    @property
    def has_key(self) -> bool:
        return self.key in ("environment", "kept")


class ModelStatus(NamedTuple):
    """How things are now."""

    chosen: SelectedModel | None
    problem: str
    """Why nothing is chosen, or why that can't be used."""
    fix: str
    providers: tuple[ProviderState, ...]
    local: dict[str, list[str]]
    """Servers that answer on this machine, and the models of each."""
    diagnostics: tuple[Diagnostic, ...]
    settings_file: str
    keys_file: str


class ModelSetup(NamedTuple):
    """What a person chose so far."""

    provider: str
    model: str = ""
    own: ProviderSettings = ProviderSettings()
    """What is to be written about the provider; what is empty stays as it is."""
    key: str = ""
    """Typed, and to be kept."""


class TrialResult(NamedTuple):
    text: str = ""
    usage: Usage = Usage()
    cost: float | None = None
    seconds: float = 0.0
    problem: str = ""
    """Empty: it works."""
    fix: str = ""
    blames: Literal["", "key", "model", "account", "network", "server"] = ""


# --- what is there ----------------------------------------------------------------------------------------------


def load_model_status(kitbag_home: str) -> ModelStatus:
    """Asks servers on this machine, and nobody else."""
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
    return ModelStatus(chosen, problem, fix, states, local, tuple(diagnostics), settings_file, keys_file)


def _list_local_models(name: str, sources: ModelSources) -> list[str]:
    try:
        return local_models(provider_endpoint(name, sources).address)
    except UsageError:
        return []


def list_provider_states(sources: ModelSources) -> tuple[ProviderState, ...]:
    """Names of variables and whether they are set; never what is in them."""
    found: list[ProviderState] = []
    for name in known_providers(sources):
        variable = key_variable(name, sources)
        key: KeyState = "missing" if variable else "not needed"
        if variable and sources.environment.get(variable, "").strip():
            key = "kept" if is_stored_key(variable, sources) else "environment"
        try:
            found.append(ProviderState(name, redact_address(provider_endpoint(name, sources).address), variable, key))
        except UsageError as error:
            found.append(ProviderState(name, "", variable, key, error.problem))
    return tuple(found)


def redact_address(address: str) -> str:
    """An address may hold a name and a password, and a query may hold a key."""
    scheme, _, rest = address.partition("://")
    host, slash, path = rest.partition("?")[0].partition("/")
    return f"{scheme}://{host.rpartition('@')[2]}{slash}{path}" if address else ""


# --- what a person may say --------------------------------------------------------------------------------------


def address_problem(address: str) -> str:
    """Why nothing can be sent there; empty: it may do."""
    try:
        parts = urlsplit(address)
        port = parts.port
    except ValueError:
        return "that is no address: write http://… or https://…"
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        return "that is no address: write http://… or https://…"
    if not address.isascii() or not address.isprintable() or " " in address:
        return "it holds characters that no address has"
    if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
        return "leave out user, password and what stands behind ? or #: the key is asked for by itself"
    return ""


def complete_address(address: str, protocol: str) -> str:
    """As providers write it: OpenAI's protocol lies below a path, which is `/v1` where none is given."""
    address = address.strip().rstrip("/")
    return address if protocol == "anthropic" or urlsplit(address).path else f"{address}/v1"


def unprotected_address(provider: str, sources: ModelSources) -> str:
    """Where what is sent, the key too, could be read on the way; empty: it can't, or nothing can be sent."""
    try:
        address = provider_endpoint(provider, sources).address
        parts = urlsplit(address)
    except (UsageError, ValueError):
        return ""
    is_open = parts.scheme == "http" and parts.hostname not in ("127.0.0.1", "localhost", "::1")
    return redact_address(address) if is_open else ""


def name_problem(name: str, sources: ModelSources) -> str:
    """For a provider of one's own."""
    if not _PROVIDER_NAME.fullmatch(name):
        return "a name has small letters, digits, - and _, and begins with a letter"
    taken = {*known_providers(sources)} - {*sources.providers}
    return f"{name} has a meaning of its own; take another name" if name in taken or name in BUILT_IN_MODELS else ""


def default_key_variable(provider: str, sources: ModelSources) -> str:
    return key_variable(provider, sources) or f"{provider.upper().replace('-', '_')}_API_KEY"


def variable_for_new_key(provider: str, sources: ModelSources) -> str:
    """Under which a typed key is kept. What the environment has would win over one of the same name."""
    variable = default_key_variable(provider, sources)
    return f"KITBAG_{variable}" if os.environ.get(variable, "").strip() else variable


def typed_key_problem(provider: str, key: str) -> str:
    """Why this is no key for that provider, in words that do not hold it."""
    whose = next((name for start, name in _KEY_PREFIXES.items() if key.startswith(start)), provider)
    official = provider in ("anthropic", "openai", "openrouter")
    if official and whose != provider:
        return f"that is a key for {whose}, which {provider} must not see"
    return key_problem(key)


# --- whether it works -------------------------------------------------------------------------------------------


def preview_sources(kitbag_home: str, setup: ModelSetup) -> ModelSources:
    """As they would be if it were written down."""
    sources, _ = load_model_sources(load_settings(kitbag_home, ()), probe=False)
    before = sources.providers.get(setup.provider, ProviderSettings())
    own = ProviderSettings(*(new or old for new, old in zip(setup.own, before, strict=True)))
    if any(own):
        sources = sources._replace(providers={**sources.providers, setup.provider: own})
    variable = key_variable(setup.provider, sources)
    if setup.key and variable:
        kept = {**sources.stored_keys, variable: setup.key}
        return sources._replace(stored_keys=kept, environment={**sources.environment, variable: setup.key})
    return with_stored_keys(sources)


async def try_model(kitbag_home: str, setup: ModelSetup) -> TrialResult:
    """One small request, as any other would be sent. Never raises KitbagError."""
    import asyncio

    sources = preview_sources(kitbag_home, setup)
    secrets = [setup.key, sources.environment.get(key_variable(setup.provider, sources), "")]
    redactor = Redactor(secret for secret in secrets if secret)
    began = time.monotonic()
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
    known = resolve_model(f"{setup.provider}/{setup.model}", sources, "").info
    text = redactor.redact_text(reply.message.text.strip())
    return TrialResult(text, reply.usage, known.cost(reply.usage), time.monotonic() - began)


async def _send_trial(setup: ModelSetup, sources: ModelSources) -> ModelReply:
    from contextlib import aclosing

    provider = connect_provider(setup.provider, sources)
    try:
        request = ModelRequest(
            setup.model, (), (Message("user", (Text(_TRIAL_PROMPT),)),), max_output=_TRIAL_MAX_OUTPUT
        )
        async with aclosing(provider.stream(request)) as pieces:
            async for piece in pieces:
                if isinstance(piece, ModelReply):
                    return piece
    finally:
        await provider.close()
    raise ModelError("cut", "the reply was cut off", "try again")


def _describe_failure(error: ModelError, redactor: Redactor) -> TrialResult:
    """In words, with what to do about it here."""
    problem = redactor.redact_text(error.problem)
    if error.kind == "auth":
        return TrialResult(
            problem=problem, fix="the key is wrong, or may not use this model: give another", blames="key"
        )
    if error.kind == "spent":
        return TrialResult(
            problem=problem, fix="the key is good; the account has no credit or limit left", blames="account"
        )
    if error.kind == "unreachable":
        return TrialResult(
            problem=problem, fix="check the address, the network, and that the server runs", blames="network"
        )
    if error.status == 404 or (error.kind == "bad-request" and "model" in problem.lower()):
        fix = "the server knows no such model, or no such path: choose another model, or check the address"
        return TrialResult(problem=problem, fix=fix, blames="model")
    if error.is_retryable:
        return TrialResult(problem=problem, fix="this may pass: try again", blames="server")
    return TrialResult(problem=problem, fix=error.fix, blames="server")


# --- how it is written down -------------------------------------------------------------------------------------


def save_model_setup(kitbag_home: str, setup: ModelSetup) -> None:
    """Raises InvalidError. The key first: settings that name one which was not kept would be of no use."""
    sources = preview_sources(kitbag_home, setup)
    variable = key_variable(setup.provider, sources)
    if setup.key:
        store_key(kitbag_home, variable, setup.key)

    def change(document: Any) -> None:
        document["model"] = (
            f"{setup.provider}/{setup.model}" if setup.provider not in BUILT_IN_MODELS else setup.provider
        )
        told = {name: value for name, value in setup.own._asdict().items() if value}
        if told:
            _get_table(_get_table(document, "providers"), setup.provider).update(told)

    edit_toml(os.path.join(kitbag_home, "settings.toml"), change)


def _get_table(parent: Any, name: str) -> Any:
    import tomlkit

    if name not in parent:
        parent[name] = tomlkit.table(name == "providers")
    return parent[name]


class RemovedKey(NamedTuple):
    variable: str
    model: str = ""
    """That was chosen in the settings, could not be used any more, and was taken out."""


def remove_provider_key(kitbag_home: str, provider: str) -> RemovedKey:
    """Removes the kept key of a provider. Raises NotFoundError."""
    sources, _ = load_model_sources(load_settings(kitbag_home, ()), probe=False)
    variable = key_variable(provider, sources)
    known = [name for name in known_providers(sources) if key_variable(name, sources) in sources.stored_keys]
    if not variable or not delete_key(kitbag_home, variable):
        fix = f"keys are kept for {', '.join(known)}" if known else "no key is kept"
        if variable and os.environ.get(variable, "").strip():
            fix = f"its key is in {variable} of your environment: take it out where you set it"
        raise NotFoundError(f"no key is kept for {provider!r}", fix)
    after, _ = load_model_sources(load_settings(kitbag_home, ()), probe=False)
    if not after.model_setting.startswith(f"{provider}/") or after.environment.get(variable, "").strip():
        return RemovedKey(variable)
    edit_toml(os.path.join(kitbag_home, "settings.toml"), lambda document: document.pop("model", None))
    return RemovedKey(variable, after.model_setting)
