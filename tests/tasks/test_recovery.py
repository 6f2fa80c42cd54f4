"""Kill -9 at each named moment: nothing that was acknowledged is lost, nothing that was done is done twice."""

import asyncio
import signal

import msgspec
import pytest

from kitbag.store.fault_points import TASK_POINTS
from support.workshop import Workshop, call

pytestmark = pytest.mark.usefixtures("store")

UNKNOWN = "interrupted (unknown outcome)"
STEPS = (
    call("Bash", "b1", command="echo one >> effects"),
    call("Read", "r1", file_path="effects"),
    call("Write", "w1", file_path="made.txt", content="made\n"),
    {"text": "Done."},
)
CASES = {
    # The moment, which is a step's when it has a number: how it ends, and what it did.
    "task-claimed": ("completed", "one\n", True),
    "request-sent": ("completed", "one\n", True),
    "request-sent:3": ("completed", "one\n", True),
    "reply-received": ("completed", "one\n", True),
    "reply-received:4": ("completed", "one\n", True),
    "intent-written": ("interrupted", "", False),
    "intent-written:2": ("interrupted", "one\n", False),
    "tool-done": ("interrupted", "one\n", False),
    "tool-done:2": ("completed", "one\n", True),  # only read
    "tool-done:3": ("interrupted", "one\n", True),
    "result-written": ("completed", "one\n", True),
    "result-written:3": ("completed", "one\n", True),
    "end-unwritten": ("completed", "one\n", True),
    "end-written": ("completed", "one\n", True),
}


def effects(workshop: Workshop) -> tuple[str, bool]:
    file = workshop.world.workspace / "effects"
    return file.read_text() if file.exists() else "", (workshop.world.workspace / "made.txt").exists()


def test_each_named_moment_is_tried() -> None:
    assert {case.partition(":")[0] for case in CASES} | {"task-created"} == set(TASK_POINTS)


@pytest.mark.parametrize("moment", CASES)
def test_a_worker_that_is_killed_there_loses_nothing_and_repeats_nothing(workshop: Workshop, moment: str) -> None:
    status, written, made = CASES[moment]
    workshop.script(*STEPS)
    task_id = workshop.put()
    killed = workshop.worker(moment)
    assert workshop.nursery.wait(killed) == -signal.SIGKILL
    before = [(record.seq, record.kind, record.body) for record in workshop.journal.read()]

    workshop.work()
    task = workshop.task(task_id)
    assert (task.status, effects(workshop)) == (status, (written, made))
    after = [(record.seq, record.kind, record.body) for record in workshop.journal.read()]
    assert after[: len(before)] == before
    if status == "completed":
        assert task.result is not None
        assert task.result.text == "Done."
        assert task.result.turns == len(STEPS) == len(workshop.records(task_id, "reply"))
    else:
        assert task.result is not None
        assert UNKNOWN in task.result.error
        assert "resume" in task.result.error

    workshop.work()  # what has ended stays so
    assert workshop.task(task_id) == task
    assert effects(workshop) == (written, made)


def test_what_was_interrupted_goes_on_when_a_person_wants_it_and_the_model_is_told(workshop: Workshop) -> None:
    workshop.script(*STEPS)
    task_id = workshop.put()
    assert workshop.nursery.wait(workshop.worker("tool-done")) == -signal.SIGKILL
    workshop.work()
    task = workshop.task(task_id)
    assert task.status == "interrupted"
    assert asyncio.run(workshop.board.requeue(task, msgspec.structs.replace(workshop.wish(), message="Go on.")))
    workshop.work()
    assert workshop.task(task_id).status == "completed"
    assert effects(workshop) == ("one\n", True)
    said = [part for record in workshop.records(task_id, "user") for part in record.body["message"]["parts"]]
    assert "Go on." in str(said)


@pytest.mark.parametrize("moment", ["task-claimed", "request-sent"])
def test_what_a_resumed_task_was_told_is_not_lost_either(workshop: Workshop, moment: str) -> None:
    workshop.script({"text": "First."}, {"text": "Second."})
    task_id = workshop.put()
    workshop.work()
    assert asyncio.run(
        workshop.board.requeue(
            workshop.task(task_id), msgspec.structs.replace(workshop.wish(), message="And the second?")
        )
    )
    assert workshop.nursery.wait(workshop.worker(moment)) == -signal.SIGKILL
    workshop.work()
    task = workshop.task(task_id)
    assert task.result is not None
    assert (task.status, task.result.text) == ("completed", "Second.")
    said = [str(record.body["message"]) for record in workshop.records(task_id, "user")]
    assert len(said) == 2
    assert "And the second?" in said[1]


def test_a_task_is_on_the_board_when_whoever_created_it_dies_right_after(workshop: Workshop) -> None:
    workshop.script({"text": "Done."})
    wish = msgspec.structs.asdict(workshop.wish())
    environment = {**workshop.environment, "KITBAG_FAULT_AT": "task-created"}
    log = str(workshop.world.home / "client.log")
    client = workshop.nursery.start("client", environment, log, wishes=[wish], background=True)
    assert workshop.nursery.wait(client) == -signal.SIGKILL
    [task] = workshop.board.all()
    assert task.status == "queued"
    workshop.work()
    assert workshop.task(task.id).status == "completed"


def test_what_never_gets_anywhere_is_not_tried_for_ever(workshop: Workshop) -> None:
    workshop.script({"text": "Done."})
    task_id = workshop.put()
    for _ in range(4):
        assert workshop.nursery.wait(workshop.worker("request-sent")) == -signal.SIGKILL
    workshop.work()
    task = workshop.task(task_id)
    assert task.status == "interrupted"
    assert task.result is not None
    assert "resume" in task.result.error


@pytest.mark.parametrize(
    "moments",
    [
        pytest.param(("request-sent",) * 3, id="the last run got on"),
        pytest.param(("result-written", *("task-claimed",) * 3), id="the last run only began the step"),
    ],
)
def test_a_step_with_an_unknown_outcome_is_reported_however_often_its_process_ended(
    workshop: Workshop, moments: tuple[str, ...]
) -> None:
    read, run = call("Read", "r1", file_path="script.json"), call("Bash", "b1", command="echo one >> effects")
    workshop.script({"calls": [*read["calls"], *run["calls"]]}, {"text": "Done."})
    task_id = workshop.put()
    for moment in (*moments, "intent-written"):
        assert workshop.nursery.wait(workshop.worker(moment)) == -signal.SIGKILL
    workshop.work()
    task = workshop.task(task_id)
    assert task.status == "interrupted"
    assert task.result is not None
    assert UNKNOWN in task.result.error
    assert "Bash" in task.result.error


def test_what_gets_on_a_little_each_time_is_tried_on(workshop: Workshop) -> None:
    workshop.script(*(call("Read", f"r{number}", file_path="script.json") for number in range(6)), {"text": "Done."})
    task_id = workshop.put()
    for _ in range(6):
        assert workshop.nursery.wait(workshop.worker("result-written")) == -signal.SIGKILL
    workshop.work()
    assert workshop.task(task_id).status == "completed"
    assert len(workshop.records(task_id, "reply")) == 7


def test_work_in_front_of_a_process_that_was_killed_is_ended_by_whoever_looks(workshop: Workshop) -> None:
    wish = msgspec.structs.asdict(workshop.wish())
    environment = {**workshop.environment, "KITBAG_FAULT_AT": "task-created"}
    log = str(workshop.world.home / "client.log")
    client = workshop.nursery.start("client", environment, log, wishes=[wish], background=False)
    assert workshop.nursery.wait(client) == -signal.SIGKILL
    [task] = workshop.board.all()
    assert [buried.id for buried in asyncio.run(workshop.board.end_dead_foreground_tasks())] == [task.id]
    assert workshop.task(task.id).status == "interrupted"
