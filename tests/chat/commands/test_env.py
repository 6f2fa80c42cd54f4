"""`/env`: what is shown is exactly what the next request carries, and the sums are those of `kitbag context`."""

import asyncio

import pytest

from conftest import World
from kitbag.errors import NotFoundError
from kitbag.runtime.context_report import report_session_context
from kitbag.views.blocks import TableBlock, VerbatimBlock
from support.talking_face import Talk, talking


@pytest.fixture
def furnished(at_home: World) -> World:
    at_home.write("AGENTS.md", "Answer in French.\n")
    at_home.skill(".kitbag/skills", "sql-style", "How SQL is written here.")
    return at_home


def texts(talk: Talk) -> list[str]:
    return [block.text for block in talk.shown(VerbatimBlock)]


def test_the_texts_joined_are_the_system_prompt_of_the_next_request(furnished: World) -> None:
    async def look() -> None:
        async with talking(furnished, "Bonjour.", "Oui.") as talk:
            await talk.command("/env")
            await talk.say("Hello")
            sent = "".join(block.text for block in talk.model.requests[0].system)
            assert "".join(texts(talk)) == sent
            assert "Answer in French." in sent

    asyncio.run(look())


def test_its_sums_are_those_of_kitbag_context(furnished: World) -> None:
    async def look() -> None:
        async with talking(furnished, "Oui.") as talk:
            await talk.say("Hello")
            await talk.command("/env")
            table = talk.shown(TableBlock)[0]
            found = await asyncio.to_thread(
                report_session_context, talk.agent.environment.places, talk.agent.session.id
            )
            pieces = [piece for piece in found["pieces"] if not piece["turn"]]
            tokens, size = sum(one["tokens"] for one in pieces), sum(one["bytes"] for one in pieces)
            assert f"{tokens:,} tokens ({size:,} bytes)" in table.foot
            assert sum(int(row[1].replace(",", "")) for row in table.rows) == tokens
            assert sum(int(row[2].replace(",", "")) for row in table.rows) == size

    asyncio.run(look())


def test_tools_are_shown_with_their_words_and_schemas(furnished: World) -> None:
    async def look() -> None:
        async with talking(furnished) as talk:
            shown = await talk.command("/env tools")
            for spec in talk.agent.toolset.specs():
                assert any(spec.description in text for text in texts(talk)), spec.name
            assert '"file_path"' in shown

    asyncio.run(look())


@pytest.mark.parametrize(("wanted", "words"), [("memory", "Answer in French."), ("AGENTS.md", "Answer in French."),
                                               ("CATALOG", "sql-style"), ("Read", "file_path")])  # fmt: skip
def test_one_section_is_shown_by_its_kind_or_its_source(furnished: World, wanted: str, words: str) -> None:
    async def look() -> None:
        async with talking(furnished) as talk:
            await talk.command(f"/env {wanted}")
            assert any(words in text for text in texts(talk))
            assert not any("# Environment" in text for text in texts(talk))

    asyncio.run(look())


def test_a_section_that_is_not_there_is_told_with_those_that_are(furnished: World) -> None:
    async def look() -> None:
        async with talking(furnished) as talk:
            with pytest.raises(NotFoundError, match="memroy") as found:
                await talk.command("/env memroy")
            assert "memory" in found.value.fix

    asyncio.run(look())
