"""Which model a run uses: the flag, then KITBAG_MODEL, then settings, then what is found, then `offline`.

Keys and addresses come from the user's environment and settings only; nothing in a workspace is looked at. Used by
runtime; the adapters are imported when they are chosen.
"""

import os
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from kitbag.errors import InvalidError, UsageError
from kitbag.models.catalog import Known, aliases, look_up
from kitbag.models.provider import Provider

ANTHROPIC_URL: Final = "https://api.anthropic.com"
OPENAI_URL: Final = "https://api.openai.com/v1"
OPENROUTER_URL: Final = "https://openrouter.ai/api/v1"
_PROBE_SECONDS = 0.25
_WORDS: Final = frozenset(("sonnet", "opus", "haiku", "fable", "fast", "default", "inherit"))
# Loopback servers that need no key: name, default port, the path that lists their models.
_LOCAL: Final = (("ollama", 11434), ("llamacpp", 8080), ("vllm", 8000), ("lmstudio", 1234))


class ProviderSettings(NamedTuple):
    """`[providers.NAME]` in the user's settings."""

    base_url: str = ""
    protocol: str = ""
    """anthropic, chat or responses."""
    key_env: str = ""
    """The environment variable that holds the key."""


class Sources(NamedTuple):
    """All that a choice may depend on."""

    environment: Mapping[str, str]
    setting: str = ""
    """`model` in the user's settings."""
    providers: Mapping[str, ProviderSettings] = {}
    models: Mapping[str, Mapping[str, Any]] = {}
    probe: bool = True
    """Whether to look for model servers on this machine."""


class Chosen(NamedTuple):
    provider: str
    model: str
    known: Known
    why: str
    """Where the choice came from, in words."""
    connect: Callable[[], Provider]

    @property
    def name(self) -> str:
        return f"{self.provider}/{self.model}" if self.model != self.provider else self.provider


def choose(sources: Sources, flag: str = "", parent: Chosen | None = None) -> Chosen:
    """Raises UsageError for a name that leads nowhere, InvalidError for a key that is missing."""
    for name, why in (
        (flag, "--model"),
        (sources.environment.get("KITBAG_MODEL", ""), "KITBAG_MODEL in your environment"),
        (sources.setting, "`model` in your settings"),
    ):
        if name and name != "inherit":
            return resolve(name, sources, why, parent)
        if name == "inherit" and parent is not None:
            return parent
    if parent is not None:
        return parent
    return _found(sources)


def resolve(name: str, sources: Sources, why: str, parent: Chosen | None = None) -> Chosen:
    """A name as a person or an agent file writes it."""
    name = name.strip()
    if name in ("offline", "scripted") or name.startswith("scripted:"):
        return _built_in(name, sources, why)
    provider, slash, model = name.partition("/")
    if not slash:
        provider, model = _provider_of(name, sources, parent)
    if not model:
        raise UsageError(f"{name!r} names no model", "write provider/model, such as anthropic/claude-sonnet-4-5")
    known = look_up(f"{provider}/{model}", sources.models)
    return Chosen(provider, model, known, why, lambda: connect(provider, sources))


def _provider_of(name: str, sources: Sources, parent: Chosen | None) -> tuple[str, str]:
    """A bare word: an alias at the parent's provider or the one with a key; else the family says whose it is."""
    if name in _WORDS:
        base = parent if parent is not None else _found(sources)
        own = aliases(base.provider).get(name)
        return base.provider, own or base.model
    lower = name.lower()
    if lower.startswith("claude"):
        return "anthropic", name
    if lower.startswith(("gpt-", "o1", "o3", "o4", "chatgpt", "codex")) and not lower.startswith("gpt-oss"):
        return "openai", name
    if parent is not None and parent.provider not in ("offline", "scripted"):
        return parent.provider, name
    fix = "write provider/model, such as anthropic/claude-sonnet-4-5 or ollama/qwen3; `offline` needs no key"
    raise UsageError(f"whose model is {name!r}?", fix)


def _found(sources: Sources) -> Chosen:
    environment = sources.environment
    if environment.get("ANTHROPIC_API_KEY"):
        return resolve(f"anthropic/{aliases('anthropic')['default']}", sources, "ANTHROPIC_API_KEY is set")
    if environment.get("OPENAI_API_KEY"):
        return resolve(f"openai/{aliases('openai')['default']}", sources, "OPENAI_API_KEY is set")
    if sources.probe:
        for provider, port in _LOCAL:
            address = _local_address(provider, port, environment)
            model = _first_model(address)
            if model:
                return resolve(f"{provider}/{model}", sources, f"{provider} answers at {address}")
    return _built_in("offline", sources, "no key is set and no model server answers on this machine")


def _built_in(name: str, sources: Sources, why: str) -> Chosen:
    kind, _, path = name.partition(":")

    def offline() -> Provider:
        from kitbag.models.offline import Offline

        return Offline()

    def scripted() -> Provider:
        from kitbag.models.scripted import Scripted, load_script

        script = path or sources.environment.get("KITBAG_SCRIPT", "")
        if not script:
            raise UsageError("`scripted` has no script", "write scripted:FILE.json, or set KITBAG_SCRIPT")
        return Scripted(load_script(script))

    return Chosen(kind, kind, look_up(kind, sources.models), why, offline if kind == "offline" else scripted)


def connect(provider: str, sources: Sources) -> Provider:
    """The adapter for a provider, with its key. Raises InvalidError where the key is missing."""
    from kitbag.models.wire import Endpoint

    own = sources.providers.get(provider, ProviderSettings())
    environment = sources.environment
    if provider == "anthropic" or own.protocol == "anthropic":
        from kitbag.models.anthropic import VERSION, Anthropic

        base = own.base_url or environment.get("ANTHROPIC_BASE_URL") or ANTHROPIC_URL
        key = _key(provider, own.key_env or "ANTHROPIC_API_KEY", environment, needed=base == ANTHROPIC_URL)
        headers = {"anthropic-version": VERSION, **({"x-api-key": key} if key else {})}
        return Anthropic(Endpoint(provider, base.rstrip("/").removesuffix("/v1"), headers))
    base, variable = _openai_address(provider, own, environment)
    if not base:
        from kitbag.models.pydantic_ai import PydanticAI

        return PydanticAI(provider)
    is_openai = base.rstrip("/") == OPENAI_URL
    key = _key(provider, variable, environment, needed=is_openai) if variable else ""
    endpoint = Endpoint(provider, base, {"authorization": f"Bearer {key}"} if key else {})
    if own.protocol == "responses" or (is_openai and own.protocol != "chat"):
        from kitbag.models.openai_responses import OpenAIResponses

        return OpenAIResponses(endpoint)
    from kitbag.models.openai_chat import OpenAIChat

    return OpenAIChat(endpoint, new_names=is_openai)


def _openai_address(provider: str, own: ProviderSettings, environment: Mapping[str, str]) -> tuple[str, str]:
    """The address and the variable that holds the key; no address: not one of ours."""
    if own.base_url:
        return own.base_url, own.key_env
    if provider == "openai":
        return environment.get("OPENAI_BASE_URL") or OPENAI_URL, own.key_env or "OPENAI_API_KEY"
    if provider == "openrouter":
        return OPENROUTER_URL, own.key_env or "OPENROUTER_API_KEY"
    for name, port in _LOCAL:
        if provider == name:
            return _local_address(name, port, environment), own.key_env
    return "", ""


def _local_address(provider: str, port: int, environment: Mapping[str, str]) -> str:
    written = environment.get("OLLAMA_HOST", "") if provider == "ollama" else ""
    if not written:
        return f"http://127.0.0.1:{port}/v1"
    address = written if "://" in written else f"http://{written}"
    host = address.partition("://")[2].partition("/")[0]
    if ":" not in host.rpartition("]")[2]:
        address = address.replace(host, f"{host}:{port}", 1)
    return address.replace("//0.0.0.0:", "//127.0.0.1:").rstrip("/").removesuffix("/v1") + "/v1"


def _key(provider: str, variable: str, environment: Mapping[str, str], *, needed: bool) -> str:
    key = environment.get(variable, "").strip()
    if not key and needed:
        raise InvalidError(
            f"there is no key for {provider}", f"set {variable} in your environment, or use --model offline"
        )
    if not key.isprintable() or not key.isascii():
        raise InvalidError(f"the key in {variable} holds characters that no key has", f"set {variable} again")
    return key


def _first_model(address: str) -> str:
    """The first model that a server on this machine offers; empty where nobody answers at once."""
    import json
    from http.client import HTTPConnection, HTTPException
    from urllib.parse import urlsplit

    parts = urlsplit(address)
    if parts.hostname not in ("127.0.0.1", "localhost", "::1") or parts.scheme != "http":
        return ""
    connection = HTTPConnection(parts.hostname, parts.port, timeout=_PROBE_SECONDS)
    try:
        connection.request("GET", "/v1/models")
        body: Any = json.loads(connection.getresponse().read(1 << 20))
        return str(body["data"][0]["id"])
    except (OSError, HTTPException, ValueError, KeyError, IndexError, TypeError):
        return ""
    finally:
        connection.close()


def from_environment() -> Sources:
    return Sources(dict(os.environ))
