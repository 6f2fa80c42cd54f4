"""What an agent works with and what may become another while it is open: ground, model, permissions, skills, tools,
prompt. One value, so that all of it is made first and then taken together.

Used by Agent when it opens, and by whatever changes it (persona_change, switching, reloading).
"""

from typing import TYPE_CHECKING, Any, NamedTuple

from kitbag.agent.session import Session
from kitbag.agent.session_records import Header
from kitbag.assembly.environment import Ground
from kitbag.assembly.forked_skills import runs_forks
from kitbag.assembly.mcp_servers import Offered
from kitbag.assembly.run_options import Options
from kitbag.assembly.system_prompt import SystemPrompt
from kitbag.assembly.tool_list import every_tool, skill_tools, task_tools
from kitbag.assembly.user_messages import Requests, ServerPrompt
from kitbag.library.agents import Agent as AgentFile
from kitbag.library.registry import NOBODY, Registry
from kitbag.messages import Text
from kitbag.models.model_selection import Chosen
from kitbag.models.provider import Provider
from kitbag.packing.session_skills import SessionSkills
from kitbag.permissions.decisions.decide import Permissions
from kitbag.tools.base import Context, Tool
from kitbag.tools.path_skills import PathSkills
from kitbag.tools.toolset import Toolset

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kitbag.tools.delegation import Delegation


class Base(NamedTuple):
    """What all the rest is made from."""

    options: Options
    ground: Ground
    definition: AgentFile | None
    chosen: Chosen
    provider: Provider
    given_permissions: Permissions
    permissions: Permissions


class Standing(NamedTuple):
    """The fields of Base and what follows from them; each is an attribute of the agent, too."""

    options: Options
    ground: Ground
    definition: AgentFile | None
    chosen: Chosen
    provider: Provider
    given_permissions: Permissions
    permissions: Permissions
    delegation: "Delegation | None"
    skills: SessionSkills
    toolset: Toolset
    context: Context
    prompt: SystemPrompt
    requests: Requests
    path_skills: PathSkills


def tools_of_run(
    library: Registry,
    *,
    has_person: bool,
    delegation: "Delegation | None",
    offered: Offered,
    definition: AgentFile | None,
    is_elsewhere: bool = False,
) -> list[Tool[Any]]:
    """No skills, no agents: no word about them, and no tools for them."""
    missing: set[str] = set()
    if not library.visible_skills() and not _has_hidden(library):
        missing |= {tool.name for tool in skill_tools()}
    if not has_person:
        missing.add("AskUser")
    if delegation is None:
        missing |= {tool.name for tool in task_tools()}
    elif not library.visible_agents():
        missing.add("Task")  # what was begun before can still be looked at, and stopped
    own = [tool for tool in every_tool() if tool.name not in missing]
    return own + offered.tools(definition, is_elsewhere=is_elsewhere)


def _has_hidden(library: Registry) -> bool:
    """Skills on demand: in no catalog, but found by search."""
    view = library.view()
    return any(library.judge(skill, view).searchable for skill in library.skills)


def prompt_of_run(
    ground: Ground,
    chosen: Chosen,
    permissions: Permissions,
    toolset: Toolset,
    definition: AgentFile | None,
    append: str,
    task: str = "",
) -> SystemPrompt:
    # The tools of servers come and go, and the prompt does not speak of them.
    tools = tuple(name for name in toolset.names() if not name.startswith("mcp__"))
    return SystemPrompt(ground, chosen, permissions.mode, tools, definition, append, task)


def requests_of_run(
    session: Session,
    skills: SessionSkills,
    toolset: Toolset,
    delegation: "Delegation | None",
    server_prompt: ServerPrompt | None,
) -> Requests:
    suggests = toolset.get("SearchSkills") is not None
    return Requests(
        session, skills, suggests, runs_forks(delegation) if delegation is not None else None, server_prompt
    )


def path_skills_of_run(session: Session, skills: SessionSkills) -> PathSkills:
    def earlier() -> "Iterator[str]":
        for message in session.messages():
            for result in message.results:
                yield from (part.text for part in result.content if isinstance(part, Text))

    return PathSkills(skills, earlier)


def header_of(before: Header, options: Options, ground: Ground, chosen: Chosen, mode: str, task_id: str = "") -> Header:
    """What a session is written down as; `before`: as it was until now."""
    library = ground.library
    nobody = NOBODY if options.persona.strip().casefold() == NOBODY else ""
    return before._replace(
        directory=ground.places.cwd,
        model=chosen.again,
        mode=mode,
        agent=options.agent,
        team=library.team,
        persona=library.persona.full_name if library.persona is not None else nobody,
        task=task_id,
        model_said=bool(options.model) or before.model_said,
    )
