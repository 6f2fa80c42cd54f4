"""Derived tables are what the records add up to, whoever wrote them and wherever a process was killed."""

import asyncio
import os
import random
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from kitbag.agent.session import Session
from kitbag.agent.session_list import list_sessions, newest_session
from kitbag.agent.session_records import SessionHeader
from kitbag.agent.session_table import SESSION_TABLE
from kitbag.messages import Message, Text, Usage
from kitbag.store import derived_tables
from kitbag.store.fault_points import TABLE_POINTS, VARIABLE
from kitbag.store.journal import Journal, JournalEntry, journal_path
from kitbag.store.postgres_journal import PostgresJournal
from kitbag.store.private_files import StoreError
from kitbag.store.redaction import Redactor
from kitbag.tasks.board import Board
from kitbag.tasks.task import TaskRequest, TaskResult
from kitbag.tasks.task_table import TASK_TABLE
from support.matrix import long
from support.waiting import TEST_TIMEOUT


@pytest.fixture
def path(tmp_path: Path) -> str:
    return journal_path(str(tmp_path / "home"))


async def work(journal: Journal, count: int, seed: int = 1) -> None:
    """Tasks and sessions in all states."""
    chance, board = random.Random(seed), Board(journal)
    for number in range(count):
        name = f"{seed:04x}{number:08x}"
        session = Session(journal, name)
        await session.start(SessionHeader(directory=f"/{number % 3}", model="m", mode="default"))
        await session.add_user([Text(f"Say {number} \ud800")])
        for _ in range(chance.randrange(3)):
            cost = chance.choice([0.5, 0.25, None])
            await session.add_reply(Message("assistant", (Text("Yes."),)), Usage(input=1, output=1), cost, "m")
        if chance.random() < 0.7:
            await session.record_end("completed")
        request = TaskRequest(
            agent="Explore", prompt="p", description=f"do {number} \ud800", directory=f"/{number % 3}"
        )
        task = await board.create(name, "agent", request, root=name, parent="", depth=1, background=True)
        if chance.random() < 0.8 and await board.claim(task):
            await board.warn(name, "careful")
            if chance.random() < 0.8:
                await board.finish(name, 1, TaskResult(status="completed", text="Done."))


def state(path: str) -> list[list[tuple[object, ...]]]:
    connection = sqlite3.connect(path)
    tables = ("task_states", "session_states", "derived_problems")
    try:
        return [connection.execute(f"SELECT * FROM {name} ORDER BY 1, 2").fetchall() for name in tables]
    finally:
        connection.close()


def rebuilt(path: str) -> list[list[tuple[object, ...]]]:
    with Journal.open(path, Redactor()) as journal:
        journal.drop_tables()
        for table in (TASK_TABLE, SESSION_TABLE):
            journal.ensure_table(table)
    return state(path)


def test_what_is_maintained_with_every_record_is_what_is_built_from_all_of_them(path: str) -> None:
    with Journal.open(path, Redactor()) as journal:
        for table in (TASK_TABLE, SESSION_TABLE):
            journal.ensure_table(table)
        asyncio.run(work(journal, 30))
        journal.append_all([JournalEntry("tasks", "created", {"id": 5}), JournalEntry("session/x", "user", None)])
        tasks, sessions = Board(journal).all(), list_sessions(journal)
        assert len(tasks) == 30
        assert [session.last for session in sessions] == sorted((one.last for one in sessions), reverse=True)
    maintained = state(path)
    assert [len(rows) for rows in maintained] == [30, 31, 1]
    assert rebuilt(path) == maintained


@long
def test_several_processes_maintain_the_same_tables(path: str) -> None:
    code = (
        "import asyncio, sys\nfrom store.test_derived_tables import work\nfrom kitbag.store.journal import Journal\n"
        "from kitbag.store.redaction import Redactor\n"
        "with Journal.open(sys.argv[1], Redactor()) as journal: asyncio.run(work(journal, 10, int(sys.argv[2])))\n"
    )
    tests = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    running = [
        subprocess.Popen([sys.executable, "-c", code, path, str(seed)], env=os.environ | {"PYTHONPATH": tests})
        for seed in (1, 2, 3)
    ]
    assert [one.wait(TEST_TIMEOUT) for one in running] == [0, 0, 0]
    with Journal.open(path, Redactor()) as journal:
        assert len(Board(journal).all()) == 30
        assert len(list_sessions(journal)) == 30
    maintained = state(path)
    assert rebuilt(path) == maintained


@pytest.mark.parametrize("point", [*TABLE_POINTS, "table-applied:3"])
def test_a_process_that_is_killed_there_leaves_tables_that_match(path: str, point: str) -> None:
    with Journal.open(path, Redactor()) as journal:
        asyncio.run(work(journal, 5))
        journal.drop_tables()
    code = (
        "import sys\nfrom kitbag.tasks.board import Board\nfrom kitbag.store.journal import Journal\n"
        "from kitbag.store.redaction import Redactor\n"
        "journal = Journal.open(sys.argv[1], Redactor())\nBoard(journal).all()\n"
        "for _ in range(3): journal.append('tasks', 'warning', {'id': '000100000001', 'text': 'w'})\n"
    )
    killed = subprocess.run(
        [sys.executable, "-c", code, path], env=os.environ | {VARIABLE: point}, timeout=TEST_TIMEOUT
    )
    assert killed.returncode == -signal.SIGKILL
    with Journal.open(path, Redactor()) as journal:
        warnings = sum(record.kind == "warning" for record in journal.read("tasks"))
        found = Board(journal).all()
        assert len(found) == 5
        assert sum(len(task.warnings) for task in found) == warnings
        list_sessions(journal)
    maintained = state(path)
    assert rebuilt(path) == maintained


def test_a_table_whose_rows_were_changed_is_built_again(path: str) -> None:
    with Journal.open(path, Redactor()) as journal:
        asyncio.run(work(journal, 2))
        newest_session(journal, "/1")
        with journal.transaction() as writer:
            writer.execute("UPDATE task_states SET state = replace(state, 'do 1', 'do 2')")
            writer.execute("UPDATE session_states SET state = replace(state, 'Say', 'Sai')")
        with pytest.raises(StoreError, match="table of tasks"):
            Board(journal).all()
        assert [task.description[:4] for task in Board(journal).all()] == ["do 0", "do 1"]
        assert len(list_sessions(journal)) == 2


def test_a_table_of_another_version_is_built_again(path: str) -> None:
    with Journal.open(path, Redactor()) as journal:
        asyncio.run(work(journal, 3))
        before = Board(journal).all()
        with journal.transaction() as writer:
            writer.execute("UPDATE derived_tables SET version = 7")
            writer.execute("DELETE FROM task_states")
        assert Board(journal).all() == before


def test_a_process_that_does_not_know_a_table_leaves_the_records_it_fetches_to_the_next_reader(
    machine: Callable[..., PostgresJournal], monkeypatch: pytest.MonkeyPatch
) -> None:
    here, elsewhere = machine("here"), machine("elsewhere")
    request, other = TaskRequest(agent="doer", prompt="Do it."), Board(elsewhere)
    asyncio.run(other.create("aaaa00000001", "agent", request, root="r", parent="", depth=1, background=True))
    here.catch_up()
    assert [task.status for task in Board(here).all()] == ["queued"]
    here.close()
    asyncio.run(other.finish("aaaa00000001", 0, TaskResult(status="cancelled")))
    with monkeypatch.context() as patch:  # as in a process that shows sessions only
        patch.delitem(derived_tables._tables, TASK_TABLE.name)
        machine("here").close()
    assert [task.status for task in Board(machine("here")).all()] == ["cancelled"]


def test_a_process_with_another_version_of_a_table_leaves_its_records_to_those_with_this_one(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = TaskRequest(agent="doer", prompt="Do it.")
    with Journal.open(path, Redactor([])) as journal:
        before = len(Board(journal).all())
        with monkeypatch.context() as patch:
            older = msgspec.structs.replace(TASK_TABLE, version=1)
            patch.setitem(derived_tables._tables, TASK_TABLE.name, older)
            body = asyncio.run(
                Board(journal).create("aaaa00000009", "agent", request, root="r", parent="", depth=1, background=True)
            )
        assert body.id in [task.id for task in Board(journal).all()]
        assert len(Board(journal).all()) == before + 1
