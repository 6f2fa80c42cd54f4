"""Stop means stopped: soon, once and for ever, with all that was begun, and nothing comes back."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Generator

import pytest

from kitbag.errors import NotFoundError
from kitbag.permissions.approvals.queue import ApprovalQueue
from kitbag.store.journal import Journal
from kitbag.tasks import stop as stopping
from kitbag.tasks.stop import stop_task
from kitbag.tasks.stop_signals import StopSignals
from kitbag.tasks.task import TaskResult
from kitbag.tasks.task_processes import find_task_processes
from kitbag.tasks.worker import Worker
from kitbag.tools.delegation import TaskStopResult
from support.clock import Clock
from support.workshop import Workshop, call

pytestmark = pytest.mark.usefixtures("store")

SLOW = call("Bash", "slow", command="echo begun; sleep 300 & setsid sleep 300 & sleep 300")
BUSY = {"text": "-", "fault": {"status": 529, "times": 1_000, "headers": {"retry-after": "30"}}}


def stop(workshop: Workshop, task_id: str, by: str = "person") -> TaskStopResult:
    return asyncio.run(stop_task(workshop.board, workshop.task(task_id), by))


def must_stay_stopped(workshop: Workshop, *task_ids: str) -> None:
    """Also when it is stopped again, and when a worker comes anew."""
    before = [workshop.task(task_id) for task_id in task_ids]
    for task_id in task_ids:
        again = stop(workshop, task_id)
        assert (again.was_finished, again.report.status, again.process_count) == (True, "cancelled", 0)
    workshop.work()
    assert [workshop.task(task_id) for task_id in task_ids] == before
    assert find_task_processes(*task_ids) == []
    for task_id in task_ids:
        records = [record for record in workshop.journal.read("tasks") if record.body["id"] == task_id]
        assert sum(record.kind == "ended" for record in records) == 1


def test_a_task_that_runs_with_its_processes_and_what_it_said_is_kept(workshop: Workshop) -> None:
    workshop.script({"text": "I begin.", **SLOW})
    task_id = workshop.put()
    worker = workshop.worker(idle=20)
    workshop.until(lambda: len(find_task_processes(task_id)) >= 3, "the command runs")
    stopped = stop(workshop, task_id)
    assert (stopped.was_finished, stopped.report.status, stopped.process_count) == (False, "cancelled", 0)
    assert stopped.report.text == "I begin."
    assert find_task_processes(task_id) == []
    workshop.nursery.kill(worker)
    must_stay_stopped(workshop, task_id)


def test_tasks_that_wait_for_an_answer_for_a_provider_and_for_their_turn(workshop: Workshop) -> None:
    workshop.script(
        Asks=[call("Write", file_path="a.txt", content="a")], Retries=[BUSY], Waits=[{"text": "-", "delay": 600}]
    )
    asks, retries = workshop.put("Asks", options={"only_tools": []}), workshop.put("Retries")
    worker = workshop.worker(idle=20, at_once=2)
    workshop.until_asked(asks)
    workshop.until(lambda: workshop.records(retries, "user"), "it waiting for the model")
    queued = workshop.put("Waits")
    queue = ApprovalQueue(workshop.journal)
    [waiting] = workshop.until(queue.pending, "somebody is asked")
    assert asks in waiting.request.asked_by
    for task_id in (queued, asks, retries):
        assert stop(workshop, task_id).report.status == "cancelled"
    assert workshop.until(lambda: not queue.pending(), "nobody is asked any more")
    assert not (workshop.world.workspace / "a.txt").exists()
    workshop.nursery.kill(worker)
    must_stay_stopped(workshop, asks, retries, queued)


def test_what_it_began_is_stopped_with_it_in_front_and_in_the_background(workshop: Workshop) -> None:
    workshop.script(
        Top=[
            call("Task", "behind", subagent_type="doer", prompt="Behind", run_in_background=True),
            call("Task", "front", subagent_type="doer", prompt="Middle"),
        ],
        Middle=[call("Task", "deep", subagent_type="doer", prompt="Deep")],
        Behind=[SLOW],
        Deep=[SLOW],
    )
    top = workshop.put("Top")
    worker = workshop.worker(idle=20)

    def family() -> list[str]:
        below = [task.id for task in workshop.board.descendants(top)]
        return below if len(below) == 3 and len(find_task_processes(*below)) >= 6 else []

    below = workshop.until(family, "all of them run")
    stopped = stop(workshop, top)
    assert (stopped.subtask_count, stopped.process_count) == (3, 0)
    workshop.nursery.kill(worker)
    must_stay_stopped(workshop, top, *below)


def test_without_a_worker_too_and_what_it_begins_afterwards_never_begins(workshop: Workshop) -> None:
    workshop.script({"text": "Done."})
    alone = workshop.put()
    assert stop(workshop, alone).report.status == "cancelled"
    late = workshop.put(parent=workshop.task(alone))
    workshop.work()
    assert workshop.task(late).status == "cancelled"
    must_stay_stopped(workshop, alone, late)


def test_one_whose_worker_was_killed_is_stopped_and_not_recovered(workshop: Workshop) -> None:
    workshop.script(SLOW)
    task_id = workshop.put()
    worker = workshop.worker(idle=20)
    workshop.until(lambda: find_task_processes(task_id), "the command runs")
    workshop.nursery.kill(worker)
    assert stop(workshop, task_id).process_count == 0
    must_stay_stopped(workshop, task_id)


def test_a_wish_to_stop_outlives_the_process_that_was_to_hear_it_and_the_one_that_had_it(workshop: Workshop) -> None:
    workshop.script({"text": "-", "delay": 600})
    task_id = workshop.put()
    worker = workshop.worker(idle=20)
    workshop.until_status(task_id, "running")
    os.kill(worker, signal.SIGSTOP)
    asyncio.run(workshop.board.request_stop([workshop.task(task_id)]))  # and whoever wanted it is gone
    workshop.nursery.kill(worker)
    workshop.work()
    must_stay_stopped(workshop, task_id)


def test_a_worker_that_hangs_does_not_keep_it_and_does_nothing_more_when_it_wakes(workshop: Workshop) -> None:
    workshop.script({"text": "-", "delay": 1.0}, **{"Do it": [{"delay": 1.0, **call("Bash", command="touch late")}]})
    task_id = workshop.put()
    worker = workshop.worker(idle=0)
    workshop.until(lambda: workshop.records(task_id, "user"), "it waiting for the model")
    os.kill(worker, signal.SIGSTOP)
    try:
        assert stop(workshop, task_id).report.status == "cancelled"
    finally:
        os.kill(worker, signal.SIGCONT)
    assert workshop.nursery.wait(worker) == 0
    assert not (workshop.world.workspace / "late").exists()
    must_stay_stopped(workshop, task_id)


def test_a_task_that_does_not_hear_it_begins_no_effect_after_its_end(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Deaf(StopSignals):
        @contextlib.contextmanager
        def watch(self, task_id: str, run: int) -> Generator[asyncio.Event, None, None]:
            yield asyncio.Event()

    monkeypatch.setattr("kitbag.tasks.stop_signals.StopSignals", Deaf)
    for name, value in workshop.environment.items():
        monkeypatch.setenv(name, value)
    workshop.script({"delay": 0.5, **call("Bash", "late", command="touch late")}, {"text": "Done."})
    task_id = workshop.put()

    async def work() -> None:
        worker = Worker(workshop.journal, idle_seconds=0, log=lambda _: None)
        serving = asyncio.create_task(worker.serve())
        while not workshop.records(task_id, "user"):
            await workshop.journal.wait_async(workshop.journal.last_seq(), 0.05)
        task = workshop.task(task_id)
        assert await workshop.board.finish(task.id, task.run, TaskResult(status="cancelled"))
        await serving
        await worker.close()

    asyncio.run(work())
    assert not (workshop.world.workspace / "late").exists()
    assert not workshop.records(task_id, "intent")
    assert not workshop.records(task_id, "result")  # nor is anything written
    assert workshop.task(task_id).status == "cancelled"


def test_where_one_look_takes_all_of_the_time_it_is_stopped_all_the_same(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, changed = Clock(monkeypatch, stopping), Journal.wait_async

    async def slowly(self: Journal, after: int, seconds: float | None = None) -> bool:
        clock.let_pass(60)
        return await changed(self, after, seconds)

    workshop.script({"text": "-", "delay": 600})
    task_id = workshop.put()
    worker = workshop.worker(idle=20)
    workshop.until_status(task_id, "running")
    os.kill(worker, signal.SIGSTOP)
    monkeypatch.setattr(Journal, "wait_async", slowly)
    assert stop(workshop, task_id).report.status == "cancelled"


def test_an_unknown_id_is_an_error_with_what_is_close(workshop: Workshop) -> None:
    task_id = workshop.put()
    with pytest.raises(NotFoundError) as error:
        workshop.board.find(task_id[:-1] + ("0" if task_id[-1] != "0" else "1"))
    assert task_id in error.value.fix
