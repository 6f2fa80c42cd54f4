"""Several workers, one database: who runs what, who is there, and how they leave."""

import asyncio
import json
import math
import time
from collections import Counter

import msgspec
import pytest

from conftest import World
from kitbag.store.api_keys import store_key
from kitbag.tasks import board
from kitbag.tasks.fleet import QueueStatus, announce_worker, read_fleet
from kitbag.tasks.owner import this_process
from kitbag.tasks.task import Task, timestamp
from kitbag.tools.delegation import QueueOptions
from support.fleets import Fleet
from support.matrix import rounds
from support.waiting import wait_until
from support.workshop import Workshop, call


def test_tasks_of_a_shared_queue_run_once_whoever_is_killed(fleet: Fleet) -> None:
    workshop = fleet.workshop
    count = rounds(60, 9)
    workshop.script(call("Bash", "b1", command="echo $KITBAG_SESSION_ID >> effects"), {"text": "Done."})
    tasks = [workshop.put() for _ in range(count)]
    first = fleet.worker("one", at_once=2)
    fleet.worker("two", at_once=2)
    workshop.until(lambda: any(workshop.task(one).is_finished for one in tasks))
    workshop.nursery.kill(first)
    fleet.worker("three", at_once=2)
    workshop.until(lambda: all(workshop.task(one).is_finished for one in tasks), "some did not end")
    ended = Counter(workshop.task(one).status for one in tasks)
    effects = Counter((workshop.world.workspace / "effects").read_text().split())
    # A step that the killed worker had begun may have happened, and is reported instead of being repeated.
    assert set(ended) <= {"completed", "interrupted"}
    assert all(number == 1 for number in effects.values())
    assert ended["completed"] <= len(effects) <= count
    assert len({workshop.task(one).owner for one in tasks}) > 1


def test_a_worker_leaves_alone_what_belongs_to_another_machine_or_needs_a_directory_it_lacks(fleet: Fleet) -> None:
    workshop = fleet.workshop
    workshop.script({"text": "Done."})
    shared = workshop.put()
    workshop.journal.queue = workshop.journal.home_queue
    local = workshop.put()
    workshop.journal.queue = "fleet"
    wish = msgspec.structs.replace(workshop.wish(), directory=str(workshop.world.outside / "missing"))
    made = workshop.board.create("aaaa00000001", "agent", wish, root="r", parent="", depth=1, background=True)
    missing = asyncio.run(made).id
    assert [workshop.task(one).queue[:5] for one in (shared, local, missing)] == ["fleet", "home:", "fleet"]
    assert workshop.nursery.wait(fleet.worker("one", idle=0)) == 0
    assert [workshop.task(one).status for one in (shared, local, missing)] == ["completed", "queued", "queued"]
    workshop.work()
    assert [workshop.task(one).status for one in (shared, local, missing)] == ["completed", "completed", "queued"]


def test_a_task_that_was_copied_from_a_file_waits_for_a_machine_with_its_directory(fleet: Fleet) -> None:
    workshop = fleet.workshop
    workshop.script({"text": "Done."})
    workshop.journal.queue = ""
    here = workshop.put()
    wish = msgspec.structs.replace(workshop.wish(), directory=str(workshop.world.outside / "missing"))
    made = workshop.board.create("aaaa00000001", "agent", wish, root="r", parent="", depth=1, background=True)
    elsewhere = asyncio.run(made).id
    assert workshop.nursery.wait(fleet.worker("one", idle=0)) == 0
    assert [workshop.task(one).status for one in (here, elsewhere)] == ["completed", "queued"]


def test_status_shows_workers_and_queues_and_drained_workers_finish_and_leave(fleet: Fleet) -> None:
    workshop = fleet.workshop
    fleet.set_lease(60.0)  # nobody dies here, however busy the machine is
    effects = workshop.world.workspace / "effects"
    workshop.script(
        call("Bash", "b1", command="echo x >> effects; while [ ! -e go ]; do sleep 0.02; done"), {"text": "Done."}
    )
    running = workshop.put()
    worker = fleet.worker("one", at_once=1, idle=math.inf)
    workshop.until(effects.exists)
    waiting = workshop.put()
    [shown] = wait_until(lambda: read_fleet(workshop.board).workers)  # the mirror follows
    assert (shown.pid, shown.running, shown.concurrency, "fleet" in shown.queues) == (worker, 1, 1, True)
    status = workshop.world.json("fleet", "status")
    [queue] = [one for one in status["queues"] if one["name"] == "fleet"]
    assert (queue["queued"], queue["running"], queue["failed"]) == (1, 1, 0)
    assert shown.id in workshop.world.ok("fleet", "status")
    assert "no worker named" in workshop.world.run("fleet", "drain", "nobody:1").stderr
    assert workshop.world.run("fleet", "drain").returncode == 2
    assert json.loads(workshop.world.ok("fleet", "drain", shown.id, "--json")) == [{"worker": shown.id, "running": 1}]
    (workshop.world.workspace / "go").touch()
    assert workshop.nursery.wait(worker) == 0
    assert [workshop.task(one).status for one in (running, waiting)] == ["completed", "queued"]
    assert workshop.world.json("fleet", "status")["workers"] == []
    fleet.worker("two", idle=0)
    workshop.until(lambda: workshop.task(waiting).is_finished, "drained work was left behind")


def test_failed_tasks_are_retried(fleet: Fleet) -> None:
    workshop = fleet.workshop
    workshop.script({"error": "the provider is down"})
    task_id = workshop.put()
    workshop.nursery.wait(fleet.worker("one", idle=0))
    assert workshop.task(task_id).status == "failed"
    workshop.script({"text": "Done."})
    assert workshop.world.run("fleet", "retry").returncode == 2
    assert workshop.world.json("fleet", "retry", "--failed") == {"queued": [task_id]}
    workshop.nursery.wait(fleet.worker("one", idle=0))
    assert workshop.task(task_id).status == "completed"


def test_without_a_database_there_is_one_queue_and_no_named_one(world: World) -> None:
    assert world.json("fleet", "status") == {"workers": [], "queues": []}
    assert "nan is not a number" in world.run("worker", "--idle", "nan").stderr
    refused = world.run("worker", "--queue", "x")
    assert (refused.returncode, "needs a shared database" in refused.stderr) == (2, True)


def test_a_file_that_was_copied_from_a_database_shows_none_of_its_workers(workshop: Workshop) -> None:
    owner = msgspec.structs.replace(this_process(), machine="elsewhere/1")
    asyncio.run(announce_worker(workshop.journal, owner, queues=["build"], concurrency=3))
    assert read_fleet(workshop.board).workers == ()


def test_a_task_waits_for_a_worker_that_has_a_key_for_its_provider(fleet: Fleet) -> None:
    workshop = fleet.workshop
    workshop.script({"text": "Done."})
    given = QueueOptions(providers=("anthropic", "scripted"))
    made = workshop.board.create(
        "aaaa00000001", "agent", workshop.wish(), root="r", parent="", depth=1, background=True, queueing=given
    )
    task_id = asyncio.run(made).id
    assert "a worker of its queue" in workshop.world.json("tasks", "show", task_id)["waits_for"]
    worker = fleet.worker("one")
    workshop.until(lambda: read_fleet(workshop.board).workers)
    assert "a worker with an API key for anthropic" in workshop.world.ok("tasks", "show", task_id)
    assert "the oldest task waits for a worker with an API key for anthropic" in workshop.world.ok("fleet", "status")
    other = workshop.put()
    workshop.until_status(other, "completed")
    assert workshop.task(task_id).status == "queued"
    store_key(fleet.home("one"), "ANTHROPIC_API_KEY", "test-key")
    workshop.until_status(task_id, "completed")
    workshop.nursery.kill(worker)


def test_workers_together_respect_the_limit_of_a_queue_and_start_scheduled_tasks(fleet: Fleet) -> None:
    workshop = fleet.workshop
    waits = "echo x >> effects; while [ ! -e go ]; do sleep 0.02; done"
    workshop.script(call("Bash", "b1", command=waits), {"text": "Done."})
    tasks = [workshop.put() for _ in range(4)]
    fleet.worker("one", limits={"fleet": 2})
    workshop.until(lambda: [workshop.task(one).status for one in tasks].count("running") == 2)
    fleet.worker("two", limits={"fleet": 3})
    fleet.worker("three")  # without the setting
    workshop.until(lambda: len(read_fleet(workshop.board).workers) == 3)
    later = put_at(workshop, "aaaa00000001", time.time() + 86_400)
    soon = put_at(workshop, "aaaa00000002", time.time() + 1)
    assert later.shown_status == "scheduled"
    workshop.until(lambda: timestamp() > soon.not_before)

    def seen() -> QueueStatus:
        return next(one for one in read_fleet(workshop.board).queues if one.name == "fleet")

    workshop.until(lambda: "the queue runs 2 at once" in seen().waits_for)
    assert (seen().queued, seen().scheduled, seen().running) == (3, 1, 2)
    (workshop.world.workspace / "go").touch()
    workshop.until(lambda: all(workshop.task(one).is_finished for one in (*tasks, soon.id)))
    assert workshop.task(soon.id).started >= soon.not_before
    assert workshop.task(later.id).status == "queued"


def put_at(workshop: Workshop, task_id: str, seconds: float = 0.0, delay: int = 0) -> Task:
    given = QueueOptions(not_before=timestamp(seconds) if seconds else "", delay=delay)
    made = workshop.board.create(
        task_id, "agent", workshop.wish(), root="r", parent="", depth=1, background=True, queueing=given
    )
    return asyncio.run(made)


def test_scheduled_tasks_start_by_the_clock_of_the_server(fleet: Fleet) -> None:
    workshop = fleet.workshop
    workshop.script({"text": "Done."})
    tomorrow, now = put_at(workshop, "aaaa00000001", time.time() + 86_400), workshop.put()
    ahead = fleet.worker("ahead", clock=3 * 86_400, at_once=1)
    workshop.until_status(now, "completed")
    assert workshop.task(tomorrow.id).status == "queued"
    workshop.nursery.kill(ahead)
    soon = put_at(workshop, "aaaa00000002", delay=1)
    fleet.worker("behind", clock=-3 * 86_400)
    workshop.until_status(soon.id, "completed")


def test_a_delayed_start_counts_from_the_clock_of_the_server(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    real, journal = time.time, fleet.workshop.journal
    with monkeypatch.context() as wrong:
        wrong.setattr(time, "time", lambda: real() + 3 * 86_400)
        wait_until(lambda: abs(journal.now() - real()) < 60, "the clocks were not compared again")
        task = put_at(fleet.workshop, "aaaa00000001", delay=3_600)
    assert timestamp(real()) < task.not_before < timestamp(real() + 7_200)


def test_a_worker_waits_for_a_scheduled_task_instead_of_exiting(workshop: Workshop) -> None:
    workshop.script({"text": "Done."})
    task = put_at(workshop, "aaaa00000001", time.time() + 1)
    workshop.work()
    ended = workshop.task(task.id)
    assert (ended.status, ended.started >= task.not_before) == ("completed", True)


def test_a_task_of_a_newer_kitbag_waits_for_a_worker_of_that_version_and_keeps_nothing_else_waiting(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    workshop = fleet.workshop
    workshop.script({"text": "Done."})
    with monkeypatch.context() as newer:
        newer.setattr(board, "kitbag_version", lambda: "99.1")
        waiting = workshop.put()
    older = workshop.put()
    assert workshop.nursery.wait(fleet.worker("one", idle=0)) == 0
    assert [workshop.task(one).status for one in (waiting, older)] == ["queued", "completed"]
    [queue] = [one for one in workshop.world.json("fleet", "status")["queues"] if one["name"] == "fleet"]
    assert (queue["queued"], queue["needs_version"]) == (1, "99.1")
    assert "queue fleet: a task waits for a worker of Kitbag 99.1" in workshop.world.ok("fleet", "status")
    # Whoever runs that version finds it.
    workshop.nursery.wait(fleet.worker("two", idle=0, version="99.1"))
    assert workshop.task(waiting).status == "completed"
