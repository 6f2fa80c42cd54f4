"""The worker: one for a home, whoever starts it; it lives as long as there is work, and one task never ends another."""

import asyncio
import fcntl
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

from conftest import EXPLORE_ALLOWED
from kitbag.agent.session import new_session_id
from kitbag.permissions.approvals.approval import ApprovalRequest, action_digest
from kitbag.permissions.approvals.queue import ApprovalQueue
from kitbag.permissions.model import PermissionDecision
from kitbag.tasks import worker_process
from kitbag.tasks.owner import this_process
from kitbag.tasks.task import requester_label
from kitbag.tasks.task_processes import SESSION_VARIABLE, find_task_processes
from kitbag.tasks.worker import MAX_RECOVERIES, Worker
from kitbag.tasks.worker_lock import hold_worker_lock, write_heartbeat
from kitbag.tasks.worker_process import ensure_tasks_hosted, ensure_worker, read_worker_record
from kitbag.testing import Step
from support.delegating import results, script, task
from support.house import House
from support.waiting import TEST_TIMEOUT
from support.workshop import Workshop, call

pytestmark = pytest.mark.usefixtures("store")


@pytest.fixture
def workshop(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> Iterator[Workshop]:
    """Also for workers that are started for real; they leave after a second."""
    workshop.world.write("~/.kitbag/settings.toml", f"[tasks]\nidle = 1\n{EXPLORE_ALLOWED}")
    for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "KITBAG_MODEL"):
        monkeypatch.delenv(name, raising=False)
    for name, value in workshop.environment.items():
        monkeypatch.setenv(name, value)
    yield workshop
    for child, _ in worker_process._children:
        child.kill()
        child.wait()
    worker_process._children.clear()


class TestStarting:
    def test_of_many_who_come_at_once_one_starts_one_and_it_is_detached(self, workshop: Workshop) -> None:
        workshop.script({"text": "Done."})
        tasks = [workshop.put() for _ in range(8)]
        together = threading.Barrier(8)

        def come(_: int) -> bool:
            together.wait()
            return ensure_worker(workshop.home).started

        os.environ[SESSION_VARIABLE] = tasks[0]  # as when a command of a task starts it
        try:
            with ThreadPoolExecutor(8) as pool:
                assert sum(pool.map(come, range(8))) == 1
        finally:
            del os.environ[SESSION_VARIABLE]
        for task_id in tasks:
            workshop.until_status(task_id, "completed")
        found = read_worker_record(workshop.home)
        assert found is not None
        pid = found.owner.pid
        assert os.getsid(pid) == pid
        assert (
            Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[4] == "0"
        )  # no terminal that could close
        assert os.readlink(f"/proc/{pid}/fd/0") == "/dev/null"
        assert find_task_processes(tasks[0]) == []
        workshop.until(lambda: not found.owner.check_alive(), "it leaves when it is idle")

    def test_a_worker_that_leaves_as_a_task_comes_does_not_leave_it_behind(self, workshop: Workshop) -> None:
        """Whoever finds its lock held starts nobody, so it looks once more."""
        workshop.script({"text": "Done."})
        tasks: list[str] = []
        for _ in range(12):
            worker = workshop.worker(idle=0)
            tasks.append(workshop.put())
            with open(f"{workshop.home}/state/worker.lock", "a") as lock:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    is_free = True
                except BlockingIOError:
                    is_free = False
            workshop.nursery.wait(worker)
            if not is_free:
                assert workshop.task(tasks[-1]).status == "completed"
        workshop.work()
        assert {workshop.task(task_id).status for task_id in tasks} == {"completed"}

    def test_where_none_can_be_started_the_task_waits_and_model_and_person_are_told(
        self, workshop: Workshop, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sys, "executable", "/nowhere/python")
        house = House(workshop.world)
        house.ask("Go", steps=script([Step(calls=(task(run_in_background=True),)), "Fine."], ["Done."]))
        assert "could not start a worker" in results(house)
        [waiting] = workshop.board.all()
        assert waiting.id in results(house)
        assert waiting.status == "queued"
        assert "`kitbag worker`" in asyncio.run(ensure_tasks_hosted(workshop.board, workshop.home)).problem

    def test_a_command_does_not_wait_for_ever_for_work_that_nobody_can_host(self, workshop: Workshop) -> None:
        Path(workshop.home, "state", "worker.lock").mkdir(parents=True)
        begin = call("Task", subagent_type="Explore", prompt="Look.", run_in_background=True)
        workshop.script(begin, {"text": "Started."})
        done = workshop.world.run("-p", "Go", "--model", f"scripted:{workshop.world.workspace / 'script.json'}")
        assert done.returncode == 8, done.stderr
        assert "Started." in done.stdout
        assert "could not start a worker" in done.stderr
        [waiting] = workshop.board.all()
        assert waiting.id in done.stderr
        assert waiting.status == "queued"
        assert "worker.lock" in workshop.world.run("tasks", "list").stderr

    def test_one_that_ends_right_away_is_told_of_the_next_time(
        self, workshop: Workshop, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        broken = tmp_path / "python"
        broken.write_text("#!/bin/sh\necho 'no module named kitbag' >&2\nexit 3\n")
        broken.chmod(0o755)
        monkeypatch.setattr(sys, "executable", str(broken))
        assert ensure_worker(workshop.home) == (True, "")
        worker_process._children[0][0].wait()
        assert "no module named kitbag" in ensure_worker(workshop.home).problem

    def test_a_log_that_can_t_be_written_keeps_nobody_from_working(self, workshop: Workshop) -> None:
        Path(workshop.home, "state", "worker.log").mkdir(parents=True)
        workshop.script({"text": "Done."})
        task_id = workshop.put()
        assert asyncio.run(ensure_tasks_hosted(workshop.board, workshop.home)) == (True, "")
        workshop.until_status(task_id, "completed")
        assert asyncio.run(ensure_tasks_hosted(workshop.board, workshop.home)) == (False, "")


class TestAnotherVersion:
    def test_a_newer_one_waits_for_an_older_one_to_finish(self, workshop: Workshop) -> None:
        workshop.script({"text": "Done."})
        task_id = workshop.put()
        Path(workshop.home, "state").mkdir(exist_ok=True)
        with open(f"{workshop.home}/state/worker.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            told = {"owner": this_process().to_record(), "version": "0.0.1", "beat": 1e12}
            json.dump(told, lock)
            lock.flush()
            hosting = ensure_worker(workshop.home)
            assert hosting.started
            assert "0.0.1" in hosting.problem
            assert workshop.task(task_id).status == "queued"
        workshop.until_status(task_id, "completed")

    def test_one_of_another_store_is_named_and_the_next_one_waits_for_it(self, workshop: Workshop) -> None:
        workshop.script({"text": "Done."})
        task_id = workshop.put()
        with hold_worker_lock(workshop.home) as lock:
            write_heartbeat(lock, "postgresql://kitbag@db.example/kitbag")
            hosting = ensure_worker(workshop.home)
            assert hosting.started
            assert "uses postgresql://kitbag@db.example/kitbag" in hosting.problem
            assert workshop.world.json("fleet", "status")["workers"] == []
        workshop.until_status(task_id, "completed")

    def test_an_older_one_leaves_what_it_does_not_understand_and_makes_room(
        self, workshop: Workshop, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("kitbag.tasks.board.kitbag_version", lambda: "999.0")
        task_id = workshop.put()
        assert workshop.nursery.wait(workshop.worker(idle=600)) == 0
        assert workshop.task(task_id).status == "queued"


@pytest.mark.file_store
def test_a_task_of_a_named_queue_that_was_copied_from_a_database_runs(workshop: Workshop) -> None:
    workshop.script({"text": "Done."})
    workshop.journal.queue = "build"
    task_id = workshop.put()
    assert workshop.task(task_id).queue == "build"
    workshop.journal.queue = ""
    assert asyncio.run(ensure_tasks_hosted(workshop.board, workshop.home)).started
    workshop.until_status(task_id, "completed")


class TestLiving:
    def test_one_that_hangs_is_replaced_and_what_it_did_is_recovered(
        self, workshop: Workshop, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        workshop.script({"text": "Done.", "delay": 0.5})
        task_id = workshop.put()
        hung = workshop.worker(idle=600)
        workshop.until(lambda: workshop.records(task_id, "user"), "it waiting for the model")
        os.kill(hung, signal.SIGSTOP)
        assert ensure_worker(workshop.home) == (False, "")  # it may be busy
        monkeypatch.setattr(worker_process, "HUNG_SECONDS", 0.0)
        assert "stopped responding" in ensure_worker(workshop.home).problem
        assert workshop.nursery.wait(hung) == -signal.SIGKILL
        workshop.until_status(task_id, "completed")

    def test_one_task_that_fails_or_can_t_be_read_ends_no_other(self, workshop: Workshop) -> None:
        workshop.script({"text": "Done."})
        bad = [
            workshop.put(agent="nobody"),
            workshop.put(options={"only_tools": 5}),
            workshop.put(options={"persona": "nobody"}),
            workshop.put(model="nowhere/at-all"),
        ]
        good = workshop.put()
        workshop.work()
        assert workshop.task(good).status == "completed"
        for task_id in bad:
            found = workshop.task(task_id)
            assert found.status == "failed"
            assert found.result is not None
            assert found.result.error

    def test_rules_and_agents_count_as_they_are_when_a_task_begins(
        self, workshop: Workshop, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("kitbag.tasks.worker_environments.MAX_AGE_SECONDS", 0.0)
        workshop.script(call("Write", file_path="a.txt", content="a"), {"text": "Done."})

        async def one() -> str:
            wish, place = workshop.wish(), {"root": "root", "parent": "", "depth": 1, "background": True}
            made = await workshop.board.create(new_session_id(), "agent", wish, **place)
            assert await workshop.board.wait_until(lambda task: task.is_finished, made.id, TEST_TIMEOUT)
            return str(workshop.records(made.id, "result")[0].body)

        async def work() -> list[str]:
            worker = Worker(workshop.journal, idle_seconds=TEST_TIMEOUT, log=lambda _: None)
            serving = asyncio.create_task(worker.serve())
            before = await one()
            workshop.world.write("~/.kitbag/settings.toml", '[permissions]\ndeny = ["Write"]\n')
            after = await one()
            serving.cancel()
            await asyncio.wait([serving])
            await worker.close()
            return [before, after]

        said = asyncio.run(work())
        assert ["is not available" in text for text in said] == [False, True], said

    def test_its_log_is_bounded(self, workshop: Workshop) -> None:
        log = Path(workshop.home, "state", "worker.log")
        log.write_text("old\n" * 10)
        code = (
            "import os, sys; from kitbag.tasks.worker_process import rotate_log\n"
            "for _ in range(3): rotate_log(sys.argv[1], 30); os.write(2, b'new\\n')\n"
        )
        with log.open("a") as opened_log:
            subprocess.run([sys.executable, "-c", code, workshop.home], stderr=opened_log, check=True)
        assert log.read_text() == "new\n" * 3
        assert Path(f"{log}.1").read_text() == "old\n" * 10


class TestLimits:
    def test_those_who_wait_for_their_own_never_keep_them_from_beginning(self, workshop: Workshop) -> None:
        """One at a time at each depth: in front, and in the background with somebody waiting for it."""
        begin = {"subagent_type": "doer", "run_in_background": True}
        workshop.script(
            Top=[call("Task", "t1", subagent_type="doer", prompt="Middle"), {"text": "Top is done."}],
            Middle=[call("Task", "t2", prompt="Deep", **begin), call("TaskOutput", "o2", task_id="X"), {"text": "Ok."}],
            Deep=[{"text": "Deep is done."}],
        )
        tops = [workshop.put("Top") for _ in range(3)]
        assert workshop.nursery.wait(workshop.worker(idle=0, at_once=1)) == 0
        assert {workshop.task(top).status for top in tops} == {"completed"}
        assert {found.status for found in workshop.board.all()} == {"completed"}
        assert len(workshop.board.all()) == 9

    def test_of_a_hundred_agents_that_are_wanted_at_once_twenty_work_at_most(self, workshop: Workshop) -> None:
        house = House(workshop.world)
        workshop.world.write("~/.kitbag/settings.toml", f"[limits]\ncalls = 100\n{EXPLORE_ALLOWED}")
        calls = tuple(task(f"t{number}") for number in range(100))
        house.ask("Go", steps=script([Step(calls=calls), "Fine."], ["Done."]))
        assert results(house).count("Status: completed") == 100
        at_once, most = 0, 0
        for record in workshop.journal.read("tasks"):
            at_once += {"begun": 1, "ended": -1}.get(record.kind, 0)
            most = max(most, at_once)
        assert 1 < most <= 20
        assert at_once == 0

    def test_an_agent_that_starts_itself_does_so_three_deep(self, workshop: Workshop) -> None:
        workshop.script(call("Task", subagent_type="doer", prompt="Again"), {"text": "Enough."})
        top = workshop.put()
        workshop.work()
        assert workshop.task(top).status == "completed"
        assert sorted(found.depth for found in workshop.board.all()) == [1, 2, 3]

    def test_what_the_person_allowed_to_be_spent_counts_for_background_work_too(self, workshop: Workshop) -> None:
        usage = {"input": 600, "output": 10}
        workshop.script(
            {"usage": usage, **call("Read", "r1", file_path="script.json")},
            {"usage": usage, **call("Read", "r2", file_path="script.json")},
            {"text": "Done.", "usage": usage},
        )
        first = workshop.put(options={"max_tokens": 3_000})
        workshop.work()
        second = workshop.put(options={"max_tokens": 3_000})
        workshop.work()
        assert [workshop.task(task_id).status for task_id in (first, second)] == ["completed", "over-budget"]


def test_a_task_that_is_not_tried_again_leaves_no_question_behind(workshop: Workshop) -> None:
    async def work() -> list[str]:
        worker = Worker(workshop.journal, log=lambda _: None)
        found = workshop.task(task_id)
        queue = ApprovalQueue(workshop.journal)
        question = ApprovalRequest(
            id="q1",
            tool="Bash",
            arguments="{}",
            directory="/",
            decision=PermissionDecision(effect="ask", reason="", parts=()),
            digest=action_digest("Bash", "{}", "/"),
            asked_by=requester_label(found.agent, found.id),
        )
        await queue.put(question)
        await worker.board.claim(found)
        await worker._recover(msgspec.structs.replace(workshop.task(task_id), recoveries=MAX_RECOVERIES))
        return [waiting.request.id for waiting in queue.pending()]

    task_id = workshop.put()
    assert asyncio.run(work()) == []
    assert workshop.task(task_id).status == "interrupted"
