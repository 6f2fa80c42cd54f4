"""The tools a run has, and the filters round them: what the mode, the rules and the agent's own list take away for
the whole run, and what a skill in use takes away for a while.

Used by the loop for what is advertised and for what is run, so that a hidden tool can't be run. Uses permissions.
"""

from collections.abc import Callable, Iterable
from typing import Any, Protocol

from kitbag.models.provider import ToolSpec
from kitbag.permissions.decisions.decide import Permissions
from kitbag.tools.base import Tool


class AbstractToolset(Protocol):
    """What the loop and the executor ask for; each filter is one round another."""

    def names(self) -> tuple[str, ...]: ...

    def specs(self) -> tuple[ToolSpec, ...]:
        """What the model is told."""
        ...

    def get(self, name: str) -> Tool[Any] | None:
        """By its exact name."""
        ...

    def explain_unavailable(self, name: str) -> tuple[str, str]:
        """The problem and what to do instead, for a name that `get` does not know."""
        ...


class Toolset:
    """In the order in which they are given: what is sent stays the same from turn to turn."""

    def __init__(self, tools: Iterable[Tool[Any]], permissions: Permissions) -> None:
        every = tuple(tools)
        self._tools = {tool.name: tool for tool in every if permissions.has_tool(tool.name)}
        self._hidden = {tool.name for tool in every if tool.name not in self._tools}
        self._specs = tuple(tool.spec for tool in self._tools.values())

    def names(self) -> tuple[str, ...]:
        return tuple(self._tools)

    def specs(self) -> tuple[ToolSpec, ...]:
        return self._specs

    def get(self, name: str) -> Tool[Any] | None:
        return self._tools.get(name)

    def explain_unavailable(self, name: str) -> tuple[str, str]:
        from difflib import get_close_matches

        known = list(self._tools)
        if name in self._hidden:
            return f"{name} is not available in this run", f"Available are {', '.join(known)}."
        folded = {tool.lower(): tool for tool in known}
        close = get_close_matches(name.lower().strip(), folded, 1)
        hint = f"Did you mean {folded[close[0]]}?" if close else f"Available are {', '.join(known)}."
        return f"there is no tool called {name[:80]!r}", hint


class RestrictedToolset:
    """Without what is closed at the moment. It stays advertised: tools stand before everything else that a model is
    sent, and to take one away would make it read all of that anew, twice. The skill's text says what is closed.
    """

    def __init__(self, inner: AbstractToolset, restriction: Callable[[str], str]) -> None:
        """`closed`: why a tool can't be used now; empty when it can."""
        self._inner = inner
        self._restriction = restriction

    def names(self) -> tuple[str, ...]:
        return tuple(name for name in self._inner.names() if not self._restriction(name))

    def specs(self) -> tuple[ToolSpec, ...]:
        return self._inner.specs()

    def get(self, name: str) -> Tool[Any] | None:
        found = self._inner.get(name)
        return None if found is None or self._restriction(name) else found

    def explain_unavailable(self, name: str) -> tuple[str, str]:
        why = self._restriction(name) if self._inner.get(name) is not None else ""
        if not why:
            return self._inner.explain_unavailable(name)
        left = ", ".join(self.names())
        return why, f"Until the user speaks again there are {left}." if left else "Finish without tools, and say so."
