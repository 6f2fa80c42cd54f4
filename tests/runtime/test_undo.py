"""What a model did with the real tools, through the loop, is taken back by the person's command; the model is told."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from conftest import World
from kitbag.agent.undo.plan import read_message_changes
from kitbag.assembly.run_options import Options
from kitbag.messages import Text
from kitbag.runtime.agent import Agent
from kitbag.store.content_store import ContentStore
from kitbag.testing import Rule, Script, Scripted, Step
from support.changing import tree
from support.waiting import TEST_TIMEOUT


def call(name: str, **arguments: Any) -> Step:
    return Step(calls=((f"{name}-{len(json.dumps(arguments))}", name, json.dumps(arguments)),))


@pytest.fixture
def at_home(world: World, monkeypatch: pytest.MonkeyPatch) -> World:
    for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "KITBAG_MODEL", "KITBAG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(world.home))
    return world


def ask(world: World, request: str, *steps: Step, **options: Any) -> Scripted:
    model = Scripted(Script([Rule([*steps, Step(text="Done.")])]))

    async def work() -> None:
        given = Options(directory=str(world.workspace), mode="acceptEdits", **options)
        async with (
            asyncio.timeout(TEST_TIMEOUT),
            Agent(options=given, provider=model) as agent,
            agent.run(request) as run,
        ):
            async for _ in run:
                pass

    asyncio.run(work())
    return model


def last_words(model: Scripted) -> str:
    return "".join(part.text for part in model.requests[-1].messages[-1].parts if isinstance(part, Text))


def test_write_edit_and_bash_are_taken_back_and_the_model_hears_of_it(at_home: World) -> None:
    world = at_home
    world.write("a.py", "x = 1\n")
    world.write("old/b.py", "y = 1\n")
    before = tree(world.workspace)
    ask(
        world,
        "Do all of it",
        call("Read", file_path="a.py"),
        call("Edit", file_path="a.py", old_string="1", new_string="2"),
        call("Write", file_path="new/c.py", content="z = 1\n"),
        call("Bash", command="rm -r old; echo more >> new/c.py; chmod 755 a.py"),
        only_tools=("Read", "Edit", "Write", "Bash"),
    )
    assert tree(world.workspace).keys() == {"a.py", "new", "new/c.py"}
    [turn] = world.json("undo", "--list")["messages"]
    assert set(turn["tools"]) == {"Edit", "Write", "Bash"}
    world.ok("undo", "--yes")
    assert tree(world.workspace) == before
    model = ask(world, "And now?", resume="last")
    assert "The user undid changes you made for message 1" in last_words(model)
    assert f"{Path(world.workspace).resolve()}/a.py (restored)" in last_words(model)
    assert "taken back" not in last_words(ask(world, "Again", resume="last"))


def test_what_an_agent_changed_belongs_to_the_turn_that_started_it_whatever_its_calls_are_called(
    at_home: World,
) -> None:
    """Some models begin anew with their ids in each conversation."""
    world = at_home
    world.write(
        "~/.kitbag/agents/writer.md",
        "---\nname: writer\ndescription: Writes.\ntools: Write\npermission-mode: acceptEdits\n---\nWrite.\n",
    )
    world.write("~/.kitbag/settings.toml", "[permissions]\nallow = ['Task']\n")
    starts = call("Task", subagent_type="writer", prompt="Write.")
    rules = [
        Rule([call("Write", file_path="b.txt", content="2"), Step(text="Done.")], system="## Your Task"),
        Rule([call("Write", file_path="a.txt", content="1"), Step(text="Done."), starts, Step(text="Done.")]),
    ]

    async def work() -> dict[int, list[str]]:
        options = Options(directory=str(world.workspace), mode="acceptEdits")
        async with asyncio.timeout(TEST_TIMEOUT), Agent(options=options, provider=Scripted(Script(rules))) as agent:
            for request in ("One.", "Two."):
                async with agent.run(request) as run:
                    await run.wait()
            turns = read_message_changes(agent.journal, agent.session.id, ContentStore(str(world.home / ".kitbag")))
            return {turn.number: [Path(change.path).name for change in turn.changes] for turn in turns}

    assert asyncio.run(work()) == {1: ["a.txt"], 2: ["b.txt"]}
