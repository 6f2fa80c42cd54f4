"""What a task of a named queue records about the machine that submits it."""

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from conftest import World
from kitbag.store.journal import Journal, journal_path
from kitbag.store.redaction import Redactor
from kitbag.tasks import submission
from kitbag.tasks.board import Board
from kitbag.tasks.task import Task, TaskRequest


@pytest.fixture
def board(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Board]:
    monkeypatch.setenv("HOME", str(world.home))
    monkeypatch.setenv("KITBAG_HOME", str(world.home / ".kitbag"))
    with Journal.open(journal_path(str(tmp_path / "store")), Redactor([])) as journal:
        journal.queue, journal.workspace_mode, journal.takes_snapshots = "build", "auto", True
        yield Board(journal)


def create(board: Board, world: World, name: str, *, background: bool = True) -> "asyncio.Task[Task]":
    request = TaskRequest(agent="doer", prompt="Do it.", directory=str(world.workspace))
    made = board.create(name, "agent", request, root="root", parent="", depth=1, background=background)
    return asyncio.create_task(made)


def test_tasks_that_are_submitted_together_share_one_look_and_a_later_one_sees_what_changed(
    board: Board, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on = threading.Event(), threading.Event()
    looks: list[str] = []
    describe = submission.describe_git_workspace

    def counted(directory: str, mode: submission.WorkspaceMode) -> object:
        looks.append(directory)
        begun.set()
        assert go_on.wait(60)
        return describe(directory, mode)

    monkeypatch.setattr(submission, "describe_git_workspace", counted)
    skill = "---\nname: greet\ndescription: Greets.\n---\n"

    async def submit() -> None:
        first = create(board, world, "a" * 12)
        await asyncio.to_thread(begun.wait, 60)
        world.write("~/.kitbag/skills/greet/SKILL.md", f"{skill}Hello.\n")
        later = [create(board, world, f"{number:012}") for number in range(20)]
        await asyncio.sleep(0)
        go_on.set()
        await asyncio.gather(first, *later)
        world.write("~/.kitbag/skills/greet/SKILL.md", f"{skill}Good morning.\n")
        last = await create(board, world, "b" * 12)
        assert last.snapshot not in {one.result().snapshot for one in later}
        assert len({one.result().snapshot for one in later}) == 1

    asyncio.run(submit())
    assert len(looks) == 3


def test_a_foreground_agent_takes_no_snapshot(board: Board, world: World) -> None:
    async def submit() -> Task:
        return await create(board, world, "a" * 12, background=False)

    assert asyncio.run(submit()).snapshot == ""
