"""Another model or another mode for an agent that is open.

Used by Agent. A model is exchanged between two requests; a mode at any time, since it may be what the person wants most
while something runs. Both are written down before they count.
"""

import asyncio
from typing import TYPE_CHECKING

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


async def use_model(agent: "AgentResources", name: str) -> str:
    """The full name of what it uses now. Raises KitbagError, and then all is as it was."""
    if not name.strip():
        raise UsageError("no model is named", "write provider/model; `kitbag models` shows what there is")
    with agent.exclusive("a change of its model"):
        async with agent.change_lock:
            # What the settings say now; `haiku` is that size at the provider in use, where that has sizes.
            sources, _ = load_model_sources(load_settings(agent.environment.places.kitbag_home, ()))
            parent = agent.chosen if agent.chosen.provider not in BUILT_IN_MODELS else None
            chosen = resolve_model(name, sources, "your choice", parent)
            provider = chosen.connect()
            try:
                await _commit_model(agent, chosen, provider, sources)
            finally:
                if agent.provider is not provider:
                    await run_to_completion(provider.close())
            return chosen.name


async def _commit_model(
    agent: "AgentResources", chosen: "SelectedModel", provider: "Provider", sources: "ModelSources"
) -> None:
    now, made_for = agent.current_setup(), agent.session.prompt_inputs
    options = now.options._replace(model=chosen.reference)
    new = now._replace(options=options, chosen=chosen, provider=provider, prompt=now.prompt._replace(chosen=chosen))
    prompt = None
    if (made_for.get("provider"), made_for.get("window")) != (chosen.provider, chosen.info.window):
        toolset = agent.make_toolset()
        described = build_system_prompt(
            now.environment, chosen, now.permissions, toolset, now.definition, options.append
        )
        new = new._replace(toolset=toolset, prompt=described)
        prompt = (await asyncio.to_thread(described.build_ledger))[0], described.inputs()
    before = agent.session.header
    header = build_header(before, options, now.environment, chosen, now.permissions.mode)
    made = list_switches(
        before, header, now.environment.library, (), has_history=bool(agent.session.recorded_messages())
    )

    def also() -> None:
        agent.sources = sources

    agent.journal.add_secrets(list_key_values(sources))
    await commit_setup(agent, new, made, header, prompt=prompt, on_applied=also)


async def use_mode(agent: "AgentResources", name: str) -> PermissionMode:
    """Raises UsageError for a mode that is none, InvalidError where the project's settings are stricter."""
    mode = parse_mode(name)
    async with agent.change_lock:
        before = agent.permissions.current_mode
        if mode == before == agent.permissions.mode:
            return mode
        if strictest_mode(mode, before) != mode:
            await asyncio.to_thread(_check_project_mode, agent, mode)
        await run_to_completion(_commit_mode(agent, mode))
        if before == "plan" and agent.agent_servers == AgentServers():
            await agent.open_servers()  # there none was of use
        if mode == "autonomous":
            agent.notices += await asyncio.to_thread(_missing_sandbox_notices, agent)
    return mode


def _check_project_mode(agent: "AgentResources", mode: PermissionMode) -> None:
    places, ground = agent.environment.places, agent.environment
    settings = load_settings(places.kitbag_home, places.project_dirs)
    loaded = load_permissions(
        settings, ground.workspace, trusted=ground.trust.applies_restrictions, flags=PermissionFlags(mode)
    )
    if loaded.mode != mode:
        problem = f"{loaded.mode_source} allows no freer mode than {loaded.mode}, and {mode} is freer"
        raise InvalidError(problem, f"change it there, or use {loaded.mode}")


async def _commit_mode(agent: "AgentResources", mode: PermissionMode) -> None:
    """What was sent stays as it is, so that it is read from a cache, also the list of tools: what the mode forbids is
    refused when it is called. Where it adds tools, or nothing was sent yet, there is no cache to lose."""
    session = agent.session
    header = session.header._replace(mode=mode)
    is_heard = bool(session.recorded_messages() or agent.busy)
    made = list_switches(session.header, header, agent.environment.library, (), has_history=is_heard)
    new, prompt = _setup_in_mode(agent, mode, has_history=is_heard), None
    if new.prompt is not agent.prompt:
        prompt = (await asyncio.to_thread(new.prompt.build_ledger))[0], new.prompt.inputs()
    await session.switch(made, header, prompt=prompt)
    agent.apply_setup(
        _setup_in_mode(agent, mode, has_history=is_heard)
    )  # anew: a request that runs may have changed something


def _setup_in_mode(agent: "AgentResources", mode: PermissionMode, *, has_history: bool) -> AgentSetup:
    now = agent.current_setup()
    permissions = now.permissions.with_chosen_mode(mode)
    toolset, prompt = now.toolset, now.prompt
    if mode != "plan" or not has_history:
        toolset = agent.make_toolset(permissions)
    if not has_history or (toolset.names() != now.toolset.names() and not agent.busy):
        prompt = build_system_prompt(
            now.environment, now.chosen, permissions, toolset, now.definition, now.options.append
        )
    return now._replace(
        options=now.options._replace(mode=mode),
        permissions=permissions,
        toolset=toolset,
        context=now.context._replace(permissions=permissions),
        prompt=prompt,
    )


def _missing_sandbox_notices(agent: "AgentResources") -> list[Notice]:
    found = agent.permissions.sandbox_support
    if found.supports("workspace"):
        return []
    return [Notice("warning", "no sandbox runs here, so in autonomous mode commands are refused", found.fix)]
