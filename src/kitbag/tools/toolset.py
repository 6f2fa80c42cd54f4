"""The tools of a run, and the wrapper that restricts them while a skill is in use. The mode, the rules and the agent's
own tool list remove tools for the whole run.

Used by the agent loop both to advertise and to run tools, so a hidden tool can't run. Uses permissions.
"""

from collections.abc import Callable, Iterable
from typing import Any, Protocol

from kitbag.library.dialects.tool_aliases import SEARCH_TOOLS
from kitbag.library.registry import Registry
from kitbag.models.provider import ToolSpec
from kitbag.permissions.decisions.decide import Permissions
from kitbag.tools.base import Tool
from kitbag.tools.on_demand_tools import MAX_DESCRIBED_TOOLS, SERVER_TOOL_PREFIX, OnDemandTools


class AbstractToolset(Protocol):
    """The interface that the agent loop and the executor use; a wrapper implements it around another toolset."""

    def names(self) -> tuple[str, ...]: ...

    def specs(self) -> tuple[ToolSpec, ...]:
        """The tool specs sent to the model."""
        ...

    def get(self, name: str) -> Tool[Any] | None:
        """The tool with exactly this name."""
        ...

    def describe(self, names: Iterable[str]) -> None:
        """Describes these tools from the next request on, if they are described on demand."""
        ...

    def explain_unavailable(self, name: str) -> tuple[str, str]:
        """The problem and the fix for a name that `get` does not return."""
        ...


class Toolset:
    """Keeps the order of its tools, so that the specs sent are the same in every turn."""

    def __init__(
        self,
        tools: Iterable[Tool[Any]],
        permissions: Permissions,
        can_ask: bool = True,
        library: Registry | None = None,
    ) -> None:
        """`can_ask`: a person can answer now. `library`: says how tools are found by meaning."""
        all_tools = tuple(tools)
        self._tools = {tool.name: tool for tool in all_tools if permissions.has_tool(tool.name, can_ask)}
        self._hidden = {tool.name for tool in all_tools if tool.name not in self._tools}
        server_tools = {name: tool for name, tool in self._tools.items() if name.startswith(SERVER_TOOL_PREFIX)}
        self._on_demand = OnDemandTools(server_tools, library) if len(server_tools) > MAX_DESCRIBED_TOOLS else None
        if self._on_demand is not None:
            search = self._on_demand.search_tool
            if permissions.has_tool(search.name, can_ask):
                self._tools[search.name] = search
            else:
                self._on_demand = None
        on_demand = server_tools if self._on_demand is not None else {}
        self._specs = tuple(tool.spec for name, tool in self._tools.items() if name not in on_demand)

    def names(self) -> tuple[str, ...]:
        return tuple(self._tools)

    def specs(self) -> tuple[ToolSpec, ...]:
        """Without the tools of servers that are described on demand and were not yet needed."""
        return self._specs if self._on_demand is None else (*self._specs, *self._on_demand.specs())

    def describe_for(self, message: str, used: Iterable[str] = ()) -> None:
        """Describes, from now on, the tools of servers that a message needs, and those that were `used` before. Does
        nothing if all are described."""
        if self._on_demand is not None:
            self.describe(used)
            self.describe(self._on_demand.find(message))

    def describe(self, names: Iterable[str]) -> None:
        """Describes, from now on, those of these tools that are described on demand."""
        if self._on_demand is not None:
            self._on_demand.describe(names)

    def list_described_for(self, message: str) -> list[ToolSpec]:
        """What `describe_for` would add; changes nothing."""
        return self._on_demand.list_new(message) if self._on_demand is not None else []

    def get(self, name: str) -> Tool[Any] | None:
        return self._tools.get(name)

    def explain_unavailable(self, name: str) -> tuple[str, str]:
        from difflib import get_close_matches

        available = f"Available tools: {', '.join(spec.name for spec in self.specs())}."
        if self._on_demand is not None:
            available += f" {SEARCH_TOOLS} finds more."
        if name in self._hidden:
            return f"{name} is not available in this run", available
        folded = {tool.lower(): tool for tool in self._tools}
        close = get_close_matches(name.lower().strip(), folded, 1)
        return f"no tool named {name[:80]!r}", f"Did you mean {folded[close[0]]}?" if close else available


class RestrictedToolset:
    """Blocks some tools for now. They stay advertised: tools come first in a request, so removing one and adding it
    again would invalidate the provider's prompt cache twice. The skill's text says which are blocked."""

    def __init__(self, inner: AbstractToolset, restriction: Callable[[str], str]) -> None:
        """`restriction` returns why a tool is blocked now; empty if it is not."""
        self._inner = inner
        self._restriction = restriction

    def names(self) -> tuple[str, ...]:
        return tuple(name for name in self._inner.names() if not self._restriction(name))

    def specs(self) -> tuple[ToolSpec, ...]:
        return self._inner.specs()

    def describe(self, names: Iterable[str]) -> None:
        self._inner.describe(names)

    def get(self, name: str) -> Tool[Any] | None:
        tool = self._inner.get(name)
        return None if tool is None or self._restriction(name) else tool

    def explain_unavailable(self, name: str) -> tuple[str, str]:
        reason = self._restriction(name) if self._inner.get(name) is not None else ""
        if not reason:
            return self._inner.explain_unavailable(name)
        available = ", ".join(self.names())
        return (
            reason,
            f"Until the next user message, use only {available}."
            if available
            else "Finish without tools, and say that no tools were available.",
        )
