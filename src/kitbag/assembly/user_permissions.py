"""What the person allows, for themselves and for every agent: settings, mode, and the command line's tools.

Used by Agent and by the worker, which stands in for an agent that is gone.
"""

from collections.abc import Sequence
from typing import Final

from kitbag.assembly.environment import Ground
from kitbag.assembly.run_options import Options
from kitbag.errors import UsageError
from kitbag.events import Notice
from kitbag.library.agents import Agent as AgentFile
from kitbag.library.dialects.permission_modes import Mode, strictest
from kitbag.library.dialects.tool_lists import parse_tools
from kitbag.permissions.decisions.decide import Permissions


def person_permissions(ground: Ground, options: Options, known: Sequence[str]) -> tuple[Permissions, list[Notice]]:
    """`known`: the tools there are. Raises UsageError when the command line names none of them."""
    permissions = ground.permissions
    if not options.only_tools:
        return permissions, []
    access, problems = parse_tools(list(options.only_tools))
    if access.mode == "none":
        problem = f"--allowed-tools names no tool there is: {', '.join(access.unknown)}"
        raise UsageError(problem, f"there are {', '.join(known)}")
    notices = [Notice("warning", f"--allowed-tools: {problem.problem}", problem.fix) for problem in problems]
    return permissions.narrowed(access, "--allowed-tools"), notices


def run_permissions(
    ground: Ground, options: Options, agent: AgentFile | None, known: Sequence[str], before: str = ""
) -> tuple[Permissions, Permissions, list[Notice]]:
    """The person's, and of those what is left to the one that they talk to. `before`: the mode of a session that goes
    on."""
    given, notices = person_permissions(ground, options, known)
    permissions = given.narrowed(agent.tools, agent.path) if agent is not None else given
    if not options.mode:
        permissions = permissions.in_mode(mode_of_run(permissions.mode, agent, before))
    return given, permissions, notices


def mode_of_run(own: Mode, agent: AgentFile | None, before: str) -> Mode:
    """Where the command line says nothing: the agent's, but neither a project's agent nor an earlier beginning of the
    session (`before`) makes it freer than the person's own settings."""
    mode = own
    if agent is not None and agent.permission_mode_original is not None:
        is_own = agent.root.scope in ("user", "built-in") and own not in ("plan", "locked")
        mode = agent.permission_mode if is_own else strictest(own, agent.permission_mode)
    return strictest(mode, before) if before in _MODES else mode


_MODES: Final = frozenset(("plan", "locked", "default", "acceptEdits", "autonomous"))
