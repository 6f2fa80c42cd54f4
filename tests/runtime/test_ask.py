"""The Python API in ten lines, and its one synchronous door."""

import asyncio
import subprocess
import sys

import pytest

import kitbag
from conftest import World
from kitbag.errors import InvalidError, NotFoundError, UsageError
from kitbag.testing import Rule, Script, Scripted, Step
from support.waiting import TEST_TIMEOUT

TEN_LINES = r"""
import asyncio
from kitbag import Agent, RunEnded, TextDelta

async def main():
    async with Agent("offline") as agent:
        async with agent.run("Where is the invoice total?") as run:
            async for event in run:
                if isinstance(event, TextDelta):
                    print(event.text, end="")
                elif isinstance(event, RunEnded):
                    print("", event.status, event.turns, sep="\n")

asyncio.run(main())
"""


def test_ten_lines_are_enough(world: World) -> None:
    world.write("invoice.py", "invoice_total = 3\n")
    done = subprocess.run(
        [sys.executable, "-c", TEN_LINES],
        cwd=world.workspace,
        env=world.env,
        capture_output=True,
        text=True,
        timeout=TEST_TIMEOUT,
    )
    assert done.stderr == ""
    assert done.stdout.startswith("No language model is connected")
    assert "invoice.py:1: invoice_total = 3" in done.stdout
    assert done.stdout.splitlines()[-2:] == ["completed", "3"]


@pytest.fixture
def home(world: World, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setenv("HOME", str(world.home))
    monkeypatch.delenv("KITBAG_HOME", raising=False)
    return world


def test_without_asyncio(home: World) -> None:
    ended = kitbag.ask("Hi", model="offline", directory=str(home.workspace))
    assert isinstance(ended, kitbag.RunEnded)
    assert (ended.status, ended.text.splitlines()[0][:17]) == ("completed", "No language model")


def test_with_a_model_of_one_s_own_and_limits(home: World) -> None:
    model = Scripted(Script([Rule([Step(text="Hello.")])]))
    limits = kitbag.Limits(turns=1)
    assert kitbag.ask("Hi", provider=model, directory=str(home.workspace), limits=limits).text == "Hello."


def test_what_is_wrong_before_it_begins_is_raised(home: World) -> None:
    where = str(home.workspace)
    with pytest.raises(UsageError, match="colour"):
        kitbag.ask("Hi", model="offline", directory=where, colour="red")
    with pytest.raises(NotFoundError):
        kitbag.ask("Hi", model="offline", directory=where, agent="nobody")
    with pytest.raises(InvalidError):
        kitbag.ask("Hi", model=f"scripted:{where}/nothing.json", directory=where)


def test_where_a_loop_runs_it_says_what_to_use(home: World) -> None:
    async def go() -> None:
        with pytest.raises(UsageError, match="event loop"):
            kitbag.ask("Hi", model="offline")

    asyncio.run(go())


def test_what_an_agent_s_file_declares_has_a_name_of_its_own() -> None:
    from kitbag.library.agents import AgentFile as AgentFile
    from kitbag.runtime.agent import Agent

    assert kitbag.AgentFile is AgentFile
    assert kitbag.Agent is Agent
