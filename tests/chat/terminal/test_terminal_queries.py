"""What the terminal says about itself: colors follow its background, and no reply is taken for keys, nor a key for a
reply."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from chat.seen_terminal import ENTER, Seen, seen, started
from kitbag.chat.terminal import terminal_queries
from kitbag.chat.terminal.terminal_queries import ReplyFilter
from kitbag.chat.terminal.theme import is_light_color
from kitbag.chat.ui import ChatStatus, LiveState, Submitted
from kitbag.views.blocks import ReplyBlock, text_block
from support.waiting import TEST_TIMEOUT

LIGHT, DARK = "\x1b]11;rgb:ffff/fbfb/f0f0\x1b\\", "\x1b]11;rgb:1e1e/1e1e/1e1e\x1b\\"
NAME = "\x1bP>|VTE(7600)\x1b\\"


def at_terminal(scene: Callable[[Seen], Awaitable[None]], **given: Any) -> None:
    async def play() -> None:
        async with seen(120, 30, bell=False, **given) as shown:
            await started(shown)
            await asyncio.wait_for(scene(shown), TEST_TIMEOUT)

    asyncio.run(play())


def colors_since(shown: Seen, start: int) -> set[bytes]:
    return {n for found in re.findall(rb"\x1b\[([0-9;]*)m", shown.raw[start:]) for n in found.split(b";")}


async def show_colors(shown: Seen) -> set[bytes]:
    start = len(shown.raw)
    shown.terminal.show(text_block("careful", "warning"), ReplyBlock("`code`"))
    shown.terminal.draw(LiveState(activity="working"), ChatStatus(model="model-x", mode="autonomous"))
    await shown.until_seen("careful", "code", "working")
    shown.take_in()
    return colors_since(shown, start)


@pytest.mark.parametrize(("reply", "is_light"), [(LIGHT, True), (DARK, False), ("\x1b]11;#ffffff\x07", True)])
def test_colors_follow_the_background_that_the_terminal_reports(reply: str, is_light: bool) -> None:
    async def scene(shown: Seen) -> None:
        shown.take_in()
        assert b"\x1b]11;?\x1b\\" in shown.raw
        await shown.press(reply)
        colors = await show_colors(shown)
        assert ({b"33", b"36"} & colors == set()) == is_light
        assert (b"38" in colors) == is_light

    other = "15;0" if is_light else "0;15"  # the terminal knows better
    at_terminal(scene, environment={"COLORFGBG": other})


def test_a_late_reply_changes_the_colors_and_no_typed_key() -> None:
    async def scene(shown: Seen) -> None:
        assert b"33" in await show_colors(shown)
        shown.terminal.draw(LiveState(), ChatStatus(model="model-x"))
        shown.type("hel" + LIGHT + "lo")
        await shown.until_seen("> hello")
        start = len(shown.raw)
        shown.terminal.show(text_block("beware", "warning"))
        await shown.until_seen("beware")
        assert b"38" in colors_since(shown, start)
        shown.type(ENTER)
        assert await shown.next() == Submitted(text="hello")

    at_terminal(scene)


@pytest.mark.parametrize(
    "reply",
    [
        "\x1b]11;nonsense\x07",
        "\x1b]11;\x1b\\",
        "\x1b]11;rgb:zz/zz/zz\x1b\\",
        "\x1b]11;rgb:ff/ffff/ff\x07",
        "\x1b]11;rgb:12",
        "\x1b]11;",
        "\x1bP>|\x1b\\",
        NAME + LIGHT,
    ],
)
def test_a_damaged_reply_is_no_text(reply: str) -> None:
    async def scene(shown: Seen) -> None:
        shown.type("typed " + reply + "\nahead")
        await shown.until_seen("ahead")
        shown.type(ENTER)
        assert await shown.next() == Submitted(text="typed \nahead")

    at_terminal(scene)


@pytest.mark.parametrize(
    "given",
    [
        {"environment": {"NO_COLOR": "1"}},
        {"theme": "light"},
        {"theme": "dark"},
        {"environment": {"TERM": "linux"}},
    ],
)
def test_the_background_is_asked_for_only_if_it_matters(given: dict[str, Any]) -> None:
    async def scene(shown: Seen) -> None:
        shown.type("hello")
        await shown.until_seen("> hello")
        assert b"]11;" not in shown.raw

    at_terminal(scene, **given)


def test_replies_that_are_on_their_way_at_the_end_do_not_reach_the_shell() -> None:
    async def play() -> None:
        async with seen(environment={"SSH_TTY": "/dev/pts/1"}) as shown:
            await started(shown)
            closing = asyncio.ensure_future(shown.terminal.close())
            await asyncio.sleep(0)
            shown.type(NAME)
            await asyncio.sleep(0)
            shown.type(LIGHT)
            await asyncio.wait_for(closing, TEST_TIMEOUT)
            assert shown.waiting_bytes() == 0

    asyncio.run(play())


# The filter


def filtered(*pieces: str, flushes: bool = False) -> tuple[str, list[str]]:
    replies: list[str] = []
    found = ReplyFilter(dict.fromkeys(("color", "name", "position"), replies.append))
    keys = ""
    for piece in pieces:
        keys += found.feed(piece)
        if flushes:
            keys += found.flush()
    return keys + found.flush(), replies


TYPED = ("hello", "\x1b[A\x1b[200~pasted\x1b[201~", "\x1bx\x1b", "\r\x1b\x1b[1;5C", "\x1b]", "\x1bP1")


@pytest.mark.parametrize("typed", TYPED)
def test_wherever_a_reply_is_split_all_keys_arrive_in_order(typed: str) -> None:
    whole = typed + LIGHT + "mid" + NAME + typed
    for at in range(len(whole) + 1):
        keys, replies = filtered(whole[:at], whole[at:])
        assert keys == f"{typed}mid{typed}", at
        assert replies == ["rgb:ffff/fbfb/f0f0", "VTE(7600)"]
    assert filtered(*whole)[0] == f"{typed}mid{typed}"


def test_a_reply_whose_end_comes_much_later_is_still_a_reply() -> None:
    for at in range(6, len(LIGHT) - 1):
        assert filtered("a" + LIGHT[:at], LIGHT[at:] + "b", flushes=True) == ("ab", ["rgb:ffff/fbfb/f0f0"])


@pytest.mark.parametrize("typed", TYPED)
def test_keys_alone_pass_unchanged(typed: str) -> None:
    assert filtered(*typed, flushes=True) == filtered(typed) == (typed, [])


def test_keys_after_a_reply_that_never_ends_are_keys() -> None:
    assert filtered("\x1b]11;rgb:12", "hello\r", flushes=True)[0] == "hello\r"
    assert filtered("\x1b]11;rgb:12hello\r")[0] == "hello\r"
    assert filtered("\x1b]11;" + "x" * 100 + "\r")[0] == "x" * 100 + "\r"


@pytest.mark.parametrize(
    ("color", "is_light"),
    [
        ("rgb:ffff/ffff/ffff", True),
        ("rgb:0/0/0", False),
        ("rgb:fd/f6/e3", True),
        ("rgba:0000/2b2b/3636/ffff", False),
        ("#002b36", False),
        ("", None),
        ("rgb:", None),
        ("rgb:12/34", None),
        ("rgb:1/22/333", None),
        ("white", None),
    ],
)
def test_a_color_is_light_or_dark_or_none(color: str, is_light: bool | None) -> None:
    assert is_light_color(color) is is_light


def test_the_shell_gets_no_size_that_tmux_reports_while_the_chat_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal_queries, "_SIZE_SECONDS", TEST_TIMEOUT)

    async def scene(shown: Seen) -> None:
        replies: list[str] = []
        shown.screen.write_process_input = replies.append
        shown.terminal.draw(LiveState(activity="working"), ChatStatus(model="model-x"))
        await shown.until(lambda: shown.take_in() or len(replies) == 2)
        closing = asyncio.ensure_future(shown.terminal.close())
        for _ in range(500):
            await asyncio.sleep(0)
        assert not closing.done()
        shown.type(*replies)
        await closing
        assert shown.waiting_bytes() == 0

    at_terminal(scene, environment={"TMUX": "x"})


def test_an_editor_gets_no_query_of_the_chat(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    editor = tmp_path / "editor"
    editor.write_text(f"#!/bin/sh\ntouch {tmp_path}/open\nwhile [ ! -e {tmp_path}/enough ]; do sleep 0.02; done\n")
    editor.chmod(0o755)
    monkeypatch.setenv("VISUAL", str(editor))
    monkeypatch.setattr(terminal_queries, "_SIZE_SECONDS", TEST_TIMEOUT)  # a reply that is late would never be read

    async def scene(shown: Seen) -> None:
        shown.screen.write_process_input = lambda data: shown.type(data)  # noqa: PLW0108 - a parameter by name
        shown.terminal.draw(LiveState(activity="working"), ChatStatus(model="model-x"))
        await shown.until_seen("model-x")
        shown.type("\x07")
        await shown.until(lambda: shown.take_in() or (tmp_path / "open").exists())
        shown.take_in()
        start = len(shown.raw)
        try:
            for at in range(5):
                shown.terminal.draw(LiveState(activity=f"working {at}"), ChatStatus(model="model-x"))
                await shown.settle()
        finally:
            (tmp_path / "enough").touch()
        shown.take_in()
        assert b"\x1b[6n" not in shown.raw[start:]
        await shown.until_seen("working 4")

    at_terminal(scene, environment={"TMUX": "x"})


def test_a_frame_that_is_due_while_the_chat_ends_asks_tmux_for_nothing() -> None:
    async def scene(shown: Seen) -> None:
        shown.screen.write_process_input = lambda data: shown.type(data)  # noqa: PLW0108 - a parameter by name
        shown.terminal.draw(LiveState(), ChatStatus(model="model-x"))
        await shown.until_seen("model-x")
        await shown.until(lambda: shown.take_in() or not shown.terminal._queries.is_asking_size)
        start = len(shown.raw)
        closing = asyncio.ensure_future(shown.terminal.close())
        await asyncio.sleep(0)
        shown.terminal._draw_now()
        await closing
        shown.take_in()
        assert b"\x1b[6n" not in shown.raw[start:]

    at_terminal(scene, environment={"TMUX": "x"})


def test_what_is_printed_above_the_first_frame_in_tmux_makes_room_for_it() -> None:
    async def scene(shown: Seen) -> None:
        shown.screen.write_process_input = lambda data: shown.type(data)  # noqa: PLW0108 - a parameter by name
        shown.terminal.draw(LiveState(activity="working"), ChatStatus(model="model-x"))
        await shown.until(lambda: "─" * 40 in shown.text() and "─" * 41 not in shown.text())  # at the top
        shown.terminal.show(*(text_block(f"said {at}") for at in range(12)))
        await shown.until_seen("said 11", "─" * 120)

    at_terminal(scene, environment={"TMUX": "x"})
