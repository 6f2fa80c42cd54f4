"""Exchanges what can change while an agent is open: made first, then written and taken together.

Used by whatever changes it (persona_change, switching, reloading).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kitbag.agent.session_records import Header, Switch
from kitbag.agent.shield import to_its_end
from kitbag.assembly.agent_resources import Equipped
from kitbag.assembly.agent_setup import Base, Standing, path_skills_of_run, prompt_of_run, requests_of_run, tools_of_run
from kitbag.assembly.skill_loading import skills_of_run
from kitbag.ledger import Ledger
from kitbag.tools.toolset import Toolset


def stand_anew(agent: Equipped, base: Base) -> Standing:
    """All that follows from that, for the one that the person talks to. Nothing of the agent changes; what it knows of
    files and of work that it began goes along."""
    options, ground, definition, old = base.options, base.ground, base.definition, agent.delegation
    library, permissions = ground.library, base.permissions
    delegation = old if old is not None and old.has_begun else None
    if delegation is None and library.visible_agents():
        delegation = old or agent.make_delegation()
    skills = skills_of_run(ground, options, lambda: agent.rights_now().mode, agent.stop_loading)
    skills.session_id = agent.session.id
    tools = tools_of_run(
        library,
        has_person=agent.context.person is not None,
        delegation=delegation,
        offered=agent.offered,
        definition=definition,
    )
    toolset = Toolset(tools, permissions)
    context = agent.context._replace(
        workspace=ground.workspace, permissions=permissions, library=library, skills=skills, delegation=delegation
    )
    return Standing(
        *base,
        delegation,
        skills,
        toolset,
        context,
        prompt_of_run(ground, base.chosen, permissions, toolset, definition, options.append),
        requests_of_run(agent.session, skills, toolset, delegation, agent.server_prompt),
        path_skills_of_run(agent.session, skills),
    )


async def take(
    agent: Equipped,
    new: Standing,
    made: Sequence[Switch],
    header: Header,
    dropped: Sequence[tuple[str, str]] = (),
    prompt: tuple[Ledger, Mapping[str, Any]] | None = None,
    also: Callable[[], None] = lambda: None,
) -> None:
    """Written in one commit, then taken, with what `also` does; or neither. What was used before and is not any more is
    closed. Cancelled while it is being written, it is done all the same, and the cancellation told after that."""
    old = agent.provider

    async def both() -> None:
        await agent.session.switch(made, header, dropped, prompt)
        agent.stand_on(new)
        also()
        if old is not new.provider:
            await agent.let_go(old)

    await to_its_end(both())
