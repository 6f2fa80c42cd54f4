"""The chats that a server runs for its browsers: idle ones, other sessions, several at once, large messages."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from conftest import World
from kitbag.assembly.run_options import Options
from kitbag.chat.ui import ChatStatus, LiveState, Submitted
from kitbag.dialogs.form import FormAnswer
from kitbag.runtime.session_locks import is_session_open
from kitbag.views.blocks import ReplyBlock
from kitbag.web import hosted_chats
from kitbag.web.hosted_chats import IDLE_SECONDS, HostedChat, HostedChats
from kitbag.web.topics import MAX_BYTES, TopicCursor
from kitbag.web.web_ui import WebUI
from support.clock import Clock
from support.matrix import long
from support.waiting import until_true


def events(chat: HostedChat) -> list[dict[str, Any]]:
    """What a browser that starts gets."""
    found, _ = chat.ui.topic.changes(TopicCursor(), most=10_000)
    return read_events(found)


def shown(chat: HostedChat) -> str:
    return "".join(event["html"] for event in events(chat) if event["kind"] == "block")


def read_events(found: list[bytes]) -> list[dict[str, Any]]:
    return [json.loads(event.removeprefix(b"data: ")) for event in found]


async def opened(chat: HostedChat) -> HostedChat:
    await until_true(lambda: chat.is_closed or "/help" in shown(chat))
    return chat


async def say(chat: HostedChat, text: str, until: str) -> None:
    chat.ui.act(Submitted(text=text), "tab")
    await until_true(lambda: until in shown(chat) and not chat.ui.is_working)


def run(world: World, work: "Callable[[HostedChats], Awaitable[None]]") -> None:
    async def all_of_it() -> None:
        chats = HostedChats(lambda: Options(directory=str(world.workspace), model="offline", trust_workspace=True))
        try:
            await work(chats)
        finally:
            await chats.close()

    asyncio.run(all_of_it())


def test_a_chat_without_a_tab_ends_after_a_while_and_frees_its_session(
    at_home: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch, hosted_chats)

    async def work(chats: HostedChats) -> None:
        watched, left = [await opened(chats.open(str(at_home.workspace))) for _ in range(2)]
        await say(left, "find this again", "find this again")
        watched.ui.topic.follow(notify := lambda: None)
        home = left.places.kitbag_home
        clock.let_pass(IDLE_SECONDS - 10)
        await chats.close_idle_once()
        assert is_session_open(home, left.session_id)
        clock.let_pass(20)
        await chats.close_idle_once()
        assert not watched.is_closed
        assert not is_session_open(home, left.session_id)
        assert [event["reason"] for event in events(left) if event["kind"] == "closed"] == ["idle"]
        again = await opened(chats.open(str(at_home.workspace), resume=left.session_id))
        assert again is not left
        assert "find this again" in shown(again)
        watched.ui.topic.unfollow(notify)

    run(at_home, work)


def test_the_page_follows_the_chat_to_another_session_and_shows_that_one_alone(at_home: World) -> None:
    async def work(chats: HostedChats) -> None:
        chat = await opened(chats.open(str(at_home.workspace)))
        tab = TopicCursor()
        await say(chat, "first session", "first session")
        chat.ui.topic.changes(tab)
        first = chat.session_id
        chat.ui.act(Submitted(text="/clear"), "tab")
        await until_true(lambda: chat.session_id != first and "first session" not in shown(chat))
        kinds = [json.loads(event.removeprefix(b"data: "))["kind"] for event in chat.ui.topic.changes(tab)[0]]
        assert "clear" in kinds
        await say(chat, "second session", "second session")
        second = chat.session_id
        await say(chat, f"/resume {first}", "first session")
        assert chat.session_id == first
        assert "second session" not in shown(chat).replace(f"/resume {first}", "")
        assert [event["session"] for event in events(chat) if event["kind"] == "session"] == [first]
        assert chats.of_session(first) is chat
        assert chats.of_session(second) is None

    run(at_home, work)


def test_a_session_that_is_open_elsewhere_is_reported_and_opens_once_it_is_free(at_home: World) -> None:
    async def work(chats: HostedChats) -> None:
        elsewhere = HostedChats(
            lambda: Options(directory=str(at_home.workspace), model="offline", trust_workspace=True)
        )
        other = await opened(elsewhere.open(str(at_home.workspace)))
        await say(other, "in a terminal", "in a terminal")
        session = other.session_id
        refused = await opened(chats.open(str(at_home.workspace), resume=session))
        (closed,) = [event for event in events(refused) if event["kind"] == "closed"]
        assert "open" in closed["problem"]
        assert closed["session"] == session
        await elsewhere.close()
        again = await opened(chats.open(str(at_home.workspace), resume=session))
        assert not again.is_closed
        assert "in a terminal" in shown(again)

    run(at_home, work)


def test_chats_at_the_same_time_do_not_mix(at_home: World) -> None:
    async def work(chats: HostedChats) -> None:
        several = [await opened(chats.open(str(at_home.workspace))) for _ in range(4)]
        await asyncio.gather(*(say(chat, f"message {at} of four", f"{at} of four") for at, chat in enumerate(several)))
        assert len({chat.session_id for chat in several}) == 4
        for at, chat in enumerate(several):
            assert [number for number in range(4) if f"message {number} of four" in shown(chat)] == [at]

    run(at_home, work)


@long
def test_a_message_of_10_mb_is_shown_in_part(at_home: World) -> None:
    async def work(chats: HostedChats) -> None:
        chat = await opened(chats.open(str(at_home.workspace)))
        await say(chat, "a line of many\n" * 700_000, "a line of many")
        assert len(shown(chat)) < MAX_BYTES

    run(at_home, work)


def test_the_question_whether_to_trust_is_answered_once_for_all_tabs(at_home: World) -> None:
    at_home.write(".claude/settings.json", '{"hooks": {}, "permissions": {"allow": ["Bash(ls:*)"]}}')
    at_home.skill(".claude/skills", "deploy", "Deploys.", "body")

    async def work() -> None:
        chats = HostedChats(lambda: Options(directory=str(at_home.workspace), model="offline"))
        chat = chats.open(str(at_home.workspace))
        await until_true(lambda: chat.ui.has_question)
        (question,) = next(event["questions"] for event in events(chat) if event["kind"] == "questions")
        assert chat.ui.answer(question["id"], None, "second tab")
        assert not chat.ui.answer(question["id"], FormAnswer(("t",), ""), "first tab")
        await until_true(lambda: chat.ui.has_agent)
        await chats.close()

    asyncio.run(work())


def test_a_finished_paragraph_reaches_a_tab_together_with_the_end_of_its_draft() -> None:
    async def work() -> list[list[bytes]]:
        ui, cursor, frames = WebUI("chat:a"), TopicCursor(), list[list[bytes]]()
        ui.draw(LiveState(activity="writing", tail="Words"), ChatStatus())
        await until_true(lambda: any(b"Words" in event for event in ui.topic.changes(cursor)[0]))
        loop = asyncio.get_running_loop()
        ui.topic.follow(lambda: loop.call_soon(lambda: frames.append(ui.topic.changes(cursor)[0])))
        ui.show(ReplyBlock("Words and more."))
        ui.draw(LiveState(activity="writing", tail="Then"), ChatStatus())
        await until_true(lambda: b"Then" in b"".join(event for frame in frames for event in frame))
        await ui.close()
        return [frame for frame in frames if frame]

    (frame,) = asyncio.run(work())
    assert [event["kind"] for event in read_events(frame)] == ["block", "live"]
