"""Agents that other agents start: in front and in the background, with contexts of their own, on one board."""

import asyncio
import json
from typing import Any

from conftest import World
from kitbag.messages import Text
from kitbag.runtime.agent import Agent
from kitbag.runtime.options import Options
from kitbag.store.journal import Journal, journal_path
from kitbag.store.redaction import Redactor
from kitbag.tasks.board import Board
from kitbag.testing import Rule, Script, Scripted, Step
from runtime.test_agent import HANG, House

AN_AGENT = "## Your Task"


def task(call_id: str = "t1", **arguments: Any) -> tuple[str, str, str]:
    given = {"subagent_type": "Explore", "prompt": "Find the answer.", **arguments}
    return call_id, "Task", json.dumps(given)


def script(main: list[Any], agent: list[Any]) -> Script:
    def steps(given: list[Any]) -> list[Any]:
        return [Step(text=one) if isinstance(one, str) else one for one in given]

    return Script([Rule(steps(agent), system=AN_AGENT), Rule(steps(main))])


def results(house: House) -> str:
    """What the tools answered in the last request of the one that the person talks to."""
    main = [request for request in house.requests if AN_AGENT not in "".join(b.text for b in request.system)][-1]
    found = [part for message in main.messages for one in message.results for part in one.content]
    return "\n".join(part.text for part in found if isinstance(part, Text))


def board(world: World) -> Board:
    return Board(Journal.open(journal_path(str(world.home / ".kitbag")), Redactor([])))


def test_an_agent_works_in_a_context_of_its_own_and_only_its_answer_comes_back(world: World) -> None:
    house = House(world)
    ended = house.ask("Ask Explore.", steps=script([Step(calls=(task(),)), "Done."], ["The answer is 42."]))
    assert ended.text == "Done."
    agent = next(request for request in house.requests if AN_AGENT in request.system[-1].text)
    assert "Find the answer." in agent.system[-1].text
    assert "Ask Explore." not in str(agent.messages)
    assert "Status: completed" in results(house)
    assert "<agent-answer>\nThe answer is 42.\n</agent-answer>" in results(house)


def test_several_agents_of_one_reply_work_side_by_side(world: World) -> None:
    house = House(world)
    calls = tuple(task(f"t{number}") for number in range(5))
    house.ask("Ask five.", steps=script([Step(calls=calls), "Done."], [Step(text="Found.", delay=0.3)]))
    assert results(house).count("Status: completed") == 5


def test_background_work_is_hosted_by_a_worker_and_its_answer_can_be_had(world: World, monkeypatch: Any) -> None:
    path = world.write("script.json", json.dumps({"rules": [
        {"system": AN_AGENT, "replies": [{"text": "The answer is 42."}]},
        {"replies": [{"calls": [{"id": "t1", "name": "Task", "arguments": {"subagent_type": "Explore", "prompt": "Find.", "run_in_background": True}}]}, {"text": "Started."}]},
    ]}))  # fmt: skip
    monkeypatch.setenv("HOME", str(world.home))
    monkeypatch.setenv("KITBAG_HOME", str(world.home / ".kitbag"))

    async def work() -> str:
        async with asyncio.timeout(HANG):
            options = Options(directory=str(world.workspace), model=f"scripted:{path}")
            async with Agent(options=options) as agent:
                async with agent.run("Ask Explore.") as run:
                    await run.wait()
                assert run.ended.text == "Started."
                assert agent.delegation is not None
                [started] = Board(agent.journal).of(agent.session.id)
                report = await agent.delegation.report(started.id, HANG)
                return f"{report.status}: {report.text} {report.error}"

    assert asyncio.run(work()) == "completed: The answer is 42. "
