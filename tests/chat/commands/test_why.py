"""`/why`: which skills the last message got, and why."""

import asyncio

import pytest

from conftest import World
from kitbag.errors import NotFoundError
from kitbag.views.blocks import FieldsBlock
from support.house import load
from support.talking_face import talking


def test_the_last_message_is_explained_and_one_skill_on_request(at_home: World) -> None:
    at_home.skill("~/.kitbag/skills", "pdf", "Fills in pdf forms.")
    at_home.skill("~/.kitbag/skills", "fences", "Paints fences.")

    async def look() -> None:
        async with talking(at_home, load("pdf"), "Done.") as talk:
            with pytest.raises(NotFoundError, match="no messages"):
                await talk.command("/why")
            await talk.say("fill in this pdf form")
            shown = await talk.command("/why")
            assert "message 1: fill in this pdf form" in shown
            assert "the model loaded it by name" in shown
            await talk.command("/why fences")
            assert talk.shown(FieldsBlock)[-1].title == "fences"
            with pytest.raises(NotFoundError, match="no skill named"):
                await talk.command("/why nonesuch")

    asyncio.run(look())
