"""`kitbag undo`: what would be done is shown, a person's answer is needed, and what was changed since is refused."""

import json
import os
import pty
import subprocess
import sys
from collections.abc import Iterator

import pytest

from conftest import World
from kitbag.tasks.board import Board
from kitbag.tasks.task import TaskRequest
from support.changing import Shop, until_killed
from support.waiting import TEST_TIMEOUT, read_some


@pytest.fixture
def shop(world: World) -> Iterator[Shop]:
    made = Shop(world)
    yield made
    made.close()


def two_messages(shop: Shop) -> None:
    (shop.root / "a.txt").write_text("one\ntwo\n")
    (shop.root / "gone").write_text("gone\n")
    shop.say("Change a.txt")
    shop.write("a.txt", b"one\n2\nthree\n")
    shop.say("Now the rest")
    shop.command("rm gone; mkdir d; echo x > d/new; chmod 755 a.txt")


def test_the_last_turn_is_shown_and_taken_back_then_the_one_before(shop: Shop) -> None:
    two_messages(shop)
    world = shop.world
    shown = world.ok("undo", "--yes")
    assert shown.splitlines() == [
        "Undo message 2: Now the rest",
        "  restore    a.txt  mode 0755 → 0644",
        "  remove     d/",
        "  remove     d/new  +0 -1",
        "  re-create  gone  +1 -0",
        "message 2 undone: 2 removed, 1 restored, 1 re-created",
    ]
    assert shop.tree().keys() == {"a.txt", "gone"}
    assert "message 1 undone: 1 restored" in world.ok("undo", "--yes")
    assert (shop.root / "a.txt").read_text() == "one\ntwo\n"
    done = world.run("undo", "--yes")
    assert (done.returncode, done.stdout) == (4, "")
    assert "nothing to undo in session shop" in done.stderr


def test_listing_and_showing_change_nothing(shop: Shop) -> None:
    two_messages(shop)
    before = shop.tree()
    listed = shop.world.ok("undo", "--list")
    assert "1 changed" in listed
    assert "1 created" not in listed
    assert "2 created, 1 changed, 1 deleted" in listed
    assert "Now the rest" in listed
    shown = shop.world.ok("undo", "--message", "1", "--show")
    assert "--- a.txt\n+++ a.txt\n@@ -1,3 +1,2 @@\n one\n-2\n-three\n+two\n" in shown
    assert shop.tree() == before


def test_as_json(shop: Shop) -> None:
    two_messages(shop)
    world = shop.world
    listed = world.json("undo", "--list")
    assert listed["session"] == "shop"
    assert [turn["message"] for turn in listed["messages"]] == [1, 2]
    assert listed["messages"][0]["files"] == [{"path": str(shop.root / "a.txt"), "change": "changed"}]
    plan = world.json("undo", "--show")
    assert [(file["path"], file["change"], file["added"], file["removed"]) for file in plan["files"]][-1] == (
        str(shop.root / "gone"), "deleted", 1, 0,
    )  # fmt: skip
    done = world.json("undo", "--yes")
    assert (done["message"], done["left"], done["failed"]) == (2, [], [])
    assert {"path": str(shop.root / "gone"), "action": "re-created"} in done["restored"]
    assert world.json("undo", "--list")["messages"][1]["undone"] is True


def test_without_a_terminal_a_yes_is_needed(shop: Shop) -> None:
    two_messages(shop)
    before = shop.tree()
    for more in ((), ("--json",)):
        done = shop.world.run("undo", *more, stdin="y\n")
        assert (done.returncode, "--yes" in done.stderr) == (2, True)
    assert shop.tree() == before


def test_what_was_changed_since_is_refused_by_name_and_nothing_is_restored(shop: Shop) -> None:
    two_messages(shop)
    (shop.root / "d" / "new").write_text("mine")
    before = shop.tree()
    done = shop.world.run("undo", "--yes")
    assert done.returncode == 6
    assert "nothing was restored: d/new: changed since" in done.stderr
    assert "--force" in done.stderr
    assert shop.tree() == before
    shop.world.ok("undo", "--yes", "--force")
    assert shop.tree().keys() == {"a.txt", "gone"}
    shop.world.ok("undo", "--redo", "--yes")
    assert (shop.root / "d" / "new").read_text() == "mine"


def test_an_older_turn_is_refused_while_a_later_one_stands(shop: Shop) -> None:
    two_messages(shop)
    (shop.root / "a.txt").chmod(0o644)
    shop.say()
    shop.write("a.txt", b"later\n")
    done = shop.world.run("undo", "--message", "1", "--yes")
    assert done.returncode == 6
    assert "message 3 changed it later; undo that message first" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("--message", "7"), 4, "messages that did: 1, 2"),
        (("--message", "0"), 2, ""),
        (("--session", "nobody"), 4, "no session named 'nobody'"),
        (("--redo", "--yes"), 4, "nothing has been undone"),
        (("--redo", "--message", "1", "--yes"), 4, "is not undone"),
        (("--list", "--yes"), 2, "--list"),
        (("--show", "--yes"), 2, "--show"),
    ],
)
def test_what_cannot_be_meant_is_told(shop: Shop, arguments: tuple[str, ...], code: int, words: str) -> None:
    two_messages(shop)
    done = shop.world.run("undo", *arguments)
    assert done.returncode == code
    assert words in done.stderr


def test_where_there_was_no_session(world: World) -> None:
    assert world.run("undo").returncode == 4
    assert not (world.home / ".kitbag").exists()


def test_a_newer_session_that_changed_nothing_names_the_one_that_did(shop: Shop) -> None:
    two_messages(shop)
    newer = Shop(shop.world, "newer")
    newer.say("What is this?")
    newer.close()
    done = shop.world.run("undo", "--yes")
    assert done.returncode == 4
    assert "kitbag undo --session shop" in done.stderr
    shop.world.ok("undo", "--session", "shop", "--yes")


def test_odd_names_and_bytes_do_nothing_to_a_terminal(shop: Shop) -> None:
    shop.say("Hi \x1b[31m\u202e there")
    shop.write(os.fsdecode(b"x\x1b[2J\xff\n"), b"\x1b[31mred\n")
    shop.command("head -c 100 /dev/zero > binary")
    for arguments in (("--list",), ("--show",), ("--yes",)):
        shown = shop.world.ok("undo", *arguments)
        assert "\x1b" not in shown
        assert "\u202e" not in shown
    assert shop.tree() == {}


def test_a_command_that_was_cut_off_with_its_session_is_found(world: World) -> None:
    target = world.write("f", "old")
    until_killed(world, 'shop.say(); shop.command("rm f", meanwhile=die)')
    done = world.run("undo", "--session", "shop", "--yes", cwd=world.outside)
    assert done.returncode == 0, done.stderr
    assert "interrupted" in done.stderr
    assert target.read_text() == "old"


def test_a_command_of_an_agent_that_was_cut_off_with_it_is_found_too(world: World) -> None:
    target = world.write("f", "old")
    shop = Shop(world)
    shop.say("Let an agent do it.")
    wish = TaskRequest(agent="helper", prompt="Do it.", directory=str(world.workspace))
    creating = Board(shop.journal).create("a1", "agent", wish, root="shop", parent="", depth=1, background=False)
    shop.run(creating)
    shop.close()
    until_killed(world, 'shop.say(); shop.command("rm f", meanwhile=die)', "a1")
    done = world.run("undo", "--session", "shop", "--yes", cwd=world.outside)
    assert done.returncode == 0, done.stderr
    assert target.read_text() == "old"


def test_at_a_terminal_it_asks(shop: Shop) -> None:
    two_messages(shop)
    assert answered(shop.world, "n") == 1
    assert (shop.root / "d" / "new").exists()
    assert answered(shop.world, "y") == 0
    assert not (shop.root / "d").exists()


def answered(world: World, answer: str) -> int:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "kitbag", "undo"]
    process = subprocess.Popen(command, cwd=world.workspace, env=world.env, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    seen = b""
    try:
        while b"Apply?" not in seen:
            seen += read_some(ours)
        os.write(ours, f"{answer}\n".encode())
        while read_some(ours, or_end=True):
            pass
        return process.wait(TEST_TIMEOUT)
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def test_the_result_is_one_json_value(shop: Shop) -> None:
    two_messages(shop)
    done = shop.world.run("undo", "--message", "9", "--json")
    assert json.loads(done.stderr)["error"]["code"] == 4
