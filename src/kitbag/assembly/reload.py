"""Reads everything anew for an agent that is open: settings, trust, skills, agents, personas, memory files, where
models are, which servers there are. The conversation stays, and so do the person's choices.

Used by Agent. What was read counts whole or not at all; only servers are ended and started after that.
"""

import asyncio
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from kitbag.agent.session_records import SessionHeader, SessionSwitch
from kitbag.agent.shield import run_to_completion
from kitbag.assembly.agent_setup import AgentSetup, SetupInputs, build_header
from kitbag.assembly.apply_setup import build_setup, commit_setup
from kitbag.assembly.environment import AgentEnvironment, diagnostic_notice, load_run_environment, untrusted_notices
from kitbag.assembly.mcp_servers import has_configured_servers, load_servers
from kitbag.assembly.model_choice import choose_run_model
from kitbag.assembly.model_sources import list_key_values, load_model_sources
from kitbag.assembly.skill_loading import find_unusable_skills
from kitbag.assembly.switch_notices import list_switches
from kitbag.assembly.tool_list import all_tools
from kitbag.assembly.user_permissions import load_run_permissions
from kitbag.errors import KitbagError, NotFoundError
from kitbag.events import Notice
from kitbag.ledger import Ledger
from kitbag.library.library_changes import Change, diff_snapshots
from kitbag.library.registry import NO_PERSONA, Registry
from kitbag.library.untrusted_items import UntrustedItemError
from kitbag.models.model_selection import ModelSources
from kitbag.packing.suggestions import library_changes_notice
from kitbag.settings import load_settings

if TYPE_CHECKING:
    from kitbag.assembly.agent_resources import AgentResources
    from kitbag.assembly.run_options import Options
    from kitbag.models.model_selection import SelectedModel
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


class _ReloadInputs(NamedTuple):
    options: "Options"
    environment: AgentEnvironment
    sources: ModelSources
    notices: list[Notice]


async def reload(agent: "AgentResources") -> Reloaded:
    """Raises KitbagError, and then all is as it was."""
    with agent.exclusive("reading everything anew"):
        async with agent.change_lock:
            read = await asyncio.to_thread(_read_inputs, agent)
            chosen, provider = _choose_model(agent, read)
            try:
                return await _commit(agent, read, chosen, provider)
            finally:
                if provider is not agent.provider:
                    await run_to_completion(provider.close())


def _read_inputs(agent: "AgentResources") -> _ReloadInputs:
    places = agent.environment.places
    notices: list[Notice] = []
    sources, problems = load_model_sources(load_settings(places.kitbag_home, ()))
    options = agent.options._replace(settings_mode=agent.environment.live_rules.settings_mode)
    try:
        ground = load_run_environment(places, options)
        _ = ground.library.persona
    except (NotFoundError, UntrustedItemError) as error:
        if not options.persona and not options.team:
            raise
        notices.append(Notice("warning", f"{error.problem}; from here on there is no persona", error.fix))
        options = options._replace(team="", persona=NO_PERSONA)
        ground = load_run_environment(places, options)
    notices += [diagnostic_notice(found) for found in (*problems, *ground.diagnostics)]
    notices += untrusted_notices(ground)
    return _ReloadInputs(options, ground, sources, notices)


def _choose_model(agent: "AgentResources", read: _ReloadInputs) -> "tuple[SelectedModel, Provider]":
    """The same one, by what the settings say of it now. One that can't be had any more stays as it is."""
    if agent.uses_provider_override or read.sources == agent.sources:
        return agent.chosen, agent.provider
    library, options = read.environment.library, read.options
    definition = library.find_agent(options.agent) if options.agent else None
    try:
        return choose_run_model(
            read.sources, options.model, agent.session.header, library, definition, read.notices.append
        )
    except KitbagError as error:
        read.notices.append(Notice("warning", f"the model stays as it is: {error.problem}", error.fix))
        return agent.chosen, agent.provider


async def _commit(
    agent: "AgentResources", read: _ReloadInputs, chosen: "SelectedModel", provider: "Provider"
) -> Reloaded:
    before = agent.current_setup()
    draft = await asyncio.to_thread(_build_draft, agent, read, chosen, provider)
    reloaded = draft.reloaded._replace(tokens_before=sum(int(entry["tokens"]) for entry in agent.session.prompt))

    def also() -> None:
        agent.sources = read.sources
        if before.environment.workspace != read.environment.workspace:
            agent.start_recording_changes()

    agent.journal.add_secrets(list_key_values(read.sources))
    prompt = draft.ledger, draft.new.prompt.inputs()
    await commit_setup(agent, draft.new, draft.made, draft.header, draft.dropped, prompt, on_applied=also)
    return reloaded._replace(notices=(*reloaded.notices, *await _restart_servers(agent, before)))


class _ReloadDraft(NamedTuple):
    new: AgentSetup
    ledger: Ledger
    header: SessionHeader
    made: list[SessionSwitch]
    dropped: list[tuple[str, str]]
    reloaded: Reloaded


def _build_draft(
    agent: "AgentResources", read: _ReloadInputs, chosen: "SelectedModel", provider: "Provider"
) -> _ReloadDraft:
    options, ground, session = read.options, read.environment, agent.session
    definition = ground.library.find_agent(options.agent) if options.agent else None
    known = [tool.name for tool in all_tools()]
    before = session.header.mode if options.resume else ""
    given, permissions, notices = load_run_permissions(ground, options, definition, known, before)
    new = build_setup(agent, SetupInputs(options, ground, definition, chosen, provider, given, permissions))
    ledger, problems = new.prompt.build_ledger()
    dropped = find_unusable_skills(session, new.skills, include_deleted=True)
    header = build_header(session.header, options, ground, chosen, permissions.mode)
    made = list_switches(session.header, header, ground.library, dropped, has_history=bool(session.recorded_messages()))
    changes = library_changes_notice(
        [*_library_changes(agent.environment.library, ground.library), *_memory_changes(session.prompt, ledger)]
    )
    told = (*read.notices, *notices, *map(diagnostic_notice, problems))
    reloaded = Reloaded(changes, 0, ledger.tokens, tuple(name for name, _ in dropped), told)
    return _ReloadDraft(new, ledger, header, made, dropped, reloaded)


def _library_changes(old: Registry, new: Registry) -> list[Change]:
    for library in (old, new):
        _ = library.skills, library.agents, library.personas  # else a snapshot leaves out what nobody has asked for
    return diff_snapshots(old.take_snapshot(), new.take_snapshot())


def _memory_changes(before: Iterable[Mapping[str, Any]], after: Ledger) -> list[Change]:
    old = {str(one["source"]): one["text"] for one in before if one["kind"] == "memory"}
    new = {entry.source: entry.text for entry in after.entries if entry.kind == "memory"}
    signs = {path: "+" if path not in old else "-" if path not in new else "~" for path in {**old, **new}}
    return [Change(sign, "memory", path, path) for path, sign in signs.items() if old.get(path) != new.get(path)]


async def _restart_servers(agent: "AgentResources", before: AgentSetup) -> list[Notice]:
    """Those that are configured otherwise now, or no longer trusted, don't go on as they were."""
    now = load_servers(agent.environment).configured if has_configured_servers(agent.environment) else []
    running = agent.servers.configured if agent.servers is not None else []
    own = [one.inline_servers if one is not None else () for one in (before.definition, agent.definition)]
    if now == running and own[0] == own[1]:
        return []
    had = any(servers is not None for servers in agent.agent_servers)
    await agent.reopen_servers()
    if not had and agent.servers is None:
        return []
    return [Notice("info", "servers are configured otherwise than before, and were started anew")]
