"""The terminal face as a person meets it: at a real pseudo-terminal, on a screen that pyte keeps."""

import asyncio
import itertools
import os
import signal
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any

import pytest
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.history import InMemoryHistory
from prompt_toolkit.key_binding import KeyPress
from prompt_toolkit.keys import Keys
from prompt_toolkit.layout import BufferControl
from prompt_toolkit.layout.processors import TransformationInput

from chat.seen_terminal import DOWN, ENTER, ESCAPE, UP, Seen, seen, started
from kitbag.chat.terminal.layout import _ShowHidden
from kitbag.chat.terminal.live_region import live_lines
from kitbag.chat.terminal.terminal_queries import ReplyFilter, _FilteringParser
from kitbag.chat.ui import ChatStatus, ExitRequested, KeyPressed, LiveState, RunningCall, Submitted
from kitbag.errors import InvalidError
from kitbag.messages import Image
from kitbag.views.blocks import (
    DiffBlock,
    NoticeBlock,
    ReplyBlock,
    ThinkingBlock,
    ToolBlock,
    UserBlock,
    text_block,
)
from support.waiting import TEST_TIMEOUT


class Commands(Completer):
    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:
        typed = document.text_before_cursor
        for name in ("/help", "/helper", "/exit"):
            if name.startswith(typed):
                yield Completion(name, -len(typed), display_meta=f"about {name}")


def at_terminal(scene: Callable[[Seen], Awaitable[None]], columns: int = 80, rows: int = 24, **given: Any) -> None:
    async def play() -> None:
        async with seen(columns, rows, **given) as shown:
            await started(shown)
            await asyncio.wait_for(scene(shown), TEST_TIMEOUT)

    asyncio.run(play())


def test_a_line_is_sent_by_enter_and_remembered() -> None:
    async def scene(shown: Seen) -> None:
        shown.type("hello there")
        await shown.until_seen("> hello there")
        shown.type(ENTER)
        assert await shown.next() == Submitted(text="hello there")
        await shown.until_gone("hello there")
        shown.type(ENTER)  # nothing is nothing
        shown.type(UP)
        await shown.until_seen("> hello there")
        shown.type(DOWN)
        await shown.until_gone("hello there")

    at_terminal(scene)


def test_vim_s_keys_edit_the_line_and_esc_interrupts_only_from_normal_mode() -> None:
    async def scene(shown: Seen) -> None:
        shown.type("one two")
        await shown.until_seen("> one two")
        assert "NORMAL" not in shown.text()
        await shown.press(ESCAPE)
        await shown.until_seen("NORMAL · default")
        shown.type("0dw")
        await shown.until_seen("> two")
        shown.terminal.draw(LiveState(activity="working"), ChatStatus(model="model-x"))
        await shown.press(ESCAPE)
        assert await shown.next() == KeyPressed("cancel")  # and the first Esc was none
        shown.type(ENTER)
        assert await shown.next() == Submitted(text="two")
        shown.type("xd", ENTER)  # the next line starts in insert mode
        assert await shown.next() == Submitted(text="xd")

    at_terminal(scene, vim=True)


def test_two_keys_of_a_vim_command_can_be_typed_slowly() -> None:
    async def scene(shown: Seen) -> None:
        shown.type("one two")
        await shown.until_seen("> one two")
        await shown.press(ESCAPE, "c")
        await shown.settle()
        shown.type("c", "three")
        await shown.until_seen("> three")

    at_terminal(scene, vim=True)


def test_keys_follow_the_settings_and_wrong_ones_are_reported() -> None:
    async def scene(shown: Seen) -> None:
        await shown.until_seen("unknown action in chat.keys: 'fly=ctrl-t'", "unusable key in chat.keys: 'edit=ctrl-c'")
        await shown.press("\x14", "\x0f", "\x1bOQ")
        assert [await shown.next(), await shown.next()] == [KeyPressed("details"), KeyPressed("mode")]
        shown.terminal.show(ThinkingBlock("thought", 1.0))
        await shown.until_seen("(Ctrl-T to expand)")
        assert {"Ctrl-T", "F2"} <= {key for key, _ in shown.terminal.keys}

    at_terminal(scene, keys=["details=ctrl-t", "mode=f2", "fly=ctrl-t", "edit=ctrl-c"])


@pytest.mark.parametrize("key", ["\x1b\r", "\n", "\x1b[13;2u", "\x1b[27;2;13~", "\\\r"])
def test_a_new_line_is_made_by_alt_enter_control_j_shift_enter_and_a_backslash(key: str) -> None:
    async def scene(shown: Seen) -> None:
        shown.type("one", key, "two")
        await shown.until_seen("> one\n  two")
        shown.type(ENTER)
        assert await shown.next() == Submitted(text="one\ntwo")

    at_terminal(scene)


def test_up_and_down_move_in_the_text_and_at_its_ends_through_history() -> None:
    async def scene(shown: Seen) -> None:
        shown.type("one\ntwo", UP, "x")
        await shown.until_seen("> onex\n  two")
        shown.type(UP)
        await shown.until_seen("> earlier")
        shown.type(DOWN)
        await shown.until_seen("> onex\n  two")

    at_terminal(scene, history=InMemoryHistory(["long ago", "earlier"]))


def test_history_is_searched_by_control_r() -> None:
    async def scene(shown: Seen) -> None:
        shown.type("\x12")
        await shown.until_seen("search history")
        shown.type("ago")
        await shown.until_seen("> long ago")
        await shown.press(ENTER)
        await shown.until_gone("search history")
        shown.type("!", ENTER)
        assert await shown.next() == Submitted(text="long ago!")

    at_terminal(scene, history=InMemoryHistory(["long ago", "earlier"]))


def test_names_are_completed_while_one_types_and_taken_by_tab() -> None:
    async def scene(shown: Seen) -> None:
        shown.type("/he")
        await shown.until_seen("/help ", "about /helper")
        shown.type("\t", "!")
        await shown.until_seen("> /help !")
        await shown.until_gone("about")
        shown.type("\x15", "/")
        await shown.until_seen("about /exit")
        shown.type(DOWN, DOWN)
        await shown.until_seen("> /helper", "› /helper")
        await shown.press(ESCAPE)
        await shown.until_gone("about")
        shown.type(ENTER)
        assert await shown.next() == Submitted(text="/")

    at_terminal(scene, completer=Commands())


def test_enter_takes_the_marked_completion_or_the_only_one() -> None:
    class Files(Completer):
        def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:
            word = document.text_before_cursor.split(" ")[-1]
            for name in ("@core.py", "@api.py", "@app.py", "/help", "/exit", "/export"):
                if word and name.startswith(word):
                    yield Completion(name, -len(word), display_meta=f"about {name}")

    async def scene(shown: Seen) -> None:
        shown.type("see @cor")
        await shown.until_seen("about @core.py")
        shown.type(ENTER)  # takes the only one
        await shown.until_seen("> see @core.py")
        shown.type(ENTER)
        assert await shown.next() == Submitted(text="see @core.py")
        shown.type("see @a")
        await shown.until_seen("about @app.py")
        shown.type(DOWN)
        await shown.until_seen("› @api.py")
        shown.type(ENTER, "now", ENTER)  # takes the marked one
        assert await shown.next() == Submitted(text="see @api.py now")
        shown.type("/he")
        await shown.until_seen("about /help")
        shown.type(ENTER)  # a command runs at once
        assert await shown.next() == Submitted(text="/help")
        shown.type("/he", ENTER)  # also before the menu opens
        assert await shown.next() == Submitted(text="/help")
        shown.type("/ex", ENTER)  # several names match
        assert await shown.next() == Submitted(text="/ex")
        shown.type("/export ap", ENTER)  # an argument may be a new name
        assert await shown.next() == Submitted(text="/export ap")

    at_terminal(scene, completer=Files())


def test_a_mention_that_matches_nothing_is_reported_before_the_message_is_sent() -> None:
    async def scene(shown: Seen) -> None:
        shown.type("see @cor", ENTER)
        await shown.until_seen("press Enter again to send as text: no file or agent named @cor", "> see @cor")
        shown.type("e.py")
        await shown.until_gone("press Enter again")
        shown.type(ENTER)
        assert await shown.next() == Submitted(text="see @core.py")
        shown.type("see @cor", ENTER)
        shown.stop_clock()
        await shown.until_seen("> see @cor", "press Enter again")
        shown.type(ENTER)
        assert await shown.next() == Submitted(text="see @cor")
        await shown.until_gone("press Enter again")

    at_terminal(scene, missing_mentions=lambda text: ["@cor"] if text.endswith("@cor") else [])


def test_an_ordinary_word_opens_no_menu() -> None:
    async def scene(shown: Seen) -> None:
        shown.type("help me")
        await shown.until_seen("> help me")
        assert "about" not in shown.text()

    class All(Completer):
        def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:
            yield Completion("x", display_meta="about everything")

    at_terminal(scene, completer=All())


def test_escape_closes_the_menu_then_cancels_and_twice_clears_the_line() -> None:
    async def scene(shown: Seen) -> None:
        shown.type("/h")
        await shown.until_seen("about /help")
        await shown.press(ESCAPE)
        await shown.until_gone("about")
        await shown.press(ESCAPE)
        assert await shown.next() == KeyPressed("cancel")
        await shown.press(ESCAPE)
        await shown.until_gone("> /h")
        shown.type(UP)
        await shown.until_seen("> /h")

    at_terminal(scene, completer=Commands())


def test_control_c_clears_the_line_and_twice_leaves() -> None:
    async def scene(shown: Seen) -> None:
        shown.type("some words", "\x03")
        await shown.until_gone("some words")
        shown.type("\x1f")  # undone
        await shown.until_seen("> some words")
        shown.type("\x03", "\x03")
        await shown.until_seen("press Ctrl-C again to exit")
        shown.type("\x03")
        assert await shown.next() == ExitRequested(immediately=True, exit_code=130)
        assert await shown.next() == ExitRequested(immediately=True, exit_code=130)

    at_terminal(scene)


def test_control_c_a_long_time_after_the_first_does_not_leave() -> None:
    now = 100.0

    async def scene(shown: Seen) -> None:
        nonlocal now
        shown.type("\x03")
        await shown.until_seen("press Ctrl-C again")
        now += 2.5
        shown.type("\x03", "\x1b[Z")
        assert await shown.next() == KeyPressed("mode")

    at_terminal(scene, clock=lambda: now)


def test_while_it_works_control_c_cancels_and_the_text_stays() -> None:
    async def scene(shown: Seen) -> None:
        shown.terminal.draw(LiveState(activity="thinking", started_at=time.monotonic()), ChatStatus(model="model-x"))
        shown.type("draft")
        await shown.until_seen("thinking", "> draft")
        shown.type("\x03")
        assert await shown.next() == KeyPressed("cancel")
        assert "> draft" in shown.text()

    at_terminal(scene)


def test_control_d_leaves_only_an_empty_line() -> None:
    async def scene(shown: Seen) -> None:
        shown.type("ab", "\x01", "\x04")
        await shown.until_seen("> b")
        shown.type("\x04", "\x04")
        assert await shown.next() == ExitRequested(immediately=True, exit_code=0)

    at_terminal(scene)


def test_keys_of_the_chat_are_told() -> None:
    async def scene(shown: Seen) -> None:
        shown.type("\x1b[Z", "\x0f")
        assert [await shown.next(), await shown.next()] == [KeyPressed("mode"), KeyPressed("details")]
        shown.terminal.draw(LiveState(activity="thinking", queued=("later",)), ChatStatus(model="model-x"))
        await shown.until_seen("queued: later")
        shown.type(UP)
        assert await shown.next() == KeyPressed("unqueue")
        shown.terminal.insert(Submitted(text="later"))
        await shown.until_seen("> later")
        shown.terminal.insert(Submitted(text="before"))
        await shown.until_seen("> before\n  later")

    at_terminal(scene)


@pytest.mark.parametrize("sequence", [
    "\x1b[99;99z", "\x1b[?1;2c", "\x1b[99~", "\x1bOz", "\x1b[1;99A", "\x1b\x1b[99~"
])  # fmt: skip
def test_a_sequence_that_nobody_knows_neither_cancels_nor_stands_in_the_line(sequence: str) -> None:
    async def scene(shown: Seen) -> None:
        shown.type(sequence, "ok", ENTER)
        assert await shown.next() == Submitted(text="ok")

    seconds = itertools.count()
    at_terminal(scene, clock=lambda: float(next(seconds)))  # the machine is slow


def test_a_key_that_fails_is_told_and_the_next_one_works() -> None:
    class Torn(Pastes):
        def take(self, text: str) -> str:
            raise ZeroDivisionError("torn")

    async def scene(shown: Seen) -> None:
        await shown.paste("x")
        await shown.until_seen("can't handle key press: ZeroDivisionError: torn")
        shown.type("ok", ENTER)
        sent = await shown.next()
        assert isinstance(sent, Submitted)
        assert sent.text == "ok"

    at_terminal(scene, pastes=Torn())


def test_an_editor_gets_the_text_and_gives_it_back(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    editor = tmp_path / "editor"
    editor.write_text('#!/bin/sh\nprintf " and more" >> "$1"\n')
    editor.chmod(0o755)
    monkeypatch.setenv("VISUAL", str(editor))

    async def scene(shown: Seen) -> None:
        for keys in ("\x07", "\x18\x05"):
            shown.type("\x15text")
            await shown.until_seen("> text")
            shown.type(keys)
            await shown.until_seen("> text and more")

    at_terminal(scene)


class Pastes:
    def take(self, text: str) -> str:
        return f"[pasted {len(text)}]"

    def expand(self, text: str) -> tuple[str, Sequence[Image]]:
        if "bad" in text:
            raise InvalidError("the image is damaged", "take another")
        return text.replace("[pasted 5000]", "p" * 5000), (Image(media_type="image/png", data="x"),)

    def restore(self, text: str, images: Sequence[Image], typed: str) -> str:
        return typed or text

    def from_clipboard(self) -> str | None:
        return "[image #1]"


def test_what_is_pasted_goes_through_pastes() -> None:
    async def scene(shown: Seen) -> None:
        await shown.paste("p\r\n" * 100)
        await shown.until_seen("> [pasted 200]")
        shown.type("\x15")
        await shown.paste("p" * 5000)
        await shown.until_seen("> [pasted 5000]")
        shown.type("\x16")
        await shown.until_seen("> [pasted 5000][image #1]")
        shown.type(ENTER)
        typed = "[pasted 5000][image #1]"
        assert await shown.next() == Submitted(
            text="p" * 5000 + "[image #1]", images=(Image(media_type="image/png", data="x"),), typed=typed
        )
        shown.type("bad", ENTER)
        await shown.until_seen("the image is damaged", "> bad")

    at_terminal(scene, pastes=Pastes())


def test_a_paste_sends_nothing_by_itself() -> None:
    async def scene(shown: Seen) -> None:
        await shown.paste("one\rtwo\r")
        await shown.until_seen("> one\n  two")
        shown.type("\x1b[Z")
        assert await shown.next() == KeyPressed("mode")

    at_terminal(scene)


@pytest.mark.parametrize("size", [0, 3_000])
def test_pasted_text_that_contains_the_end_of_a_paste_types_nothing(size: int) -> None:
    async def scene(shown: Seen) -> None:
        shown.type("\x1b[200~" + "x" * size + "one\x1b[201~two\r!three\r" + "y" * size + "\x1b[201~")
        await shown.until(lambda: shown.terminal._line.buffer.text.endswith("y" * size or "!three\n"))
        assert shown.terminal._line.buffer.text == "x" * size + "onetwo\n!three\n" + "y" * size
        shown.type("\x1b[Z")
        assert await shown.next() == KeyPressed("mode")

    at_terminal(scene)


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7, 1024])
def test_a_paste_in_many_pieces_is_one(size: int) -> None:
    keys: list[KeyPress] = []
    parser = _FilteringParser(keys.append, ReplyFilter({}), lambda: False)
    pasted = "line of text\n" * 400
    data = f"a\x1b[200~{pasted}\x1b[201~b"
    for at in range(0, len(data), size):
        parser.feed(data[at : at + size])
    assert [(key.key, key.data) for key in keys] == [("a", "a"), (Keys.BracketedPaste, pasted), ("b", "b")]
    assert parser._paste_buffer == ""


def test_emoji_and_letters_that_need_a_joiner_stay_whole_in_the_line() -> None:
    joined = "\U0001f469\u200d\U0001f467 \U0001f3f3\ufe0f\u200d\U0001f308 \u0645\u06cc\u200c\u062e"
    typed = [("", character) for character in f"{joined} hid\u200bden"]
    given = TransformationInput(BufferControl(), Document(), 0, lambda at: at, typed, 80, 24)
    shown = _ShowHidden().apply_transformation(given).fragments
    assert [piece[1] for piece in shown] == list(f"{joined} hid\ufffdden")


def test_keys_typed_after_a_paste_are_keys() -> None:
    async def scene(shown: Seen) -> None:
        shown.type("\x1b[200~one\x1b[201~two\r")
        assert await shown.next() == Submitted(text="onetwo")

    at_terminal(scene)


def test_what_is_shown_stands_above_in_order_and_survives_the_end() -> None:
    async def play() -> None:
        async with seen(rows=12) as shown:
            await started(shown)
            for number in range(40):
                shown.terminal.show(text_block(f"number {number}"))
                shown.terminal.draw(LiveState(activity="writing", tail=f"tail {number}"), ChatStatus(model="model-x"))
            await shown.until_seen("number 39", "tail 39")
            shown.terminal.show(text_block("the last one"))
            await shown.terminal.close()
            shown.terminal.show(text_block("after the end"))
            lines = [line for line in shown.all().split("\n") if line]
            assert lines == [*(f"number {number}" for number in range(40)), "the last one", "after the end"]

    asyncio.run(play())


def test_what_was_drawn_over_at_the_top_of_the_screen_is_not_kept_by_a_terminal_that_keeps_what_it_erases() -> None:
    async def scene(shown: Seen) -> None:
        erase, kept = shown.screen.erase_in_display, list[str]()

        def as_tmux_does(how: int = 0, *rest: Any, **private: Any) -> None:
            if (shown.screen.cursor.x, shown.screen.cursor.y) == (0, 0):
                kept.extend(line.rstrip() for line in shown.screen.display if line.strip())
            erase(how, *rest, **private)

        shown.screen.erase_in_display = as_tmux_does  # pyright: ignore[reportAttributeAccessIssue]
        shown.use_screen_anew()
        shown.terminal.show(text_block("first"))
        await shown.until_seen("first", "> ")
        assert kept == []

    at_terminal(scene)


@pytest.mark.parametrize(
    ("height", "expected"),
    [
        (2, ["working", "1 of 4   pending: one"]),
        (3, ["working", "  pending: one", "  … and 3 more"]),
        (5, ["working", "  pending: one", "  pending: two", "  … and 2 more"]),
    ],
)
def test_messages_that_wait_are_shown_or_counted_in_any_height(height: int, expected: list[str]) -> None:
    live = LiveState(activity="working", steering=("one", "two"), queued=("three", "four"))
    lines = live_lines(live, 80, height, 0.0, str, lambda *_: [], can_stop=False)
    assert ["".join(text for _, text in line).removeprefix("⠋ ") for line in lines] == expected


def test_the_live_region_shows_what_goes_on_and_goes_away() -> None:
    async def scene(shown: Seen) -> None:
        live = LiveState(
            activity="working",
            started_at=935.0,
            tokens=1234,
            tail="Some *words*",
            running=(RunningCall(name="Bash", title="make test", progress="3 of 9", started_at=995.0),),
            queued=("do that next",),
            todos=(("completed", "read"), ("in_progress", "write"), ("pending", "test")),
        )
        shown.terminal.draw(live, ChatStatus(model="model-x"))
        await shown.until_seen(
            "Some words", "Bash make test 5s · 3 of 9", "working (1m 05s · 1.2k tokens · Esc to interrupt)"
        )
        await shown.until_seen("✓ read", "▸ write", "○ test", "queued: do that next")
        shown.terminal.draw(LiveState(), ChatStatus(model="model-x"))
        await shown.until_gone("working", "make test", "queued", "write", "Some words")

    at_terminal(scene, clock=lambda: 1000.0)


def test_a_long_tail_shows_its_end() -> None:
    async def scene(shown: Seen) -> None:
        tail = "\n\n".join(f"paragraph {number}" for number in range(50))
        shown.terminal.draw(LiveState(activity="writing", tail=tail), ChatStatus(model="model-x"))
        await shown.until_seen("paragraph 49", "writing", "> ", "model-x")
        assert "paragraph 9\n" not in shown.text()

    at_terminal(scene, rows=10)


def test_details_are_shown_in_full_and_folded_again_in_place() -> None:
    call = ToolBlock(name="Read", title="a.py", summary="60 lines", is_error=False, seconds=0.2)
    full = ToolBlock(
        name="Read", title="a.py", summary="60 lines", is_error=False, seconds=0.2, is_open=True, details="x\ny"
    )
    thought = ThinkingBlock("first idea\nsecond idea", 2.0)
    diff = "--- a\n+++ b\n@@ -0,0 +1,30 @@\n" + "\n".join(f"+new {at}" for at in range(30)) + "\n"
    edit = ToolBlock(name="Edit", title="b.py", summary="30 lines", is_error=False, seconds=0.1, details=diff)

    async def scene(shown: Seen) -> None:
        shown.terminal.show(UserBlock("hello"), thought, call, edit, ReplyBlock("done"))
        await shown.until_seen("done", "Ctrl-O")
        before = shown.text()
        shown.terminal.unfold([full])
        await shown.until(lambda: "new 29" in shown.all())
        everything = shown.all()
        assert all(text in everything for text in ("first idea", "second idea", "  x", "  y", "new 0", "done"))
        assert everything.count("hello") == 1
        shown.terminal.hint("for a moment")
        shown.terminal.fold()
        await shown.until(lambda: "Ctrl-O" in shown.text())
        assert before.split("\n")[:-2] == shown.text().split("\n")[:-2]
        shown.terminal.draw(LiveState(), ChatStatus(model="model-x"))
        shown.pass_time()
        await shown.until_gone("for a moment")

    at_terminal(scene)


def test_without_a_program_the_terminal_is_asked_to_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")

    async def scene(shown: Seen) -> None:
        assert await shown.terminal.copy("häh")
        await shown.until(lambda: shown.take_in() or b"\x1b]52;c;aMOkaA==\x1b\\" in shown.raw)

    at_terminal(scene)


def test_control_l_draws_everything_again() -> None:
    async def scene(shown: Seen) -> None:
        shown.terminal.show(UserBlock("hello"), ReplyBlock("an answer"))
        await shown.until_seen("an answer")
        os.write(shown._writing.fileno(), b"garbage of another program")
        await shown.until_seen("garbage")
        shown.type("\x0c")
        await shown.until_gone("garbage")
        await shown.until_seen("> hello", "an answer", "model-x")
        shown.terminal.clear()
        await shown.until_gone("an answer")
        assert "model-x" in shown.text()

    at_terminal(scene)


def test_the_terminal_is_as_it_was_afterwards() -> None:
    async def play() -> None:
        async with seen() as shown:
            await started(shown)
            assert shown.is_raw()
            await shown.terminal.close()
            await shown.terminal.close()
            assert shown.settings_are_as_before()
            shown.take_in()
            assert shown.raw.rindex(b"\x1b[?2004l") > shown.raw.rindex(b"\x1b[?2004h")
            assert shown.raw.rindex(b"\x1b[?25h") > shown.raw.rindex(b"\x1b[?25l")
            assert shown.text() == ""

    asyncio.run(play())


def test_the_terminal_is_as_it_was_when_the_loop_is_cancelled() -> None:
    kept: list[Seen] = []

    async def play() -> None:
        shown = Seen(80, 24)
        kept.append(shown)
        await started(shown)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        asyncio.run(play())
    assert kept[0].settings_are_as_before()
    kept[0].close()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_to_end_is_told_and_handlers_come_back(number: signal.Signals, code: int) -> None:
    before = signal.getsignal(number)

    async def scene(shown: Seen) -> None:
        os.kill(os.getpid(), number)
        assert await shown.next() == ExitRequested(immediately=True, exit_code=code)

    at_terminal(scene)
    assert signal.getsignal(number) == before


def test_a_terminal_that_has_gone_ends_it() -> None:
    async def scene(shown: Seen) -> None:
        os.close(shown.master)
        assert await shown.terminal.next() == ExitRequested(immediately=True, exit_code=129)
        shown.terminal.show(text_block("nobody sees this"))
        shown.master = os.open("/dev/null", os.O_RDONLY)

    at_terminal(scene)


def test_a_terminal_that_can_tell_keys_apart_is_asked_to_and_told_to_stop() -> None:
    async def play() -> None:
        async with seen() as shown:
            await started(shown)
            assert b"\x1b[?u" in shown.raw
            assert b"\x1b[>1u" not in shown.raw
            shown.type("\x1b[?0u")
            await shown.until(lambda: shown.take_in() or b"\x1b[>1u" in shown.raw)
            shown.type("a\x1b[13;2ub", "\x1b[120;5u", "\x1b[97;133uz")  # Shift-Enter, Ctrl-X, Ctrl-A with Num Lock
            await shown.until_seen("> a\n  zb")
            shown.type("\x1b[27u", "\x1b[9;2u")
            assert [await shown.next(), await shown.next()] == [KeyPressed("cancel"), KeyPressed("mode")]
            await shown.terminal.close()
            shown.take_in()
            assert shown.raw.count(b"\x1b[<u") == shown.raw.count(b"\x1b[>1u")

    asyncio.run(play())


def test_a_stream_is_drawn_no_faster_than_an_eye_can_follow(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(shown: Seen) -> None:
        shown.terminal.draw(LiveState(activity="writing", tail="begins"), ChatStatus(model="model-x"))
        await shown.until_seen("begins")
        shown.take_in()
        pictures = shown.raw.count(b"\x1b[?25l")
        with monkeypatch.context() as eye:
            for name in ("_FRAME_INTERVAL", "_MAX_FRAME_INTERVAL"):
                eye.setattr(f"kitbag.chat.terminal.terminal_ui.{name}", 3_600.0)
            for number in range(3000):
                shown.terminal.draw(LiveState(activity="writing", tail=f"word {number}"), ChatStatus(model="model-x"))
                await asyncio.sleep(0)
            shown.take_in()
            assert shown.raw.count(b"\x1b[?25l") - pictures <= 1
        shown.terminal.draw(LiveState(activity="writing", tail="word 3000"), ChatStatus(model="model-x"))
        await shown.until_seen("word 3000")

    at_terminal(scene)


def test_a_block_that_cannot_be_drawn_is_not_lost() -> None:
    class Broken:
        def render(
            self, block: object, width: int, *, color: bool, hide: Callable[[str], str], details_key: str
        ) -> str:
            raise ZeroDivisionError("oops")

        def render_tail(
            self, markdown: str, width: int, height: int, *, color: bool, hide: Callable[[str], str]
        ) -> str:
            raise ZeroDivisionError("oops")

        def needs_gap(self, above: object, block: object) -> bool:
            return False

    async def scene(shown: Seen) -> None:
        shown.terminal.show(NoticeBlock("error", "important words"))
        shown.terminal.draw(LiveState(activity="writing", tail="tail"), ChatStatus(model="model-x"))
        await shown.until_seen("important words", "oops", "writing")

    at_terminal(scene, renderer=Broken())


def test_a_change_that_was_seen_when_it_was_asked_for_is_not_shown_again_when_it_is_done() -> None:
    hunk = "@@ -1,1 +1,1 @@\n-old words\n+new words\n"

    async def scene(shown: Seen) -> None:
        shown.terminal.show(DiffBlock(f"--- /w/a.py\n+++ /w/a.py\n{hunk}"))
        shown.terminal.show(
            ToolBlock(
                name="Edit",
                title="a.py",
                summary="+1 -1",
                is_error=False,
                seconds=0.0,
                details=f"--- a.py\n+++ a.py\n{hunk}",
            )
        )
        await shown.until_seen("● Edit a.py  +1 -1")
        assert shown.all().count("new words") == 1
        other = hunk.replace("new", "other")
        shown.terminal.show(
            ToolBlock(
                name="Edit",
                title="a.py",
                summary="+1 -1",
                is_error=False,
                seconds=0.0,
                details=f"--- a.py\n+++ a.py\n{other}",
            )
        )
        await shown.until_seen("other words")

    at_terminal(scene)
