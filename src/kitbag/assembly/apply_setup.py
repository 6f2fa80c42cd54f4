"""Exchanges what can change while an agent is open: made first, then written and taken together.

Used by whatever changes it (persona_change, switching, reloading).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kitbag.agent.session_records import SessionHeader, SessionSwitch
from kitbag.agent.shield import run_to_completion
from kitbag.assembly.agent_resources import AgentResources
from kitbag.assembly.agent_setup import (
    AgentSetup,
    SetupInputs,
    build_path_skills,
    build_system_prompt,
    build_tools,
    build_user_messages,
)
from kitbag.assembly.skill_loading import build_session_skills
from kitbag.ledger import Ledger
from kitbag.tools.toolset import Toolset


def build_setup(agent: AgentResources, inputs: SetupInputs) -> AgentSetup:
    """All that follows from that, for the one that the person talks to. Nothing of the agent changes; what it knows of
    files and of work that it began goes along."""
    options, ground, definition, old = inputs.options, inputs.environment, inputs.definition, agent.delegation
    library, permissions = ground.library, inputs.permissions
    delegation = old if old is not None and old.has_started_tasks else None
    if delegation is None and library.visible_agents():
        delegation = old or agent.make_delegation()
    skills = build_session_skills(ground, options, lambda: agent.current_permissions().mode, agent.stop_loading)
    skills.session_id = agent.session.id
    tools = build_tools(
        library,
        can_ask_user=agent.context.asker is not None,
        delegation=delegation,
        agent_servers=agent.agent_servers,
        definition=definition,
    )
    toolset = Toolset(tools, permissions)
    context = agent.context._replace(
        workspace=ground.workspace, permissions=permissions, library=library, skills=skills, delegation=delegation
    )
    return AgentSetup(
        *inputs,
        delegation,
        skills,
        toolset,
        context,
        build_system_prompt(ground, inputs.chosen, permissions, toolset, definition, options.append),
        build_user_messages(agent.session, skills, toolset, delegation, agent.server_prompt),
        build_path_skills(agent.session, skills),
    )


async def commit_setup(
    agent: AgentResources,
    setup: AgentSetup,
    switches: Sequence[SessionSwitch],
    header: SessionHeader,
    dropped: Sequence[tuple[str, str]] = (),
    prompt: tuple[Ledger, Mapping[str, Any]] | None = None,
    on_applied: Callable[[], None] = lambda: None,
) -> None:
    """Written in one commit, then taken, with what `also` does; or neither. What was used before and is not any more is
    closed. Cancelled while it is being written, it is done all the same, and the cancellation told after that."""
    old = agent.provider

    async def both() -> None:
        await agent.session.switch(switches, header, dropped, prompt)
        agent.apply_setup(setup)
        on_applied()
        if old is not setup.provider:
            await agent.close_provider(old)

    await run_to_completion(both())
