"""Another model or another mode for an agent that is open.

Used by Agent. A model is exchanged between two requests; a mode at any time, since it may be what the person wants most
while something runs. Both are written down before they count.
"""

import asyncio
from typing import TYPE_CHECKING

from kitbag.agent.shield import to_its_end
from kitbag.assembly.agent_setup import Standing, header_of, prompt_of_run
from kitbag.assembly.apply_setup import take
from kitbag.assembly.mcp_servers import Offered
from kitbag.assembly.model_sources import key_values, model_sources
from kitbag.assembly.switch_notices import switches_between
from kitbag.errors import InvalidError, UsageError
from kitbag.events import Notice
from kitbag.library.dialects.permission_modes import Mode, strictest
from kitbag.models.model_selection import BUILT_IN, resolve
from kitbag.permissions.rules.load import Given, load_permissions, mode_said
from kitbag.settings import load_settings

if TYPE_CHECKING:
    from kitbag.assembly.agent_resources import Equipped
    from kitbag.models.model_selection import Chosen, Sources
    from kitbag.models.provider import Provider


async def use_model(agent: "Equipped", name: str) -> str:
    """The full name of what it uses now. Raises KitbagError, and then all is as it was."""
    if not name.strip():
        raise UsageError("no model is named", "write provider/model; `kitbag models` shows what there is")
    with agent.alone("a change of its model"):
        async with agent.changing:
            # What the settings say now; `haiku` is that size at the provider in use, where that has sizes.
            sources, _ = model_sources(load_settings(agent.ground.places.kitbag_home, ()))
            parent = agent.chosen if agent.chosen.provider not in BUILT_IN else None
            chosen = resolve(name, sources, "your choice", parent)
            provider = chosen.connect()
            try:
                await _take_model(agent, chosen, provider, sources)
            finally:
                if agent.provider is not provider:
                    await to_its_end(provider.close())
            return chosen.name


async def _take_model(agent: "Equipped", chosen: "Chosen", provider: "Provider", sources: "Sources") -> None:
    now, made_for = agent.standing(), agent.session.made_for
    options = now.options._replace(model=chosen.again)
    new = now._replace(options=options, chosen=chosen, provider=provider, prompt=now.prompt._replace(chosen=chosen))
    prompt = None
    if (made_for.get("provider"), made_for.get("window")) != (chosen.provider, chosen.known.window):
        toolset = agent.make_toolset()
        described = prompt_of_run(now.ground, chosen, now.permissions, toolset, now.definition, options.append)
        new = new._replace(toolset=toolset, prompt=described)
        prompt = (await asyncio.to_thread(described.ledger))[0], described.made_for()
    before = agent.session.header
    header = header_of(before, options, now.ground, chosen, now.permissions.mode)
    made = switches_between(before, header, now.ground.library, (), is_heard=bool(agent.session.lines()))

    def also() -> None:
        agent.sources = sources

    agent.journal.hide(key_values(sources))
    await take(agent, new, made, header, prompt=prompt, also=also)


async def use_mode(agent: "Equipped", word: str) -> Mode:
    """Raises UsageError for a mode that is none, InvalidError where the project's settings are stricter."""
    mode = mode_said(word)
    async with agent.changing:
        before = agent.permissions.mode_now
        if mode == before == agent.permissions.mode:
            return mode
        if strictest(mode, before) != mode:
            await asyncio.to_thread(_check_project, agent, mode)
        await to_its_end(_take_mode(agent, mode))
        if before == "plan" and agent.offered == Offered():
            await agent.open_servers()  # there none was of use
        if mode == "autonomous":
            agent.notices += await asyncio.to_thread(_told_without_sandbox, agent)
    return mode


def _check_project(agent: "Equipped", mode: Mode) -> None:
    places, ground = agent.ground.places, agent.ground
    settings = load_settings(places.kitbag_home, places.project_dirs)
    loaded = load_permissions(settings, ground.workspace, trusted=ground.trust.restricts, given=Given(mode))
    if loaded.mode != mode:
        problem = f"{loaded.mode_source} allows no freer mode than {loaded.mode}, and {mode} is freer"
        raise InvalidError(problem, f"change it there, or use {loaded.mode}")


async def _take_mode(agent: "Equipped", mode: Mode) -> None:
    """What was sent stays as it is, so that it is read from a cache, also the list of tools: what the mode forbids is
    refused when it is called. Where it adds tools, or nothing was sent yet, there is no cache to lose."""
    session = agent.session
    header = session.header._replace(mode=mode)
    is_heard = bool(session.lines() or agent.busy)
    made = switches_between(session.header, header, agent.ground.library, (), is_heard=is_heard)
    new, prompt = _in_mode(agent, mode, is_heard=is_heard), None
    if new.prompt is not agent.prompt:
        prompt = (await asyncio.to_thread(new.prompt.ledger))[0], new.prompt.made_for()
    await session.switch(made, header, prompt=prompt)
    agent.stand_on(_in_mode(agent, mode, is_heard=is_heard))  # anew: a request that runs may have changed something


def _in_mode(agent: "Equipped", mode: Mode, *, is_heard: bool) -> Standing:
    now = agent.standing()
    permissions = now.permissions.in_chosen_mode(mode)
    toolset, prompt = now.toolset, now.prompt
    if mode != "plan" or not is_heard:
        toolset = agent.make_toolset(permissions)
    if not is_heard or (toolset.names() != now.toolset.names() and not agent.busy):
        prompt = prompt_of_run(now.ground, now.chosen, permissions, toolset, now.definition, now.options.append)
    return now._replace(
        options=now.options._replace(mode=mode),
        permissions=permissions,
        toolset=toolset,
        context=now.context._replace(permissions=permissions),
        prompt=prompt,
    )


def _told_without_sandbox(agent: "Equipped") -> list[Notice]:
    found = agent.permissions.protection
    if found.holds("workspace"):
        return []
    return [Notice("warning", "no sandbox runs here, so in autonomous mode commands are refused", found.fix)]
