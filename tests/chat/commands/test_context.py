"""`/context`: the bars are the window, and the numbers those of `kitbag context`."""

import asyncio
import json

import msgspec
import pytest

from conftest import World
from kitbag.chat.commands.context import context_bars
from kitbag.runtime.context_report import report_session_context
from kitbag.testing import Step
from kitbag.views.blocks import BarsBlock, TableBlock
from support.talking_face import talking


@pytest.fixture
def furnished(at_home: World) -> World:
    at_home.write("AGENTS.md", "Answer in French.\n")
    at_home.skill(".kitbag/skills", "sql-style", "How SQL is written here.", "Write it in capitals.\n" * 40)
    at_home.write("query.py", "SQL = 'select'\n" * 50)
    return at_home


def test_the_live_session_is_counted_as_the_stored_one(furnished: World) -> None:
    async def look() -> None:
        calls = (
            ("c1", "Skill", json.dumps({"skill": "sql-style"})),
            ("c2", "Read", json.dumps({"file_path": "query.py"})),
        )
        async with talking(furnished, Step(calls=calls), "Oui.") as talk:
            await talk.say("How?")
            shown = await talk.command("/context")
            bars = talk.shown(BarsBlock)[0]
            found = await asyncio.to_thread(
                report_session_context, talk.agent.environment.places, talk.agent.session.id
            )
            assert msgspec.structs.replace(context_bars(found), title="") == msgspec.structs.replace(bars, title="")
            assert f"{found['tokens']:,} of {found['window']:,} tokens" in bars.title
            labels = {bar.label: bar.tokens for bar in bars.bars}
            assert labels.keys() == {
                "system prompt", "memory", "catalogs", "tools", "loaded skills", "results", "messages", "reserved",
            }  # fmt: skip
            assert all(labels.values())
            assert labels["loaded skills"] == found["skills"]["loaded"]
            assert sum(labels.values()) + found["left"] == bars.whole == found["window"]
            last = found["last_request"]
            assert f"{last['provider']:,} tokens counted by the provider" in shown
            sizes = [int(row[1].replace(",", "")) for row in talk.shown(TableBlock)[0].rows]
            assert sizes == sorted(sizes, reverse=True)

    asyncio.run(look())


def test_before_the_first_word_there_is_only_the_prompt(furnished: World) -> None:
    async def look() -> None:
        async with talking(furnished) as talk:
            shown = await talk.command("/context")
            assert "counted by the provider" not in shown
            assert {bar.label for bar in talk.shown(BarsBlock)[0].bars}.isdisjoint(
                {"messages", "results", "loaded skills"}
            )

    asyncio.run(look())


def test_a_window_that_is_too_full_is_told_so(furnished: World) -> None:
    furnished.write("~/.kitbag/settings.toml", "[models.scripted]\nwindow = 1000\n")

    async def look() -> None:
        async with talking(furnished) as talk:
            await talk.command("/context")
            bars = talk.shown(BarsBlock)[0]
            assert bars.whole == sum(bar.tokens for bar in bars.bars) > 1000

    asyncio.run(look())
