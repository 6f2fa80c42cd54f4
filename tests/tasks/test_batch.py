"""`kitbag agents run --each`: the real program with a worker, from the first row to the summary, and after it was ended."""

import json
import signal
import subprocess
from typing import Any

import pytest

from support.waiting import TEST_TIMEOUT
from support.workshop import Workshop

pytestmark = pytest.mark.usefixtures("store")

SCHEMA = {"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}}
PROMPT = "Count {{name}}."


@pytest.fixture
def batch(workshop: Workshop) -> Workshop:
    world = workshop.world
    world.env |= {"KITBAG_HOME": workshop.home, "KITBAG_MODEL": f"scripted:{world.workspace / 'script.json'}"}
    world.write("schema.json", json.dumps(SCHEMA))
    return workshop


def rows(batch: Workshop, *names: str) -> None:
    batch.world.write("rows.csv", "".join(f"{line}\n" for line in ("name", *names)))


def run(batch: Workshop, *more: str, prompt: str = PROMPT) -> "subprocess.CompletedProcess[str]":
    return batch.world.run("agents", "run", "doer", prompt, "--each", "rows.csv", *more)


def results(batch: Workshop) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (batch.world.workspace / "rows.results.jsonl").read_text().splitlines()]


def ends(batch: Workshop) -> list[tuple[int, str, Any]]:
    return sorted(((one["row"], one["status"], one["output"]) for one in results(batch)), key=str)


def test_each_row_gets_an_agent_and_only_what_is_missing_or_changed_is_run_again(batch: Workshop) -> None:
    rows(batch, "ants", "bees", "cats", "ants")
    wrong = [{"text": '{"n": "x"}'}, {"text": "{}"}]
    batch.script({"text": '{"n": 1}'}, bees=[{"text": "Two."}, {"text": '```json\n{"n": 2}\n```'}], cats=wrong)
    worker = batch.worker(idle=60)
    options = ("--output-schema", "schema.json", "--concurrency", "2")
    done = run(batch, *options)
    assert done.returncode == 1, done.stderr
    assert ends(batch) == [(1, "completed", {"n": 1}), (2, "completed", {"n": 2}), (3, "failed", "{}"), (4, "completed", {"n": 1})]  # fmt: skip
    assert "3 of 4 rows completed, 1 failed" in done.stdout
    assert "row 3 failed: the answer does not match the output schema: the value: 'n' is a required" in done.stderr
    bees = next(one["task"] for one in results(batch) if one["row"] == 2)
    assert '<row number="2">\n{"name": "bees"}\n</row>' in batch.board.request(bees).prompt
    told = [record.body["message"] for record in batch.records(bees, "user")]
    assert "not valid JSON" in json.dumps(told[1]), "the model is told what is wrong"
    assert most_at_once(batch) <= 2

    tasks = len(batch.board.all())
    again = run(batch, *options)
    assert (again.returncode, len(batch.board.all())) == (1, tasks), "nothing is run again"
    assert "3 completed before, 1 failed before (skipped; add --retry-failed" in again.stderr

    rows(batch, "bees", "cats", "dogs", "ants", "ants")
    batch.script({"text": '{"n": 9}'})
    batch.nursery.kill(worker)  # it has read the old script
    batch.worker(idle=60)
    summary = json.loads(run(batch, *options, "--retry-failed", "--json").stdout)
    assert {name: summary[name] for name in ("rows", "completed", "failed", "ran")} == {"rows": 5, "completed": 5, "failed": 0, "ran": 2}  # fmt: skip
    assert sorted(one["row"] for one in results(batch)[4:]) == [2, 3]
    assert len(batch.board.all()) == tasks + 2
    rows(batch, "ants", "eels")
    changed = run(batch, *options)
    assert "4 results of rows that changed or were removed since" in changed.stderr
    assert changed.returncode == 0
    assert len(batch.board.all()) == tasks + 3

    other = run(batch, *options, prompt="Weigh {{name}}.")
    assert (other.returncode, len(batch.board.all())) == (6, tasks + 3)
    assert "has results of other rows, another prompt or another agent" in other.stderr


def most_at_once(batch: Workshop) -> int:
    """Unfinished tasks on the board at a time."""
    count = most = 0
    for record in batch.journal.read("tasks"):
        count += (record.kind == "created") - (record.kind == "ended")
        most = max(most, count)
    return most


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGKILL, marks=pytest.mark.long)])
def test_a_run_that_was_ended_is_resumed_with_the_tasks_that_it_left(batch: Workshop, number: int) -> None:
    rows(batch, "ants", "bees", "cats")
    slow = {"calls": [{"id": "w", "name": "Bash", "arguments": {"command": "while [ ! -e go ]; do sleep 0.02; done"}}]}
    batch.script({"text": "Done."}, bees=[slow, {"text": "Bees."}], cats=[slow, {"text": "Cats."}])
    batch.worker(idle=60)
    command = batch.world.command("agents", "run", "doer", PROMPT, "--each", "rows.csv")
    with subprocess.Popen(
        command, cwd=batch.world.workspace, env=batch.world.env, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as started:  # fmt: skip
        batch.until(lambda: len([task for task in batch.board.all() if task.status == "running"]) == 2)
        batch.until(lambda: (batch.world.workspace / "rows.results.jsonl").stat().st_size)
        second = run(batch)
        assert (second.returncode, "another run is writing to" in second.stderr) == (6, True)
        started.send_signal(number)
        said = "".join(started.communicate(timeout=TEST_TIMEOUT))
    if number == signal.SIGINT:
        assert started.returncode == 130, said
        assert "2 tasks are still running in the background" in said
        assert "resume with: kitbag agents run doer 'Count {{name}}.' --each rows.csv" in said
    (batch.world.workspace / "go").touch()
    done = run(batch)
    assert done.returncode == 0, done.stderr
    assert ends(batch) == [(1, "completed", "Done."), (2, "completed", "Bees."), (3, "completed", "Cats.")]
    assert len(batch.board.all()) == 3, "no row was run twice"


@pytest.mark.parametrize(
    ("content", "arguments", "code", "problem"),
    [
        ("name\nx\n", ("Count {{nmae}}.",), 2, "rows.csv:2: no column 'nmae', which the prompt names"),
        ("name\n", ("Go.",), 6, "rows.csv has no rows"),
        ("", ("Go.",), 6, "rows.csv has no rows"),
        ("name\na,b\n", ("Go.",), 6, "rows.csv:2: 2 values"),
        ("name\nx\n", ("Go.", "--results", "rows.csv"), 6, "rows.csv:1: not a result of a row"),
        ("name\nx\n", ("Go.", "--background"), 2, "--each and --background can't be combined"),
        ("name\nx\n", ("Go.", "--output-schema", "none.json"), 4, "no file none.json"),
    ],
)
def test_bad_input_is_refused_before_anything_starts(
    batch: Workshop, content: str, arguments: tuple[str, ...], code: int, problem: str
) -> None:
    batch.script({"text": "Done."})
    batch.world.write("rows.csv", content)
    done = batch.world.run("agents", "run", "doer", *arguments, "--each", "rows.csv")
    assert done.returncode == code, done.stderr
    assert problem in done.stderr
    assert batch.board.all() == []
    assert not (batch.world.workspace / "rows.results.jsonl").exists()


def test_options_of_each_need_it_and_an_unknown_agent_is_not_started(batch: Workshop) -> None:
    assert "--retry-failed needs --each" in batch.world.run("agents", "run", "doer", "Go.", "--retry-failed").stderr
    rows(batch, "ants")
    batch.script({"text": "Done."})
    unknown = batch.world.run("agents", "run", "dooer", "Go.", "--each", "rows.csv")
    assert (unknown.returncode, "doer" in unknown.stderr) == (4, True)


def test_a_packed_task_gets_the_columns_as_variables_and_can_be_chosen_by_one(batch: Workshop) -> None:
    batch.world.write("one.yaml", "id: T1\ntitle: Count\ndescription: Count the {{name}} here.\n")
    batch.world.write("rows.jsonl", '{"name": "ants", "task": "one.yaml"}\n{"name": "bees", "task": "none.yaml"}\n')
    batch.script({"text": '{"n": 1}'})
    batch.worker(idle=60)
    command = ("agents", "run", "doer", "--each", "rows.jsonl", "--pack", "{{task}}", "--output-schema", "schema.json")
    done = batch.world.run(*command)
    assert done.returncode == 1, done.stderr
    assert "row 2 failed: " in done.stderr
    assert ends(batch) == [(1, "completed", {"n": 1}), (2, "failed", None)]
    [task] = batch.board.all()
    assert "Count the ants here." in batch.board.request(task.id).prompt


def test_a_full_queue_makes_the_batch_wait(batch: Workshop) -> None:
    rows(batch, *(f"ant {number}" for number in range(6)))
    batch.world.write("~/.kitbag/settings.toml", "[tasks]\nmax_queued = 1\n")
    batch.script({"text": "Done.", "delay": 0.05})
    batch.worker(idle=60, at_once=1)
    done = run(batch)
    assert done.returncode == 0, done.stderr
    assert [status for _, status, _ in ends(batch)] == ["completed"] * 6
