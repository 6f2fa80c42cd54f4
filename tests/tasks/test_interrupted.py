"""After a crash: what only read goes on by itself; for the rest one listing, one question."""

import json
import signal
from typing import Any

import pytest

from kitbag.messages import ToolCall
from kitbag.tasks.interrupted import list_interrupted, only_reads
from support.workshop import Workshop, call

READING = ("ls -la", "cat a.txt | head -3", "git status", "grep -rn x . && wc -l a.txt")
ACTING = ("echo x >> effects", "rm a.txt", "make", "cat a.txt > b.txt", "ls; touch b", "$X", "curl http://x")


@pytest.mark.parametrize("moment", ["intent-written", "tool-done"])
@pytest.mark.parametrize("command", READING[:2])
def test_a_task_whose_interrupted_command_only_read_goes_on_without_a_person(
    workshop: Workshop, moment: str, command: str
) -> None:
    workshop.world.write("a.txt", "a\n")
    workshop.script(call("Bash", "b1", command=command), {"text": "Done."})
    task_id = workshop.put()
    assert workshop.nursery.wait(workshop.worker(moment)) == -signal.SIGKILL
    workshop.work()
    task = workshop.task(task_id)
    assert task.result is not None
    assert (task.status, task.result.text) == ("completed", "Done.")
    assert len(workshop.records(task_id, "reply")) == 2
    assert len(workshop.records(task_id, "result")) == 1


def test_commands_that_may_act_are_not_taken_for_reading() -> None:
    assert all(only_reads(_bash(command)) for command in READING)
    assert not any(only_reads(_bash(command)) for command in ACTING)
    assert not only_reads(_bash("ls", run_in_background=True))
    assert not only_reads(ToolCall(id="1", name="Write", arguments={"file_path": "a", "content": ""}))
    assert not only_reads(ToolCall(id="1", name="mcp__x__list", arguments={}))
    assert not only_reads(ToolCall(id="1", name="Bash", arguments={}))
    assert only_reads(ToolCall(id="1", name="TodoWrite", arguments={"todos": []}))


def _bash(command: str, **more: Any) -> ToolCall:
    return ToolCall(id="1", name="Bash", arguments={"command": command, **more})


def _interrupt(workshop: Workshop, count: int) -> list[str]:
    workshop.script(call("Bash", "b1", command="echo one >> effects"), {"text": "Done."})
    ids: list[str] = []
    for _ in range(count):
        ids.append(workshop.put())
        assert workshop.nursery.wait(workshop.worker("tool-done")) == -signal.SIGKILL
        workshop.work()
    assert [workshop.task(one).status for one in ids] == ["interrupted"] * count
    return ids


def _run(workshop: Workshop, *arguments: str) -> Any:
    workshop.world.env |= {"KITBAG_HOME": workshop.home}
    return workshop.world.run("tasks", "resume", *arguments)


def test_all_interrupted_tasks_are_listed_with_their_steps_and_resumed_at_once(workshop: Workshop) -> None:
    ids = _interrupt(workshop, 2)
    asked = _run(workshop, "--all")
    assert (asked.returncode, "needs an interactive terminal" in asked.stderr) == (2, True)
    assert asked.stdout.count("Bash(echo one >> effects)") == 2
    assert "the outcome is unknown" in asked.stdout

    listed = _run(workshop, "--all", "--json")
    assert listed.returncode == 0
    rows = json.loads(listed.stdout)
    assert [(row["id"], row["effect"], row["steps"], row["resumed"]) for row in rows] == [
        (one, "unknown", ["Bash(echo one >> effects)"], False) for one in ids
    ]
    assert {workshop.task(one).status for one in ids} == {"interrupted"}

    resumed = _run(workshop, "--all", "--yes")
    assert (resumed.returncode, "resumed 2 tasks" in resumed.stdout) == (0, True), resumed.stderr
    for one in ids:
        workshop.until_status(one, "completed")
    assert (workshop.world.workspace / "effects").read_text() == "one\n" * 2
    again = _run(workshop, "--all", "--yes")
    assert (again.returncode, again.stdout, again.stderr) == (0, "", "no interrupted tasks\n")


def test_what_can_not_be_resumed_is_skipped_with_the_reason(workshop: Workshop) -> None:
    [task_id] = _interrupt(workshop, 1)
    elsewhere = workshop.world.home / "elsewhere"
    workshop.world.workspace.rename(elsewhere)
    workshop.world.workspace.mkdir()
    [found] = list_interrupted(workshop.board)
    assert (found.task.id, found.effect) == (task_id, "skip")
    assert "was moved or replaced" in found.problem
    done = _run(workshop, "--all", "--yes")
    assert done.returncode == 1
    assert "was moved or replaced" in done.stdout
    assert workshop.task(task_id).status == "interrupted"


def test_arguments_that_make_no_sense_are_errors(workshop: Workshop) -> None:
    for arguments in (("--all", "abc"), (), ("abc", "--yes")):
        done = _run(workshop, *arguments)
        assert done.returncode == 2, arguments
        assert done.stderr.startswith("error: ")
