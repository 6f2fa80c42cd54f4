"""`kitbag "message"`: what is no command is the chat's first message, unless it looks like a misspelled command."""

import pytest

from conftest import World
from support.driving import Driven


@pytest.fixture
def offline(world: World) -> World:
    world.env["KITBAG_MODEL"] = "offline"
    return world


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("fix the failing test",), "fix the failing test"),
        (("hello",), "hello"),
        (("--", "doctr"), "doctr"),
        (("--model", "offline", "two words"), "two words"),
        (("--", "-x is an option"), "-x is an option"),
        (("--", "--permission-mode=autonomous"), "--permission-mode=autonomous"),
    ],
)
def test_a_message_starts_the_chat(offline: World, words: tuple[str, ...], message: str) -> None:
    assert offline.run(*words).returncode == 0
    assert [one["about"] for one in offline.json("sessions", "list")] == [message]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("doctr",), "Did you mean `kitbag doctor`? To send it as a message: kitbag -- doctr"),
        (("skils", "list"), "Did you mean `kitbag skills`?"),
        (("help",), "Did you mean `kitbag --help`?"),
        (("fix", "the", "test"), 'quote it: kitbag "fix the test"'),
        (("-p", "one", "two"), "-p has its prompt already"),
        (("",), "the message is empty"),
    ],
)
def test_what_may_be_a_mistake_is_no_message(offline: World, words: tuple[str, ...], said: str) -> None:
    done = offline.run(*words)
    assert (done.returncode, said in done.stderr) == (2, True), done.stderr
    assert offline.json("sessions", "list", "--all") == []


def test_a_message_that_a_script_made_runs_nothing_in_the_users_shell(offline: World) -> None:
    offline.run('!touch "$CANARY"')
    assert not offline.canary.exists()


def test_in_a_terminal_the_chat_stays_open_after_it(offline: World) -> None:
    with Driven(offline, "hello there") as driven:
        driven.until_seen("hello there")
        driven.until_seen("No language model is connected")
        driven.until(lambda: any(line.startswith("> ") or line == ">" for line in driven.text().split("\n")))
        assert driven.process.poll() is None
