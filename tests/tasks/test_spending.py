"""What tasks have cost until now: each record of their conversations is read once."""

import asyncio

import pytest

from conftest import World
from kitbag.agent.session import STREAM_PREFIX
from kitbag.tasks.spending import TaskSpending
from kitbag.tasks.task import Task, TaskRequest, TaskResult
from support.boards import opened_board

pytestmark = pytest.mark.usefixtures("kitbag_home")


def test_it_grows_with_what_is_said_and_is_unknown_where_a_price_is(world: World) -> None:
    with opened_board(world) as found:
        journal = found.journal

        async def begin() -> Task:
            wish = TaskRequest(agent="doer", prompt="Do it.", directory=str(world.workspace))
            task = await found.create("a" * 12, "agent", wish, root="r", parent="", depth=1, background=True)
            await found.claim(task)
            return found.find(task.id)

        task = asyncio.run(begin())
        spending = TaskSpending(journal)
        assert spending.cost_of(task) == 0.0
        journal.append(STREAM_PREFIX + task.id, "reply", {"cost": 0.5})
        journal.append(STREAM_PREFIX + task.id, "compacted", {"cost": 0.25})
        assert spending.cost_of(task) == 0.75
        journal.append(STREAM_PREFIX + task.id, "reply", {"cost": 1})
        assert spending.cost_of(task) == spending.cost_of(task) == 1.75
        journal.append(STREAM_PREFIX + task.id, "reply", {"cost": None})
        assert spending.cost_of(task) is None
        asyncio.run(found.finish(task.id, 1, TaskResult(status="completed", turns=3, cost=2.5)))
        assert spending.cost_of(found.find(task.id)) == 2.5
