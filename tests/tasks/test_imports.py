"""What it takes to start agents is made when it is first needed, and not before."""

import subprocess
import sys

from conftest import World
from support.waiting import TEST_TIMEOUT

RUN = """
import asyncio, sys
from kitbag.runtime.agent import Agent
from kitbag.testing import Rule, Script, Scripted, Step

async def main():
    def reply(seen):
        print(*[name for name in sys.modules if name.startswith("kitbag.tasks.")])
        return Step(text="Hi.")

    model = Scripted(Script([Rule([reply])]))
    async with Agent(provider=model) as agent:
        async with agent.run("Hi") as run:
            await run.wait()
        assert agent.delegation is not None
        assert (agent.delegation.unfinished(), agent.delegation.spent()) == ([], (0, 0.0))

asyncio.run(main())
"""
WAIT = """
import asyncio, sys
from kitbag.runtime.agent import Agent
from kitbag.testing import Rule, Script, Scripted, Step

class Slow(Scripted):
    async def stream(self, request):
        while "kitbag.tasks.runner" not in sys.modules:
            await asyncio.sleep(0.01)
        async for item in super().stream(request):
            yield item

async def main():
    async with asyncio.timeout(60), Agent(provider=Slow(Script([Rule([Step(text="Hi.")])]))) as agent:
        async with agent.run("Hi") as run:
            await run.wait()
        print(run.ended.text)

asyncio.run(main())
"""


def test_nothing_for_agents_is_imported_before_the_first_request(world: World) -> None:
    assert run(world, RUN).split() == ["kitbag.tasks.delegation", "kitbag.tasks.task_host"]


def test_what_agents_need_is_imported_while_the_first_reply_is_awaited(world: World) -> None:
    assert run(world, WAIT) == "Hi.\n"


def run(world: World, program: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=world.workspace,
        env=world.env,
        capture_output=True,
        text=True,
        timeout=TEST_TIMEOUT,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
