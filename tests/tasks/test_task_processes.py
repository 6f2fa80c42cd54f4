"""Processes of tasks: found by their mark wherever they went, and none outlives its task for long."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Generator

import pytest

from kitbag.agent.session import new_session_id
from kitbag.tasks import task_processes
from kitbag.tasks.task_processes import SESSION_VARIABLE, find_task_processes, kill_processes
from support.clock import Clock
from support.waiting import TEST_TIMEOUT
from support.workshop import Workshop, call

STUBBORN = (
    "trap '' TERM HUP; (trap '' TERM HUP; sleep 300) & setsid sh -c 'trap \"\" TERM; sleep 300' &"
    " (sleep 300 >&2) & echo begun; sleep 300"
)


@contextlib.contextmanager
def marked(value: str) -> Generator[int, None, None]:
    code = "import time; print('here', flush=True); time.sleep(300)"
    environment = {**os.environ, SESSION_VARIABLE: value}
    with subprocess.Popen([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            yield process.pid
        finally:
            process.kill()


def test_those_of_a_task_and_of_its_later_beginnings_are_found_and_no_others() -> None:
    one, other = new_session_id(), new_session_id()
    with marked(one) as first, marked(f"{one}-2") as second, marked(other), marked(f"{one}0"), marked("") as empty:
        assert set(find_task_processes(one)) == {first, second}
        assert kill_processes(one) == 0
        assert find_task_processes(one) == []
        assert len(find_task_processes(other, f"{one}0")) == 2
        assert kill_processes(other, f"{one}0") == 0
        assert kill_processes() == 0
        os.kill(empty, 0)


def test_they_are_ended_also_where_one_look_takes_all_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, look = Clock(monkeypatch, task_processes), task_processes.find_task_processes

    def slowly(*task_ids: str) -> list[int]:
        clock.let_pass(60)
        return look(*task_ids)

    monkeypatch.setattr(task_processes, "find_task_processes", slowly)
    task_id = new_session_id()
    with subprocess.Popen(["sleep", "300"], env={**os.environ, SESSION_VARIABLE: task_id}) as child:
        assert task_processes.kill_processes(task_id, timeout=0.5) == 0
        assert child.wait(TEST_TIMEOUT) == -signal.SIGKILL


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGKILL, -9)])
def test_what_a_command_started_ends_with_its_worker_or_with_the_recovery(
    workshop: Workshop, number: int, status: int
) -> None:
    workshop.script(call("Bash", command=STUBBORN))
    task_id = workshop.put()
    worker = workshop.worker(idle=20)
    workshop.until(lambda: len(find_task_processes(task_id)) >= 4, "the command runs")
    os.kill(worker, number)
    assert workshop.nursery.wait(worker) == status
    if number == signal.SIGTERM:
        assert find_task_processes(task_id) == []
    workshop.work()
    assert find_task_processes(task_id) == []
    task = workshop.task(task_id)
    assert task.status == "interrupted"
    assert task.result is not None
    assert "interrupted (unknown outcome)" in task.result.error
    assert "Bash" in task.result.error


def test_what_survived_the_worker_is_found_and_ended_by_the_next_one(workshop: Workshop) -> None:
    workshop.script({"text": "Done."})
    task_id = workshop.put()
    assert workshop.nursery.wait(workshop.worker("request-sent")) == -signal.SIGKILL
    with marked(task_id) as survivor:
        workshop.work()
        assert survivor not in find_task_processes(task_id)
    assert workshop.task(task_id).status == "completed"
