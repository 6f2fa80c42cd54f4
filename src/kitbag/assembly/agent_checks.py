"""Checks an agent's definition when it starts: problems with its file, skills that are not preloaded, MCP tools that no
server has, and unknown names in the persona it runs under.

Used by base_agent, tasks/subagent and tasks/delegation. Each problem is a Notice; tasks record them as warnings.
"""

from collections.abc import Iterable

from kitbag.assembly.environment import diagnostic_notice
from kitbag.errors import Diagnostic
from kitbag.events import Notice
from kitbag.library.agents import AgentFile as AgentFile
from kitbag.library.dialects.permission_modes import PermissionMode
from kitbag.library.dialects.tool_aliases import matches_tool
from kitbag.library.registry import Registry
from kitbag.text.frontmatter import find_field_line


def check_definition(definition: AgentFile, library: Registry) -> list[Notice]:
    return [*map(diagnostic_notice, library.check_file(definition.path))]


def check_persona(library: Registry) -> list[Notice]:
    return [*map(diagnostic_notice, library.check_persona())]


def check_preloads(definition: AgentFile, library: Registry) -> list[Notice]:
    """For a task that starts later, which then resolves the references of these skills."""
    if not definition.skills:
        return []
    from kitbag.packing.preload import preload_skills, skills_budget
    from kitbag.text.tokens import estimate_tokens

    budget = skills_budget(definition, library)
    preloads = preload_skills(definition, library, budget, estimate_tokens, lambda skill, body, line: (body, ()))
    return [*map(diagnostic_notice, preloads.warnings)]


def check_server_tools(definition: AgentFile, tools: Iterable[str], mode: PermissionMode) -> list[Notice]:
    """MCP tools that the agent's `tools` name and that do not exist. `tools`: the names of those that do."""
    if definition.tools.mode != "allow":
        return []
    existing = [name for name in tools if name.startswith("mcp__")]
    missing = [
        name
        for name in definition.tools.names
        if name.startswith("mcp__") and not any(matches_tool(name, tool) for tool in existing)
    ]
    if not missing:
        return []
    reason, fix = "no connected MCP server has them", "run `kitbag servers list` to see the configured servers"
    if mode == "plan":
        reason, fix = "MCP tools can't be used in plan mode", "use another permission mode, or remove them from `tools`"
    diagnostic = Diagnostic(
        severity="warning",
        code="tools-unavailable",
        file=definition.path,
        line=find_field_line(definition.path, "tools", definition.root.boundary),
        problem=f"tools that are not available: {', '.join(missing)}; {reason}",
        fix=fix,
    )
    return [diagnostic_notice(diagnostic)]
