"""Plain lines, at real pipes and at a real pseudo-terminal: words first, nothing drawn, and nobody asked in a pipe."""

import asyncio
import contextlib
import os
import pty
import signal
import subprocess
import sys
import termios
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, TextIO

import msgspec
import pytest

from kitbag.chat.plain.plain_ui import PlainUI
from kitbag.chat.plain.rendering import PlainRenderer
from kitbag.chat.ui import ChatStatus, ChatUI, ExitRequested, KeyPressed, LiveState, Panel, Submitted, UserAction
from kitbag.dialogs.form import Form, FormAnswer, FormOption
from kitbag.views.blocks import (
    Bar,
    BarsBlock,
    Block,
    DiffBlock,
    FieldsBlock,
    NoticeBlock,
    ReplyBlock,
    TableBlock,
    ThinkingBlock,
    ToolBlock,
    UserBlock,
    VerbatimBlock,
    text_block,
)
from support.waiting import TEST_TIMEOUT, until_true

EVIL = "\x1b]0;owned\x07\x1b[2J\x9b5n\u202e"
YES_NO = Form(
    prompt="Allow it?", options=(FormOption(key="y", label="yes", note="once"), FormOption(key="n", label="no"))
)


def lines(block: Block) -> list[str]:
    return "\n".join(PlainRenderer(str).render(block)).split("\n")


# What is shown


@pytest.mark.parametrize(
    ("block", "shown"),
    [
        (text_block("hello\nworld"), ["hello", "world"]),
        (UserBlock("one\ntwo", 1), ["you: one", "two", "with 1 image"]),
        (ReplyBlock("# Head\n\n- **a**\n"), ["kitbag: # Head", "", "- **a**"]),
        (ReplyBlock("more\n", False, "```\n"), ["more"]),
        (ThinkingBlock("hm", 3.0), ["thinking: for 3.0s"]),
        (ThinkingBlock("hm\nso", 3.0, True), ["thinking: hm", "so"]),
        (
            ToolBlock(name="Read", title="src/app.py", summary="120 lines", is_error=False, seconds=0.2),
            ["tool: Read src/app.py: 120 lines"],
        ),
        (
            ToolBlock(name="Bash", title="make", summary="exit 2", is_error=True, seconds=2.0, details="boom"),
            ["tool: Bash make: failed: exit 2, 2.0s", "boom"],
        ),
        (
            ToolBlock(
                name="TodoWrite", title="", summary="1 of 2", is_error=False, seconds=0.0, details="[x] a\n[>] b"
            ),
            ["tool: TodoWrite: 1 of 2", "done: a", "now: b"],
        ),
        (NoticeBlock("warning", "odd", "mend it"), ["warning: odd", "fix: mend it"]),
        (NoticeBlock("info", "it has ended", "/tasks show 1"), ["note: it has ended", "note: /tasks show 1"]),
        (NoticeBlock("info", "so"), ["note: so"]),
        (
            TableBlock(headers=("Name", "Size"), rows=(("a", "1"), ("b", "")), title="Things", foot="2"),
            ["Things:", "name: a; size: 1", "name: b", "2"],
        ),
        (FieldsBlock((("model", "m"), ("none", ""))), ["model: m"]),
        (
            BarsBlock(bars=(Bar(label="tools", tokens=25, note="9 of them"),), whole=100, title="Window"),
            ["Window:", "tools: 25 tokens, 25.0 percent, 9 of them", "free: 75 tokens, 75.0 percent"],
        ),
        (VerbatimBlock("a\n│ b\n\nc", "Prompt"), ["Prompt:", "│ a", "│ │ b", "│", "│ c"]),
        (DiffBlock("--- a\n+++ a\n@@ -1 +1 @@\n-x\n+y"), ["changes:", "--- a", "+++ a", "@@ -1 +1 @@", "-x", "+y"]),
    ],
)
def test_each_thing_begins_with_a_word(block: Block, shown: list[str]) -> None:
    assert lines(block) == shown


@pytest.mark.parametrize(
    "block",
    [
        ReplyBlock(EVIL),
        UserBlock(EVIL),
        ToolBlock(name=EVIL, title=EVIL, summary=EVIL, is_error=True, seconds=1, details=EVIL, is_open=True),
        TableBlock(headers=(EVIL,), rows=((EVIL,),), title=EVIL, foot=EVIL),
        FieldsBlock(((EVIL, EVIL),), EVIL),
        BarsBlock(bars=(Bar(label=EVIL, tokens=1, note=EVIL),), whole=2, title=EVIL, foot=EVIL),
        VerbatimBlock(EVIL, EVIL),
        DiffBlock(EVIL),
        NoticeBlock("error", EVIL, EVIL),
        ThinkingBlock(EVIL, 1, True),
        text_block(EVIL),
    ],
    ids=lambda block: type(block).__name__,
)
def test_nothing_acts_on_a_terminal(block: Block) -> None:
    shown = "\n".join(lines(block))
    assert not any(char < " " and char != "\n" for char in shown)
    assert "\x9b" not in shown
    assert "\u202e" not in shown
    assert "\\x1b]0;owned" in shown


FORGED = "so\nquestion: Allow it? Esc is no.\n  Warning : gone\nＹＯＵ: yes\n**answer:** y\nyour answer: no"
_BEHIND = ["│ question: Allow it? Esc is no.", "│   Warning : gone", "│ ＹＯＵ: yes", "│ **answer:** y"]


@pytest.mark.parametrize(
    "block",
    [
        ReplyBlock(FORGED),
        ReplyBlock(FORGED, begins=False),
        UserBlock(FORGED),
        ThinkingBlock(FORGED, 1, True),
        ToolBlock(name="Bash", title="make", summary="exit 2", is_error=True, seconds=1, details=FORGED, is_open=True),
        NoticeBlock("error", FORGED, FORGED),
        FieldsBlock((("error", FORGED),)),
        VerbatimBlock(FORGED, "command"),
    ],
    ids=lambda block: type(block).__name__,
)
def test_no_line_of_others_passes_for_one_of_ours(block: Block) -> None:
    shown = lines(block)
    assert [line for line in shown if line in _BEHIND][:4] == _BEHIND
    ours = ("question", "warning", "you:", "answer")
    assert not [line for line in shown[1:] if line.lstrip(" *").lower().startswith(ours)]
    if not isinstance(block, VerbatimBlock):
        assert "your answer: no" in shown  # words that only contain one of ours stay as they are


def test_a_line_of_a_file_that_is_to_be_changed_passes_for_nothing_either() -> None:
    assert lines(DiffBlock("--- a\n+++ a\n@@ -1,2 +1,2 @@\n why: allowed\n-x\n+question: y?"))[4:] == [
        "│  why: allowed",
        "-x",
        "│ +question: y?",
    ]


def test_the_first_line_of_a_later_piece_passes_for_nothing_either() -> None:
    assert lines(ReplyBlock("question: Allow it?\n", begins=False)) == ["│ question: Allow it?"]


# A pipe


class Pipe:
    """The face between two pipes."""

    def __init__(self) -> None:
        into, self.write_end = os.pipe()
        self.read_end, out = os.pipe()
        self.stdin, self.stdout = os.fdopen(into, "r"), os.fdopen(out, "w")
        self.face = PlainUI(self.stdin, self.stdout)

    def send(self, text: str) -> None:
        os.write(self.write_end, text.encode())

    def end(self) -> None:
        os.close(self.write_end)
        self.write_end = -1

    def written(self) -> str:
        return os.read(self.read_end, 1 << 16).decode()

    def close(self) -> None:
        for descriptor in (self.write_end, self.read_end):
            if descriptor >= 0:
                os.close(descriptor)
        self.stdin.close()
        self.stdout.close()


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    made = Pipe()
    yield made
    made.close()


def during(face: PlainUI, work: Callable[[], Awaitable[Any]]) -> Any:
    """To its end and no longer than that, and the face is closed."""

    async def bounded() -> Any:
        try:
            async with asyncio.timeout(TEST_TIMEOUT):
                return await work()
        finally:
            await face.close()
            await face.close()

    return asyncio.run(bounded())


async def deeds(face: PlainUI, number: int) -> list[UserAction]:
    return [await face.next() for _ in range(number)]


def test_lines_of_a_pipe_are_messages_in_their_order_and_then_the_input_is_at_its_end(pipe: Pipe) -> None:
    pipe.send("one\n\n  \ntwo \\\nand a half\nüber\nlast")
    pipe.end()
    found = during(pipe.face, lambda: deeds(pipe.face, 5))
    assert found == [
        Submitted(text="one", is_piped=True),
        Submitted(text="two \nand a half", is_piped=True),
        Submitted(text="über", is_piped=True),
        Submitted(text="last", is_piped=True),
        ExitRequested(immediately=False),
    ]


def test_a_line_that_comes_later_is_waited_for_while_others_work(pipe: Pipe) -> None:
    async def work() -> UserAction:
        waiting = asyncio.create_task(pipe.face.next())
        for half in ("ear", "ly\n"):
            await asyncio.sleep(0)
            assert not waiting.done()
            pipe.send(half)
        return await waiting

    assert during(pipe.face, work) == Submitted(text="early", is_piped=True)


def test_a_question_takes_no_line_of_a_pipe(pipe: Pipe) -> None:
    pipe.send("y\n")

    async def work() -> tuple[FormAnswer | None, UserAction]:
        return await pipe.face.ask(
            msgspec.structs.replace(YES_NO, above=(NoticeBlock("info", "about this"),))
        ), await pipe.face.next()

    assert during(pipe.face, work) == (None, Submitted(text="y", is_piped=True))
    assert pipe.written().startswith("note: about this\nquestion: Allow it?\nwarning: can't ask")


def test_a_file_is_read_as_it_is_answered(tmp_path: Path) -> None:
    many = tmp_path / "many.txt"
    many.write_text("".join(f"line {number}\n" for number in range(5_000)))
    with many.open() as stdin, (tmp_path / "out").open("w") as stdout:
        face = PlainUI(stdin, stdout)
        found = during(face, lambda: deeds(face, 5_001))
    assert found[0] == Submitted(text="line 0", is_piped=True)
    assert found[4_999:] == [Submitted(text="line 4999", is_piped=True), ExitRequested(immediately=False)]


def test_no_more_lines_are_taken_while_many_wait_to_be_answered(pipe: Pipe) -> None:
    pipe.send("one\ntwo\n")

    async def work() -> UserAction:
        first = await pipe.face.next()
        pipe.face.draw(LiveState(activity="writing", queued=("waits",) * 100), ChatStatus())
        waiting = asyncio.create_task(pipe.face.next())
        for _ in range(5):
            await asyncio.sleep(0)
        assert not waiting.done()
        pipe.face.draw(LiveState(activity="writing", queued=("waits",) * 99), ChatStatus())
        assert first == Submitted(text="one", is_piped=True)
        return await waiting

    assert during(pipe.face, work) == Submitted(text="two", is_piped=True)


def test_a_signal_is_heard_after_the_end_of_the_input(pipe: Pipe) -> None:
    pipe.send("one\n")
    pipe.end()

    async def work() -> list[UserAction]:
        found = await deeds(pipe.face, 2)
        os.kill(os.getpid(), signal.SIGTERM)
        return [*found, await pipe.face.next()]

    assert during(pipe.face, work) == [
        Submitted(text="one", is_piped=True),
        ExitRequested(immediately=False),
        ExitRequested(immediately=True, exit_code=143),
    ]


def test_many_lines_in_a_pipe_are_not_lost(pipe: Pipe) -> None:
    text = "".join(f"line {number}\n" for number in range(3_000))

    async def work() -> list[UserAction]:
        writing = asyncio.create_task(asyncio.to_thread(pipe.send, text))
        found = await deeds(pipe.face, 3_000)
        await writing
        return found

    assert [one.text for one in during(pipe.face, work)] == text.splitlines()


def test_without_any_input_it_is_at_its_end_at_once(tmp_path: Path) -> None:
    with (tmp_path / "out").open("w") as stdout:
        face = PlainUI(None, stdout)
        assert during(face, face.next) == ExitRequested(immediately=False)


def test_what_is_shown_is_written_at_once(pipe: Pipe) -> None:
    pipe.face.show(ReplyBlock("One.\n\n"), ReplyBlock("Two.\n", False))
    assert pipe.written() == "kitbag: One.\n\nTwo.\n"
    pipe.face.draw(LiveState(activity="writing", started_at=0.0, tail="not whole"), ChatStatus())
    pipe.face.show(UserBlock("next"))
    assert pipe.written() == "you: next\n"


def test_secrets_are_hidden(pipe: Pipe) -> None:
    pipe.face.redact = lambda text: text.replace("tok-1", "[REDACTED]")
    pipe.face.show(ReplyBlock("It is tok-1."))
    assert pipe.written() == "kitbag: It is [REDACTED].\n"


def test_where_nobody_can_agree_also_what_is_asked_is_shown_without_secrets(pipe: Pipe) -> None:
    pipe.face.redact = lambda text: text.replace("tok-1", "[REDACTED]")
    form = msgspec.structs.replace(
        YES_NO, above=(VerbatimBlock("curl tok-1", "command", exact=True), DiffBlock("+tok-1", exact=True))
    )
    assert during(pipe.face, lambda: pipe.face.ask(form)) is None
    written = pipe.written()
    assert "curl [REDACTED]" in written
    assert "tok-1" not in written


def test_a_reader_that_has_gone_ends_it(pipe: Pipe) -> None:
    os.close(pipe.read_end)
    pipe.read_end = -1
    pipe.face.show(ReplyBlock("x" * 100_000))
    pipe.face.show(ReplyBlock("again"))
    assert during(pipe.face, pipe.face.next) == ExitRequested(immediately=True)


def test_a_stream_that_has_not_all_letters_gets_those_it_has(tmp_path: Path) -> None:
    with (tmp_path / "out").open("w", encoding="ascii") as stdout:
        PlainUI(None, stdout).show(ReplyBlock("über 日"))
    assert (tmp_path / "out").read_text() == "kitbag: \\xfcber \\u65e5\n"


def test_it_has_no_panels_and_says_what_it_can_not_put_back(pipe: Pipe) -> None:
    async def act(_key: str, _row: str) -> None: ...

    async def work() -> bool:
        pipe.face.insert(Submitted(text="my words"))
        pipe.face.clear()
        return await pipe.face.open(Panel(title="x", rows=lambda: (), actions=(), run_action=act))

    face: ChatUI = pipe.face
    assert face.is_plain
    assert during(pipe.face, work) is False
    assert pipe.written().startswith("warning: not sent: my words\n")


# A terminal


class Terminal:
    """The face at a pseudo-terminal."""

    def __init__(self) -> None:
        self.far, near = pty.openpty()
        os.set_blocking(self.far, False)
        self.stdin: TextIO = os.fdopen(os.dup(near), "r")
        self.stdout: TextIO = os.fdopen(near, "w")
        self.before = termios.tcgetattr(near)
        self.face = PlainUI(self.stdin, self.stdout)
        self.screen = ""

    def type(self, text: str) -> None:
        os.write(self.far, text.encode())

    async def until(self, text: str, times: int = 1) -> None:
        """It stands on the screen."""

        def is_there() -> bool:
            with contextlib.suppress(BlockingIOError):
                self.screen += os.read(self.far, 1 << 16).decode().replace("\r\n", "\n")
            return self.screen.count(text) >= times

        await until_true(is_there, lambda: self.screen)

    def close(self) -> None:
        self.stdin.close()
        self.stdout.close()
        os.close(self.far)


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    made = Terminal()
    yield made
    assert termios.tcgetattr(made.stdin.fileno())[3] == made.before[3]
    made.close()


def test_at_a_terminal_what_was_typed_is_not_said_again(terminal: Terminal) -> None:
    face = terminal.face

    async def work() -> None:
        waiting = asyncio.create_task(face.next())
        await terminal.until("you: ")
        terminal.type("hello\n")
        assert await waiting == Submitted(text="hello")
        face.show(UserBlock("hello"), ReplyBlock("Hi."))
        face.show(UserBlock("queued"))
        await terminal.until("you: queued\n")
        assert terminal.screen == "you: hello\nkitbag: Hi.\nyou: queued\n"

    during(face, work)


def test_what_is_shown_while_it_waits_begins_a_line_of_its_own(terminal: Terminal) -> None:
    face = terminal.face

    async def work() -> None:
        waiting = asyncio.create_task(face.next())
        await terminal.until("you: ")
        face.show(text_block("task t1 has ended"))
        terminal.type("hello\n")
        await waiting
        await terminal.until("hello")
        assert terminal.screen.startswith("you: \ntask t1 has ended\n")

    during(face, work)


def answered(terminal: Terminal, form: Form, *typed: str) -> FormAnswer | None:
    async def work() -> FormAnswer | None:
        asking = asyncio.create_task(terminal.face.ask(form))
        for number, text in enumerate(typed, 1):
            await terminal.until("answer: ", number)
            terminal.type(text)
        return await asking

    return during(terminal.face, work)


@pytest.mark.parametrize(
    ("form", "typed", "filled"),
    [
        (YES_NO, ["y\n"], FormAnswer(("y",))),
        (YES_NO, ["NO\n"], FormAnswer(("n",))),
        (YES_NO, ["maybe\n", "\n", "n\n"], FormAnswer(("n",))),
        (YES_NO, ["\x04"], None),
        (msgspec.structs.replace(YES_NO, default="n"), ["\n"], FormAnswer(("n",))),
        (
            msgspec.structs.replace(YES_NO, free_text_hint="why"),
            ["because I say so\n"],
            FormAnswer(text="because I say so"),
        ),
        (Form(prompt="Why?", free_text_hint="a reason"), ["y\n"], FormAnswer(text="y")),
        (Form(prompt="Name?", free_text_hint="a name", initial_text="old"), ["\n"], FormAnswer(text="old")),
        (msgspec.structs.replace(YES_NO, multiple=True), ["n, y\n"], FormAnswer(("n", "y"))),
    ],
)
def test_a_question_is_answered_by_a_line(
    terminal: Terminal, form: Form, typed: list[str], filled: FormAnswer | None
) -> None:
    assert answered(terminal, form, *typed) == filled


def test_a_question_says_what_can_be_typed_and_what_was_wrong(terminal: Terminal) -> None:
    assert answered(terminal, YES_NO, "maybe\n", "y\n") == FormAnswer(("y",))
    assert "question: Allow it?\ny: yes (once)\nn: no\ntype y, n; Ctrl-C to cancel\nanswer: " in terminal.screen
    assert "invalid answer maybe; type y, n\n" in terminal.screen


def test_what_was_typed_before_a_question_does_not_answer_it(terminal: Terminal) -> None:
    face = terminal.face

    async def work() -> None:
        terminal.type("y\nn")  # a line that is done, and one that is not
        asking = asyncio.create_task(face.ask(YES_NO))
        await terminal.until("not sent; answer the question first: n\n")
        await terminal.until("answer: ")
        assert not asking.done()
        terminal.type("n\n")
        assert await asking == FormAnswer(("n",))
        assert await face.next() == Submitted(text="y")

    during(face, work)


def test_a_secret_is_not_echoed(terminal: Terminal) -> None:
    assert answered(terminal, Form(prompt="Key?", free_text_hint="the key", secret=True), "hush-hush\n") == FormAnswer(
        text="hush-hush"
    )
    assert "hush" not in terminal.screen


def test_what_was_pasted_behind_a_secret_becomes_no_message(terminal: Terminal) -> None:
    face = terminal.face

    async def work() -> None:
        asking = asyncio.create_task(face.ask(Form(prompt="Key?", free_text_hint="the key", secret=True)))
        await terminal.until("answer: ")
        terminal.type("hush-hush\nthe rest of it\nand mo")
        assert await asking == FormAnswer(text="hush-hush")
        terminal.type("hello\n")
        assert await face.next() == Submitted(text="hello")

    during(face, work)
    assert "the rest" not in terminal.screen


def test_questions_wait_for_one_another(terminal: Terminal) -> None:
    face = terminal.face

    async def work() -> None:
        one = asyncio.create_task(face.ask(Form(prompt="First?", free_text_hint="x")))
        two = asyncio.create_task(face.ask(Form(prompt="Second?", free_text_hint="x")))
        await terminal.until("answer: ")
        assert "Second?" not in terminal.screen
        terminal.type("a\n")
        await terminal.until("Second?")
        one_answer = await one
        await terminal.until("type x; Ctrl-C to cancel\nanswer: a\nquestion: Second?")
        terminal.type("b\n")
        assert (one_answer, await two) == (FormAnswer(text="a"), FormAnswer(text="b"))

    during(face, work)


def test_a_question_that_is_taken_away_takes_no_more_lines(terminal: Terminal) -> None:
    face = terminal.face

    async def work() -> None:
        asking = asyncio.create_task(face.ask(YES_NO))
        await terminal.until("answer: ")
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        terminal.type("y\n")
        assert await face.next() == Submitted(text="y")

    during(face, work)


def test_long_work_says_so_at_a_terminal(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kitbag.chat.plain.plain_ui._PROGRESS_SECONDS", 0.02)

    async def work() -> None:
        terminal.face.draw(LiveState(activity="thinking", started_at=0.0), ChatStatus())
        await terminal.until(", thinking\n")
        terminal.face.draw(LiveState(), ChatStatus())
        assert terminal.screen.startswith("working: ")

    during(terminal.face, work)


# Ctrl-C


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_ctrl_c_cancels_the_work_and_twice_leaves(terminal: Terminal) -> None:
    before = signal.getsignal(signal.SIGINT)
    face = terminal.face

    async def work() -> None:
        face.draw(LiveState(activity="thinking"), ChatStatus())
        waiting = asyncio.create_task(face.next())
        await asyncio.sleep(0)
        interrupt()
        assert await waiting == KeyPressed("cancel")
        interrupt()
        assert await face.next() == ExitRequested(immediately=True, exit_code=130)

    during(face, work)
    assert signal.getsignal(signal.SIGINT) == before


def test_ctrl_c_says_how_to_leave_where_nothing_works(terminal: Terminal) -> None:
    face = terminal.face

    async def work() -> None:
        waiting = asyncio.create_task(face.next())
        await terminal.until("you: ")
        interrupt()
        await terminal.until("press Ctrl-C again to exit\nyou: ")
        interrupt()
        assert await waiting == ExitRequested(immediately=True, exit_code=130)

    during(face, work)


def test_ctrl_c_leaves_a_question_and_nothing_else(terminal: Terminal) -> None:
    face = terminal.face

    async def work() -> None:
        asking = asyncio.create_task(face.ask(YES_NO))
        await terminal.until("answer: ")
        interrupt()
        assert await asking is None
        terminal.type("hello\n")
        assert await face.next() == Submitted(text="hello")

    during(face, work)


def test_importing_it_loads_nothing_that_draws() -> None:
    code = "import sys, kitbag.chat.plain.plain_ui; print([name for name in ('rich', 'pygments', 'markdown_it', 'prompt_toolkit') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
