"""`kitbag quarantine`: what a command created past the sandbox is shown, and goes back only if the user says so."""

import json

from conftest import World
from kitbag.sandbox.quarantine import quarantine
from support.terminal_program import TerminalProgram


def test_what_is_quarantined_is_listed_restored_and_deleted(world: World) -> None:
    home = str(world.home / ".kitbag")
    world.write(".envrc", "export A=1\n")
    world.write(".vscode/tasks.json", "{}\n")
    first = quarantine(str(world.workspace / ".envrc"), "make\tall", home)
    second = quarantine(str(world.workspace / ".vscode"), "npm test", home)
    assert not (world.workspace / ".envrc").exists()
    listed = json.loads(world.run("quarantine", "list", "--json").stdout)
    assert {(one["id"], one["command"]) for one in listed} == {(first.id, "make\tall"), (second.id, "npm test")}
    assert "created by: npm test" in world.run("quarantine").stdout
    assert world.run("quarantine", "restore", first.id).returncode == 2
    assert world.run("quarantine", "restore", first.id, "--yes").returncode == 0
    assert (world.workspace / ".envrc").read_text() == "export A=1\n"
    assert world.run("quarantine", "delete", second.id, "--yes").returncode == 0
    assert world.run("quarantine").stderr == "the quarantine is empty\n"
    assert world.run("quarantine", "restore", first.id, "--yes").returncode == 4


def test_a_secret_in_the_command_is_not_stored(world: World) -> None:
    world.write(".envrc", "x\n")
    secret = "sk-ant-api03-" + "a1B2c3D4" * 6
    quarantine(str(world.workspace / ".envrc"), f"curl -H 'x-api-key: {secret}'", str(world.home / ".kitbag"))
    assert secret not in world.run("quarantine", "list", "--json").stdout


def test_nothing_is_overwritten_when_it_goes_back(world: World) -> None:
    home = str(world.home / ".kitbag")
    world.write(".envrc", "theirs\n")
    moved = quarantine(str(world.workspace / ".envrc"), "make", home)
    world.write(".envrc", "mine\n")
    done = world.run("quarantine", "restore", moved.id, "--yes")
    assert (done.returncode, "exists" in done.stderr) == (6, True)
    assert (world.workspace / ".envrc").read_text() == "mine\n"
    assert moved.id in world.run("quarantine").stdout


def test_at_a_terminal_it_asks_first(world: World) -> None:
    world.write(".envrc", "theirs\n")
    moved = quarantine(str(world.workspace / ".envrc"), "make", str(world.home / ".kitbag"))
    program = TerminalProgram(world, "quarantine", "restore", moved.id)
    program.until("Restore it?")
    program.type("y\r")
    assert program.end() == 0
    assert (world.workspace / ".envrc").read_text() == "theirs\n"
