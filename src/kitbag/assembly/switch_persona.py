"""Another persona for an agent that is open: its catalog, agents, prompt, tools and model are made first, compared with
what there is, and then taken together, or not at all.

Used by Agent. What a persona may see is decided by library/visibility alone; servers, approvals, trust and all that was
said stay.
"""

import asyncio
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from kitbag.agent.session_records import Header, Switch
from kitbag.agent.shield import to_its_end
from kitbag.assembly.agent_setup import Base, Standing, header_of
from kitbag.assembly.apply_setup import stand_anew, take
from kitbag.assembly.environment import Ground, notice_of, seen_as
from kitbag.assembly.model_choice import Wishes, choose_model
from kitbag.assembly.skill_loading import unusable
from kitbag.assembly.switch_notices import seen_name, switches_between
from kitbag.assembly.tool_list import every_tool
from kitbag.assembly.user_permissions import person_permissions
from kitbag.errors import Diagnostic, NotFoundError
from kitbag.events import Notice
from kitbag.ledger import Ledger
from kitbag.library.library_checks import declared_names
from kitbag.library.registry import NOBODY, Registry

if TYPE_CHECKING:
    from kitbag.assembly.agent_resources import Equipped
    from kitbag.assembly.run_options import Options
    from kitbag.library.agents import Agent as AgentFile
    from kitbag.models.model_selection import Chosen
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


class _Draft(NamedTuple):
    new: Standing
    header: Header
    made: list[Switch]
    dropped: list[tuple[str, str]]
    prompt: tuple[Ledger, Mapping[str, Any]]
    change: PersonaChange


async def preview_persona(agent: "Equipped", name: str, team: str) -> PersonaChange:
    async with agent.changing:
        draft = await _draft(agent, name, team)
        await _put_away(agent, draft)
        return draft.change


async def use_persona(agent: "Equipped", name: str, team: str) -> PersonaChange:
    """Raises NotFoundError with close names, AmbiguousError, LeftOutError, and what the choice of a model or the disk
    raises."""
    with agent.alone("a change of its persona"):
        async with agent.changing:
            draft = await _draft(agent, name, team)
            try:
                if draft.made:
                    await take(agent, draft.new, draft.made, draft.header, draft.dropped, draft.prompt)
            finally:
                await _put_away(agent, draft)
            return draft.change


async def _put_away(agent: "Equipped", draft: _Draft) -> None:
    """A provider that nobody uses."""
    if agent.provider is not draft.new.provider:
        await to_its_end(draft.new.provider.close())


async def _draft(agent: "Equipped", name: str, team: str) -> _Draft:
    ground = await asyncio.to_thread(_seen_by, agent.ground, name.strip(), team.strip())
    library = ground.library
    who = library.persona.full_name if library.persona is not None else NOBODY
    options = agent.options._replace(team=library.team, persona=who)
    definition = library.find_agent(options.agent) if options.agent else None
    problems: list[Notice] = []
    chosen, provider = await _model(agent, library, definition, problems)
    try:
        return await asyncio.to_thread(_whole, agent, options, ground, definition, chosen, provider, problems)
    except BaseException:
        if provider is not agent.provider:
            await to_its_end(provider.close())
        raise


def _seen_by(ground: Ground, name: str, team: str) -> Ground:
    """A name alone is first one of the team in use."""
    if not name or name.casefold() == NOBODY:
        return seen_as(ground, team, NOBODY)
    own = ground.library.team
    if own and not team and "/" not in name:
        try:
            return seen_as(ground, own, name)
        except NotFoundError:
            pass
    return seen_as(ground, team, name)


async def _model(
    agent: "Equipped", library: Registry, definition: "AgentFile | None", problems: list[Notice]
) -> "tuple[Chosen, Provider]":
    """As at the start, where the persona wants another than the last one did and the person has not chosen."""
    now = agent.chosen, agent.provider
    is_said = bool(agent.options.model) or agent.session.header.model_said
    wishes = [one.default_model if one is not None else "" for one in (agent.ground.library.persona, library.persona)]
    if definition is not None or is_said or agent.has_given_model or wishes[0] == wishes[1]:
        return now
    chosen, provider = choose_model(agent.sources, Wishes(files=(wishes[1],)), problems.append)
    if chosen.again == agent.chosen.again:
        await to_its_end(provider.close())
        return now
    return chosen, provider


def _whole(
    agent: "Equipped",
    options: "Options",
    ground: Ground,
    definition: "AgentFile | None",
    chosen: "Chosen",
    provider: "Provider",
    problems: list[Notice],
) -> _Draft:
    given, _ = person_permissions(ground, options, [tool.name for tool in every_tool()])
    permissions = given.narrowed(definition.tools, definition.path) if definition is not None else given
    permissions = permissions.in_mode(agent.permissions.mode)
    new = stand_anew(agent, Base(options, ground, definition, chosen, provider, given, permissions))
    ledger, remarks = new.prompt.ledger()
    dropped = unusable(agent.session, new.skills)
    before = agent.session.header
    header = header_of(before, options, ground, chosen, permissions.mode)
    is_heard = bool(agent.session.lines())
    made = switches_between(before, header, ground.library, dropped, is_heard=is_heard)
    notices = [*map(notice_of, (*_unknown_names(ground.library), *remarks)), *problems]
    change = _difference(agent.ground.library, ground.library)._replace(
        dropped=tuple(name for name, _ in dropped),
        tokens_before=sum(int(entry["tokens"]) for entry in agent.session.prompt),
        tokens_after=ledger.tokens,
        model=chosen.name if chosen.again != agent.chosen.again else "",
        warnings=tuple(f"{one.text}; {one.fix}" if one.fix else one.text for one in notices),
    )
    return _Draft(new, header, made, dropped, (ledger, new.prompt.made_for()), change)


def _difference(old: Registry, new: Registry) -> PersonaChange:
    skills, agents, on_demand = (
        (_less(seen(new), seen(old)), _less(seen(old), seen(new))) for seen in (_skills, _agents, _on_demand)
    )
    return PersonaChange(seen_name(old), seen_name(new), *skills, *agents, *on_demand)


def _less(names: Iterable[str], others: Collection[str]) -> tuple[str, ...]:
    return tuple(name for name in names if name not in others)


def _skills(library: Registry) -> dict[str, None]:
    return dict.fromkeys(skill.full_name for skill, _ in library.visible_skills())


def _agents(library: Registry) -> dict[str, None]:
    return dict.fromkeys(agent.full_name for agent, _ in library.visible_agents())


def _on_demand(library: Registry) -> dict[str, None]:
    view = library.view()
    verdicts = [(skill.full_name, library.judge(skill, view)) for skill in library.skills if skill.team]
    return dict.fromkeys(name for name, verdict in verdicts if verdict.searchable and not verdict.listed)


def _unknown_names(library: Registry) -> list[Diagnostic]:
    """That the persona declares, and that nothing here has."""
    path = library.persona.path if library.persona is not None else ""
    return [
        one
        for one in declared_names(library.skills, library.agents, library.personas, library.settings)
        if one.file == path
    ]
