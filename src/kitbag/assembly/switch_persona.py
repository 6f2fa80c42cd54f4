"""Switches the persona of an open agent: catalog, agents, prompt, tools and model are built first, compared with the
current ones, and applied together or not at all.

Used by base_agent. library/visibility alone decides what a persona sees; servers, approvals, trust and the
conversation stay.
"""

import asyncio
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from kitbag.agent.session_records import SessionHeader, SessionSwitch
from kitbag.agent.shield import run_to_completion
from kitbag.assembly.agent_setup import AgentSetup, SetupInputs, build_header
from kitbag.assembly.apply_setup import build_setup, commit_setup
from kitbag.assembly.environment import AgentEnvironment, diagnostic_notice, with_persona
from kitbag.assembly.model_choice import ModelPreferences, choose_model
from kitbag.assembly.skill_loading import find_unusable_skills
from kitbag.assembly.switch_notices import list_switches, persona_name
from kitbag.assembly.tool_list import all_tools
from kitbag.assembly.user_permissions import load_user_permissions
from kitbag.errors import NotFoundError
from kitbag.events import Notice
from kitbag.ledger import Ledger
from kitbag.library.registry import NO_PERSONA, Registry

if TYPE_CHECKING:
    from kitbag.assembly.agent_resources import AgentResources
    from kitbag.assembly.run_options import Options
    from kitbag.library.agents import AgentFile as AgentFile
    from kitbag.models.model_selection import SelectedModel
    from kitbag.models.provider import Provider


class PersonaChange(msgspec.Struct, frozen=True, kw_only=True):
    """All names are full names, in library order."""

    before: str
    after: str
    """The persona with its team, or a team alone; empty: none."""
    skills_gained: tuple[str, ...] = ()
    skills_lost: tuple[str, ...] = ()
    """In the catalog."""
    agents_gained: tuple[str, ...] = ()
    agents_lost: tuple[str, ...] = ()
    on_demand_gained: tuple[str, ...] = ()
    on_demand_lost: tuple[str, ...] = ()
    """Found by search and by name."""
    dropped: tuple[str, ...] = ()
    """Loaded skills that the persona can't see."""
    tokens_before: int = 0
    tokens_after: int = 0
    """Of the whole system prompt."""
    model: str = ""
    """The new model, if it changes."""
    warnings: tuple[str, ...] = ()


class _PersonaDraft(msgspec.Struct, frozen=True, kw_only=True):
    new: AgentSetup
    header: SessionHeader
    made: list[SessionSwitch]
    dropped: list[tuple[str, str]]
    prompt: tuple[Ledger, Mapping[str, Any]]
    change: PersonaChange


async def preview_persona(agent: "AgentResources", name: str, team: str) -> PersonaChange:
    async with agent.change_lock:
        draft = await _make_draft(agent, name, team)
        await _close_unused_provider(agent, draft)
        return draft.change


async def use_persona(agent: "AgentResources", name: str, team: str) -> PersonaChange:
    """Raises NotFoundError with similar names, AmbiguousError, UntrustedItemError, and what choosing a model or writing
    to disk raises."""
    with agent.exclusive("switching personas"):
        async with agent.change_lock:
            draft = await _make_draft(agent, name, team)
            try:
                if draft.made:
                    await commit_setup(agent, draft.new, draft.made, draft.header, draft.dropped, draft.prompt)
            finally:
                await _close_unused_provider(agent, draft)
            return draft.change


async def _close_unused_provider(agent: "AgentResources", draft: _PersonaDraft) -> None:
    if agent.provider is not draft.new.provider:
        await run_to_completion(draft.new.provider.close())


async def _make_draft(agent: "AgentResources", name: str, team: str) -> _PersonaDraft:
    environment = await asyncio.to_thread(_find_persona, agent.environment, name.strip(), team.strip())
    library = environment.library
    persona = library.persona.full_name if library.persona is not None else NO_PERSONA
    options = msgspec.structs.replace(agent.options, team=library.team, persona=persona)
    definition = library.find_agent(options.agent) if options.agent else None
    problems: list[Notice] = []
    chosen, provider = await _choose_model(agent, library, definition, problems)
    try:
        return await asyncio.to_thread(
            _build_draft, agent, options, environment, definition, chosen, provider, problems
        )
    except BaseException:
        if provider is not agent.provider:
            await run_to_completion(provider.close())
        raise


def _find_persona(environment: AgentEnvironment, name: str, team: str) -> AgentEnvironment:
    """A bare name is looked up in the current team first."""
    if not name or name.casefold() == NO_PERSONA:
        return with_persona(environment, team, NO_PERSONA)
    current_team = environment.library.team
    if current_team and not team and "/" not in name:
        try:
            return with_persona(environment, current_team, name)
        except NotFoundError:
            pass
    return with_persona(environment, team, name)


async def _choose_model(
    agent: "AgentResources", library: Registry, definition: "AgentFile | None", problems: list[Notice]
) -> "tuple[SelectedModel, Provider]":
    """Chooses as at the start if the persona prefers another model than the last one did and the user has not chosen
    one."""
    current = agent.chosen, agent.provider
    is_user_choice = bool(agent.options.model) or agent.session.header.model_said
    preferred = [
        persona.default_model if persona is not None else ""
        for persona in (agent.environment.library.persona, library.persona)
    ]
    if definition is not None or is_user_choice or agent.uses_provider_override or preferred[0] == preferred[1]:
        return current
    chosen, provider = choose_model(agent.sources, ModelPreferences(files=(preferred[1],)), problems.append)
    if chosen.reference == agent.chosen.reference:
        await run_to_completion(provider.close())
        return current
    return chosen, provider


def _build_draft(
    agent: "AgentResources",
    options: "Options",
    environment: AgentEnvironment,
    definition: "AgentFile | None",
    chosen: "SelectedModel",
    provider: "Provider",
    problems: list[Notice],
) -> _PersonaDraft:
    user_permissions, _ = load_user_permissions(environment, options, [tool.name for tool in all_tools()])
    permissions = (
        user_permissions.restricted_to(definition.tools, definition.path)
        if definition is not None
        else user_permissions
    )
    permissions = permissions.with_mode(agent.permissions.mode)
    setup = build_setup(
        agent,
        SetupInputs(
            options=options,
            environment=environment,
            definition=definition,
            chosen=chosen,
            provider=provider,
            user_permissions=user_permissions,
            permissions=permissions,
        ),
    )
    ledger, diagnostics = setup.prompt.build_ledger()
    dropped = find_unusable_skills(agent.session, setup.skills)
    previous = agent.session.header
    header = build_header(previous, options, environment, chosen, permissions.mode)
    has_history = bool(agent.session.recorded_messages())
    switches = list_switches(previous, header, environment.library, dropped, has_history=has_history)
    notices = [*map(diagnostic_notice, (*environment.library.check_persona(), *diagnostics)), *problems]
    change = msgspec.structs.replace(
        _compare_libraries(agent.environment.library, environment.library),
        dropped=tuple(name for name, _ in dropped),
        tokens_before=sum(int(entry["tokens"]) for entry in agent.session.prompt),
        tokens_after=ledger.tokens,
        model=chosen.name if chosen.reference != agent.chosen.reference else "",
        warnings=tuple(notice.line() for notice in notices),
    )
    return _PersonaDraft(
        new=setup, header=header, made=switches, dropped=dropped, prompt=(ledger, setup.prompt.inputs()), change=change
    )


def _compare_libraries(old: Registry, new: Registry) -> PersonaChange:
    old_skills, new_skills = _listed_skills(old), _listed_skills(new)
    old_agents, new_agents = _listed_agents(old), _listed_agents(new)
    old_on_demand, new_on_demand = _on_demand_skills(old), _on_demand_skills(new)
    return PersonaChange(
        before=persona_name(old),
        after=persona_name(new),
        skills_gained=_subtract(new_skills, old_skills),
        skills_lost=_subtract(old_skills, new_skills),
        agents_gained=_subtract(new_agents, old_agents),
        agents_lost=_subtract(old_agents, new_agents),
        on_demand_gained=_subtract(new_on_demand, old_on_demand),
        on_demand_lost=_subtract(old_on_demand, new_on_demand),
    )


def _subtract(names: Iterable[str], others: Collection[str]) -> tuple[str, ...]:
    return tuple(name for name in names if name not in others)


def _listed_skills(library: Registry) -> dict[str, None]:
    return dict.fromkeys(skill.full_name for skill, _ in library.visible_skills())


def _listed_agents(library: Registry) -> dict[str, None]:
    return dict.fromkeys(agent.full_name for agent, _ in library.visible_agents())


def _on_demand_skills(library: Registry) -> dict[str, None]:
    view = library.visibility_context()
    verdicts = [(skill.full_name, library.evaluate(skill, view)) for skill in library.skills if skill.team]
    return dict.fromkeys(name for name, verdict in verdicts if verdict.searchable and not verdict.listed)
