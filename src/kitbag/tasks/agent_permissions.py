"""What an agent file permits: a description for the user who approves the start, and a fingerprint, so that a later
start runs what was approved, and only while the rules still allow it.

Used by delegation, and by runner, which may run later and in another process.
"""

import hashlib
import json
import os
from typing import TYPE_CHECKING, Final, cast

import msgspec

from kitbag.assembly.mcp_servers import has_configured_servers
from kitbag.assembly.parent_context import ParentContext
from kitbag.errors import InvalidError
from kitbag.library.agents import AgentFile as AgentFile
from kitbag.library.dialects.tool_aliases import CANONICAL_TOOLS
from kitbag.permissions.approvals.approval import PermitError, outcome_digest
from kitbag.permissions.decisions.decide import Permissions, child_mode
from kitbag.permissions.model import PermissionDecision
from kitbag.tasks.task import TaskRequest
from kitbag.text.hidden_characters import collapse_whitespace

if TYPE_CHECKING:
    from kitbag.library.dialects.permission_modes import PermissionMode

FINGERPRINT_KEY: Final = "agent_was"
"""The key of the agent's fingerprint in a task request's options."""
RULES_DIGEST_KEY: Final = "rules_said"
"""The key of the digest of the rules' decision at the time of the request."""
INTERACTIVE_TOOLS: Final = frozenset(("AskUser",))
"""Tools that need a user, which a subagent does not have."""


def describe_agent_tools(definition: AgentFile) -> str:
    """Independent of the parent's tools: an agent has its own."""
    access = definition.tools
    limited = {rule.partition("(")[0] for rule in access.specifiers}
    text = ", ".join(sorted((*(name for name in access.names if name not in limited), *access.specifiers)))
    if access.mode != "allow":
        text = f"everything your rules allow{'; limited: ' if text else ''}{text}"
    text = f"{text}; not {', '.join(sorted(access.denied))}" if access.denied else text
    servers = ", ".join(map(collapse_whitespace, definition.inline_servers))
    return f"{text}; MCP servers: {servers}" if servers else text


def check_not_denied(definition: AgentFile, permissions: Permissions) -> None:
    """By the rules for its own names: the call may name it in another way. Raises InvalidError."""
    for name in dict.fromkeys((definition.full_name, definition.name)):
        decision = permissions.decide("Task", {"subagent_type": name})
        denying = next((part for part in decision.parts if part.effect == "deny" and part.rule), None)
        if denying is not None:
            problem = f"the agent {definition.full_name} is not allowed: {denying.reason} (`{denying.rule}`)"
            raise InvalidError(problem, "use another agent, or change the rule")


def check_has_tools(definition: AgentFile, inherited: ParentContext) -> None:
    """Before the user is asked. Tools of MCP servers are known only when the agent starts. Raises InvalidError."""
    mode = child_mode(inherited.mode, definition.permission_mode)
    if definition.tools.only_servers or has_built_in_tools(definition, inherited.permissions, mode):
        return
    may_have_servers = definition.inline_servers or has_configured_servers(inherited.environment)
    if not may_have_servers or definition.tools.mode == "none":
        raise no_tools_error(definition, inherited.permissions, mode)


def has_built_in_tools(definition: AgentFile, permissions: Permissions, mode: "PermissionMode") -> bool:
    """Whether the user's permissions and the agent's mode leave it any tool but those of MCP servers."""
    usable = permissions.with_mode(mode)
    names = (name for name in CANONICAL_TOOLS if name not in INTERACTIVE_TOOLS and definition.tools.allows(name))
    return any(map(usable.has_tool, names))


def no_tools_error(definition: AgentFile, permissions: Permissions, mode: "PermissionMode") -> InvalidError:
    """Names what leaves the agent without tools, and what to change. `permissions`: the user's; `mode`: the agent's."""
    tools, name = _declared_tools(definition), definition.full_name
    if not tools:
        missing = ", ".join((*definition.tools.names, *definition.tools.unknown))
        problem = f"the agent {name} has none of the available tools{': it names ' if missing else ''}{missing}"
        return InvalidError(problem, f"fix `tools` in {definition.path}")
    listed = ", ".join(tools)
    sources = {permissions.excluded_by(tool) for tool in tools}
    if "" not in sources:
        source = " and ".join(sorted(sources))
        return InvalidError(f"{source} leaves the agent {name} without tools", f"add tools it can use: {listed}")
    if not any(permissions.with_mode("default").has_tool(tool) for tool in tools):
        problem = f"your rules leave the agent {name} without tools"
        return InvalidError(problem, f"allow at least one of {listed}, or start another agent")
    return InvalidError(f"the agent {name} has no tools in {mode} mode", f"only other modes allow {listed}")


def _declared_tools(definition: AgentFile) -> list[str]:
    from kitbag.assembly.tool_list import all_tools

    return [
        tool.name for tool in all_tools() if definition.tools.allows(tool.name) and tool.name not in INTERACTIVE_TOOLS
    ]


def agent_fingerprint(definition: AgentFile) -> str:
    """Covers all that the user is shown before the start, and the configuration of its servers. The same on every
    machine: of its path, only the part inside its root counts."""
    root = definition.root
    place = "\0".join((root.scope, root.dialect, root.plugin, os.path.relpath(definition.path, root.path)))
    return _fingerprint(definition, place)


def _fingerprint(definition: AgentFile, place: str) -> str:
    servers = json.dumps(definition.inline_servers, sort_keys=True)
    shown = "\0".join((place, definition.permission_mode or "", describe_agent_tools(definition), servers))
    return hashlib.sha256(shown.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def check_agent_unchanged(definition: AgentFile, request: TaskRequest) -> None:
    """Raises InvalidError if the agent has changed since its start was approved."""
    approved = request.options.get(FINGERPRINT_KEY)
    # Earlier versions wrote the one with the whole path; such tasks may still be queued.
    if approved and approved not in (agent_fingerprint(definition), _fingerprint(definition, definition.path)):
        problem = f"the agent {definition.full_name} ({definition.path}) changed since its start was approved"
        raise InvalidError(problem, "review its mode and tools, and start it again")


def with_rules_digest(request: TaskRequest, permissions: Permissions) -> TaskRequest:
    """`permissions`: the user's. The parent may have been allowed more by an answer or a skill."""
    return msgspec.structs.replace(
        request, options={**request.options, RULES_DIGEST_KEY: outcome_digest(_decide_start(request, permissions))}
    )


def check_start_still_allowed(request: TaskRequest, permissions: Permissions) -> None:
    """Checked when the agent starts, maybe much later and in another process. Raises RefusedError if the rules now deny
    it."""
    decision = _decide_start(request, permissions)
    denying = next((part for part in decision.parts if part.effect == "deny" and part.rule), None)
    approved_digest = request.options.get(RULES_DIGEST_KEY)
    if approved_digest is None:
        is_denied = denying is not None
    else:
        is_denied = decision.effect != "allow" and outcome_digest(decision) != approved_digest
    if is_denied:
        rule = f" (`{denying.rule}`)" if denying is not None else ""
        problem = f"the agent {request.agent} was not started because it is no longer allowed: {decision.reason}{rule}"
        raise PermitError(problem, "change the rule and start it again")


def _decide_start(request: TaskRequest, permissions: Permissions) -> PermissionDecision:
    arguments = {"subagent_type": request.agent, "prompt": request.prompt, "description": request.description}
    return permissions.with_mode(cast("PermissionMode", request.parent_mode or permissions.mode)).decide(
        "Task", arguments
    )
