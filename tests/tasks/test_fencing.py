"""A worker that was frozen while another took its tasks over writes nothing more and does nothing more."""

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from kitbag.store.fencing import FencedError, fenced_by
from kitbag.store.journal import Journal, journal_path
from kitbag.store.redaction import Redactor
from kitbag.tasks.board import Board, begin_key, end_key
from kitbag.tasks.owner import this_process
from kitbag.tasks.task import TaskRequest, TaskResult
from support import needs
from support.fleets import Fleet
from support.matrix import long
from support.network_hosts import NetworkHost
from support.tcp_proxy import TcpProxy
from support.workshop import call

both_stores = pytest.mark.usefixtures("store")


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    with Journal.open(journal_path(str(tmp_path / "home")), Redactor([])) as opened:
        yield opened


@both_stores
def test_what_is_fenced_is_refused_in_the_transaction_and_nothing_else_is(journal: Journal) -> None:
    async def work() -> None:
        with fenced_by("begun:t:2", "ended:t:1"):
            assert await journal.write("s", "k", 1) == 1
            inner = asyncio.create_task(_wait_and_write(journal, changed := asyncio.Event()))
        assert await journal.write_once("begun:t:2", "s", "begun", {}) == 2
        changed.set()
        with pytest.raises(FencedError, match="another process has taken over or ended this task"):
            await inner
        with fenced_by("begun:t:2"):
            # The outcome of a race stays what it was.
            assert await journal.write_once("begun:t:2", "s", "begun", {}) is None
            results = await asyncio.gather(journal.write("s", "k", 2), _outside(journal), return_exceptions=True)
        assert isinstance(results[0], FencedError)
        assert results[1] == 3
        with fenced_by("begun:t:2"), pytest.raises(FencedError):
            await asyncio.to_thread(journal.append, "s", "k", 3)

    asyncio.run(work())
    assert [record.kind for record in journal.read()] == ["k", "begun", "outside"]


async def _wait_and_write(journal: Journal, changed: asyncio.Event) -> None:
    await changed.wait()
    await journal.write("s", "k", "late")


async def _outside(journal: Journal) -> int:
    return await asyncio.get_running_loop().run_in_executor(None, journal.append, "s", "outside", {})


@both_stores
def test_an_end_of_a_run_that_was_taken_over_is_not_written(journal: Journal) -> None:
    board = Board(journal)

    async def work() -> None:
        request = TaskRequest(agent="doer", prompt="Do it.")
        task = await board.create("aaaa00000001", "agent", request, root="r", parent="", depth=1, background=True)
        assert await board.claim(task)
        first = board.find(task.id)
        other = msgspec.structs.replace(this_process(), machine="elsewhere")
        assert await board.claim(first, other, recovered=True)
        with pytest.raises(FencedError):
            await board.finish(task.id, first.run, TaskResult(status="completed"))
        assert await board.finish(task.id, first.run + 1, TaskResult(status="completed"))
        assert (begin_key(task.id, 2), end_key(task.id, 2)) == ("begun:aaaa00000001:2", "ended:aaaa00000001:2")

    asyncio.run(work())
    assert [record.kind for record in journal.read("tasks")] == ["created", "begun", "begun", "ended"]


WAIT = "echo begun >> effects; while [ ! -e go ]; do sleep 0.02; done; echo done >> effects"


def test_a_worker_that_was_frozen_and_revived_writes_nothing_and_its_step_is_reported_as_unknown(fleet: Fleet) -> None:
    workshop = fleet.workshop
    effects = workshop.world.workspace / "effects"
    workshop.script(call("Bash", "b1", command=WAIT), call("Bash", "b2", command="echo more >> effects"), {"text": "x"})
    task_id = workshop.put()
    frozen = fleet.worker("one")
    workshop.until(effects.exists, "the command did not begin")
    os.kill(frozen, signal.SIGSTOP)
    fleet.worker("two")
    workshop.until(lambda: workshop.task(task_id).is_finished, "nobody took it over")
    ended = workshop.task(task_id)
    assert (ended.status, ended.run) == ("interrupted", 2)
    assert ended.result is not None
    assert "unknown outcome" in ended.result.error
    before = fleet.session_kinds(task_id)
    (workshop.world.workspace / "go").touch()
    os.kill(frozen, signal.SIGCONT)
    workshop.until(lambda: "taken over or ended" in Path(fleet.log("one")).read_text(), "it was not refused")
    assert fleet.session_kinds(task_id) == before
    assert "more" not in effects.read_text()
    assert workshop.task(task_id) == ended


def test_nothing_is_killed_of_a_frozen_worker_s_task_before_somebody_else_owns_it(fleet: Fleet) -> None:
    """The other worker has no room for it, so the frozen one goes on with it when it comes back."""
    workshop = fleet.workshop
    folder = workshop.world.workspace
    hold = "touch {0}.begun; while [ ! -e {0}.go ]; do sleep 0.02; done; echo {0} >> effects"
    replies = {
        name: [call("Bash", "b1", command=hold.format(name)), {"text": "x"}] for name in ("busy", "gone", "kept")
    }
    workshop.script(**replies)
    workshop.put("busy")
    fleet.worker("two", at_once=1)
    workshop.until((folder / "busy.begun").exists, "the second worker is not busy")
    gone, kept = workshop.put("gone"), workshop.put("kept")
    frozen = fleet.worker("one")
    for name in ("gone", "kept"):
        workshop.until((folder / f"{name}.begun").exists, "a command did not begin")
    os.kill(frozen, signal.SIGSTOP)
    asyncio.run(workshop.board.request_stop([workshop.task(gone)]))
    workshop.until_status(gone, "cancelled")  # so the second worker has seen that the first one is lost
    (folder / "kept.go").touch()
    os.kill(frozen, signal.SIGCONT)
    ended = workshop.until_status(kept, "completed", "interrupted")
    assert (ended.status, ended.run) == ("completed", 1)
    assert (folder / "effects").read_text() == "kept\n"


def test_a_worker_that_is_cut_off_from_the_database_starts_nothing_more_and_writes_nothing_later(fleet: Fleet) -> None:
    workshop = fleet.workshop
    effects = workshop.world.workspace / "effects"
    workshop.script(call("Bash", "b1", command=WAIT), call("Bash", "b2", command="echo more >> effects"), {"text": "x"})
    task_id = workshop.put()
    with TcpProxy(fleet.schema.server.port) as proxy:
        fleet.worker("one", port=proxy.port)
        workshop.until(effects.exists, "the command did not begin")
        proxy.cut()
        fleet.worker("two")
        workshop.until(lambda: workshop.task(task_id).is_finished, "nobody took it over")
        ended = workshop.task(task_id)
        assert (ended.status, ended.run) == ("interrupted", 2)
        before = fleet.session_kinds(task_id)
        (workshop.world.workspace / "go").touch()
        proxy.restore()
        workshop.until(lambda: "taken over or ended" in Path(fleet.log("one")).read_text(), "it was not refused")
    assert (fleet.session_kinds(task_id), workshop.task(task_id)) == (before, ended)
    assert "more" not in effects.read_text()


@long
def test_a_host_whose_network_fails_loses_its_task_to_another_host_and_does_nothing_more(fleet: Fleet) -> None:
    needs.bubblewrap()
    workshop = fleet.workshop
    effects = workshop.world.workspace / "effects"
    workshop.script(call("Bash", "b1", command=WAIT), call("Bash", "b2", command="echo more >> effects"), {"text": "x"})
    task_id = workshop.put()
    words = ("worker", "--queue", "fleet", "--idle", "600")
    with (
        NetworkHost("one") as one,
        NetworkHost("two") as two,
        TcpProxy(fleet.schema.server.port, one.gateway) as first,
        TcpProxy(fleet.schema.server.port, two.gateway) as second,
    ):
        environments = [
            {name: value.replace("127.0.0.1", host.gateway) for name, value in fleet.environment(*who).items()}
            for host, who in ((one, ("one", first.port)), (two, ("two", second.port)))
        ]
        one.start(environments[0], fleet.log("one"), *words)
        workshop.until(effects.exists, "the command did not begin")
        one.unplug()
        two.start(environments[1], fleet.log("two"), *words)
        workshop.until(lambda: workshop.task(task_id).is_finished, "nobody took it over")
        ended = workshop.task(task_id)
        assert (ended.status, ended.run) == ("interrupted", 2)
        assert ended.owner is not None
        assert ended.owner.machine.startswith("two/")
        before = fleet.session_kinds(task_id)
        (workshop.world.workspace / "go").touch()  # nobody could end the command of the first host
        workshop.until(lambda: "done" in effects.read_text())
        one.plug_in()
        workshop.until(lambda: "taken over or ended" in Path(fleet.log("one")).read_text(), "it was not refused")
    assert (fleet.session_kinds(task_id), workshop.task(task_id)) == (before, ended)
    assert effects.read_text().split() == ["begun", "done"]


@long
def test_clocks_that_differ_by_days_change_nothing(fleet: Fleet) -> None:
    workshop = fleet.workshop
    effects = workshop.world.workspace / "effects"
    workshop.script(call("Bash", "b1", command=WAIT), {"text": "ok"})
    fleet.set_lease(5.0)
    task_id = workshop.put()
    ahead = fleet.worker("ahead", clock=3 * 86_400, at_once=1)
    workshop.until(effects.exists, "the command did not begin")
    fleet.worker("behind", clock=-3 * 86_400)
    other = workshop.put()
    workshop.until(lambda: len(effects.read_text().split()) > 1)
    # More than a lease passes while both live.
    [[later]] = fleet.schema.rows("SELECT clock_timestamp() + interval '6 seconds'")
    renewed = f"SELECT count(*) FROM kitbag_writers WHERE process IS NOT NULL AND at > '{later}'"
    workshop.until(lambda: fleet.schema.rows(renewed)[0][0] >= 2)
    assert [workshop.task(one).run for one in (task_id, other)] == [1, 1]
    os.kill(ahead, signal.SIGSTOP)
    workshop.until(lambda: workshop.task(task_id).is_finished, "nobody took it over")
    assert (workshop.task(task_id).status, workshop.task(task_id).run) == ("interrupted", 2)
    (workshop.world.workspace / "go").touch()
    workshop.until(lambda: workshop.task(other).is_finished)
    assert (workshop.task(other).status, workshop.task(other).run) == ("completed", 1)
    assert all(one["oldest_seconds"] >= 0 for one in workshop.world.json("fleet", "status")["queues"])


def test_a_worker_on_another_machine_is_judged_by_its_lease_and_its_tasks_go_on_once(fleet: Fleet) -> None:
    workshop = fleet.workshop
    workshop.script(call("Bash", "b1", command="echo one >> effects"), {"text": "ok"})
    task_id = workshop.put()
    one, two = fleet.worker("one"), fleet.worker("two")
    workshop.until(lambda: workshop.task(task_id).is_finished)
    assert workshop.task(task_id).run == 1  # a worker that lives keeps its tasks
    later = workshop.put()
    workshop.until(lambda: workshop.task(later).is_finished)
    workshop.nursery.kill(one)
    workshop.nursery.kill(two)
    waiting = workshop.put()
    fleet.worker("three")
    workshop.until(lambda: workshop.task(waiting).is_finished)
    assert (workshop.world.workspace / "effects").read_text() == "one\n" * 3
