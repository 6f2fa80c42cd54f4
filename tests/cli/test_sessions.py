"""`kitbag sessions`: this directory's by default, shown, exported; without a message there is none."""

import json
import stat
from pathlib import Path

import pytest

from conftest import World
from support.driving import Driven

HELLO = ("-p", "@agent-Explore hello", "--model", "offline")


@pytest.fixture
def two_places(world: World) -> World:
    """A session here and one outside."""
    world.ok(*HELLO)
    world.ok("-p", "@agent-Explore elsewhere", "--model", "offline", cwd=world.outside)
    return world


@pytest.mark.parametrize("noun", ["session", "task"])
def test_sessions_and_tasks_of_this_directory_are_listed_and_how_to_see_all(two_places: World, noun: str) -> None:
    world = two_places
    done = world.run(f"{noun}s", "list")
    assert done.stderr.startswith(f"1 {noun} in {world.workspace} · 1 in other directories: --all")
    assert len(world.json(f"{noun}s", "list")) == 1
    assert len(world.json(f"{noun}s", "list", "--all")) == 2
    assert world.run(f"{noun}s", "list", "--all").stderr == f"2 {noun}s\n"


@pytest.mark.parametrize("noun", ["sessions", "tasks"])
@pytest.mark.parametrize("columns", [80, 100])
def test_id_status_and_time_are_whole_in_a_narrow_terminal(two_places: World, noun: str, columns: int) -> None:
    listed = two_places.json(noun, "list", "--all")
    with Driven(two_places, noun, "list", "--all", columns=columns) as driven:
        assert driven.until_ended() == 0
        seen = driven.all()
    for one in listed:
        at = (one.get("started") if noun == "tasks" else one["last"])[:16].replace("T", " ")
        for text in (one["id"], one["status"], at):
            assert text in seen
    assert "STATUS" in seen


def test_a_session_is_shown_by_the_start_of_its_id_or_the_newest(two_places: World) -> None:
    world = two_places
    [one] = world.json("sessions", "list")
    shown = world.ok("sessions", "show", one["id"][:6])
    assert shown == world.ok("sessions", "show")
    assert f"kitbag --resume {one['id']}" in shown
    assert "Last message\n@agent-Explore hello\n" in shown
    found = world.json("sessions", "show")
    assert (found["id"], len(found["tasks"])) == (one["id"], 1)
    assert found["last_message"].startswith("@agent-Explore hello")
    assert world.run("sessions", "show", "nosuch").returncode == 4


def test_a_session_is_exported_and_no_file_is_overwritten(two_places: World, tmp_path: Path) -> None:
    world = two_places
    [one] = world.json("sessions", "list")
    text = world.ok("sessions", "export", one["id"])
    assert text.startswith(f"# Session {one['id']}\n")
    assert "\n> @agent-Explore hello\n" in text
    assert world.json("sessions", "export")["session"] == one["id"]
    file = tmp_path / "export.json"
    world.ok("sessions", "export", "--output", str(file))
    assert json.loads(file.read_text())["entries"][0]["kind"] == "user"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    before = file.read_bytes()
    done = world.run("sessions", "export", "--output", str(file))
    assert (done.returncode, file.read_bytes()) == (6, before)
    assert "already exists" in done.stderr


def test_a_chat_without_a_message_leaves_no_session(world: World) -> None:
    world.env["KITBAG_MODEL"] = "offline"
    assert world.run(stdin="").returncode == 0
    assert world.run(stdin="/skills\n").returncode == 0
    assert world.json("sessions", "list", "--all") == []
    world.run(stdin="hello\n")
    assert [one["about"] for one in world.json("sessions", "list")] == ["hello"]


def test_resume_takes_the_start_of_an_id(two_places: World) -> None:
    [one] = two_places.json("sessions", "list")
    two_places.ok("-p", "again", "--resume", one["id"][:8])
    assert [one["id"]] == [now["id"] for now in two_places.json("sessions", "list")]
    assert two_places.json("sessions", "show")["last_message"] == "again"


def test_without_an_id_resume_asks_in_a_terminal_and_says_what_to_do_elsewhere(two_places: World) -> None:
    world = two_places
    for words in (("--resume",), ("-p", "x", "--resume"), ("--plain", "-r")):
        done = world.run(*words)
        assert (done.returncode, "kitbag sessions list" in done.stderr) == (2, True)
    done = world.run("--resume", "--model", "offline")
    assert (done.returncode, "write --resume last" in done.stderr) == (2, True)
    world.env["KITBAG_MODEL"] = "offline"
    with Driven(world, "--resume") as driven:
        driven.until_seen("Resume which session?")
        driven.until_seen("hello")
    assert len(world.json("sessions", "list")) == 1


def test_the_notice_about_trust_is_one_line_once_in_a_session(world: World) -> None:
    world.skill(".kitbag/skills", "theirs")
    world.run("new", "agent", "their-agent")
    counts, review = "1 skill, 1 agent omitted", "review with `kitbag trust`, or run with --trust-workspace"
    notice = f"warning: workspace not trusted: {counts}; {review}"
    assert world.run(*HELLO).stderr.splitlines() == [notice]
    assert world.run("-p", "again", "--continue").stderr == ""
    assert world.run(*HELLO).stderr.splitlines() == [notice]  # another session
    piped = world.run(stdin="/cost\n").stdout
    brief = "warning: workspace not trusted: 2 items omitted; review with `kitbag trust`\n"
    assert (piped.count(brief), "Trust this workspace?" in piped) == (1, False)


def test_init_needs_a_model(world: World) -> None:
    assert "error: /init needs a model" in world.run("--model", "offline", stdin="/init\n").stdout


def test_undo_after_a_fork_undoes_what_the_fork_did(world: World) -> None:
    calls = [{"name": "Write", "arguments": {"file_path": name, "content": "x\n"}} for name in ("a.txt", "b.txt")]
    script = world.write("script.json", json.dumps([{"calls": [calls[0]]}, "One.", {"calls": [calls[1]]}, "Two."]))
    options = ("--model", f"scripted:{script}", "--permission-mode", "acceptEdits")
    world.ok("-p", "one", *options)
    world.ok("-p", "two", "--continue", "--fork", *options)
    assert "message 2 undone: 1 removed" in world.ok("undo", "--yes")
    assert ((world.workspace / "a.txt").exists(), (world.workspace / "b.txt").exists()) == (True, False)
