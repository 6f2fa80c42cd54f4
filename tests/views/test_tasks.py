"""What tasks cost, as a tree: the sums close."""

import json

import pytest

from conftest import World
from kitbag.messages import Usage
from kitbag.testing import Rule, Script, Step
from kitbag.views.tasks import compute_task_costs
from support.boards import opened_board
from support.delegating import AN_AGENT, task
from support.house import House

pytestmark = pytest.mark.usefixtures("kitbag_home")


def test_a_whole_is_its_own_part_and_those_of_its_children(world: World) -> None:
    world.write("~/.kitbag/agents/boss.md", "---\nname: boss\ndescription: Leads.\ntools: Task, Read\n---\nLead.\n")
    explore = json.dumps({"subagent_type": "Explore", "prompt": "Look."})
    two = Step(calls=(("a", "Task", explore), ("b", "Task", explore)), usage=Usage(input=1_000, output=100))
    rules = Script(
        [
            Rule([Step(text="Seen.", usage=Usage(input=300, output=30))], system="Look\\."),
            Rule([two, Step(text="Led.", usage=Usage(input=2_000, output=10))], system=AN_AGENT),
            Rule([Step(calls=(task(subagent_type="boss", prompt="Lead all."),)), Step(text="Done.")]),
        ]
    )
    House(world).ask("Go.", steps=rules, only_tools=("Task", "Read"))
    with opened_board(world) as board:
        boss = next(one for one in board.all() if one.agent == "boss")
        costs = compute_task_costs(board, boss)
    assert costs.tokens == 3_110
    assert [child.tokens for child in costs.children] == [330, 330]
    assert costs.all_tokens == 3_110 + 2 * 330
    assert costs.to_json()["all_tokens"] == costs.all_tokens
