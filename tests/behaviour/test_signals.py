"""Signals reach only processes that are ours, whatever a file, the journal or the process table says."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from behaviour.contained import ANOTHER, DAMAGED, Bystander, record, run_contained
from conftest import EXPLORE_ALLOWED, World
from kitbag.store.journal import Journal, JournalEntry, journal_path
from kitbag.store.redaction import Redactor
from kitbag.tasks.board import TASKS_STREAM
from kitbag.tasks.owner import Owner, this_process
from kitbag.tasks.worker_lock import DamagedLock, read_lock, read_worker_record
from kitbag.testing import ModelServer, Rule, Script, Step
from support import needs
from support.driving import chat
from support.headless import point
from support.matrix import LONG, sample
from support.pseudo_terminal import CTRL_D
from support.waiting import TEST_TIMEOUT, wait_until

ANSWER = "The answer is 42."
BEGIN = {
    "id": "t1",
    "name": "Task",
    "arguments": {"subagent_type": "Explore", "prompt": "What?", "run_in_background": True},
}
RULES = [
    {"system": "## Your Task\nWait", "replies": [{"text": "Never.", "delay": 600}]},
    {"system": "## Your Task", "replies": [{"text": ANSWER}] * 9},
    {"replies": [{"calls": [BEGIN]}, {"text": "Started."}, {"text": "It ended."}]},
]


@pytest.fixture
def house(world: World) -> World:
    world.env["KITBAG_MODEL"] = f"scripted:{world.write('~/script.json', json.dumps({'rules': RULES}))}"
    world.env["KITBAG_HOME"] = str(world.home / ".kitbag")
    world.write("~/.kitbag/settings.toml", EXPLORE_ALLOWED)
    return world


@pytest.fixture
def bystander() -> Iterator["subprocess.Popen[bytes]"]:
    """A process that is not ours to end."""
    with subprocess.Popen(["sleep", "300"], start_new_session=True) as process:
        yield process
        process.kill()


@pytest.fixture(scope="module")
def in_namespace(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """The real program beside each lock that is wrong, where a signal to everybody reaches nobody else."""
    needs.bubblewrap()
    base = tmp_path_factory.mktemp("signals")
    tried = [chosen(names) for names in (HELD, ANOTHER, FREE)]
    held = run_contained(base, "held", *tried[0], *tried[1])
    return {"held": held, "free": run_contained(base, "free", *tried[2])}


def chosen(names: Iterable[str]) -> list[str]:
    """Those of a matrix that are tried in this run."""
    return [one.values[0] for one in sample(names, 2) if LONG or not one.marks]


HELD = ("pid -1", "text", "a huge number", "nested without end", "not UTF-8", "truncated", "a huge time", "pid 0")
FREE = ("pid 0", "pid -1", "nested without end", "a process that has ended")


def identity_of(process: "subprocess.Popen[bytes]") -> Owner:
    started = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[19]
    return msgspec.structs.replace(this_process(), pid=process.pid, started=started)


def lock_of(world: World) -> Path:
    return world.home / ".kitbag" / "state" / "worker.lock"


# --- a lock that names no process, or another one -----------------------------------------------------------------


@pytest.mark.parametrize("name", DAMAGED)
def test_what_no_worker_has_written_is_damage(world: World, bystander: "subprocess.Popen[bytes]", name: str) -> None:
    world.write("~/.kitbag/state/worker.lock", DAMAGED[name](Bystander(bystander, identity_of(bystander))))
    found = read_lock(str(world.home / ".kitbag"))
    assert isinstance(found, DamagedLock)
    assert found.problem


@pytest.mark.parametrize("name", sample(HELD, 2))
def test_a_damaged_lock_ends_nobody_and_is_reported(in_namespace: dict[str, Any], name: str) -> None:
    found = in_namespace["held"].get(name)
    assert found, "nobody was left to answer"
    [[code, printed, errors]] = found["ran"]
    assert (code, found["lives"]) == (0, True), errors
    assert "queued" in printed
    assert "Traceback" not in errors
    assert re.search(r"worker\.lock is damaged \(.+\)\. Kitbag sent no signal. Run `fuser -v ", errors), errors


@pytest.mark.parametrize("name", sample(ANOTHER, 2))
def test_a_lock_that_names_a_process_that_is_not_the_worker_ends_nobody(
    in_namespace: dict[str, Any], name: str
) -> None:
    found = in_namespace["held"].get(name)
    assert found, "nobody was left to answer"
    [[code, printed, errors]] = found["ran"]
    assert (code, found["lives"]) == (0, True), errors
    assert "queued" in printed
    assert "Traceback" not in errors
    assert re.search(r"worker\.lock names process \d+, which .+\. Kitbag sent no signal", errors), errors


@pytest.mark.parametrize("name", sample(FREE, 2))
def test_where_nobody_has_the_lock_a_worker_starts_whatever_the_file_says(
    in_namespace: dict[str, Any], name: str
) -> None:
    found = in_namespace["free"].get(name)
    assert found, "nobody was left to answer"
    began, answered = found["ran"]
    assert [code for code, _, _ in found["ran"]] == [0, 0], found["ran"]
    assert found["lives"]
    assert answered[1] == f"{ANSWER}\n"
    errors = began[2] + answered[2]
    assert "Traceback" not in errors
    assert "no worker" not in errors
    is_told = "ignored " in began[2] and "worker.lock, which is damaged (" in began[2]
    assert is_told is (name in DAMAGED), began[2]


def test_a_lock_that_is_no_file_is_reported_and_nobody_waits_for_it(house: World) -> None:
    lock_of(house).parent.mkdir(parents=True)
    os.mkfifo(lock_of(house))
    done = house.run("-p", "Ask.")
    assert done.returncode == 8, done.stderr
    assert "worker.lock is not a regular file" in done.stderr
    lock_of(house).unlink()


# --- how long ago the last worker was heard of --------------------------------------------------------------------


def _after_an_hour(world: World) -> None:
    """The last worker ended then, and its lock says so."""
    with subprocess.Popen(["sleep", "300"]) as last:
        ended = identity_of(last)
        last.kill()
    world.write("~/.kitbag/state/worker.lock", record(ended.to_record()))


ALARMS = ("not answer", "no worker", "kill -9", "worker.lock")


def test_background_work_long_after_the_last_worker_ended_raises_no_alarm(house: World) -> None:
    _after_an_hour(house)
    done = house.run("-p", "Ask.")
    assert (done.returncode, done.stdout) == (0, "Started.\nIt ended.\n"), done.stderr
    assert [alarm for alarm in ALARMS if alarm in done.stderr] == []
    assert [task["warnings"] for task in json.loads(house.ok("tasks", "list", "--json"))] == [[]]


def test_background_work_long_after_the_last_worker_ended_raises_no_alarm_in_the_chat(house: World) -> None:
    """The second agent comes while the worker starts, which has written nothing yet."""
    _after_an_hour(house)
    agents = Rule([Step(text=ANSWER)] * 2, system="## Your Task")
    calls = tuple((f"t{number}", "Task", json.dumps(BEGIN["arguments"])) for number in (1, 2))
    with ModelServer(Script([agents, Rule([Step(calls=calls), *[Step(text="Fine.")] * 3])])) as server:
        del house.env["KITBAG_MODEL"]
        point(house, server)
        with chat(house) as driven:
            driven.say("Ask.")
            driven.until(lambda: driven.all().count(" ended after ") == 2)
            assert [alarm for alarm in ALARMS if alarm in driven.all()] == []
            driven.press(CTRL_D)
            assert driven.until_ended() == 0
    assert [task["warnings"] for task in json.loads(house.ok("tasks", "list", "--json"))] == [[], []]


def test_a_worker_that_hangs_is_ended_and_replaced(house: World) -> None:
    """The one that wrote the lock, and has it: what is old is the time in it."""
    worker = subprocess.Popen(
        [sys.executable, "-m", "kitbag", "worker", "--idle", "600"], env=house.env, stderr=subprocess.DEVNULL
    )
    with worker:
        try:
            found = wait_until(lambda: read_worker_record(house.env["KITBAG_HOME"]), "it says who it is")
            wait_until(
                lambda: read_worker_record(house.env["KITBAG_HOME"]) != found, "it has opened the journal, and serves"
            )
            os.kill(worker.pid, signal.SIGSTOP)
            begun = house.run("agents", "run", "Explore", "What?", "--background")
            assert "answer" not in begun.stderr, "it may be busy"
            lock_of(house).write_bytes(record(found.owner.to_record()))
            listed = house.run("tasks", "list")
            assert "the worker stopped responding and was replaced" in listed.stderr
            assert worker.wait(TEST_TIMEOUT) == -signal.SIGKILL
        finally:
            worker.kill()
    answered = house.run("tasks", "output", begun.stdout.strip(), "--wait", "50")
    assert (answered.returncode, answered.stdout) == (0, f"{ANSWER}\n"), answered.stderr


def test_a_worker_outlives_a_request_that_is_left_in_a_hurry(house: World) -> None:
    script = house.write("~/main.json", json.dumps({"rules": [*RULES[:1], *_waiting()]}))
    words = [sys.executable, "-m", "kitbag", "-p", "Ask.", "--model", f"scripted:{script}"]
    with subprocess.Popen(words, cwd=house.workspace, env=house.env, stderr=subprocess.PIPE, text=True) as asked:
        assert asked.stderr is not None
        assert any("waiting for background tasks" in line for line in asked.stderr)
        worker = wait_until(lambda: read_worker_record(house.env["KITBAG_HOME"]), "the worker says who it is").owner
        for number in (signal.SIGSTOP, signal.SIGINT, signal.SIGTERM, signal.SIGCONT):  # the second one is in a hurry
            asked.send_signal(number)
        assert asked.wait(TEST_TIMEOUT) in (130, 143)
    assert worker.check_alive()
    [task] = json.loads(house.ok("tasks", "list", "--json"))
    assert task["run"] <= 1
    assert house.run("tasks", "stop", task["id"]).returncode == 0


def _waiting() -> list[dict[str, Any]]:
    begin = {**BEGIN, "arguments": {**BEGIN["arguments"], "prompt": "Wait"}}
    return [{"replies": [{"calls": [begin]}, {"text": "Started."}]}]


# --- records of tasks ---------------------------------------------------------------------------------------------


OWNERS: dict[str, Callable[[Owner], Any]] = {
    "pid 0": lambda owner: [*owner.to_record()[:2], 0, owner.started],
    "pid -1": lambda owner: [*owner.to_record()[:2], -1, owner.started],
    "pid 1": lambda owner: [*owner.to_record()[:2], 1, owner.started],
    "text": lambda owner: [*owner.to_record()[:2], "1", owner.started],
    "true": lambda owner: [*owner.to_record()[:2], True, owner.started],
    "a huge number": lambda owner: [*owner.to_record()[:2], 10**40, owner.started],
    "nothing": lambda _: None,
    "a word": lambda _: "host",
    "too few fields": lambda owner: owner.to_record()[:2],
    "lists": lambda _: [[], [], [], []],
    "another process": lambda owner: msgspec.structs.replace(owner, started="1").to_record(),
    "a process that lives": Owner.to_record,
}
UNREADABLE = {"pid 0", "pid -1", "text", "true", "a huge number", "nothing", "a word", "too few fields", "lists"}


def put(world: World, owner: Any, *, background: bool) -> str:
    """A task that is said to run, and by whom."""
    task_id = os.urandom(6).hex()
    of_all = {"id": task_id, "owner": owner}
    place = {"root": "", "parent": "", "depth": 1, "background": background, "directory": str(world.workspace)}
    created = {**of_all, **place, "kind": "agent", "agent": "Explore", "description": ""}
    begun = {**of_all, "run": 1, "again": False, "recovered": False, "in_front": False}
    wish = {"agent": "Explore", "prompt": "What?", "directory": str(world.workspace)}
    entries = [
        JournalEntry(f"task/{task_id}", "wish", wish),
        JournalEntry(TASKS_STREAM, "created", created),
        JournalEntry(TASKS_STREAM, "begun", begun),
    ]
    with Journal.open(journal_path(world.env["KITBAG_HOME"]), Redactor([])) as journal:
        asyncio.run(journal.write_all(entries))
    return task_id


@pytest.mark.parametrize("name", sample(OWNERS, 4))
def test_a_task_with_a_damaged_owner_is_stopped_and_nobody_else_is(
    house: World, bystander: "subprocess.Popen[bytes]", name: str
) -> None:
    owner = OWNERS[name](identity_of(bystander))
    task_ids = [put(house, owner, background=background) for background in (True, False)]
    done = house.run("tasks", "stop", *task_ids)
    assert done.returncode == 0, done.stderr
    for task_id in task_ids:
        assert f"{task_id} stopped: cancelled; processes left: 0" in done.stdout
    assert "Traceback" not in done.stderr
    assert ("the journal does not name its process" in done.stderr) is (name in UNREADABLE), done.stderr
    assert bystander.poll() is None


def test_tasks_with_damaged_owners_are_listed_and_end_as_if_their_process_had(
    house: World, bystander: "subprocess.Popen[bytes]"
) -> None:
    for name in sorted(UNREADABLE):
        put(house, OWNERS[name](identity_of(bystander)), background=False)
    listed = house.run("tasks", "list", "--json")
    assert listed.returncode == 0, listed.stderr
    tasks = json.loads(listed.stdout)
    assert {task["status"] for task in tasks} == {"interrupted"}
    assert all("does not name its process" in task["warnings"][0] for task in tasks)
    assert bystander.poll() is None


def test_a_background_task_with_a_damaged_owner_is_taken_up_again(house: World) -> None:
    task_id = put(house, [0, 0, 0, 0], background=True)
    answered = house.run("tasks", "output", task_id, "--wait", "50")
    assert (answered.returncode, answered.stdout) == (0, f"{ANSWER}\n"), answered.stderr


def test_a_task_without_an_id_owns_no_process(house: World, bystander: "subprocess.Popen[bytes]") -> None:
    """Every process without a mark would carry an empty one."""
    from kitbag.tasks.task_processes import find_task_processes

    assert bystander.pid not in find_task_processes("")
    assert find_task_processes("", "-") == []
