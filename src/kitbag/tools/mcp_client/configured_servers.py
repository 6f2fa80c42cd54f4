"""Which servers there are for a workspace: the user's own, and a project's as far as it is trusted; and which an agent
brings in its file. Inert: nothing is started, resolved or connected to.

A project's server counts only as it was when the workspace was trusted: its whole description, and the scripts of the
workspace that it runs. Of two with one name the user's own counts. Used by `servers`, by assembly/servers and by
`kitbag servers`.
"""

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

from kitbag.errors import UsageError
from kitbag.library.agent_document import read_document
from kitbag.library.agent_servers import servers_in
from kitbag.library.agents import Agent
from kitbag.library.scopes import Places
from kitbag.permissions.model import is_inside
from kitbag.permissions.trust.capabilities import server_text, strings_of
from kitbag.permissions.trust.workspace_trust import Trust, workspace_trust
from kitbag.sandbox.environment import scrubbed
from kitbag.settings import Settings
from kitbag.store.secret_names import looks_secret
from kitbag.text.plain_frontmatter import Metadata
from kitbag.text.source_files import SourceError, boundary_of, read_text
from kitbag.tools.mcp_client.server_config import (
    Scope,
    Server,
    filled_in,
    labelled,
    read_server,
    server_map,
    typed_description,
)

State = Literal["ready", "off", "untrusted", "changed", "wrong", "hidden"]
"""Why a server is used or not; hidden: another one has its name."""
FILES: Final = (".mcp.json", ".kitbag/mcp.json")
MOST: Final = 100


class Configured(NamedTuple):
    server: Server
    state: State
    reason: str = ""
    fix: str = ""


def configured_servers(places: Places, trust: Trust, settings: Settings) -> list[Configured]:
    """`settings`: only the user's own tables are in them."""
    found = [_own(name, table, settings.user_file, places) for name, table in settings.tables("mcp_servers").items()]
    for directory in places.project_dirs:
        for name in FILES:
            found += _of_file(os.path.join(directory, name), directory, trust)
    found = found[:MOST]
    known: dict[str, Server] = {}
    for at, one in enumerate(found):
        first = known.setdefault(one.server.name, one.server)
        if first is one.server:
            continue
        if not first.enabled and one.server.enabled:
            reason, state = f"switched off in {first.source}", "off"
        else:
            reason, state = f"the one of {first.source} has the same name", "hidden"
        found[at] = one._replace(state=state, reason=reason, fix="")
    servers = labelled([one.server for one in found])
    return [one._replace(server=server) for one, server in zip(found, servers, strict=True)]


def _own(name: str, table: Mapping[str, Any], file: str, places: Places) -> Configured:
    server, wrong = read_server(name, dict(table), file, "user", places.cwd)
    if server.directory:
        server = server._replace(directory=os.path.join(places.cwd, os.path.expanduser(server.directory)))
    return _judged(server, wrong)


def _judged(server: Server, wrong: str) -> Configured:
    if wrong:
        return Configured(server, "wrong", wrong, f"correct it in {server.source}")
    if not server.enabled:
        return Configured(server, "off", f"switched off in {server.source}")
    return Configured(server, "ready")


def _of_file(path: str, directory: str, trust: Trust) -> list[Configured]:
    if not os.path.lexists(path):
        return []
    try:
        text, _, _ = read_text(path, boundary_of(trust.root))
        servers = server_map(json.loads(text))
    except (SourceError, ValueError, RecursionError) as error:
        problem = error.problem if isinstance(error, SourceError) else "not valid JSON"
        unread = Server("(all)", path, "project", label="all")
        return [Configured(unread, "wrong", f"nothing in it is used: {problem}", f"mend {path}")]
    found: list[Configured] = []
    for name, definition in list(servers.items())[:MOST]:
        server, wrong = read_server(name, definition, path, "project", directory)
        found.append(_as_trusted(_judged(server, wrong), trust, server_text(name, definition)))
    return found


def _as_trusted(one: Configured, trust: Trust, text: str) -> Configured:
    if one.state == "ready" and not covers(trust, one.server.source, text):
        return _untrusted(one.server, trust)
    return one


# --- an agent's own ---------------------------------------------------------------------------------------------


def servers_of_agent(agent: Agent, places: Places, trust: Trust, configured: Sequence[Configured]) -> list[Configured]:
    """Those that its file describes. A project's file counts as far as it is trusted, and of two with one name its own
    one counts for the agent, but not before one of the user's."""
    of_project = agent.root.scope == "project" or (
        agent.root.scope == "extra" and is_inside(os.path.realpath(agent.path), os.path.realpath(places.project))
    )
    scope: Scope = "project" if of_project else "user"
    found = _in_agent_file(agent.path, agent.own_servers, scope, places.cwd)
    if of_project:
        users = {one.server.name: one.server for one in configured if one.server.scope == "user"}
        found = [
            _beside(
                _as_trusted(one, trust, server_text(one.server.name, agent.own_servers[one.server.name])),
                users.get(one.server.name),
            )
            for one in found
        ]
    others = [one.server for one in configured]
    servers = labelled([*others, *(one.server for one in found)])[len(others) :]
    return [one._replace(server=server) for one, server in zip(found, servers, strict=True)]


def _in_agent_file(path: str, described: Metadata, scope: Scope, directory: str) -> list[Configured]:
    found: list[Configured] = []
    for name, definition in list(described.items())[:MOST]:
        server, wrong = read_server(name, typed_description(definition, scope), path, scope, directory)
        if not wrong and any("${{" in text for text in strings_of(definition)):
            wrong = "it wants a secret of GitHub (`${{ … }}`), which can't be had here"
        directory_of = os.path.join(directory, os.path.expanduser(server.directory))
        found.append(_judged(server._replace(directory=directory_of), wrong))
    return found


def _beside(one: Configured, users: Server | None) -> Configured:
    if users is None:
        return one
    if not users.enabled:
        return Configured(one.server, "off", f"switched off in {users.source}")
    return Configured(one.server, "hidden", f"the one of {users.source} has the same name, and counts")


_TRUST_FIX: Final = (
    "`kitbag trust` shows what the workspace would run, and asks; --trust-workspace trusts it for one run"
)


def _untrusted(server: Server, trust: Trust) -> Configured:
    if trust.state == "untrusted":
        return Configured(server, "untrusted", "the workspace is not trusted", _TRUST_FIX)
    return Configured(server, "changed", "it is not as it was when the workspace was trusted", _TRUST_FIX)


def covers(trust: Trust, path: str, text: str) -> bool:
    """Whether the server was there, just so, when a person agreed to the workspace."""
    if trust.for_now:
        return True
    return trust.state == "trusted" and text in _agreed(trust, path)


def _agreed(trust: Trust, path: str) -> set[str]:
    return {
        act.text
        for item in trust.items
        if path in (os.path.join(trust.folder, item.path), os.path.join(trust.root, item.path))
        for act in item.acts
        if act.kind == "server"
    }


def check_still_trusted(server: Server, places: Places, trust: Trust) -> None:
    """Looked at anew before a project's program is started: meanwhile an agent may have changed the file, or a script
    that the server runs. What else has changed in the workspace does not matter. Raises UsageError."""
    if server.scope == "user" or trust.for_now:
        return
    now = workspace_trust(places, trust.only)
    relative = {os.path.relpath(server.source, root) for root in (now.root, now.folder)}
    changed = any(change.path in relative or change.path == server.source for change in now.changes)
    if trust.only:  # there is no record to compare it with
        changed = trust.acts_of(relative) != now.acts_of(relative)
    if now.state not in ("trusted", "changed") or changed or not _is_same(server, now):
        raise UsageError("it, or a script it runs, has changed since the workspace was trusted", _TRUST_FIX)


def _is_same(server: Server, now: Trust) -> bool:
    """The description that was read when the run began is one of those that are there now."""
    if server.source.endswith(tuple(os.sep + name for name in FILES)):
        found = _of_file(server.source, os.path.dirname(server.source), now._replace(for_now=True))
    else:
        document, _ = read_document(server.source, boundary_of(now.root))
        value = document.take("mcp_servers").value if document is not None else None
        found = _in_agent_file(server.source, servers_in(value or "").described, server.scope, "")
    place = server._replace(label="", directory="")
    return any(one.server._replace(label="", directory="") == place for one in found)


def with_values(server: Server, places: Places, settings: Settings) -> Server:
    """Its variables filled in. A project's server gets no value that a command would not get, unless the user names
    the variable in `mcp.environment`. Raises UsageError."""
    given = dict(os.environ)
    fixed = {"CLAUDE_PROJECT_DIR": places.project, "PWD": places.cwd, "workspaceFolder": places.project}
    if server.scope == "user":
        return filled_in(server, given.get)
    allowed = frozenset(str(name) for name in settings.get("mcp.environment"))
    harmless = scrubbed(given.items(), allowed)

    def find(name: str) -> str | None:
        if name in fixed:
            return fixed[name]
        if name in given and (name not in harmless or harmless[name] != given[name]):
            why = "looks like a secret's" if looks_secret(name) else "is one that projects are not given"
            fix = f"if it may have it, add it to your settings: kitbag config set mcp.environment '[\"{name}\"]'"
            raise UsageError(f"it wants the variable {name}, whose name or value {why}", fix)
        return harmless.get(name)

    return filled_in(server, find)


def environment_of(server: Server) -> dict[str, str]:
    """What a program is started with: what any command gets, and exactly what its description names."""
    return {**scrubbed(os.environ.items()), **dict(server.environment)}
