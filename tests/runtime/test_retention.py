"""What is old is deleted with all that belongs to it, and gone from the files; what is in use or unmerged stays."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kitbag.agent.resume import fork, resume
from kitbag.agent.session import Session
from kitbag.agent.session_list import list_sessions
from kitbag.agent.session_records import SessionHeader
from kitbag.errors import InvalidError, NotFoundError
from kitbag.messages import Message, Text, Usage
from kitbag.runtime.retention import delete_session, prune, prune_daily
from kitbag.runtime.session_locks import hold_session
from kitbag.store import journal_prune
from kitbag.store.content_store import ContentStore
from kitbag.store.fault_points import PRUNE_POINTS, VARIABLE
from kitbag.store.journal import Journal, journal_path
from kitbag.store.journal_prune import is_pruning_due
from kitbag.store.journal_status import check_journal
from kitbag.store.redaction import Redactor
from kitbag.tasks.board import Board
from kitbag.tasks.queue_limits import QUEUE_STREAM_PREFIX
from kitbag.tasks.task import TaskRequest, TaskResult
from store.test_derived_tables import rebuilt, state
from support.waiting import TEST_TIMEOUT

SECRET = "xylophone-"
"""Starts all texts that must be gone."""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def opened(home: Path) -> Journal:
    return Journal.open(journal_path(str(home)), Redactor())


async def add(journal: Journal, home: Path, name: str, *, ends: bool = True) -> None:
    """A session that changed a file, with a task of its own that has output."""
    session, board, contents = Session(journal, name), Board(journal), ContentStore(str(home))
    await session.start(SessionHeader(directory="/w", model="m", mode="default"))
    await session.add_user([Text(f"{SECRET}question {name}")])
    digests = [contents.put(f"{SECRET}{name}".encode()), contents.put(b"shared")]
    files = [["/w/a", None, ["file", digest, 0o644], False] for digest in digests]
    journal.append(session.stream, "change", {"files": files})
    await session.add_reply(Message("assistant", (Text(f"{SECRET}reply " * 2000),)), Usage(), 0.0, "m")
    await session.record_end("completed")
    task_id = f"task{name}"
    request = TaskRequest(agent="Explore", prompt=f"{SECRET}prompt", description=f"{SECRET}task", directory="/w")
    task = await board.create(task_id, "agent", request, root=name, parent="", depth=1, background=True)
    child = Session(journal, task_id)
    await child.start(SessionHeader(directory="/w", model="m", mode="default", task=task_id))
    await child.add_user([Text(f"{SECRET}below")])
    output = home / "state/output" / task_id
    output.parent.mkdir(exist_ok=True)
    output.write_text(f"{SECRET}output")
    if ends and await board.claim(task):
        await board.finish(task_id, 1, TaskResult(status="completed", text=f"{SECRET}answer"))


def fill(home: Path, *names: str, ends: bool = True) -> None:
    with opened(home) as journal:
        for name in names:
            asyncio.run(add(journal, home, name, ends=ends))


def files_with(home: Path, text: str) -> list[str]:
    return [str(path) for path in sorted(home.rglob("*")) if path.is_file() and text.encode() in path.read_bytes()]


def later(monkeypatch: pytest.MonkeyPatch, days: float) -> None:
    """The clock of the retention says so many days later."""
    from datetime import UTC, datetime, timedelta

    from kitbag.runtime import retention

    class Later(datetime):
        @classmethod
        def now(cls, tz: object = None) -> "datetime":  # type: ignore[override]
            return datetime.now(UTC) + timedelta(days=days)

    monkeypatch.setattr(retention, "datetime", Later)


def test_what_is_old_is_gone_from_all_files_and_of_a_task_its_status_and_dates_stay(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(home, "aaa1", "aaa2")
    assert len(files_with(home, SECRET)) >= 4
    with opened(home) as journal:
        before = Board(journal).find("taskaaa1")
        assert prune(journal, str(home), 30).sessions == []
        later(monkeypatch, 31)
        shown = prune(journal, str(home), 30, dry_run=True)
        assert shown.sessions == ["aaa1", "aaa2"]
        assert len(list_sessions(journal)) == 2
        report = prune(journal, str(home), 30)
        assert (report.sessions, report.tasks) == (shown.sessions, shown.tasks)
        assert list_sessions(journal) == []
        left = Board(journal).find("taskaaa1")
        assert (left.status, left.created, left.ended) == (before.status, before.created, before.ended)
        assert (left.description, left.agent, left.directory) == ("", "", "")
        assert [task.id for task in Board(journal).all()] == ["taskaaa1", "taskaaa2"]
        with pytest.raises(NotFoundError):
            resume(journal, "aaa1")
        assert prune(journal, str(home), 30).tasks == [], "once is enough"
        assert files_with(home, SECRET) == [], "while it is open"
    assert files_with(home, SECRET) == []
    assert check_journal(journal.path)[1] == ""
    maintained = state(journal.path)
    assert rebuilt(journal.path) == maintained
    os.utime(journal.path)  # so that all of it is checked
    with opened(home) as journal:
        assert journal.recovery is None


def test_deleting_the_newest_session_is_no_damage_and_its_numbers_are_not_used_again(home: Path) -> None:
    async def start(journal: Journal, name: str) -> None:
        session = Session(journal, name)
        await session.start(SessionHeader(directory="/w", model="m", mode="default"))
        await session.add_user([Text("Hello")])

    def last_seq(journal: Journal) -> int:
        return int(journal.select("SELECT max(seq) FROM records")[0][0])

    with opened(home) as journal:
        asyncio.run(start(journal, "aaa1"))
        asyncio.run(start(journal, "aaa2"))
        deleted = last_seq(journal)
        delete_session(journal, str(home), "aaa2")
    with opened(home) as journal:
        assert journal.recovery is None
        asyncio.run(start(journal, "aaa3"))
        first = int(journal.select("SELECT min(seq) FROM records WHERE stream = ?", "session/aaa3")[0][0])
        assert first > deleted
    os.utime(journal.path)  # so that all of it is checked
    with opened(home) as journal:
        assert journal.recovery is None
        assert [one.id for one in list_sessions(journal)] == ["aaa3", "aaa1"]


def test_old_claims_of_a_queue_with_a_limit_are_deleted_and_the_next_continues_their_numbers(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = TaskRequest(agent="Explore", prompt="p", directory="/w")

    async def run(board: Board, task_id: str) -> None:
        task = await board.create(task_id, "agent", request, root="r", parent="", depth=1, background=True)
        assert await board.claim(task, limit=1)
        await board.finish(task_id, 1, TaskResult(status="completed"))

    def claims(journal: Journal) -> list[int]:
        [stream] = journal.streams(QUEUE_STREAM_PREFIX)
        return [record.body["number"] for record in journal.read(stream)]

    with opened(home) as journal:
        for number in range(3):
            asyncio.run(run(Board(journal), f"aaaa0000000{number}"))
        assert claims(journal) == [1, 2, 3]
        later(monkeypatch, 40)
        prune(journal, str(home), 30)
        assert claims(journal) == [3]
        asyncio.run(run(Board(journal), "aaaa00000009"))
        assert claims(journal) == [3, 4]


def test_one_session_is_deleted_with_its_tasks_and_nothing_else(home: Path) -> None:
    fill(home, "aaa1", "aaa2")
    with opened(home) as journal:
        report = delete_session(journal, str(home), "aaa1")
        assert (report.sessions, report.tasks) == (["aaa1"], ["taskaaa1"])
        assert [one.id for one in list_sessions(journal)] == ["aaa2"]
        assert resume(journal, "aaa2").about == f"{SECRET}question aaa2"
    assert files_with(home, "aaa1") != []  # the id of the task stays
    assert files_with(home, f"{SECRET}question aaa1") == []
    assert files_with(home, f"{SECRET}aaa1") == []
    assert files_with(home, f"{SECRET}aaa2") != []
    contents = ContentStore(str(home))
    assert [contents.get(digest) for digest in contents.digests()].count(b"shared") == 1, "the other one refers to it"


@pytest.mark.parametrize("why", ["unfinished", "open", "fork"])
def test_what_is_in_use_stays_and_the_reason_is_named(home: Path, monkeypatch: pytest.MonkeyPatch, why: str) -> None:
    fill(home, "aaa1", ends=why != "unfinished")
    with opened(home) as journal, hold_session(str(home), "aaa1" if why == "open" else "other"):
        if why == "fork":
            asyncio.run(
                fork(journal, resume(journal, "aaa1"), SessionHeader(directory="/w", model="m", mode="default"))
            )
        else:
            later(monkeypatch, 31)
        with pytest.raises(InvalidError, match={"unfinished": "queued", "open": "open", "fork": "fork"}[why]):
            delete_session(journal, str(home), "aaa1")
        report = prune(journal, str(home), 30)
        assert (report.sessions, report.tasks) == ([], [])
        assert [name for name, _ in report.kept] == ([] if why == "fork" else ["aaa1"])
        assert resume(journal, "aaa1").about


def test_a_worktree_with_work_that_is_not_merged_stays_and_is_named(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kitbag.tasks.worktree import commit_changes, create_worktree, find_unmerged_work

    repository = tmp_path / "repository"
    git = ["git", "-C", str(repository), "-c", "user.name=A", "-c", "user.email=a@b"]
    subprocess.run(["git", "init", "-q", str(repository)], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "first"], check=True)
    fill(home, "aaa1")
    worktree = create_worktree(str(repository), str(home), "taskaaa1")
    (Path(worktree.path) / "new.txt").write_text("work")
    assert "uncommitted" in find_unmerged_work(str(home), "taskaaa1")
    later(monkeypatch, 31)
    with opened(home) as journal:
        report = prune(journal, str(home), 30)
        assert (report.sessions, report.kept[0][0]) == ([], "taskaaa1")
        commit_changes(worktree, "work")
        assert "not merged" in prune(journal, str(home), 30).kept[0][1]
        assert os.path.exists(worktree.path)
        subprocess.run([*git, "merge", "-q", worktree.branch], check=True, capture_output=True)
        assert prune(journal, str(home), 30).tasks == ["taskaaa1"]
    assert not os.path.exists(worktree.path)
    assert (repository / "new.txt").read_text() == "work"


def test_it_happens_by_itself_once_a_day_and_never_if_the_user_says_so(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(home, "aaa1", "aaa2")
    begun = time.time()
    with opened(home) as journal:
        assert not is_pruning_due(journal, 180), "nothing is old yet"
        monkeypatch.setattr(journal_prune.time, "time", lambda: begun + 200 * 86_400)
        later(monkeypatch, 200)
        assert not is_pruning_due(journal, 0)
        assert is_pruning_due(journal, 180)
        report = prune_daily(journal, str(home), 180, "aaa2")
        assert report is not None
        assert report.sessions == ["aaa1"], "not the one that is being opened"
        assert not is_pruning_due(journal, 180), "once a day"


PRUNE = """
import sys
from kitbag.runtime.retention import prune
from kitbag.store.journal import Journal, journal_path
from kitbag.store.redaction import Redactor
with Journal.open(journal_path(sys.argv[1]), Redactor()) as journal: prune(journal, sys.argv[1], 0)
"""


@pytest.mark.parametrize("point", PRUNE_POINTS)
def test_a_process_that_is_killed_there_leaves_all_or_nothing_of_each_and_the_next_finishes(
    home: Path, point: str
) -> None:
    fill(home, "aaa1", "aaa2")
    wait_for_the_next_second()
    killed = subprocess.run(
        [sys.executable, "-c", PRUNE, str(home)], env=os.environ | {VARIABLE: point}, timeout=TEST_TIMEOUT
    )
    assert killed.returncode == -signal.SIGKILL
    with opened(home) as journal:
        assert journal.recovery is None
        found = [one.id for one in list_sessions(journal)]
        assert found in ([], ["aaa2", "aaa1"])
        assert len(Board(journal).all()) == 2
        for name in found:
            assert resume(journal, name).about
        prune(journal, str(home), 0)
        assert list_sessions(journal) == []
    assert files_with(home / "state", f"{SECRET}question") == []
    assert files_with(home / "state", f"{SECRET}output") == []
    assert rebuilt(journal.path)[0] == state(journal.path)[0]


def wait_for_the_next_second() -> None:
    """Times are compared by the second."""
    from support.waiting import wait_until

    begun = int(time.time())
    wait_until(lambda: int(time.time()) > begun)
