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
    model = Scripted(Script([Rule([Step(text="Hi.")])]))
    async with Agent(provider=model) as agent:
        async with agent.run("Hi") as run:
            await run.wait()
        assert agent.delegation is not None
        assert (agent.delegation.unfinished(), agent.delegation.spent()) == ([], (0, 0.0))
        print(*[name for name in sys.modules if name.startswith("kitbag.tasks.")])

asyncio.run(main())
"""


def test_a_run_that_starts_no_agent_imports_nothing_for_it(world: World) -> None:
    done = subprocess.run(
        [sys.executable, "-c", RUN],
        cwd=world.workspace,
        env=world.env,
        capture_output=True,
        text=True,
        timeout=TEST_TIMEOUT,
    )
    assert done.stdout.split() == ["kitbag.tasks.delegation"], done.stderr
