"""Background commands from another terminal: listed, shown, followed to their end, stopped."""

import json
import subprocess
import sys
from typing import Any

import pytest

from conftest import World
from support.waiting import TEST_TIMEOUT


@pytest.fixture
def house(world: World) -> World:
    world.env["KITBAG_HOME"] = str(world.home / ".kitbag")
    return world


def start(world: World, command: str) -> dict[str, Any]:
    """By a model whose session ends right after."""
    call = {"id": "b1", "name": "Bash", "arguments": {"command": command, "run_in_background": True}}
    path = world.write("~/main.json", json.dumps({"rules": [{"replies": [{"calls": [call]}, {"text": "Started."}]}]}))
    done = world.run("-p", "Serve.", "--model", f"scripted:{path}", "--no-wait", "--allowed-tools", "Bash")
    assert (done.returncode, done.stdout) == (8, "Started.\n"), done.stderr
    [task] = json.loads(world.run("tasks", "list", "--json").stdout)
    return task


def test_one_that_outlives_its_session_is_listed_shown_followed_and_stopped(house: World) -> None:
    command = "echo first; until [ -e go ]; do sleep 0.05; done; echo second; exec sleep 300"
    task = start(house, command)
    follower = subprocess.Popen(
        [sys.executable, "-m", "kitbag", "tasks", "output", task["id"], "--follow"],
        cwd=house.workspace,
        env=house.env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with follower:
        assert follower.stdout is not None
        assert follower.stderr is not None
        assert follower.stdout.readline() == "first\n"
        (house.workspace / "go").touch()
        assert follower.stdout.readline() == "second\n"
        listed = house.run("tasks", "list").stdout.splitlines()[1].split()
        assert listed[:3] == [task["id"], "Bash", "running"]
        assert listed[-1] == "second"
        stopped = house.run("tasks", "stop", task["id"]).stdout
        assert stopped == f"{task['id']} stopped: cancelled; processes left: 0\n"
        assert follower.wait(TEST_TIMEOUT) == 6
        assert follower.stdout.read() == ""
        assert "Bash: cancelled" in follower.stderr.read()
    shown = house.run("tasks", "show", task["id"]).stdout
    assert command in " ".join(shown.split())
    assert "Output\nfirst\nsecond\n" in shown
    assert "turns" not in shown
    again = house.run("tasks", "output", task["id"], "--offset", "6")
    assert (again.returncode, again.stdout) == (6, "second\n")
    found = json.loads(house.run("tasks", "output", task["id"], "--json").stdout)
    assert (found["text"], found["next"], found["size"]) == ("first\nsecond\n", 13, 13)
    refused = house.run("tasks", "resume", task["id"])
    assert "is a command" in refused.stderr
