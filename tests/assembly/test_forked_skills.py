"""Skills with `context: fork`: an agent of its own does what they say, and only its answer comes back."""

import json

import pytest

from conftest import World
from kitbag.testing import Rule, Script, Step
from support.boards import all_tasks
from support.delegating import AN_AGENT, results, script
from support.house import House

pytestmark = pytest.mark.usefixtures("kitbag_home", "explore_allowed")


def call(skill: str, args: str = "") -> Step:
    return Step(calls=(("s1", "Skill", json.dumps({"skill": skill, "args": args})),))


def test_the_body_is_the_task_of_the_agent_that_the_skill_names(world: World) -> None:
    world.skill("~/.kitbag/skills", "survey", body="Look at $ARGUMENTS.", context="fork", agent="Explore")
    house = House(world)
    house.ask("Survey.", steps=script([call("survey", "all files"), "Done."], ["All is well."]))
    assert "All is well." in results(house)
    main = [request for request in house.requests if AN_AGENT not in request.system[-1].text]
    assert "Look at all files." not in str(main)
    agent = next(request for request in house.requests if AN_AGENT in request.system[-1].text)
    assert "Look at all files." in agent.system[-1].text
    [task] = all_tasks(world)
    assert (task.agent, task.status, task.description) == ("Explore", "completed", "skill survey")


def test_starting_the_agent_is_a_permission_of_its_own(world: World) -> None:
    world.skill("~/.kitbag/skills", "change", context="fork")
    house = House(world)
    house.ask("Change.", steps=script([call("change"), "Done."], ["Changed."]))
    assert "runs as agent general-purpose, which is not allowed" in results(house)
    assert all_tasks(world) == []


def test_called_by_the_person_it_runs_without_a_question_and_the_model_hears_the_outcome(world: World) -> None:
    world.skill("~/.kitbag/skills", "change", body="Change $ARGUMENTS.", context="fork")
    house = House(world)
    steps = Script([Rule([Step(text="Changed.")], system=AN_AGENT), Rule([Step(text="Good.")])])
    ended = house.ask("/change the colour", steps=steps)
    assert ended.text == "Good."
    said = house.requests[-1].messages[-1].text
    assert "Changed." in said
    assert "Change the colour." not in said


def test_an_agent_that_does_not_exist_is_told(world: World) -> None:
    world.skill("~/.kitbag/skills", "survey", context="fork", agent="Nobody")
    house = House(world)
    house.ask("Survey.", steps=script([call("survey"), "Done."], ["?"]))
    assert "Nobody" in results(house)
