"""Messages while the agent works: Enter steers, Tab queues, Esc interrupts and sends, Up takes back; none is lost."""

import asyncio
import json
import os
import signal
from typing import Any

import pytest

from chat.conversing import conversing
from chat.queue_face import QueueFace, in_a_loop
from conftest import World
from kitbag.agent.inbox import Inbox
from kitbag.chat.ui import ExitRequested, KeyPressed, LiveState, Submitted
from kitbag.store.journal import Journal, journal_path
from kitbag.store.redaction import Redactor
from kitbag.testing import ModelServer, Rule, Script, Step
from support.driving import chat
from support.headless import point
from support.pseudo_terminal import ESCAPE, TAB, UP
from support.talking_face import talking

pytestmark = pytest.mark.usefixtures("at_home")
SLOW = Step(text="never", delay=600)


def waits(text: str) -> Submitted:
    return Submitted(text=text, waits=True)


def slow_until(word: str, *answers: str) -> Script:
    """Answers once a request has the word."""
    return Script([Rule([Step(text=answer) for answer in answers], last=word), Rule([SLOW, *map(_step, answers[1:])])])


def _step(text: str) -> Step:
    return Step(text=text)


def sent_texts(requests: list[Any], at: int = -1) -> list[str]:
    """All texts of the user in that request."""
    texts = (
        getattr(part, "text", "")
        for message in requests[at].messages
        if message.role == "user"
        for part in message.parts
    )
    return [text for text in texts if text]


@in_a_loop
async def test_messages_are_pending_until_the_model_got_them_in_their_order(world: World) -> None:
    async with conversing(world, SLOW) as here:
        here.face.do("hello")
        await here.face.until(lambda: here.talk.model.requests)
        here.face.do("two", waits("later"), "three")
        await here.face.until(lambda: here.face.live.steering == ("two", "three"))
        assert here.face.live.queued == ("later",)
        assert here.face.said() == ["hello"]
        here.talk.model.script = slow_until("three", "An answer.", "Queued answer.")
        here.face.do(KeyPressed("cancel"))  # interrupts and delivers
        await here.face.until(lambda: "Queued answer." in here.face.seen())
        assert here.face.said() == ["hello", "two", "three", "later"]
        assert sent_texts(here.talk.model.requests, -2)[-2:] == ["two", "three"]
        assert sent_texts(here.talk.model.requests)[-1] == "later"
        await here.until_idle()
        assert here.face.live == LiveState()


@in_a_loop
async def test_up_takes_back_the_last_one_and_esc_what_is_only_queued(world: World) -> None:
    async with conversing(world, SLOW) as here:
        here.face.do("hello")
        await here.face.until(lambda: here.talk.model.requests)
        here.face.do(waits("two"), waits("three"), "steer", KeyPressed("unqueue"))
        await here.face.until(lambda: here.face.inserted == ["steer"])
        here.face.do(KeyPressed("cancel"))
        await here.until_idle()
        assert here.face.inserted == ["steer", "two\nthree"]
        assert here.talk.agent.inbox.pending() == []


@in_a_loop
async def test_a_message_behind_clear_goes_to_the_new_session(world: World) -> None:
    async with conversing(world, Step(text="An answer.", delay=0.2)) as here:
        before = here.talk.agent.session.id
        here.chat._open_agent = lambda options: type(here.talk.agent)(options=options, provider=here.talk.model)
        here.face.do("hello", "/clear", waits("after it"))
        await here.face.until(lambda: here.face.seen().count("An answer.") == 2)
        assert here.chat.agent.session.id != before
        assert "hello" not in str(here.talk.model.requests[-1].messages)
        assert "after it" in str(here.talk.model.requests[-1].messages)


@in_a_loop
async def test_what_is_pending_at_the_end_of_a_chat_starts_the_next_one(world: World) -> None:
    async with conversing(world, SLOW) as here:
        here.face.do("hello")
        await here.face.until(lambda: here.talk.model.requests)
        here.face.do("two", waits("later"))
        await here.face.until(lambda: here.face.live.queued == ("later",))
        session = here.talk.agent.session.id
        assert await here.left(ExitRequested(exit_code=130)) == 130
    async with conversing(world, "An answer.", "Queued answer.", face=QueueFace(), resume=session) as here:
        await here.face.until(lambda: "Queued answer." in here.face.seen())
        assert sent_texts(here.talk.model.requests)[-2:] == ["two", "later"]
        assert len(here.talk.model.requests) == 2


@in_a_loop
async def test_a_command_that_does_not_exist_returns_to_the_input_line_also_from_the_queue(world: World) -> None:
    async with conversing(world, Step(text="An answer.", delay=0.2), "Never.") as here:
        here.face.do("hello", "/helpp")
        await here.face.until(lambda: "/helpp" in here.face.inserted)
        await here.until_idle()
        assert len(here.talk.model.requests) == 1
        assert here.talk.agent.inbox.pending() == []


def test_kill_between_entry_and_delivery_and_the_resumed_chat_delivers_once(world: World) -> None:
    with ModelServer(slow_until("also this", "Both done.", "Nothing new.")) as server:
        point(world, server)
        with chat(world) as driven:
            driven.say("question one")
            driven.until(lambda: server.requests)
            driven.say("also this")
            driven.until_seen("pending: also this")
            driven.type("and at last that")
            driven.press(TAB)
            driven.until_seen("queued: and at last that")
            os.kill(driven.process.pid, signal.SIGKILL)
            driven.process.wait()
        with chat(world, "--continue") as driven:
            driven.until_seen("Both done.", "Nothing new.")
    bodies = [json.dumps(request.body["messages"]) for request in server.requests]
    assert [body.count("also this") for body in bodies] == [0, 1, 1]
    assert [body.count("and at last that") for body in bodies] == [0, 0, 1]


def test_keys_at_the_terminal(world: World) -> None:
    with ModelServer(slow_until("now", "Steered.")) as server:
        point(world, server)
        with chat(world) as driven:
            driven.say("question one")
            driven.until(lambda: server.requests)
            driven.type("not yet")
            driven.press(TAB)
            driven.until_seen("queued: not yet")
            driven.press(UP)
            driven.until(lambda: "queued: not yet" not in driven.text() and "> not yet" in driven.text())
            driven.say(", now")
            driven.until_seen("pending: not yet, now", "Esc to interrupt and send")
            driven.press(ESCAPE)
            driven.until_seen("Steered.")
    assert json.dumps(server.requests[-1].body["messages"]).count("not yet, now") == 1


def test_a_message_from_another_process_reaches_a_session(world: World) -> None:
    async def send(session: str) -> None:
        with Journal.open(journal_path(str(world.home / ".kitbag")), Redactor([])) as journal:
            await Inbox(journal, session).send("from the web")

    async def talk() -> None:
        async with talking(world, "One.", "Two.") as here:
            await here.say("hello")
            await send(here.agent.session.id)
            await here.say("again")
            assert sent_texts(here.model.requests)[-2:] == ["from the web", "again"]

    asyncio.run(talk())
