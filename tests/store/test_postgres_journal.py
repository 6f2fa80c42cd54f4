"""The journal on PostgreSQL: what was acknowledged is there once, in order, for every machine, whatever happens between."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import psycopg
import pytest

from conftest import World
from kitbag.errors import InvalidError
from kitbag.store import postgres
from kitbag.store.fencing import fenced_by
from kitbag.store.journal import Journal, JournalEntry
from kitbag.store.postgres import (
    Database,
    NewBatch,
    UnreachableError,
    check_database,
    check_server_version,
    row_checksum,
)
from kitbag.store.postgres_journal import PostgresJournal
from kitbag.store.postgres_schema import FORMAT, MIGRATIONS
from kitbag.store.private_files import StoreError
from kitbag.store.redaction import Redactor
from support.matrix import long, rounds
from support.postgres import PASSWORD, Schema, Server
from support.tcp_proxy import TcpProxy
from support.waiting import TEST_TIMEOUT, wait_until

Open = Callable[..., PostgresJournal]


def start(code: str, *arguments: str) -> "subprocess.Popen[str]":
    """Another Kitbag process; `journal` is open in it."""
    first = (
        "import sys, os, threading\nfrom kitbag.store.postgres_journal import PostgresJournal\n"
        "from kitbag.store.redaction import Redactor\nfrom kitbag.store.private_files import StoreError\n"
        "journal = PostgresJournal.connect(sys.argv[1], sys.argv[2], Redactor([]))\n"
    )
    return subprocess.Popen(
        [sys.executable, "-c", first + code, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def finish(processes: "list[subprocess.Popen[str]]") -> None:
    for process in processes:
        process.communicate(timeout=TEST_TIMEOUT)
        assert process.returncode == 0


def bodies(journal: Journal, stream: str | None = None) -> list[object]:
    journal.catch_up()
    return [record.body for record in journal.read(stream)]


# Order and races


def test_a_connection_that_began_with_an_empty_table_never_scans_it_for_a_key(machine: Open, schema: Schema) -> None:
    """Its plans are made once; each commit would take longer than the one before."""
    journal = machine()
    with fenced_by("fence"):
        for number in range(40):
            journal.append_once(f"key {number}", "s", "k", number)
    journal.close()  # only then the server counts
    query = "SELECT idx_scan FROM pg_stat_user_indexes WHERE indexrelname = 'kitbag_records_key' AND schemaname = '{}'"
    wait_until(lambda: schema.rows(query.format(schema.name))[0][0] >= 80)


def test_machines_share_records_keys_and_waiting(machine: Open) -> None:
    one, two = machine("one"), machine("two")
    assert one.append("s", "k", {"text": "nul \0, half \ud800"}) == 1
    assert one.append_once("key", "s", "k", 1) == 2
    assert two.append_once("key", "s", "k", 2) is None
    assert asyncio.run(two.write_all_once("key", [JournalEntry("s", "k", 3), JournalEntry("s", "k", 4)])) == []
    assert two.append_all([JournalEntry("s", "k", 5), JournalEntry("t", "k", 6)]) == [3, 4]
    assert one.wait(3, TEST_TIMEOUT)
    assert bodies(one) == bodies(two) == [{"text": "nul \0, half \ud800"}, 1, 5, 6]
    assert one.streams() == ["s", "t"]


def test_whoever_sees_a_record_can_see_all_before_it(machine: Open, schema: Schema, tmp_path: Path) -> None:
    """Writers race; a reader looks all the time, at the database itself and at a mirror."""
    machine()
    code = (
        "from kitbag.store.journal import JournalEntry\n"
        "for n in range(int(sys.argv[3])): journal.append_all([JournalEntry('s', 'k', n)] * 3)\njournal.close()"
    )
    count = rounds(150, 40)
    writers = [start(code, schema.url, str(tmp_path / f"w{n}"), str(count)) for n in range(3)]
    reader, looks = machine("reader"), 0
    with psycopg.connect(schema.url, autocommit=True) as connection:
        while any(writer.poll() is None for writer in writers):
            seen = connection.execute("SELECT coalesce(max(seq), 0), count(*) FROM kitbag_records").fetchall()[0]
            assert seen[0] == seen[1]
            numbers = [record.seq for record in reader.read(page=10_000)]
            assert numbers == list(range(1, len(numbers) + 1))
            looks += 1
    finish(writers)
    assert looks > 3
    assert len(bodies(reader)) == 3 * 3 * count


def test_threads_and_event_loops_share_a_commit(machine: Open, schema: Schema) -> None:
    journal = machine()

    async def write() -> list[int]:
        return list(await asyncio.gather(*(journal.write("s", "k", n) for n in range(200))))

    assert sorted(asyncio.run(write())) == list(range(1, 201))
    [(commits,)] = schema.rows("SELECT max(commit_number) FROM kitbag_writers")
    assert commits < 100


def test_a_frozen_process_keeps_nobody_from_writing(machine: Open, schema: Schema, tmp_path: Path) -> None:
    journal = machine()
    writer = start("print(flush=True)\nwhile True: journal.append('s', 'k', 1)", schema.url, str(tmp_path / "other"))
    assert writer.stdout is not None
    writer.stdout.readline()
    try:
        for _ in range(rounds(40, 6)):
            before = journal.last_seq()
            wait_until(lambda before=before: journal.last_seq() > before, "the other does not write")
            os.kill(writer.pid, signal.SIGSTOP)
            journal.append("s", "k", 2)
            os.kill(writer.pid, signal.SIGCONT)
    finally:
        writer.kill()
        writer.communicate()


# A server that goes away


def test_a_lost_connection_loses_nothing_and_writes_nothing_twice(machine: Open, schema: Schema) -> None:
    journal = machine()
    stop = threading.Event()

    def cut() -> None:
        with psycopg.connect(schema.server.url(), autocommit=True) as connection:
            for _ in range(rounds(200, 15)):
                connection.execute(
                    "SELECT pg_terminate_backend(pid), pg_sleep(0.005) FROM pg_stat_activity"
                    " WHERE application_name = 'kitbag' AND query LIKE '%kitbag_append%'"
                )
        stop.set()

    cutter = threading.Thread(target=cut)
    cutter.start()
    written: list[int] = []
    while not stop.is_set():
        written.append(journal.append("s", "k", len(written)))
    cutter.join()
    assert written == list(range(1, len(written) + 1))
    assert bodies(journal) == list(range(len(written)))


def test_a_statement_that_is_sent_again_returns_its_first_result(schema: Schema) -> None:
    database = Database(schema.url).open()
    batches = [NewBatch([("s", "now", "k", "1", "key")]), NewBatch([("s", "now", "k", "2", "key")])]
    assert database.append(batches) == [[1], [0]]
    database.commits -= 1
    assert database.append(batches) == [[1], [0]]
    assert database.append(batches) == [[0], [0]]
    database.disconnect()
    assert schema.rows("SELECT count(*) FROM kitbag_records") == [(1,)]


def test_a_commit_whose_reply_is_lost_is_written_once(machine: Open, schema: Schema, postgres: Server) -> None:
    with TcpProxy(postgres.port) as proxy:
        journal = machine(url=schema.url.replace(f":{postgres.port}/", f":{proxy.port}/"))
        assert journal.append("s", "k", 1) == 1
        proxy.drop_replies = True
        writing = threading.Thread(target=journal.append, args=("s", "k", 2))
        writing.start()
        # The statement arrived and was committed; nobody heard of it.
        wait_until(lambda: schema.rows("SELECT count(*) FROM kitbag_records") == [(2,)])
        assert proxy.dropped.wait(TEST_TIMEOUT)
        proxy.cut()
        assert [record.body for record in journal.read("s")] == [1]
        assert writing.is_alive()
        proxy.restore()
        writing.join(TEST_TIMEOUT)
        assert journal.append("s", "k", 3) == 3
        assert bodies(journal) == [1, 2, 3]
        assert schema.rows("SELECT count(*) FROM kitbag_records") == [(3,)]


@pytest.mark.parametrize("how", [signal.SIGINT, pytest.param(signal.SIGQUIT, marks=long)])
def test_while_the_server_restarts_reads_go_on_the_loop_runs_and_writes_wait(
    machine: Open, postgres: Server, how: signal.Signals
) -> None:
    journal = machine()
    journal.append("s", "k", 1)

    async def work() -> int:
        await asyncio.to_thread(postgres.stop, how)
        writing = asyncio.create_task(journal.write("s", "k", 2))
        for _ in range(20):  # each turn of the loop reads
            assert [record.body for record in journal.read("s")] == [1]
            await asyncio.sleep(0.01)
        assert not writing.done()
        await asyncio.to_thread(postgres.start)
        return await writing

    try:
        assert asyncio.run(work()) == 2
    finally:
        if postgres._process is None:
            postgres.start()
    assert bodies(journal) == [1, 2]


def test_a_server_that_stays_away_is_a_clear_error_and_the_journal_works_when_it_is_back(
    machine: Open, postgres: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = machine()
    monkeypatch.setattr(postgres_module(), "RECONNECT_SECONDS", 0.3)
    postgres.stop()
    try:
        with pytest.raises(StoreError, match=r"cannot reach postgresql://kitbag@127\.0\.0\.1") as caught:
            journal.append("s", "k", 1)
        assert PASSWORD not in str(caught.value)
        assert "check that the server runs" in caught.value.fix
    finally:
        postgres.start()
    monkeypatch.undo()
    assert journal.append("s", "k", 2) == 1


def postgres_module() -> object:
    return postgres


def test_a_process_that_is_killed_has_lost_nothing_it_was_told_is_written(
    machine: Open, schema: Schema, tmp_path: Path
) -> None:
    for number in range(rounds(10, 2)):
        code = "n = 0\nwhile True:\n  print(journal.append('s', 'k', n), flush=True)\n  n += 1"
        writer = start(code, schema.url, str(tmp_path / f"w{number}"))
        assert writer.stdout is not None
        acknowledged = [int(writer.stdout.readline()) for _ in range(20)]
        writer.kill()
        acknowledged += [int(line) for line in writer.communicate()[0].split("\n")[:-1]]
        journal = machine(f"reader{number}")
        journal.catch_up()
        assert set(acknowledged) <= {record.seq for record in journal.read()}


# The mirror


def test_a_mirror_that_is_gone_or_damaged_is_fetched_again(machine: Open, tmp_path: Path) -> None:
    journal = machine()
    for number in range(300):
        journal.append("s", "k", number)
    path = Path(journal.path)
    journal.close()
    for damage in (b"", b"not a database at all" * 500):
        for file in path.parent.glob("mirror-*"):
            file.unlink()
        if damage:
            path.write_bytes(damage)
        again = machine()
        assert bodies(again) == list(range(300))
        again.close()


def test_a_full_disk_under_the_mirror_loses_nothing_and_reading_says_why(
    machine: Open, schema: Schema, postgres: Server
) -> None:
    journal = machine()
    journal.append("s", "k", 1)
    [[pages]] = journal._mirror._writer.execute("PRAGMA page_count").fetchall()
    for connection in (journal._mirror._writer, journal._file.writer):
        connection.execute(f"PRAGMA max_page_count = {pages}")
    text = "x" * 100_000
    assert journal.append("s", "k", text) == 2  # it is in the database
    with pytest.raises(StoreError, match="full") as caught:
        list(journal.read("s"))
    assert "disk space" in caught.value.fix
    assert schema.rows("SELECT count(*) FROM kitbag_records") == [(2,)]
    for connection in (journal._mirror._writer, journal._file.writer):
        connection.execute("PRAGMA max_page_count = 1000000")
    assert journal.append("s", "k", 3) == 3
    assert bodies(journal) == [1, text, 3]


def test_a_database_from_a_backup_replaces_what_the_mirror_has(machine: Open, schema: Schema, postgres: Server) -> None:
    journal = machine()
    for number in range(5):
        journal.append("s", "k", number)
    other = machine("other")
    journal.close()
    forget = "SET kitbag.pruning = 'on'; DELETE FROM kitbag_records WHERE seq > 3; UPDATE kitbag_counter SET last = 3"
    postgres.run(f"SET search_path = {schema.name}", forget)
    wait_until(lambda: other._behind is not None, "the other process does not notice")
    with pytest.raises(StoreError, match="has fewer records than before"):
        other.last_seq()
    again = machine()
    assert bodies(again) == [0, 1, 2]
    assert again.append("s", "k", "new") == 4
    assert bodies(again) == [0, 1, 2, "new"]


def test_what_is_pruned_is_gone_everywhere(machine: Open, schema: Schema) -> None:
    one, two = machine("one"), machine("two")
    one.append("secret", "k", "CANARY-TEXT")
    one.append("s", "k", 1)
    two.catch_up()
    assert one.delete(["secret"], [], [JournalEntry("s", "left", "x")], []) == 1
    assert bodies(one) == bodies(two) == [1, "x"]
    assert schema.rows("SELECT count(*) FROM kitbag_records WHERE body LIKE '%CANARY%'") == [(0,)]
    assert machine("three").last_seq() == 3
    assert check_database(schema.url) == (2, "")
    with pytest.raises(psycopg.Error, match="records never change"):
        schema.rows("DELETE FROM kitbag_records")


def test_a_record_that_was_changed_in_the_database_is_noticed(machine: Open, schema: Schema, postgres: Server) -> None:
    machine().append("s", "k", 1)
    change = "ALTER TABLE kitbag_records DISABLE TRIGGER ALL; UPDATE kitbag_records SET body = '2'"
    postgres.run(f"SET search_path = {schema.name}", change)
    assert "record 1 of postgresql://" in check_database(schema.url)[1]
    with pytest.raises(StoreError, match=r"record 1 of .* is corrupt"):
        machine("other")


# What can't be used


@pytest.mark.parametrize(
    ("change", "problem", "fix"),
    [
        (lambda url: "mysql://x@h/d", "does not start with postgresql://", "write it as postgresql://"),
        (lambda url: "postgresql://a:pw@[h/d", "is not valid", "write it as postgresql://"),
        (lambda url: url.replace(PASSWORD, "p@ss/w:rd?#%"), "is not valid", "%40 for @"),
        (lambda url: url.replace(PASSWORD, "wrong-pw"), "password authentication failed", "check the user"),
        (lambda url: url.replace("/postgres?", "/nothing?"), "does not exist", "create the database"),
        (lambda url: url.replace("127.0.0.1:", "127.0.0.1:1"), "", ""),
        (lambda url: "postgresql://u:wrong-pw@127.0.0.1:1/d", "cannot reach", "check that the server runs"),
        (lambda url: url + "%20-cdefault_transaction_read_only%3Don", "read-only", "URL of the primary"),
    ],
)
def test_a_url_that_can_t_be_used_is_a_clear_error(
    machine: Open, schema: Schema, change: Callable[[str], str], problem: str, fix: str
) -> None:
    with pytest.raises(StoreError) as caught:
        machine(url=change(schema.url))
    assert problem in caught.value.problem
    assert fix in caught.value.fix
    assert not any(secret in str(caught.value) + caught.value.fix for secret in (PASSWORD, "wrong-pw", ":pw@"))


def test_a_user_without_rights_is_told_which_are_missing(machine: Open, schema: Schema, postgres: Server) -> None:
    postgres.run(
        f"CREATE ROLE {schema.name} LOGIN PASSWORD 'pw'", f"GRANT USAGE ON SCHEMA {schema.name} TO {schema.name}"
    )
    url = postgres.url(schema.name, schema.name, "pw")
    with pytest.raises(StoreError, match="permission denied for schema") as caught:
        machine(url=url)
    assert "GRANT USAGE, CREATE ON SCHEMA" in caught.value.fix
    machine("owner").append("s", "k", 1)
    with pytest.raises(StoreError, match="permission denied for table") as caught:
        machine(url=url)
    assert "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES" in caught.value.fix
    with pytest.raises(StoreError, match="no schema has been selected") as caught:
        machine(url=postgres.url("missing_schema"))
    assert "CREATE SCHEMA" in caught.value.fix
    postgres.run(f"DROP OWNED BY {schema.name}", f"DROP ROLE {schema.name}")


def test_tables_of_an_earlier_format_are_migrated_with_what_they_have(machine: Open, schema: Schema) -> None:
    earlier = (
        "CREATE FUNCTION kitbag_append(writer text, number bigint) RETURNS bigint[] LANGUAGE sql AS 'SELECT seqs FROM kitbag_writers'",
        "CREATE FUNCTION kitbag_prune(deleted bigint[]) RETURNS void LANGUAGE sql AS ''",
        "INSERT INTO kitbag_facts VALUES ('format', '1')",
        "UPDATE kitbag_counter SET last = 1",
        f"INSERT INTO kitbag_records VALUES (1, 's', '', 'k', '1', NULL, {row_checksum('s', '', 'k', '1', None)})",
    )
    schema.server.run(f"SET search_path = {schema.name}", *MIGRATIONS[0], *earlier)
    with machine() as journal:
        assert journal.append("s", "k", 2) == 2
        assert bodies(journal) == [1, 2]
    assert check_database(schema.url) == (2, "")
    functions = f"SELECT proname FROM pg_proc WHERE pronamespace = '{schema.name}'::regnamespace ORDER BY 1"
    assert [name for (name,) in schema.rows(functions)] == [
        "kitbag_append",
        "kitbag_protect",
        "kitbag_prune",
        "kitbag_take",
    ]


def test_a_newer_format_another_encoding_and_an_old_server_are_refused(
    machine: Open, schema: Schema, postgres: Server
) -> None:
    machine().close()
    postgres.run(
        f"SET search_path = {schema.name}", f"UPDATE kitbag_facts SET value = '{FORMAT + 1}' WHERE name = 'format'"
    )
    with pytest.raises(StoreError, match="written by a newer version of Kitbag"):
        machine()
    for damage in ("UPDATE kitbag_facts SET value = 'x' WHERE name = 'format'", "DELETE FROM kitbag_facts"):
        postgres.run(f"SET search_path = {schema.name}", damage)
        with pytest.raises(StoreError, match="has damaged tables: no format in kitbag_facts"):
            machine()
    postgres.run("CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
    with pytest.raises(StoreError, match="has the encoding LATIN1"):
        machine(url=postgres.url(database="latin"))
    postgres.run("DROP DATABASE latin")
    with pytest.raises(StoreError, match="is PostgreSQL 12, which is too old"):
        check_server_version("x", 120_017)


def test_several_that_come_first_at_once_create_the_tables_once(schema: Schema, tmp_path: Path) -> None:
    writers = [
        start("journal.append('s', 'k', 1); journal.close()", schema.url, str(tmp_path / f"w{n}")) for n in range(4)
    ]
    finish(writers)
    assert schema.rows("SELECT count(*) FROM kitbag_records") == [(4,)]


# Servers and URLs of many kinds


def test_a_pool_that_shares_connections_between_clients_is_enough(
    machine: Open, schema: Schema, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As behind a pool by transaction: before each statement, nothing is left of the session."""
    connected = Database._connected

    def forgetful(database: Database) -> "psycopg.Connection[object]":
        connection = connected(database)
        if connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE:
            connection.execute("DISCARD ALL")
        return connection

    monkeypatch.setattr(Database, "_connected", forgetful)
    one, two = machine("one"), machine("two")
    assert one.append("s", "k", 1) == 1
    assert two.wait(0, TEST_TIMEOUT)  # without notifications, by looking
    assert two.append_once("key", "s", "k", 2) == 2
    assert bodies(one) == bodies(two) == [1, 2]
    assert one.delete(["s"], [], [], []) == 2
    assert bodies(two) == []


@pytest.mark.parametrize("kind", ["socket", "escaped socket", "several hosts", "short timeouts", "odd password"])
def test_a_url_of_any_kind_works(
    machine: Open, schema: Schema, postgres: Server, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    port, options = postgres.port, f"options=-csearch_path%3D{schema.name}"
    folder = str(postgres.data.parent)
    odd = "p@ss:w/rd?#[%]&= ü"
    if kind == "odd password":
        postgres.run(f"CREATE ROLE r{schema.name} LOGIN SUPERUSER PASSWORD '{odd}'")
    url = {
        "socket": f"postgresql://kitbag:{PASSWORD}@/postgres?host={folder}&port={port}&{options}",
        "escaped socket": f"postgresql://kitbag:{PASSWORD}@{folder.replace('/', '%2F')}:{port}/postgres?{options}",
        "several hosts": f"postgresql://kitbag:{PASSWORD}@127.0.0.1:1,127.0.0.1:{port}/postgres"
        f"?target_session_attrs=read-write&sslmode=disable&{options}",
        "short timeouts": f"{schema.url}%20-cstatement_timeout%3D9s%20-cdefault_transaction_isolation%3Dserializable",
        "odd password": f"postgresql://r{schema.name}:{quote(odd, safe='')}@127.0.0.1:{port}/postgres?{options}",
    }[kind]
    monkeypatch.setenv("PGCLIENTENCODING", "LATIN1")
    journal = machine(url=url)
    assert journal.append("s", "ü", {"text": "ü"}) == 1
    assert odd not in journal.database.name
    assert journal.database._connected().execute("SHOW statement_timeout").fetchall() == [("0",)]
    journal.close()
    if kind == "odd password":
        postgres.run(f"DROP OWNED BY r{schema.name}", f"DROP ROLE r{schema.name}")


@pytest.mark.parametrize(
    ("addition", "problem", "fix"),
    [
        ("&sslmode=require", "SSL", "check sslmode and the certificates"),
        ("&colour=red", "the database URL has an unknown option: colour", "write it as postgresql://"),
        ("&sslmode=bogus", 'invalid sslmode value: "bogus"', "fix the database URL"),
        ("&port=abc", 'invalid integer value "abc"', "fix the database URL"),
        ("&port=99999", 'invalid port number: "99999"', "fix the database URL"),
        ("&sslpassword=CANARY-pw&x=1", "unknown option: x", ""),
    ],
)
def test_options_of_a_url_that_do_not_fit_are_named(
    machine: Open, schema: Schema, addition: str, problem: str, fix: str
) -> None:
    with pytest.raises(StoreError) as caught:
        machine(url=schema.url + addition)
    assert problem in caught.value.problem
    assert fix in caught.value.fix
    assert isinstance(caught.value, UnreachableError) == (addition == "&sslmode=require")  # others never succeed later


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://u:CANARY%zz@h/d",
        "postgresql://u:CANARY@127.0.0.1:1/d?colour=1",
        "postgresql://u:CANARY@[::1/d",
        "postgresql://u:CANARY@127.0.0.1:1/d?sslpassword=CANARY",
        "postgresql://u@127.0.0.1:1/d?password=CANARY",
        "postgresql://u:a@b:CANARY@127.0.0.1:1/d",
        "postgresql://u:CANARY@127.0.0.1:99999999/d",
    ],
)
def test_a_password_is_in_no_error_and_no_traceback(machine: Open, url: str) -> None:
    with pytest.raises(StoreError) as caught:
        machine(url=url)
    text = "".join(traceback.format_exception(caught.value)) + caught.value.fix
    shown = "\n".join(line for line in text.split("\n") if "machine(url=" not in line)
    assert "CANARY" not in shown


def test_a_server_without_free_connections_is_a_clear_error_and_writes_wait_for_one(
    machine: Open, schema: Schema, postgres: Server
) -> None:
    role = f"r{schema.name}"
    postgres.run(
        f"CREATE ROLE {role} LOGIN PASSWORD 'pw' CONNECTION LIMIT 1", f"GRANT ALL ON SCHEMA {schema.name} TO {role}"
    )
    url = postgres.url(schema.name, role, "pw")
    one = machine(url=url)
    with pytest.raises(StoreError, match=r"has no free connection: .*too many connections for role") as caught:
        machine("two", url=url)
    assert "max_connections" in caught.value.fix
    assert one.append("s", "k", 1) == 1
    one.close()
    postgres.run(f"DROP OWNED BY {role}", f"DROP ROLE {role}")


def test_what_listeners_are_told_is_not_stored(machine: Open) -> None:
    one, two = machine("one"), machine("two")
    wait_until(lambda: two._following._connection is not None, "the follower does not connect")
    for number in range(20):
        one.append("s", "k", number)
    assert two.wait(19, TEST_TIMEOUT)
    connection = two._following._connection
    assert connection is not None
    assert not connection._notifies_backlog


def test_processes_that_ended_leave_nothing_behind(machine: Open, schema: Schema) -> None:
    for name in ("one", "two"):
        journal = machine(name)
        journal.append("s", "k", 1)
        journal.close()
    assert schema.rows("SELECT count(*) FROM kitbag_writers") == [(0,)]


# The program


def test_commands_on_another_machine_show_what_this_one_did(world: World, schema: Schema, tmp_path: Path) -> None:
    world.env["KITBAG_DATABASE_URL"] = schema.url
    world.ok("-p", "hello", "--model", "offline")
    assert not (world.home / ".kitbag" / "state" / "journal.db").exists()
    other = World(tmp_path / "other", world.forkserver) if (tmp_path / "other").mkdir() is None else world
    other.env["KITBAG_DATABASE_URL"] = schema.url
    [session] = other.json("sessions", "list", "--all")
    assert session["directory"] == str(world.workspace)
    assert "hello" in other.ok("sessions", "show", session["id"])
    assert "no problems" in other.ok("store", "check")
    status = other.json("store", "status")
    assert status["database"] == f"postgresql://kitbag@127.0.0.1:{schema.server.port}/postgres"
    assert status["mirror_bytes"] > 0
    assert PASSWORD not in "".join(file.read_text(errors="replace") for file in other.home.rglob("*") if file.is_file())


def test_a_project_cannot_name_the_database_and_settings_do_not_show_its_password(world: World) -> None:
    world.write(".kitbag/settings.toml", '[store]\ndatabase_url = "postgresql://u:pw@127.0.0.1:1/d"\n')
    assert world.json("tasks", "list") == []
    assert "cannot be set by a project" in world.run("config", "list").stderr
    said = world.ok(
        "config", "set", "store.database_url", f"postgresql://u:{PASSWORD}@127.0.0.1:1/d?password={PASSWORD}"
    )
    said += world.ok("config", "list") + world.ok("config", "list", "--json") + world.ok("store")
    assert PASSWORD not in said
    assert "postgresql://u:***@127.0.0.1:1/d?password=***" in said
    done = world.run("tasks", "list")
    assert done.returncode == 6
    assert "cannot reach postgresql://u@127.0.0.1:1/d" in done.stderr
    assert PASSWORD not in done.stderr


def test_without_the_extra_the_error_says_how_to_install_it(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    from kitbag.assembly.open_store import open_database

    for name in [name for name in sys.modules if name.startswith(("psycopg", "kitbag.store.postgres"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(InvalidError, match="cannot use PostgreSQL") as caught:
        open_database("postgresql://h/d", str(world.home), Redactor([]))
    assert caught.value.exit_code == 6
    assert "pip install 'kitbag[fleet]'" in caught.value.fix


def test_records_of_a_secret_are_redacted_before_they_leave_this_machine(schema: Schema, tmp_path: Path) -> None:
    with PostgresJournal.connect(schema.url, str(tmp_path), Redactor(["CANARY_4f7a9c"])) as journal:
        journal.append("s", "k", {"text": "it is CANARY_4f7a9c"})
    [(body,)] = schema.rows("SELECT body FROM kitbag_records")
    assert "CANARY" not in body
    assert json.loads(body)["text"].startswith("it is ")
