"""Everything read anew while a conversation goes on."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from conftest import World
from kitbag.assembly.run_options import Options
from kitbag.errors import KitbagError
from kitbag.runtime.agent import Agent
from kitbag.store.private_files import StoreError
from support.homes import Home, home_with_personas, load, prompt, run, tools
from support.mcp_servers import described, is_alive, started


@pytest.fixture
def home(world: World, monkeypatch: pytest.MonkeyPatch) -> Home:
    return home_with_personas(world, monkeypatch)


def notices(reloaded: Any) -> str:
    return "\n".join(f"{one.text} {one.fix}" for one in reloaded.notices)


def test_skills_agents_personas_and_memory_are_read_anew_and_the_prompt_says_so(home: Home) -> None:
    world = home.world
    world.write("~/.kitbag/AGENTS.md", "Be OLD.")

    async def work() -> None:
        async with home.agent(persona="support") as agent:
            first = await home.ask(agent, "Hi")
            assert "Be OLD." in prompt(first)
            world.write("~/.kitbag/AGENTS.md", "Be NEW.")
            world.skill("~/.kitbag/skills", "ways", description="New ways.")
            world.write("~/.kitbag/agents/helper.md", "---\nname: helper\ndescription: Helps.\n---\nHelp.\n")
            persona = world.home / ".kitbag/skills/shop/_persona_support.yaml"
            persona.write_text(persona.read_text().replace("You HELP.", "You HELP more."))
            tokens = sum(int(entry["tokens"]) for entry in agent.session.prompt)
            reloaded = await agent.reload()
            assert reloaded.tokens_before == tokens
            assert reloaded.tokens_after == sum(int(entry["tokens"]) for entry in agent.session.prompt) != tokens
            lines = reloaded.changes.splitlines()
            assert lines[0] == "<library-changes>"
            for change in ("+ skill ways", "+ agent helper", "~ persona shop/support"):
                assert change in lines
            assert any(line.startswith("~ memory ") for line in lines)
            second = await home.ask(agent, "And now?")
            for word in ("Be NEW.", "- ways: New ways.", "helper", "You HELP more."):
                assert word in prompt(second)
            assert "Be OLD." not in prompt(second)
            assert second.messages[: len(first.messages)] == first.messages
            assert "<library-changes>" not in second.messages[-1].text  # they stand in the prompt
            assert (await agent.reload()).changes == ""

    run(work)


def test_loaded_skills_that_are_gone_are_dropped_and_told(home: Home) -> None:
    async def work() -> None:
        async with home.agent([load("basics"), "Loaded.", "Well."]) as agent:
            await home.ask(agent, "Load it.")
            (home.world.home / ".kitbag/skills/core/basics.md").unlink()
            reloaded = await agent.reload()
            assert reloaded.dropped == ("basics",)
            request = await home.ask(agent, "And now?")
            assert "BODY of basics" not in str(request.messages)
            assert "basics (its file no longer exists)" in request.messages[-1].text

    run(work)


def test_rules_and_the_person_s_own_mode_are_read_anew_and_what_they_chose_stays(home: Home) -> None:
    async def work() -> None:
        async with home.agent() as agent:
            await home.ask(agent, "Hi")
            home.world.write("~/.kitbag/settings.toml", '[permissions]\nmode = "plan"\ndeny = ["Grep"]\n')
            await agent.reload()
            assert agent.permissions.mode == "plan"
            request = await home.ask(agent, "Hi")
            assert not {"Grep", "Write"} & set(tools(request))
            assert "permission mode to plan" in request.messages[-1].text
            await agent.use_mode("acceptEdits")
            await agent.reload()
            assert agent.permissions.mode == "acceptEdits"

    run(work)


def test_trust_that_is_lost_takes_away_what_came_from_it(home: Home) -> None:
    world = home.world
    world.skill(".kitbag/skills", "local-way", body="LOCAL body.")
    world.write("AGENTS.md", "MEMORY of the project.")

    async def work() -> None:
        async with home.agent([load("local-way"), "Loaded.", "Well."], trust_workspace=True) as agent:
            first = await home.ask(agent, "Load it.")
            assert "LOCAL body." in str(first.messages)
            agent.options = msgspec.structs.replace(agent.options, trust_workspace=False)
            reloaded = await agent.reload()
            assert reloaded.dropped == ("local-way",)
            assert "not trusted" in notices(reloaded)
            request = await home.ask(agent, "And now?")
            assert "LOCAL" not in str(request)
            assert "MEMORY" not in str(request)

    run(work)


def test_a_persona_that_is_gone_is_told_and_nobody_takes_its_place(home: Home) -> None:
    async def work() -> None:
        async with home.agent(persona="support") as agent:
            await home.ask(agent, "Hi")
            (home.world.home / ".kitbag/skills/shop/_persona_support.yaml").unlink()
            reloaded = await agent.reload()
            assert "support" in notices(reloaded)
            request = await home.ask(agent, "Who?")
            assert "You HELP." not in prompt(request)
            assert "removed the persona" in request.messages[-1].text

    run(work)


def test_a_model_s_window_and_address_are_those_of_the_settings_now(home: Home) -> None:
    script = home.world.write("script.json", json.dumps(["One.", "Two."]))

    async def work() -> None:
        options = Options(directory=str(home.world.workspace), model=f"scripted:{script}")
        async with Agent(options=options) as agent:
            home.world.write("~/.kitbag/settings.toml", '[models."scripted"]\nwindow = 4321\n')
            await agent.reload()
            assert agent.chosen.info.window == 4321
            assert agent.session.prompt_inputs["window"] == 4321

    run(work)


def test_what_can_t_be_read_or_written_leaves_all_as_it_was(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    agents = home.world.write("~/.kitbag/agents/helper.md", "---\nname: helper\ndescription: Helps.\n---\nHelp.\n")

    async def work() -> None:
        async with home.agent(agent="helper") as agent:
            first = await home.ask(agent, "Hi")
            before, last = agent.current_setup(), agent.journal.last_seq()
            text = agents.read_text()
            agents.unlink()
            with pytest.raises(KitbagError, match="helper"):
                await agent.reload()
            agents.write_text(text)

            async def full(_: Any) -> list[int]:
                raise StoreError("the disk is full")

            monkeypatch.setattr(agent.journal, "write_all", full)
            with pytest.raises(StoreError):
                await agent.reload()
            monkeypatch.undo()
            assert (agent.current_setup(), agent.journal.last_seq()) == (before, last)
            assert (await home.ask(agent, "Hi")).system == first.system

    run(work)


def configure(world: World, *servers: str, notes: Path) -> None:
    written = described(notes=str(notes))
    table = f"command = {json.dumps(written['command'])}\nargs = {json.dumps(written['args'])}\n"
    world.write("~/.kitbag/settings.toml", "".join(f"[mcp_servers.{name}]\n{table}" for name in servers))


def of_servers(names: list[str]) -> list[str]:
    return [name for name in names if name.startswith("mcp__")]


def test_servers_stay_as_they_are_unless_they_are_configured_otherwise(home: Home, tmp_path: Path) -> None:
    notes = tmp_path / "notes"

    async def work() -> None:
        configure(home.world, "old", notes=notes)
        async with home.agent() as agent:
            assert of_servers(tools(await home.ask(agent, "Hi"))) == ["mcp__old__echo"]
            running, alive = agent.servers, started(notes)
            await agent.use_persona("support")
            assert "servers were restarted" not in notices(await agent.reload())
            assert agent.servers is running
            assert started(notes) == alive
            configure(home.world, "new", notes=notes)
            assert "servers were restarted" in notices(await agent.reload())
            assert of_servers(tools(await home.ask(agent, "Hi"))) == ["mcp__new__echo"]
            assert not any(is_alive(pid) for pid in alive)
        assert not any(is_alive(pid) for pid in started(notes))

    run(work)


def test_leaving_plan_mode_starts_those_that_had_no_use_there(home: Home, tmp_path: Path) -> None:
    configure(home.world, "plain", notes=tmp_path / "notes")

    async def work() -> None:
        async with home.agent(mode="plan") as agent:
            assert of_servers(tools(await home.ask(agent, "Hi"))) == []
            await agent.use_mode("default")
            assert of_servers(tools(await home.ask(agent, "Hi"))) == ["mcp__plain__echo"]

    run(work)
