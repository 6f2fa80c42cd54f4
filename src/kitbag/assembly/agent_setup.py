"""What an agent works with and what may become another while it is open: ground, model, permissions, skills, tools,
prompt. One value, so that all of it is made first and then taken together.

Used by Agent when it opens, and by whatever changes it (persona_change, switching, reloading).
"""

from typing import TYPE_CHECKING, Any, NamedTuple

from kitbag.agent.session import Session
from kitbag.agent.session_records import SessionHeader
from kitbag.assembly.environment import AgentEnvironment
from kitbag.assembly.forked_skills import make_fork_runner
from kitbag.assembly.mcp_servers import AgentServers
from kitbag.assembly.run_options import Options
from kitbag.assembly.system_prompt import SystemPrompt
from kitbag.assembly.tool_list import all_tools, skill_tools, task_tools
from kitbag.assembly.user_messages import GetServerPrompt, UserMessages
from kitbag.library.agents import AgentFile as AgentFile
from kitbag.library.registry import NO_PERSONA, Registry
from kitbag.messages import Text
from kitbag.models.model_selection import SelectedModel
from kitbag.models.provider import Provider
from kitbag.packing.session_skills import SessionSkills
from kitbag.permissions.decisions.decide import Permissions
from kitbag.tools.base import Tool, ToolContext
from kitbag.tools.path_skills import PathSkills
from kitbag.tools.toolset import Toolset

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kitbag.tools.delegation import Delegation


class SetupInputs(NamedTuple):
    """What all the rest is made from."""

    options: Options
    environment: AgentEnvironment
    definition: AgentFile | None
    chosen: SelectedModel
    provider: Provider
    user_permissions: Permissions
    permissions: Permissions


class AgentSetup(NamedTuple):
    """The fields of Base and what follows from them; each is an attribute of the agent, too."""

    options: Options
    environment: AgentEnvironment
    definition: AgentFile | None
    chosen: SelectedModel
    provider: Provider
    user_permissions: Permissions
    permissions: Permissions
    delegation: "Delegation | None"
    skills: SessionSkills
    toolset: Toolset
    context: ToolContext
    prompt: SystemPrompt
    user_messages: UserMessages
    path_skills: PathSkills


def build_tools(
    library: Registry,
    *,
    can_ask_user: bool,
    delegation: "Delegation | None",
    agent_servers: AgentServers,
    definition: AgentFile | None,
    in_worktree: bool = False,
) -> list[Tool[Any]]:
    """No skills, no agents: no word about them, and no tools for them."""
    missing: set[str] = set()
    if not library.visible_skills() and not _has_on_demand_skills(library):
        missing |= {tool.name for tool in skill_tools()}
    if not can_ask_user:
        missing.add("AskUser")
    if delegation is None:
        missing |= {tool.name for tool in task_tools()}
    elif not library.visible_agents():
        missing.add("Task")  # what was begun before can still be looked at, and stopped
    own = [tool for tool in all_tools() if tool.name not in missing]
    return own + agent_servers.tools(definition, in_worktree=in_worktree)


def _has_on_demand_skills(library: Registry) -> bool:
    """Skills on demand: in no catalog, but found by search."""
    view = library.visibility_context()
    return any(library.evaluate(skill, view).searchable for skill in library.skills)


def build_system_prompt(
    environment: AgentEnvironment,
    chosen: SelectedModel,
    permissions: Permissions,
    toolset: Toolset,
    definition: AgentFile | None,
    append: str,
    task: str = "",
) -> SystemPrompt:
    # The tools of servers come and go, and the prompt does not speak of them.
    tools = tuple(name for name in toolset.names() if not name.startswith("mcp__"))
    return SystemPrompt(environment, chosen, permissions.mode, tools, definition, append, task)


def build_user_messages(
    session: Session,
    skills: SessionSkills,
    toolset: Toolset,
    delegation: "Delegation | None",
    server_prompt: GetServerPrompt | None,
) -> UserMessages:
    suggests = toolset.get("SearchSkills") is not None
    return UserMessages(
        session, skills, suggests, make_fork_runner(delegation) if delegation is not None else None, server_prompt
    )


def build_path_skills(session: Session, skills: SessionSkills) -> PathSkills:
    def earlier() -> "Iterator[str]":
        for message in session.messages():
            for result in message.results:
                yield from (part.text for part in result.content if isinstance(part, Text))

    return PathSkills(skills, earlier)


def build_header(
    previous: SessionHeader,
    options: Options,
    environment: AgentEnvironment,
    chosen: SelectedModel,
    mode: str,
    task_id: str = "",
) -> SessionHeader:
    """What a session is written down as; `before`: as it was until now."""
    library = environment.library
    nobody = NO_PERSONA if options.persona.strip().casefold() == NO_PERSONA else ""
    return previous._replace(
        directory=environment.places.cwd,
        model=chosen.reference,
        mode=mode,
        agent=options.agent,
        team=library.team,
        persona=library.persona.full_name if library.persona is not None else nobody,
        task=task_id,
        model_said=bool(options.model) or previous.model_said,
    )
