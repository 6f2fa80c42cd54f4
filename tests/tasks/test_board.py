"""The board: what many processes write to at once, and what follows from its records."""

import asyncio
import json
import os
import socket
import sqlite3
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kitbag.errors import AmbiguousError, NotFoundError
from kitbag.store.journal import Journal
from kitbag.store.private_files import StoreError
from kitbag.store.redaction import Redactor
from kitbag.tasks.board import MAX_INLINE_TEXT, Board
from kitbag.tasks.owner import Owner, parse_owner, this_process
from kitbag.tasks.task import Task, TaskRequest, TaskResult
from kitbag.tasks.version import is_newer
from support.waiting import TEST_TIMEOUT

pytestmark = pytest.mark.usefixtures("store")

DONE = TaskResult(status="completed", text="Done.")


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "state" / "journal.db")


@pytest.fixture
def board(path: str) -> Iterator[Board]:
    with Journal.open(path, Redactor([])) as journal:
        yield Board(journal)


def put(board: Board, task_id: str = "aaaa00000001", **more: Any) -> Task:
    given: dict[str, Any] = {"root": "r", "parent": "", "depth": 1, "background": True, **more}
    return asyncio.run(
        board.create(task_id, "agent", TaskRequest(agent="doer", prompt="Do it.", directory="/w"), **given)
    )


def claim(board: Board, task: Task, **more: Any) -> bool:
    return asyncio.run(board.claim(task, **more))


def end(board: Board, task: Task, how: TaskResult = DONE) -> bool:
    return asyncio.run(board.finish(task.id, task.run, how))


def test_another_process_sees_a_task_as_soon_as_it_is_created(board: Board, path: str) -> None:
    task = put(board)
    with Journal.open(path, Redactor([])) as journal:
        other = Board(journal)
        assert other.find(task.id) == task
        assert other.request(task.id).prompt == "Do it."
        assert claim(other, other.find(task.id))
    assert board.find(task.id).status == "running"
    assert board.find(task.id).owner == this_process()


def test_an_owner_is_stored_as_a_list_of_four(board: Board) -> None:
    me = this_process()
    task = put(board, background=False)
    claim(board, task, owner=me)
    stored = [record.body["owner"] for record in board.journal.read("tasks") if record.kind in ("created", "begun")]
    assert stored == [[me.machine, me.boot, me.pid, me.started]] * 2
    assert parse_owner(stored[0]) == board.find(task.id).owner == me


def test_one_of_two_claims_it_and_the_first_end_counts(board: Board) -> None:
    task = put(board)
    assert [claim(board, task), claim(board, task)] == [True, False]
    begun = board.find(task.id)
    assert end(board, begun)
    assert not end(board, begun, TaskResult(status="failed"))
    assert board.find(task.id).result == DONE
    assert not claim(board, begun)


def test_what_was_ended_is_begun_by_nobody_and_can_be_resumed_by_a_person(board: Board) -> None:
    task = put(board)
    assert end(board, task, TaskResult(status="cancelled"))
    assert not claim(board, task)  # of one who came too late
    ended = board.find(task.id)
    assert ended.status == "cancelled"
    assert asyncio.run(board.requeue(ended, TaskRequest(agent="doer", prompt="Go on.")))
    assert not asyncio.run(board.requeue(ended, TaskRequest(agent="doer", prompt="Go on twice.")))
    assert board.request(task.id).prompt == "Go on."
    queued = board.find(task.id)
    assert queued.status == "queued"
    assert claim(board, queued)
    assert end(board, board.find(task.id))
    assert board.find(task.id).status == "completed"


@pytest.mark.file_store
def test_an_end_counts_also_when_somebody_came_too_late_right_after(board: Board, path: str) -> None:
    task = put(board)
    claim(board, task)
    begun = board.find(task.id)

    class Late(Journal):
        async def write_once(self, key: str, stream: str, kind: str, body: object) -> int | None:
            made = await super().write_once(key, stream, kind, body)
            with Journal.open(path, Redactor([])) as other:
                assert not await Board(other).claim(begun)
            return made

    board.journal.__class__ = Late
    assert end(board, begun)


def test_in_front_only_who_says_so_begins_it_again(board: Board) -> None:
    task = put(board, background=False)
    claim(board, task)
    end(board, board.find(task.id), TaskResult(status="max-turns"))
    assert not claim(board, board.find(task.id))
    assert claim(board, board.find(task.id), restart=True)
    assert board.find(task.id).status == "running"


def test_a_wish_to_stop_is_kept_by_a_recovery_and_not_by_a_resumption(board: Board) -> None:
    task = put(board)
    claim(board, task)
    asyncio.run(board.request_stop([board.find(task.id)]))
    claim(board, board.find(task.id), recovered=True)
    stopped = board.find(task.id)
    assert (stopped.stop_requested, stopped.recoveries, stopped.run) == (True, 1, 2)
    child = put(board, "aaaa00000002", parent=task.id, depth=2)
    assert child.stop_requested
    end(board, stopped, TaskResult(status="cancelled"))
    assert put(board, "aaaa00000003", parent=task.id, depth=2).stop_requested
    asyncio.run(board.requeue(board.find(task.id), TaskRequest(agent="doer", prompt="Go on.")))
    assert not board.find(task.id).stop_requested
    assert not put(board, "aaaa00000004", parent=task.id, depth=2).stop_requested


def test_it_waits_until_all_its_questions_are_answered(board: Board) -> None:
    task = put(board)
    claim(board, task)

    def status(question: str, *, over: bool) -> str:
        asyncio.run(board.record_question(task.id, question, answered=over))
        return board.find(task.id).status

    assert status("q1", over=False) == "waiting-approval"
    assert status("q2", over=False) == "waiting-approval"
    assert status("q1", over=True) == "waiting-approval"
    assert status("q2", over=True) == "running"
    end(board, board.find(task.id))
    assert status("q3", over=False) == "completed"


def test_names_are_found_by_their_beginning_and_only_among_those_one_may_see(board: Board) -> None:
    put(board, "abc000000001")
    put(board, "abc000000002", root="other")
    assert board.find("abc000000001").id == "abc000000001"
    with pytest.raises(AmbiguousError):
        board.find("abc0")
    mine = board.find("abc0", lambda task: task.root == "r")
    assert mine.id == "abc000000001"
    with pytest.raises(NotFoundError) as error:
        board.find("abc000000002", lambda task: task.root == "r")
    assert "abc000000002" not in error.value.fix
    for name in ("", "ab", "x" * 100_000):
        with pytest.raises(NotFoundError):
            board.find(name)


def test_a_long_answer_is_put_away_whole_and_belongs_to_the_end_that_counted(board: Board) -> None:
    task = put(board)
    claim(board, task)
    begun = board.find(task.id)
    for letter, counts in (("a", True), ("b", False)):
        assert end(board, begun, TaskResult(status="completed", text=letter * (MAX_INLINE_TEXT + 1))) is counts
    found = board.find(task.id)
    assert found.result is not None
    assert (found.result.text, found.result.full_length) == ("a" * MAX_INLINE_TEXT, MAX_INLINE_TEXT + 1)
    assert board.answer(found) == "a" * (MAX_INLINE_TEXT + 1)


def test_records_of_another_version_are_passed_over(board: Board) -> None:
    task = put(board)
    for kind, body in (
        ("begun", {"id": task.id}),
        ("ended", {"id": task.id, "run": 0, "status": "completed", "mood": "good"}),
        ("sung", {"id": task.id}),
        ("created", {"id": "x"}),
        ("ended", {}),
        ("ended", []),
    ):
        board.journal.append("tasks", kind, body)
    assert [found.id for found in board.all()] == [task.id]
    assert board.find(task.id).status == "completed"


def test_records_that_can_not_be_read_are_reported(board: Board) -> None:
    task = put(board)
    claim(board, task)
    end(board, board.find(task.id))
    assert (board.unreadable, board.unreadable_notice()) == ([], "")
    whole = {"kind": "agent", "agent": "", "description": "", "depth": 1, "background": True, "directory": "/w"}
    for kind, body in (
        ("created", {"id": "x"}),
        ("created", {**whole, "id": "y", "root": [], "parent": ""}),
        ("warning", {"id": "x", "text": "of a task that was not read"}),
        ("begun", {"id": task.id, "run": None}),
        ("ended", []),
        ("sung", {"id": task.id}),
    ):
        board.journal.append("tasks", kind, body)
    second = put(board, "aaaa00000002")
    board.journal.append("tasks", "ended", {"id": second.id, "run": 0, "status": []})
    assert [found.id for found in board.all()] == [task.id, second.id]
    assert [record.kind for record in board.unreadable] == ["created", "created", "warning", "begun", "ended", "ended"]
    assert "can't read 6 task records" in board.unreadable_notice()
    assert "'created': KeyError: 'kind'" in board.unreadable_notice()
    assert [found.id for found in asyncio.run(next_change(board, second))] == [second.id]


async def next_change(board: Board, task: Task) -> list[Task]:
    other = Board(board.journal)
    other.refresh()
    await board.warn(task.id, "careful")
    return await anext(other.follow())


def test_who_is_alive_is_known_by_more_than_a_number() -> None:
    me = this_process()
    assert me.check_alive() is True
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        pass
    assert msgspec.structs.replace(me, pid=ended.pid, started="").check_alive() is False
    assert msgspec.structs.replace(me, started="1").check_alive() is False  # the number was given to another
    assert msgspec.structs.replace(me, boot="before").check_alive() is False
    assert Owner(machine=f"elsewhere/{me.machine}", boot="before", pid=1, started="1").check_alive() is None
    in_another_container = msgspec.structs.replace(me, machine=f"{socket.gethostname()}/pid:[1]")
    assert in_another_container.check_alive() is None
    assert msgspec.structs.replace(me, machine="elsewhere/pid:[1]").check_alive() is None


def test_versions_are_compared_by_their_numbers() -> None:
    assert is_newer("0.10.0", "0.9.3")
    assert is_newer("1.0", "")
    assert not is_newer("0.1.0", "0.1.0")
    assert not is_newer("", "0.1.0")
    assert not is_newer("unknown", "0.1.0")


TWO_AT_WORK = textwrap.dedent("""
    import asyncio, sys
    from kitbag.store.journal import Journal
    from kitbag.store.redaction import Redactor
    from kitbag.tasks.board import Board
    from kitbag.tasks.task import TaskResult

    async def main():
        with Journal.open(sys.argv[1], Redactor([])) as journal:
            board, won = Board(journal), []
            async def one(task):
                if await board.claim(task) and await board.finish(task.id, task.run + 1, TaskResult(status="completed", text=sys.argv[2])):
                    won.append(task.id)
            await asyncio.gather(*(one(task) for task in board.unfinished() if task.status == "queued"))
            print(*won)

    print("ready", flush=True)
    sys.stdin.readline()
    asyncio.run(main())
""")


@pytest.mark.file_store
def test_of_fifty_tasks_that_two_processes_want_each_has_one_owner_and_one_end(board: Board, path: str) -> None:
    tasks = [put(board, f"{number:012x}") for number in range(50)]
    code = [sys.executable, "-c", TWO_AT_WORK, path]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([*code, "one"], **pipes) as one, subprocess.Popen([*code, "two"], **pipes) as two:
        for process in (one, two):
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process in (one, two):
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
        won = [process.communicate(timeout=TEST_TIMEOUT)[0].split() for process in (one, two)]
    assert sorted(won[0] + won[1]) == [task.id for task in tasks]
    for name, ids in zip(("one", "two"), won, strict=True):
        for task_id in ids:
            found = board.find(task_id).result
            assert found is not None
            assert found.text == name


@pytest.mark.file_store
class TestAStoreThatFails:
    def test_a_full_disk_and_a_newer_version_are_clear_errors_and_nothing_is_lost(
        self, board: Board, path: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        task = put(board)
        board.journal._file.writer.execute("PRAGMA max_page_count = 1")  # as full as a disk can be
        with pytest.raises(StoreError) as full:
            asyncio.run(board.finish(task.id, 0, TaskResult(status="completed", text="x" * 100_000)))
        assert "disk space" in full.value.fix
        board.journal._file.writer.execute("PRAGMA max_page_count = 1000000000")
        assert end(board, task)
        board.journal.close()
        with sqlite3.connect(path) as connection:
            connection.execute("PRAGMA user_version = 999")
        connection.close()
        with pytest.raises(StoreError, match="newer version of Kitbag"):
            Journal.open(path, Redactor([]))
        with sqlite3.connect(path) as connection:
            connection.execute("PRAGMA user_version = 1")
        connection.close()
        with Journal.open(path, Redactor([])) as journal:
            assert Board(journal).find(task.id).result == DONE

    def test_a_damaged_one_is_set_aside_and_what_can_be_read_is_on_the_board(self, board: Board, path: str) -> None:
        for number in range(300):
            put(board, f"{number:012x}")
        board.journal.close()
        size = os.path.getsize(path)
        with open(path, "r+b") as file:
            file.seek(size - 40_000)
            file.write(b"\xff" * 20_000)
        Path(path + ".check").touch()
        with Journal.open(path, Redactor([])) as journal:
            assert journal.recovery is not None
            found = Board(journal).all()
            assert 0 < len(found) < 300
            assert json.dumps([task.to_json() for task in found])
            assert os.path.exists(os.path.join(journal.recovery.folder, "journal.db"))


def test_those_below_stand_behind_the_one_that_began_them(board: Board) -> None:
    put(board, "aaaa00000001", root="r")
    put(board, "aaaa00000002", root="r")
    put(board, "aaaa00000003", root="r", parent="aaaa00000001")
    put(board, "aaaa00000004", root="r", parent="aaaa00000003")
    assert [task.id[-1] for task in board.descendants("r")] == ["1", "3", "4", "2"]
    assert [task.id[-1] for task in board.started_by("r")] == ["1", "2"]
    assert board.started_by("aaaa00000004") == []
