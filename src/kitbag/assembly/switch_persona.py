"""Another persona for an agent that is open: its catalog, agents, prompt, tools and model are made first, compared with
what there is, and then taken together, or not at all.

Used by Agent. What a persona may see is decided by library/visibility alone; servers, approvals, trust and all that was
said stay.
"""

import asyncio
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

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
from kitbag.errors import Diagnostic, NotFoundError
from kitbag.events import Notice
from kitbag.ledger import Ledger
from kitbag.library.library_checks import check_declared_names
from kitbag.library.registry import NO_PERSONA, Registry

if TYPE_CHECKING:
    from kitbag.assembly.agent_resources import AgentResources
    from kitbag.assembly.run_options import Options
    from kitbag.library.agents import AgentFile as AgentFile
    from kitbag.models.model_selection import SelectedModel
    from kitbag.models.provider import Provider


class PersonaChange(NamedTuple):
    """Names are full ones, in the order of the library."""

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
    """Skills that are loaded, which the persona may not see."""
    tokens_before: int = 0
    tokens_after: int = 0
    """Of the whole system prompt, by its ledger."""
    model: str = ""
    """What it uses from then on, where that is another one."""
    warnings: tuple[str, ...] = ()


class _PersonaDraft(NamedTuple):
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
    """Raises NotFoundError with close names, AmbiguousError, LeftOutError, and what the choice of a model or the disk
    raises."""
    with agent.exclusive("a change of its persona"):
        async with agent.change_lock:
            draft = await _make_draft(agent, name, team)
            try:
                if draft.made:
                    await commit_setup(agent, draft.new, draft.made, draft.header, draft.dropped, draft.prompt)
            finally:
                await _close_unused_provider(agent, draft)
            return draft.change


async def _close_unused_provider(agent: "AgentResources", draft: _PersonaDraft) -> None:
    """A provider that nobody uses."""
    if agent.provider is not draft.new.provider:
        await run_to_completion(draft.new.provider.close())


async def _make_draft(agent: "AgentResources", name: str, team: str) -> _PersonaDraft:
    ground = await asyncio.to_thread(_find_persona, agent.environment, name.strip(), team.strip())
    library = ground.library
    who = library.persona.full_name if library.persona is not None else NO_PERSONA
    options = agent.options._replace(team=library.team, persona=who)
    definition = library.find_agent(options.agent) if options.agent else None
    problems: list[Notice] = []
    chosen, provider = await _choose_model(agent, library, definition, problems)
    try:
        return await asyncio.to_thread(_build_draft, agent, options, ground, definition, chosen, provider, problems)
    except BaseException:
        if provider is not agent.provider:
            await run_to_completion(provider.close())
        raise


def _find_persona(environment: AgentEnvironment, name: str, team: str) -> AgentEnvironment:
    """A name alone is first one of the team in use."""
    if not name or name.casefold() == NO_PERSONA:
        return with_persona(environment, team, NO_PERSONA)
    own = environment.library.team
    if own and not team and "/" not in name:
        try:
            return with_persona(environment, own, name)
        except NotFoundError:
            pass
    return with_persona(environment, team, name)


async def _choose_model(
    agent: "AgentResources", library: Registry, definition: "AgentFile | None", problems: list[Notice]
) -> "tuple[SelectedModel, Provider]":
    """As at the start, where the persona wants another than the last one did and the person has not chosen."""
    now = agent.chosen, agent.provider
    is_said = bool(agent.options.model) or agent.session.header.model_said
    wishes = [
        one.default_model if one is not None else "" for one in (agent.environment.library.persona, library.persona)
    ]
    if definition is not None or is_said or agent.uses_provider_override or wishes[0] == wishes[1]:
        return now
    chosen, provider = choose_model(agent.sources, ModelPreferences(files=(wishes[1],)), problems.append)
    if chosen.reference == agent.chosen.reference:
        await run_to_completion(provider.close())
        return now
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
    given, _ = load_user_permissions(environment, options, [tool.name for tool in all_tools()])
    permissions = given.restricted_to(definition.tools, definition.path) if definition is not None else given
    permissions = permissions.with_mode(agent.permissions.mode)
    new = build_setup(agent, SetupInputs(options, environment, definition, chosen, provider, given, permissions))
    ledger, remarks = new.prompt.build_ledger()
    dropped = find_unusable_skills(agent.session, new.skills)
    before = agent.session.header
    header = build_header(before, options, environment, chosen, permissions.mode)
    is_heard = bool(agent.session.recorded_messages())
    made = list_switches(before, header, environment.library, dropped, has_history=is_heard)
    notices = [*map(diagnostic_notice, (*_unknown_name_diagnostics(environment.library), *remarks)), *problems]
    change = _compare_libraries(agent.environment.library, environment.library)._replace(
        dropped=tuple(name for name, _ in dropped),
        tokens_before=sum(int(entry["tokens"]) for entry in agent.session.prompt),
        tokens_after=ledger.tokens,
        model=chosen.name if chosen.reference != agent.chosen.reference else "",
        warnings=tuple(f"{one.text}; {one.fix}" if one.fix else one.text for one in notices),
    )
    return _PersonaDraft(new, header, made, dropped, (ledger, new.prompt.inputs()), change)


def _compare_libraries(old: Registry, new: Registry) -> PersonaChange:
    skills, agents, on_demand = (
        (_subtract(seen(new), seen(old)), _subtract(seen(old), seen(new)))
        for seen in (_listed_skills, _listed_agents, _on_demand_skills)
    )
    return PersonaChange(persona_name(old), persona_name(new), *skills, *agents, *on_demand)


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


def _unknown_name_diagnostics(library: Registry) -> list[Diagnostic]:
    """That the persona declares, and that nothing here has."""
    path = library.persona.path if library.persona is not None else ""
    return [
        one
        for one in check_declared_names(library.skills, library.agents, library.personas, library.settings)
        if one.file == path
    ]
