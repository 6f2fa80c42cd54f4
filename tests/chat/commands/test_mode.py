"""`/mode` and Shift-Tab: what may be done without asking; the freest mode is asked for."""

import asyncio

import pytest

from conftest import World
from kitbag.chat.commands.mode import MODE_ORDER, cycle_mode
from kitbag.dialogs.form import Form
from kitbag.errors import UsageError
from kitbag.permissions.decisions.decide import Permissions
from kitbag.permissions.model import SandboxSupport
from kitbag.permissions.rules.rule import PermissionRules
from kitbag.views.blocks import TableBlock
from support import needs
from support.talking_face import TalkingFace, talking


def test_the_five_are_told_with_the_one_that_counts(at_home: World) -> None:
    async def look() -> None:
        async with talking(at_home, mode="acceptEdits") as talk:
            await talk.command("/mode")
            table = talk.shown(TableBlock)[-1]
            assert [row[0] for row in table.rows] == list(MODE_ORDER)
            assert [row[0] for row in table.rows if row[1] == "yes"] == ["acceptEdits"]
            assert not talk.face.forms  # in plain lines nothing is asked that eats the next line

    asyncio.run(look())


def test_one_is_chosen_from_the_form(at_home: World) -> None:
    face = TalkingFace(str(MODE_ORDER.index("plan") + 1))

    async def look() -> None:
        async with talking(at_home, face=face) as talk:
            await talk.command("/mode")
            assert talk.agent.permissions.mode == "plan"
            assert face.forms[0].default == str(MODE_ORDER.index("default") + 1)

    asyncio.run(look())


@pytest.mark.parametrize(("word", "mode"), [("plan", "plan"), ("ACCEPTEDITS", "acceptEdits"), ("read-only", "plan")])
def test_one_is_chosen_by_its_name(at_home: World, word: str, mode: str) -> None:
    async def look() -> None:
        async with talking(at_home) as talk:
            assert f"{mode}: " in await talk.command(f"/mode {word}")
            assert talk.agent.permissions.mode == mode

    asyncio.run(look())


def test_a_name_that_is_none_is_told(at_home: World) -> None:
    async def look() -> None:
        async with talking(at_home) as talk:
            with pytest.raises(UsageError) as found:
                await talk.command("/mode autonomus")
            assert found.value.fix == "did you mean autonomous?"
            assert talk.agent.permissions.mode == "default"

    asyncio.run(look())


def test_shift_tab_goes_round_and_never_to_what_is_freer(at_home: World) -> None:
    async def look() -> None:
        async with talking(at_home) as talk:
            seen: list[str] = []
            for _ in range(4):
                await cycle_mode(talk.chat)
                seen.append(talk.agent.permissions.mode)
            assert seen == ["acceptEdits", "plan", "default", "acceptEdits"]
            assert "plan: reads only, changes nothing\ndefault: asks" in talk.face.seen()
            await talk.command("/mode locked")
            await cycle_mode(talk.chat)
            assert talk.agent.permissions.mode == "default"

    asyncio.run(look())


@pytest.mark.parametrize(("answer", "mode"), [("y", "autonomous"), ("n", "default"), (None, "default")])
def test_autonomous_is_asked_for_once_with_what_it_means(at_home: World, answer: str | None, mode: str) -> None:
    needs.bubblewrap()
    face = TalkingFace(answer)

    async def look() -> None:
        async with talking(at_home, face=face) as talk:
            shown = await talk.command("/mode autonomous")
            assert talk.agent.permissions.mode == mode
            assert "never asks" in shown
            assert "sandbox: bubblewrap" in shown
            form: Form = face.forms[0]
            assert not form.default  # by Enter alone nothing becomes freer

    asyncio.run(look())


def test_without_a_sandbox_that_is_said_in_the_question(at_home: World) -> None:
    face = TalkingFace("n")

    async def look() -> None:
        async with talking(at_home, face=face) as talk:
            ground = talk.agent.environment
            nothing = SandboxSupport(kind="none", problem="bwrap is not installed", fix="install bubblewrap")
            talk.agent.permissions = Permissions(ground.workspace, "default", PermissionRules(), nothing)
            shown = await talk.command("/mode autonomous")
            assert "no sandbox available (bwrap is not installed): commands don't run in this mode" in shown
            assert "install bubblewrap" in shown

    asyncio.run(look())
