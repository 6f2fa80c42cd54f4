"""What the chat does with what comes: in every state, in every order. A face is played by a queue of deeds."""

import asyncio
import json
from typing import Any

import pytest

from chat.conversing import Conversing, conversing
from chat.held import begun, model, workshop_at_home
from chat.queue_face import QueueFace, in_a_loop
from conftest import World
from kitbag.chat.ui import ExitRequested, KeyPressed, Submitted, UserAction
from kitbag.store.private_files import StoreError
from kitbag.tasks.board import Board
from kitbag.testing import Rule, Script, Step
from kitbag.views.blocks import Block
from support.talking_face import talking
from support.waiting import TEST_TIMEOUT
from support.workshop import Workshop

__all__ = ["workshop_at_home"]
pytestmark = pytest.mark.usefixtures("at_home")


SLOW = Step(text="never", delay=600)


def call(name: str, call_id: str = "c1", **arguments: Any) -> Step:
    return Step(calls=((call_id, name, json.dumps(arguments)),))


# Cancelling


@in_a_loop
async def test_what_is_cancelled_in_the_moment_it_was_sent_is_not_lost_without_a_word(world: World) -> None:
    async with conversing(world, "An answer.") as here:
        here.face.do("hello", KeyPressed("cancel"))
        await here.face.until(lambda: "interrupted" in here.face.seen())
        assert here.face.said() == ["hello"]
        await here.until_idle()
        here.face.do("again")
        await here.face.until(lambda: "An answer." in here.face.seen())


@in_a_loop
async def test_to_leave_in_the_moment_something_was_sent_leaves_nothing_half_begun(world: World) -> None:
    async with conversing(world, "An answer.") as here:
        here.face.do("hello", "/context", "more", ExitRequested())
        assert await asyncio.wait_for(here.ending, TEST_TIMEOUT) == 0


@in_a_loop
async def test_esc_twice_and_once_more_cancels_once(world: World) -> None:
    async with conversing(world, SLOW) as here:
        here.face.do("hello")
        await here.face.until(lambda: here.talk.model.requests)
        here.face.do(KeyPressed("cancel"), KeyPressed("cancel"), KeyPressed("cancel"))
        await here.until_idle()
        here.talk.model.script = Script([Rule([Step(text="An answer.")])])
        here.face.do("again")
        await here.face.until(lambda: "An answer." in here.face.seen())
        assert here.face.seen().count("interrupted") == 1


@in_a_loop
async def test_esc_stops_a_command_that_works_beside(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    from kitbag.chat.commands import doctor

    async def hanging(chat: object, arguments: str) -> None:
        await asyncio.sleep(600)

    monkeypatch.setattr(doctor, "doctor_command", hanging)
    async with conversing(world, "An answer.") as here:
        here.face.do("/doctor")
        await here.face.until(lambda: here.face.said() == ["/doctor"])
        here.face.do(KeyPressed("cancel"))
        await here.face.until(lambda: "interrupted" in here.face.seen())
        here.face.do("hello")
        await here.face.until(lambda: "An answer." in here.face.seen())


# Leaving


@in_a_loop
async def test_lines_of_a_pipe_are_done_one_after_the_other_also_exit(world: World) -> None:
    async with conversing(world, Step(text="First.", delay=0.2), "Second.") as here:
        lines = ("one", "/mode plan", "two", "/exit", "never said")
        here.face.do(*(Submitted(text=line, is_piped=True) for line in lines))
        assert await here.left(ExitRequested(immediately=False)) == 0
        assert here.face.said() == ["one", "/mode plan", "two", "/exit"]
        assert "Second." in here.face.seen()


@in_a_loop
async def test_a_signal_ends_what_is_still_done_after_the_end_of_the_input(world: World) -> None:
    async with conversing(world, SLOW) as here:
        here.face.do("hello", ExitRequested(immediately=False))
        await here.face.until(lambda: here.talk.model.requests)
        assert await here.left(ExitRequested(immediately=True, exit_code=143)) == 143
        assert here.talk.agent.session.status == "cancelled"


@in_a_loop
async def test_who_leaves_is_told_how_to_go_on_also_when_nothing_was_answered(world: World) -> None:
    async with conversing(world, SLOW) as here:

        def broken() -> list[Any]:
            raise StoreError("the disk does not answer")

        here.talk.agent.delegation.unfinished = broken  # type: ignore[union-attr,method-assign]
        here.face.do("hello")
        await here.face.until(lambda: here.talk.model.requests)
        assert await here.left() == 0
        assert f"kitbag --resume {here.talk.agent.session.id}" in here.face.seen()
        assert "the disk does not answer" in here.face.seen()


# News


@in_a_loop
async def test_news_that_can_not_be_told_are_not_tried_again_and_again(
    workshop_at_home: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[str] = []

    async def full(self: Board, task_id: str, run: int) -> bool:
        tried.append(task_id)
        raise StoreError("the disk is full", "make room")

    workshop, face = workshop_at_home, QueueFace()
    monkeypatch.setattr(Board, "mark_notified", full)
    async with talking(workshop.world, face=face, model=model(workshop)) as talk:
        here = Conversing(talk, face)
        assert talk.agent.delegation.host  # type: ignore[union-attr] - it has begun something
        task = await begun(workshop, talk.agent.session.id, "Find it.", description="a search")
        await asyncio.to_thread(workshop.work)
        await face.until(lambda: "ended after" in face.seen() and tried)
        await here.until_idle()
        for _ in range(50):  # as often as it likes
            await asyncio.sleep(0)
        assert tried == [task.id]
        face.do("hello")  # then they are asked for once more
        await face.until(lambda: len(tried) == 2)
        await here.until_idle()
        for _ in range(50):
            await asyncio.sleep(0)
        assert len(tried) == 2
        assert await here.left() == 0


@in_a_loop
async def test_what_goes_wrong_while_background_work_is_watched_is_told(world: World) -> None:
    async with conversing(world, "An answer.") as here:

        def broken() -> bool:
            raise ValueError("a record nobody understands")

        await here.face.until(lambda: here.chat.background._watcher is not None)
        here.chat.background._watcher.has_new_records = broken  # type: ignore[union-attr,method-assign]
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
        async def next(self) -> UserAction:
            await super().next()
            raise ValueError("no more")

    face = Deaf()
    async with conversing(world, SLOW, face=face) as here:
        face.do("hello")
        assert await asyncio.wait_for(here.ending, TEST_TIMEOUT) == 1
        assert "no more" in face.seen()
