"""A person who looks at something else is told by the window's title, and by a bell."""

import asyncio

import pytest

from chat.seen_terminal import seen
from kitbag.chat.terminal.title_and_bell import AWAY_SECONDS, AttentionState, TitleAndBell
from kitbag.chat.ui import ChatStatus, LiveState
from kitbag.dialogs.form import Form, FormOption


class Written:
    def __init__(self, kind: str = "xterm-256color", *, rings: bool = True) -> None:
        self.all: list[str] = []
        self.now = 0.0
        self.attention = TitleAndBell(
            self.all.append, lambda text: text.replace("\x1b", "?"), lambda: self.now, {"TERM": kind}, bell=rings
        )

    @property
    def bells(self) -> int:
        return self.all.count("\a")


def test_a_bell_rings_when_a_question_waits_and_nobody_has_typed() -> None:
    written = Written()
    written.attention.update("works", "/x/shop")
    written.now = AWAY_SECONDS
    written.attention.update("asks", "/x/shop")
    written.attention.update("asks", "/x/shop")
    assert written.bells == 1


def test_it_rings_when_work_has_ended_and_not_when_a_question_was_answered() -> None:
    written = Written()
    written.attention.update("works", "/x/shop")
    written.now = AWAY_SECONDS
    written.attention.update("rests", "/x/shop")
    assert written.bells == 1
    written.attention.update("asks", "/x/shop")
    written.attention.update("rests", "/x/shop")
    assert written.bells == 2


@pytest.mark.parametrize("standing", ["asks", "rests"])
def test_who_types_hears_no_bell(standing: AttentionState) -> None:
    written = Written()
    written.now = 100.0
    written.attention.update("works", "/x/shop")
    written.attention.record_key()
    written.now += AWAY_SECONDS - 1
    written.attention.update(standing, "/x/shop")
    assert written.bells == 0


def test_there_is_no_bell_where_it_is_switched_off() -> None:
    written = Written(rings=False)
    written.now = 100.0
    written.attention.update("asks", "/x/shop")
    assert written.bells == 0


def test_the_title_says_how_it_stands_and_is_given_back() -> None:
    written = Written()
    standings: list[AttentionState] = ["rests", "works", "works", "asks"]
    for standing in standings:
        written.attention.update(standing, "/x/shop\x1b]")
    written.attention.restore()
    written.attention.restore()
    assert written.all == [
        "\x1b[22;2t\x1b]2;kitbag · shop?]\x1b\\",
        "\x1b]2;… kitbag · shop?]\x1b\\",
        "\x1b]2;? kitbag · shop?]\x1b\\",
        "\x1b]2;\x1b\\\x1b[23;2t",
    ]


@pytest.mark.parametrize("kind", ["linux", "vt100", ""])
def test_a_terminal_that_may_know_no_titles_gets_none(kind: str) -> None:
    written = Written(kind)
    written.attention.update("works", "/x/shop")
    written.attention.restore()
    assert written.all == []


def test_at_the_terminal_a_question_names_the_window_and_rings() -> None:
    async def scene() -> None:
        async with seen() as shown:
            shown.terminal.draw(LiveState(activity="thinking", started_at=0.0), ChatStatus(directory="/x/shop"))
            await shown.until_seen("thinking")
            assert shown.screen.title == "… kitbag · shop"
            shown.pass_time(AWAY_SECONDS)
            asking = asyncio.ensure_future(
                shown.terminal.ask(Form(prompt="Go on?", options=(FormOption(key="y", label="yes"),)))
            )
            await shown.until_seen("Go on?")
            assert shown.screen.title == "? kitbag · shop"
            assert b"\a" in shown.raw
            await shown.press("\x1b")
            assert await asking is None
        assert b"\x1b]2;\x1b\\\x1b[23;2t" in shown.raw

    asyncio.run(scene())
