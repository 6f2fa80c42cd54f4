"""What would be sent now, for a message that is being typed."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

from kitbag.assembly.run_options import Options
from kitbag.runtime.agent import Agent
from kitbag.runtime.message_preview import MessagePreview, prepare_message_preview
from kitbag.testing import Rule, Script, Scripted, Step
from support.house import House


def with_agent(house: House, work: Callable[[Agent, Callable[[str], MessagePreview]], Any]) -> Any:
    async def run() -> Any:
        model = Scripted(Script([Rule([Step(text="Fine.")] * 5)]))
        options = Options(directory=str(house.world.workspace), trust_workspace=True)
        async with Agent(options=options, provider=model) as agent:
            result = work(agent, prepare_message_preview(agent)())
            return await result if asyncio.iscoroutine(result) else result

    return asyncio.run(run())


def test_nothing_is_added_by_an_empty_message(house: House) -> None:
    found: MessagePreview = with_agent(house, lambda _, preview: preview("  "))
    assert found.added == ()
    assert found.tokens_before > 0
    assert found.window > found.compacted_at > 0


def test_an_invoked_skill_a_mentioned_file_and_matches_are_named(house: House) -> None:
    house.world.skill(".kitbag/skills", "sql-style", description="How SQL queries are written.", body="Caps.\n" * 50)
    house.world.write("notes.txt", "x" * 4_000)
    found: MessagePreview = with_agent(house, lambda _, preview: preview("/sql-style for @notes.txt and SQL queries"))
    added = {piece.kind: piece for piece in found.added}
    assert added["one-message"].name == "sql-style"
    assert added["one-message"].tokens > 50
    assert (added["mentioned"].name, added["mentioned"].tokens) == ("notes.txt", 1_000)
    assert "sql-style" in [skill.name for skill in found.skills]
    assert found.to_json()["tokens"] == found.tokens_before + sum(piece.tokens for piece in found.added)
    json.dumps(found.to_json())


def test_a_file_outside_the_workspace_is_not_looked_at(house: House) -> None:
    secret = house.world.write("secret.txt", "x", base=house.world.outside)
    found: MessagePreview = with_agent(house, lambda _, preview: preview(f"@{secret}"))
    assert [piece.kind for piece in found.added] == ["user"]


def test_suggestions_are_those_that_the_message_then_carries(house: House) -> None:
    house.world.write("~/.kitbag/settings.toml", "[catalog]\ndescriptions = 200\n")
    for number in range(60):
        description = f"Handles topic {number} of the warehouse, at length, with all that belongs to it. " * 3
        house.world.skill(".kitbag/skills", f"topic-{number}", description=description)
    house.world.skill(".kitbag/skills", "zebra-feeding", description="Feeds zebras hay and oats in the zoo.")

    async def ask(agent: Agent, preview: Callable[[str], MessagePreview]) -> None:
        message = "How do I feed zebras oats in the zoo?"
        before = [preview(message) for _ in range(2)]
        assert before[0].to_json() == before[1].to_json()
        async with agent.run(message) as run:
            async for _ in run:
                pass
        text = agent.session.messages()[0].text
        [suggested] = [piece for piece in before[0].added if piece.kind == "suggestions"]
        assert suggested.name == "zebra-feeding"
        assert "- zebra-feeding: " in text

    with_agent(house, ask)
