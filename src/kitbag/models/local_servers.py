"""Model servers on this machine that need no key: their addresses, and the models they offer.

Probes loopback only, with a short timeout. Used by model_selection and setup (runtime.connect_model).
"""

import re
from collections.abc import Mapping
from typing import Any, Final

LOCAL_PORTS: Final = {"ollama": 11434, "llamacpp": 8080, "vllm": 8000, "lmstudio": 1234}
_PROBE_SECONDS = 0.25
_NAME = r"(?a)[\w./:@+-]{1,200}"
_NOT_CHAT_MODEL = (
    r"(?i)embed|whisper|dall-e|moderation|transcribe|realtime|rerank|gpt-image|gpt-audio"
    r"|(?:^|[-_/])(?:tts|sora|babbage|davinci)(?:[-_:]|$)"
)
_LOOPBACK = frozenset(("127.0.0.1", "localhost", "::1"))


def local_address(provider: str, environment: Mapping[str, str]) -> str:
    """The base URL of its OpenAI API. OLLAMA_HOST may be `host`, `host:port`, `:port` or a URL, as in Ollama."""
    port = LOCAL_PORTS[provider]
    setting = environment.get("OLLAMA_HOST", "").strip(" \"'") if provider == "ollama" else ""
    scheme, has_scheme, rest = setting.partition("://")
    if not has_scheme:
        scheme, rest = "http", setting
    elif scheme in ("http", "https"):
        port = 443 if scheme == "https" else 80
    host, path = _split_path(rest)
    name, port_number = _host_and_port(host)
    port_number = port_number if port_number and 0 < int(port_number) < 65536 else str(port)
    name = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}.get(name, name)  # noqa: S104 - not bound to
    display_name = f"[{name}]" if ":" in name else name
    return f"{scheme}://{display_name}:{port_number}{path.removesuffix('/v1')}/v1"


def _split_path(rest: str) -> tuple[str, str]:
    host, slash, path = rest.partition("/")
    return host, f"{slash}{path}".rstrip("/")


def _host_and_port(host: str) -> tuple[str, str]:
    if host.startswith("["):
        name, _, port = host[1:].partition("]")
        port = port.removeprefix(":")
    elif host.count(":") > 1:  # an IPv6 address without brackets
        name, port = host, ""
    else:
        name, _, port = host.partition(":")
    return name, port if port.isascii() and port.isdigit() and len(port) < 6 else ""


def first_local_model(address: str) -> str:
    """The first chat model that a local server offers; empty if none responds in time."""
    return next(iter(local_models(address)), "")


def local_models(address: str) -> list[str]:
    """The chat models that a local server offers."""
    from http.client import HTTPConnection, HTTPException
    from urllib.parse import urlsplit

    parts = urlsplit(address)
    if parts.hostname not in _LOOPBACK or parts.scheme != "http":
        return []
    connection = HTTPConnection(parts.hostname, parts.port, timeout=_PROBE_SECONDS)
    try:
        connection.request("GET", "/v1/models")
        return parse_model_list(connection.getresponse().read(1 << 20))
    except (OSError, HTTPException):
        return []
    finally:
        connection.close()


def parse_model_list(body: bytes) -> list[str]:
    """Names of the chat models in a list in OpenAI's and Anthropic's format; empty for anything else."""
    import json

    try:
        content: Any = json.loads(body)
        names = [str(model["id"]) for model in content["data"]]
    except (ValueError, KeyError, TypeError, RecursionError):
        return []
    return [name for name in names if re.fullmatch(_NAME, name) and not re.search(_NOT_CHAT_MODEL, name)]
