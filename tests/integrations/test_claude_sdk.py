"""Options for the Claude Agent SDK, and the real SDK with its own CLI in front of a scripted model."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from conftest import World
from kitbag.errors import NotFoundError, UsageError
from kitbag.integrations.claude_sdk import OTHER_TOOLS, options
from kitbag.testing import ModelServer, Rule, Script, Step
from support import needs
from support.waiting import TEST_TIMEOUT

needs.package("claude_agent_sdk")


@pytest.fixture(autouse=True)
def at_home(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(world.home))
    monkeypatch.setenv("KITBAG_HOME", str(world.home / ".kitbag"))
    monkeypatch.chdir(world.workspace)


def agent(world: World, name: str, fields: str = "", body: str = "Help.") -> None:
    world.write(f"~/.kitbag/agents/{name}.md", f"---\nname: {name}\ndescription: The {name}.\n{fields}---\n{body}\n")


def prompt_of(made: Any) -> str:
    return made.system_prompt if isinstance(made.system_prompt, str) else made.system_prompt["append"]


class TestThePrompt:
    def test_it_has_the_catalog_and_no_body(self, world: World) -> None:
        world.skill("~/.kitbag/skills", "greet", description="How to greet.", body="SECRET body.")
        made = options()
        assert "- greet: How to greet." in prompt_of(made)
        assert "load_skill" in prompt_of(made)
        assert "SECRET" not in str(made)

    def test_it_begins_with_the_caller_s_words_or_stands_behind_claude_code_s(self, world: World) -> None:
        world.skill("~/.kitbag/skills", "greet")
        assert prompt_of(options("You are a pirate.")).startswith("You are a pirate.\n\n<available-skills>")
        made = options(claude_code=True)
        assert made.system_prompt["preset"] == "claude_code"  # type: ignore[index,call-overload]
        assert "- greet:" in prompt_of(made)

    def test_a_workspace_brings_nothing_until_it_is_trusted(self, world: World) -> None:
        world.skill(".kitbag/skills", "local", description="LOCAL words.")
        world.write(".kitbag/agents/inner.md", "---\nname: inner\ndescription: INNER words.\n---\nDo it.\n")
        dark = options()
        assert "LOCAL" not in str(dark)
        assert "INNER" not in str(dark)
        assert "is not trusted" in prompt_of(dark)
        bright = options(trust_workspace=True)
        assert "LOCAL words." in prompt_of(bright)
        assert bright.agents is not None
        assert bright.agents["inner"].description == "INNER words."

    def test_a_persona_that_does_not_exist_is_told(self) -> None:
        with pytest.raises(NotFoundError):
            options(persona="nobody")


class TestToolsAndServers:
    def test_the_tools_for_skills_are_allowed_and_those_that_the_sdk_has_itself_are_not(self, world: World) -> None:
        made = options(allowed_tools=["Read"], disallowed_tools=["WebFetch"])
        assert {"mcp__kitbag__load_skill", "mcp__kitbag__list_loaded_skills", "Read"} <= set(made.allowed_tools)
        assert {f"mcp__kitbag__{tool}" for tool in OTHER_TOOLS} | {"Skill", "WebFetch"} <= set(made.disallowed_tools)

    def test_the_server_is_here_or_a_program_and_others_stay(self, world: World) -> None:
        other = {"type": "http", "url": "http://x.test"}
        made = options(mcp_servers={"other": other}, in_process=False, trust_workspace=True)
        assert isinstance(made.mcp_servers, dict)
        assert made.mcp_servers["other"] == other
        program: Any = made.mcp_servers["kitbag"]
        assert program["args"][:3] == ["-m", "kitbag", "mcp"]
        assert "--trust-workspace" in program["args"]
        assert isinstance(options().mcp_servers, dict)
        assert options().mcp_servers["kitbag"]["type"] == "sdk"  # type: ignore[index,typeddict-item]
        assert made.strict_mcp_config
        assert made.setting_sources == []

    @pytest.mark.parametrize(
        "wrong", [{"mcp_servers": {"kitbag": {}}}, {"mcp_servers": "file.json"}, {"system_prompt": "x"}]
    )
    def test_what_is_made_here_can_t_be_given(self, wrong: dict[str, Any]) -> None:
        with pytest.raises(UsageError):
            options(**wrong)


class TestAgents:
    def definition(self, world: World, fields: str) -> Any:
        agent(world, "helper", fields)
        made = options()
        return (made.agents or {}).get("helper")

    @pytest.mark.parametrize(
        ("fields", "expected"),
        [
            ("", {"tools": None, "model": "inherit", "description": "The helper."}),
            (
                "tools: Read, Grep\nmodel: sonnet\nmaxTurns: 7\n",
                {"tools": ["Read", "Grep"], "model": "sonnet", "maxTurns": 7},
            ),
            ("model: anthropic/claude-opus-4-5\n", {"model": "claude-opus-4-5"}),
            ("model: gpt-5\n", {"model": None}),
            ("disallowedTools: Bash\n", {"tools": None, "disallowedTools": ["Bash"]}),
            ("tools: Read, Bash(git log:*)\n", {"tools": ["Read"], "disallowedTools": ["Bash"]}),
            ("permissionMode: plan\n", {"permissionMode": "plan"}),
            ("permissionMode: bypassPermissions\n", {"permissionMode": None}),
            ("permissionMode: locked\n", {"permissionMode": "dontAsk"}),
        ],
    )
    def test_its_file_becomes_a_definition_with_no_more_rights(self, world: World, fields: str, expected: Any) -> None:
        found = self.definition(world, fields)
        assert {key: getattr(found, key) for key in expected} == expected

    def test_one_without_tools_is_left_out(self, world: World) -> None:
        assert self.definition(world, "tools: Grpe\n") is None

    def test_one_that_may_load_skills_has_the_tools_and_the_catalog_for_it(self, world: World) -> None:
        world.skill("~/.kitbag/skills", "greet", description="How to greet.")
        found = self.definition(world, "tools: Read, Skill\n")
        assert found.tools[:2] == ["Read", "mcp__kitbag__load_skill"]
        assert "- greet: How to greet." in found.prompt

    def test_skills_that_it_begins_with_are_in_its_prompt(self, world: World) -> None:
        world.skill("~/.kitbag/skills", "greet", body="Say GRUEZI.")
        assert "Say GRUEZI." in self.definition(world, "skills: [greet]\n").prompt

    def test_agents_beside_skills_are_there_and_the_caller_s_own_too(self, world: World) -> None:
        from claude_agent_sdk import AgentDefinition

        world.write(
            "~/.kitbag/skills/crew/_subagents/reporter.yaml",
            "name: reporter\ndescription: Reports.\nprompt: Report.\n",
        )
        world.write("~/.kitbag/personas/boss.yaml", "name: boss\nteam: crew\n")
        made = options(team="crew", agents={"mine": AgentDefinition("Mine.", "Do.")})
        assert made.agents is not None
        assert {"reporter", "mine"} <= set(made.agents)
        assert "Agent" in made.allowed_tools


@pytest.mark.parametrize("in_process", [True, False])
def test_the_real_cli_loads_a_skill_and_starts_an_agent(world: World, tmp_path: Path, in_process: bool) -> None:
    from claude_agent_sdk import ResultMessage, query

    world.skill("~/.kitbag/skills", "greet", description="How to greet.", body="Say GRUEZI to everyone.")
    agent(world, "helper", "tools: Read\n", "You are the HELPER of this test.")
    load = ("c1", "mcp__kitbag__load_skill", json.dumps({"skill_name": "greet", "reason": "to greet"}))
    ask = {"subagent_type": "helper", "prompt": "Help me.", "description": "helps", "run_in_background": False}
    script = Script(
        [
            Rule([Step(text="THE HELPER HELPED")], system="You are the HELPER"),
            Rule([Step(text="All done.")] * 9, last="THE HELPER HELPED"),
            Rule([Step(calls=(("c2", "Agent", json.dumps(ask)),))] * 9, last="Say GRUEZI"),
            Rule([Step(calls=(load,))] * 9),
        ]
    )

    async def go(server: ModelServer) -> list[Any]:
        quiet = {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1", "IS_SANDBOX": "1"}
        env = {**server.environment(), **quiet, "HOME": str(world.home), "CLAUDE_CONFIG_DIR": str(tmp_path / "claude")}
        made = options(in_process=in_process, env=env, model="claude-sonnet-4-5", max_turns=6)
        async with asyncio.timeout(TEST_TIMEOUT):
            return [message async for message in query(prompt="Greet me.", options=made)]

    with ModelServer(script) as server:
        messages = asyncio.run(go(server))
    ended = next(message for message in messages if isinstance(message, ResultMessage))
    assert (ended.result, ended.is_error) == ("All done.", False)
    first, *_, last = [
        request for request in server.requests if "HELPER of this test" not in json.dumps(request.body["system"])
    ]
    assert "- greet: How to greet." in json.dumps(first.body["system"])
    assert "mcp__kitbag__load_skill" in [tool["name"] for tool in first.body["tools"]]
    assert not {"mcp__kitbag__Task", "Skill"} & {tool["name"] for tool in first.body["tools"]}
    assert "GRUEZI" not in first.raw.decode()
    assert "## Skill Loaded: greet" in last.raw.decode()
    assert "THE HELPER HELPED" in last.raw.decode()
    helper = next(request for request in server.requests if "HELPER of this test" in json.dumps(request.body["system"]))
    assert [tool["name"] for tool in helper.body["tools"]] == ["Read"]
    if in_process:
        assert first.raw.decode().count("How to greet.") <= 2  # in the prompt, and briefly with the tool
