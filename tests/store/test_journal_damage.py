"""Whatever happens to the bytes of the journal, what is read from it is what was written, from the first record on, and a
loss is reported."""

import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from kitbag.store import journal_file
from kitbag.store.damage_notices import acknowledge, read_notices
from kitbag.store.fault_points import JOURNAL_POINTS, VARIABLE
from kitbag.store.journal import Journal, JournalEntry, journal_path
from kitbag.store.private_files import StoreError
from kitbag.store.redaction import Redactor
from support.matrix import sample
from support.waiting import TEST_TIMEOUT

Row = tuple[int, str, str, object]

WRITE = """
import os, random, signal, sys
from kitbag.store import journal
from kitbag.store.journal import Journal, JournalEntry
from kitbag.store.redaction import Redactor
journal._CHECKPOINT_BYTES = int(sys.argv[3])
chance = random.Random(3)
opened = Journal.open(sys.argv[1], Redactor())
for number in range(90):
    stream = chance.choice(["tasks", "session/a", "session/b", "approvals"])
    body = {"id": number, "text": chance.choice("xyz") * chance.choice([3, 40, 300, 9000])}
    if number % 5:
        opened.append(stream, "kind", body)
    else:
        opened.append_once(f"key:{number // 2}", stream, "keyed", body)
if sys.argv[2] == "kill":
    os.kill(os.getpid(), signal.SIGKILL)
opened.close()
"""


class Written(NamedTuple):
    home: Path
    rows: list[Row]
    """What was written, read by SQLite alone from the undamaged file."""


def rows_in(path: Path) -> list[Row]:
    connection = sqlite3.connect(path)
    try:
        found = connection.execute("SELECT seq, stream, kind, body FROM records ORDER BY seq").fetchall()
    finally:
        connection.close()
    return [(seq, stream, kind, json.loads(body)) for seq, stream, kind, body in found]


@pytest.fixture(scope="module", params=["closed", "log only", "log and file"])
def written(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Written:
    """Closed, or as a killed process leaves it: with a log that is in the file in part, or not at all."""
    home = tmp_path_factory.mktemp("written")
    end = "close" if request.param == "closed" else "kill"
    limit = "60000" if request.param == "log and file" else "4000000"
    arguments = [sys.executable, "-c", WRITE, journal_path(str(home)), end, limit]
    subprocess.run(arguments, check=end == "close", timeout=TEST_TIMEOUT)
    copy = tmp_path_factory.mktemp("truth") / "state"
    shutil.copytree(home / "state", copy)
    return Written(home, rows_in(copy / "journal.db"))


def damage(data: bytes, chance: random.Random) -> bytes:
    where = chance.randrange(len(data))
    match chance.randrange(5):
        case 0:
            return data[:where]
        case 1:
            return data[: where // 4096 * 4096]
        case 2:
            return data[:where] + bytes(min(4096, len(data) - where)) + data[where + 4096 :]
        case _:  # most are single flipped bits, which SQLite does not notice
            changed = bytearray(data)
            for _ in range(chance.choice([1, 1, 3])):
                changed[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
            return bytes(changed)


@pytest.mark.parametrize("seed", sample(range(250), 15))
def test_of_a_damaged_copy_a_true_prefix_is_read_or_a_clear_error_is_raised(
    written: Written, seed: int, tmp_path: Path
) -> None:
    chance = random.Random(seed)
    home = tmp_path / "home"
    shutil.copytree(written.home, home)
    files = [home / "state" / name for name in ("journal.db", "journal.db-wal")]
    files = [file for file in files if file.exists() and file.stat().st_size]
    file = chance.choice(files)
    file.write_bytes(damage(file.read_bytes(), chance))
    try:
        with Journal.open(journal_path(str(home)), Redactor()) as journal:
            read = [(one.seq, one.stream, one.kind, one.body) for one in journal.read() if one.stream != "journal"]
            by_stream = {
                name: [one.seq for one in journal.read(name)] for name in journal.streams() if name != "journal"
            }
            assert journal.append("s", "x", 1) > (written.rows[-1][0] if journal.recovery else 0)
    except StoreError as error:
        if "newer version" not in error.problem and "another application" not in error.problem:
            raise
        return
    assert read == written.rows[: len(read)]
    assert by_stream == {name: [row[0] for row in read if row[1] == name] for name in {row[1] for row in read}}
    if len(read) < len(written.rows):
        assert journal.recovery is not None
        assert read_notices(str(home)), "the loss is reported"
    assert rows_in(home / "state/journal.db")[: len(read)] == read


@pytest.fixture
def path(tmp_path: Path) -> str:
    return journal_path(str(tmp_path / "home"))


def fill(path: str, count: int = 5) -> None:
    with Journal.open(path, Redactor()) as journal:
        journal.append_all([JournalEntry("s", "x", f"{number} {'y' * 100}") for number in range(count)])


def change(path: str, query: str, *values: object) -> None:
    """As a defect of the disk would, past the triggers."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("DROP TRIGGER records_stay")
    connection.execute(query, values)
    connection.close()


@pytest.mark.parametrize(
    ("query", "value"),
    [
        ("UPDATE records SET body = ? WHERE seq = 3", '"3 zzz"'),
        ("UPDATE records SET body = CAST(? AS TEXT) WHERE seq = 3", b'"\xff\xfe"'),
        ("UPDATE records SET body = ? WHERE seq = 3", 7),
        ("UPDATE records SET at = ? WHERE seq = 3", b"2026"),
        ("UPDATE records SET checksum = ? WHERE seq = 3", None),
        ("UPDATE records SET seq = ? WHERE seq = 3", 9),
    ],
)
def test_a_record_that_is_not_what_was_written_ends_what_is_read(path: str, query: str, value: object) -> None:
    fill(path)
    change(path, query, value)
    with Journal.open(path, Redactor()) as journal:
        assert journal.recovery is not None
        assert [record.seq for record in journal.read("s")] == [1, 2]
    assert [notice.records for notice in read_notices(os.path.dirname(os.path.dirname(path)))] == [2]


def test_damage_that_is_met_while_reading_is_a_clear_error_and_the_next_process_recovers(path: str) -> None:
    fill(path)
    with Journal.open(path, Redactor()) as journal:
        change(path, "UPDATE records SET body = CAST(? AS TEXT) WHERE seq = 3", b'"\xff\xfe"')
        with pytest.raises(StoreError, match="corrupt"):
            list(journal.read("s"))
    with Journal.open(path, Redactor()) as journal:
        assert [record.seq for record in journal.read("s")] == [1, 2]


def test_a_lost_end_is_noticed_even_if_the_file_itself_is_sound(path: str, tmp_path: Path) -> None:
    fill(path)
    earlier = Path(path).read_bytes()
    fill(path)
    Path(path).write_bytes(earlier)
    with Journal.open(path, Redactor()) as journal:
        assert journal.recovery is not None
        assert "6 to 10" in journal.recovery.problem
        assert len(list(journal.read("s"))) == 5
        assert journal.append("s", "x", 1) > 10


def test_a_journal_that_the_user_removed_is_no_damage(path: str) -> None:
    fill(path)
    os.unlink(path)
    for _ in range(2):
        with Journal.open(path, Redactor()) as journal:
            assert journal.recovery is None
            journal.append("s", "x", 1)


def test_a_killed_process_leaves_nothing_to_check(written: Written, monkeypatch: pytest.MonkeyPatch) -> None:
    from kitbag.store import journal_opening

    copy = written.home.parent / f"{written.home.name}-again"
    shutil.copytree(written.home, copy)

    def checked(*_: object) -> int:
        raise AssertionError("the whole file was read")

    monkeypatch.setattr(journal_opening, "check_records", checked)
    with Journal.open(journal_path(str(copy)), Redactor()) as journal:
        assert len(list(journal.read())) == len(written.rows)


def test_damage_is_reported_until_it_is_acknowledged(path: str) -> None:
    home = os.path.dirname(os.path.dirname(path))
    for count in (1, 2):
        fill(path)
        Path(path).write_bytes(b"no database" * 100)
        Journal.open(path, Redactor()).close()
        assert len(read_notices(home)) == count
    assert len(acknowledge(home)) == 2
    assert read_notices(home) == []
    (Path(home) / "state/damage.json").write_text("{")
    assert "damaged too" in read_notices(home)[0].text()
    acknowledge(home)
    assert read_notices(home) == []


# Earlier versions


def make_first_format(path: str, count: int) -> None:
    os.makedirs(os.path.dirname(path))
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    for statement in journal_file.MIGRATIONS[0]:
        connection.execute(statement)
    connection.execute(f"PRAGMA application_id = {journal_file.APPLICATION_ID}")
    connection.execute("PRAGMA user_version = 1")
    add_first_format(connection, count)
    connection.close()


def add_first_format(connection: sqlite3.Connection, count: int) -> None:
    for number in range(count):
        connection.execute(
            "INSERT INTO records (stream, at, kind, body, key) VALUES ('s', 'then', 'x', ?, ?)"
            " ON CONFLICT (key) WHERE key IS NOT NULL DO NOTHING",
            (str(number), "same" if number % 3 else None),
        )


def test_records_without_a_checksum_are_read_and_stay_after_damage(path: str) -> None:
    make_first_format(path, 9)
    with Journal.open(path, Redactor()) as journal:
        before = [(record.seq, record.body) for record in journal.read("s")]
        assert [body for _, body in before] == [0, 1, 3, 6], "numbers have gaps where a key existed"
        journal.append("s", "x", "new")
        journal.append("s", "x", "newer")
    change(path, "UPDATE records SET body = '5' WHERE body = '\"newer\"'")
    for _ in range(2):
        with Journal.open(path, Redactor()) as journal:
            assert [(record.seq, record.body) for record in journal.read("s")][:4] == before
            assert [record.body for record in journal.read("s")][4:] == ["new"]
    with Journal.open(path, Redactor()) as journal:
        assert journal.recovery is None


def test_a_process_of_an_earlier_version_may_still_write(path: str) -> None:
    make_first_format(path, 3)
    earlier = sqlite3.connect(path, isolation_level=None)
    with Journal.open(path, Redactor()) as journal:
        journal.append("s", "x", "new")
        add_first_format(earlier, 3)
        journal.append("s", "x", "newer")
        assert [record.body for record in journal.read("s")] == [0, 1, "new", 0, "newer"]
    earlier.close()
    os.utime(path)  # so that all of it is checked
    with Journal.open(path, Redactor()) as journal:
        assert journal.recovery is None


OPEN = """
import sys
from kitbag.store.journal import Journal
from kitbag.store.redaction import Redactor
Journal.open(sys.argv[1], Redactor()).close()
"""


@pytest.mark.parametrize("point", [*JOURNAL_POINTS, "journal-aside:2", "journal-aside:3"])
def test_a_process_that_is_killed_there_loses_nothing(path: str, point: str) -> None:
    make_first_format(path, 9)
    if point != "journal-migrated":
        Journal.open(path, Redactor()).close()
        fill(path, 2)
        change(path, "UPDATE records SET body = '5' WHERE seq = (SELECT max(seq) FROM records)")
    killed = subprocess.run(
        [sys.executable, "-c", OPEN, path], env=os.environ | {VARIABLE: point}, timeout=TEST_TIMEOUT
    )
    assert killed.returncode == -signal.SIGKILL
    with Journal.open(path, Redactor()) as journal:
        expected = [0, 1, 3, 6] + ([f"0 {'y' * 100}"] if point != "journal-migrated" else [])
        assert [record.body for record in journal.read("s")] == expected
    assert bool(read_notices(os.path.dirname(os.path.dirname(path)))) == (point != "journal-migrated")
