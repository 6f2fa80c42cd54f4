"""Reads everything anew for an agent that is open: settings, trust, skills, agents, personas, memory files, where
models are, which servers there are. The conversation stays, and so do the person's choices.

Used by Agent. What was read counts whole or not at all; only servers are ended and started after that.
"""

import asyncio
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from kitbag.agent.session_records import Header, Switch
from kitbag.agent.shield import to_its_end
from kitbag.assembly.agent_setup import Base, Standing, header_of
from kitbag.assembly.apply_setup import stand_anew, take
from kitbag.assembly.environment import Ground, ground_for, notice_of, told_left_out
from kitbag.assembly.mcp_servers import any_configured, find_servers
from kitbag.assembly.model_choice import model_of_run
from kitbag.assembly.model_sources import key_values, model_sources
from kitbag.assembly.skill_loading import unusable
from kitbag.assembly.switch_notices import switches_between
from kitbag.assembly.tool_list import every_tool
from kitbag.assembly.user_permissions import run_permissions
from kitbag.errors import KitbagError, NotFoundError
from kitbag.events import Notice
from kitbag.ledger import Ledger
from kitbag.library.library_changes import Change, changes_between
from kitbag.library.registry import NOBODY, Registry
from kitbag.library.untrusted_items import LeftOutError
from kitbag.models.model_selection import Sources
from kitbag.packing.suggestions import told_changes
from kitbag.settings import load_settings

if TYPE_CHECKING:
    from kitbag.assembly.agent_resources import Equipped
    from kitbag.assembly.run_options import Options
    from kitbag.models.model_selection import Chosen
    from kitbag.models.provider import Provider


class Reloaded(NamedTuple):
    changes: str
    """Of skills, agents, personas and memory files, as a model is told of them; empty: none."""
    tokens_before: int
    tokens_after: int
    """Of the whole system prompt."""
    dropped: tuple[str, ...] = ()
    """Skills that are not loaded any more."""
    notices: tuple[Notice, ...] = ()
    """What is wrong with what was read, and what else is otherwise now."""


class _Read(NamedTuple):
    options: "Options"
    ground: Ground
    sources: Sources
    notices: list[Notice]


async def reload(agent: "Equipped") -> Reloaded:
    """Raises KitbagError, and then all is as it was."""
    with agent.alone("reading everything anew"):
        async with agent.changing:
            read = await asyncio.to_thread(_read, agent)
            chosen, provider = _model(agent, read)
            try:
                return await _take(agent, read, chosen, provider)
            finally:
                if provider is not agent.provider:
                    await to_its_end(provider.close())


def _read(agent: "Equipped") -> _Read:
    places = agent.ground.places
    notices: list[Notice] = []
    sources, problems = model_sources(load_settings(places.kitbag_home, ()))
    options = agent.options._replace(settings_mode=agent.ground.live.settings_mode)
    try:
        ground = ground_for(places, options)
        _ = ground.library.persona
    except (NotFoundError, LeftOutError) as error:
        if not options.persona and not options.team:
            raise
        notices.append(Notice("warning", f"{error.problem}; from here on there is no persona", error.fix))
        options = options._replace(team="", persona=NOBODY)
        ground = ground_for(places, options)
    notices += [notice_of(found) for found in (*problems, *ground.diagnostics)]
    notices += told_left_out(ground)
    return _Read(options, ground, sources, notices)


def _model(agent: "Equipped", read: _Read) -> "tuple[Chosen, Provider]":
    """The same one, by what the settings say of it now. One that can't be had any more stays as it is."""
    if agent.has_given_model or read.sources == agent.sources:
        return agent.chosen, agent.provider
    library, options = read.ground.library, read.options
    definition = library.find_agent(options.agent) if options.agent else None
    try:
        return model_of_run(read.sources, options.model, agent.session.header, library, definition, read.notices.append)
    except KitbagError as error:
        read.notices.append(Notice("warning", f"the model stays as it is: {error.problem}", error.fix))
        return agent.chosen, agent.provider


async def _take(agent: "Equipped", read: _Read, chosen: "Chosen", provider: "Provider") -> Reloaded:
    before = agent.standing()
    draft = await asyncio.to_thread(_whole, agent, read, chosen, provider)
    reloaded = draft.reloaded._replace(tokens_before=sum(int(entry["tokens"]) for entry in agent.session.prompt))

    def also() -> None:
        agent.sources = read.sources
        if before.ground.workspace != read.ground.workspace:
            agent.keep_changes()

    agent.journal.hide(key_values(read.sources))
    prompt = draft.ledger, draft.new.prompt.made_for()
    await take(agent, draft.new, draft.made, draft.header, draft.dropped, prompt, also=also)
    return reloaded._replace(notices=(*reloaded.notices, *await _renewed_servers(agent, before)))


class _Draft(NamedTuple):
    new: Standing
    ledger: Ledger
    header: Header
    made: list[Switch]
    dropped: list[tuple[str, str]]
    reloaded: Reloaded


def _whole(agent: "Equipped", read: _Read, chosen: "Chosen", provider: "Provider") -> _Draft:
    options, ground, session = read.options, read.ground, agent.session
    definition = ground.library.find_agent(options.agent) if options.agent else None
    known = [tool.name for tool in every_tool()]
    before = session.header.mode if options.resume else ""
    given, permissions, notices = run_permissions(ground, options, definition, known, before)
    new = stand_anew(agent, Base(options, ground, definition, chosen, provider, given, permissions))
    ledger, problems = new.prompt.ledger()
    dropped = unusable(session, new.skills, also_gone=True)
    header = header_of(session.header, options, ground, chosen, permissions.mode)
    made = switches_between(session.header, header, ground.library, dropped, is_heard=bool(session.lines()))
    changes = told_changes([*_changes(agent.ground.library, ground.library), *_memory_changes(session.prompt, ledger)])
    told = (*read.notices, *notices, *map(notice_of, problems))
    reloaded = Reloaded(changes, 0, ledger.tokens, tuple(name for name, _ in dropped), told)
    return _Draft(new, ledger, header, made, dropped, reloaded)


def _changes(old: Registry, new: Registry) -> list[Change]:
    for library in (old, new):
        _ = library.skills, library.agents, library.personas  # else a snapshot leaves out what nobody has asked for
    return changes_between(old.snapshot(), new.snapshot())


def _memory_changes(before: Iterable[Mapping[str, Any]], after: Ledger) -> list[Change]:
    old = {str(one["source"]): one["text"] for one in before if one["kind"] == "memory"}
    new = {entry.source: entry.text for entry in after.entries if entry.kind == "memory"}
    signs = {path: "+" if path not in old else "-" if path not in new else "~" for path in {**old, **new}}
    return [Change(sign, "memory", path, path) for path, sign in signs.items() if old.get(path) != new.get(path)]


async def _renewed_servers(agent: "Equipped", before: Standing) -> list[Notice]:
    """Those that are configured otherwise now, or no longer trusted, don't go on as they were."""
    now = find_servers(agent.ground).configured if any_configured(agent.ground) else []
    running = agent.servers.configured if agent.servers is not None else []
    own = [one.own_servers if one is not None else () for one in (before.definition, agent.definition)]
    if now == running and own[0] == own[1]:
        return []
    had = any(servers is not None for servers in agent.offered)
    await agent.reopen_servers()
    if not had and agent.servers is None:
        return []
    return [Notice("info", "servers are configured otherwise than before, and were started anew")]
