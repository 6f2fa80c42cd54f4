"""The rules in force are the rules now, whatever acts: every tool, agents and commands that wait for their turn, skills,
the MCP server, another conversation of the same chat; and whatever becomes of the settings, also the project's."""

import asyncio
import itertools
import json
import signal
from collections.abc import Callable
from typing import Any

import pytest

from behaviour.rules import PROJECT, TOUCH, USER, allow, live_rules, settings
from conftest import World
from kitbag.models.scripted import Seen
from kitbag.permissions.approvals.approval import ApprovalAnswer, Approvals, Permit
from kitbag.permissions.approvals.queue import ApprovalQueue
from kitbag.permissions.decisions.decide import Permissions
from kitbag.permissions.model import PermissionDecision, SandboxSupport
from kitbag.tasks.task import Task
from kitbag.tasks.worker_process import hold_worker_lock
from kitbag.testing import ModelServer, Rule, Script, Step
from support import needs
from support.connected import over_stdio, run, text
from support.headless import ask, point
from support.matrix import sample
from support.talking_face import talking
from support.workshop import AN_AGENT, Workshop, call

Change = Callable[[World], object]


def write(content: str, path: str = USER) -> Change:
    return lambda world: world.write(path, content)


BROKEN = write("[permissions\n")

# --- a question that waits ----------------------------------------------------------------------------------------

ASKED = {
    "Write": call("Write", file_path="made.txt", content="x"),
    "Bash": call("Bash", command=TOUCH, description="d"),
    "a background command": call("Bash", command=TOUCH, description="d", run_in_background=True),
    "WebFetch": call("WebFetch", url="http://localhost:1/"),
    "Read": call("Read", file_path="there.txt"),
    "Glob": call("Glob", pattern="*.txt"),
    "Task": call("Task", subagent_type="doer", prompt="x"),
}


def answered_after(workshop: Workshop, tool: str, change: Change) -> str:
    """What the model hears of a call that was approved after the settings had become others."""
    workshop.world.write("there.txt", "THERE")
    workshop.agent("doer", tools="*")
    workshop.script(ASKED[tool], "Done.", "Done.")
    task = workshop.put(options={"only_tools": []})
    workshop.worker()
    workshop.until_asked(task)
    change(workshop.world)
    allow(workshop)
    workshop.until_status(task, "completed")
    [result] = workshop.records(task, "result")
    assert not (workshop.world.workspace / "made.txt").exists()
    return str(result.body)


@pytest.mark.parametrize("tool", ASKED)
def test_what_was_approved_is_not_done_when_the_settings_broke_meanwhile(workshop: Workshop, tool: str) -> None:
    """Also where a rule had asked for the very same thing."""
    workshop.world.write(USER, settings(ask=["*"]))
    assert "since it was approved" in answered_after(workshop, tool, BROKEN)


UNREADABLE = {
    "a rule that is none": settings(deny=["%%%"]),
    "a rule that is no text": "[permissions]\ndeny = [5]\n",
    "a rule with its parameter misspelled": '[permissions]\ndeny = [{rul = "Bash"}]\n',
    "a table instead of a list": '[permissions.deny]\nx = "Bash"\n',
    "permissions that are no table": 'permissions = "deny"\n',
    "a list of permissions": '[[permissions]]\ndeny = ["Bash"]\n',
    "too much": "#" * (1 << 20) + "\n[permissions]\n",
}


@pytest.mark.parametrize("what", UNREADABLE)
def test_nor_when_what_was_written_there_can_not_be_read(workshop: Workshop, what: str) -> None:
    assert "since it was approved" in answered_after(workshop, "Bash", write(UNREADABLE[what]))


def test_an_answer_that_came_while_no_worker_ran_counts_by_the_rules_of_the_next_one(workshop: Workshop) -> None:
    workshop.world.write(USER, settings(ask=["Bash"]))
    workshop.script(ASKED["Bash"], "Done.")
    task = workshop.put(options={"only_tools": []})
    worker = workshop.worker()
    workshop.until_asked(task)
    workshop.nursery.kill(worker)
    allow(workshop)
    workshop.world.write(USER, settings(ask=["Bash"], deny=["Bash(touch:*)"]))
    workshop.work()
    assert workshop.task(task).status == "completed"
    assert not (workshop.world.workspace / "made.txt").exists()


def test_a_rule_that_was_agreed_to_counts_as_long_as_it_stands_in_the_settings(world: World) -> None:
    live = live_rules(world, "")
    permissions = Permissions(
        live._workspace, "default", live.current().rules, SandboxSupport(kind="none"), live_rules=live
    )
    asked: list[str] = []

    class Person:
        one_at_a_time = True

        async def ask(self, question: Any) -> ApprovalAnswer:
            asked.append(question.tool)
            return ApprovalAnswer(choice="allow", scope="rule", rule="Edit(made.txt)")

    async def look() -> None:
        approvals = Approvals(Person(), str(world.home / ".kitbag/settings.toml"))
        wanted = {"file_path": "made.txt", "content": ""}
        for _ in range(2):
            permit = await approvals.authorize(permissions, "Write", wanted)
            assert isinstance(permit, Permit)
            permit.use("Write", wanted, permissions=approvals.with_session_rules(permissions))
        assert asked == ["Write"]
        world.write(USER, settings(allow=[]))
        await approvals.authorize(permissions, "Write", wanted)
        assert asked == ["Write", "Write"]

    asyncio.run(look())


# --- between two steps --------------------------------------------------------------------------------------------

STEPS: dict[str, tuple[Step, Change]] = {
    name: (Step(calls=(("c2", tool, json.dumps(arguments)),)), change)
    for name, tool, arguments, change in (
        ("Write", "Write", {"file_path": "made.txt", "content": "x"}, write(settings(deny=["Edit(made.txt)"]))),
        ("Read", "Read", {"file_path": "secret.txt"}, write(settings(deny=["Read(secret.txt)"]))),
        ("Grep", "Grep", {"pattern": "hunter", "output_mode": "content"}, write(settings(deny=["Read(secret.txt)"]))),
        ("Glob", "Glob", {"pattern": "*.txt"}, write(settings(deny=["Read(secret.txt)"]))),
        ("a skill", "Skill", {"skill": "useful"}, write(settings(deny=["Skill(useful)"]))),
        ("a skill's command", "Skill", {"skill": "acting"}, write(settings(deny=["Bash(touch:*)"]))),
        ("a skill's command, in plan mode", "Skill", {"skill": "acting"}, write(settings(mode="plan"))),
        ("a skill's command, settings broken", "Skill", {"skill": "acting"}, BROKEN),
        ("an agent", "Task", {"subagent_type": "doer", "prompt": "x"}, write(settings(deny=["Task(doer)"]))),
        ("a page", "WebFetch", {"url": "http://localhost:1/"}, write(settings(deny=["WebFetch(domain:localhost)"]))),
        ("a mode that is none", "Bash", {"command": TOUCH}, write(settings(mode="lockd"))),
        ("a rule that is none", "Bash", {"command": TOUCH}, write(settings(deny=["%%%"]))),
    )
}


@pytest.mark.parametrize(
    ("what", "agent"), sample(itertools.product(STEPS, ("", "in an agent that another one started")), 14, unpack=True)
)
def test_every_tool_obeys_settings_that_change_between_two_steps(world: World, what: str, agent: str) -> None:
    needs.bubblewrap()
    world.write("secret.txt", "hunter2")
    world.write("~/.kitbag/agents/doer.md", "---\nname: doer\ndescription: D.\npermission-mode: autonomous\n---\nDo.")
    world.skill("~/.kitbag/skills", "useful", body="THE WORDS OF IT")
    world.skill("~/.kitbag/skills", "acting", body="THE WORDS OF IT !`touch made.txt && cat secret.txt`")
    step, change = STEPS[what]

    def second(_: Seen) -> Step:
        change(world)
        return step

    told: list[str] = []

    def last(seen: Seen) -> Step:
        told.append(seen.last)
        return Step(text="Done.")

    first = Step(calls=(("c1", "Read", json.dumps({"file_path": "secret.txt"})),))
    rules = [Rule([first, second, last], system=AN_AGENT if agent else "")]
    if agent:
        start = Step(calls=(("t1", "Task", json.dumps({"subagent_type": "doer", "prompt": "Go."})),))
        rules.append(Rule([start, Step(text="Done.")]))
    with ModelServer(Script(rules)) as server:
        point(world, server)
        done = ask(world, "Do it.", "--permission-mode", "autonomous")
    assert done.returncode == 0, done.stderr
    assert not (world.workspace / "made.txt").exists()
    [result] = told
    assert "hunter2" not in result
    assert "secret.txt:" not in result
    assert "THE WORDS" not in result
    if what == "a mode that is none":
        assert "unknown permission mode `lockd`" in done.stderr


# --- what the settings let reach further --------------------------------------------------------------------------


def test_what_the_settings_open_is_closed_when_they_no_longer_do(world: World) -> None:
    folder = world.home / "out"
    folder.mkdir()
    opened = f'[sandbox]\nnetwork = "on"\nwritable = ["{folder}"]\n[fetch]\nprivate = ["localhost:8000"]\n'
    live = live_rules(world, opened)
    held = SandboxSupport(kind="bubblewrap", carve_outs=True)
    made = Permissions(live._workspace, "autonomous", live.current().rules, held, network=live.network, live_rules=live)

    def judged() -> tuple[PermissionDecision, str, tuple[str, ...]]:
        write_out = made.decide("Write", {"file_path": str(folder / "x")})
        return made.decide("Bash", {"command": "make"}), write_out.effect, made.private_hosts(["x"])

    command, effect, private = judged()
    assert (command.network, effect, private) == (True, "allow", ("localhost:8000",))
    assert made.current_workspace.extra_write_roots == (str(folder),)
    world.write(USER, "")
    command, effect, private = judged()
    assert (command.network, effect, private) == (False, "deny", ())
    assert made.current_workspace.extra_write_roots == ()


# --- what waits for its turn --------------------------------------------------------------------------------------

AGAINST_START: dict[str, Change] = {
    "a rule for the agent": write(settings(deny=["Task(doer)"])),
    "a rule for all agents": write(settings(deny=["Task"])),
    "locked mode": write(settings(mode="locked")),
    "settings that are no TOML": BROKEN,
    "a rule that asks": write(settings(ask=["Task"])),
}


@pytest.mark.parametrize("change", AGAINST_START)
def test_an_agent_that_waits_for_its_turn_does_not_start_against_the_rules_of_then(
    workshop: Workshop, change: str
) -> None:
    found = started_after(workshop, AGAINST_START[change])
    assert found.status == "failed"
    assert found.result is not None
    assert "no longer allowed" in found.result.error


def test_an_agent_that_waits_for_its_turn_starts_where_nothing_has_come_against_it(workshop: Workshop) -> None:
    change = write(settings(deny=["WebFetch"], allow=["Bash(ls:*)"]))
    assert started_after(workshop, change).status == "completed"


def started_after(workshop: Workshop, change: Change) -> Task:
    """An agent that was requested before the settings became others, and began after that."""
    workshop.script("Done.")
    model = f"scripted:{workshop.world.workspace / 'script.json'}"
    with hold_worker_lock(workshop.home):  # so that no worker is there yet
        mode = ("--permission-mode", "autonomous")
        done = workshop.world.run("agents", "run", "doer", "Do it.", "--background", "--model", model, *mode)
        assert done.returncode == 0, done.stderr
        change(workshop.world)
    workshop.work()
    return workshop.task(done.stdout.strip())


def test_an_agent_whose_worker_was_killed_does_not_go_on_against_the_rules_of_then(workshop: Workshop) -> None:
    workshop.script(call("Read", file_path="a.txt"), call("Bash", command=TOUCH, description="d"), "Done.")
    task = workshop.put(options={"only_tools": []})
    assert workshop.nursery.wait(workshop.worker("result-written")) == -signal.SIGKILL
    workshop.world.write(USER, settings(deny=["Task(doer)"]))
    workshop.work()
    assert workshop.task(task).status == "failed"


# --- the project's settings ---------------------------------------------------------------------------------------


def trusted(world: World, content: str) -> None:
    world.write(PROJECT, content)
    assert world.run("trust", "--yes").returncode == 0


DENIES = settings(deny=["Bash(touch made*)"])
TAKEN_BACK: dict[str, Change] = {
    "rewritten": write(settings(deny=[]), PROJECT),
    "deleted": lambda world: (world.workspace / PROJECT).unlink(),
    "broken": write("[permissions\n", PROJECT),
    "emptied": write("", PROJECT),
    "replaced by a folder": lambda world: (
        (world.workspace / PROJECT).unlink(),
        (world.workspace / PROJECT).mkdir(),
    ),
}


@pytest.mark.parametrize("change", TAKEN_BACK)
def test_what_a_trusted_project_denied_is_denied_until_it_is_trusted_again(world: World, change: str) -> None:
    trusted(world, DENIES)
    TAKEN_BACK[change](world)
    found = world.run("permissions", "test", f"Bash({TOUCH})", "--json")
    assert json.loads(found.stdout)["effect"] == "deny", found.stdout
    other = json.loads(world.run("permissions", "test", "Read(a.txt)", "--json").stdout)["effect"]
    assert other == ("ask" if change in ("broken", "replaced by a folder") else "allow")
    if change in ("rewritten", "emptied"):
        assert world.run("trust", "--yes").returncode == 0
        found = world.run("permissions", "test", f"Bash({TOUCH})", "--json")
        assert json.loads(found.stdout)["effect"] != "deny", found.stdout


def test_what_a_trusted_project_comes_to_deny_counts_although_it_has_changed(world: World) -> None:
    trusted(world, settings(deny=["WebFetch"]))
    world.write(PROJECT, settings(deny=["WebFetch", "Bash(touch made*)"], mode="plan"))
    found = json.loads(world.run("permissions", "test", f"Bash({TOUCH})", "--json").stdout)
    assert found["effect"] == "deny", found
    assert json.loads(world.run("permissions", "list", "--json").stdout)["mode"] == "plan"


def test_nothing_of_a_project_that_was_never_trusted_counts(world: World) -> None:
    world.write(PROJECT, DENIES)
    found = json.loads(world.run("permissions", "test", f"Bash({TOUCH})", "--json").stdout)
    assert found["effect"] != "deny"


# --- a chat -------------------------------------------------------------------------------------------------------


def test_another_conversation_of_a_chat_begins_under_the_stricter_mode(at_home: World) -> None:
    async def look() -> None:
        async with talking(at_home, mode="acceptEdits") as talk:
            at_home.write(USER, settings(mode="plan"))
            await talk.command("/clear")
            assert talk.agent.permissions.current_mode == "plan"
            assert "plan (the settings became stricter)" in await talk.command("/permissions")
            await talk.chat._stop_watching()
            await talk.agent.close()

    asyncio.run(look())


def test_a_mode_that_a_person_chooses_stays_when_the_settings_let_go(at_home: World) -> None:
    async def look() -> None:
        async with talking(at_home, mode="acceptEdits") as talk:
            at_home.write(USER, settings(mode="plan"))
            await talk.command("/mode plan")
            at_home.write(USER, settings(mode="default"))
            assert talk.agent.permissions.current_mode == "plan"

    asyncio.run(look())


# --- the MCP server -----------------------------------------------------------------------------------------------


def test_an_mcp_server_obeys_rules_that_come_while_it_runs(world: World) -> None:
    world.skill("~/.kitbag/skills", "useful", body="THE WORDS OF IT")
    world.skill("~/.kitbag/skills", "acting", body="THE WORDS OF IT !`echo made`")
    model = world.write("script.json", json.dumps({"rules": [{"replies": [{"text": "Fine."}]}]}), world.outside)

    async def work() -> None:
        async with over_stdio(world, "--permission-mode", "autonomous", "--model", f"scripted:{model}") as client:
            assert "THE WORDS" in await text(client, "load_skill", skill_name="useful")
            world.write(USER, settings(deny=["Skill(useful)", "Bash(echo:*)", "Task(general-purpose)"]))
            for tool, more in (("load_skill", {}), ("read_skill_file", {"path": "SKILL.md"})):
                said = await text(client, tool, skill_name="useful", **more)
                assert said.startswith("ERROR"), said
                assert "Skill(useful)" in said
            assert (await text(client, "load_skill", skill_name="acting")).startswith("ERROR")
            said = await text(client, "Task", subagent_type="general-purpose", prompt="Go.")
            assert said.startswith("ERROR"), said
            # A mode that has become stricter holds also after the server has looked at the library again.
            world.write(USER, settings(mode="locked"))
            world.skill("~/.kitbag/skills", "newer", body="NEW")
            assert "NEW" in await text(client, "load_skill", skill_name="newer")
            said = await text(client, "Task", subagent_type="general-purpose", prompt="Go.")
            assert said.startswith("ERROR"), said
            world.write(USER, "[permissions\n")
            assert (await text(client, "load_skill", skill_name="useful")).startswith("ERROR")

    run(work)


def test_an_answer_for_the_session_does_not_outlive_a_rule_against_it(workshop: Workshop) -> None:
    workshop.script(ASKED["Bash"], call("Bash", command="touch made.txt again.txt", description="d"), "Done.")
    task = workshop.put(options={"only_tools": []})
    workshop.world.write(USER, settings(deny=["Bash(touch *again*)"]))
    workshop.worker()
    queue = ApprovalQueue(workshop.journal)
    [waiting] = workshop.until(queue.pending, "a question waits")
    queue.answer(waiting.request.id, ApprovalAnswer(choice="allow", scope="session", rule="Bash(touch:*)"))
    workshop.until_status(task, "completed")
    assert (workshop.world.workspace / "made.txt").exists()
    assert not (workshop.world.workspace / "again.txt").exists()
