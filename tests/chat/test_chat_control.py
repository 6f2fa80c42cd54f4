"""What the chat does with what comes: in every state, in every order. A face is played by a queue of deeds."""

import asyncio
import functools
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from chat.talking_face import HANG, Talk, TalkingFace, talking
from conftest import World
from kitbag.chat.blocks import Block, Said
from kitbag.chat.face import Deed, Key, Left, Live, Status, Submitted
from kitbag.errors import KitbagError
from kitbag.testing import Step


class QueueFace(TalkingFace):
    """Does what is put into `deeds`, at once."""

    def __init__(self, *answers: Any, plain: bool = True) -> None:
        super().__init__(*answers, plain=plain)
        self.deeds: asyncio.Queue[Deed] = asyncio.Queue()
        self.inserted: list[str] = []
        self.live = Live()

    def do(self, *deeds: Deed | str) -> None:
        for deed in deeds:
            self.deeds.put_nowait(Submitted(deed) if isinstance(deed, str) else deed)

    async def next(self) -> Deed:
        return await self.deeds.get()

    def insert(self, text: str) -> None:
        self.inserted.append(text)

    def draw(self, live: Live, status: Status) -> None:
        self.live = live

    def said(self) -> list[str]:
        return [block.text for block in self.blocks if isinstance(block, Said)]

    async def until(self, condition: Callable[[], object]) -> None:
        deadline = asyncio.get_running_loop().time() + HANG
        while not condition():
            assert asyncio.get_running_loop().time() < deadline, f"it never came true:\n{self.seen()}"
            await asyncio.sleep(0.005)


class Conversing:
    def __init__(self, talk: Talk, face: QueueFace) -> None:
        self.talk, self.face, self.chat = talk, face, talk.chat
        self.ending = asyncio.ensure_future(self.chat.converse())

    async def left(self, deed: Left = Left()) -> int:
        self.face.do(deed)
        return await asyncio.wait_for(self.ending, HANG)

    async def until_idle(self) -> None:
        await self.face.until(lambda: not self.chat._is_busy() and self.chat._events.empty())


@asynccontextmanager
async def conversing(world: World, *steps: Any, face: QueueFace | None = None, **more: Any) -> AsyncIterator[Conversing]:
    played = face or QueueFace()
    async with talking(world, *steps, face=played, **more) as talk:
        here = Conversing(talk, played)
        try:
            yield here
        finally:
            if not here.ending.done():
                await here.left()


def in_a_loop(test: Callable[..., Any]) -> Callable[..., None]:
    @functools.wraps(test)
    def run(*arguments: Any, **named: Any) -> None:
        asyncio.run(test(*arguments, **named))

    return run


SLOW = Step(text="never", delay=600)


def call(name: str, call_id: str = "c1", **arguments: Any) -> Step:
    return Step(calls=((call_id, name, json.dumps(arguments)),))


# Cancelling


@in_a_loop
async def test_what_is_cancelled_in_the_moment_it_was_sent_is_not_lost_without_a_word(world: World) -> None:
    async with conversing(world, "An answer.") as here:
        here.face.do("hello", Key("cancel"))
        await here.face.until(lambda: "cancelled" in here.face.seen())
        assert here.face.said() == ["hello"]
        await here.until_idle()
        here.face.do("again")
        await here.face.until(lambda: "An answer." in here.face.seen())


@in_a_loop
async def test_to_leave_in_the_moment_something_was_sent_leaves_nothing_half_begun(world: World) -> None:
    async with conversing(world, "An answer.") as here:
        here.face.do("hello", "/context", "more", Left())
        assert await asyncio.wait_for(here.ending, HANG) == 0


@in_a_loop
async def test_esc_twice_and_once_more_cancels_once(world: World) -> None:
    async with conversing(world, SLOW, "An answer.") as here:
        here.face.do("hello")
        await here.face.until(lambda: here.talk.model.requests)
        here.face.do(Key("cancel"), Key("cancel"), Key("cancel"))
        await here.until_idle()
        here.face.do("again")
        await here.face.until(lambda: "An answer." in here.face.seen())
        assert here.face.seen().count("cancelled") == 1


@in_a_loop
async def test_esc_gives_back_what_was_queued_in_its_order(world: World) -> None:
    async with conversing(world, SLOW, "An answer.") as here:
        here.face.do("hello", "two", "three")
        await here.face.until(lambda: here.face.live.queued == ("two", "three"))
        here.face.do(Key("cancel"))
        await here.until_idle()
        assert here.face.inserted == ["two\nthree"]
        assert here.face.live == Live()


@in_a_loop
async def test_esc_stops_a_command_that_works_beside(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    from kitbag.chat.commands import doctor

    async def hanging(chat: object, arguments: str) -> None:
        await asyncio.sleep(600)

    monkeypatch.setattr(doctor, "doctor_command", hanging)
    async with conversing(world, "An answer.") as here:
        here.face.do("/doctor")
        await here.face.until(lambda: here.face.said() == ["/doctor"])
        here.face.do(Key("cancel"))
        await here.face.until(lambda: "cancelled" in here.face.seen())
        here.face.do("hello")
        await here.face.until(lambda: "An answer." in here.face.seen())


# Leaving


@in_a_loop
async def test_lines_of_a_pipe_are_done_one_after_the_other_also_exit(world: World) -> None:
    async with conversing(world, Step(text="First.", delay=0.2), "Second.") as here:
        lines = ("one", "/mode plan", "two", "/exit", "never said")
        here.face.do(*(Submitted(line, waits=True) for line in lines))
        assert await here.left(Left(now=False)) == 0
        assert here.face.said() == ["one", "/mode plan", "two", "/exit"]
        assert "Second." in here.face.seen()


@in_a_loop
async def test_a_signal_ends_what_is_still_done_after_the_end_of_the_input(world: World) -> None:
    async with conversing(world, SLOW) as here:
        here.face.do("hello", Left(now=False))
        await here.face.until(lambda: here.talk.model.requests)
        assert await here.left(Left(now=True, code=143)) == 143
        assert here.talk.agent.session.status == "cancelled"


# News


class _FullJournal:
    """A delegation whose news can't be written down."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.asked = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def has_news(self) -> bool:
        return True

    async def news(self) -> str:
        self.asked += 1
        raise KitbagError("the disk is full", "make room")


@in_a_loop
async def test_news_that_can_not_be_told_are_not_tried_again_and_again(world: World) -> None:
    async with conversing(world, "An answer.") as here:
        agent = here.talk.agent
        full = _FullJournal(agent.delegation)
        agent.delegation = full  # type: ignore[assignment]
        here.chat.background._has_untold = True
        here.chat._events.put_nowait(_news())
        await here.face.until(lambda: "the disk is full" in here.face.seen())
        await asyncio.sleep(0.1)
        assert full.asked == 1
        here.face.do("hello")  # asks for them once more
        await here.face.until(lambda: full.asked == 2)
        await here.until_idle()
        await asyncio.sleep(0.05)
        assert full.asked <= 3


def _news() -> Any:
    from kitbag.chat.chat import _Happened

    return _Happened("news")


@in_a_loop
async def test_what_goes_wrong_while_background_work_is_watched_is_told(world: World) -> None:
    async with conversing(world, "An answer.") as here:

        def broken() -> bool:
            raise ValueError("a record nobody understands")

        await here.face.until(lambda: here.chat.background._watch is not None)
        here.chat.background._watch.has_grown = broken  # type: ignore[union-attr,method-assign]
        await here.face.until(lambda: "a record nobody understands" in here.face.seen())
        here.face.do("hello")
        await here.face.until(lambda: "An answer." in here.face.seen())
        assert await here.left() == 0


# What is shown


class _StumblingFace(QueueFace):
    stumbles = False

    def show(self, *blocks: Block) -> None:
        if self.stumbles and any("An answer." in str(block) for block in blocks):
            self.stumbles = False
            raise ValueError("can't be drawn")
        super().show(*blocks)


@in_a_loop
async def test_a_face_that_stumbles_once_ends_nothing_and_nothing_seems_to_work_on(world: World) -> None:
    face = _StumblingFace()
    async with conversing(world, "An answer.", "Another.", face=face) as here:
        face.stumbles = True
        face.do("hello")
        await face.until(lambda: "can't be drawn" in face.seen())
        await here.until_idle()
        assert face.live.activity == ""
        face.do("again")
        await face.until(lambda: "Another." in face.seen())


@in_a_loop
async def test_a_face_that_can_be_read_no_more_ends_the_conversation(world: World) -> None:
    class Deaf(QueueFace):
        async def next(self) -> Deed:
            await super().next()
            raise ValueError("no more")

    face = Deaf()
    async with conversing(world, SLOW, face=face) as here:
        face.do("hello")
        assert await asyncio.wait_for(here.ending, HANG) == 1
        assert "no more" in face.seen()
