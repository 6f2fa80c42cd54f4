"""Switches the model or the permission mode of an open agent.

Used by base_agent. The model changes between requests; the mode at any time, because the user may need that while a
request runs. Both are recorded before they take effect.
"""

import asyncio
from typing import TYPE_CHECKING

import msgspec

from kitbag.agent.shield import run_to_completion
from kitbag.assembly.agent_setup import AgentSetup, build_header, build_system_prompt
from kitbag.assembly.apply_setup import commit_setup
from kitbag.assembly.mcp_servers import AgentServers
from kitbag.assembly.model_sources import list_key_values, load_model_sources
from kitbag.assembly.switch_notices import list_switches
from kitbag.errors import InvalidError, UsageError
from kitbag.events import Notice
from kitbag.library.dialects.permission_modes import PermissionMode, strictest_mode
from kitbag.models.model_selection import BUILT_IN_MODELS, resolve_model
from kitbag.permissions.rules.load import PermissionFlags, load_permissions, parse_mode
from kitbag.settings import load_settings

if TYPE_CHECKING:
    from kitbag.assembly.agent_resources import AgentResources
    from kitbag.models.model_selection import ModelSources, SelectedModel
    from kitbag.models.provider import Provider


async def use_model(agent: "AgentResources", name: str, effort: str | None = None) -> str:
    """Returns the full name of the new model. Raises KitbagError; then nothing has changed."""
    if not name.strip():
        raise UsageError("no model specified", "use provider/model; run `kitbag models` to see available models")
    with agent.exclusive("switching models"):
        async with agent.change_lock:
            # Uses the current settings; `haiku` means that size at the provider in use if it has sizes.
            sources, _ = load_model_sources(load_settings(agent.environment.places.kitbag_home, ()))
            parent = agent.chosen if agent.chosen.provider not in BUILT_IN_MODELS else None
            chosen = resolve_model(name, sources, "your choice", parent)
            provider = chosen.connect()
            try:
                await _commit_model(agent, chosen, provider, sources, effort)
            finally:
                if agent.provider is not provider:
                    await run_to_completion(provider.close())
            return chosen.name


async def _commit_model(
    agent: "AgentResources",
    chosen: "SelectedModel",
    provider: "Provider",
    sources: "ModelSources",
    effort: str | None,
) -> None:
    current, prompt_inputs = agent.current_setup(), agent.session.prompt_inputs
    options = msgspec.structs.replace(
        current.options, model=chosen.reference, effort=current.options.effort if effort is None else effort
    )
    setup = msgspec.structs.replace(
        current,
        options=options,
        chosen=chosen,
        provider=provider,
        prompt=msgspec.structs.replace(current.prompt, chosen=chosen),
    )
    prompt = None
    if (prompt_inputs.get("provider"), prompt_inputs.get("window")) != (chosen.provider, chosen.info.window):
        toolset = agent.make_toolset()
        system_prompt = build_system_prompt(
            current.environment, chosen, current.permissions, toolset, current.definition, options.append
        )
        setup = msgspec.structs.replace(setup, toolset=toolset, prompt=system_prompt)
        prompt = (await asyncio.to_thread(system_prompt.build_ledger))[0], system_prompt.inputs()
    previous = agent.session.header
    header = build_header(previous, options, current.environment, chosen, current.permissions.mode)
    switches = list_switches(
        previous, header, current.environment.library, (), has_history=bool(agent.session.recorded_messages())
    )

    def update_agent() -> None:
        agent.sources = sources

    agent.journal.add_secrets(list_key_values(sources))
    await commit_setup(agent, setup, switches, header, prompt=prompt, on_applied=update_agent)


async def use_mode(agent: "AgentResources", name: str) -> PermissionMode:
    """Raises UsageError for an unknown mode, InvalidError if the project's settings are stricter."""
    mode = parse_mode(name)
    async with agent.change_lock:
        before = agent.permissions.current_mode
        if mode == before == agent.permissions.mode:
            return mode
        if strictest_mode(mode, before) != mode:
            await asyncio.to_thread(_check_project_mode, agent, mode)
        await run_to_completion(_commit_mode(agent, mode))
        if before == "plan" and agent.agent_servers == AgentServers():
            await agent.open_servers()  # plan mode opens no servers
        if mode == "autonomous":
            agent.notices += await asyncio.to_thread(_missing_sandbox_notices, agent)
    return mode


def _check_project_mode(agent: "AgentResources", mode: PermissionMode) -> None:
    places, environment = agent.environment.places, agent.environment
    settings = load_settings(places.kitbag_home, places.project_dirs)
    loaded = load_permissions(
        settings,
        environment.workspace,
        trusted=environment.trust.applies_restrictions,
        flags=PermissionFlags(mode=mode),
    )
    if loaded.mode != mode:
        problem = f"{mode} is less strict than {loaded.mode}, the limit set in {loaded.mode_source}"
        raise InvalidError(problem, f"change the limit, or use {loaded.mode}")


async def _commit_mode(agent: "AgentResources", mode: PermissionMode) -> None:
    """What was sent stays unchanged, including the tool list, so that the provider's cache stays valid; forbidden tools
    are denied when called. If the mode adds tools, or nothing was sent yet, there is no cache to lose."""
    session = agent.session
    header = msgspec.structs.replace(session.header, mode=mode)
    has_history = bool(session.recorded_messages() or agent.busy)
    switches = list_switches(session.header, header, agent.environment.library, (), has_history=has_history)
    setup, prompt = _setup_in_mode(agent, mode, has_history=has_history), None
    if setup.prompt is not agent.prompt:
        prompt = (await asyncio.to_thread(setup.prompt.build_ledger))[0], setup.prompt.inputs()
    await session.switch(switches, header, prompt=prompt)
    agent.apply_setup(
        _setup_in_mode(agent, mode, has_history=has_history)
    )  # rebuilt: a running request may have changed something


def _setup_in_mode(agent: "AgentResources", mode: PermissionMode, *, has_history: bool) -> AgentSetup:
    current = agent.current_setup()
    permissions = current.permissions.with_chosen_mode(mode)
    toolset, prompt = current.toolset, current.prompt
    if mode != "plan" or not has_history:
        toolset = agent.make_toolset(permissions)
    if not has_history or (toolset.names() != current.toolset.names() and not agent.busy):
        prompt = build_system_prompt(
            current.environment, current.chosen, permissions, toolset, current.definition, current.options.append
        )
    return msgspec.structs.replace(
        current,
        options=msgspec.structs.replace(current.options, mode=mode),
        permissions=permissions,
        toolset=toolset,
        context=msgspec.structs.replace(current.context, permissions=permissions),
        prompt=prompt,
    )


def _missing_sandbox_notices(agent: "AgentResources") -> list[Notice]:
    protection = agent.permissions.sandbox_support
    if protection.supports("workspace"):
        return []
    return [
        Notice(
            severity="warning",
            text="no sandbox is available: commands are denied in autonomous mode",
            fix=protection.fix,
        )
    ]
