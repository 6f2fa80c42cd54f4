"""`/doctor`: what is wrong, the worst first, with a fix for each."""

import asyncio

from conftest import World
from kitbag.views.blocks import NoticeBlock
from support.talking_face import talking


def test_the_worst_comes_first_and_says_what_to_do(at_home: World) -> None:
    at_home.skill("~/.kitbag/skills", "good")
    at_home.write("~/.kitbag/skills/bare/SKILL.md", "No head.\n")
    at_home.write("~/.kitbag/settings.toml", "colour = 'red'\n[permissions]\nallow = ['Bsah(ls)']\n")

    async def look() -> None:
        async with talking(at_home) as talk:
            shown = await talk.command("/doctor")
            found = talk.shown(NoticeBlock)
            order = ["error", "warning", "info"]
            assert [one.severity for one in found] == sorted((one.severity for one in found), key=order.index)
            assert all(one.fix for one in found if one.severity != "info")
            assert "colour" in shown
            assert "Bsah" in shown
            assert "sandbox  " in shown
            assert "no problems" not in shown

    asyncio.run(look())


def test_it_sees_what_has_come_since_the_conversation_began(at_home: World) -> None:
    async def look() -> None:
        async with talking(at_home) as talk:
            assert "no problems" in await talk.command("/doctor")
            at_home.write("~/.kitbag/settings.toml", "colour = 'red'\n")
            assert "colour" in await talk.command("/doctor")

    asyncio.run(look())
