"""Background commands take part in undo: what one changes belongs to the message that started it."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest

from conftest import World
from kitbag.assembly.run_options import Options
from kitbag.errors import NotFoundError
from kitbag.library.scopes import find_places
from kitbag.runtime.agent import Agent
from kitbag.runtime.undo import SessionUndo
from kitbag.tasks.task import Task
from kitbag.testing import Rule, Script, Scripted, Step
from support import needs
from support.waiting import TEST_TIMEOUT
from support.workshop import Nursery, Workshop, opened

TOOLS = ("Bash", "Write", "TaskStop")


@pytest.fixture
def workshop(world: World, nursery: Nursery, monkeypatch: pytest.MonkeyPatch) -> Iterator[Workshop]:
    needs.bubblewrap()
    for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "KITBAG_MODEL", "OLLAMA_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(world.home))
    monkeypatch.setenv("KITBAG_HOME", str(world.home / ".kitbag"))
    with opened(world, nursery) as made:
        yield made


def background(command: str, call_id: str = "b1") -> Step:
    return Step(calls=((call_id, "Bash", json.dumps({"command": command, "run_in_background": True})),))


def use(tool: str, call_id: str, **arguments: Any) -> Step:
    return Step(calls=((call_id, tool, json.dumps(arguments)),))


def converse(workshop: Workshop, *messages: list[Any]) -> str:
    """Each message's steps; the session's id."""

    async def run() -> str:
        steps = [step for message in messages for step in (*message, Step(text="Done."))]
        given = Options(directory=str(workshop.world.workspace), only_tools=TOOLS)
        async with (
            asyncio.timeout(TEST_TIMEOUT),
            Agent(options=given, provider=Scripted(Script([Rule(steps)]))) as agent,
        ):
            for number, _ in enumerate(messages, 1):
                async with agent.run(f"Message {number}") as asked:
                    await asked.wait()
            return agent.session.id

    return asyncio.run(run())


def command_of(workshop: Workshop) -> Task:
    [task] = [task for task in workshop.board.all() if task.kind == "command"]
    return task


def undo_of(workshop: Workshop, session: str) -> SessionUndo:
    return SessionUndo(workshop.journal, find_places(str(workshop.world.workspace)), session)


def until_ended(workshop: Workshop) -> None:
    workshop.until(lambda: command_of(workshop).is_finished)


def test_what_it_changed_is_undone_and_redone_with_its_message(workshop: Workshop) -> None:
    root = workshop.world.workspace
    (root / "a.txt").write_text("old\n")
    (root / "gone.txt").write_text("kept\n")
    workshop.worker(idle=20)
    session = converse(workshop, [background("echo new > a.txt; mkdir d; echo b > d/b.txt; rm gone.txt")])
    until_ended(workshop)
    undo = undo_of(workshop, session)
    [message] = undo.messages
    assert (message.number, message.tools) == (1, ("Bash",))
    undo.restore(undo.make_plan())
    assert ((root / "a.txt").read_text(), (root / "gone.txt").read_text()) == ("old\n", "kept\n")
    assert not (root / "d").exists()
    again = undo_of(workshop, session)
    again.restore(again.make_plan(redo=True))
    assert (root / "d" / "b.txt").read_text() == "b\n"


def test_it_belongs_to_the_message_that_started_it_and_not_to_the_one_during_which_it_ends(workshop: Workshop) -> None:
    root = workshop.world.workspace
    workshop.worker(idle=20)

    def write(_: Any) -> Step:
        workshop.until((root / "begun").exists)
        return use("Write", "w1", file_path="mine.txt", content="1\n")

    def release(_: Any) -> Step:
        (root / "release").touch()
        until_ended(workshop)
        return use("Write", "w2", file_path="other.txt", content="other\n")

    waiting = "touch begun; while [ ! -e release ]; do sleep 0.05; done; echo late > late.txt"
    session = converse(workshop, [background(waiting)], [write, release])
    messages = {message.number: message for message in undo_of(workshop, session).messages}
    names = {
        number: {change.path.rpartition("/")[2] for change in message.changes} for number, message in messages.items()
    }
    assert names == {1: {"begun", "late.txt", "release"}, 2: {"mine.txt", "other.txt"}}
    undo = undo_of(workshop, session)
    undo.restore(undo.make_plan(1))
    assert not (root / "late.txt").exists()
    assert (root / "mine.txt").exists()


def test_while_it_runs_undo_says_so(workshop: Workshop) -> None:
    root = workshop.world.workspace
    workshop.worker(idle=20)
    session = converse(workshop, [background("echo x > x.txt; while [ ! -e release ]; do sleep 0.05; done")])
    workshop.until((root / "x.txt").exists)
    undo = undo_of(workshop, session)
    task_id = command_of(workshop).id
    assert undo.running_notice() == (
        f"still running in the background: {task_id}; changes by it can be undone once it has ended"
    )
    with pytest.raises(NotFoundError) as raised:
        undo.make_plan()
    assert task_id in raised.value.fix
    shown = workshop.world.run("undo", "--list", "--session", session)
    assert "still running in the background" in shown.stderr
    (root / "release").touch()
    until_ended(workshop)
    ended = undo_of(workshop, session)
    assert ended.running_notice() == ""
    assert any(step.path.endswith("/x.txt") for step in ended.make_plan().steps)


def test_what_was_stopped_is_undone_too(workshop: Workshop) -> None:
    root = workshop.world.workspace
    workshop.worker(idle=20)

    def stop(_: Any) -> Step:
        workshop.until((root / "x.txt").exists)
        return use("TaskStop", "s1", task_id=command_of(workshop).id)

    session = converse(workshop, [background("echo x > x.txt; exec sleep 300"), stop])
    workshop.until(lambda: undo_of(workshop, session).messages)
    undo = undo_of(workshop, session)
    undo.restore(undo.make_plan())
    assert not (root / "x.txt").exists()


def test_what_was_killed_with_its_worker_is_recovered(workshop: Workshop) -> None:
    root = workshop.world.workspace
    killed = workshop.worker(idle=20)
    session = converse(workshop, [background("echo x > x.txt; exec sleep 300")])
    workshop.until((root / "x.txt").exists)
    workshop.nursery.kill(killed)
    workshop.work()
    assert command_of(workshop).status == "interrupted"
    undo = undo_of(workshop, session)
    assert undo.recovered
    assert [message.number for message in undo.messages] == [1]
    undo.restore(undo.make_plan())
    assert not (root / "x.txt").exists()


def test_a_command_that_only_reads_records_nothing(workshop: Workshop) -> None:
    workshop.worker(idle=20)
    session = converse(workshop, [background("ls -la")])
    until_ended(workshop)
    assert not workshop.board.request(command_of(workshop).id).options["undo"]
    assert undo_of(workshop, session).messages == []
