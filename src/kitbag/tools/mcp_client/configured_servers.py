"""The MCP servers configured for a workspace: the user's, a trusted project's, and those in an agent's file. Starts,
resolves and connects to nothing.

A project's server is used only as it was when the workspace was trusted: its whole definition, and the scripts of the
workspace that it runs. The user's server wins over others of the same name. Used by servers, assembly/mcp_servers and
`kitbag servers`.
"""

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

import msgspec
from msgspec import structs

from kitbag.errors import UsageError
from kitbag.library.agent_document import read_document
from kitbag.library.agent_servers import parse_servers
from kitbag.library.agents import AgentFile
from kitbag.library.scopes import Places
from kitbag.permissions.model import is_inside
from kitbag.permissions.trust.capabilities import collect_strings, describe_server
from kitbag.permissions.trust.workspace_trust import WorkspaceTrust, check_trust
from kitbag.sandbox.environment import scrub_environment
from kitbag.settings import Settings
from kitbag.store.secret_names import is_secret_name
from kitbag.text.plain_frontmatter import Metadata
from kitbag.text.source_files import SourceError, directory_boundary, read_text
from kitbag.text.unicode_forms import compose
from kitbag.tools.mcp_client.server_config import (
    ServerConfig,
    ServerScope,
    assign_labels,
    coerce_definition,
    find_server_map,
    parse_server,
    substitute_variables,
)

ServerAvailability = Literal["ready", "off", "untrusted", "changed", "wrong", "hidden"]
"""Why a server is used or not; hidden: another one has its name."""
PROJECT_FILES: Final = (".mcp.json", ".kitbag/mcp.json")
MAX_SERVERS: Final = 100


class ConfiguredServer(msgspec.Struct, frozen=True, kw_only=True):
    server: ServerConfig
    state: ServerAvailability
    reason: str = ""
    fix: str = ""


def configured_servers(places: Places, trust: WorkspaceTrust, settings: Settings) -> list[ConfiguredServer]:
    """`settings`: only the user's own tables are used."""
    found = [
        _user_server(name, table, settings.user_file, places) for name, table in settings.tables("mcp_servers").items()
    ]
    for directory in places.project_dirs:
        for name in PROJECT_FILES:
            found += _read_server_file(os.path.join(directory, name), directory, trust)
    found = found[:MAX_SERVERS]
    known: dict[str, ServerConfig] = {}
    for at, one in enumerate(found):
        first = known.setdefault(compose(one.server.name), one.server)
        if first is one.server:
            continue
        if not first.enabled and one.server.enabled:
            reason, state = f"disabled in {first.source}", "off"
        else:
            reason, state = f"shadowed by the server of the same name in {first.source}", "hidden"
        found[at] = structs.replace(one, state=state, reason=reason, fix="")
    servers = assign_labels([one.server for one in found])
    return [structs.replace(one, server=server) for one, server in zip(found, servers, strict=True)]


def _user_server(name: str, table: Mapping[str, Any], file: str, places: Places) -> ConfiguredServer:
    server, wrong = parse_server(name, dict(table), file, "user", places.cwd)
    if server.directory:
        server = structs.replace(server, directory=os.path.join(places.cwd, os.path.expanduser(server.directory)))
    return _determine_state(server, wrong)


def _determine_state(server: ServerConfig, wrong: str) -> ConfiguredServer:
    if wrong:
        return ConfiguredServer(server=server, state="wrong", reason=wrong, fix=f"fix it in {server.source}")
    if not server.enabled:
        return ConfiguredServer(server=server, state="off", reason=f"disabled in {server.source}")
    return ConfiguredServer(server=server, state="ready")


def _read_server_file(path: str, directory: str, trust: WorkspaceTrust) -> list[ConfiguredServer]:
    if not os.path.lexists(path):
        return []
    try:
        text, _, _ = read_text(path, directory_boundary(trust.root))
        servers = find_server_map(json.loads(text))
    except (SourceError, ValueError, RecursionError) as error:
        problem = error.problem if isinstance(error, SourceError) else "not valid JSON"
        unread = ServerConfig(name="(all)", source=path, scope="project", label="all")
        return [
            ConfiguredServer(server=unread, state="wrong", reason=f"the file is ignored: {problem}", fix=f"fix {path}")
        ]
    found: list[ConfiguredServer] = []
    for name, definition in list(servers.items())[:MAX_SERVERS]:
        server, wrong = parse_server(name, definition, path, "project", directory)
        found.append(_require_trust(_determine_state(server, wrong), trust, describe_server(name, definition)))
    return found


def _require_trust(one: ConfiguredServer, trust: WorkspaceTrust, text: str) -> ConfiguredServer:
    if one.state == "ready" and not is_trusted(trust, one.server.source, text):
        return _untrusted_server(one.server, trust)
    return one


# --- servers in an agent's file ---------------------------------------------------------------------------------


def agent_servers(
    agent: AgentFile, places: Places, trust: WorkspaceTrust, configured: Sequence[ConfiguredServer]
) -> list[ConfiguredServer]:
    """The servers that its file defines. A project's file needs trust. The agent's definition wins over a project's of
    the same name, but not over the user's."""
    of_project = agent.root.scope == "project" or (
        agent.root.scope == "extra" and is_inside(os.path.realpath(agent.path), os.path.realpath(places.project))
    )
    scope: ServerScope = "project" if of_project else "user"
    found = _parse_agent_servers(agent.path, agent.inline_servers, scope, places.cwd)
    if of_project:
        users = {compose(one.server.name): one.server for one in configured if one.server.scope == "user"}
        found = [
            _apply_user_server(
                _require_trust(one, trust, describe_server(one.server.name, agent.inline_servers[one.server.name])),
                users.get(compose(one.server.name)),
            )
            for one in found
        ]
    others = [one.server for one in configured]
    servers = assign_labels([*others, *(one.server for one in found)])[len(others) :]
    return [structs.replace(one, server=server) for one, server in zip(found, servers, strict=True)]


def _parse_agent_servers(path: str, described: Metadata, scope: ServerScope, directory: str) -> list[ConfiguredServer]:
    found: list[ConfiguredServer] = []
    for name, definition in list(described.items())[:MAX_SERVERS]:
        server, wrong = parse_server(name, coerce_definition(definition, scope), path, scope, directory)
        if not wrong and any("${{" in text for text in collect_strings(definition)):
            wrong = "it needs a GitHub secret (`${{ … }}`), which is not available here"
        directory_of = os.path.join(directory, os.path.expanduser(server.directory))
        found.append(_determine_state(structs.replace(server, directory=directory_of), wrong))
    return found


def _apply_user_server(one: ConfiguredServer, users: ServerConfig | None) -> ConfiguredServer:
    if users is None:
        return one
    if not users.enabled:
        return ConfiguredServer(server=one.server, state="off", reason=f"disabled in {users.source}")
    return ConfiguredServer(
        server=one.server, state="hidden", reason=f"shadowed by the server of the same name in {users.source}"
    )


_TRUST_FIX: Final = "review and trust the workspace with `kitbag trust`, or use --trust-workspace for one run"


def _untrusted_server(server: ServerConfig, trust: WorkspaceTrust) -> ConfiguredServer:
    if trust.state == "untrusted":
        return ConfiguredServer(server=server, state="untrusted", reason="the workspace is not trusted", fix=_TRUST_FIX)
    return ConfiguredServer(
        server=server, state="changed", reason="changed since the workspace was trusted", fix=_TRUST_FIX
    )


def is_trusted(trust: WorkspaceTrust, path: str, text: str) -> bool:
    """Whether exactly this server was there when the user trusted the workspace."""
    if trust.for_this_run:
        return True
    return trust.state == "trusted" and text in _trusted_server_texts(trust, path)


def _trusted_server_texts(trust: WorkspaceTrust, path: str) -> set[str]:
    return {
        act.text
        for item in trust.items
        if path in (os.path.join(trust.folder, item.path), os.path.join(trust.root, item.path))
        for act in item.capabilities
        if act.kind == "server"
    }


def check_still_trusted(server: ServerConfig, places: Places, trust: WorkspaceTrust) -> None:
    """Checks again before a project's program starts: an agent may have changed the file, or a script the server runs.
    Other changes in the workspace do not matter. Raises UsageError."""
    if server.scope == "user" or trust.for_this_run:
        return
    now = check_trust(places, trust.only_fingerprint)
    relative = {os.path.relpath(server.source, root) for root in (now.root, now.folder)}
    changed = any(change.path in relative or change.path == server.source for change in now.changes)
    if trust.only_fingerprint:  # there is no record to compare with
        changed = trust.capability_digests(relative) != now.capability_digests(relative)
    if now.state not in ("trusted", "changed") or changed or not _is_unchanged(server, now):
        raise UsageError("the server or a script it runs has changed since the workspace was trusted", _TRUST_FIX)


def _is_unchanged(server: ServerConfig, now: WorkspaceTrust) -> bool:
    """Whether the definition read at the start of the run still exists."""
    if server.source.endswith(tuple(os.sep + name for name in PROJECT_FILES)):
        found = _read_server_file(
            server.source, os.path.dirname(server.source), msgspec.structs.replace(now, for_this_run=True)
        )
    else:
        document, _ = read_document(server.source, directory_boundary(now.root))
        value = document.take("mcp_servers").value if document is not None else None
        found = _parse_agent_servers(server.source, parse_servers(value or "").inline, server.scope, "")
    normalized = structs.replace(server, label="", directory="")
    return any(structs.replace(one.server, label="", directory="") == normalized for one in found)


def resolve_variables(server: ServerConfig, places: Places, settings: Settings) -> ServerConfig:
    """Substitute its variables. A project's server gets only values that a command would get, unless the user names the
    variable in `mcp.environment`. Raises UsageError."""
    environment = dict(os.environ)
    fixed = {"CLAUDE_PROJECT_DIR": places.project, "PWD": places.cwd, "workspaceFolder": places.project}
    if server.scope == "user":
        return substitute_variables(server, environment.get)
    allowed = frozenset(str(name) for name in settings.get("mcp.environment"))
    harmless = scrub_environment(environment.items(), allowed)

    def find(name: str) -> str | None:
        if name in fixed:
            return fixed[name]
        if name in environment and (name not in harmless or harmless[name] != environment[name]):
            why = "looks like a secret" if is_secret_name(name) else "is not passed to project servers"
            fix = f"to pass it, run: kitbag config set mcp.environment '[\"{name}\"]'"
            raise UsageError(f"it needs the environment variable {name}, which {why}", fix)
        return harmless.get(name)

    return substitute_variables(server, find)


def server_environment(server: ServerConfig) -> dict[str, str]:
    """The environment of a server's program: that of any command, plus what its definition names."""
    return {**scrub_environment(os.environ.items()), **dict(server.environment)}
