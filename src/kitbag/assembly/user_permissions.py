"""What the user allows, for themselves and for every agent: settings, mode and command-line tools.

Used by base_agent, reload and switch_persona, and by the worker on behalf of an agent.
"""

from collections.abc import Sequence
from typing import Final

from kitbag.assembly.environment import AgentEnvironment
from kitbag.assembly.run_options import Options
from kitbag.errors import UsageError
from kitbag.events import Notice
from kitbag.library.agents import AgentFile as AgentFile
from kitbag.library.dialects.permission_modes import PermissionMode, strictest_mode
from kitbag.library.dialects.tool_lists import parse_tools
from kitbag.permissions.decisions.decide import Permissions


def load_user_permissions(
    environment: AgentEnvironment, options: Options, known_tools: Sequence[str]
) -> tuple[Permissions, list[Notice]]:
    """`known_tools`: names of all tools. Raises UsageError if the command line names none of them."""
    permissions = environment.permissions
    if not options.tool_limit:
        return permissions, []
    access, problems = parse_tools(list(options.tool_limit))
    if access.mode == "none":
        problem = f"unknown tools in --allowed-tools: {', '.join(access.unknown)}"
        raise UsageError(problem, f"available tools: {', '.join(known_tools)}")
    notices = [
        Notice(severity="warning", text=f"--allowed-tools: {problem.problem}", fix=problem.fix) for problem in problems
    ]
    if access.allows("Task") and all(name.startswith("Task") for name in access.names):
        problem = "--allowed-tools applies to agents too, so those that Task starts have no tools"
        notices.append(Notice(severity="warning", text=problem, fix="add tools that they need, such as Read,Glob,Grep"))
    return permissions.restricted_to(access, "--allowed-tools"), notices


def load_run_permissions(
    environment: AgentEnvironment,
    options: Options,
    agent: AgentFile | None,
    known_tools: Sequence[str],
    session_mode: str = "",
) -> tuple[Permissions, Permissions, list[Notice]]:
    """The user's permissions, and those of the agent that the user talks to. `session_mode`: of a resumed session."""
    user_permissions, notices = load_user_permissions(environment, options, known_tools)
    permissions = user_permissions.restricted_to(agent.tools, agent.path) if agent is not None else user_permissions
    if not options.mode:
        permissions = permissions.with_mode(choose_mode(permissions.mode, agent, session_mode))
    return user_permissions, permissions, notices


def choose_mode(user_mode: PermissionMode, agent: AgentFile | None, session_mode: str) -> PermissionMode:
    """If the command line sets no mode: the agent's, but neither a project's agent nor the resumed session
    (`session_mode`) makes it less strict than the user's settings."""
    mode = user_mode
    if agent is not None and agent.permission_mode_original is not None:
        is_own = agent.root.scope in ("user", "built-in") and user_mode not in ("plan", "locked")
        mode = agent.permission_mode if is_own else strictest_mode(user_mode, agent.permission_mode)
    return strictest_mode(mode, session_mode) if session_mode in _MODES else mode


_MODES: Final = frozenset(("plan", "locked", "default", "acceptEdits", "autonomous"))
