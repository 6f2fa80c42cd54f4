"""Parses the definition of an MCP server: a program or a URL, with arguments, environment and headers.

Used by configured_servers, which knows the files. Definitions are untrusted: an invalid one is reported and not used.
`${NAME}` is substituted just before the server starts, and the value is not stored.
"""

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, cast

import msgspec
from msgspec import structs

from kitbag.errors import UsageError
from kitbag.store.secret_names import has_secret_value
from kitbag.text.hidden_characters import collapse_whitespace, reveal_hidden
from kitbag.text.unicode_forms import compose

ServerScope = Literal["user", "project"]
MAX_LABEL_CHARS: Final = 24
MAX_CALL_SECONDS: Final = 600.0
_KEYS: Final = frozenset(
    ("type", "transport", "command", "args", "env", "url", "headers", "timeout", "tools", "enabled")
)
_IGNORED_KEYS: Final = frozenset(("description", "disabled", "alwaysAllow", "autoApprove", "trust", "name", "gallery"))
"""Keys of other programs that change nothing here; `disabled` is read."""
_TRANSPORTS: Final = {
    "stdio": "stdio", "local": "stdio", "http": "http", "streamable-http": "http", "streamable_http": "http",
    "streamablehttp": "http", "remote": "http",
}  # fmt: skip
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_FIX: Final = "see docs/servers.md"


class ServerConfig(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    """As written."""
    source: str
    """The file that defines it."""
    scope: ServerScope
    command: str = ""
    """Empty if it has a URL."""
    arguments: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    url: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    directory: str = ""
    """The working directory of its program."""
    timeout_seconds: float = 0.0
    """Of a call; 0: the setting's."""
    allowed_tools: tuple[str, ...] = ()
    """Only these tools; `*` matches any characters. Empty: all."""
    enabled: bool = True
    label: str = ""
    """Its part of the tool names."""

    @property
    def display_target(self) -> str:
        """For the user: what would be started or connected to, with variables as written."""
        import shlex

        return collapse_whitespace(
            reveal_hidden(_strip_credentials(self.url) or shlex.join((self.command, *self.arguments)))
        )[:300]

    @property
    def digest(self) -> str:
        """Servers that may offer different tools never have the same digest."""
        parts = (
            self.name, self.scope, self.command, self.arguments, self.environment, self.url, self.headers,
            self.directory if self.scope == "project" else "",
        )  # fmt: skip
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def parse_server(
    name: str, definition: object, source: str, scope: ServerScope, directory: str
) -> tuple[ServerConfig, str]:
    """Returns the server and what is wrong with it, or an empty string."""
    server = ServerConfig(name=name, source=source, scope=scope, directory=directory, label=make_label(name))
    if not isinstance(definition, dict):
        return server, "the definition must be a table"
    fields = cast("dict[str, object]", definition)
    known_keys = _KEYS | {"cwd"} if scope == "user" else _KEYS
    unknown = [key for key in fields if key not in known_keys and key not in _IGNORED_KEYS]
    enabled = fields.get("enabled", True)
    if not isinstance(enabled, bool):
        return server, "`enabled` must be true or false"
    server = structs.replace(server, enabled=enabled and fields.get("disabled") is not True)
    if not server.enabled and not {"command", "url"} & fields.keys():
        return server, ""  # it only disables the server
    if unknown:
        return (
            server,
            f"unknown key `{collapse_whitespace(unknown[0])[:60]}`",
        )
    try:
        return _parse_fields(server, fields), ""
    except UsageError as error:
        return server, error.problem


def _parse_fields(server: ServerConfig, fields: dict[str, object]) -> ServerConfig:
    kind = fields.get("type", fields.get("transport", "http" if "url" in fields else "stdio"))
    transport = _TRANSPORTS.get(str(kind).lower())
    if transport is None:
        raise UsageError(f"unsupported server type {str(kind)[:40]!r}; use stdio or http", _FIX)
    server = structs.replace(
        server,
        environment=_string_pairs(fields, "env"),
        timeout_seconds=_timeout_seconds(fields, server.scope),
        allowed_tools=_string_list(fields, "tools"),
        directory=str(fields.get("cwd") or server.directory),
    )
    if transport == "stdio":
        command = fields.get("command")
        if isinstance(command, list) and server.scope == "user":  # program and arguments in one list
            argv = _string_list(fields, "command")
            command, first = (argv[0] if argv else ""), argv[1:]
        else:
            first = ()
        if not isinstance(command, str) or not command.strip() or "\0" in command:
            raise UsageError("`command` is missing", _FIX)
        if "url" in fields:
            raise UsageError("`command` and `url` cannot be combined", _FIX)
        return structs.replace(server, command=command, arguments=(*first, *_string_list(fields, "args")))
    url = fields.get("url")
    if not isinstance(url, str) or not url.startswith(("http://", "https://", "${")):
        raise UsageError("`url` must start with http:// or https://", _FIX)
    if "command" in fields:
        raise UsageError("`command` and `url` cannot be combined", _FIX)
    headers = _string_pairs(fields, "headers")
    if wrong := next((name for name, _ in headers if not _HEADER.fullmatch(name)), None):
        raise UsageError(f"invalid header name {wrong[:40]!r} in `headers`", _FIX)
    return structs.replace(server, url=url, headers=headers)


def _string_list(fields: dict[str, object], key: str) -> tuple[str, ...]:
    value = fields.get(key, [])
    items = cast("list[object]", value) if isinstance(value, list) else [None]
    if not all(isinstance(one, str) and "\0" not in one for one in items):
        raise UsageError(f"`{key}` must be a list of strings", _FIX)
    return tuple(cast("list[str]", items))


def _string_pairs(fields: dict[str, object], key: str) -> tuple[tuple[str, str], ...]:
    value: object = fields.get(key) or {}
    items = cast("dict[str, object]", value) if isinstance(value, dict) else {"": None}
    pairs: list[tuple[str, str]] = []
    for name, one in items.items():
        if isinstance(one, bool):
            one = "true" if one else "false"
        if not name or "=" in name or not isinstance(one, str | int | float) or "\0" in f"{name}{one}":
            raise UsageError(f"`{key}` must be a table of strings", _FIX)
        pairs.append((name, str(one)))
    return tuple(pairs)


def _timeout_seconds(fields: dict[str, object], scope: ServerScope) -> float:
    """In milliseconds in files that other programs read too."""
    value = fields.get("timeout", 0)
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < 10**9:
        raise UsageError("`timeout` must be a number", _FIX)
    return min(float(value) if scope == "user" else value / 1000, MAX_CALL_SECONDS)


def coerce_definition(definition: object, scope: ServerScope) -> object:
    """Converts the values of an agent's file, which are all text, for `parse_server`. Timeouts are in milliseconds
    there, because other programs read such files too."""
    if not isinstance(definition, dict):
        return definition
    fields = {key: value for key, value in cast("dict[str, object]", definition).items() if value != ""}
    for key in ("enabled", "disabled"):
        word = str(fields.get(key)).strip().lower()
        if word in ("true", "false"):
            fields[key] = word == "true"
    timeout = fields.get("timeout")
    if isinstance(timeout, str) and re.fullmatch(r"\d{1,9}(\.\d{1,9})?", timeout.strip()):
        fields["timeout"] = float(timeout) / (1000 if scope == "user" else 1)
    return fields


def substitute_variables(server: ServerConfig, find: Callable[[str], str | None]) -> ServerConfig:
    """Replaces `${NAME}` and `${NAME:-default}`. `find` raises UsageError for a value that is not allowed."""

    def substitute(text: str) -> str:
        return _VARIABLE.sub(one, text) if "${" in text else text

    def one(match: re.Match[str]) -> str:
        variable = find(match[1])
        if variable:
            return variable
        if match[2] is None:
            raise UsageError(f"environment variable {match[1]} is not set", f"set {match[1]} in your environment")
        return match[2]

    return structs.replace(
        server,
        command=substitute(server.command),
        arguments=tuple(map(substitute, server.arguments)),
        environment=tuple((name, substitute(text)) for name, text in server.environment),
        url=substitute(server.url),
        headers=tuple((name, substitute(text)) for name, text in server.headers),
        directory=substitute(server.directory),
    )


def _strip_credentials(url: str) -> str:
    """A URL may contain a user name and a password, and its query a key."""
    scheme, found, rest = url.partition("://")
    if not found:
        return url
    host, slash, path = rest.partition("?")[0].partition("/")
    return f"{scheme}://{host.rpartition('@')[2]}{slash}{path}"


def make_label(name: str, max_chars: int = MAX_LABEL_CHARS) -> str:
    """The name in `mcp__LABEL__tool`: without `__`, so that its end is unambiguous."""
    name = compose(name)
    label = re.sub(r"__+", "_", re.sub(r"[^A-Za-z0-9_-]", "_", name)).strip("_") or "server"
    return label if len(label) <= max_chars else f"{label[: max_chars - 9].rstrip('_')}-{short_hash(name)}"


def short_hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]


def assign_labels(servers: list[ServerConfig]) -> list[ServerConfig]:
    """A unique label each, the same in every run."""
    labels: dict[str, str] = {}
    labelled: list[ServerConfig] = []
    for server in servers:
        label = server.label
        if labels.setdefault(label.lower(), server.name) != server.name:
            label = f"{label[: MAX_LABEL_CHARS - 9].rstrip('_')}-{short_hash(server.name)}"
            labels[label.lower()] = server.name
        labelled.append(structs.replace(server, label=label))
    return labelled


def find_server_map(content: object) -> Mapping[str, Any]:
    """The servers of a file such as `.mcp.json` by name, wherever in the file they are."""
    if not isinstance(content, dict):
        return {}
    fields = cast("dict[str, object]", content)
    maps = [cast("dict[str, Any]", fields[key]) for key in SERVER_MAP_KEYS if isinstance(fields.get(key), dict)]
    if not maps and not any(key in fields for key in SERVER_MAP_KEYS):
        return cast("dict[str, Any]", fields)
    return {name: definition for one in reversed(maps) for name, definition in one.items()}


SERVER_MAP_KEYS: Final = ("mcpServers", "mcp_servers", "servers", "mcp")


def secret_values(environment: Mapping[str, object], headers: Mapping[str, object]) -> list[str]:
    """Secrets in a definition that must not be logged: environment values with secret names, and header values."""
    values = [str(value) for name, value in environment.items() if has_secret_value(name)]
    values += [str(value).rpartition(" ")[2] for value in headers.values()]
    return [value for value in values if "${" not in value]
