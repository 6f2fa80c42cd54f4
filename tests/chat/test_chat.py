"""The real program at a real pseudo-terminal, with a scripted model on loopback: what a person does, and what they see."""

import json
import os
import signal
from typing import Any

import pytest

from conftest import World
from kitbag.agent.session import STREAM_PREFIX
from kitbag.agent.session_list import newest_session
from kitbag.assembly.open_store import open_store
from kitbag.store.redaction import Redactor
from kitbag.testing import ModelServer, Rule, Script, Step
from support.driving import Driven, chat
from support.headless import point, reads, script
from support.pseudo_terminal import CTRL_C, CTRL_D, CTRL_O, ENTER, ESCAPE, SHIFT_TAB


def calls(name: str, call_id: str = "c1", **arguments: Any) -> Step:
    return Step(calls=((call_id, name, json.dumps(arguments)),))


def said_to(server: ModelServer, number: int = -1) -> str:
    """The last message of that request, as it was sent."""
    return json.dumps(server.requests[number].body["messages"][-1])


def test_a_question_is_answered_and_the_answer_stays_on_the_screen(world: World) -> None:
    with ModelServer(script("# Hello\n\nThis is **the answer**.")) as server:
        point(world, server)
        with chat(world) as driven:
            driven.say("what is this?")
            driven.until_seen("Hello", "This is the answer.")
            driven.until_seen("anthropic/claude-sonnet-4-5")
            driven.press(CTRL_D)
            assert driven.until_ended() == 0
            assert "resume with: kitbag --resume" in driven.all()
            assert driven.settings_are_as_before()


def test_a_tool_is_one_line_that_expands(world: World) -> None:
    world.write("a.txt", "".join(f"line {number}\n" for number in range(1, 40)))
    with ModelServer(script(reads(), "It has lines.")) as server:
        point(world, server)
        with chat(world) as driven:
            driven.say("read it")
            driven.until_seen("Read", "a.txt", "It has lines.")
            assert "line 17" not in driven.all()
            driven.press(CTRL_O)
            driven.until_seen("line 17")


def test_a_skill_is_loaded_and_said(world: World) -> None:
    world.skill("~/.kitbag/skills", "deploy", "Deploys the thing.", "DEPLOY IT BY HAND")
    with ModelServer(script(calls("Skill", skill="deploy"), "Deployed.")) as server:
        point(world, server)
        with chat(world) as driven:
            driven.say("deploy it")
            driven.until_seen("deploy", "tokens", "Deployed.")
    assert "DEPLOY IT BY HAND" in said_to(server)


def test_a_skill_is_called_by_its_name(world: World) -> None:
    world.skill("~/.kitbag/skills", "deploy", "Deploys the thing.", "DEPLOY $ARGUMENTS BY HAND")
    with ModelServer(script("Deployed.")) as server:
        point(world, server)
        with chat(world) as driven:
            driven.say("/deploy everything")
            driven.until_seen("Deployed.")
    assert "DEPLOY everything BY HAND" in said_to(server)


def test_what_asks_is_approved_in_place_and_the_diff_is_seen(world: World) -> None:
    world.write("a.txt", "one\n")
    edit = calls("Edit", "c2", file_path="a.txt", old_string="one", new_string="two")
    with ModelServer(script(reads(), edit, "Done it.")) as server:
        point(world, server)
        with chat(world) as driven:
            driven.say("change it")
            driven.until_seen("Edit", "allow once")
            driven.press(ENTER)  # nothing is allowed by accident
            driven.until_seen("nothing selected")
            assert (world.workspace / "a.txt").read_text() == "one\n"
            driven.choose("y", "nothing selected")
            driven.until_seen("Done it.")
            assert (world.workspace / "a.txt").read_text() == "two\n"


def test_a_no_with_a_reason_reaches_the_model(world: World) -> None:
    write = calls("Write", file_path="b.txt", content="x")
    with ModelServer(script(write, "I see.")) as server:
        point(world, server)
        with chat(world) as driven:
            driven.say("write it")
            driven.until_seen("allow once")
            driven.choose("w", "allow once")
            driven.until_seen("Reason, or what to do instead")
            driven.type("not in this folder")
            driven.press(ENTER)
            driven.until_seen("I see.")
    assert "not in this folder" in said_to(server)
    assert not (world.workspace / "b.txt").exists()


def test_esc_at_an_approval_stops_the_turn_and_an_edited_rule_allows_the_call(world: World) -> None:
    remove = calls("Bash", command="rm -rf build")
    with ModelServer(script(remove, calls("Bash", "c2", command="rm -rf build"), "Removed.")) as server:
        point(world, server)
        with chat(world) as driven:
            driven.say("clean up")
            driven.until_seen("allow once")
            driven.choose("\x1b", "Esc to interrupt")
            driven.until_seen("? Bash rm -rf build  canceled", "interrupted")
            assert len(server.requests) == 1  # the model hears nothing of it
            assert "sandbox " not in driven.all()  # of the question, one line stays
            driven.say("do clean up")
            driven.until_seen("allow once")
            driven.choose("r", "allow once")
            driven.until_seen("> Bash(rm -rf build)")
            driven.press(*"\x7f" * 6)
            driven.type("*)")
            driven.press(ENTER)
            driven.until_seen("Removed.")
    assert "Bash(rm -rf *)" in (world.home / ".kitbag/settings.toml").read_text()


def test_esc_cancels_the_work_and_keeps_what_was_done(world: World) -> None:
    world.write("a.txt", "one\n")
    with ModelServer(script(reads(), Step(text="never", delay=600), "Went on.")) as server:
        point(world, server)
        with chat(world) as driven:
            driven.say("read it")
            driven.until(lambda: len(server.requests) == 2)
            driven.press(ESCAPE)
            driven.until_seen("interrupted")
            driven.say("go on")
            driven.until(lambda: len(server.requests) == 3)
            assert "one" in json.dumps(server.requests[-1].body["messages"])


def test_the_mode_changes_with_shift_tab(world: World) -> None:
    world.write("a.txt", "one\n")
    edit = calls("Edit", "c2", file_path="a.txt", old_string="one", new_string="two")
    with ModelServer(script(reads(), edit, "Done it.")) as server:
        point(world, server)
        with chat(world) as driven:
            driven.press(SHIFT_TAB)
            driven.until_seen("acceptEdits")
            driven.say("change it")
            driven.until_seen("Done it.")
            assert (world.workspace / "a.txt").read_text() == "two\n"


def test_another_agent_is_given_work(world: World) -> None:
    spawn = calls("Task", subagent_type="Explore", prompt="FIND THE LINE", description="look around")
    steps = [spawn, Step(text="It says so."), spawn, Step(text="It says so again.")]
    rules = [Rule([Step(text="Found it.")] * 2, system="FIND THE LINE"), Rule(steps)]
    with ModelServer(Script(rules)) as server:
        point(world, server)
        with chat(world) as driven:
            driven.say("look around")
            driven.until_seen("Explore", "plan", "Glob, Grep, Read", "allow `Task(Explore)` for this session")
            driven.choose("s")
            driven.until_seen("It says so.")
            assert "Found it." in said_to(server)
            driven.say("look around again")
            driven.until_seen("It says so again.")


@pytest.mark.usefixtures("explore_allowed")
def test_background_work_ends_and_the_model_is_told(world: World) -> None:
    spawn = calls("Task", subagent_type="Explore", prompt="FIND IT", description="look", run_in_background=True)
    steps = [spawn, Step(text="It runs."), Step(text="It has ended.")]
    with ModelServer(Script([Rule([Step(text="Found it.", delay=1.0)], system="FIND IT"), Rule(steps)])) as server:
        point(world, server)
        with chat(world) as driven:
            driven.say("look in the background")
            driven.until_seen("It runs.", "It has ended.")
            assert "task-notification" in said_to(server)


def recorded(world: World) -> str:
    with open_store(str(world.home / ".kitbag"), Redactor([])) as journal:
        session = newest_session(journal, str(world.workspace))
        return str([record.body for record in journal.read(STREAM_PREFIX + session)])


def test_a_conversation_goes_on_after_kill_9(world: World) -> None:
    with ModelServer(script("The first answer.", "The second answer.")) as server:
        point(world, server)
        with chat(world) as driven:
            driven.say("first question")
            driven.until_seen("The first answer.")
            driven.until(lambda: "The first answer." in recorded(world))  # it is on the screen before its end arrives
            os.kill(driven.process.pid, signal.SIGKILL)
            driven.process.wait()
        with chat(world, "--continue") as driven:
            driven.until_seen("first question", "The first answer.")
            driven.say("second question")
            driven.until_seen("The second answer.")
    assert "first question" in json.dumps(server.requests[-1].body["messages"][0])


def test_ctrl_c_twice_leaves(world: World) -> None:
    with chat(world) as driven:
        driven.press(CTRL_C)
        driven.until_seen("again")
        assert driven.process.poll() is None
        driven.press(CTRL_C)
        assert driven.until_ended() == 130
        assert driven.settings_are_as_before()


def test_sigterm_leaves_the_terminal_as_it_was(world: World) -> None:
    with chat(world) as driven:
        driven.process.send_signal(signal.SIGTERM)
        assert driven.until_ended() == 143
        assert driven.settings_are_as_before()


def test_nothing_a_model_or_a_file_says_acts_on_the_terminal(world: World) -> None:
    evil = "\x1b]0;owned\x07\x1b[2J\x1b[31mred\x9b5n\x1b]52;c;ZXZpbA==\x07"
    world.write("a.txt", f"{evil}\n")
    world.skill("~/.kitbag/skills", "bad", f"Bad {evil[1:6]}.", f"Body {evil}")
    steps = [Step(text=f"now {evil}", thinking=f"hm {evil}", calls=(("c1", "Read", '{"file_path": "a.txt"}'),))]
    with ModelServer(script(*steps, f"end {evil}")) as server:
        point(world, server)
        with chat(world) as driven:
            driven.say("read it")
            driven.until_seen("end")
            driven.press(CTRL_O)
            driven.until_seen("hm")
            for bad in (b"\x1b]0;", b"\x07", b"\x1b]52", b"\x1b[2J", b"\x9b5n", b"\x1b[31mred"):
                assert bad not in driven.raw, bad


def test_a_secret_of_the_environment_is_not_shown(world: World) -> None:
    world.env["MY_API_TOKEN"] = "sk-very-secret-value-123456"
    with ModelServer(script("It is sk-very-secret-value-123456, I think.")) as server:
        point(world, server)
        with chat(world) as driven:
            driven.say("what is it?")
            driven.until_seen("I think.")
            assert b"very-secret-value" not in driven.raw


def test_a_workspace_that_brings_something_is_asked_for_first(world: World) -> None:
    world.skill(".kitbag/skills", "deploy", "Deploys the thing.", "Run it: !`touch $CANARY`")
    with ModelServer(script("Hello.")) as server:
        point(world, server)
        with Driven(world) as driven:
            driven.until_seen("touch $CANARY", "trust")
            driven.choose("n")
            driven.until_seen("/help")
            driven.say("hello")
            driven.until_seen("Hello.")
    assert "deploy" not in json.dumps(server.requests[0].body)


def test_a_trusted_workspace_is_asked_for_once(world: World) -> None:
    world.skill(".kitbag/skills", "deploy", "Deploys the thing.")
    with Driven(world) as driven:
        driven.until_seen("trust")
        driven.choose("t")
        driven.until_seen("/help")
    with chat(world) as driven:
        driven.until_seen("/help")
        assert "omitted" not in driven.all()


def test_the_question_of_a_model_is_answered(world: World) -> None:
    question = {"question": "Which colour?", "header": "Colour", "options": [{"label": "Red"}, {"label": "Blue"}]}
    with ModelServer(script(calls("AskUser", questions=[question]), "As you like.")) as server:
        point(world, server)
        with chat(world) as driven:
            driven.say("paint it")
            driven.until_seen("Which colour?", "Red", "Blue")
            driven.choose("2")
            driven.until_seen("As you like.")
    assert "Blue" in said_to(server)


def test_it_fits_into_a_small_terminal_and_survives_being_resized(world: World) -> None:
    with ModelServer(script("A long answer. " * 30, "Second.")) as server:
        point(world, server)
        with chat(world, columns=40, rows=12) as driven:
            driven.say("tell me")
            driven.until_seen("A long answer.")
            driven.resize(100, 30)
            driven.say("again")
            driven.until_seen("Second.")
            driven.resize(20, 6)
            driven.resize(80, 24)
            driven.press(CTRL_D)
            assert driven.until_ended() == 0


def test_without_a_model_it_works_and_says_how_to_connect_one(world: World) -> None:
    world.write("README.md", "# The Shop\n\nA shop for hats.\n")
    world.env["KITBAG_MODEL"] = "offline"
    with chat(world) as driven:
        driven.until_seen("kitbag setup")
        driven.say("What does this project do?")
        driven.until_seen("A shop for hats.")


@pytest.mark.parametrize("line", ["/hepl", "/nothing like this"])
def test_an_unknown_command_is_told(world: World, line: str) -> None:
    with ModelServer(script("As you say.")) as server:
        point(world, server)
        with chat(world) as driven:
            driven.say(line)
            driven.until_seen("no command or skill named", f"> {line}")  # in the line again, to be mended
    assert not server.requests


def test_lines_from_a_pipe_are_answered_one_after_the_other(world: World) -> None:
    with ModelServer(script("First answer.", "Second answer.")) as server:
        point(world, server)
        done = world.run(stdin="one\n/mode\ntwo\n")
    assert done.returncode == 0, done.stderr
    assert done.stdout.index("First answer.") < done.stdout.index("Second answer.")
    assert "\x1b" not in done.stdout


def test_the_plain_chat_at_a_terminal_draws_nothing_over(world: World) -> None:
    with ModelServer(script("An answer.")) as server:
        point(world, server)
        with Driven(world, "--plain") as driven:
            driven.until_seen("/help")
            driven.type("hello\r")
            driven.until_seen("kitbag: An answer.")
            assert b"\x1b" not in driven.raw
            driven.type("/exit\r")
            assert driven.until_ended() == 0
