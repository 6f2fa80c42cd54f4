"""Reads everything again for an open agent: settings, trust, skills, agents, personas, memory files, model sources,
MCP servers. The conversation and the user's choices stay.

Used by base_agent. The new setup replaces the old one completely or not at all; only servers are restarted afterwards.
"""

import asyncio
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

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


class Reloaded(msgspec.Struct, frozen=True, kw_only=True):
    changes: str
    """Changed skills, agents, personas and memory files, as the model is notified of them; empty: none."""
    tokens_before: int
    tokens_after: int
    """Of the whole system prompt."""
    dropped: tuple[str, ...] = ()
    """Skills that are no longer loaded."""
    notices: tuple[Notice, ...] = ()
    """Problems in what was read, and other changes."""


class _ReloadInputs(msgspec.Struct, frozen=True, kw_only=True):
    options: "Options"
    environment: AgentEnvironment
    sources: ModelSources
    notices: list[Notice]


async def reload(agent: "AgentResources") -> Reloaded:
    """Raises KitbagError; then nothing has changed."""
    with agent.exclusive("reloading"):
        async with agent.change_lock:
            inputs = await asyncio.to_thread(_read_inputs, agent)
            chosen, provider = _choose_model(agent, inputs)
            try:
                return await _commit(agent, inputs, chosen, provider)
            finally:
                if provider is not agent.provider:
                    await run_to_completion(provider.close())


def _read_inputs(agent: "AgentResources") -> _ReloadInputs:
    places = agent.environment.places
    notices: list[Notice] = []
    sources, problems = load_model_sources(load_settings(places.kitbag_home, ()))
    options = msgspec.structs.replace(agent.options, settings_mode=agent.environment.live_rules.settings_mode)
    try:
        environment = load_run_environment(places, options)
        _ = environment.library.persona
    except (NotFoundError, UntrustedItemError) as error:
        if not options.persona and not options.team:
            raise
        notices.append(Notice(severity="warning", text=f"{error.problem}; continuing without a persona", fix=error.fix))
        options = msgspec.structs.replace(options, team="", persona=NO_PERSONA)
        environment = load_run_environment(places, options)
    notices += [diagnostic_notice(diagnostic) for diagnostic in (*problems, *environment.diagnostics)]
    omitted = untrusted_notices(environment, is_brief=True)
    notices += omitted if omitted != untrusted_notices(agent.environment, is_brief=True) else []
    return _ReloadInputs(options=options, environment=environment, sources=sources, notices=notices)


def _choose_model(agent: "AgentResources", inputs: _ReloadInputs) -> "tuple[SelectedModel, Provider]":
    """The same model under the current settings. One that is no longer available stays in use."""
    if agent.uses_provider_override or inputs.sources == agent.sources:
        return agent.chosen, agent.provider
    library, options = inputs.environment.library, inputs.options
    definition = library.find_agent(options.agent) if options.agent else None
    try:
        return choose_run_model(
            inputs.sources, options.model, agent.session.header, library, definition, inputs.notices.append
        )
    except KitbagError as error:
        inputs.notices.append(
            Notice(severity="warning", text=f"keeping the current model: {error.problem}", fix=error.fix)
        )
        return agent.chosen, agent.provider


async def _commit(
    agent: "AgentResources", inputs: _ReloadInputs, chosen: "SelectedModel", provider: "Provider"
) -> Reloaded:
    before = agent.current_setup()
    draft = await asyncio.to_thread(_build_draft, agent, inputs, chosen, provider)
    reloaded = msgspec.structs.replace(
        draft.reloaded, tokens_before=sum(int(entry["tokens"]) for entry in agent.session.prompt)
    )

    def update_agent() -> None:
        agent.sources = inputs.sources
        if before.environment.workspace != inputs.environment.workspace:
            agent.start_recording_changes()

    agent.journal.add_secrets(list_key_values(inputs.sources))
    prompt = draft.ledger, draft.new.prompt.inputs()
    await commit_setup(agent, draft.new, draft.made, draft.header, draft.dropped, prompt, on_applied=update_agent)
    notices = (*reloaded.notices, *await _restart_servers(agent, before))
    return msgspec.structs.replace(reloaded, notices=notices)


class _ReloadDraft(msgspec.Struct, frozen=True, kw_only=True):
    new: AgentSetup
    ledger: Ledger
    header: SessionHeader
    made: list[SessionSwitch]
    dropped: list[tuple[str, str]]
    reloaded: Reloaded


def _build_draft(
    agent: "AgentResources", inputs: _ReloadInputs, chosen: "SelectedModel", provider: "Provider"
) -> _ReloadDraft:
    options, environment, session = inputs.options, inputs.environment, agent.session
    definition = environment.library.find_agent(options.agent) if options.agent else None
    known_tools = [tool.name for tool in all_tools()]
    session_mode = session.header.mode if options.resume else ""
    user_permissions, permissions, notices = load_run_permissions(
        environment, options, definition, known_tools, session_mode
    )
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
    ledger, problems = setup.prompt.build_ledger()
    dropped = find_unusable_skills(session, setup.skills, include_deleted=True)
    header = build_header(session.header, options, environment, chosen, permissions.mode)
    switches = list_switches(
        session.header, header, environment.library, dropped, has_history=bool(session.recorded_messages())
    )
    changes = library_changes_notice(
        [*_library_changes(agent.environment.library, environment.library), *_memory_changes(session.prompt, ledger)]
    )
    all_notices = (*inputs.notices, *notices, *map(diagnostic_notice, problems))
    reloaded = Reloaded(
        changes=changes,
        tokens_before=0,
        tokens_after=ledger.tokens,
        dropped=tuple(name for name, _ in dropped),
        notices=all_notices,
    )
    return _ReloadDraft(new=setup, ledger=ledger, header=header, made=switches, dropped=dropped, reloaded=reloaded)


def _library_changes(old: Registry, new: Registry) -> list[Change]:
    for library in (old, new):
        _ = library.skills, library.agents, library.personas  # a snapshot contains only what has been loaded
    return diff_snapshots(old.take_snapshot(), new.take_snapshot())


def _memory_changes(before: Iterable[Mapping[str, Any]], after: Ledger) -> list[Change]:
    old_texts = {
        str(before_entry["source"]): before_entry["text"] for before_entry in before if before_entry["kind"] == "memory"
    }
    new_texts = {entry.source: entry.text for entry in after.entries if entry.kind == "memory"}
    signs = {
        path: "+" if path not in old_texts else "-" if path not in new_texts else "~"
        for path in {**old_texts, **new_texts}
    }
    return [
        Change(sign, "memory", path, path) for path, sign in signs.items() if old_texts.get(path) != new_texts.get(path)
    ]


async def _restart_servers(agent: "AgentResources", before: AgentSetup) -> list[Notice]:
    """Restarts servers whose configuration or trust changed."""
    configured = load_servers(agent.environment).configured if has_configured_servers(agent.environment) else []
    running_servers = agent.servers.configured if agent.servers is not None else []
    declared = [
        definition.inline_servers if definition is not None else ()
        for definition in (before.definition, agent.definition)
    ]
    if configured == running_servers and declared[0] == declared[1]:
        return []
    had_servers = any(servers is not None for servers in agent.agent_servers)
    await agent.reopen_servers()
    if not had_servers and agent.servers is None:
        return []
    return [Notice(severity="info", text="the server configuration has changed; servers were restarted")]
