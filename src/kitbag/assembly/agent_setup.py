"""The part of an agent that can change while it is open: environment, model, permissions, skills, tools, prompt. One
value, so that a new setup is built completely and then replaces the old one in one step.

Used by base_agent to open an agent, and by switch_model, switch_persona and reload.
"""

from typing import TYPE_CHECKING, Any

import msgspec

from kitbag.agent.ask_model import Emit
from kitbag.agent.session import Session
from kitbag.agent.session_records import SessionHeader
from kitbag.assembly.environment import AgentEnvironment
from kitbag.assembly.mcp_servers import AgentServers
from kitbag.assembly.run_options import Options
from kitbag.assembly.system_prompt import SystemPrompt
from kitbag.assembly.tool_list import all_tools, skill_tools, task_tools
from kitbag.assembly.user_messages import GetServerPrompt, RunFork, UserMessages
from kitbag.events import Notice
from kitbag.library.agents import AgentFile as AgentFile
from kitbag.library.registry import NO_PERSONA, Registry
from kitbag.messages import Text
from kitbag.models.model_selection import SelectedModel
from kitbag.models.provider import Provider
from kitbag.packing.session_skills import SessionSkills, SkillFork
from kitbag.permissions.decisions.decide import Permissions
from kitbag.tools.base import Tool, ToolContext
from kitbag.tools.path_skills import PathSkills
from kitbag.tools.toolset import Toolset

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kitbag.tools.delegation import Delegation


class SetupInputs(msgspec.Struct, frozen=True, kw_only=True):
    """The choices from which the rest of a setup is built."""

    options: Options
    environment: AgentEnvironment
    definition: AgentFile | None
    chosen: SelectedModel
    provider: Provider
    user_permissions: Permissions
    permissions: Permissions


class AgentSetup(SetupInputs, frozen=True, kw_only=True):
    """The inputs and what is built from them; each field is also an attribute of the agent."""

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
    """Without skills or agents, the tools for them are omitted."""
    excluded: set[str] = set()
    if not library.visible_skills() and not _has_on_demand_skills(library):
        excluded |= {tool.name for tool in skill_tools()}
    if not can_ask_user:
        excluded.add("AskUser")
    if delegation is None:
        excluded |= {tool.name for tool in task_tools()}
    elif not library.visible_agents():
        excluded.add("Task")  # running tasks can still be inspected and stopped
    built_in = [tool for tool in all_tools() if tool.name not in excluded]
    return built_in + agent_servers.tools(definition, in_worktree=in_worktree)


def _has_on_demand_skills(library: Registry) -> bool:
    """On-demand skills are in no catalog but can be found by search."""
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
    # The tools of servers come and go; the prompt does not mention them.
    tools = tuple(name for name in toolset.names() if not name.startswith("mcp__"))
    return SystemPrompt(
        environment=environment,
        chosen=chosen,
        mode=permissions.mode,
        tools=tools,
        agent=definition,
        append=append,
        task=task,
    )


def build_user_messages(
    session: Session,
    skills: SessionSkills,
    toolset: Toolset,
    delegation: "Delegation | None",
    server_prompt: GetServerPrompt | None,
) -> UserMessages:
    suggests = toolset.get("SearchSkills") is not None
    return UserMessages(
        session, skills, suggests, _make_fork_runner(delegation) if delegation is not None else None, server_prompt
    )


def build_path_skills(session: Session, skills: SessionSkills) -> PathSkills:
    def list_shown_texts() -> "Iterator[str]":
        for message in session.messages():
            if message.role == "user":
                yield from (part.text for part in message.parts if isinstance(part, Text))
            for result in message.results:
                yield from (part.text for part in result.content if isinstance(part, Text))

    return PathSkills(skills, list_shown_texts)


def build_header(
    previous: SessionHeader,
    options: Options,
    environment: AgentEnvironment,
    chosen: SelectedModel,
    mode: str,
    task_id: str = "",
) -> SessionHeader:
    """The recorded header of a session; `previous`: the header until now."""
    library = environment.library
    no_persona = NO_PERSONA if options.persona.strip().casefold() == NO_PERSONA else ""
    return msgspec.structs.replace(
        previous,
        directory=environment.places.cwd,
        model=chosen.reference,
        mode=mode,
        agent=options.agent,
        team=library.team,
        persona=library.persona.full_name if library.persona is not None else no_persona,
        task=task_id,
        model_said=bool(options.model) or previous.model_said,
        append=options.append,
        effort=options.effort,
        only_tools="\n".join(options.tool_limit),
        no_tools="\n".join(options.no_tools),
        extra="\n".join(options.extra),
    )


def _make_fork_runner(delegation: "Delegation") -> RunFork:
    """Runs skills with `context: fork` that the user invokes by name: a subagent follows the skill, and the model gets
    its report. The user asked for it, so no approval is needed."""

    async def run(fork: SkillFork, emit: Emit) -> str:
        from kitbag.tools.delegation import DelegationRequest
        from kitbag.tools.task import render_report

        request = DelegationRequest(
            agent=fork.agent, prompt=fork.text, description=f"skill {fork.name}", model=fork.model
        )
        report = await delegation.start(request, lambda text: emit(Notice(severity="info", text=text)))
        for warning in (*fork.warnings, *delegation.take_warnings()):
            emit(Notice(severity="warning", text=warning))
        report = msgspec.structs.replace(report, warnings=(*fork.warnings, *report.warnings))
        output = "".join(part.text for part in render_report(report).content if isinstance(part, Text))
        return f"I ran the skill {fork.name} in the agent {fork.agent}. Result:\n\n{output}"

    return run
