"""`kitbag tasks` and `kitbag agents run`: the real program, from the start of an agent to its end and after."""

import json
from typing import Any

import pytest

from conftest import World
from kitbag.cli.agents_run import show_report
from kitbag.store.journal import Journal
from kitbag.store.redaction import Redactor
from kitbag.tools.delegation import TaskReport

SCRIPT: dict[str, Any] = {
    "rules": [
        {"system": "Wait long", "replies": [{"text": "Never.", "delay": 600}]},
        {"system": "## Your Task\nWhat", "replies": [{"text": "The answer is 42."}, {"text": "Once more: 42."}]},
    ]
}


@pytest.fixture
def house(world: World) -> World:
    world.env["KITBAG_MODEL"] = f"scripted:{world.write('~/script.json', json.dumps(SCRIPT))}"
    world.env["KITBAG_HOME"] = str(world.home / ".kitbag")
    return world


def listed(world: World, *more: str) -> list[dict[str, Any]]:
    return json.loads(world.run("tasks", "list", "--json", *more).stdout)


def test_an_agent_answers_on_the_output_and_is_on_the_board_afterwards(house: World) -> None:
    done = house.run("agents", "run", "Explore", "What is the answer?")
    assert (done.returncode, done.stdout) == (0, "The answer is 42.\n")
    [task] = listed(house)
    assert (task["agent"], task["status"], task["turns"]) == ("Explore", "completed", 1)
    shown = house.run("tasks", "show", task["id"][:5]).stdout
    assert "What is the answer?" in shown
    assert "The answer is 42." in shown
    assert house.run("tasks", "output", task["id"]).stdout == "The answer is 42.\n"


def test_a_task_record_that_can_not_be_read_is_reported(house: World) -> None:
    path = house.home / ".kitbag/state/journal.db"
    with Journal.open(str(path), Redactor([])) as journal:
        journal.append("tasks", "created", {"id": "abc000000001"})
    for arguments in (("list",), ("show", "abc000000001")):
        assert "can't read 1 task record in the journal" in house.run("tasks", *arguments).stderr


def test_a_person_may_give_it_a_script_as_its_model(house: World) -> None:
    script = house.env.pop("KITBAG_MODEL")
    done = house.run("agents", "run", "Explore", "What is the answer?", "--model", script)
    assert (done.returncode, done.stdout) == (0, "The answer is 42.\n"), done.stderr
    begun = house.run("agents", "run", "Explore", "What is the answer?", "--model", script, "--background")
    waited = house.run("tasks", "output", begun.stdout.strip(), "--wait", "50")
    assert (waited.returncode, waited.stdout) == (0, "The answer is 42.\n"), waited.stderr


@pytest.mark.parametrize(
    ("report", "remark"),
    [
        (TaskReport(id="a1", name="x", status="queued", is_finished=False), "running in the background; follow it"),
        (TaskReport(id="a1", name="x", status="completed", is_finished=True, text="42."), "completed; see"),
        (TaskReport(id="a1", name="x", status="failed", is_finished=True, error="no key"), "failed: no key; see"),
    ],
)
def test_a_start_in_the_background_prints_the_id_even_if_the_task_has_ended_already(
    capsys: pytest.CaptureFixture[str], report: TaskReport, remark: str
) -> None:
    assert show_report(report, [], is_background=True, as_json=False) == 0
    printed = capsys.readouterr()
    assert printed.out == "a1\n"
    assert remark in printed.err


def test_a_listing_says_what_each_task_is_for_also_while_it_runs(house: World) -> None:
    task_id = house.run("agents", "run", "Explore", "Wait long", "--background").stdout.strip()
    row = next(line for line in house.run("tasks", "list").stdout.splitlines() if line.startswith(task_id))
    assert "Wait long" in row
    assert house.run("tasks", "stop", task_id).returncode == 0


def test_in_the_background_it_gives_an_id_at_once_and_its_answer_later_and_goes_on_when_it_is_resumed(
    house: World,
) -> None:
    started = house.run("agents", "run", "Explore", "What?", "--background")
    task_id = started.stdout.strip()
    assert started.returncode == 0
    assert len(task_id) == 12
    waited = house.run("tasks", "output", task_id, "--wait", "50")
    assert (waited.returncode, waited.stdout) == (0, "The answer is 42.\n")
    assert house.run("tasks", "resume", task_id, "And again?").returncode == 0
    watched = house.run("tasks", "watch", "--json").stdout
    assert house.run("tasks", "output", task_id, "--wait", "50").stdout == "Once more: 42.\n", watched
    assert listed(house)[0]["run"] == 2


def test_what_is_stopped_stays_stopped_and_says_so(house: World) -> None:
    task_id = house.run("agents", "run", "Explore", "Wait long", "--background").stdout.strip()
    assert [task["id"] for task in listed(house, "--running")] == [task_id]
    first = house.run("tasks", "stop", task_id, "--json")
    assert json.loads(first.stdout) == [
        {"id": task_id, "status": "cancelled", "was_finished": False, "others": 0, "processes": 0}
    ]
    assert "had already ended: cancelled" in house.run("tasks", "stop", task_id).stdout
    assert listed(house, "--running") == []
    assert house.run("tasks", "output", task_id).returncode == 6


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("tasks", "show", "nosuchtask"), 4, "no task"),
        (("tasks", "stop", "nosuchtask"), 4, "no task"),
        (("agents", "run", "Explorer", "What?"), 4, "Explore"),
        (("agents", "run", "Explore"), 2, "no prompt"),
        (("agents", "run", "Explore", "What?", "--resume", "nosuchtask"), 4, "no task"),
    ],
)
def test_what_is_not_there_is_told_with_what_to_do(house: World, words: tuple[str, ...], code: int, said: str) -> None:
    done = house.run(*words)
    assert done.returncode == code, done.stderr
    assert said in done.stderr


def test_without_any_task_the_lists_are_empty_and_make_nothing(house: World) -> None:
    assert listed(house) == []
    assert "0 tasks" in house.run("tasks", "list").stderr
    assert not (house.home / ".kitbag/state").exists()


@pytest.mark.usefixtures("explore_allowed")
def test_the_answer_of_a_request_waits_for_background_work_and_tells_the_model_of_its_end(house: World) -> None:
    call = {
        "id": "t1",
        "name": "Task",
        "arguments": {"subagent_type": "Explore", "prompt": "What?", "run_in_background": True},
    }
    rules = [*SCRIPT["rules"], {"replies": [{"calls": [call]}, {"text": "Started."}, {"text": "It ended."}]}]
    path = house.write("~/main.json", json.dumps({"rules": rules}))
    done = house.run("-p", "Ask.", "--model", f"scripted:{path}")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "Started.\nIt ended.\n"


@pytest.mark.usefixtures("explore_allowed")
def test_without_waiting_the_exit_code_says_that_something_still_runs(house: World) -> None:
    call = {
        "id": "t1",
        "name": "Task",
        "arguments": {"subagent_type": "Explore", "prompt": "Wait long", "run_in_background": True},
    }
    rules = [*SCRIPT["rules"], {"replies": [{"calls": [call]}, {"text": "Started."}]}]
    path = house.write("~/main.json", json.dumps({"rules": rules}))
    done = house.run("-p", "Ask.", "--model", f"scripted:{path}", "--no-wait")
    assert (done.returncode, done.stdout) == (8, "Started.\n")
    [task] = listed(house, "--running")
    assert f"Explore {task['id']}" in done.stderr
    house.run("tasks", "stop", task["id"])


def test_commands_of_a_background_agent_see_the_environment_of_whoever_began_it_and_not_the_worker_s(
    house: World,
) -> None:
    call = {"id": "b", "name": "Bash", "arguments": {"command": "echo project=$PROJECT > seen"}}
    rules = [{"system": "## Your Task\nShow", "replies": [{"calls": [call]}, {"text": "Shown."}]}, *SCRIPT["rules"]]
    house.write("~/script.json", json.dumps({"rules": rules}))
    house.write("~/.kitbag/settings.toml", '[permissions]\nallow = ["Bash(echo:*)", "Edit(seen)"]\n')
    for project in ("A", "B"):
        house.env["PROJECT"] = project
        task_id = house.run("agents", "run", "general-purpose", "Show it", "--background").stdout.strip()
        assert house.run("tasks", "output", task_id, "--wait", "50").stdout == "Shown.\n"
        assert (house.workspace / "seen").read_text() == f"project={project}\n"


@pytest.mark.parametrize("where", [(), ("--background",)])
def test_secrets_of_the_settings_are_not_in_the_journal_whoever_writes_it(house: World, where: tuple[str, ...]) -> None:
    key, token = "kk-4f9a1c77e2b04d", "tt-91be02c3d4aa5f"
    settings = '[providers.mine]\nbase_url = "http://127.0.0.1:9"\nkey_env = "MINE"\n'
    house.env["MINE"] = key
    house.write(
        "~/.kitbag/settings.toml", f'{settings}[mcp_servers.s]\ncommand = "true"\nenv = {{ API_TOKEN = "{token}" }}\n'
    )
    said = {"rules": [{"system": "## Your Task", "replies": [{"text": f"It is {key} and {token}."}]}]}
    house.write("~/script.json", json.dumps(said))
    task_id = house.run("agents", "run", "Explore", f"Tell me about {key} and {token}", *where).stdout.split()[0]
    if where:
        house.run("tasks", "output", task_id, "--wait", "50")
    assert listed(house)[0]["status"] == "completed"
    for path in (house.home / ".kitbag/state").rglob("*"):
        held = path.read_bytes() if path.is_file() else b""
        assert key.encode() not in held, path
        assert token.encode() not in held, path
