"""`kitbag store copy`: the same records on the other side, or none."""

import asyncio
import sqlite3
from pathlib import Path

import pytest

from conftest import World
from kitbag.store.journal import Journal, JournalEntry, journal_path
from kitbag.store.postgres_journal import PostgresJournal
from kitbag.store.private_files import StoreError
from kitbag.store.redaction import Redactor
from kitbag.store.store_copy import copy_to_database, copy_to_file
from kitbag.tasks.board import Board
from kitbag.tasks.task import TaskRequest
from support.postgres import Schema


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A journal with a task, any text, and records that were pruned."""
    path = journal_path(str(tmp_path / "home"))
    with Journal.open(path, Redactor([])) as journal:
        journal.append_once("key", "s", "k", {"text": "nul \0, half \ud800, tab \t, back \\\\n"})
        journal.append_all(JournalEntry(f"old/{number}", "k", number) for number in range(5))
        journal.delete(["old/1", "old/2", "old/4"], [], [], [])
        request = TaskRequest(agent="doer", prompt="Do it.")
        asyncio.run(
            Board(journal).create("aaaa00000001", "agent", request, root="r", parent="", depth=1, background=True)
        )
    return path


def records(journal: Journal) -> list[object]:
    return [(record.seq, record.stream, record.at, record.kind, record.body) for record in journal.read()]


def test_there_and_back_it_is_the_same(path: str, schema: Schema, tmp_path: Path) -> None:
    there = copy_to_database(path, schema.url)
    other = journal_path(str(tmp_path / "other"))
    back = copy_to_file(schema.url, other)
    assert (there.records, there.digest) == (back.records, back.digest)
    assert there.records == 5
    with (
        Journal.open(path, Redactor([])) as one,
        Journal.open(other, Redactor([])) as two,
        PostgresJournal.connect(schema.url, str(tmp_path / "third"), Redactor([])) as three,
    ):
        assert records(one) == records(two) == records(three)
        assert Board(one).all() == Board(two).all() == Board(three).all()
        assert {journal.append("s", "k", 1) for journal in (one, two, three)} == {9}
        assert {journal.append_once("key", "s", "k", 1) for journal in (one, two, three)} == {None}


def test_a_target_with_records_a_source_in_use_and_a_damaged_one_are_refused_and_nothing_is_copied(
    path: str, schema: Schema
) -> None:
    with Journal.open(path, Redactor([])) as journal:
        with pytest.raises(StoreError, match="is in use by another Kitbag process"):
            copy_to_database(path, schema.url)
        with pytest.raises(StoreError, match="has records already"):
            copy_to_file(schema.url, path)
        assert len(records(journal)) == 5
    damaged = sqlite3.connect(path)
    with damaged:
        damaged.execute("DROP TRIGGER records_stay")
        damaged.execute("UPDATE records SET checksum = 1 WHERE kind = 'created'")
    # As if it had been found only while it is copied.
    damaged.close()
    before = Path(path).read_bytes()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kitbag.store.journal_opening.needs_check", lambda *_: False)
        with pytest.raises(StoreError, match=r"nothing copied: .* checksum does not match"):
            copy_to_database(path, schema.url)
    assert Path(path).read_bytes()[:100] == before[:100]
    assert schema.rows("SELECT count(*) FROM kitbag_records") == [(0,)]
    with PostgresJournal.connect(schema.url, str(Path(path).parent / "m"), Redactor([])) as opened:
        opened.append("s", "k", 1)
    with pytest.raises(StoreError, match="has 1 records already"):
        copy_to_database(journal_path(str(Path(path).parent / "new")), schema.url)


def test_the_command_copies_both_ways_and_says_what_is_wrong(world: World, schema: Schema) -> None:
    world.ok("-p", "hello", "--model", "offline")
    before = world.json("sessions", "list")
    world.env["KITBAG_HOME"] = str(world.home / "empty")
    assert "does not start with postgresql://" in world.run("store", "copy", "--to", "/tmp/x.db").stderr
    del world.env["KITBAG_HOME"]
    assert "no database is configured" in world.run("store", "copy", "--to", "file").stderr
    refused = world.run("store", "copy", "--to", "mysql://x")
    assert (refused.returncode, "does not start with postgresql://" in refused.stderr) == (6, True)
    copied = world.run("store", "copy", "--to", schema.url)
    assert ("verified" in copied.stdout, copied.stderr) == (True, "")
    world.env["KITBAG_DATABASE_URL"] = schema.url
    assert world.json("sessions", "list") == before
    world.env["KITBAG_HOME"] = str(world.home / "elsewhere")
    assert world.json("store", "copy", "--to", "file")["records"] > 3
    del world.env["KITBAG_DATABASE_URL"]
    assert world.json("sessions", "list") == before


def test_tasks_that_would_run_in_both_stores_are_named(world: World, path: str, schema: Schema) -> None:
    world.env["KITBAG_HOME"] = str(Path(path).parents[1])
    copied = world.run("store", "copy", "--to", schema.url, "--json")
    assert copied.returncode == 0
    assert "1 unfinished task would run in both stores (aaaa00000001)" in copied.stderr
