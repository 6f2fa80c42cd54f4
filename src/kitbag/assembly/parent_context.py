"""What an agent passes on to the agents that it starts.

Used by agent_resources, by the worker (tasks/worker) and by tasks/subagent.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import msgspec

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


class ParentContext(msgspec.Struct, frozen=True, kw_only=True):
    """What a subagent inherits from its parent, or from a worker that acts for the parent."""

    environment: AgentEnvironment
    journal: Journal
    sources: ModelSources
    approvals: Approvals
    permissions: Permissions
    """The user's, restricted by the command line's tools."""
    mode: PermissionMode
    """The parent's."""
    options: Options
    chosen: SelectedModel
    provider: Provider
    """The parent's; another is connected if the subagent uses another model."""
    retry_policy: RetryPolicy = RetryPolicy()
    servers: "McpServers | None" = None
    """The parent's, which also closes them."""
    command_env: Mapping[str, str] | None = None
    """Environment variables of commands; None: those of this process."""
    can_ask_user: bool = False
    """The agents of a worker can ask the user, through the queue of approvals."""
    mode_now: Callable[[], PermissionMode] | None = None
    """Returns the parent's current mode if the parent runs in this process."""
