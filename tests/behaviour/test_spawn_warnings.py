"""Whatever an agent names and does not get is told to whoever starts it, by every way of starting one."""

import json
from typing import Any

import pytest

from conftest import World
from kitbag.testing import ModelServer, Rule, Script, Step
from support import needs
from support.connected import at_home, run, scripted, served, text
from support.delegating import AN_AGENT, task
from support.headless import answer, ask, point

__all__ = ["at_home"]  # a fixture that every test here uses

NAMED = ("'missing-one'", "'hidden-one'", "'huge-one'", "Grepp", "mcp__nowhere__look", "dev.yaml:3: `skills`")
"""A piece of each warning: unknown, invisible and over-budget skill, tools that do not exist, the persona's name."""


@pytest.fixture
def odd(world: World) -> World:
    """An agent and a persona that name what they do not get."""
    head = "name: reviewer\ndescription: Reviews.\ntools: Read, Grepp, mcp__nowhere__look\n"
    world.write(
        "~/.kitbag/agents/reviewer.md", f"---\n{head}skills: [missing-one, hidden-one, huge-one]\n---\nReview.\n"
    )
    world.skill("~/.kitbag/skills", "hidden-one", disable_model_invocation="true")
    world.skill("~/.kitbag/skills", "huge-one", body="Long words. " * 500)
    world.write("~/.kitbag/personas/dev.yaml", "name: dev\ndescription: Develops.\nskills: [no-such]\n")
    rules = 'allow = ["Task(reviewer)"]\n'
    world.write("~/.kitbag/settings.toml", f'persona = "dev"\n[budget]\nskills = 300\n[permissions]\n{rules}')
    return world


def model(*main: Any) -> ModelServer:
    steps = [Step(text=one) if isinstance(one, str) else one for one in main]
    return ModelServer(Script([Rule([Step(text="Looks fine.")] * 9, system=AN_AGENT), Rule(steps)]))


def spawn(**more: Any) -> Step:
    return Step(calls=(task(subagent_type="reviewer", prompt="Review it.", **more),))


def lacking(shown: str, *pieces: str) -> list[str]:
    return [piece for piece in pieces or NAMED if piece not in shown]


def of_tasks(world: World) -> str:
    """What is recorded with the only task, as both forms of `tasks show` print it."""
    [one] = world.json("tasks", "list")
    recorded = "\n".join(world.json("tasks", "show", one["id"])["warnings"])
    assert lacking(world.ok("tasks", "show", one["id"])) == lacking(recorded)
    return recorded


@pytest.mark.parametrize("background", [False, True])
def test_warnings_of_a_task_reach_the_model_that_started_it_and_the_person_once(odd: World, background: bool) -> None:
    replies = [spawn(run_in_background=background), "Done.", *(["It ended."] if background else [])]
    with model(*replies) as server:
        point(odd, server)
        found = answer(odd, "Ask.")
        seen = [json.dumps(one.body["messages"]) for one in server.requests if AN_AGENT not in str(one.body["system"])]
    assert found["code"] == 0, found
    told = "\n".join(notice["text"] for notice in found["notices"])
    assert lacking(told) == []
    assert told.count("no skill named") == 1, told
    assert lacking(seen[-1].partition("Warning: ")[2]) == [], "the result, or the notification, has them"
    at_once = [piece for piece in NAMED if piece != "mcp__nowhere__look"]  # servers are opened by the worker
    assert lacking(seen[1].partition("Warning: ")[2], *at_once) == []
    assert lacking(of_tasks(odd)) == []


def test_warnings_reach_stderr_of_a_prompt_with_an_agent_and_of_the_command_that_runs_one(odd: World) -> None:
    with model(spawn(), "Done.", *["Fine."] * 9) as server:
        point(odd, server)
        assert lacking(ask(odd, "Ask.").stderr) == []
        assert lacking(of_tasks(odd)) == []
        assert lacking(ask(odd, "Ask.", "--agent", "reviewer").stderr) == []
        as_agent = answer(odd, "Ask.", "--agent", "reviewer")
        assert lacking("\n".join(notice["text"] for notice in as_agent["notices"])) == []
        done = odd.run("agents", "run", "reviewer", "Review it.")
        assert (done.returncode, done.stdout, lacking(done.stderr)) == (0, "Looks fine.\n", [])
        assert done.stderr.count("dev.yaml") == 1, done.stderr
        found = odd.json("agents", "run", "reviewer", "Review it.")
        assert lacking("\n".join(notice["text"] for notice in found["notices"])) == []
        started = odd.run("agents", "run", "reviewer", "Review it.", "--background")
        assert lacking(started.stderr, *(piece for piece in NAMED if piece != "mcp__nowhere__look")) == []
        waited = odd.run("tasks", "output", started.stdout.strip(), "--wait", "50")
        assert (waited.returncode, lacking(waited.stderr)) == (0, [])


def test_warnings_reach_the_chat(odd: World) -> None:
    with model(spawn(), "Done.") as server:
        point(odd, server)
        done = odd.run("--persona", "dev", stdin="Ask.\n")
    shown = done.stdout + done.stderr
    assert "Done." in shown
    assert lacking(shown) == []


def test_warnings_reach_an_mcp_client(odd: World) -> None:
    async def work() -> None:
        script = scripted(odd, "Looks fine.")
        async with served(odd, model=script, mode="autonomous") as server, server.client() as client:
            said = await text(client, "Task", subagent_type="reviewer", prompt="Review it.")
            assert lacking(said.partition("Warning: ")[2]) == []
            started = await text(client, "Task", subagent_type="reviewer", prompt="Review.", run_in_background=True)
            task_id = started.partition("Task: ")[2].partition("\n")[0]
            assert "'missing-one'" in started
            said = await text(client, "TaskOutput", task_id=task_id, timeout=50_000)
            assert lacking(said.partition("Warning: ")[2]) == []

    run(work)


def test_a_persona_that_does_not_exist_is_reported_when_it_is_set_and_at_each_start(world: World) -> None:
    world.write("~/.kitbag/personas/dev.yaml", "name: dev\ndescription: Develops.\n")
    done = world.run("config", "set", "persona", "deev")
    assert (done.returncode, "deev" in done.stdout) == (0, True)
    assert "no persona named 'deev'" in done.stderr
    assert "dev" in done.stderr
    assert world.json("config", "set", "persona", "dev")["warnings"] == []
    [warning] = world.json("config", "set", "persona", "deev")["warnings"]
    assert "no persona named 'deev'" in warning
    with model(*["Fine."] * 9) as server:
        point(world, server)
        found = answer(world, "Hello.")
        assert any("no persona named 'deev'" in notice["text"] for notice in found["notices"])
        assert "no persona named 'deev'" in ask(world, "Hello.").stderr
        assert "no persona named 'deev'" in world.run("agents", "run", "Explore", "Hello.").stderr
        shown = world.run(stdin="Hello.\n")
        assert "no persona named 'deev'" in shown.stdout + shown.stderr


def test_a_packed_task_that_breaks_its_output_contract_is_told_and_is_no_success(world: World) -> None:
    world.write("~/task.yaml", "id: T1\ntitle: Count things\ndescription: Count all things.\n")
    arguments = ("agents", "run", "general-purpose", "--pack", str(world.home / "task.yaml"))
    missing = "not as required: .kitbag/output/MANIFEST.jsonl was not written"
    with model("Never.") as server:
        point(world, server)
        done = world.run(*arguments)
        assert (done.returncode, done.stdout) == (1, "Looks fine.\n"), done.stderr
        assert f"warning: {missing}" in done.stderr
        found = world.run(*arguments, "--json")
        assert found.returncode == 1
        assert missing in [notice["text"] for notice in json.loads(found.stdout)["notices"]]
        started = world.run(*arguments, "--background").stdout.strip()
        waited = world.run("tasks", "output", started, "--wait", "50")
        assert (waited.returncode, missing in waited.stderr) == (6, True), waited.stderr
    assert missing in world.json("tasks", "show", started)["warnings"]


@pytest.mark.parametrize("options", [("--background",), ("--pack", "T1"), ("--pack", "T1", "--background")])
def test_what_is_resolved_when_the_agent_starts_is_no_warning_before_it(world: World, options: tuple[str, ...]) -> None:
    needs.bubblewrap()
    world.skill("~/.kitbag/skills", "speaks", body="It says !`echo hello-there`.")
    world.write("~/.kitbag/agents/reviewer.md", "---\nname: reviewer\ndescription: R.\nskills: speaks\n---\nReview.\n")
    world.write("~/.kitbag/settings.toml", '[permissions]\nallow = ["Bash(echo:*)"]\n')
    world.write(".kitbag/tasks/T1.md", "---\nid: T1\ntitle: Look\n---\nLook at it.\n")
    with model("Never.") as server:
        point(world, server)
        started = world.run("agents", "run", "reviewer", "Review it.", *options)
        shown = started.stdout + started.stderr
        if "--background" in options:
            world.run("tasks", "output", started.stdout.strip(), "--wait", "50")
        assert "It says hello-there." in str(server.requests[0].body)
    [one] = world.json("tasks", "list")
    assert "stays as written" not in shown + "\n".join(world.json("tasks", "show", one["id"])["warnings"])


def test_an_agent_that_needs_an_unknown_skill_fails_in_the_foreground_and_in_the_background(world: World) -> None:
    world.skill("~/.kitbag/skills", "style")
    with ModelServer(Script([Rule([Step(text="I can't.\nneed skill: stile")] * 9)])) as server:
        point(world, server)
        done = world.run("agents", "run", "Explore", "Format it.")
        assert (done.returncode, done.stdout) == (7, "I can't.\nneed skill: stile\n")
        assert "Explore: failed: the agent needs the skill 'stile'" in done.stderr
        assert "did you mean style?" in done.stderr
        started = world.run("agents", "run", "Explore", "Format it.", "--background").stdout.strip()
        waited = world.run("tasks", "output", started, "--wait", "50")
        assert (waited.returncode, "did you mean style?" in waited.stderr) == (6, True)
    assert "did you mean style?" in world.json("tasks", "show", started)["error"]


@pytest.mark.parametrize("fork", ["", "context: fork\n"])
def test_what_a_skill_leaves_unresolved_reaches_the_person_once_whoever_loads_it(world: World, fork: str) -> None:
    world.write(
        "~/.kitbag/skills/style/SKILL.md", f"---\nname: style\ndescription: S.\n{fork}---\nUse {{{{WIDTH}}}}.\n"
    )
    world.write("~/.kitbag/agents/writer.md", "---\nname: writer\ndescription: W.\ntools: Skill, Task\n---\nWrite.\n")
    world.write("~/.kitbag/settings.toml", '[permissions]\nallow = ["Skill", "Task"]\n')
    load = Step(calls=(("s1", "Skill", '{"skill": "style"}'),))
    writer = Rule([load, Step(text="Done.")], system="Agent Type: writer")
    others = [Rule([Step(text="Ok.")] * 9, system=AN_AGENT), Rule([Step(text="Ok.")], first="^<skill|^I ran the skill")]
    with ModelServer(Script([writer, *others, Rule([load, Step(text="Done.")])])) as server:
        point(world, server)
        told = [answer(world, prompt)["notices"] for prompt in ("/style", "Format it.")]
        ran = world.json("agents", "run", "writer", "Format it.")["notices"]
    for notices in (*told, ran):
        assert [one["text"].count("SKILL.md:") for one in notices if "no value for {{WIDTH}}" in one["text"]] == [1]


def test_an_agent_at_the_top_that_asks_for_what_it_lacks_is_no_success(world: World) -> None:
    world.skill("~/.kitbag/skills", "style")
    with ModelServer(Script([Rule([Step(text="I can't.\nneed skill: stile\nneed skill: style")] * 9)])) as server:
        point(world, server)
        done = ask(world, "Format it.", "--agent", "Explore", "--output-format", "json")
        assert ask(world, "Format it.").returncode == 0, "anyone else may speak of it"
    told = json.loads(done.stdout)
    assert (done.returncode, told["status"]) == (7, "failed")
    assert [(one["text"], one["fix"]) for one in told["notices"]] == [
        ("the agent needs the skill 'stile': no skill named 'stile'", "did you mean style?"),
        ("the agent needs the skill 'style'", "invoke it with /style, or add it to `skills:` of the agent"),
    ]


def test_a_skill_that_a_rule_denies_is_not_preloaded_and_is_reported(world: World) -> None:
    world.skill("~/.kitbag/skills", "style", body="Tabs forever.")
    world.skill("~/.kitbag/skills", "words", body="Plain words.")
    world.write(
        "~/.kitbag/agents/writer.md", "---\nname: writer\ndescription: Writes.\nskills: style, words\n---\nWrite."
    )
    world.ok("config", "set", "permissions.deny", '["Skill(style)"]')
    with model("Never.") as server:
        point(world, server)
        done = world.run("agents", "run", "writer", "Write it.")
        as_agent = ask(world, "Write it.", "--agent", "writer")
        systems = [json.dumps(one.body["system"]) for one in server.requests]
    for system, stderr in zip(systems, (done.stderr, as_agent.stderr), strict=True):
        assert ("Plain words." in system, "Tabs forever." in system) == (True, False)
        assert "the skill 'style' is not preloaded: your rules deny it" in stderr


def test_tools_that_leave_an_agent_without_any_are_named_with_what_to_add(world: World) -> None:
    with model(Step(calls=(task(),)), "Done.") as server:
        point(world, server)
        done = answer(world, "Ask.", "--allowed-tools", "Task")
        result = json.dumps(server.requests[-1].body["messages"])
    assert "--allowed-tools leaves the agent Explore without tools" in result
    assert "Add tools it can use: Read, Glob, Grep" in result
    assert "builtin" not in result, "its file is not to blame"
    assert any("--allowed-tools applies to agents too" in notice["text"] for notice in done["notices"])
    assert world.json("tasks", "list") == [], "nothing was started"
    typo = world.write("~/.kitbag/agents/typo.md", "---\nname: typo\ndescription: Errs.\ntools: Grepp\n---\nErr.\n")
    refused = world.run("agents", "run", "typo", "Do it.")
    assert (refused.returncode, "it names Grepp" in refused.stderr, str(typo) in refused.stderr) == (6, True, True)
