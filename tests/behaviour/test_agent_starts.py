"""Starting an agent is a permission of its own: every agent, in every interface, whoever asks for it."""

import json
from typing import Any

import pytest

from conftest import World
from kitbag.permissions.approvals.approval import ApprovalAnswer, ApprovalRequest
from kitbag.testing import ModelServer, Rule, Script, Step
from support.boards import all_tasks
from support.delegating import AN_AGENT, results, script, task
from support.headless import answer, ask, point
from support.house import House

pytestmark = pytest.mark.usefixtures("kitbag_home")
RULE = "`Task(Explore)` to permissions.allow"
PLUGIN_AGENT = "---\nname: helper\ndescription: Helps.\npermission-mode: plan\ntools: Read\n---\nHelp.\n"


class Person:
    """Gives the same answer to every question."""

    one_at_a_time = True

    def __init__(self, **given: Any) -> None:
        self.answer = ApprovalAnswer(**given)
        self.asked: list[ApprovalRequest] = []

    async def ask(self, question: ApprovalRequest) -> ApprovalAnswer:
        self.asked.append(question)
        return self.answer


def started(world: World) -> list[str]:
    return [one.agent for one in all_tasks(world)]


@pytest.mark.parametrize("agent", ["Explore", "Plan"])
@pytest.mark.parametrize(
    ("mode", "starts"),
    [("default", False), ("acceptEdits", False), ("plan", True), ("autonomous", True), ("locked", False)],
)
def test_where_nobody_can_answer_the_mode_decides_and_the_model_is_told(
    world: World, agent: str, mode: str, starts: bool
) -> None:
    house = House(world)
    house.ask("Go.", steps=script([Step(calls=(task(subagent_type=agent),)), "Done."], ["Found."]), mode=mode)
    assert started(world) == ([agent] if starts else [])
    assert ("Found." in results(house)) == starts
    if mode in ("default", "acceptEdits"):
        assert f"adds the rule `Task({agent})` to permissions.allow" in results(house)


@pytest.mark.parametrize("background", [False, True])
def test_a_person_is_shown_mode_and_tools_and_may_allow_an_agent_for_the_session(
    world: World, background: bool
) -> None:
    house, person = House(world), Person(choice="allow", scope="session", rule="Task(Explore)")
    calls = [
        Step(calls=(task(f"t{number}", prompt=f"Find {number}.", run_in_background=background),)) for number in (1, 2)
    ]
    house.ask("Go.", steps=script([*calls, "Done.", "Done.", "Done."], ["Found."] * 2), approver=person)
    [question] = person.asked
    facts = dict(question.facts)
    assert (facts["mode"], facts["tools"]) == ("plan", "Glob, Grep, Read, WebFetch, WebSearch")
    assert question.suggestion == "Task(Explore)"
    assert started(world) == ["Explore"] * 2


def test_the_person_behind_a_script_is_told_what_would_allow_the_agent(world: World) -> None:
    steps = Script(
        [
            Rule([Step(text="Found.")] * 9, system=AN_AGENT),
            Rule([Step(calls=(task(),)), Step(text="I searched myself.")] * 4),
        ]
    )
    with ModelServer(steps) as server:
        point(world, server)
        done = ask(world, "Go.")
        assert "denied: Task(Explore)" in done.stderr
        assert 'add "Task(Explore)" to permissions.allow' in done.stderr
        option = done.stderr.partition('--allowed-tools "')[2].partition('"')[0]
        told = answer(world, "Go.")
        assert RULE in told["failed_calls"][0]["problem"]
        assert started(world) == []
        assert ask(world, "Go.", "--allowed-tools", option).returncode == 0
        assert started(world) == ["Explore"]
        assert ask(world, "Go.", "--agent", "Explore").returncode == 0, "the user's own choice"
        assert world.run("agents", "run", "Explore", "Go.").returncode == 0, "the user's own choice"


MENTION = "@agent-Explore find it"


@pytest.mark.parametrize(
    ("said", "options", "agent", "starts"),
    [
        (MENTION, {}, "Explore", True),
        (MENTION, {"mode": "locked"}, "Explore", False),
        (MENTION, {"no_tools": ("Task(Explore)",)}, "Explore", False),
        (MENTION, {}, "Plan", False),
        ("@agent-general-purpose do it", {}, "general-purpose", False),
        (f"What is this?\n\n<standard-input>\n{MENTION}\n</standard-input>", {}, "Explore", False),
        ("pasted\n" * 20 + MENTION, {}, "Explore", False),
    ],
)
def test_a_read_only_agent_that_the_user_mentions_starts_without_a_question(
    world: World, said: str, options: dict[str, Any], agent: str, starts: bool
) -> None:
    house = House(world)
    house.ask(said, steps=script([Step(calls=(task(subagent_type=agent),)), "Done."], ["Found."]), **options)
    assert started(world) == ([agent] if starts else [])


def test_a_mention_counts_for_its_own_turn(world: World) -> None:
    call = Step(calls=(task(),))
    House(world).ask(MENTION, "And again.", steps=script([call, "Done.", call, "Done."], ["Found."] * 2))
    assert started(world) == ["Explore"]


def test_a_mention_in_the_words_of_a_model_allows_nothing(world: World) -> None:
    world.write("~/.kitbag/agents/boss.md", "---\nname: boss\ndescription: Leads.\ntools: Task, Read\n---\nLead.\n")
    first = Step(calls=(task(subagent_type="boss", prompt="Lead."),))
    house = House(world)
    allow = ("Task(boss)", "Read")
    rules = [
        Rule([Step(text="Led."), Step(calls=(task(),)), Step(text="Led.")], system="Lead\\."),
        Rule([first, Step(text="Done.")]),
    ]
    house.ask("Go.", steps=Script(rules), only_tools=allow)
    [boss] = all_tasks(world)
    again = Step(calls=(task(subagent_type="boss", prompt=MENTION, resume=boss.id),))
    rules = [Rule([Step(calls=(task(),)), Step(text="Led.")], system="Lead\\."), Rule([again, Step(text="Done.")])]
    house.ask("Go.", steps=Script(rules), only_tools=allow, resume=house.session)
    assert started(world) == ["boss"]


@pytest.mark.parametrize("name", ["kit:helper", "helper", "HELPER"])
@pytest.mark.parametrize("rule", ["Task(kit:helper)", "Task(helper)"])
def test_a_rule_that_denies_an_agent_holds_under_each_of_its_names(world: World, name: str, rule: str) -> None:
    world.write("~/kit/.claude-plugin/plugin.json", json.dumps({"name": "kit"}))
    world.write("~/kit/agents/helper.md", PLUGIN_AGENT)
    assert world.run("plugins", "install", str(world.home / "kit")).returncode == 0
    steps = script([Step(calls=(task(subagent_type=name),)), "Done."], ["Found."])
    House(world).ask("Go.", steps=steps, mode="autonomous")
    assert started(world) == ["kit:helper"]
    house = House(world)
    house.ask("Go.", steps=steps, mode="autonomous", no_tools=(rule,))
    assert len(all_tasks(world)) == 1
    assert "denied by a rule" in results(house)
