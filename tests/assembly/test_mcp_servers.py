"""Servers in a run: what the model is offered of them, when they are started, and what happens when they misbehave."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from conftest import World
from kitbag.assembly.run_options import Options
from kitbag.errors import UsageError
from kitbag.permissions.trust.workspace_trust import check_trust, trust_workspace
from kitbag.runtime.agent import Agent
from kitbag.testing import Rule, Script, Scripted, Step
from support.delegating import results, script, task
from support.house import House
from support.mcp_servers import described, is_alive, started
from support.waiting import TEST_TIMEOUT, until_true

pytestmark = pytest.mark.usefixtures("kitbag_home")


def own(world: World, settings: str = "", **servers: dict[str, Any]) -> None:
    """Servers of the user's own, whose tools need no answer."""
    lines = ['[permissions]\nallow = ["mcp__plain__*"]\n', settings]
    for name, definition in servers.items():
        lines.append(
            f"[mcp_servers.{name}]\ncommand = {json.dumps(definition['command'])}\nargs = {json.dumps(definition['args'])}\n"
        )
    world.write("~/.kitbag/settings.toml", "\n".join(lines))


def bring(world: World, **servers: dict[str, Any]) -> None:
    world.write(".mcp.json", json.dumps({"mcpServers": servers}))


def use(tool: str, text: str = "hi", call_id: str = "c1") -> Step:
    return Step(calls=((call_id, f"mcp__plain__{tool}", json.dumps({"text": text})),))


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    return tmp_path / "notes"


def test_its_tools_are_offered_and_called(world: World, notes: Path) -> None:
    own(world, plain=described(notes=str(notes)))
    house = House(world)
    house.ask("Hi", steps=[use("echo"), "Done."])
    assert "mcp__plain__echo" in house.tools()
    assert '<server-output server="plain" tool="echo">\necho heard hi\n</server-output>' in results(house)
    assert "mcp__" not in house.prompt()
    assert not any(is_alive(pid) for pid in started(notes))


def test_where_nobody_can_be_asked_a_call_is_refused_and_nothing_is_sent(world: World, notes: Path) -> None:
    own(world, plain=described(notes=str(notes)))
    world.write(
        "~/.kitbag/settings.toml",
        (world.home / ".kitbag/settings.toml").read_text().replace("mcp__plain__*", "mcp__other__*"),
    )
    house = House(world)
    house.ask("Hi", steps=[use("echo"), "Done."])
    assert "mcp__plain__echo is not allowed" in results(house)
    assert "call" not in notes.read_text()


@pytest.mark.parametrize("options", [{"mode": "plan"}, {"only_tools": ("Read",)}, {"agent": "Explore"}])
def test_D23_where_its_tools_can_t_be_used_it_is_not_even_started(
    world: World, notes: Path, options: dict[str, Any]
) -> None:
    own(world, plain=described(notes=str(notes)))
    house = House(world)
    house.ask("Hi", steps=[use("echo"), "Done."], **options)
    assert not any(name.startswith("mcp__") for name in house.tools())
    assert "not available" in results(house) or "no tool named" in results(house)
    assert not notes.exists()


def test_a_denied_tool_is_not_offered(world: World) -> None:
    own(world, plain=described(tools=["echo", "other"]))
    house = House(world)
    house.ask("Hi", no_tools=("mcp__plain__other",))
    assert [name for name in house.tools() if name.startswith("mcp__")] == ["mcp__plain__echo"]


def test_D01_a_project_s_server_is_not_started_before_trust_and_counted(world: World, notes: Path) -> None:
    bring(world, plain=described(notes=str(notes), canary=str(world.canary)))
    house = House(world)
    house.ask("Hi")
    assert not any(name.startswith("mcp__") for name in house.tools())
    assert "1 settings file of another tool omitted" in house.notices()
    assert ".mcp.json" in world.ok("trust", "show")
    assert not notes.exists()
    assert not world.canary.exists()
    house.ask("Hi", trust_workspace=True)
    assert "mcp__plain__echo" in house.tools()


def test_D05_one_that_has_changed_since_is_not_started(world: World, notes: Path) -> None:
    bring(world, plain=described(notes=str(notes)))
    trust_workspace(world.places(), check_trust(world.places()))
    bring(world, plain=described(notes=str(notes), canary=str(world.canary)))
    house = House(world)
    house.ask("Hi")
    assert not notes.exists()
    assert not world.canary.exists()
    assert "workspace changed" in house.notices()


def test_D05_one_that_the_agent_changes_during_the_run_is_not_started(world: World, notes: Path) -> None:
    own(world)
    bring(world, plain=described(notes=str(notes)))
    trust_workspace(world.places(), check_trust(world.places()))
    house = House(world)
    house.ask("Hi")  # what it offers is known from now on
    before = len(started(notes))
    server = described(notes=str(notes), canary=str(world.canary))

    async def go() -> None:
        model = Scripted(Script([Rule([use("echo"), Step(text="Done.")])]))
        async with asyncio.timeout(TEST_TIMEOUT), Agent(provider=model, directory=str(world.workspace)) as agent:
            bring(world, plain=server)
            async with agent.run("Use it.") as run:
                await run.wait()
        assert "has changed since the workspace was trusted" in str(model.requests[-1].messages)

    asyncio.run(go())
    assert len(started(notes)) == before
    assert not world.canary.exists()


def test_the_next_run_offers_its_tools_without_starting_it_and_starts_it_with_the_first_call(
    world: World, notes: Path
) -> None:
    own(world, plain=described(notes=str(notes)))
    house = House(world)
    house.ask("Hi")
    assert len(started(notes)) == 1
    house.ask("Hi")
    assert "mcp__plain__echo" in house.tools()
    assert len(started(notes)) == 1
    house.ask("Hi", steps=[use("echo"), "Done."])
    assert len(started(notes)) == 2
    assert "echo heard hi" in results(house)


def test_one_that_fails_is_a_notice_and_the_run_goes_on_with_the_others(world: World) -> None:
    own(world, broken=described(quits=3, says="no module named x"), plain=described())
    house = House(world)
    assert house.ask("Hi").status == "completed"
    assert "cannot connect to MCP server broken" in house.notices()
    assert "no module named x" in house.notices()
    assert "mcp__plain__echo" in house.tools()


def test_one_that_is_slow_is_a_notice_and_there_for_the_next_request(world: World, tmp_path: Path) -> None:
    own(world, "[mcp]\nwait = 0\n", plain=described(late=str(tmp_path / "now")))

    async def go() -> None:
        model = Scripted(Script([Rule([Step(text="Fine.")] * 2)]))
        async with asyncio.timeout(TEST_TIMEOUT), Agent(provider=model, directory=str(world.workspace)) as agent:
            async with agent.run("Hi") as run:
                notices = [str(event) async for event in run]
            assert "did not respond within 0 s" in str(notices)
            (tmp_path / "now").touch()
            assert agent.servers is not None
            await until_true(lambda: agent.servers and agent.servers.tools())
            async with agent.run("Hi again") as run:
                await run.wait()
        offered = [[tool.name for tool in request.tools] for request in model.requests]
        assert "mcp__plain__echo" not in offered[0]
        assert "mcp__plain__echo" in offered[1]
        assert model.requests[0].system == model.requests[1].system

    asyncio.run(go())


def test_leaving_while_one_still_connects_leaves_nothing(world: World, notes: Path) -> None:
    own(world, "[mcp]\nwait = 0\n", plain=described(silent=True, notes=str(notes)))
    house = House(world)
    assert house.ask("Hi").status == "completed"
    assert not any(is_alive(pid) for pid in started(notes))


def test_tools_that_change_are_offered_with_the_next_request(world: World) -> None:
    own(world, plain=described(tools=["changes"]))

    async def go() -> None:
        model = Scripted(Script([Rule([use("changes"), Step(text="Fine."), Step(text="Good.")])]))
        async with asyncio.timeout(TEST_TIMEOUT), Agent(provider=model, directory=str(world.workspace)) as agent:
            async with agent.run("Hi") as run:
                await run.wait()
            assert agent.servers is not None
            await until_true(lambda: agent.servers and len(agent.servers.tools()) == 2)
            async with agent.run("Hi again") as run:
                await run.wait()
        assert "mcp__plain__newcomer" in [tool.name for tool in model.requests[-1].tools]

    asyncio.run(go())


def test_a_thousand_tools_cost_what_a_few_do_and_each_can_be_found_and_called(world: World) -> None:
    tools = ["echo", "send_invoice", *(f"tool_{at}" for at in range(998))]
    own(world, "[mcp]\ncharacters = 20000\n", plain=described(tools=tools))
    house = House(world)
    search = Step(calls=(("f", "SearchTools", '{"query": "send invoice"}'),))
    house.ask("Hi", "tool_77 please", steps=[search, use("tool_500"), "Done.", "Done."])
    offered = [[spec.name for spec in request.tools if "mcp__" in spec.name] for request in house.requests]
    assert offered[0] == []
    assert "mcp__plain__send_invoice" in offered[1]
    assert "tool_500 heard hi" in results(house)
    assert "mcp__plain__tool_77" in offered[-1]
    assert len(offered[-1]) < 20
    assert "omitted" not in house.notices()


def test_twenty_tools_that_do_not_fit_are_omitted_and_it_is_said(world: World) -> None:
    own(world, "[mcp]\ncharacters = 500\n", plain=described(tools=[f"tool_{at}" for at in range(20)]))
    house = House(world)
    house.ask("Hi")
    assert 0 < sum(name.startswith("mcp__") for name in house.tools()) < 20
    assert "of 20 tools of MCP server plain omitted" in house.notices()


def test_a_prompt_of_a_server_is_a_command(world: World) -> None:
    own(world, plain=described())
    house = House(world)
    house.ask("/mcp__plain__greet Ann 'very warmly indeed'")
    said = house.requests[-1].messages[-1].text
    assert "Greet Ann very warmly indeed." in said
    assert said.count("</server-output>") == 1
    with pytest.raises(UsageError, match="missing who"):
        house.ask("/mcp__plain__greet")
    house.ask("/mcp__plain__nothing")
    assert "/mcp__plain__nothing" in house.requests[-1].messages[-1].text


def test_an_agent_that_names_a_server_has_only_that_one(world: World, notes: Path) -> None:
    world.write(
        "~/.kitbag/agents/helper.md", "---\nname: helper\ndescription: Helps.\nmcpServers: [plain, gone]\n---\nHelp.\n"
    )
    own(world, plain=described(notes=str(notes)), other=described())
    house = House(world)
    asked = Step(calls=(task(subagent_type="helper"),))
    house.ask(
        "Ask.", steps=script([asked, "Done."], [use("echo", "from the agent"), "Helped."]), ask=(), mode="autonomous"
    )
    agent = next(request for request in house.requests if "## Your Task" in request.system[-1].text)
    offered = [tool.name for tool in agent.tools if tool.name.startswith("mcp__")]
    assert offered == ["mcp__plain__echo"]
    assert "from the agent" in notes.read_text()
    assert len(started(notes)) == 1  # one for both of them


def test_D46_it_gets_no_secret_and_what_it_says_of_one_is_not_kept(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "CANARY_SECRET_abcdefgh")
    own(world, plain=described(tools=["environment"], says="CANARY_SECRET_abcdefgh"))
    world.write(
        "~/.kitbag/settings.toml",
        (world.home / ".kitbag/settings.toml").read_text()
        + '\n[mcp_servers.plain.env]\nGIVEN_TOKEN = "CANARY_SECRET_ijklmnop"\n',
    )
    house = House(world)
    house.ask("Hi", steps=[use("environment"), "Done."])
    assert "CANARY_SECRET_abcdefgh" not in results(house)
    assert "GIVEN_TOKEN" in results(house)
    kept = b"".join(path.read_bytes() for path in (world.home / ".kitbag/state").rglob("*") if path.is_file())
    assert b"CANARY_SECRET_abcdefgh" not in kept
    assert b"CANARY_SECRET_ijklmnop" not in kept
    log = (world.home / ".kitbag/state/servers/plain.log").read_text()
    assert "[REDACTED" in log


def test_what_a_program_changes_in_the_workspace_can_be_taken_back(world: World) -> None:
    own(world, plain=described(tools=["writes"]))
    target = world.write("kept.txt", "before")
    house = House(world)
    house.ask("Hi", steps=[use("writes", str(target)), "Done."])
    assert target.read_text() == "by the server"
    shown = world.json("undo", "--list")
    assert [file["path"] for file in shown["messages"][0]["files"]] == [str(target)]


def test_a_run_that_is_cancelled_in_a_call_says_so_to_the_server_and_ends_it(world: World, notes: Path) -> None:
    own(world, plain=described(tools=["hang"], notes=str(notes)))

    async def go() -> None:
        model = Scripted(Script([Rule([use("hang"), Step(text="Never.")])]))
        async with asyncio.timeout(TEST_TIMEOUT), Agent(provider=model, directory=str(world.workspace)) as agent:
            async with agent.run("Hang.") as run:
                await until_true(lambda: notes.exists() and "call hang" in notes.read_text())
                run.cancel()
                assert (await run.wait()).status == "cancelled"
            await until_true(lambda: "cancelled" in notes.read_text())

    asyncio.run(go())
    assert not any(is_alive(pid) for pid in started(notes))


def test_leaving_before_the_run_has_begun_leaves_nothing(world: World, notes: Path) -> None:
    own(world, "[mcp]\nwait = 30\n", plain=described(silent=True, notes=str(notes)))

    async def begin() -> None:
        async with Agent(provider=Scripted(Script([])), directory=str(world.workspace)):
            raise AssertionError("it can't have begun")

    async def go() -> None:
        async with asyncio.timeout(TEST_TIMEOUT):
            beginning = asyncio.create_task(begin())
            await until_true(lambda: started(notes))
            beginning.cancel()
            with pytest.raises(asyncio.CancelledError):
                await beginning
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(go())
    assert not any(is_alive(pid) for pid in started(notes))


class TestOfAnAgent:
    """Servers that an agent's file describes."""

    def write(
        self, world: World, server: dict[str, Any], head: str = "", place: str = "~/.kitbag/agents", name: str = "plain"
    ) -> None:
        servers = json.dumps([{name: server}])  # which is YAML too
        text = f"---\nname: helper\ndescription: Helps.\nmcpServers: {servers}\n{head}---\nHelp.\n"
        world.write(f"{place}/helper.md", text)

    def delegated(self, house: House, *steps: Any, **options: Any) -> list[str]:
        """Asks the agent for something; answers what it was offered of servers."""
        asked = Step(calls=(task(subagent_type="helper"),))
        house.ask("Ask.", steps=script([asked, "Done."], [*steps, "Helped."]), mode="autonomous", **options)
        [agent, *_] = [one for one in house.requests if "## Your Task" in one.system[-1].text]
        return [tool.name for tool in agent.tools if tool.name.startswith("mcp__")]

    def test_it_is_there_for_that_agent_alone_and_ends_with_it(self, world: World, notes: Path) -> None:
        own(world, shared=described())
        self.write(world, described(notes=str(notes)))
        house = House(world)
        offered = self.delegated(house, use("echo", "from the agent"))
        assert sorted(offered) == ["mcp__plain__echo", "mcp__shared__echo"]
        assert "call echo" in notes.read_text()
        assert len(started(notes)) == 1
        assert not is_alive(started(notes)[0])
        mains = [one for one in house.requests if "## Your Task" not in one.system[-1].text]
        assert {tool.name for one in mains for tool in one.tools if tool.name.startswith("mcp__")} == {
            "mcp__shared__echo"
        }

    def test_it_ends_with_the_agent_and_not_with_the_run(self, world: World, notes: Path) -> None:
        own(world)
        self.write(world, described(notes=str(notes)))
        alive: list[bool] = []

        def last(_: Any) -> Step:
            alive.extend(map(is_alive, started(notes)))
            return Step(text="Done.")

        house = House(world)
        asked = Step(calls=(task(subagent_type="helper"),))
        steps = Script([Rule([use("echo"), Step(text="Helped.")], system="## Your Task"), Rule([asked, last])])
        house.ask("Ask.", steps=steps, mode="autonomous")
        assert alive == [False]

    def test_an_agent_that_a_person_talks_to_has_it_with_its_prompts(self, world: World, notes: Path) -> None:
        own(world)
        self.write(world, described(notes=str(notes)))
        house = House(world)
        house.ask("Hi", steps=[use("echo"), "Done."], agent="helper")
        assert "mcp__plain__echo" in house.tools()
        assert "echo heard hi" in results(house)
        house.ask("/mcp__plain__greet Ann warmly", agent="helper")
        assert "Greet Ann warmly." in house.requests[-1].messages[-1].text
        house.ask("Hi")
        assert not any(name.startswith("mcp__") for name in house.tools())
        assert not any(is_alive(pid) for pid in started(notes))

    def test_agents_that_it_starts_do_not_have_it(self, world: World, notes: Path) -> None:
        own(world)
        self.write(world, described(notes=str(notes)))
        world.write("~/.kitbag/agents/other.md", "---\nname: other\ndescription: Others.\n---\nOther.\n")
        house = House(world)
        asked = Step(calls=(task(subagent_type="other"),))
        house.ask("Ask.", steps=script([asked, "Done."], ["Helped."]), mode="autonomous", agent="helper")
        [other] = [one for one in house.requests if "## Your Task" in one.system[-1].text]
        assert not any(tool.name.startswith("mcp__") for tool in other.tools)

    def test_with_names_beside_it_the_agent_has_these_and_its_own(self, world: World) -> None:
        own(world, one=described(), two=described())
        servers = json.dumps(["one", {"plain": described()}])
        world.write(
            "~/.kitbag/agents/helper.md",
            f"---\nname: helper\ndescription: Helps.\nmcpServers: {servers}\n---\nHelp.\n",
        )
        assert sorted(self.delegated(House(world))) == ["mcp__one__echo", "mcp__plain__echo"]

    def test_of_two_of_the_user_s_with_one_name_the_agent_has_its_own(self, world: World, notes: Path) -> None:
        own(world, plain=described(tools=["other"]))
        self.write(world, described(notes=str(notes)))
        assert self.delegated(House(world)) == ["mcp__plain__echo"]

    def test_a_project_s_does_not_pass_for_one_of_the_user_s(self, world: World, notes: Path) -> None:
        own(world, plain=described(tools=["other"]))
        self.write(world, described(notes=str(notes)), place=".claude/agents")
        assert self.delegated(House(world), trust_workspace=True) == ["mcp__plain__other"]
        assert not notes.exists()

    def test_D01_a_project_s_is_not_started_before_trust_and_the_question_names_it(
        self, world: World, notes: Path
    ) -> None:
        own(world)
        server = described(notes=str(notes), canary=str(world.canary))
        self.write(world, server, place=".claude/agents")
        assert f"plain: {sys.executable} -S -E" in world.ok("trust", "show")
        house = House(world)
        asked = Step(calls=(task(subagent_type="helper"),))
        house.ask("Ask.", steps=script([asked, "Done."], ["Helped."]), mode="autonomous")
        assert not notes.exists()
        assert not world.canary.exists()
        assert self.delegated(house, trust_workspace=True) == ["mcp__plain__echo"]

    def test_D05_one_that_changed_since_it_was_trusted_is_not_started(self, world: World, notes: Path) -> None:
        own(world)
        self.write(world, described(notes=str(notes)), place=".claude/agents")
        trust_workspace(world.places(), check_trust(world.places()))
        house = House(world)
        assert self.delegated(house, use("echo")) == ["mcp__plain__echo"]
        before = len(started(notes))
        server = described(notes=str(notes), canary=str(world.canary))

        async def go() -> None:
            asked = Step(calls=(task(subagent_type="helper"),))
            model = Scripted(script([asked, "Done."], [use("echo"), "Helped."]))
            options = Options(directory=str(world.workspace), mode="autonomous")
            async with asyncio.timeout(TEST_TIMEOUT), Agent(provider=model, options=options) as agent:
                assert agent.environment.library.find_agent("helper").inline_servers
                self.write(world, server, place=".claude/agents")
                async with agent.run("Use it.") as run:
                    await run.wait()
            assert "has changed since the workspace was trusted" in str([one.messages for one in model.requests])

        asyncio.run(go())
        assert len(started(notes)) == before
        assert not world.canary.exists()

    @pytest.mark.parametrize(
        ("head", "options"),
        [
            ("", {"mode": "plan"}),
            ("permissionMode: plan\n", {}),
            ("tools: Read\n", {}),
            ("", {"only_tools": ("Read",)}),
        ],
    )
    def test_D23_where_its_tools_can_t_be_used_it_is_not_even_started(
        self, world: World, notes: Path, head: str, options: dict[str, Any]
    ) -> None:
        own(world)
        self.write(world, described(notes=str(notes)), head)
        house = House(world)
        house.ask("Hi", steps=[use("echo"), "Done."], agent="helper", **options)
        assert not any(name.startswith("mcp__") for name in house.tools())
        assert not notes.exists()
        assert ("do not include it" in house.notices()) == head.startswith("tools")

    def test_a_list_of_tools_can_name_its_tools(self, world: World) -> None:
        own(world)
        self.write(world, described(tools=["echo", "other"]), "tools: Read, mcp__plain__echo\n")
        assert self.delegated(House(world)) == ["mcp__plain__echo"]

    def test_D46_what_its_description_holds_is_not_kept(self, world: World) -> None:
        own(world)
        secret = "quiet/canary/word"  # looks like none, so that it is known by the description alone
        self.write(world, {**described(), "env": {"GIVEN_TOKEN": secret}})
        house = House(world)
        self.delegated(house, use("echo", f"they say {secret}."))
        assert f"echo heard they say {secret}." in str([one.messages for one in house.requests])
        kept = b"".join(path.read_bytes() for path in (world.home / ".kitbag/state").rglob("*") if path.is_file())
        assert b"they say [REDACTED]" in kept
        assert secret.encode() not in kept

    def test_one_that_fails_is_a_notice_and_the_agent_goes_on(self, world: World) -> None:
        own(world)
        self.write(world, described(quits=3, says="no module named x"))
        house = House(world)
        assert house.ask("Hi", agent="helper").status == "completed"
        assert "no module named x" in house.notices()
        self.write(world, {"command": "x", "surprise": "y"})
        house.ask("Hi", agent="helper")
        assert "the server plain of the agent helper is not used: unknown key `surprise`" in house.notices()

    def test_in_a_copy_of_the_workspace_a_program_is_not_started(self, repository: World, notes: Path) -> None:
        own(repository)
        self.write(repository, described(notes=str(notes)), "isolation: worktree\n")
        assert self.delegated(House(repository)) == []
        assert not notes.exists()


def test_an_agent_with_only_a_missing_server_starts_and_says_so(world: World) -> None:
    world.write("~/.copilot/agents/jira.agent.md", "---\ndescription: Tracks.\ntools: ['atlassian']\n---\nTrack.\n")
    found = world.run("agents", "run", "jira", "say hello", "--model", "offline")
    assert found.returncode == 0, found.stderr
    assert "not configured: atlassian" in found.stderr
