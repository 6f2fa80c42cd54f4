"""Ctrl-B: a running command or agent goes on in the background, the turn goes on without it, and its end is announced."""

import json
from typing import Any

import pytest

from chat.conversing import Conversing, conversing
from chat.held import model, workshop_at_home
from chat.queue_face import QueueFace, in_a_loop
from conftest import World
from kitbag.chat.ui import KeyPressed
from kitbag.runtime.undo import SessionUndo
from kitbag.store.journal import Journal
from kitbag.store.redaction import Redactor
from kitbag.tasks.board import Board
from kitbag.testing import ModelServer, Rule, Script, Step
from support import needs
from support.driving import chat
from support.headless import point
from support.talking_face import talking
from support.workshop import Workshop

__all__ = ["workshop_at_home"]
pytestmark = pytest.mark.usefixtures("at_home")
CTRL_B = "\x02"


def call(name: str, **arguments: Any) -> Step:
    return Step(calls=(("c1", name, json.dumps(arguments)),))


def allow(world: World, *rules: str) -> None:
    world.write("~/.kitbag/settings.toml", f"[permissions]\nallow = {json.dumps(rules)}\n[tasks]\nidle = 1\n")


WAITS = "echo started; while [ ! -e go ]; do sleep 0.05; done; echo made > made.txt; echo ended"


@in_a_loop
async def test_a_command_goes_on_and_its_result_is_a_notification(world: World) -> None:
    needs.bubblewrap()
    steps = (call("Bash", command=WAITS, timeout=600_000), "It goes on.", "It has ended.")
    async with conversing(world, *steps, face=QueueFace(), mode="autonomous") as here:
        here.face.do("run it")
        await here.face.until(lambda: any("started" in one.progress for one in here.face.live.running))
        here.face.do(KeyPressed("background"))
        await here.face.until(lambda: "It goes on." in here.face.seen())
        await here.until_idle()
        board = Board(here.talk.agent.journal)
        [task] = board.all()
        assert (task.kind, task.status, task.background) == ("command", "running", True)
        assert f"as task {task.id}" in str(here.talk.model.requests[1].messages[-1])
        (world.workspace / "go").touch()
        await here.face.until(lambda: "It has ended." in here.face.seen())
        told = here.talk.model.requests[-1].messages[-1].text
        assert f'task-id="{task.id}" status="completed"' in told
        assert "started\nended" in told, "also what was printed before"
        assert told.count("<task-notification") == 1
        agent = here.talk.agent
        undo = SessionUndo(agent.journal, agent.environment.places, agent.session.id)
        assert {path.rpartition("/")[2] for change in undo.messages[0].changes for path in [change.path]} >= {
            "made.txt"
        }


@in_a_loop
async def test_a_command_ends_with_its_session_and_no_timeout_ends_it_before(world: World) -> None:
    needs.bubblewrap()
    steps = (call("Bash", command="echo started; sleep 600", timeout=3_000), "It goes on.")
    async with conversing(world, *steps, face=QueueFace(), mode="autonomous") as here:
        here.face.do("run it")
        await here.face.until(lambda: any("started" in one.progress for one in here.face.live.running))
        here.face.do(KeyPressed("background"))
        await here.face.until(lambda: "It goes on." in here.face.seen())
        board = Board(here.talk.agent.journal)
        [task] = board.all()
        journal_path = here.talk.agent.journal.path
        await here.left()
    with Journal.open(journal_path, Redactor([])) as journal:
        found = Board(journal).find(task.id)
        assert found.status == "cancelled"
        assert found.result is not None
        assert found.result.error == "its session was closed"


@in_a_loop
async def test_with_nothing_that_runs_that_is_said(world: World) -> None:
    async with conversing(world, Step(text="never", delay=600)) as here:
        here.face.do("hello")
        await here.face.until(lambda: here.talk.model.requests)
        here.face.do(KeyPressed("background"))
        await here.face.until(lambda: "no command or agent is running" in here.face.seen())


def test_an_agent_at_the_terminal_goes_on_and_the_turn_does_not_wait(world: World) -> None:
    world.write("~/.kitbag/agents/doer.md", "---\nname: doer\ndescription: Does.\ntools: Read\n---\nDo it.\n")
    allow(world, "Task")
    spawn = call("Task", subagent_type="doer", prompt="Seek it.", description="seek")
    agent = Rule([Step(text="The answer is 42.", delay=3)], system="## Your Task")
    main = Rule([spawn, Step(text="Meanwhile."), Step(text="So it is 42.")])
    with ModelServer(Script([agent, main])) as server:
        point(world, server)
        with chat(world) as driven:
            driven.say("seek it")
            driven.until(lambda: len(server.requests) == 2)
            driven.press(CTRL_B)
            driven.until_seen("Meanwhile.")
            driven.until_seen("So it is 42.")
    last = json.dumps(server.requests[-1].body["messages"])
    assert "Status: moved to the background by the user" in last
    assert last.count("<task-notification") == 1
    assert "The answer is 42." in last


@in_a_loop
async def test_an_agent_that_was_moved_goes_on_in_a_worker_when_the_chat_ends(workshop_at_home: Workshop) -> None:
    workshop = workshop_at_home
    slow = {"text": "Found.", "delay": 600}
    spawn = {"calls": [{"id": "c1", "name": "Task", "arguments": {"subagent_type": "doer", "prompt": "Seek it."}}]}
    workshop.script(spawn, {"text": "Meanwhile."}, **{"Seek it": [slow]})
    face = QueueFace()
    async with talking(workshop.world, face=face, model=model(workshop), mode="autonomous") as talk:
        here = Conversing(talk, face)
        face.do("seek it")
        await face.until(lambda: any(workshop.records(task.id) for task in workshop.board.all()))
        face.do(KeyPressed("background"))
        await face.until(lambda: "Meanwhile." in face.seen())
        [task] = workshop.board.all()
        assert (task.status, task.background) == ("running", True)
        assert await here.left() == 0
    [task] = workshop.board.all()
    assert (task.background, task.is_finished) == (True, False), task
    workshop.until_status(task.id, "running")
    assert workshop.task(task.id).run == 2
