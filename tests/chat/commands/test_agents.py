"""`/agents`: what each may do and costs, and switching one on and off."""

import asyncio

import pytest

from conftest import World
from kitbag.errors import NotFoundError, UsageError
from kitbag.text.tokens import estimate_tokens
from kitbag.views.blocks import TableBlock
from support.talking_face import TalkingFace, talking

HELPER = "---\nname: helper\ndescription: Helps out.\ntools: Read, Grep\npermissionMode: plan\n---\nHelp them all.\n"


def test_each_is_told_with_mode_tools_model_source_and_cost(at_home: World) -> None:
    at_home.write("~/.kitbag/agents/helper.md", HELPER)

    async def look() -> None:
        async with talking(at_home) as talk:
            await talk.command("/agents")
            rows = {row[0]: row[1:] for row in talk.shown(TableBlock)[-1].rows}
            state, mode, model, source, tokens, tools = rows["helper"]
            assert (state, mode, model, source) == ("on", "plan", "inherit", "user")
            assert tokens.endswith(f" + {estimate_tokens('Help them all.')}")
            assert not tokens.startswith("0 ")
            assert tools == "Read, Grep: Helps out."
            assert rows["Explore"][3] == "built-in"

    asyncio.run(look())


def test_the_panel_switches_and_shows(at_home: World) -> None:
    at_home.write("~/.kitbag/agents/helper.md", HELPER)
    face = TalkingFace(pressed=[("space", "helper"), ("enter", "helper"), ("space", "helper")])

    async def look() -> None:
        async with talking(at_home, face=face) as talk:
            shown = await talk.command("/agents")
            assert [face.line("helper", at).split()[0] for at in range(4)] == ["on", "off", "off", "on"]
            assert "can no longer start it" in shown
            assert "Helps out." in shown

    asyncio.run(look())


def test_what_is_switched_off_is_told_to_the_model(at_home: World) -> None:
    at_home.write("~/.kitbag/agents/helper.md", HELPER)

    async def look() -> None:
        async with talking(at_home, "Hi.", "So it is.") as talk:
            await talk.say("hello")
            await talk.command("/agents off helper")
            await talk.say("and now?")
            assert "- agent helper" in str(talk.model.requests[-1].messages[-1])

    asyncio.run(look())


def test_those_of_an_untrusted_workspace_are_named(at_home: World) -> None:
    at_home.write(".kitbag/agents/helper.md", HELPER)

    async def look() -> None:
        async with talking(at_home, trust_workspace=False) as talk:
            assert "helper  -  -  -  project  -  omitted: the workspace is not trusted" in await talk.command("/agents")

    asyncio.run(look())


@pytest.mark.parametrize(
    ("line", "error", "words"),
    [
        ("/agents off", UsageError, "/agents off NAME"),
        ("/agents Explor", NotFoundError, "did you mean Explore"),
        ("/agents off Explor", NotFoundError, "did you mean Explore"),
    ],
)
def test_what_is_typed_wrong_is_told(at_home: World, line: str, error: type[Exception], words: str) -> None:
    async def look() -> None:
        async with talking(at_home) as talk:
            with pytest.raises(error) as found:
                await talk.command(line)
            assert words in getattr(found.value, "fix", "")

    asyncio.run(look())
