"""The servers that an agent's file speaks of: those that it names, and those that it describes itself.

Used by agents, which keeps them with the agent, and by permissions/workspace_acts, so that what a person agrees to is
what would be started. Nothing of a description is looked at here but whether there is one.
"""

from typing import Final, NamedTuple

from kitbag.library.agent_document import AgentDocument
from kitbag.library.scopes import Root
from kitbag.library.skills import to_string_list, to_text
from kitbag.text.plain_frontmatter import Metadata, YamlValue

_NAME_ONLY_VALUES: Final = frozenset(("", "null", "~", "true"))
"""`github:` and `github: true` say that there is one, and not which."""
_DEFINITION_KEYS: Final = frozenset(("command", "url", "type", "transport"))


class ServerReferences(NamedTuple):
    named: tuple[str, ...]
    """Configured elsewhere."""
    inline: Metadata
    """By name."""


def parse_servers(value: YamlValue) -> ServerReferences:
    """Of a list of names and one-entry maps, a map by name, or names with commas in between."""
    named: list[str] = []
    described: Metadata = {}
    for item in to_string_list(value) if isinstance(value, str) else [value] if isinstance(value, dict) else value:
        if isinstance(item, dict):
            for name, what in _map_entries(item):
                if what in ([], {}) or (isinstance(what, str) and what.strip().lower() in _NAME_ONLY_VALUES):
                    named.append(name)
                else:
                    described[name] = what
        elif name := to_text(item).strip():
            named.append(name)
    return ServerReferences(tuple(named), described)


def _map_entries(item: Metadata) -> list[tuple[str, YamlValue]]:
    """`github: {command: …}`, or all in one: `{name: github, command: …}`."""
    name = item.get("name")
    if isinstance(name, str) and name.strip() and (len(item) == 1 or not _DEFINITION_KEYS.isdisjoint(item)):
        return [(name.strip(), {key: value for key, value in item.items() if key != "name"})]
    return list(item.items())


def read_agent_servers(document: AgentDocument, root: Root) -> tuple[tuple[str, ...], Metadata]:
    """The names of all, and the descriptions of those that have one."""
    key, value = document.take("mcp_servers")
    if not value:
        return (), {}
    if isinstance(value, str) and ("\n" in value.strip() or ":" in value):  # what a broken head left of a map
        what = f"`{key}` can't be read, so no servers are named"
        document.add_diagnostic(
            "warning", "servers-unreadable", key, what, "write a list of names, or correct the YAML"
        )
        return (), {}
    named, described = parse_servers(value)
    if not named and not described:
        return (), {}
    if root.plugin:
        what = f"`{key}` is ignored: a plugin's agent can't bring servers"
        document.add_diagnostic("info", "plugin-servers-ignored", key, what, "configure the servers in your settings")
        return (), {}
    names = {name: document.strip_hidden(name.strip(), key) for name in dict.fromkeys((*named, *described))}
    # A name that does not look like what it is stays one that is not configured.
    return tuple(dict.fromkeys(names.values())), {name: what for name, what in described.items() if names[name] == name}
