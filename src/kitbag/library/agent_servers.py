"""MCP servers in an agent file: references by name, and inline definitions.

Used by agents, and by permissions/trust so that the user approves exactly the servers that would be started.
Definitions are not validated here.
"""

from typing import Final, NamedTuple

from kitbag.library.agent_document import AgentDocument
from kitbag.library.scopes import Root
from kitbag.library.skills import to_string_list, to_text
from kitbag.text.plain_frontmatter import Metadata, YamlValue

_NAME_ONLY_VALUES: Final = frozenset(("", "null", "~", "true"))
"""`github:` and `github: true` reference a server without defining it."""
_DEFINITION_KEYS: Final = frozenset(("command", "url", "type", "transport"))


class ServerReferences(NamedTuple):
    named: tuple[str, ...]
    """Servers configured elsewhere."""
    inline: Metadata
    """Inline definitions by server name."""


def parse_servers(value: YamlValue) -> ServerReferences:
    """Accepts a list of names and one-entry maps, a map by name, or a comma-separated string."""
    named: list[str] = []
    inline: Metadata = {}
    for item in to_string_list(value) if isinstance(value, str) else [value] if isinstance(value, dict) else value:
        if isinstance(item, dict):
            for name, definition in _map_entries(item):
                if definition in ([], {}) or (
                    isinstance(definition, str) and definition.strip().lower() in _NAME_ONLY_VALUES
                ):
                    named.append(name)
                else:
                    inline[name] = definition
        elif name := to_text(item).strip():
            named.append(name)
    return ServerReferences(tuple(named), inline)


def _map_entries(item: Metadata) -> list[tuple[str, YamlValue]]:
    """`github: {command: …}`, or flat: `{name: github, command: …}`."""
    name = item.get("name")
    if isinstance(name, str) and name.strip() and (len(item) == 1 or not _DEFINITION_KEYS.isdisjoint(item)):
        return [(name.strip(), {key: value for key, value in item.items() if key != "name"})]
    return list(item.items())


def read_agent_servers(document: AgentDocument, root: Root) -> tuple[tuple[str, ...], Metadata]:
    """The names of all servers, and the inline definitions."""
    key, value = document.take("mcp_servers")
    if not value:
        return (), {}
    if isinstance(value, str) and ("\n" in value.strip() or ":" in value):  # a map in broken frontmatter
        problem = f"`{key}` is not valid; no servers are used"
        document.add_diagnostic("warning", "servers-unreadable", key, problem, "write a list of names, or fix the YAML")
        return (), {}
    named, inline = parse_servers(value)
    if not named and not inline:
        return (), {}
    if root.plugin:
        problem = f"`{key}` is ignored: a plugin's agents cannot define servers"
        document.add_diagnostic(
            "info", "plugin-servers-ignored", key, problem, "configure the servers in your settings"
        )
        return (), {}
    names = {name: document.strip_hidden(name.strip(), key) for name in dict.fromkeys((*named, *inline))}
    # A definition whose name has hidden characters is dropped: its server stays unconfigured.
    return tuple(dict.fromkeys(names.values())), {
        name: definition for name, definition in inline.items() if names[name] == name
    }
