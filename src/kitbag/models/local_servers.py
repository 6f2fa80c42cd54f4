"""Model servers on this machine that need no key: where they listen, and which model they offer.

Used by choice and by setup. Only loopback is ever asked, and only for a moment.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

LOCAL_PORTS: Final = {"ollama": 11434, "llamacpp": 8080, "vllm": 8000, "lmstudio": 1234}
_PROBE_SECONDS = 0.25
_NAME = re.compile(r"[\w./:@+-]{1,200}", re.ASCII)
_NOT_CHAT_MODEL = re.compile(
    r"embed|whisper|dall-e|moderation|transcribe|realtime|rerank|gpt-image|gpt-audio"
    r"|(?:^|[-_/])(?:tts|sora|babbage|davinci)(?:[-_:]|$)",
    re.IGNORECASE,
)
_LOOPBACK = frozenset(("127.0.0.1", "localhost", "::1"))


def local_address(provider: str, environment: Mapping[str, str]) -> str:
    """OpenAI's protocol of it. OLLAMA_HOST is read as Ollama reads it: `host`, `host:port`, `:port`, or a URL."""
    port = LOCAL_PORTS[provider]
    written = environment.get("OLLAMA_HOST", "").strip(" \"'") if provider == "ollama" else ""
    scheme, has_scheme, rest = written.partition("://")
    if not has_scheme:
        scheme, rest = "http", written
    elif scheme in ("http", "https"):
        port = 443 if scheme == "https" else 80
    host, path = _split_path(rest)
    name, number = _host_and_port(host)
    number = number if number and 0 < int(number) < 65536 else str(port)
    name = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}.get(name, name)  # noqa: S104 - not bound to
    shown = f"[{name}]" if ":" in name else name
    return f"{scheme}://{shown}:{number}{path.removesuffix('/v1')}/v1"


def _split_path(rest: str) -> tuple[str, str]:
    host, slash, path = rest.partition("/")
    return host, f"{slash}{path}".rstrip("/")


def _host_and_port(host: str) -> tuple[str, str]:
    if host.startswith("["):
        name, _, port = host[1:].partition("]")
        port = port.removeprefix(":")
    elif host.count(":") > 1:  # an address of IPv6 without its brackets
        name, port = host, ""
    else:
        name, _, port = host.partition(":")
    return name, port if port.isascii() and port.isdigit() and len(port) < 6 else ""


def first_local_model(address: str) -> str:
    """The first model that a server on this machine offers and that can talk; empty where nobody answers at once."""
    return next(iter(local_models(address)), "")


def local_models(address: str) -> list[str]:
    """All of them."""
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
    """The names in a list as OpenAI and Anthropic give it, less those that can't talk; empty for anything else."""
    import json

    try:
        content: Any = json.loads(body)
        names = [str(model["id"]) for model in content["data"]]
    except (ValueError, KeyError, TypeError, RecursionError):
        return []
    return [name for name in names if _NAME.fullmatch(name) and not _NOT_CHAT_MODEL.search(name)]
