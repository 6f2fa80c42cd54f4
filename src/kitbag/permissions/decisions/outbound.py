"""Finds the texts of a tool call that leave this machine, so that `decide` can deny a call that contains a secret.

Used by `decide`. WebFetch and WebSearch always send their arguments, an MCP tool if it gets a URL, a command if it uses
the network.
"""

from collections.abc import Iterator, Mapping
from typing import Final, cast

from kitbag.permissions.model import PermissionDecision

WOULD_LEAK: Final = (
    "it would send a secret of the user (an API key, password or token from the environment or settings) over the "
    "network; remove the secret"
)
_WEB_TOOLS: Final = frozenset(("WebFetch", "WebSearch"))
_MAX_DEPTH: Final = 20


def outbound_texts(tool: str, arguments: Mapping[str, object], decision: PermissionDecision) -> tuple[str, ...]:
    """The texts that leave together; empty if none do."""
    if tool == "Bash":
        command = arguments.get("command")
        return (command,) if isinstance(command, str) and _uses_network(command, decision) else ()
    if tool not in _WEB_TOOLS and not tool.startswith("mcp__"):
        return ()
    texts = tuple(_texts_in(arguments))
    return texts if tool in _WEB_TOOLS or any("://" in text for text in texts) else ()


def _uses_network(command: str, decision: PermissionDecision) -> bool:
    from kitbag.shell.analysis import analyze

    # Without a sandbox every command has network access, and only those that use it count.
    has_network = decision.network and decision.sandbox != "none"
    return has_network or any(simple.network for simple in analyze(command).parts)


def _texts_in(value: object, depth: int = 0) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping) and depth < _MAX_DEPTH:
        for key, item in cast("Mapping[object, object]", value).items():
            if depth:  # the names of the arguments are the tool's own
                yield str(key)
            yield from _texts_in(item, depth + 1)
    elif isinstance(value, (list, tuple)) and depth < _MAX_DEPTH:
        for item in cast("list[object]", value):
            yield from _texts_in(item, depth + 1)
