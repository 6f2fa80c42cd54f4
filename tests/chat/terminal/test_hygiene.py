"""Nothing from data reaches the terminal raw, wherever on the screen it stands; secrets are hidden there too."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import msgspec
import pytest
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from chat.seen_terminal import ENTER, Seen, seen, started
from kitbag.chat.terminal.text_fragments import parse_ansi_lines
from kitbag.chat.ui import ChatStatus, LiveState, Panel, PanelAction, PanelRow, RunningCall
from kitbag.dialogs.form import Form, FormOption
from kitbag.views.blocks import ReplyBlock, Span, text_block
from support.waiting import TEST_TIMEOUT

EVIL = "sesame END \x1b]0;owned\x07\x1b[2J\x1b[31m\x9b5m\u202e\r\u200b!"
"""A title, an erased screen, a colour, an eight-bit one, text turned around, a line written over, a hidden character."""
_OURS = re.compile(
    rb"\x1b\[[0-9;]*m|\x1b\[\?(?:25|12|7|2004|2026|1)[hl]|\x1b\[\d*[ABCDGJKPX]|\x1b\[0? ?q|\x1b\[\d*;\d*H|\x1b\[\?u"
    rb"|\x1b\[2[23];2t|\x1b\]2;(?=(?:\? |\xe2\x80\xa6 )?kitbag|\x1b)|\x1b\\|\x1b\[>0q|\x1b\]11;\?"
)
"""What a face writes itself: colours, cursor, erasing to the end, modes that it takes back; the window's title;
what it asks the terminal."""


def is_clean(raw: bytes) -> bool:
    rest = _OURS.sub(b"", raw).decode()
    return not re.search("[\x00-\x07\x0b\x0c\x0e-\x1f\x7f-\x9f\u202e\u200b]", rest) and b"\x1b[2J" not in raw


def at_terminal(scene: Callable[[Seen], Awaitable[None]], **given: Any) -> None:
    async def play() -> None:
        async with seen(120, 30, bell=False, **given) as shown:
            shown.terminal.redact = lambda text: text.replace("sesame", "***")
            await started(shown)
            await asyncio.wait_for(scene(shown), TEST_TIMEOUT)
            shown.take_in()
            assert is_clean(shown.raw), _OURS.sub(b"", shown.raw)
            assert b"sesame" not in shown.raw

    asyncio.run(play())


LIVES = {
    "activity": LiveState(activity=EVIL),
    "tail": LiveState(activity="x", tail=EVIL),
    "name": LiveState(activity="x", running=(RunningCall(name=EVIL, title=""),)),
    "title": LiveState(activity="x", running=(RunningCall(name="x", title=EVIL),)),
    "progress": LiveState(activity="x", running=(RunningCall(name="x", title="x", progress=EVIL),)),
    "queued": LiveState(activity="x", queued=(EVIL,)),
    "todo": LiveState(activity="x", todos=(("pending", EVIL),)),
}


@pytest.mark.parametrize("place", LIVES)
def test_the_live_region_is_clean(place: str) -> None:
    async def scene(shown: Seen) -> None:
        shown.terminal.draw(LIVES[place], ChatStatus(model="model-x"))
        await shown.until_seen("*** END")

    at_terminal(scene)


@pytest.mark.parametrize("place", ["model", "mode", "persona", "directory"])
def test_the_status_line_is_clean(place: str) -> None:
    async def scene(shown: Seen) -> None:
        shown.terminal.draw(LiveState(), msgspec.structs.replace(ChatStatus(), **{place: EVIL}))
        await shown.until_seen("*** END")

    at_terminal(scene)


def test_what_is_printed_is_clean() -> None:
    async def scene(shown: Seen) -> None:
        shown.terminal.show(text_block(EVIL), ReplyBlock(EVIL))
        await shown.until_seen("*** END")

    at_terminal(scene)


FORMS = {
    "prompt": Form(prompt=EVIL, options=(FormOption(key="y", label="yes"),)),
    "label": Form(prompt="x", options=(FormOption(key="y", label=EVIL),)),
    "note": Form(prompt="x", options=(FormOption(key="y", label="x", note=EVIL),)),
    "key": Form(prompt="x", options=(FormOption(key=EVIL, label="x"),)),
    "free": Form(prompt="x", options=(FormOption(key="y", label="yes"),), free_text_hint=EVIL),
    "above": Form(prompt="x", options=(FormOption(key="y", label="yes"),), above=(text_block(EVIL),)),
}


@pytest.mark.parametrize("place", FORMS)
def test_questions_are_clean_and_so_is_what_is_told_of_them(place: str) -> None:
    async def scene(shown: Seen) -> None:
        asking = asyncio.ensure_future(shown.terminal.ask(FORMS[place]))
        await shown.until_seen("*** END")
        shown.type("\x1b[B", ENTER)
        await asking
        await shown.until_seen("? ")

    at_terminal(scene)


@pytest.mark.parametrize("place", ["title", "row", "action", "empty"])
def test_panels_are_clean(place: str) -> None:
    async def nothing(key: str, row: str) -> None:
        pass

    def text(of: str) -> str:
        return EVIL if of == place else of

    rows = () if place == "empty" else (PanelRow(id="1", line=(Span(text("row")),)),)

    async def scene(shown: Seen) -> None:
        panel = Panel(
            title=text("title"),
            rows=lambda: rows,
            actions=(PanelAction(key="x", label=text("action")),),
            run_action=nothing,
            empty_message=text("empty"),
        )
        opened = asyncio.ensure_future(shown.terminal.open(panel))
        await shown.until_seen("*** END")
        shown.type("q")
        await opened

    at_terminal(scene)


def test_completions_are_clean() -> None:
    class Files(Completer):
        def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:
            yield Completion("a", display=EVIL, display_meta=EVIL)

    async def scene(shown: Seen) -> None:
        shown.type("/")
        await shown.until_seen("*** END")

    at_terminal(scene, completer=Files())


def test_what_is_pasted_into_the_line_is_not_obeyed() -> None:
    async def play() -> None:
        async with seen(120, 30) as shown:
            await started(shown)
            await shown.paste(EVIL)
            await shown.until_seen("END")
            shown.take_in()
            assert is_clean(shown.raw)

    asyncio.run(play())


def test_without_colour_there_is_none() -> None:
    async def play() -> None:
        async with seen(environment={"NO_COLOR": "1"}) as shown:
            await started(shown)
            shown.terminal.show(text_block("bad", "bad"), ReplyBlock("# Title\n\n`code`"))
            shown.terminal.draw(
                LiveState(activity="working", tail="`code`"),
                ChatStatus(model="model-x", mode="autonomous", used=95, window=100),
            )
            await shown.until_seen("Title", "working", "95%")
            shown.take_in()
            colours = re.findall(rb"\x1b\[([0-9;]*)m", shown.raw)
            numbers = {int(number) for colour in colours for number in colour.split(b";") if number}
            assert not [number for number in numbers if 30 <= number <= 49 or 90 <= number <= 107]

    asyncio.run(play())


@pytest.mark.parametrize(
    ("theme", "reported", "is_light"),
    [("auto", "0;15", True), ("auto", "15;0", False), ("dark", "0;15", False), ("light", "", True)],
)
def test_on_a_light_background_no_pale_color_is_used(theme: str, reported: str, is_light: bool) -> None:
    async def scene(shown: Seen) -> None:
        shown.terminal.show(text_block("careful", "warning"), ReplyBlock("# Title\n\n`code`"))
        shown.terminal.draw(
            LiveState(activity="working", tail="`tail`"), ChatStatus(model="model-x", mode="autonomous")
        )
        await shown.until_seen("careful", "code", "working", "tail")
        shown.take_in()
        numbers = {n for found in re.findall(rb"\x1b\[([0-9;]*)m", shown.raw) for n in found.split(b";")}
        assert ({b"33", b"36"} & numbers == set()) == is_light
        assert (b"38" in numbers) == is_light

    at_terminal(scene, theme=theme, environment={"COLORFGBG": reported})


def test_colours_have_no_backgrounds() -> None:
    async def scene(shown: Seen) -> None:
        shown.terminal.draw(
            LiveState(activity="working *** END", tail="`code`"), ChatStatus(model="model-x", mode="autonomous")
        )
        await shown.until_seen("working")
        shown.take_in()
        numbers = {int(n) for found in re.findall(rb"\x1b\[([0-9;]*)m", shown.raw) for n in found.split(b";") if n}
        assert not [number for number in numbers if 40 <= number <= 48 or 100 <= number <= 107 or number == 38]

    at_terminal(scene)


def test_of_a_tail_only_colours_are_obeyed() -> None:
    lines = parse_ansi_lines("plain \x1b[1;31mred\x1b[0m \x1b]0;x\x07\nnext")
    assert [text for _, text in lines[0]] == ["plain ", "red", " \x1b]0;x\x07"]
    assert "ansired" in lines[0][1][0]
    assert "bold" in lines[0][1][0]
    assert lines[0][2][0] == ""
    assert lines[1] == [("", "next")]
    assert parse_ansi_lines("") == []
