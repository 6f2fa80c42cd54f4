"""The real program at a pseudo-terminal, killed while an agent works for it: nothing is lost, and nothing is told twice."""

import json
import os
import signal
from typing import Any

import pytest

from conftest import World
from kitbag.chat.task_blocks import COLUMNS
from kitbag.store.journal import Journal, journal_path
from kitbag.store.redaction import Redactor
from kitbag.tasks.board import Board
from kitbag.testing import ModelServer, Rule, Script, Step
from support import needs
from support.driving import chat
from support.headless import point
from support.pseudo_terminal import CTRL_D

AN_AGENT = "## Your Task"


@pytest.fixture(autouse=True)
def allowed(world: World) -> None:
    needs.bubblewrap()
    world.write("~/.kitbag/agents/doer.md", "---\nname: doer\ndescription: Does.\ntools: Bash\n---\nDo it.\n")
    rules = '[permissions]\nallow = ["Task", "Bash(sleep:*)", "Bash(test:*)"]\n[tasks]\nidle = 1\n'
    world.write("~/.kitbag/settings.toml", rules)


def call(name: str, **arguments: Any) -> Step:
    return Step(calls=(("c1", name, json.dumps(arguments)),))


def board(world: World) -> Board:
    return Board(Journal.open(journal_path(str(world.home / ".kitbag")), Redactor([])))


def test_a_background_agent_outlives_the_chat_and_the_next_one_tells_its_end_once(world: World) -> None:
    spawn = call("Task", subagent_type="doer", prompt="Seek it.", description="seek", run_in_background=True)
    agent = Rule([Step(text="The answer is 42.", delay=1.5)], system=AN_AGENT)
    main = Rule([spawn, Step(text="It is begun."), Step(text="So it is 42."), Step(text="Nothing new.")])
    with ModelServer(Script([agent, main])) as server:
        point(world, server)
        with chat(world) as driven:
            driven.say("seek it")
            driven.until_seen("It is begun.")
            found = board(world)
            [task] = found.all()
            os.kill(driven.process.pid, signal.SIGKILL)
            driven.process.wait()
        assert not found.find(task.id).is_finished
        with chat(world, "--continue") as driven:
            driven.until_seen("It is begun.", "doer", "(seek) ended", "completed", "So it is 42.")
            driven.say("and now?")
            driven.until_seen("Nothing new.")
            assert driven.all().count("ended after") == 1
            driven.press(CTRL_D)
            assert driven.until_ended() == 0
        with chat(world, "--continue") as driven:
            driven.until_seen("Nothing new.")
            driven.say("/tasks show " + task.id[:6])
            driven.until_seen("The answer is 42.")
            assert "ended after" not in driven.all()
        found.journal.close()
    last = [request.body for request in server.requests if AN_AGENT not in json.dumps(request.body)][-1]
    assert json.dumps(last["messages"]).count("<task-notification") == 1


def test_a_question_of_background_work_is_answered_in_the_next_chat(world: World) -> None:
    spawn = call("Task", subagent_type="doer", prompt="Seek it.", description="seek", run_in_background=True)
    agent = Rule([call("Bash", command="touch asked.txt"), Step(text="It is made.")], system=AN_AGENT)
    main = Rule([spawn, Step(text="It is begun."), Step(text="So it is made.")])
    with ModelServer(Script([agent, main])) as server:
        point(world, server)
        with chat(world) as driven:
            driven.say("seek it")
            driven.until_seen("It is begun.", "needs approval", "touch asked.txt")
            os.kill(driven.process.pid, signal.SIGKILL)
            driven.process.wait()
        with chat(world, "--continue") as driven:
            driven.until_seen("needs approval")
            driven.say("/tasks answer")
            driven.until_seen("touch asked.txt", "allow once")
            driven.choose("y")
            driven.until_seen("So it is made.")
    assert (world.workspace / "asked.txt").exists()


def test_the_live_panel_stops_a_task(world: World) -> None:
    spawn = call("Task", subagent_type="doer", prompt="Seek it.", description="seek", run_in_background=True)
    agent = Rule([Step(text="Never.", delay=60)], system=AN_AGENT)
    with ModelServer(Script([agent, Rule([spawn, Step(text="It is begun."), Step(text="What?")])])) as server:
        point(world, server)
        with chat(world) as driven:
            driven.say("seek it")
            driven.until_seen("It is begun.")
            driven.say("/tasks")
            driven.until(lambda: "running" in driven.text() and "seek" in driven.text() and len(server.requests) == 3)
            driven.press("s")
            driven.until_seen("stopped: cancelled")
            driven.until(lambda: "cancelled" in driven.text() and "Esc to close" in driven.text())
            driven.press("q")
            driven.until(lambda: COLUMNS not in driven.text())
            driven.say("/stop")
            driven.until_seen("nothing is running in the foreground")
    assert len(server.requests) == 3, "what the person stopped does not wake the model"
