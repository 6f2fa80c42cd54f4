"""Commands in the background: a worker runs them as they were judged, and they outlive whoever began them."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from conftest import World
from kitbag.assembly.run_options import Options
from kitbag.errors import InvalidError
from kitbag.messages import Text, ToolResult
from kitbag.permissions.approvals.approval import ApprovalAnswer, ApprovalRequest, PermitError
from kitbag.permissions.model import PermissionDecision
from kitbag.processes import run_process
from kitbag.runtime.agent import Agent
from kitbag.tasks import command_task
from kitbag.tasks.command_task import CommandTask
from kitbag.tasks.delegation import TaskDelegation
from kitbag.tasks.notifications import render_notifications, take_unnotified
from kitbag.tasks.output_file import OutputFile
from kitbag.tasks.reports import build_report
from kitbag.tasks.stop_signals import StopSignals
from kitbag.tasks.task import Task
from kitbag.tasks.task_processes import find_task_processes
from kitbag.tasks.worker_process import hold_worker_lock
from kitbag.testing import Rule, Script, Scripted, Step
from kitbag.tools.delegation import TaskReport
from support import needs
from support.clock import Clock
from support.waiting import TEST_TIMEOUT, until_true
from support.workshop import Nursery, Workshop, opened

T = TypeVar("T")
TOOLS = ("Bash", "TaskOutput", "TaskStop", "Task")
STUBBORN = (
    "trap '' TERM HUP; (trap '' TERM HUP; sleep 300) & setsid sh -c 'trap \"\" TERM; sleep 300' &"
    " (sleep 300 >&2) & echo begun; sleep 300"
)
HIDING = f"env -i setsid sleep 300.{os.getpid()}"
"""With nothing of its environment, in a session of its own."""
FREE = PermissionDecision(effect="allow", reason="for a test", parts=(), sandbox="none", network=True)
"""As if a person had agreed to run it without a sandbox."""


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    made = Nursery()
    yield made
    made.close()


@pytest.fixture
def workshop(world: World, nursery: Nursery, monkeypatch: pytest.MonkeyPatch) -> Iterator[Workshop]:
    for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "KITBAG_MODEL", "OLLAMA_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(world.home))
    monkeypatch.setenv("KITBAG_HOME", str(world.home / ".kitbag"))
    with opened(world, nursery) as made:
        yield made


def begun(
    workshop: Workshop, command: str, judgement: PermissionDecision | None = None, seconds: float = 0.0, **options: Any
) -> Task:
    """On the board, as the tool puts it there; a worker has to be at work already."""

    async def start(delegated: TaskDelegation, agent: Agent) -> TaskReport:
        where = agent.context.directory
        judged = judgement or agent.permissions.decide("Bash", {"command": command}, where)
        return await delegated.start_command(command, "", where, seconds, judged)

    return workshop.task(within(workshop, start, **options).id)


def within(workshop: Workshop, work: Callable[[TaskDelegation, Agent], Awaitable[T]], **options: Any) -> T:
    async def run() -> T:
        given = Options(**{"directory": str(workshop.world.workspace), "only_tools": TOOLS, **options})
        async with asyncio.timeout(TEST_TIMEOUT), Agent(options=given, provider=Scripted(Script([]))) as agent:
            return await work(TaskDelegation(agent.parent_context, agent.session.id), agent)

    return asyncio.run(run())


def report(workshop: Workshop, task: Task, offset: int = 0) -> TaskReport:
    return build_report(workshop.board, workshop.task(task.id), offset)


def ended(workshop: Workshop, task: Task) -> TaskReport:
    workshop.until(lambda: workshop.task(task.id).is_finished, f"{task}")
    return report(workshop, task)


def until_printed(workshop: Workshop, task: Task, text: str) -> None:
    workshop.until(lambda: text in report(workshop, task).text, f"{report(workshop, task)}")


def output_file(workshop: Workshop, task: Task) -> Path:
    return Path(workshop.home) / "state/output" / task.id


def hiding() -> list[str]:
    found: list[str] = []
    for name in filter(str.isdecimal, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if Path(f"/proc/{name}/cmdline").read_bytes() == f"sleep\x00300.{os.getpid()}\x00".encode():
                found.append(name)
    return found


# --- through the loop ---------------------------------------------------------------------------------------------


def bash(command: str, call_id: str = "b1", **arguments: Any) -> Step:
    return Step(calls=((call_id, "Bash", json.dumps({"command": command, "run_in_background": True, **arguments})),))


def talk(workshop: Workshop, *steps: Any, approver: Any = None, **options: Any) -> str:
    """What the tools answered a model that says this."""

    async def run() -> str:
        model = Scripted(Script([Rule([*steps, Step(text="Done.")])]))
        given = Options(**{"directory": str(workshop.world.workspace), "only_tools": TOOLS, **options})
        async with (
            asyncio.timeout(TEST_TIMEOUT),
            Agent(options=given, provider=model, approver=approver) as agent,
            agent.run("Do it.") as asked,
        ):
            await asked.wait()
        parts = [part for message in model.requests[-1].messages for part in message.parts]
        contents = [part.content if isinstance(part, ToolResult) else (part,) for part in parts]
        return "\n".join(part.text for content in contents for part in content if isinstance(part, Text))

    return asyncio.run(run())


def task_of(workshop: Workshop) -> Task:
    return workshop.board.all()[-1]


def test_a_model_starts_one_looks_at_it_stops_it_and_is_told_of_the_end_of_another(workshop: Workshop) -> None:
    workshop.worker(idle=20)

    def look(_: Any) -> Step:
        until_printed(workshop, task_of(workshop), "listening")
        return Step(calls=(("o1", "TaskOutput", json.dumps({"task_id": task_of(workshop).id, "block": False})),))

    def stop(_: Any) -> Step:
        return Step(calls=(("s1", "TaskStop", json.dumps({"task_id": task_of(workshop).id})),))

    def wait(_: Any) -> Step:
        ended(workshop, task_of(workshop))
        return Step(calls=(("w1", "Bash", json.dumps({"command": "true"})),))

    said = talk(
        workshop,
        bash("echo listening; exec sleep 300", description="Serves."),
        look,
        stop,
        bash("echo one; echo '</task-notification>two'; exit 3", "b2"),
        wait,
    )
    first, second = (task for task in workshop.board.all())
    assert f"in the background as task {first.id}" in said
    assert "Undo covers its changes once it has ended" in said
    assert f"Agent: Bash\nTask: {first.id}\nStatus: still running\nTurns: 0\nTokens: 0\nActivity: listening" in said
    assert "<command-output>\nlistening\n</command-output>" in said
    assert f"offset={len('listening') + 1}).]" in said
    assert f"task {first.id} (Bash): cancelled. Remaining processes: 0." in said
    assert f'task-id="{second.id}" status="failed" agent="Bash">\nError: Exit code 3' in said
    assert "one\n<\\/task-notification>two" in said
    assert [task.status for task in workshop.board.all()] == ["cancelled", "failed"]


def test_what_it_prints_is_had_by_its_place_while_it_runs_and_the_exit_code_at_its_end(workshop: Workshop) -> None:
    workshop.worker(idle=20)
    go = workshop.world.workspace / "go"
    task = begun(workshop, "printf 'first\\n'; until [ -e go ]; do sleep 0.05; done; printf 'sécond'")
    until_printed(workshop, task, "first\n")
    before = report(workshop, task)
    assert (before.status, before.activity, before.exit_code) == ("running", "first", None)
    assert report(workshop, task, before.next_offset).text == ""
    go.touch()
    after = ended(workshop, task)
    assert (after.status, after.exit_code, after.text) == ("completed", 0, "first\nsécond")
    assert report(workshop, task, before.next_offset).text == "sécond"
    assert output_file(workshop, task).stat().st_mode & 0o777 == 0o600


def test_half_a_line_is_shown_when_nothing_follows_it(workshop: Workshop) -> None:
    workshop.worker(idle=20)
    task = begun(workshop, "printf 'Name: '; sleep 300")
    until_printed(workshop, task, "Name: ")


# --- what it may ----------------------------------------------------------------------------------------------------


def test_it_runs_in_the_sandbox_that_was_decided_and_beside_other_commands(workshop: Workshop) -> None:
    needs.bubblewrap()
    workshop.worker(idle=20)
    outside = workshop.world.outside / "made"
    text = f"touch inside; touch {outside} || echo held; cat ~/.kitbag/settings.toml || echo hidden; sleep 300"
    task = begun(workshop, text)
    until_printed(workshop, task, "hidden")
    assert "held" in report(workshop, task).text
    assert (workshop.world.workspace / "inside").exists()
    assert find_task_processes(task.id), "its processes are found, also in a namespace of their own"
    assert "seen" in talk(workshop, Step(calls=(("b1", "Bash", json.dumps({"command": "echo seen > a; cat a"})),)))


def test_it_has_the_environment_of_the_one_who_began_it_without_secrets(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    workshop.worker(idle=20)
    monkeypatch.setenv("PROJECT_FLAVOUR", "mint")
    monkeypatch.setenv("DEPLOY_TOKEN", "s3cr3t-and-long-enough")
    task = begun(workshop, "echo $PROJECT_FLAVOUR; echo [$DEPLOY_TOKEN]; echo $KITBAG_SESSION_ID; pwd")
    assert ended(workshop, task).text == f"mint\n[]\n{task.id}\n{workshop.world.workspace}\n"


def settings(workshop: Workshop, text: str) -> None:
    workshop.world.write("~/.kitbag/settings.toml", text)


def test_a_rule_that_denies_it_by_now_wins(workshop: Workshop) -> None:
    with hold_worker_lock(workshop.home):  # so that no worker is there yet
        task = begun(workshop, "touch made")
        settings(workshop, '[permissions]\ndeny = ["Bash(touch *)"]\n')
    workshop.worker(idle=20)
    found = ended(workshop, task)
    assert found.status == "failed"
    assert "did not run" in found.error
    assert "Bash(touch *)" in found.error
    assert not (workshop.world.workspace / "made").exists()
    with pytest.raises(PermitError, match="denied by a rule"):
        begun(workshop, "touch made")


class Says:
    one_at_a_time = False

    def __init__(self) -> None:
        self.asked: list[ApprovalRequest] = []

    async def ask(self, question: ApprovalRequest) -> ApprovalAnswer:
        self.asked.append(question)
        return ApprovalAnswer(choice="allow")


def test_what_a_person_agreed_to_is_not_asked_again_as_long_as_it_is_the_same(workshop: Workshop) -> None:
    workshop.worker(idle=20)
    person = Says()
    said = talk(workshop, bash("python3 -c 'print(6 * 7)'"), approver=person, only_tools=())
    assert "in the background" in said
    found = ended(workshop, task_of(workshop))
    assert (found.error, found.status, found.text) == ("", "completed", "42\n")
    assert len(person.asked) == 1


def test_what_a_person_agreed_to_does_not_run_when_the_rules_ask_for_something_else(workshop: Workshop) -> None:
    with hold_worker_lock(workshop.home):
        talk(workshop, bash("python3 -c 'print(6 * 7)'"), approver=Says(), only_tools=())
        settings(workshop, '[permissions]\nask = ["Bash(python3 *)"]\n')
    workshop.worker(idle=20)
    found = ended(workshop, task_of(workshop))
    assert (found.status, found.text) == ("failed", "")
    assert "changed since it was approved" in found.error


def test_without_anybody_who_agrees_nothing_is_put_on_the_board(workshop: Workshop) -> None:
    said = talk(workshop, bash("python3 -c 'print(6 * 7)'"), only_tools=())
    assert "Bash is not allowed" in said
    assert workshop.board.all() == []


def test_a_secret_is_not_written_down_so_a_command_that_holds_one_is_refused(workshop: Workshop) -> None:
    with pytest.raises(InvalidError, match="contain a secret"):
        begun(workshop, "curl -H 'Authorization: Bearer abcdefghijklmnop1234567890' localhost")
    assert workshop.board.all() == []


def test_secrets_that_it_prints_are_not_in_its_file(workshop: Workshop) -> None:
    workshop.worker(idle=20)
    key = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASC\n-----END PRIVATE KEY-----"
    workshop.world.write("notes.txt", f"token: ghp_0123456789abcdefghijklmnopqrstuvwxyzABCD\n{key}\nafter\n")
    # Line by line, so that no look at it sees all of the key.
    task = begun(workshop, 'while read -r line; do echo "$line"; sleep 0.02; done < notes.txt')
    assert ended(workshop, task).text.endswith("after\n")
    written = output_file(workshop, task).read_text()
    assert "ghp_0123" not in written
    assert "MIIEvQ" not in written


# --- how it ends --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "status", "code", "says"),
    [
        ("exit 3", "failed", 3, "Exit code 3"),
        ("kill -9 $$", "failed", 137, "SIGKILL"),
        ("grep -q nothing /dev/null", "completed", 1, ""),
        ("cat; echo read", "completed", 0, ""),
        ("echo bwrap: as if it had not begun; exit 2", "failed", 2, "Exit code 2"),
        ("sleep 300 & echo done", "completed", 0, ""),
        ("printf '\\033[31mred\\033[0m\\377\\000x\\n'", "completed", 0, ""),
    ],
)
def test_an_end_is_told_as_it_was(workshop: Workshop, command: str, status: str, code: int, says: str) -> None:
    found = run_here(workshop, command)
    assert (found.status, found.exit_code) == (status, code)
    assert says in found.error
    assert find_task_processes(found.id) == []
    if "bwrap" in command:
        assert found.text == "bwrap: as if it had not begun\n"
    if "red" in command:
        assert found.text == "red�x\n"


async def nothing(_: Task) -> None:
    """Beside a command."""


def run_here(
    workshop: Workshop,
    command: str,
    most_output: int = 1_000_000,
    beside: Callable[[Task], Awaitable[None]] = nothing,
    **more: Any,
) -> TaskReport:
    """In this process, by the code that the worker uses; `beside`: what is done meanwhile."""

    async def run(task: Task) -> TaskReport:
        assert await workshop.board.claim(task)
        runner = CommandTask(workshop.board, workshop.task(task.id), StopSignals(workshop.board), most_output)
        await asyncio.gather(runner.run(workshop.board.request(task.id)), beside(workshop.task(task.id)))
        return report(workshop, task)

    with hold_worker_lock(workshop.home):
        return asyncio.run(run(begun(workshop, command, **more)))


def test_its_time_is_what_was_said_and_nothing_of_it_is_left(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch, run_process)
    take = OutputFile.feed

    def heard(self: OutputFile, chunk: bytes) -> None:
        take(self, chunk)
        clock.let_pass(600)

    monkeypatch.setattr(OutputFile, "feed", heard)
    found = run_here(workshop, STUBBORN, judgement=FREE, seconds=600)
    assert (found.status, found.exit_code, found.text) == ("failed", None, "begun\n")
    assert "timed out after 600 s" in found.error
    assert find_task_processes(found.id) == []


def test_a_flood_is_bounded_its_end_is_kept_and_the_command_goes_on_to_its_own(workshop: Workshop) -> None:
    found = run_here(workshop, "yes 'a line of a flood' | head -c 8000000; echo the end; exit 4")
    assert (found.status, found.exit_code) == ("failed", 4)
    assert 1_000_000 < found.output_size < 1_200_000
    text = output_file(workshop, workshop.task(found.id)).read_text()
    assert "only the end of the remaining output is kept" in text
    assert "omitted" in text
    assert text.endswith("the end\n")
    end = workshop.task(found.id).result
    assert end is not None
    assert end.text.endswith("the end\n")
    assert len(found.text) <= 40_000


# --- processes ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("judgement", [None, FREE], ids=["confined", "free"])
def test_stopping_it_ends_all_of_its_processes_and_keeps_what_it_printed(
    workshop: Workshop, judgement: PermissionDecision | None
) -> None:
    workshop.worker(idle=20)
    task = begun(workshop, f"{HIDING} & {STUBBORN}", judgement)
    until_printed(workshop, task, "begun")
    workshop.until(lambda: len(find_task_processes(task.id)) >= 4 and hiding())

    async def stop(delegated: TaskDelegation, _: Agent) -> Any:
        return await delegated.stop(task.id)

    stopped = within(workshop, stop)
    assert (stopped.report.status, stopped.report.text, stopped.process_count) == ("cancelled", "begun\n", 0)
    again = within(workshop, stop)
    assert (again.was_finished, again.report.status) == (True, "cancelled")
    assert (find_task_processes(task.id), hiding()) == ([], [])


def test_one_that_ends_when_it_is_asked_to_has_the_time_for_it(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command_task, "TERMINATE_SECONDS", TEST_TIMEOUT)
    code = "import signal, time; signal.signal(15, lambda *_: (time.sleep(0.2), print('bye', flush=True), exit(0)));"

    async def stop(task: Task) -> None:
        await until_true(lambda: "up" in report(workshop, task).text)
        await workshop.board.request_stop([task])

    found = run_here(workshop, f"exec python3 -u -c \"{code} print('up', flush=True); time.sleep(300)\"", beside=stop)
    assert (found.status, found.text) == ("cancelled", "up\nbye\n")


@pytest.mark.parametrize("judgement", [None, FREE], ids=["confined", "free"])
@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGKILL, -9)])
def test_when_its_worker_ends_so_does_it_and_it_is_not_run_again(
    workshop: Workshop, number: int, status: int, judgement: PermissionDecision | None
) -> None:
    worker = workshop.worker(idle=20)
    task = begun(workshop, f"echo x >> effects; {HIDING} & {STUBBORN}", judgement)
    until_printed(workshop, task, "begun")
    workshop.until(lambda: len(find_task_processes(task.id)) >= 4 and hiding())
    os.kill(worker, number)
    assert workshop.nursery.wait(worker) == status
    if number == signal.SIGTERM:
        assert (find_task_processes(task.id), hiding()) == ([], [])
    workshop.work()
    assert (find_task_processes(task.id), hiding()) == ([], [])
    found = report(workshop, task)
    assert (found.status, found.text) == ("interrupted", "begun\n")
    assert "interrupted (unknown outcome)" in found.error
    assert (workshop.world.workspace / "effects").read_text() == "x\n"


def test_it_outlives_the_one_who_began_it_and_goes_on_when_an_agent_that_began_it_has_ended(workshop: Workshop) -> None:
    workshop.script(
        {"calls": [{"id": "b1", "name": "Bash", "arguments": {"command": "sleep 300", "run_in_background": True}}]},
        {"text": "Started."},
    )
    agent = workshop.put()
    workshop.worker(idle=20)
    assert workshop.until_status(agent, "completed", "failed").status == "completed"
    [command] = workshop.board.descendants(agent)
    assert (command.kind, command.parent) == ("command", agent)
    workshop.until(lambda: find_task_processes(command.id))
    assert workshop.task(command.id).status == "running"
    for pid in find_task_processes(command.id):
        os.kill(pid, signal.SIGKILL)
    ended(workshop, command)
    told = render_notifications(workshop.board, asyncio.run(take_unnotified(workshop.board, "root", "")))
    assert f'task-id="{command.id}" status="failed" agent="Bash"' in told, "the agent is gone, so its root is told"
    assert asyncio.run(take_unnotified(workshop.board, "root", "")) == []


def test_it_stops_with_the_agent_that_began_it(workshop: Workshop) -> None:
    workshop.script(
        {"calls": [{"id": "b1", "name": "Bash", "arguments": {"command": "sleep 300", "run_in_background": True}}]},
        {"text": "Slow.", "delay": 600},
    )
    agent = workshop.put()
    workshop.worker(idle=20)
    [command] = workshop.until(lambda: workshop.board.descendants(agent))
    workshop.until(lambda: find_task_processes(command.id))

    async def stop(delegated: TaskDelegation, _: Agent) -> Any:
        return await delegated.stop(agent)

    stopped = within(workshop, stop)
    assert (stopped.subtask_count, stopped.process_count) == (1, 0)
    assert workshop.task(command.id).status == "cancelled"


def test_one_that_was_stopped_before_it_began_does_not_begin(workshop: Workshop) -> None:
    async def run(task: Task) -> None:
        assert await workshop.board.claim(task)
        await workshop.board.request_stop([task])
        await CommandTask(workshop.board, workshop.task(task.id), StopSignals(workshop.board)).run(
            workshop.board.request(task.id)
        )

    with hold_worker_lock(workshop.home):
        task = begun(workshop, "touch made")
        asyncio.run(run(task))
    assert workshop.task(task.id).status == "cancelled"
    assert not (workshop.world.workspace / "made").exists()


def test_an_agent_in_a_worktree_of_its_own_runs_them_there(workshop: Workshop) -> None:
    where = workshop.world.workspace
    subprocess.run(["git", "init", "-q", "."], cwd=where, check=True)
    who = ["-c", "user.name=A", "-c", "user.email=a@localhost"]
    workshop.script(
        {
            "calls": [
                {"id": "b1", "name": "Bash", "arguments": {"command": "pwd; touch made", "run_in_background": True}}
            ]
        },
        {"text": "Started."},
    )
    subprocess.run(["git", "add", "script.json"], cwd=where, check=True)
    subprocess.run(["git", *who, "commit", "-q", "-m", "Begin."], cwd=where, check=True)
    workshop.agent("apart", isolation="worktree")
    agent = workshop.put(agent="apart")
    workshop.worker(idle=20)
    [command] = workshop.until(lambda: workshop.board.descendants(agent))
    found = ended(workshop, command)
    assert (found.status, found.error) == ("completed", "")
    assert found.text.startswith(os.path.realpath(workshop.home))
    assert not (where / "made").exists()


def test_where_no_worker_can_be_started_it_runs_in_this_process(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.executable", "/nonexistent/python")

    async def start(delegated: TaskDelegation, agent: Agent) -> TaskReport:
        where = agent.context.directory
        judged = agent.permissions.decide("Bash", {"command": "echo here"}, where)
        started = await delegated.start_command("echo here", "", where, 0.0, judged)
        return await delegated.report(started.id, TEST_TIMEOUT)

    found = within(workshop, start)
    assert (found.status, found.text) == ("completed", "here\n")
    assert any("could not start a worker" in warning for warning in found.warnings)
