"""What begins with `/` and names nothing is not sent; what was pasted stays a few words where it is shown."""

import asyncio

import pytest

from chat.queue_face import QueueFace
from conftest import World
from kitbag.chat.ui import ExitRequested, KeyPressed, Submitted
from kitbag.views.blocks import NoticeBlock, UserBlock
from support.talking_face import talking
from support.waiting import TEST_TIMEOUT


@pytest.mark.parametrize(
    ("line", "fix"),
    [
        ("/ex", "did you mean /export, /exit?"),
        ("/hepl me", "did you mean /help?"),
        ("/deplyo now", "did you mean /deploy?"),
        ("/qqqq", "type /help for commands"),
    ],
)
def test_a_slip_of_the_fingers_is_told_and_not_sent(at_home: World, line: str, fix: str) -> None:
    at_home.skill("~/.kitbag/skills", "deploy", "Deploys it.")

    async def talk() -> None:
        async with talking(at_home, "An answer.") as here:
            await here.chat._run_turn(Submitted(text=line))
            (told,) = here.shown(NoticeBlock)
            assert told == NoticeBlock("error", f"no command or skill named {line.split()[0]}; nothing was sent", fix)
            assert here.model.requests == []

    asyncio.run(talk())


@pytest.mark.parametrize("line", ["/deploy", "/tmp is full, why?", "/no/such/file is gone", "/ what is this", "// a"])
def test_what_names_a_skill_or_a_path_is_sent(at_home: World, line: str) -> None:
    at_home.skill("~/.kitbag/skills", "deploy", "Deploys it.")

    async def talk() -> None:
        async with talking(at_home, "An answer.") as here:
            await here.chat._run_turn(Submitted(text=line))
            assert len(here.model.requests) == 1

    asyncio.run(talk())


def test_what_was_pasted_is_shown_as_the_words_that_stood_for_it(at_home: World) -> None:
    async def talk() -> None:
        async with talking(at_home, "An answer.") as here:
            pasted = "\n".join(f"line {number}" for number in range(120))
            await here.chat._run_turn(
                Submitted(text=f"{pasted} what is it?", typed="[pasted text #1, 120 lines] what is it?")
            )
            assert here.shown(UserBlock) == [UserBlock("[pasted text #1, 120 lines] what is it?")]
            assert "line 119 what is it?" in here.last_request()

    asyncio.run(talk())


def test_what_waits_comes_back_as_it_was_typed(at_home: World) -> None:
    async def talk() -> None:
        face = QueueFace()
        async with talking(at_home, "An answer.", face=face) as here:
            pasted = Submitted(text="a\n" * 120, typed="[pasted text #1, 120 lines]")
            await here.chat.pending.add(pasted, here.agent.inbox)
            await here.chat._handle(KeyPressed("unqueue"))
            assert face.inserted == ["[pasted text #1, 120 lines]"]

    asyncio.run(talk())


@pytest.mark.parametrize("word", ["exit", "quit", "/quit"])
def test_one_leaves_as_one_leaves_a_shell(at_home: World, word: str) -> None:
    async def talk() -> None:
        face = QueueFace()
        async with talking(at_home, "An answer.", face=face) as here:
            face.do(word)
            assert await asyncio.wait_for(here.chat.run(), TEST_TIMEOUT) == 0
            assert here.model.requests == []

    asyncio.run(talk())


def test_from_a_pipe_such_a_word_is_a_word(at_home: World) -> None:
    async def talk() -> None:
        face = QueueFace()
        async with talking(at_home, "An answer.", face=face) as here:
            face.do(Submitted(text="exit", is_piped=True), ExitRequested(immediately=False))
            await asyncio.wait_for(here.chat.run(), TEST_TIMEOUT)
            assert len(here.model.requests) == 1

    asyncio.run(talk())
