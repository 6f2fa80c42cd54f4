"""What an agent passes on to the agents that it starts.

Used by the agent that starts one, by the worker that starts one for it, and by Subagent.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from kitbag.agent.ask_model import RetryPolicy
from kitbag.assembly.environment import AgentEnvironment
from kitbag.assembly.run_options import Options
from kitbag.library.dialects.permission_modes import PermissionMode
from kitbag.models.model_selection import ModelSources, SelectedModel
from kitbag.models.provider import Provider
from kitbag.permissions.approvals.approval import Approvals
from kitbag.permissions.decisions.decide import Permissions
from kitbag.store.journal import Journal

if TYPE_CHECKING:
    from kitbag.tools.mcp_client.servers import McpServers


class ParentContext(NamedTuple):
    """What an agent has from the one that starts it, or from a worker that stands in for that one."""

    environment: AgentEnvironment
    journal: Journal
    sources: ModelSources
    approvals: Approvals
    permissions: Permissions
    """The person's, with what the command line leaves of the tools."""
    mode: PermissionMode
    """Of the one that starts it."""
    options: Options
    chosen: SelectedModel
    provider: Provider
    """Of the one that starts it; another is made where another model is wanted."""
    retry_policy: RetryPolicy = RetryPolicy()
    servers: "McpServers | None" = None
    """Of the one that starts it, which also closes them."""
    command_env: Mapping[str, str] | None = None
    """What commands see; None: what this process has."""
    mode_now: Callable[[], PermissionMode] | None = None
    """Of the one that starts it, at the moment, where that one is in this process."""
