"""Connects a model: what is there now, one small request to see whether it works, and how it is written down.

Used by `kitbag setup`, `kitbag models` and the chat. Reads and writes the user's own settings and keys alone; a project
has no say, and no key leaves this module but to its provider.
"""

import os
import re
import time
from typing import Any, Final, Literal, NamedTuple
from urllib.parse import urlsplit

from kitbag.assembly.model_sources import model_sources, with_keys
from kitbag.errors import Diagnostic, KitbagError, NotFoundError, UsageError
from kitbag.messages import Message, Text, Usage
from kitbag.models.local_servers import PORTS, local_models
from kitbag.models.model_selection import (
    BUILT_IN,
    Chosen,
    ProviderSettings,
    Sources,
    choose,
    connect,
    endpoint,
    is_kept,
    key_variable,
    known_providers,
    resolve,
)
from kitbag.models.provider import ModelError, Reply, Request
from kitbag.settings import load_settings
from kitbag.store.api_keys import FILE, forget_key, keep_key, key_problem
from kitbag.store.redaction import Redactor
from kitbag.store.toml_file import change_toml

KeyState = Literal["environment", "kept", "missing", "not needed"]
TRY_SECONDS: Final = 120.0
"""A server on this machine may have to read the model from the disk first."""
_TRY: Final = "Answer with one short sentence: are you ready?"
_TRY_OUTPUT: Final = 300
_NAME: Final = re.compile(r"[a-z][a-z0-9_-]{0,39}", re.ASCII)
_FOREIGN: Final = {"sk-ant-": "anthropic", "sk-or-": "openrouter"}
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


class Standing(NamedTuple):
    """How things are now."""

    chosen: Chosen | None
    problem: str
    """Why nothing is chosen, or why that can't be used."""
    fix: str
    providers: tuple[ProviderState, ...]
    local: dict[str, list[str]]
    """Servers that answer on this machine, and the models of each."""
    diagnostics: tuple[Diagnostic, ...]
    settings_file: str
    keys_file: str


class Wanted(NamedTuple):
    """What a person chose so far."""

    provider: str
    model: str = ""
    own: ProviderSettings = ProviderSettings()
    """What is to be written about the provider; what is empty stays as it is."""
    key: str = ""
    """Typed, and to be kept."""


class Tried(NamedTuple):
    text: str = ""
    usage: Usage = Usage()
    cost: float | None = None
    seconds: float = 0.0
    problem: str = ""
    """Empty: it works."""
    fix: str = ""
    blames: Literal["", "key", "model", "account", "network", "server"] = ""


# --- what is there ----------------------------------------------------------------------------------------------


def look(kitbag_home: str) -> Standing:
    """Asks servers on this machine, and nobody else."""
    sources, diagnostics = model_sources(load_settings(kitbag_home, ()))
    chosen, problem, fix = None, "", ""
    try:
        chosen = choose(sources)
        chosen.connect()
    except KitbagError as error:
        problem, fix = error.problem, error.fix
    local = {name: models for name in PORTS if (models := _local_models(name, sources))}
    settings_file, keys_file = os.path.join(kitbag_home, "settings.toml"), os.path.join(kitbag_home, FILE)
    states = provider_states(sources)
    return Standing(chosen, problem, fix, states, local, tuple(diagnostics), settings_file, keys_file)


def _local_models(name: str, sources: Sources) -> list[str]:
    try:
        return local_models(endpoint(name, sources).address)
    except UsageError:
        return []


def provider_states(sources: Sources) -> tuple[ProviderState, ...]:
    """Names of variables and whether they are set; never what is in them."""
    found: list[ProviderState] = []
    for name in known_providers(sources):
        variable = key_variable(name, sources)
        key: KeyState = "missing" if variable else "not needed"
        if variable and sources.environment.get(variable, "").strip():
            key = "kept" if is_kept(variable, sources) else "environment"
        try:
            found.append(ProviderState(name, shown_address(endpoint(name, sources).address), variable, key))
        except UsageError as error:
            found.append(ProviderState(name, "", variable, key, error.problem))
    return tuple(found)


def shown_address(address: str) -> str:
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


def whole_address(address: str, protocol: str) -> str:
    """As providers write it: OpenAI's protocol lies below a path, which is `/v1` where none is given."""
    address = address.strip().rstrip("/")
    return address if protocol == "anthropic" or urlsplit(address).path else f"{address}/v1"


def unprotected_address(provider: str, sources: Sources) -> str:
    """Where what is sent, the key too, could be read on the way; empty: it can't, or nothing can be sent."""
    try:
        address = endpoint(provider, sources).address
        parts = urlsplit(address)
    except (UsageError, ValueError):
        return ""
    is_open = parts.scheme == "http" and parts.hostname not in ("127.0.0.1", "localhost", "::1")
    return shown_address(address) if is_open else ""


def name_problem(name: str, sources: Sources) -> str:
    """For a provider of one's own."""
    if not _NAME.fullmatch(name):
        return "a name has small letters, digits, - and _, and begins with a letter"
    taken = {*known_providers(sources)} - {*sources.providers}
    return f"{name} has a meaning of its own; take another name" if name in taken or name in BUILT_IN else ""


def usual_variable(provider: str, sources: Sources) -> str:
    return key_variable(provider, sources) or f"{provider.upper().replace('-', '_')}_API_KEY"


def variable_to_keep(provider: str, sources: Sources) -> str:
    """Under which a typed key is kept. What the environment has would win over one of the same name."""
    variable = usual_variable(provider, sources)
    return f"KITBAG_{variable}" if os.environ.get(variable, "").strip() else variable


def typed_key_problem(provider: str, key: str) -> str:
    """Why this is no key for that provider, in words that do not hold it."""
    whose = next((name for start, name in _FOREIGN.items() if key.startswith(start)), provider)
    official = provider in ("anthropic", "openai", "openrouter")
    if official and whose != provider:
        return f"that is a key for {whose}, which {provider} must not see"
    return key_problem(key)


# --- whether it works -------------------------------------------------------------------------------------------


def sources_with(kitbag_home: str, wanted: Wanted) -> Sources:
    """As they would be if it were written down."""
    sources, _ = model_sources(load_settings(kitbag_home, ()), probe=False)
    before = sources.providers.get(wanted.provider, ProviderSettings())
    own = ProviderSettings(*(new or old for new, old in zip(wanted.own, before, strict=True)))
    if any(own):
        sources = sources._replace(providers={**sources.providers, wanted.provider: own})
    variable = key_variable(wanted.provider, sources)
    if wanted.key and variable:
        kept = {**sources.kept, variable: wanted.key}
        return sources._replace(kept=kept, environment={**sources.environment, variable: wanted.key})
    return with_keys(sources)


async def try_model(kitbag_home: str, wanted: Wanted) -> Tried:
    """One small request, as any other would be sent. Never raises KitbagError."""
    import asyncio

    sources = sources_with(kitbag_home, wanted)
    secrets = [wanted.key, sources.environment.get(key_variable(wanted.provider, sources), "")]
    redactor = Redactor(secret for secret in secrets if secret)
    began = time.monotonic()
    try:
        async with asyncio.timeout(TRY_SECONDS):
            reply = await _ask(wanted, sources)
    except ModelError as error:
        return _failed(error, redactor)
    except KitbagError as error:
        return Tried(problem=redactor.text(error.problem), fix=error.fix, blames="key")
    except TimeoutError:
        return Tried(problem=f"no answer within {TRY_SECONDS:.0f} seconds", fix="try again later", blames="server")
    known = resolve(f"{wanted.provider}/{wanted.model}", sources, "").known
    text = redactor.text(reply.message.text.strip())
    return Tried(text, reply.usage, known.price(reply.usage), time.monotonic() - began)


async def _ask(wanted: Wanted, sources: Sources) -> Reply:
    from contextlib import aclosing

    provider = connect(wanted.provider, sources)
    try:
        request = Request(wanted.model, (), (Message("user", (Text(_TRY),)),), max_output=_TRY_OUTPUT)
        async with aclosing(provider.stream(request)) as pieces:
            async for piece in pieces:
                if isinstance(piece, Reply):
                    return piece
    finally:
        await provider.close()
    raise ModelError("cut", "the reply was cut off", "try again")


def _failed(error: ModelError, redactor: Redactor) -> Tried:
    """In words, with what to do about it here."""
    problem = redactor.text(error.problem)
    if error.kind == "auth":
        return Tried(problem=problem, fix="the key is wrong, or may not use this model: give another", blames="key")
    if error.kind == "spent":
        return Tried(problem=problem, fix="the key is good; the account has no credit or limit left", blames="account")
    if error.kind == "unreachable":
        return Tried(problem=problem, fix="check the address, the network, and that the server runs", blames="network")
    if error.status == 404 or (error.kind == "bad-request" and "model" in problem.lower()):
        fix = "the server knows no such model, or no such path: choose another model, or check the address"
        return Tried(problem=problem, fix=fix, blames="model")
    if error.may_pass:
        return Tried(problem=problem, fix="this may pass: try again", blames="server")
    return Tried(problem=problem, fix=error.fix, blames="server")


# --- how it is written down -------------------------------------------------------------------------------------


def save(kitbag_home: str, wanted: Wanted) -> None:
    """Raises InvalidError. The key first: settings that name one which was not kept would be of no use."""
    sources = sources_with(kitbag_home, wanted)
    variable = key_variable(wanted.provider, sources)
    if wanted.key:
        keep_key(kitbag_home, variable, wanted.key)

    def change(document: Any) -> None:
        document["model"] = f"{wanted.provider}/{wanted.model}" if wanted.provider not in BUILT_IN else wanted.provider
        told = {name: value for name, value in wanted.own._asdict().items() if value}
        if told:
            _table(_table(document, "providers"), wanted.provider).update(told)

    change_toml(os.path.join(kitbag_home, "settings.toml"), change)


def _table(parent: Any, name: str) -> Any:
    import tomlkit

    if name not in parent:
        parent[name] = tomlkit.table(name == "providers")
    return parent[name]


class Forgotten(NamedTuple):
    variable: str
    model: str = ""
    """That was chosen in the settings, could not be used any more, and was taken out."""


def forget(kitbag_home: str, provider: str) -> Forgotten:
    """Removes the kept key of a provider. Raises NotFoundError."""
    sources, _ = model_sources(load_settings(kitbag_home, ()), probe=False)
    variable = key_variable(provider, sources)
    known = [name for name in known_providers(sources) if key_variable(name, sources) in sources.kept]
    if not variable or not forget_key(kitbag_home, variable):
        fix = f"keys are kept for {', '.join(known)}" if known else "no key is kept"
        if variable and os.environ.get(variable, "").strip():
            fix = f"its key is in {variable} of your environment: take it out where you set it"
        raise NotFoundError(f"no key is kept for {provider!r}", fix)
    after, _ = model_sources(load_settings(kitbag_home, ()), probe=False)
    if not after.setting.startswith(f"{provider}/") or after.environment.get(variable, "").strip():
        return Forgotten(variable)
    change_toml(os.path.join(kitbag_home, "settings.toml"), lambda document: document.pop("model", None))
    return Forgotten(variable, after.setting)
