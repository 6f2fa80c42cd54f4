"""Selects the model of a run: the flag, then KITBAG_MODEL, settings, a detected provider, and `offline`.

Keys and addresses come from the user's environment and settings only, never from a workspace. Used by assembly,
runtime and cli; imports an adapter when it is selected.
"""

import os
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from kitbag.errors import InvalidError, UsageError
from kitbag.models.catalog import ModelInfo, look_up_model, model_aliases
from kitbag.models.local_servers import LOCAL_PORTS, first_local_model, local_address
from kitbag.models.provider import Provider
from kitbag.models.reply_limits import ReplyLimits

ANTHROPIC_URL: Final = "https://api.anthropic.com"
OPENAI_URL: Final = "https://api.openai.com/v1"
OPENROUTER_URL: Final = "https://openrouter.ai/api/v1"
BUILT_IN_MODELS: Final = ("offline", "scripted")
_KEY_VARIABLES: Final = {
    "anthropic": "ANTHROPIC_API_KEY",
    "openai": "OPENAI_API_KEY",
    "openrouter": "OPENROUTER_API_KEY",
}
_ALIASES: Final = frozenset(("sonnet", "opus", "haiku", "fable", "fast", "default", "inherit"))


class ProviderSettings(msgspec.Struct, frozen=True, kw_only=True):
    """`[providers.NAME]` in the user's settings."""

    base_url: str = ""
    protocol: str = ""
    """anthropic, chat or responses."""
    key_env: str = ""
    """The environment variable that holds the key."""
    requests_per_minute: int = 0
    tokens_per_minute: int = 0
    """Rate limits for all agents together; 0: none."""


class ModelSources(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the selection depends on."""

    environment: Mapping[str, str]
    model_setting: str = ""
    """`model` in the user's settings."""
    providers: Mapping[str, ProviderSettings] = {}
    models: Mapping[str, Mapping[str, Any]] = {}
    probe_local: bool = True
    """Whether to probe for model servers on this machine."""
    reply_limits: ReplyLimits = ReplyLimits()
    stored_keys: Mapping[str, str] = {}
    """Keys stored by setup, by variable name; those of known providers are also in `environment`."""


class SelectedModel(msgspec.Struct, frozen=True, kw_only=True):
    provider: str
    model: str
    info: ModelInfo
    reason: str
    """Why this model was selected, for users."""
    connect: Callable[[], Provider]
    script_file: str = ""
    """Path of the script for `scripted`."""

    @property
    def name(self) -> str:
        return f"{self.provider}/{self.model}" if self.model != self.provider else self.provider

    @property
    def reference(self) -> str:
        """A model name that selects the same model again."""
        return f"{self.name}:{self.script_file}" if self.script_file else self.name


class ProviderEndpoint(msgspec.Struct, frozen=True, kw_only=True):
    """Address, protocol and key variable of a provider."""

    address: str
    key_variable: str
    protocol: str
    needs_key: bool


def select_model(sources: ModelSources, flag: str = "", parent: SelectedModel | None = None) -> SelectedModel:
    """Raises UsageError for an unknown name, InvalidError for a missing key."""
    for name, reason in (
        (flag, "--model"),
        (sources.environment.get("KITBAG_MODEL", ""), "KITBAG_MODEL in your environment"),
        (sources.model_setting, "`model` in your settings"),
    ):
        if name.strip() == "inherit" and parent is not None:
            return parent
        if name.strip() not in ("", "inherit"):
            try:
                return resolve_model(name, sources, reason, parent)
            except UsageError as error:
                raise UsageError(f"{error.problem} (from {reason})", error.fix) from None
    return parent if parent is not None else _detect_model(sources)


def resolve_model(name: str, sources: ModelSources, reason: str, parent: SelectedModel | None = None) -> SelectedModel:
    """`name`: as written by the user or in an agent file."""
    name = name.strip()
    if name in BUILT_IN_MODELS or name.startswith("scripted:"):
        return _built_in_model(name, sources, reason)
    provider, slash, model = name.partition("/")
    if not slash and name in _ALIASES:
        return _resolve_alias(name, sources, reason, parent)
    if not slash:
        provider, model = _infer_provider(name, parent), name
    if not model or not provider or provider in BUILT_IN_MODELS:
        raise UsageError(
            f"{name!r} is not a valid model name", "use provider/model, such as anthropic/claude-sonnet-4-5"
        )
    known = look_up_model(f"{provider}/{model}", sources.models)
    return SelectedModel(
        provider=provider, model=model, info=known, reason=reason, connect=lambda: connect_provider(provider, sources)
    )


def _resolve_alias(name: str, sources: ModelSources, reason: str, parent: SelectedModel | None) -> SelectedModel:
    """Resolves at the parent's provider, else at the first with a key; without such an alias, uses the base model."""
    base = parent if parent is not None else _detect_model(sources)
    model = model_aliases(base.provider).get(name, "")
    if model:
        return resolve_model(f"{base.provider}/{model}", sources, f"{reason}: {name}")
    if parent is None and base.provider in BUILT_IN_MODELS:
        fix = "run `kitbag setup`, set ANTHROPIC_API_KEY or OPENAI_API_KEY, or use --model offline"
        raise InvalidError(f"no API key for any provider of {name!r}", fix)
    return msgspec.structs.replace(base, reason=f"{reason}: {name}, which {base.provider} does not offer")


def _infer_provider(name: str, parent: SelectedModel | None) -> str:
    """The provider for a bare model name, by its family."""
    lower = name.lower()
    if lower.startswith("claude"):
        return "anthropic"
    if lower.startswith(("gpt-", "o1", "o3", "o4", "chatgpt", "codex")) and not lower.startswith("gpt-oss"):
        return "openai"
    if parent is not None and parent.provider not in BUILT_IN_MODELS:
        return parent.provider
    fix = "use provider/model, such as anthropic/claude-sonnet-4-5 or ollama/qwen3; `offline` needs no key"
    raise UsageError(f"no provider specified for the model {name!r}", fix)


def _detect_model(sources: ModelSources) -> SelectedModel:
    for provider in ("anthropic", "openai"):
        variable = key_variable(provider, sources)
        if sources.environment.get(variable, "").strip():
            reason = f"{variable} is {'stored by setup' if is_stored_key(variable, sources) else 'set'}"
            return resolve_model(f"{provider}/{model_aliases(provider)['default']}", sources, reason)
    for provider in LOCAL_PORTS if sources.probe_local else ():
        address = provider_endpoint(provider, sources).address
        model = first_local_model(address)
        if model:
            return resolve_model(f"{provider}/{model}", sources, f"{provider} is running at {address}")
    return _built_in_model("offline", sources, "no API key is set and no local model server is running")


def _built_in_model(name: str, sources: ModelSources, reason: str) -> SelectedModel:
    kind, _, path = name.partition(":")
    known = look_up_model(kind, sources.models)

    def offline() -> Provider:
        from kitbag.models.offline.model import OfflineModel

        return OfflineModel()

    if kind == "offline":
        return SelectedModel(provider=kind, model=kind, info=known, reason=reason, connect=offline)
    script = path or sources.environment.get("KITBAG_SCRIPT", "")

    def scripted() -> Provider:
        from kitbag.models.scripted import Scripted, load_script

        if not script:
            raise UsageError("no script specified for `scripted`", "use scripted:FILE.json, or set KITBAG_SCRIPT")
        return Scripted(load_script(script))

    return SelectedModel(
        provider=kind,
        model=kind,
        info=known,
        reason=reason,
        connect=scripted,
        script_file=os.path.abspath(script) if script else "",
    )


# Endpoints


def key_variable(provider: str, sources: ModelSources) -> str:
    """One provider's key is never sent to another: custom providers must name their own variable."""
    settings = sources.providers.get(provider, ProviderSettings())
    return settings.key_env or _KEY_VARIABLES.get(provider, "")


def is_stored_key(variable: str, sources: ModelSources) -> bool:
    """Whether the variable's value is the key stored by setup."""
    return variable in sources.stored_keys and sources.environment.get(variable) == sources.stored_keys[variable]


def provider_endpoint(provider: str, sources: ModelSources) -> ProviderEndpoint:
    """Raises UsageError for an invalid address. The address is empty for providers without an adapter."""
    settings = sources.providers.get(provider, ProviderSettings())
    variable = {"anthropic": "ANTHROPIC_BASE_URL", "openai": "OPENAI_BASE_URL"}.get(provider, "")
    configured = settings.base_url or (sources.environment.get(variable, "").strip() if variable else "")
    default = {"anthropic": ANTHROPIC_URL, "openai": OPENAI_URL, "openrouter": OPENROUTER_URL}.get(provider, "")
    if not configured and provider in LOCAL_PORTS:
        default = local_address(provider, sources.environment)
    address = (configured or default).rstrip("/")
    if address and not address.startswith(("http://", "https://")):
        setting_name = f"`providers.{provider}.base_url`" if settings.base_url else variable or "OLLAMA_HOST"
        raise UsageError(f"{setting_name} is not a URL", "use http://… or https://…")
    protocol = settings.protocol or ("anthropic" if provider == "anthropic" else "")
    if protocol == "anthropic":
        address = address.removesuffix("/v1")
    settings = sources.providers.get(provider)
    needs_key = address in (ANTHROPIC_URL, OPENAI_URL, OPENROUTER_URL) or bool(settings and settings.key_env)
    protocol = protocol or ("responses" if address == OPENAI_URL else "chat")
    return ProviderEndpoint(
        address=address, key_variable=key_variable(provider, sources), protocol=protocol, needs_key=needs_key
    )


def known_providers(sources: ModelSources) -> list[str]:
    return list(dict.fromkeys((*_KEY_VARIABLES, *LOCAL_PORTS, *sources.providers)))


def can_connect(provider: str, sources: ModelSources) -> bool:
    """Whether there is a key for it, if it needs one."""
    if provider in BUILT_IN_MODELS:
        return True
    try:
        endpoint = provider_endpoint(provider, sources)
        return not endpoint.address or bool(_api_key(provider, endpoint, sources.environment)) or not endpoint.needs_key
    except (InvalidError, UsageError):
        return False


def connect_provider(provider: str, sources: ModelSources) -> Provider:
    """The adapter for a provider, with its key. Raises InvalidError if the key is missing."""
    from kitbag.models.adapters.api_errors import ApiEndpoint

    endpoint = provider_endpoint(provider, sources)
    if not endpoint.address:
        return _pydantic_ai_provider(provider, sources)
    key = _api_key(provider, endpoint, sources.environment)
    if endpoint.protocol == "anthropic":
        from kitbag.models.adapters.anthropic import API_VERSION, Anthropic

        headers = {"anthropic-version": API_VERSION, **({"x-api-key": key} if key else {})}
        return Anthropic(
            ApiEndpoint(provider=provider, base_url=endpoint.address, headers=headers, limits=sources.reply_limits)
        )
    headers = {"authorization": f"Bearer {key}"} if key else {}
    api_endpoint = ApiEndpoint(
        provider=provider, base_url=endpoint.address, headers=headers, limits=sources.reply_limits
    )
    if endpoint.protocol == "responses":
        from kitbag.models.adapters.openai_responses import OpenAIResponses

        return OpenAIResponses(api_endpoint)
    from kitbag.models.adapters.openai_chat import OpenAIChat

    return OpenAIChat(api_endpoint, completion_limit=endpoint.address == OPENAI_URL)


def _api_key(provider: str, endpoint: ProviderEndpoint, environment: Mapping[str, str]) -> str:
    variable = endpoint.key_variable
    key = environment.get(variable, "").strip() if variable else ""
    if not key and endpoint.needs_key:
        raise InvalidError(
            f"no API key for {provider}",
            f"run `kitbag setup`, set {variable} in your environment, or use --model offline",
        )
    if not key.isprintable() or not key.isascii():
        raise InvalidError(f"the API key in {variable} contains invalid characters", f"set {variable} again")
    return key


def _pydantic_ai_provider(provider: str, sources: ModelSources) -> Provider:
    """Uses the extra `models`, if installed."""
    from difflib import get_close_matches

    from kitbag.models.adapters.pydantic_ai import INSTALL, PydanticAI

    try:
        return PydanticAI(provider, limits=sources.reply_limits)
    except InvalidError as error:
        known = known_providers(sources)
        near = get_close_matches(provider, known, 1, 0.75)
        fix = f"did you mean {near[0]}? Or" if near else f"use one of {', '.join(known)};"
        fix += f" for a compatible API, add [providers.{provider}] base_url = … to your settings"
        fix += f"; for other providers, {INSTALL}" if error.fix else ""
        raise UsageError(f"unknown provider {provider!r}", fix) from error
