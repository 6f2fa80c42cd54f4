"""Questions and panels of the terminal face: what answers them, what must not, and what stands on the screen."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from chat.seen_terminal import ENTER, ESCAPE, UP, Seen, seen, started
from kitbag.chat.terminal.forms import FormResult, FormState, QuietPeriod
from kitbag.chat.terminal.panels import PanelState
from kitbag.chat.ui import ChatStatus, KeyPressed, LiveState, Panel, PanelAction, PanelRow, RunningCall, Submitted
from kitbag.dialogs.form import Form, FormAnswer, FormOption
from kitbag.errors import InvalidError
from kitbag.views.blocks import Span, VerbatimBlock, text_block
from support.waiting import TEST_TIMEOUT

YES_NO = (
    FormOption(key="y", label="yes, once"),
    FormOption(key="s", label="for this session"),
    FormOption(key="n", label="no"),
)


def at_terminal(scene: Callable[[Seen], Awaitable[None]], columns: int = 80, rows: int = 24, **given: Any) -> None:
    async def play() -> None:
        async with seen(columns, rows, **given) as shown:
            await started(shown)
            await asyncio.wait_for(scene(shown), TEST_TIMEOUT)

    asyncio.run(play())


async def asked(shown: Seen, form: Form) -> "asyncio.Task[FormAnswer | None]":
    """Once it takes keys."""
    shown.pass_time()
    asking = asyncio.ensure_future(shown.terminal.ask(form))
    await shown.until_seen("? " + form.prompt[:20])
    await shown.until_keys_count()
    return asking


def test_an_option_is_chosen_by_its_key_and_told_in_the_scrollback() -> None:
    async def scene(shown: Seen) -> None:
        asking = await asked(
            shown, Form(prompt="May it?", options=YES_NO, above=(VerbatimBlock("rm -rf build", "command"),))
        )
        assert "rm -rf build" in shown.text()
        shown.type("s")
        assert await asking == FormAnswer(("s",))
        await shown.until_seen("? May it?  for this session", "> ")
        await shown.until_gone("yes, once")

    at_terminal(scene)


def test_a_searchable_form_narrows_its_options_while_one_types() -> None:
    options = (
        FormOption(key="1", label="fix the parser", note="a1b2", preview="> fix\nThe lexer was wrong."),
        FormOption(key="2", label="write docs", note="c3d4", preview="> docs\nWritten."),
        FormOption(key="3", label="parser again", note="e5f6", preview="> again"),
    )
    form = Form(prompt="Resume which session?", options=options, free_text_hint="words", searchable=True)

    async def scene(shown: Seen) -> None:
        asking = await asked(shown, form)
        await shown.until_seen("› fix the parser", "The lexer was wrong.", "3 of 3", "write docs")
        for letter in "PARSER":
            await shown.press(letter)
        await shown.until_seen("search: PARSER", "2 of 3", "parser again")
        await shown.until_gone("write docs")
        shown.type("\x1b[B")
        await shown.until_seen("› parser again", "> again")
        shown.type(" 2")
        await shown.until_seen("1 of 3", "› fix the parser")  # by its ID
        shown.type("x")
        await shown.until_seen("0 of 3")
        shown.type(ENTER)
        await shown.until_seen("no match; Backspace")
        shown.type("\x7f" * 2)
        await shown.until_seen("2 of 3")
        await shown.press(ESCAPE)
        await shown.until_seen("3 of 3")
        await shown.paste("docs")
        await shown.until_seen("› write docs", "1 of 3")
        shown.type(ENTER)
        assert await asking == FormAnswer(("2",))

    at_terminal(scene)


def test_the_marked_option_has_a_preview() -> None:
    options = (
        FormOption(key="1", label="one", preview="> first question\nfirst answer"),
        FormOption(key="2", label="two", preview="> second question"),
    )

    async def scene(shown: Seen) -> None:
        asking = await asked(shown, Form(prompt="Which session?", options=options, default="1"))
        await shown.until_seen("│ > first question", "│ first answer")
        shown.type("\x1b[B")
        await shown.until_seen("│ > second question")
        await shown.until_gone("first question")
        await shown.press(ESCAPE)
        assert await asking is None

    at_terminal(scene)


@pytest.mark.parametrize(("columns", "rows"), [(30, 10), (20, 8), (80, 12)])
def test_what_is_asked_about_is_visible_in_a_small_terminal_with_long_options(columns: int, rows: int) -> None:
    options = tuple(
        FormOption(key=key, label=f"choice {key} with a label that takes several rows") for key in "abcdefgh"
    )
    form = Form(prompt="Allow it?", options=options, above=(VerbatimBlock("make all", "command"),), summary="Bash make")

    async def scene(shown: Seen) -> None:
        asking = await asked(shown, form)
        await shown.until_seen("? Allow it?", "make all", "a  choice")
        shown.type("h")
        assert await asking == FormAnswer(("h",))

    at_terminal(scene, columns, rows)


def test_a_request_with_a_summary_fits_the_screen_scrolls_and_leaves_one_line() -> None:
    lines = "\n".join(f"line {at}." for at in range(60))
    form = Form(prompt="Allow it?", options=YES_NO, above=(VerbatimBlock(lines, "command"),), summary="Bash make all")

    async def scene(shown: Seen) -> None:
        shown.terminal.show(VerbatimBlock("before"))
        asking = await asked(shown, form)
        await shown.until_seen("? Allow it?", "line 0.", "n  no", "PageUp and PageDown", "model-x")
        shown.type("\x1b[F")  # End
        await shown.until_seen("line 59.", "? Allow it?", "n  no", "of 61")
        shown.type("y")
        assert await asking == FormAnswer(("y",))
        await shown.until_seen("? Bash make all  yes, once")
        assert "line " not in shown.all()
        assert "before" in shown.text()
        again = msgspec.structs.replace(form, above=())  # as after a reason that was not given
        asking = await asked(shown, again)
        await shown.until_seen("line 0.")
        await shown.press(ESCAPE)
        assert await asking is None

    at_terminal(scene)


def test_a_long_request_leaves_one_row_and_stays_visible_while_its_rule_is_edited() -> None:
    command = "Bash " + "word " * 60
    above = (VerbatimBlock("make all", "command"),)
    options = (*YES_NO, FormOption(key="r", label="allow and add a rule", continues=True))
    rule = Form(prompt="Rule to add:", free_text_hint="a rule", text_label="allow, rule added: ", summary=command[:160])

    async def scene(shown: Seen) -> None:
        asking = await asked(shown, Form(prompt="Allow it?", options=options, above=above, summary=command[:160]))
        shown.type("r")
        assert await asking == FormAnswer(("r",))
        asking = await asked(shown, rule)
        await shown.until_seen("make all", "? Rule to add:")
        shown.type("Bash(" + "word " * 30 + ")", ENTER)
        assert await asking is not None
        await shown.until_gone("make all", "? Rule to add")
        rows = [row for row in shown.text().split("\n") if "word" in row]
        assert len(rows) == 1
        assert re.fullmatch("\\? Bash (word )+word…  allow, rule added: Bash\\(word .+…", rows[0].rstrip())

    at_terminal(scene)


@pytest.mark.parametrize("typed", ["stop it now", "yesterday it did", "Investigate incident", "no, not there"])
def test_words_are_no_answer_whatever_letters_they_have(typed: str) -> None:
    async def scene(shown: Seen) -> None:
        asking = await asked(shown, Form(prompt="May it?", options=YES_NO))
        for char in typed:
            shown.type(char)
        await shown.until_seen("text ignored")
        assert not asking.done()
        shown.pass_time()
        shown.type("n")
        assert await asking == FormAnswer(("n",))

    at_terminal(scene)


def test_a_key_with_enter_behind_it_answers_at_once_and_words_go_where_they_are_free() -> None:
    async def scene(shown: Seen) -> None:
        asking = await asked(shown, Form(prompt="May it?", options=YES_NO))
        shown.type("s", ENTER)
        assert await asking == FormAnswer(("s",))
        asking = await asked(
            shown,
            Form(
                prompt="Which one?",
                options=(FormOption(key="1", label="red"), FormOption(key="2", label="blue")),
                free_text_hint="your own",
            ),
        )
        shown.type("2", " ", "o", "f", " ", "3", ENTER)
        assert await asking == FormAnswer((), "2 of 3")

    at_terminal(scene)


def test_enter_alone_chooses_nothing_until_the_mark_was_moved() -> None:
    async def scene(shown: Seen) -> None:
        asking = await asked(shown, Form(prompt="May it?", options=YES_NO))
        shown.type(ENTER)
        await shown.until_seen("nothing selected")
        shown.type(UP, UP, ENTER)
        assert await asking == FormAnswer(("s",))
        with_default = await asked(shown, Form(prompt="Again?", options=YES_NO, default="n"))
        assert "› n  no" in shown.text()
        shown.type(ENTER)
        assert await with_default == FormAnswer(("n",))

    at_terminal(scene)


@pytest.mark.parametrize("key", [ESCAPE, "\x03"])
def test_a_question_is_left_by_escape_and_control_c(key: str) -> None:
    async def scene(shown: Seen) -> None:
        asking = await asked(shown, Form(prompt="May it?", options=YES_NO))
        await shown.press(key)
        assert await asking is None
        await shown.until_seen("canceled")

    at_terminal(scene)


def test_who_types_a_message_answers_nothing_and_loses_nothing() -> None:
    async def scene(shown: Seen) -> None:
        shown.stop_clock()
        shown.type("please do not sa")
        await shown.until_seen("> please do not sa")
        asking = asyncio.ensure_future(shown.terminal.ask(Form(prompt="May it?", options=YES_NO)))
        await shown.until_seen("May it?", "pause typing", "> please do not sa")
        shown.type("y yes")
        await shown.until_seen("> please do not say yes")
        assert not asking.done()
        shown.pass_time()
        await shown.until_gone("pause typing", "> please")
        shown.type("n")
        assert await asking == FormAnswer(("n",))
        await shown.until_seen("> please do not say yes")
        shown.type(ENTER)
        assert await shown.next() == Submitted(text="please do not say yes")

    at_terminal(scene)


def test_who_goes_on_with_a_message_after_a_pause_answers_nothing() -> None:
    async def scene(shown: Seen) -> None:
        shown.stop_clock()
        shown.type("wh")
        await shown.until_seen("> wh")
        shown.pass_time()  # and has not thought of the next word yet when it is asked
        asking = asyncio.ensure_future(shown.terminal.ask(Form(prompt="Allow it?", options=YES_NO)))
        await shown.until_seen("? Allow it?")
        shown.type("y")
        await shown.until_seen("> why")
        assert not asking.done()
        shown.pass_time()
        await shown.until_gone("pause typing")
        shown.type("n")
        assert await asking == FormAnswer(("n",))

    at_terminal(scene)


@pytest.mark.parametrize("seconds", [0, 10])
def test_what_was_typed_before_the_program_had_started_answers_nothing(seconds: float) -> None:
    async def play() -> None:
        async with seen() as shown:
            shown.type("y")
            shown.pass_time(seconds)  # a slow start
            asking = asyncio.ensure_future(shown.terminal.ask(Form(prompt="Trust it?", options=YES_NO)))
            await shown.until_seen("Trust it?", "> y")
            await shown.until_gone("pause typing")
            assert not asking.done()
            shown.type("n")
            assert await asking == FormAnswer(("n",))

    asyncio.run(play())


def test_a_key_pressed_twice_does_not_answer_the_next_question() -> None:
    async def scene(shown: Seen) -> None:
        first = await asked(shown, Form(prompt="First?", options=YES_NO))
        shown.stop_clock()
        second = asyncio.ensure_future(shown.terminal.ask(Form(prompt="Second?", options=YES_NO)))
        await asyncio.sleep(0)
        assert "Second?" not in shown.text()  # they wait for one another
        shown.type("y")
        await shown.until_seen("? Second?")
        shown.type("y")
        assert await first == FormAnswer(("y",))
        await shown.settle()
        assert not second.done()
        shown.pass_time()
        await shown.until_keys_count()
        shown.type("n")
        assert await second == FormAnswer(("n",))

    at_terminal(scene)


def test_words_after_an_answer_are_written_at_once() -> None:
    async def scene(shown: Seen) -> None:
        async def both() -> FormAnswer | None:
            await shown.terminal.ask(Form(prompt="First?", options=YES_NO))
            return await shown.terminal.ask(Form(prompt="Why?", free_text_hint="it is told"))

        asking = asyncio.ensure_future(both())
        await shown.until_seen("? First?")
        shown.type("n")
        await shown.until_seen("? Why?")
        shown.type("too late", ENTER)
        assert await asking == FormAnswer((), "too late")

    at_terminal(scene)


def test_control_u_directly_after_a_key_clears_the_text_which_that_key_opens() -> None:
    async def scene(shown: Seen) -> None:
        async def both() -> FormAnswer | None:
            await shown.terminal.ask(Form(prompt="First?", options=YES_NO))
            return await shown.terminal.ask(Form(prompt="Rule?", free_text_hint="a rule", initial_text="Bash(old)"))

        asking = asyncio.ensure_future(both())
        await shown.until_seen("? First?")
        await shown.until_keys_count()
        shown.type("s", "\x15")
        await shown.until_seen("? Rule?")
        shown.type("Bash(new)", ENTER)
        assert await asking == FormAnswer((), "Bash(new)")
        again = asyncio.ensure_future(shown.terminal.ask(Form(prompt="Again?", initial_text="kept")))
        await shown.until_seen("? Again?", "> kept")
        shown.type(ENTER)
        assert await again == FormAnswer((), "kept")

    at_terminal(scene)


def test_words_of_ones_own_are_opened_by_tab_or_by_typing_them() -> None:
    async def scene(shown: Seen) -> None:
        form = Form(prompt="May it?", options=YES_NO, free_text_hint="say why not")
        asking = await asked(shown, form)
        shown.type("because", ENTER)
        assert await asking == FormAnswer((), "because")
        await shown.until_seen("? May it?  because")
        asking = await asked(shown, msgspec.structs.replace(form, prompt="Again?", initial_text="given"))
        shown.type("\t", "!")
        await shown.until_seen("> given!")
        await shown.press(ESCAPE)
        await shown.until_gone("> given!")
        assert not asking.done()
        shown.type("y")
        assert await asking == FormAnswer(("y",))

    at_terminal(scene)


def test_a_paste_never_chooses() -> None:
    async def scene(shown: Seen) -> None:
        asking = await asked(shown, Form(prompt="May it?", options=YES_NO))
        await shown.paste("y\r")
        shown.type("n")
        assert await asking == FormAnswer(("n",))

    at_terminal(scene)


def test_several_are_chosen_with_space() -> None:
    async def scene(shown: Seen) -> None:
        asking = await asked(
            shown,
            Form(
                prompt="Which?",
                options=tuple(FormOption(key=str(n), label=f"item {n}") for n in range(1, 13)),
                multiple=True,
            ),
        )
        shown.type(" ", "3", ENTER)  # the mark stands on the first
        assert await asking == FormAnswer(("1", "3"))
        await shown.until_seen("? Which?  item 1, item 3")

    at_terminal(scene)


def test_a_secret_is_not_shown_and_not_remembered() -> None:
    async def scene(shown: Seen) -> None:
        asking = await asked(shown, Form(prompt="Key?", secret=True))
        shown.type("hunter2")
        await shown.until_seen("> •••••••")
        shown.type(ENTER)
        assert await asking == FormAnswer((), "hunter2")
        await shown.press(UP)
        assert "hunter2" not in shown.all()
        assert b"hunter2" not in shown.raw

    at_terminal(scene)


def test_to_cancel_the_asker_takes_the_question_away() -> None:
    async def scene(shown: Seen) -> None:
        shown.type("draft")
        await shown.until_seen("> draft")
        asking = await asked(shown, Form(prompt="May it?", options=YES_NO))
        asking.cancel()
        await shown.until_gone("May it?", "yes, once")
        await shown.until_seen("> draft")
        again = await asked(shown, Form(prompt="And now?", options=YES_NO))
        await shown.terminal.close()
        assert await again is None
        assert await shown.terminal.ask(Form(prompt="Nobody?", options=YES_NO)) is None

    at_terminal(scene)


@pytest.mark.parametrize(("columns", "rows"), [(20, 5), (30, 3), (80, 10)])
def test_a_question_fits_a_small_screen_and_scrolls_to_its_mark(columns: int, rows: int) -> None:
    async def scene(shown: Seen) -> None:
        options = tuple(FormOption(key=chr(97 + n), label=f"item {n}") for n in range(20))
        asking = asyncio.ensure_future(
            shown.terminal.ask(Form(prompt="Which of these many things is it? " * 5, options=options))
        )
        await shown.until_seen("item 0")
        shown.type(UP)
        await shown.until_seen("› t  item 19")
        shown.type(ENTER)
        assert await asking == FormAnswer(("t",))

    at_terminal(scene, columns, rows)


# Panels


def tasks(acts: list[tuple[str, str]], act: Callable[[str, str], Awaitable[None]] | None = None) -> Panel:
    async def note(key: str, row: str) -> None:
        acts.append((key, row))

    rows = tuple(PanelRow(id=f"t{n}", line=(Span(f"task {n} "), Span("x" * 200, "dim"))) for n in range(50))
    return Panel(
        title="Tasks",
        rows=lambda: rows,
        actions=(PanelAction(key="enter", label="read"), PanelAction(key="s", label="stop")),
        run_action=act or note,
    )


def test_a_panel_is_walked_through_and_its_actions_run_on_the_marked_row() -> None:
    async def scene(shown: Seen) -> None:
        acts: list[tuple[str, str]] = []
        opened = asyncio.ensure_future(shown.terminal.open(tasks(acts)))
        await shown.until_seen("Tasks", "› task 0", "Enter to read · s to stop · Esc to close")
        shown.type("jj", UP, ENTER)
        await shown.until(lambda: acts == [("enter", "t1")])
        shown.type("\x1b[6~", "s")
        await shown.until(lambda: len(acts) == 2)
        assert acts[1][0] == "s"
        assert int(acts[1][1][1:]) > 5
        assert all(len(row) <= 60 for row in shown.rows())
        shown.type("q")
        assert await opened is True
        await shown.until_gone("Tasks")
        await shown.until_seen("> ")

    at_terminal(scene, 60, 20)


def test_an_action_may_show_and_ask() -> None:
    async def scene(shown: Seen) -> None:
        async def act(key: str, row: str) -> None:
            shown.terminal.show(text_block(f"about {row}"))
            filled = await shown.terminal.ask(Form(prompt="Stop it?", options=YES_NO))
            shown.terminal.show(text_block(f"answered {filled}"))
            raise InvalidError("it has ended already", "nothing to do")

        opened = asyncio.ensure_future(shown.terminal.open(tasks([], act)))
        await shown.until_seen("› task 0")
        shown.type("s")
        await shown.until_seen("about t0", "? Stop it?")
        await shown.until_gone("› task 0")
        await shown.until_keys_count()
        shown.type("y")
        await shown.until_seen("answered FormAnswer(keys=('y',)", "it has ended already", "› task 0")
        await shown.press(ESCAPE)
        assert await opened is True

    at_terminal(scene)


def test_escape_stops_an_action_before_it_closes_the_panel() -> None:
    async def scene(shown: Seen) -> None:
        stopped = asyncio.Event()

        async def act(key: str, row: str) -> None:
            try:
                await asyncio.Event().wait()
            finally:
                stopped.set()

        opened = asyncio.ensure_future(shown.terminal.open(tasks([], act)))
        await shown.until_seen("› task 0")
        shown.type("s")
        await shown.until_seen("stop … Esc to interrupt")
        await shown.press(ESCAPE)
        await shown.until(stopped.is_set)
        await shown.until_seen("Esc to close")
        assert not opened.done()
        opened.cancel()
        await shown.until_gone("Tasks")

    at_terminal(scene)


def test_a_panel_lives_and_its_mark_stays_on_its_row() -> None:
    async def scene(shown: Seen) -> None:
        names = ["b", "c"]
        panel = Panel(
            title="Live",
            rows=lambda: tuple(PanelRow(id=n, line=(Span(f"row {n}"),)) for n in names),
            actions=(),
            run_action=_nothing,
            empty_message="all is done",
        )
        opened = asyncio.ensure_future(shown.terminal.open(panel))
        await shown.until_seen("› row b")
        names.insert(0, "a")
        await shown.until_seen("row a", "› row b")
        names.clear()
        await shown.until_seen("all is done")
        shown.type("q")
        assert await opened

    at_terminal(scene)


async def _nothing(key: str, row: str) -> None:
    pass


def test_keys_of_the_line_do_nothing_in_a_panel_and_come_back_after_it() -> None:
    async def scene(shown: Seen) -> None:
        opened = asyncio.ensure_future(shown.terminal.open(tasks([])))
        await shown.until_seen("› task 0")
        shown.type("\x1b[Z", "hello", "q")
        await opened
        shown.type("\x0f")
        assert await shown.next() == KeyPressed("details")
        shown.terminal.draw(LiveState(), ChatStatus(model="model-x"))

    at_terminal(scene)


# Without a screen


def test_quiet_counts_from_the_last_key_and_from_the_question() -> None:
    now = 100.0
    quiet = QuietPeriod(lambda: now)
    now = 105.0
    quiet.start()
    assert quiet.seconds_left() == 0
    quiet.record_key()
    now = 105.2
    assert quiet.seconds_left() == pytest.approx(0.1)
    now = 105.9
    quiet.start()  # somebody typed within a second: what appears now was not read yet
    assert quiet.seconds_left() == pytest.approx(0.3)
    now = 106.2
    assert quiet.seconds_left() == pytest.approx(0.0, abs=1e-6)


def test_a_key_that_begins_another_waits_for_enter() -> None:
    state = FormState(Form(prompt="?", options=tuple(FormOption(key=str(n), label=str(n)) for n in range(1, 12))))
    assert state.type("1") is None
    assert state.enter("") == FormResult(FormAnswer(("1",)))
    state = FormState(Form(prompt="?", options=tuple(FormOption(key=str(n), label=str(n)) for n in range(1, 12))))
    assert state.type("1") is None
    assert state.type("0") == FormResult(FormAnswer(("10",)))


def test_none_of_several_is_chosen_only_by_a_second_enter() -> None:
    state = FormState(Form(prompt="?", options=YES_NO, multiple=True))
    assert state.enter("") is None
    assert "Enter again" in state.hint
    assert state.enter("") == FormResult(FormAnswer(()))


@pytest.mark.parametrize("width", [1, 5, 20, 80])
@pytest.mark.parametrize("height", [1, 2, 3, 9])
def test_forms_and_panels_never_need_more_than_there_is(width: int, height: int) -> None:
    form = Form(
        prompt="a long question " * 9,
        options=tuple(FormOption(key=str(n), label="some label " * 9, note="note " * 9) for n in range(9)),
        free_text_hint="x",
    )
    panel = tasks([])
    for lines in (FormState(form).lines(width, height, str), PanelState(panel).lines(width, height, str)):
        assert 1 <= len(lines) <= height


def test_of_a_long_choice_the_end_is_seen_too() -> None:
    rule = "Edit(//home/me/" + "a-long-folder-of-mine/" * 12 + "src/**)"
    form = Form(prompt="Allow it?", options=(FormOption(key="s", label=f"allow `{rule}` for this session"),))
    shown = ["".join(text for _, text in line) for line in FormState(form).lines(40, 20, str)]
    assert "/**)`" in "".join(line.strip() for line in shown)
    assert len(shown) == 6  # the question, four lines of the choice, and the foot


def test_what_waits_for_the_answer_does_not_spin_beside_the_question() -> None:
    async def scene(shown: Seen) -> None:
        running = (RunningCall(name="AskUser", title=""), RunningCall(name="Bash", title="make"))
        shown.terminal.draw(LiveState(activity="working", running=running), ChatStatus(model="model-x"))
        await shown.until_seen("AskUser", "Bash make")
        asking = await asked(shown, Form(prompt="Which?", options=(FormOption(key="1", label="one"),)))
        await shown.until_gone("AskUser")
        await shown.until_seen("Bash make")
        shown.type("1")
        assert await asking == FormAnswer(("1",))

    at_terminal(scene)
