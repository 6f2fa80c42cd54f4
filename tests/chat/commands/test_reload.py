"""`/reload`: what has changed on the disk is there, and is shown."""

import asyncio

import pytest

from conftest import World
from support.talking_face import talking

pytestmark = pytest.mark.usefixtures("at_home")


def test_what_has_come_and_gone_is_shown_with_what_it_costs(world: World) -> None:
    world.skill("~/.kitbag/skills", "old")

    async def look() -> None:
        async with talking(world) as talk:
            assert "no changes" in await talk.command("/reload")
            (world.home / ".kitbag/skills/old/SKILL.md").unlink()
            world.skill("~/.kitbag/skills", "fresh", "Does fresh things, and is described with many words.")
            shown = await talk.command("/reload")
            assert "fresh" in shown
            assert "old" in shown
            assert "library-changes" not in shown
            assert "→" in shown
            assert [skill.name for skill, _ in talk.agent.environment.library.visible_skills()].count("fresh") == 1

    asyncio.run(look())


def test_what_is_wrong_with_a_file_is_told(world: World) -> None:
    async def look() -> None:
        async with talking(world) as talk:
            world.write("~/.kitbag/settings.toml", "not toml at all [")
            assert "settings.toml" in await talk.command("/reload")

    asyncio.run(look())
