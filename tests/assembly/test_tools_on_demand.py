"""Many tools of servers in a run: which ones its requests describe, and that what was described stays described."""

import asyncio
import json
from typing import Any

import pytest

from conftest import World
from kitbag.assembly.run_options import Options
from kitbag.models.provider import ModelRequest
from kitbag.runtime.agent import Agent
from kitbag.testing import Rule, Script, Scripted, Step
from support.delegating import results
from support.house import House
from support.mcp_servers import described

pytestmark = pytest.mark.usefixtures("kitbag_home")

TOOLS = ["paint", "fails", *(f"spare{number}" for number in range(40))]


@pytest.fixture
def house(world: World) -> House:
    server = described(tools=TOOLS)
    world.write(
        "~/.kitbag/settings.toml",
        '[permissions]\nallow = ["mcp__plain__*"]\n[mcp_servers.plain]\n'
        f"command = {json.dumps(server['command'])}\nargs = {json.dumps(server['args'])}\n",
    )
    return House(world)


def of_server(request: ModelRequest) -> list[str]:
    return [tool.name.removeprefix("mcp__plain__") for tool in request.tools if tool.name.startswith("mcp__")]


def call(name: str, arguments: "dict[str, Any] | None" = None) -> Step:
    return Step(calls=(("c1", name, json.dumps(arguments or {})),))


def test_what_was_described_stays_described_in_a_resumed_session(house: House) -> None:
    house.ask("Paint a picture.")
    assert of_server(house.requests[-1]) == ["paint"]
    before = house.requests[-1].tools
    house.ask("Thanks.", resume=house.session)
    assert house.requests[-1].tools == before


def test_what_was_described_stays_described_in_another_mode(house: House) -> None:
    model = Scripted(Script([Rule([Step(text="Fine.")] * 3)]))

    async def work() -> None:
        options = Options(directory=str(house.world.workspace), mode="default")
        async with Agent("", options=options, provider=model) as agent:
            for mode, text in (("default", "Paint a picture."), ("acceptEdits", "Thanks.")):
                await agent.use_mode(mode)
                async with agent.run(text) as run:
                    [event async for event in run]

    asyncio.run(work())
    assert of_server(model.requests[-1]) == ["paint"]


def test_a_tool_whose_call_failed_is_described_and_others_stay_undescribed(house: House) -> None:
    house.ask("Hi", steps=[call("mcp__plain__spare7"), call("mcp__plain__fails"), "Done."])
    assert [of_server(request) for request in house.requests] == [[], [], ["fails"]]


def test_an_unknown_tool_is_answered_with_the_described_ones_and_the_search(house: House) -> None:
    house.ask("Hi", steps=[call("send_fax"), "Done."])
    text = results(house)
    assert "no tool named 'send_fax'. Available tools: Read" in text
    assert "SearchTools finds more." in text
    assert "mcp__plain__spare" not in text
    house.ask("Hi", steps=[call("mcp__plain__spare77"), "Done."])
    assert "Did you mean mcp__plain__spare7?" in results(house)


def test_context_shows_the_tools_of_servers(house: House) -> None:
    house.ask("Paint a picture.")
    found = house.world.json("context")
    assert ("tool", "mcp__plain__paint") in {(row["kind"], row["name"]) for row in found["groups"]}
    assert found["request_bytes"] == found["bytes"]
