"""The question at a real terminal, answered by keys; a program in a pseudo-terminal asks."""

import contextlib
import json
import signal
import subprocess
import sys
import termios
from collections.abc import Generator

import pytest

from cli.terminal import PROGRAM, Terminal
from conftest import World
from kitbag.cli.terminal_dialog import _wrap_line
from support.waiting import TEST_TIMEOUT


@contextlib.contextmanager
def asked(world: World, *wishes: object) -> Generator[Terminal, None, None]:
    terminal = Terminal(world, *wishes)
    try:
        yield terminal
    finally:
        terminal.close()


PUSH = ("Bash", {"command": "git push origin main"})


def test_yes_is_for_this_once(world: World) -> None:
    with asked(world, PUSH, PUSH) as terminal:
        shown = terminal.see("> ")
        assert "Bash, requested by main [" in shown
        assert "│ git push origin main\n" in shown
        assert "none: full access to your files and the network" in shown
        terminal.type("y\r")
        terminal.see("> ")
        terminal.type("n\rnot now\r")
        assert terminal.said() == [["permit", ""], ["person", "the user denied this action: not now"]]


def test_an_edit_is_shown_as_a_diff_and_its_arguments_on_request(world: World) -> None:
    world.write("a.py", "one\ntwo\n")
    with asked(world, ("Edit", {"file_path": "a.py", "old_string": "two", "new_string": "2"})) as terminal:
        shown = terminal.see("> ")
        assert "│ 2 - two\n│ 2 + 2\n" in shown
        assert "old_string" not in shown
        terminal.type("e\r")
        assert "old_string:\n│ two\n" in terminal.see("> ")
        terminal.type("y\r")
        assert terminal.said() == [["permit", ""]]


def test_no_needs_no_reason(world: World) -> None:
    with asked(world, PUSH) as terminal:
        terminal.see("> ")
        terminal.type("n\r\r")
        ((by, reason),) = terminal.said()
        assert (by, "the user denied this action" in reason) == ("person", True)


def test_for_the_session_it_is_not_asked_again(world: World) -> None:
    with asked(world, PUSH, PUSH) as terminal:
        assert "s  allow `Bash(git push origin main)` for this session" in terminal.see("> ")
        terminal.type("s\r")
        assert terminal.said() == [["permit", ""], ["permit", ""]]


def test_a_rule_is_shown_can_be_changed_and_is_written(world: World) -> None:
    with asked(world, PUSH, ("Bash", {"command": "git push --dry-run"})) as terminal:
        terminal.see("> ")
        terminal.type("r\r")
        terminal.see("rule to add to your settings: Bash(git push origin main)")
        terminal.type("\x7f" * len(" origin main)") + ":*\r")  # what is left has no end
        terminal.see("not a valid rule: ")
        terminal.see("Rule to add to your settings: ")
        terminal.type(")\r")
        assert terminal.said() == [["permit", ""], ["permit", ""]]
        assert "Bash(git push:*)" in terminal.settings.read_text()


def test_our_own_lines_are_wrapped_between_words_and_lose_nothing() -> None:
    line = "  s  allow `WebFetch(domain:docs.python.org)` for this session"
    first, second = _wrap_line(line, 55)
    assert first + second.removeprefix("    ") == line
    assert second == "    session"
    assert [len(part) for part in _wrap_line("x" * 100, 79)] == [79, 25]


@pytest.mark.parametrize("keys", ["\x03", "\x04", "n\r\x03", "r\r\x03", "x\r\x03"])
def test_leaving_the_question_is_no(world: World, keys: str) -> None:
    with asked(world, PUSH) as terminal:
        terminal.see("> ")
        terminal.type(keys)
        ((by, _),) = terminal.said()
        assert by == "person"


def test_a_terminal_that_is_closed_is_no(world: World) -> None:
    with asked(world, PUSH) as terminal:
        terminal.see("> ")
        terminal.hang_up()
        out, errors = terminal.process.communicate(timeout=TEST_TIMEOUT)
        assert "permit" not in out, errors


def test_only_a_letter_alone_is_an_answer(world: World) -> None:
    with asked(world, PUSH) as terminal:
        for keys in ("yes please", "Y es", "allow", "", "\x1b[A\x1b[Bz", "ys", "1"):
            terminal.see("> ")
            terminal.type(f"{keys}\r")
            terminal.see("type one of the letters")
        terminal.see("> ")
        terminal.type("nope\x15y\r")
        assert terminal.said() == [["permit", ""]]


def test_what_was_typed_before_the_question_appeared_is_no_answer(world: World) -> None:
    with asked(world, PUSH, PUSH) as terminal:
        terminal.type("y\ry\ry\r")
        terminal.see("> ")
        terminal.type("n\rno\r")
        terminal.see("> ")
        terminal.type("n\rno\r")
        assert [by for by, _ in terminal.said()] == ["person", "person"]


def test_all_of_a_long_action_can_be_seen_and_no_line_passes_for_another(world: World) -> None:
    command = "echo " + "a" * 6000 + " \u202e\u200b\t" + "b" * 6000 + "\nwhy: read-only\n\x1b[2J; id"
    with asked(world, ("Bash", {"command": command})) as terminal:
        shown = terminal.see("> ")
        assert "characters hidden — expand to see them]" in shown
        assert "\x1b" not in shown
        assert "e  show everything" in shown
        terminal.type("e\r")
        everything = terminal.see("> ")
        joined = everything.replace("\n┆ ", "")
        assert "a" * 6000 + " [U+202E][U+200B][tab]" + "b" * 6000 in joined
        assert "│ why: read-only" in everything
        assert "│ [U+001B][2J; id" in everything
        lines = everything.split("\n")
        assert all(len(line) <= 80 for line in lines)
        assert [line for line in lines if line.startswith("why:")] != []
        terminal.type("n\r\r")
        assert terminal.said()[0][0] == "person"


def test_the_terminal_is_as_it_was_afterwards(world: World) -> None:
    with asked(world, PUSH) as terminal:
        terminal.see("> ")
        assert termios.tcgetattr(terminal.inner) != terminal.before
        terminal.type("n\r\r")
        terminal.said()
        assert termios.tcgetattr(terminal.inner) == terminal.before


def test_a_question_can_be_called_off(world: World) -> None:
    with asked(world, PUSH) as terminal:
        terminal.see("> ")
        terminal.call_off()
        assert terminal.said() == ["timeout"]
        assert termios.tcgetattr(terminal.inner) == terminal.before


def test_without_a_terminal_it_is_refused(world: World) -> None:
    arguments = [str(world.home), str(world.workspace), str(world.home / "settings.toml"), json.dumps(PUSH)]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, env=world.env, start_new_session=True,
        timeout=TEST_TIMEOUT,
    )  # fmt: skip
    by, reason = json.loads(done.stdout)
    assert (by, "needs an interactive terminal" in reason) == ("nobody", True)


def test_ctrl_c_reaches_the_program_again_after_the_question(world: World) -> None:
    with asked(world, PUSH, PUSH) as terminal:
        terminal.see("> ")
        terminal.type("y\r")
        terminal.see("> ")
        terminal.process.send_signal(signal.SIGINT)
        terminal.read_to_the_end()
        out, _ = terminal.process.communicate(timeout=TEST_TIMEOUT)
        assert out.count("permit") == 1
        assert termios.tcgetattr(terminal.inner) == terminal.before
