"""A model's questions at a real terminal, answered by keys; a program in a pseudo-terminal asks."""

import contextlib
import json
import os
import pty
import subprocess
import sys
import termios
from collections.abc import Generator
from typing import Any

import pytest

from cli.terminal import Terminal
from conftest import World
from kitbag.assembly.run_options import Options
from kitbag.cli.headless import HeadlessOptions, _terminal_approver_and_asker
from support.waiting import TEST_TIMEOUT

PROGRAM = """
import asyncio, json, signal, sys
from kitbag.cli import interruption
from kitbag.cli.terminal_dialog import TerminalDialog
from kitbag.dialogs.asker import DialogAsker
from kitbag.errors import KitbagError
from kitbag.tools.base import UserQuestion

home, root, settings, *wishes = sys.argv[1:]
async def main():
    questions = []
    for wish in wishes:
        text, header, options, several = json.loads(wish)
        questions.append(UserQuestion(text=text, header=header, options=tuple(map(tuple, options)), multi_select=several))
    try:
        async with asyncio.timeout(None) as limit:
            loop = asyncio.get_running_loop()
            loop.add_signal_handler(signal.SIGUSR1, lambda: limit.reschedule(loop.time()))
            print(json.dumps(await DialogAsker(TerminalDialog()).ask(tuple(questions))), flush=True)
    except TimeoutError:
        print(json.dumps("timeout"), flush=True)
    except KitbagError as error:
        print(json.dumps(error.problem), flush=True)
interruption.run_interruptible(main())
"""
DATABASE = ("Which database?", "Storage", [("Postgres", "for many"), ("SQLite", "")], False)
SEVERAL = ("Which?", "", [("A", ""), ("B", ""), ("C", "")], True)
WHEN = ("When?", "", [], False)


@contextlib.contextmanager
def asked(world: World, *questions: Any) -> Generator[Terminal, None, None]:
    terminal = Terminal(world, *questions, program=PROGRAM)
    try:
        yield terminal
    finally:
        terminal.close()


def test_an_option_is_chosen_by_its_number_and_words_are_free(world: World) -> None:
    with asked(world, DATABASE, WHEN) as terminal:
        shown = terminal.see("> ")
        assert (
            "The model asks about Storage (1 of 2):\n│ Which database?\n│ 1  Postgres: for many\n│ 2  SQLite\n" in shown
        )
        assert "Type a number or your own answer, and press Enter." in shown
        terminal.type("2\r")
        assert "(2 of 2):\n│ When?\nType your answer" in terminal.see("> ")
        terminal.type("In Märch, or 3\r")
        assert terminal.said() == [["SQLite", "In Märch, or 3"]]


@pytest.mark.parametrize(
    ("typed", "answer"),
    [("1,3", "A, C"), ("3 1", "C, A"), ("2", "B"), ("2, 2", "B"), ("all of them", "all of them"), ("", "")],
)
def test_of_several_some_are_chosen(world: World, typed: str, answer: str) -> None:
    with asked(world, SEVERAL) as terminal:
        assert "Type numbers such as 1,2" in terminal.see("> ")
        terminal.type(f"{typed}\r")
        assert terminal.said() == [[answer]]


def test_what_is_no_option_is_asked_again(world: World) -> None:
    with asked(world, DATABASE) as terminal:
        for typed in ("3", "0", "1 7", ",", "9" * 30):
            terminal.see("> ")
            terminal.type(f"{typed}\r")
            terminal.see("the options are 1 to 2")
        terminal.see("> ")
        terminal.type("1 2\r")
        terminal.see("choose one of them")
        terminal.see("> ")
        terminal.type("neither\x15SQLite 3\r")
        assert terminal.said() == [["SQLite 3"]]


@pytest.mark.parametrize("keys", ["\x03", "\x04", "abc\x03"])
def test_leaving_a_question_leaves_the_rest_too(world: World, keys: str) -> None:
    with asked(world, WHEN, DATABASE, WHEN) as terminal:
        terminal.see("> ")
        terminal.type("now\r")
        terminal.see("> ")
        terminal.type(keys)
        assert terminal.said() == [["now", "", ""]]
        assert termios.tcgetattr(terminal.inner) == terminal.before


def test_what_was_typed_too_early_answers_nothing(world: World) -> None:
    with asked(world, WHEN, WHEN) as terminal:
        terminal.type("early\rearly\r")
        terminal.see("> ")
        terminal.type("first\rahead\r")
        terminal.see("> ")
        terminal.type("second\r")
        assert terminal.said() == [["first", "second"]]


def test_no_text_of_the_model_passes_for_ours_or_moves_the_cursor(world: World) -> None:
    text = "a\nType yes\x1b[2J\u202e\rb" + "x" * 300
    with asked(world, (text, "h\n\x1b]0;t\x07", [("L\nType 1", "m\nType 2")], False)) as terminal:
        shown = terminal.see("Type a number")
        assert "\x1b" not in shown
        assert "\u202e" not in shown
        ours = [line for line in shown.replace("\r", "").splitlines() if line and not line.startswith(("│ ", "┆ "))]
        assert ours[0].startswith("The model asks about h \\x1b]0;t\\x07:")
        assert ours[1:] == ["Type a number"]
        terminal.see("> ")
        terminal.type("1\r")
        assert terminal.said() == [["L Type 1"]]


def test_questions_can_be_called_off(world: World) -> None:
    with asked(world, WHEN) as terminal:
        terminal.see("> ")
        terminal.call_off()
        assert terminal.said() == ["timeout"]
        assert termios.tcgetattr(terminal.inner) == terminal.before


def test_a_terminal_that_is_closed_is_no_answer(world: World) -> None:
    with asked(world, WHEN) as terminal:
        terminal.see("> ")
        terminal.hang_up()
        out, errors = terminal.process.communicate(timeout=TEST_TIMEOUT)
        assert out.strip() in ("", '[""]'), errors


def test_without_a_terminal_nobody_is_asked(world: World) -> None:
    arguments = [str(world.home), str(world.workspace), "", json.dumps(WHEN)]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, env=world.env, start_new_session=True,
        timeout=TEST_TIMEOUT,
    )  # fmt: skip
    assert json.loads(done.stdout).startswith("needs an interactive terminal")


@pytest.mark.parametrize(("output_format", "found"), [("text", "DialogAsker"), ("json", "NoneType")])
def test_whoever_typed_the_command_is_asked_but_no_script_waits(world: World, output_format: str, found: str) -> None:
    program = (
        "import fcntl, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); from kitbag.cli.headless import HeadlessOptions, _terminal_approver_and_asker;"
        "from kitbag.assembly.run_options import Options;"
        f"print('found', type(_terminal_approver_and_asker(HeadlessOptions(prompt='x', options=Options(), output_format={output_format!r}))[1]).__name__)"
    )
    screen, inner = pty.openpty()
    try:
        start = [sys.executable, "-c", program]
        process = subprocess.Popen(
            start, stdin=inner, stdout=inner, stderr=inner, env=world.env, start_new_session=True
        )
        assert process.wait(TEST_TIMEOUT) == 0
        assert f"found {found}" in os.read(screen, 4096).decode()
    finally:
        os.close(screen)
        os.close(inner)


def test_where_output_is_no_terminal_nobody_is_asked() -> None:
    assert _terminal_approver_and_asker(HeadlessOptions(prompt="x", options=Options())) == (None, None)
