"""Builds a new agent setup, records the switch and applies it in one step.

Used by switch_model, switch_persona and reload.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import structs

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
    """The complete setup for the agent that the user talks to. The agent itself is unchanged; its seen files and
    running tasks carry over."""
    options, environment, definition, current_delegation = (
        inputs.options,
        inputs.environment,
        inputs.definition,
        agent.delegation,
    )
    library, permissions = environment.library, inputs.permissions
    delegation = current_delegation if current_delegation is not None and current_delegation.has_started_tasks else None
    if delegation is None and library.visible_agents():
        delegation = current_delegation or agent.make_delegation()
    skills = build_session_skills(environment, lambda: agent.current_permissions().mode, agent.stop_loading)
    skills.session_id = agent.session.id
    tools = build_tools(
        library,
        can_ask_user=agent.context.asker is not None,
        delegation=delegation,
        agent_servers=agent.agent_servers,
        definition=definition,
    )
    toolset = agent.describe_again(Toolset(tools, permissions, agent.approvals.can_ask, library))
    context = structs.replace(
        agent.context,
        workspace=environment.workspace,
        permissions=permissions,
        library=library,
        skills=skills,
        delegation=delegation,
    )
    return AgentSetup(
        options=options,
        environment=environment,
        definition=definition,
        chosen=inputs.chosen,
        provider=inputs.provider,
        user_permissions=inputs.user_permissions,
        permissions=permissions,
        delegation=delegation,
        skills=skills,
        toolset=toolset,
        context=context,
        prompt=build_system_prompt(environment, inputs.chosen, permissions, toolset, definition, options.append),
        user_messages=build_user_messages(agent.session, skills, toolset, delegation, agent.server_prompt),
        path_skills=build_path_skills(agent.session, skills),
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
    """Records the switch in one commit, applies the setup and calls `on_applied`, or does nothing. Closes a replaced
    provider. A cancellation during the commit takes effect after it."""
    old_provider = agent.provider

    async def record_and_apply() -> None:
        await agent.session.switch(switches, header, dropped, prompt)
        agent.apply_setup(setup)
        on_applied()
        if old_provider is not setup.provider:
            await agent.close_provider(old_provider)

    await run_to_completion(record_and_apply())
