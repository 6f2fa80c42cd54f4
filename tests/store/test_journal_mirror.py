"""The mirror of a machine: all of what listings need, and of sessions only what is opened here."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from kitbag.agent.resume import read_totals, resume
from kitbag.agent.session import Session
from kitbag.agent.session_list import list_sessions
from kitbag.agent.session_records import SessionHeader, SkillUse
from kitbag.agent.session_table import STREAM_PREFIX
from kitbag.agent.skill_usage import read_usage
from kitbag.messages import Message, Text, ToolCall, ToolResult, Usage
from kitbag.runtime.retention import prune
from kitbag.store.journal import Journal, JournalEntry, NotFetchedError
from kitbag.store.journal_integrity import RecordRow
from kitbag.store.postgres import NewBatch, check_database
from kitbag.store.postgres_journal import PostgresJournal
from kitbag.store.private_files import StoreError
from kitbag.store.redaction import Redactor
from kitbag.tasks.board import Board
from kitbag.tasks.fleet import announce_exit, announce_worker, drain, read_fleet
from kitbag.tasks.owner import Owner, this_process
from support.postgres import Schema
from support.waiting import until_true, wait_until

Open = Callable[..., PostgresJournal]
LARGE = "CANARY " * 1_000


async def record_session(journal: Journal, name: str = "s1", turns: int = 2) -> Session:
    """A session whose records are large."""
    session = Session(journal, name)
    await session.start(SessionHeader(directory="/work", model="m", mode="default", started="2026-01-01T00:00:00Z"))
    await journal.write(session.stream, "prompt", {"entries": [], "made_for": {"text": LARGE}})
    for number in range(turns):
        await session.add_user([Text(f"  question\n {number} {LARGE}")], suggested=["review"])
        use = SkillUse(
            name="review", tokens=9, at="now", by="model", digest="d", arguments="", text=LARGE, found="search"
        )
        await session.add_skill(use)
        call = ToolCall(id=f"c{number}", name="Write", arguments={"content": LARGE})
        await session.add_reply(Message("assistant", (Text(LARGE), call)), Usage(input=10, output=5), 0.25, "m")
        await session.record_intent(call)
        await session.record_result(ToolResult(call_id=call.id, content=(Text(LARGE),)))
        await session.add_note(f"<continuation>{LARGE}")
    await session.record_end("completed")
    return session


def mirror_text(journal: PostgresJournal) -> str:
    return "".join(str(body) for (body,) in journal.select("SELECT body FROM records"))


def stop_following(journal: PostgresJournal) -> None:
    """It learns of nothing by itself."""
    journal._stopping.set()
    journal._wake_follower()
    journal._follower.join()


def test_a_session_is_listed_everywhere_and_received_where_it_is_opened(machine: Open, tmp_path: Path) -> None:
    one, two = machine("one"), machine("two")
    with Journal.open(str(tmp_path / "file" / "state" / "journal.db"), Redactor([])) as file:
        written = asyncio.run(record_session(file))
        listed = [summary.to_json() | {"last": ""} for summary in list_sessions(file)]
        usage = [used.to_json() | {"last": ""} for used in read_usage(file, "/work")]
    asyncio.run(record_session(one))
    two.catch_up()
    for journal in (one, two):
        assert [summary.to_json() | {"last": ""} for summary in list_sessions(journal)] == listed
        assert [used.to_json() | {"last": ""} for used in read_usage(journal, "/work")] == usage
        assert read_totals(journal, "s1") == written.totals
    assert two.streams() == one.streams()
    assert "CANARY CANARY CANARY" in mirror_text(one)
    assert len(mirror_text(two)) < len(mirror_text(one)) / 20
    assert resume(two, "s1").messages() == resume(one, "s1").messages() == written.messages()
    assert mirror_text(one) == mirror_text(two)


def test_on_an_event_loop_nothing_is_awaited_from_the_server(machine: Open) -> None:
    one, two = machine("one"), machine("two")
    asyncio.run(record_session(one))
    two.catch_up()

    async def read() -> None:
        with pytest.raises(NotFetchedError, match="is being fetched"):
            resume(two, "s1")
        await until_true(lambda: two._first_stub(f"{STREAM_PREFIX}s1") is None, "it is not fetched")
        assert resume(two, "s1").messages() == resume(one, "s1").messages()

    asyncio.run(read())


def test_what_others_add_to_a_session_that_is_open_here_follows(machine: Open) -> None:
    one, two = machine("one"), machine("two")
    session = asyncio.run(record_session(one))
    two.catch_up()
    two.fetch(session.stream)
    asyncio.run(session.add_note(f"<continuation>new {LARGE}"))
    wait_until(lambda: two.last_seq() == one.last_seq(), "it does not arrive")
    wait_until(lambda: two._first_stub(session.stream) is None, "only a stub arrives")
    assert resume(two, "s1").messages() == session.messages()


def test_another_process_of_the_home_that_receives_only_briefs_hides_nothing(machine: Open) -> None:
    one, two, beside = machine("one"), machine("two"), machine("two")
    session = asyncio.run(record_session(one))
    two.catch_up()
    two.fetch(session.stream)
    stop_following(two)
    asyncio.run(session.add_note(f"<continuation>new {LARGE}"))
    beside.catch_up()
    assert two._first_stub(session.stream) == one.last_seq()

    async def write() -> list[str]:
        before = [record.kind for record in two.read(session.stream)]
        assert before[-1] == "ended"  # a stream is seen up to what is here
        await two.write(session.stream, "note", {"text": "mine"})
        return [record.kind for record in two.read(session.stream)]

    assert asyncio.run(write())[-3:] == ["ended", "note", "note"]
    assert two._first_stub(session.stream) is None


def test_a_record_for_a_session_of_another_machine_does_not_bring_the_session(machine: Open) -> None:
    one, two = machine("one"), machine("two")
    session = asyncio.run(record_session(one))
    two.append(session.stream, "note", {"text": LARGE})
    assert two._first_stub(session.stream) is not None
    assert len(mirror_text(two)) < len(mirror_text(one)) / 2


def test_a_session_that_is_opened_again_brings_only_what_is_new(machine: Open, schema: Schema) -> None:
    one, two = machine("one"), machine("two")
    session = asyncio.run(record_session(one))
    two.catch_up()
    two.fetch(session.stream)
    two.close()
    asyncio.run(session.add_note(f"<continuation>new {LARGE}"))
    again = machine("two")
    assert again._first_stub(session.stream) == one.last_seq()
    assert resume(again, "s1").messages() == session.messages()


def test_what_was_pruned_while_it_was_fetched_ends_the_stream(machine: Open) -> None:
    one, two = machine("one"), machine("two")
    session = asyncio.run(record_session(one))
    two.catch_up()
    stop_following(two)
    one.delete([session.stream], [], [], [])
    assert [record.kind for record in two.read(session.stream)] == ["session"]
    two.catch_up()
    assert list(two.read(session.stream)) == []


# Pruning with several machines


def test_of_two_machines_that_prune_the_same_one_does(machine: Open, schema: Schema) -> None:
    one, two = machine("one"), machine("two")
    session = asyncio.run(record_session(one))
    two.catch_up()
    left = JournalEntry("tasks", "pruned", {})
    stop_following(two)
    assert one.delete([session.stream], [], [left], [])
    two._mirror.clear()
    two._mirror.add([RecordRow(1, session.stream, "now", "session", "{}", None, 0)])  # as before it heard of it
    with pytest.raises(StoreError, match="another machine uses or deleted a part of it meanwhile"):
        two.delete([session.stream], [], [left], [])
    assert [record.kind for record in two.read()] == ["pruned"]
    assert check_database(schema.url) == (1, "")


def test_a_session_that_another_machine_went_on_with_is_not_deleted(machine: Open) -> None:
    one, two = machine("one"), machine("two")
    session = asyncio.run(record_session(one))
    two.catch_up()
    stop_following(two)
    asyncio.run(session.add_note("<continuation>more"))
    with pytest.raises(StoreError, match="another machine uses"):
        two.delete([session.stream], [], [], [])
    assert resume(two, "s1").messages() == session.messages()


def test_records_that_were_read_before_another_process_deleted_them_are_not_added(machine: Open) -> None:
    one, two = machine("one"), machine("two")
    session = asyncio.run(record_session(one))
    rows = list(one.database.rows_after(0))
    stop_following(two)
    two._mirror.clear()
    one.delete([session.stream], [], [], [])
    two.catch_up()
    assert two._mirror.add(rows, prunings=0) == 0
    assert list(two.read()) == []


def test_a_deletion_whose_connection_is_lost_is_done_once(machine: Open, schema: Schema) -> None:
    journal = machine()
    journal.append("old", "k", 1)
    database = journal.database
    left = NewBatch([("s", "now", "k", "1", None)])
    assert database.prune(left, [1], ["old"])
    database.commits -= 1
    assert database.prune(left, [1], ["old"])
    assert schema.rows("SELECT last, prunings FROM kitbag_counter") == [(2, 1)]


def test_announcements_of_workers_that_are_gone_are_pruned(machine: Open, tmp_path: Path) -> None:
    one, two = machine("one"), machine("two")
    gone = Owner(machine=this_process().machine, boot="before", pid=1, started="1")

    async def announce() -> None:
        await announce_worker(one, gone, queues=["build"], concurrency=1)
        await drain(Board(one), [])
        await announce_worker(one, this_process(), queues=["build"], concurrency=1)
        await drain(Board(one), [])
        await announce_exit(one, gone)

    asyncio.run(announce())
    two.catch_up()
    assert prune(two, str(tmp_path / "two"), -1).records == 3
    one.catch_up()
    assert [record.kind for record in one.read("fleet")] == ["worker", "drain"]
    assert [worker.is_draining for worker in read_fleet(Board(one)).workers] == [True]
