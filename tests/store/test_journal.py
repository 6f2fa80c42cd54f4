"""What was acknowledged is there, whoever wrote it and however the process ended; what can't be is said clearly."""

import asyncio
import json
import os
import random
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kitbag.store import journal_file
from kitbag.store.journal import Journal, JournalEntry, journal_path
from kitbag.store.journal_opening import open_journal_file
from kitbag.store.private_files import StoreError
from kitbag.store.redaction import REDACTED, Redactor
from support.disk import PRAGMAS
from support.matrix import examples, rounds
from support.waiting import TEST_TIMEOUT

CANARY = "CANARY_SECRET_4f7a9c"
NOBODY = 65534


@pytest.fixture
def path(tmp_path: Path) -> str:
    return journal_path(str(tmp_path / "home"))


@pytest.fixture
def journal(path: str) -> Iterator[Journal]:
    with Journal.open(path, Redactor([CANARY])) as opened:
        yield opened


def run(code: str, *arguments: str, **options: object) -> "subprocess.Popen[str]":
    """A Kitbag of its own, which gets the journal's path as its first argument."""
    start = (
        "import sys\nfrom kitbag.store.journal import Journal, JournalEntry\nfrom kitbag.store.redaction import Redactor\n"
        "from kitbag.store.private_files import StoreError\n"
    )
    return subprocess.Popen(
        [sys.executable, "-c", start + code, *arguments],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options,  # type: ignore[call-overload]
    )  # fmt: skip


def finish(process: "subprocess.Popen[str]") -> str:
    out, errors = process.communicate(timeout=TEST_TIMEOUT)
    assert process.returncode == 0, errors
    return out


def check(path: str) -> str:
    connection = sqlite3.connect(path)
    try:
        return str(connection.execute("PRAGMA integrity_check").fetchone()[0])
    finally:
        connection.close()


# Writing and reading


def test_records_come_back_in_order_by_stream_and_all_together(journal: Journal) -> None:
    first = journal.append("run/1", "message", {"text": "hello"})
    second, third = journal.append_all(
        [JournalEntry("run/2", "message", [1, None]), JournalEntry("run/1", "end", True)]
    )
    assert first < second < third
    assert [(record.seq, record.kind, record.body) for record in journal.read("run/1")] == [
        (first, "message", {"text": "hello"}),
        (third, "end", True),
    ]
    assert [record.seq for record in journal.read()] == [first, second, third]
    assert [record.seq for record in journal.read(after=second)] == [third]
    last = journal.last("run/1")
    assert last is not None
    assert (last.seq, last.stream, last.at.endswith("Z")) == (third, "run/1", True)
    assert journal.last("nothing") is None
    assert journal.last_seq() == third
    assert journal.append_all([]) == []


def test_streams_are_found_by_what_they_begin_with(journal: Journal) -> None:
    for stream in ("a", "task/1", "task/2", "task/2", "task/10", "tasks", "z"):
        journal.append(stream, "x", None)
    assert journal.streams("task/") == ["task/1", "task/10", "task/2"]
    assert journal.streams() == ["a", "task/1", "task/10", "task/2", "tasks", "z"]
    assert journal.streams("none") == []


def test_more_records_than_a_page_are_read_and_writing_goes_on_meanwhile(journal: Journal) -> None:
    journal.append_all([JournalEntry("s", "n", number) for number in range(1700)])
    reading = journal.read("s")
    assert next(reading).body == 0
    journal.append("s", "n", 1700)
    assert [record.body for record in reading] == list(range(1, 1701))


@given(
    st.recursive(
        st.none() | st.integers() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
    )
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(50))
def test_any_text_can_be_stored_half_characters_and_nul_too(journal: Journal, value: object) -> None:
    value = {"value": value, "odd": "\0\udfff\ud800\n\u2028'\";--"}
    journal.append("odd", "x", value)
    last = journal.last("odd")
    assert last is not None
    assert last.body == journal.redactor.redact_value(value)


def test_what_is_no_json_is_refused_and_the_journal_goes_on(journal: Journal) -> None:
    deep: object = 1
    for _ in range(100_000):
        deep = [deep]
    for value in (float("nan"), float("inf"), deep):
        with pytest.raises(StoreError, match="as JSON"):
            journal.append("s", "x", value)
    with pytest.raises(ValueError):
        journal.append("s\0", "x", 1)
    assert journal.append("s", "x", 1) == 1


def test_no_record_holds_a_secret_and_no_file_does(journal: Journal, path: str) -> None:
    journal.append("s", "output", {"text": f"the key is {CANARY}", "env": {"API_KEY": "other-secret"}})
    asyncio.run(journal.write("s", "output", [CANARY.encode().hex()]))
    assert [record.body for record in journal.read("s")] == [
        {"text": f"the key is {REDACTED}", "env": {"API_KEY": REDACTED}},
        [REDACTED],
    ]
    journal.close()
    for name in os.listdir(os.path.dirname(path)):
        data = Path(path).with_name(name).read_bytes()
        assert CANARY.encode() not in data
        assert b"other-secret" not in data


def test_files_are_the_user_s_alone_whatever_the_umask(path: str) -> None:
    code = (
        "import os; os.umask(0); j = Journal.open(sys.argv[1], Redactor()); j.append('s', 'x', 1)\n"
        "print('open', flush=True); sys.stdin.read()"
    )
    process = run(code, path)
    assert process.stdout is not None
    process.stdout.readline()
    folder = Path(path).parent
    assert {stat.S_IMODE(file.lstat().st_mode) for file in folder.iterdir()} == {0o600}
    assert {file.name for file in folder.iterdir()} >= {"journal.db", "journal.db-wal", "journal.db-shm"}
    assert stat.S_IMODE(folder.lstat().st_mode) == 0o700
    finish(process)


@pytest.mark.parametrize("link", ["state", "state/journal.db", "state/journal.db-wal", "state/journal.db.lock"])
def test_nothing_is_opened_through_a_link(tmp_path: Path, link: str) -> None:
    home = tmp_path / "home"
    outside = tmp_path / "outside"
    outside.mkdir()
    (home / link).parent.mkdir(parents=True)
    (home / link).symlink_to(outside if link == "state" else outside / "file")
    with pytest.raises(StoreError):
        Journal.open(journal_path(str(home)), Redactor())
    assert list(outside.iterdir()) == []


def test_records_never_change_and_are_never_deleted(journal: Journal, path: str) -> None:
    journal.append("s", "x", 1)
    connection = sqlite3.connect(path)
    for statement in ("UPDATE records SET body = '2'", "DELETE FROM records"):
        with pytest.raises(sqlite3.IntegrityError):
            connection.execute(statement)
    connection.close()


# Many at once


def test_of_all_who_write_with_one_key_the_first_wins(journal: Journal, path: str) -> None:
    code = (
        "j = Journal.open(sys.argv[1], Redactor())\nsys.stdin.read(1)\nprint(j.append_once('k', 's', 'x', sys.argv[2]))"
    )
    processes = [run(code, path, str(number)) for number in range(3)]
    mine: list[int | None] = []
    threads = [threading.Thread(target=lambda: mine.append(journal.append_once("k", "s", "x", "me"))) for _ in range(8)]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("g")
        process.stdin.flush()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(TEST_TIMEOUT)
    answers = [finish(process).strip() for process in processes] + [str(seq) for seq in mine]
    assert len(answers) == 11
    assert [answer for answer in answers if answer != "None"] == ["1"]
    assert len(list(journal.read("s"))) == 1
    assert journal.append_once("other", "s", "x", 1) is not None


def test_several_records_with_one_key_are_written_together_or_not_at_all(journal: Journal) -> None:
    def both(value: int) -> bool:
        entries = [JournalEntry("a", "first", value), JournalEntry("b", "second", value)]
        return bool(asyncio.run(journal.write_all_once("key", entries)))

    assert [both(1), both(2)] == [True, False]
    assert [(record.stream, record.body) for record in journal.read()] == [("a", 1), ("b", 1)]


def test_two_processes_lose_nothing_of_each_other(path: str) -> None:
    code = (
        "j = Journal.open(sys.argv[1], Redactor())\nfor n in range(50): print(j.append('s/' + sys.argv[2], 'task', n))"
    )
    processes = [run(code, path, name) for name in "ab"]
    given_out = [int(line) for process in processes for line in finish(process).split()]
    with Journal.open(path, Redactor()) as journal:
        assert sorted(given_out) == [record.seq for record in journal.read()] == list(range(1, 101))
        for name in "ab":
            assert [record.body for record in journal.read(f"s/{name}")] == list(range(50))


def test_threads_and_event_loops_share_one_journal(journal: Journal) -> None:
    async def many(name: str) -> None:
        async def one(number: int) -> None:
            for turn in range(5):
                await journal.write(f"{name}/{number}", "x", turn)

        await asyncio.gather(*(one(number) for number in range(40)))

    def plain(name: str) -> None:
        for turn in range(40):
            journal.append(name, "x", turn)

    threads = [threading.Thread(target=lambda name=name: asyncio.run(many(name))) for name in ("loop-1", "loop-2")]
    threads += [threading.Thread(target=plain, args=(f"thread-{number}",)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(TEST_TIMEOUT)
    assert journal.last_seq() == 2 * 40 * 5 + 4 * 40
    for stream in journal.streams():
        turns = [record.body for record in journal.read(stream)]
        assert turns == list(range(len(turns)))


def test_those_who_wait_together_share_a_commit(journal: Journal) -> None:
    async def main() -> None:
        await journal.write("s", "x", 0)
        before = commits(journal)
        await asyncio.gather(*(journal.write("s", "x", number) for number in range(500)))
        assert commits(journal) - before < 250

    asyncio.run(main())


def commits(journal: Journal) -> int:
    """From the head of the write-ahead log: each frame that ends a commit has a size."""
    data = Path(journal.path + "-wal").read_bytes()
    page = int.from_bytes(data[8:12], "big")
    return sum(data[at + 4 : at + 8] != b"\0\0\0\0" for at in range(32, len(data), page + 24))


def test_a_record_that_can_t_be_written_takes_no_other_with_it(journal: Journal, path: str) -> None:
    connection = journal._file.writer  # pyright: ignore[reportPrivateUsage]
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 100_000)

    async def main() -> list[object]:
        return await asyncio.gather(
            *(journal.write("s", "x", "y" * length) for length in (10, 200_000, 20)), return_exceptions=True
        )

    one, two, three = asyncio.run(main())
    assert isinstance(two, StoreError)
    assert "record too large" in two.problem
    assert {one, three} == {1, 2}


def test_a_write_that_is_cancelled_breaks_nothing(journal: Journal) -> None:
    async def main() -> None:
        tasks = [asyncio.create_task(journal.write("s", "x", number)) for number in range(20)]
        await asyncio.sleep(0)
        for task in tasks[::2]:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await journal.write("s", "end", None)

    asyncio.run(main())
    assert {record.body for record in journal.read("s")} >= set(range(1, 20, 2))


def test_after_it_is_closed_or_forked_it_says_so(path: str) -> None:
    journal = Journal.open(path, Redactor())
    child = os.fork()
    if child == 0:
        try:
            journal.append("s", "x", 1)
        except StoreError:
            os._exit(7)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    journal.append("s", "x", 1)
    journal.close()
    journal.close()
    with pytest.raises(StoreError, match="closed"):
        journal.append("s", "x", 1)
    with pytest.raises(StoreError, match="closed"):
        asyncio.run(journal.write("s", "x", 1))
    with pytest.raises(StoreError, match="closed"):
        list(journal.read())


# Waiting


def test_waiting_ends_when_another_process_writes(journal: Journal, path: str) -> None:
    assert not journal.wait(0, 0.01)
    code = "j = Journal.open(sys.argv[1], Redactor())\nsys.stdin.read(1)\nj.append('s', 'x', 1)"
    process = run(code, path)
    assert process.stdin is not None
    process.stdin.write("g")
    process.stdin.flush()
    assert journal.wait(0, TEST_TIMEOUT)
    finish(process)


def test_an_event_loop_can_wait_for_this_and_other_processes(journal: Journal, path: str) -> None:
    async def main() -> None:
        waiting = [asyncio.create_task(journal.wait_async(0)) for _ in range(20)]
        assert await journal.wait_async(0, 0.01) is False
        process = run("Journal.open(sys.argv[1], Redactor()).append('s', 'x', 1)", path)
        assert await asyncio.wait_for(asyncio.gather(*waiting), TEST_TIMEOUT) == [True] * 20
        finish(process)
        here = asyncio.create_task(journal.wait_async(1))
        await asyncio.sleep(0)
        await journal.write("s", "x", 2)
        assert await asyncio.wait_for(here, TEST_TIMEOUT)
        gone = asyncio.create_task(journal.wait_async(99))
        await asyncio.sleep(0)
        gone.cancel()
        with pytest.raises(asyncio.CancelledError):
            await gone

    asyncio.run(main())


# Crashes


def test_sqlite_syncs_each_commit_so_that_a_power_cut_takes_nothing_that_was_acknowledged(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_file, "PRAGMAS", PRAGMAS)
    file = open_journal_file(path)
    try:
        assert file.writer.execute("PRAGMA synchronous").fetchone() == (2,), "2 is FULL"
    finally:
        file.writer.close()
        file.reader.close()
        os.close(file.lock_fd)


def test_every_number_that_was_given_out_is_there_after_a_kill(path: str) -> None:
    code = (
        "import asyncio, os, threading\n"
        "def tell(seq): os.write(1, b'%d\\n' % seq)\n"
        "j = Journal.open(sys.argv[1], Redactor())\n"
        "def plain():\n"
        "    while True: tell(j.append('s', 'x', 'y' * 300))\n"
        "async def one():\n"
        "    while True: tell(await j.write('a', 'x', 'z' * 300))\n"
        "async def main(): await asyncio.gather(*(one() for _ in range(5)))\n"
        "for _ in range(5): threading.Thread(target=plain, daemon=True).start()\n"
        "asyncio.run(main())\n"
    )
    chance = random.Random(7)
    promised: set[int] = set()
    kills = rounds(12, 4)
    for _ in range(kills):
        process = run(code, path)
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(chance.randrange(1, 120))]
        process.send_signal(signal.SIGKILL)
        lines += process.stdout.readlines()
        process.communicate(timeout=TEST_TIMEOUT)
        promised.update(int(line) for line in lines if line.endswith("\n"))
        with Journal.open(path, Redactor()) as journal:
            assert promised <= {record.seq for record in journal.read()}
        assert check(path) == "ok"
    assert len(promised) > kills


@pytest.fixture(scope="module")
def cut_off(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as a killed process leaves it: most of the journal is in the write-ahead log."""
    home = tmp_path_factory.mktemp("killed")
    code = (
        "import os, signal\nj = Journal.open(sys.argv[1], Redactor())\n"
        "for n in range(30): j.append('s', 'x', n)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    run(code, journal_path(str(home))).communicate(timeout=TEST_TIMEOUT)
    return home / "state"


@given(st.floats(0, 1), st.binary(max_size=40))
@settings(max_examples=examples(60))
def test_of_a_log_that_was_cut_or_overwritten_the_records_before_are_there(
    cut_off: Path, tmp_path_factory: pytest.TempPathFactory, where: float, garbage: bytes
) -> None:
    folder = tmp_path_factory.mktemp("cut") / "state"
    shutil.copytree(cut_off, folder)
    log = folder / "journal.db-wal"
    data = log.read_bytes()
    assert len(data) > 10_000
    log.write_bytes(data[: int(len(data) * where)] + garbage)
    with Journal.open(str(folder / "journal.db"), Redactor()) as journal:
        bodies = [record.body for record in journal.read("s")]
        assert bodies == list(range(len(bodies)))
        journal.append("s", "x", "new")
        assert [record.body for record in journal.read("s")] == [*bodies, "new"]
    shutil.rmtree(folder.parent)


def filled(path: str, count: int = 3000) -> None:
    with Journal.open(path, Redactor()) as journal:
        journal.append_all([JournalEntry("s", "x", f"{number} {'y' * 100}") for number in range(count)])


@pytest.mark.parametrize(
    "damage",
    ["no database", "head", "middle", "cut", "index"],
)
def test_a_damaged_file_is_set_aside_and_its_readable_records_are_kept(path: str, damage: str) -> None:
    filled(path)
    file = Path(path)
    data = bytearray(file.read_bytes())
    if damage == "no database":
        data = bytearray(b"this was a text" * 100)
    elif damage == "head":
        data[:100] = os.urandom(100)
    elif damage == "cut":
        data = data[: len(data) // 2]
    elif damage == "index":
        # The last pages are the index's: the table was there first.
        data[-8192:] = os.urandom(8192)
    else:
        middle = len(data) // 2 // 4096 * 4096
        data[middle : middle + 8192] = os.urandom(8192)
    file.write_bytes(data)
    with Journal.open(path, Redactor()) as journal:
        assert journal.recovery is not None
        aside = Path(journal.recovery.folder)
        assert (aside / "journal.db").read_bytes() == bytes(data)
        bodies = [record.body for record in journal.read("s")]
        assert bodies == [f"{number} {'y' * 100}" for number in range(len(bodies))]
        assert len(bodies) == journal.recovery.records
        assert bool(bodies) == (damage in ("middle", "cut", "index"))
        (note,) = journal.read("journal")
        assert (note.kind, note.body["folder"]) == ("damaged", str(aside))
        assert journal.append("s", "x", "on") > 3000, "no number is given out twice"
        assert stat.S_IMODE(aside.lstat().st_mode) == 0o700
        assert "journal.db" in os.listdir(aside)
    assert check(path) == "ok"
    with Journal.open(path, Redactor()) as journal:
        assert journal.recovery is None


def test_what_was_made_of_a_damaged_file_takes_its_place_after_a_crash(path: str) -> None:
    filled(path, 3)
    os.rename(path, f"{path}.new")
    with Journal.open(path, Redactor()) as journal:
        assert len(list(journal.read("s"))) == 3
    assert not os.path.exists(f"{path}.new")


def test_a_damaged_file_that_another_has_open_is_left_alone(path: str) -> None:
    filled(path)
    code = "j = Journal.open(sys.argv[1], Redactor())\nprint('open', flush=True)\nsys.stdin.read()"
    process = run(code, path)
    assert process.stdout is not None
    process.stdout.readline()
    Path(path).write_bytes(b"this was a text" * 100)
    with pytest.raises(StoreError, match="in use by another"):
        Journal.open(path, Redactor())
    assert Path(path).read_bytes().startswith(b"this was")
    process.kill()
    process.communicate(timeout=TEST_TIMEOUT)
    with Journal.open(path, Redactor()) as journal:
        assert journal.recovery is not None


# What stands in the way


def test_a_newer_journal_and_another_s_database_are_refused_and_left_as_they_are(path: str) -> None:
    filled(path, 3)
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA user_version = {journal_file.VERSION + 1}")
    connection.close()
    with pytest.raises(StoreError, match="newer version") as newer:
        Journal.open(path, Redactor())
    assert newer.value.exit_code == 6
    os.unlink(path)
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE theirs (x)")
    connection.close()
    before = Path(path).read_bytes()
    with pytest.raises(StoreError, match="another application"):
        Journal.open(path, Redactor())
    assert Path(path).read_bytes() == before


def test_a_journal_that_is_locked_for_a_while_is_waited_for(path: str) -> None:
    filled(path, 1)
    with Journal.open(path, Redactor()) as journal:
        other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        other.execute("BEGIN EXCLUSIVE")
        release = threading.Timer(rounds(8, 1), lambda: other.execute("COMMIT"))
        release.start()
        opened = run("Journal.open(sys.argv[1], Redactor()).append('s', 'x', 2)", path)
        seqs = [journal.append("s", "x", 1), asyncio.run(journal.write("s", "x", 3))]
        finish(opened)
        release.join()
        other.close()
        assert len({record.seq for record in journal.read("s")} & {2, 3, 4}) == 3
        assert set(seqs) <= {2, 3, 4}


def test_a_journal_that_is_locked_for_ever_is_a_clear_error(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_file, "BUSY_SECONDS", 0.2)
    with Journal.open(path, Redactor()) as journal:
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(StoreError) as busy:
            journal.append("s", "x", 1)
        assert "locked by another" in busy.value.problem
        assert "database is locked" not in busy.value.problem
        other.execute("ROLLBACK")
        other.close()
        assert journal.append("s", "x", 1) == 1


def test_a_full_disk_is_a_clear_error_and_nothing_that_was_promised_is_lost(path: str) -> None:
    code = (
        "import resource, signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "j = Journal.open(sys.argv[1], Redactor())\n"
        "print(j.append('s', 'x', 1))\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, resource.RLIM_INFINITY))\n"
        "try: j.append('s', 'x', 'y' * 500_000)\n"
        "except StoreError as error: print(error.problem)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))\n"
        "print(j.append('s', 'x', 2))\n"
    )
    one, problem, two = finish(run(code, path)).splitlines()
    assert (one, two) == ("1", "2")
    assert "cannot" in problem
    with Journal.open(path, Redactor()) as journal:
        assert [record.body for record in journal.read("s")] == [1, 2]
        connection = journal._file.writer  # pyright: ignore[reportPrivateUsage]
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(StoreError, match="No space left") as full:
            journal.append("s", "x", "y" * 100_000)
        assert full.value.fix == "free up disk space"


def test_a_directory_that_can_t_be_written_to_is_a_clear_error(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o555)
    code = (
        "import os, signal, urllib.parse, fcntl\n"
        "if os.geteuid() == 0: os.setuid(int(sys.argv[2]))\n"
        "try: Journal.open(sys.argv[1], Redactor())\n"
        "except StoreError as error: print(error.problem, '|', error.fix)\n"
    )
    for folder in (tmp_path, *tmp_path.parents[:2]):
        folder.chmod(0o755)
    out = finish(run(code, journal_path(str(home)), str(NOBODY)))
    assert "Permission denied | make it writable, or set KITBAG_HOME" in out


def test_what_one_version_wrote_the_next_brings_up_to_date_or_leaves_as_it_was(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(path, 3)
    broken = (*journal_file.MIGRATIONS, ("ALTER TABLE records ADD COLUMN extra", "NO SQL"))
    monkeypatch.setattr(journal_file, "MIGRATIONS", broken)
    monkeypatch.setattr(journal_file, "VERSION", len(broken))
    with pytest.raises(StoreError):
        Journal.open(path, Redactor())
    monkeypatch.undo()
    with Journal.open(path, Redactor()) as journal:
        assert len(list(journal.read())) == 3


def test_bodies_are_plain_json_in_the_file(journal: Journal, path: str) -> None:
    journal.append("s", "x", {"a": "ä"})
    connection = sqlite3.connect(path)
    (body,) = connection.execute("SELECT body FROM records").fetchone()
    connection.close()
    assert json.loads(body) == {"a": "ä"}
