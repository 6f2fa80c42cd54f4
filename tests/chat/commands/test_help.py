"""`/help`: everything that can be typed is told, each once."""

import asyncio

import pytest

from conftest import World
from kitbag.chat.commands import COMMANDS
from kitbag.chat.configured_keys import list_keys, parse_keys
from kitbag.errors import NotFoundError
from kitbag.views.blocks import FieldsBlock, TableBlock
from support.talking_face import TalkingFace, talking


def test_every_command_is_told_once_and_every_key(at_home: World) -> None:
    async def look() -> None:
        async with talking(at_home) as talk:
            await talk.command("/help")
            rows = [
                row[0].split()[0] for table in talk.shown(TableBlock) for row in table.rows if row[0].startswith("/")
            ]
            assert sorted(rows) == sorted(f"/{name}" for name in COMMANDS)
            keys = next(table for table in talk.shown(TableBlock) if table.title == "Keys")
            assert {"Enter", "Alt-Enter", "Esc", "Shift-Tab", "Ctrl-O", "Ctrl-R", "Up", "Ctrl-V", "Ctrl-G"} <= {
                row[0] for row in keys.rows
            }

    asyncio.run(look())


def test_configured_keys_are_listed_in_place_of_the_usual_ones(at_home: World) -> None:
    face = TalkingFace()
    face.keys = list_keys(parse_keys(["details=ctrl-t", "mode=f2"])[0])

    async def look() -> None:
        async with talking(at_home, face=face) as talk:
            await talk.command("/help")
            keys = next(table for table in talk.shown(TableBlock) if table.title == "Keys")
            shown = {row[0] for row in keys.rows}
            assert {"Ctrl-T", "F2", "Ctrl-B"} <= shown
            assert not {"Ctrl-O", "Shift-Tab"} & shown

    asyncio.run(look())


def test_two_actions_can_swap_their_keys_and_no_key_has_two_effects() -> None:
    keys, problems = parse_keys(["details=ctrl-b", "background=ctrl-o"])
    assert (keys["details"], keys["background"], problems) == ("c-b", "c-o", [])
    keys, problems = parse_keys(["details=ctrl-b", "mode=ctrl-t", "edit=ctrl-t", "image=ctrl-x"])
    assert len(set(keys.values())) == len(keys)
    assert [problem.split("'")[1] for problem in problems] == ["image=ctrl-x", "details=ctrl-b", "mode=ctrl-t"]
    assert "ctrl-LETTER (not c, d, h, i, j, m, x, z)" in problems[0]


def test_the_person_s_own_commands_and_the_number_of_skills_are_told(at_home: World) -> None:
    at_home.write("~/.claude/commands/ship.md", "---\ndescription: Ships it.\nargument-hint: VERSION\n---\nShip.\n")
    at_home.skill("~/.kitbag/skills", "deploy")
    at_home.skill("~/.kitbag/skills", "secret", user_invocable="false")

    async def look() -> None:
        async with talking(at_home) as talk:
            shown = await talk.command("/help")
            library = talk.agent.environment.library
            skills = sum(library.evaluate(one).user and one.kind == "skill" for one in library.skills)
            assert "/ship" in shown
            assert "Ships it." in shown
            assert f"{skills} skills available as /NAME" in shown

    asyncio.run(look())


def test_one_is_told_about_by_its_name(at_home: World) -> None:
    at_home.skill("~/.kitbag/skills", "deploy", "Deploys the thing.")

    async def look() -> None:
        async with talking(at_home) as talk:
            assert "/model [NAME [EFFORT]]" in await talk.command("/help /model")
            assert "Deploys the thing." in await talk.command("/help deploy")
            assert len(talk.shown(FieldsBlock)) == 2
            with pytest.raises(NotFoundError) as found:
                await talk.command("/help contxt")
            assert "context" in found.value.fix
            with pytest.raises(NotFoundError) as found:
                await talk.command("/help deplyo")
            assert "deploy" in found.value.fix

    asyncio.run(look())


def test_exit_leaves(at_home: World) -> None:
    async def look() -> int:
        async with talking(at_home) as talk:
            talk.face.lines = ["/exit"]
            return await talk.chat.run()

    assert asyncio.run(look()) == 0
