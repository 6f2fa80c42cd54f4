"""The tools a run has: those that exist, less what the mode, the rules and the agent's own list take away.

Used by the loop for what is advertised and for what is run, so that a hidden tool can't be run. Uses permissions.
"""

from collections.abc import Iterable
from typing import Any

from kitbag.models.provider import ToolSpec
from kitbag.permissions.decide import Permissions
from kitbag.tools.base import Tool


class Toolset:
    """In the order in which they are given: what is sent stays the same from turn to turn."""

    def __init__(self, tools: Iterable[Tool[Any]], permissions: Permissions) -> None:
        every = tuple(tools)
        self._tools = {tool.name: tool for tool in every if permissions.has(tool.name)}
        self._hidden = {tool.name for tool in every if tool.name not in self._tools}
        self._specs = tuple(tool.spec for tool in self._tools.values())

    def names(self) -> tuple[str, ...]:
        return tuple(self._tools)

    def specs(self) -> tuple[ToolSpec, ...]:
        return self._specs

    def get(self, name: str) -> Tool[Any] | None:
        """By its exact name."""
        return self._tools.get(name)

    def why_not(self, name: str) -> tuple[str, str]:
        """The problem and what to do instead, for a name that `get` does not know."""
        from difflib import get_close_matches

        known = list(self._tools)
        if name in self._hidden:
            return f"{name} is not available in this run", f"Available are {', '.join(known)}."
        folded = {tool.lower(): tool for tool in known}
        close = get_close_matches(name.lower().strip(), folded, 1)
        hint = f"Did you mean {folded[close[0]]}?" if close else f"Available are {', '.join(known)}."
        return f"there is no tool called {name[:80]!r}", hint
