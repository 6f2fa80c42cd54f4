"""`kitbag trust`: everything is shown, escaped and whole; a person's answer is needed; nothing is run."""

import json
import os
import pty
import stat
import subprocess
import sys

import pytest

from conftest import World
from support.waiting import TEST_TIMEOUT, read_some


def bring(world: World) -> None:
    world.skill(".kitbag/skills", "x", body="Words.\n\n!`touch $CANARY`\n\n```!\nmake all\nmake test\n```\n")
    world.write(".kitbag/skills/x/scripts/run.sh", "#!/bin/sh\ntouch $CANARY\n")
    world.write(".claude/agents/a.md", "---\nname: a\ndescription: d\npermission-mode: dontAsk\n---\nx\n")
    world.write(".mcp.json", json.dumps({"mcpServers": {"s": {"command": "touch", "args": [str(world.canary)]}}}))
    hook = {"hooks": {"Stop": [{"hooks": [{"type": "command", "command": "touch $CANARY"}]}]}}
    world.write(".claude/settings.json", json.dumps(hook))
    world.write(".kitbag/settings.toml", "trusted = true\n")


def state(world: World, *path: str) -> str:
    return world.json("trust", "show", *path)["state"]


def test_everything_that_could_happen_is_shown(world: World) -> None:
    bring(world)
    shown = world.ok("trust", "show")
    for text in (
        "is not trusted", ".kitbag/skills/x/SKILL.md:7", "touch $CANARY", "    make all\n    make test\n", "scripts/run.sh",
        "permission-mode: dontAsk", "runs in locked mode", f"s: touch {world.canary}", "Stop: touch $CANARY", "trusted = true",
        "not run by Kitbag",
    ):  # fmt: skip
        assert text in shown, text
    assert not world.canary.exists()
    assert not (world.home / ".kitbag").exists()


def test_without_a_terminal_a_yes_is_needed(world: World) -> None:
    bring(world)
    done = world.run("trust", stdin="y\n")
    assert (done.returncode, "--yes" in done.stderr) == (2, True)
    assert "touch $CANARY" in done.stdout
    assert state(world) == "untrusted"
    assert "touch $CANARY" in world.ok("trust", "--yes")
    assert state(world) == "trusted"
    assert stat.S_IMODE((world.home / ".kitbag/trust.json").stat().st_mode) == 0o600
    assert "is trusted" in world.ok("trust")


def test_D03_a_closed_standard_input_answers_nothing(world: World) -> None:
    bring(world)
    world.write("job.md", "# Job\n\nWords.\n")
    for verb, code in (("trust", 2), ("pack job.md --skills x", 13)):
        done = subprocess.run(
            ["/bin/sh", "-c", f"exec 0<&-; exec {sys.executable} -m kitbag {verb}"],
            cwd=world.workspace, env=world.env, capture_output=True, text=True, timeout=TEST_TIMEOUT,
        )  # fmt: skip
        assert (done.returncode, "Traceback" in done.stderr) == (code, False), done.stderr
    assert state(world) == "untrusted"


def test_json_is_for_programs_and_asks_nobody(world: World) -> None:
    bring(world)
    done = world.run("trust", "--json")
    assert (done.returncode, json.loads(done.stderr)["error"]["code"]) == (2, 2)
    found = world.json("trust", "--yes")
    assert found["state"] == "trusted"
    acts = {(item["path"], act["kind"], act["text"]) for item in found["items"] for act in item["acts"]}
    assert (".kitbag/skills/x/SKILL.md", "command", "make all\nmake test") in acts
    assert found["whole"] is True


def test_a_change_is_shown_as_what_it_was_and_what_it_is(world: World) -> None:
    bring(world)
    world.ok("trust", "--yes")
    path = world.workspace / ".kitbag/skills/x/SKILL.md"
    path.write_text(path.read_text().replace("make all\n", "make evil\n"))
    shown = world.ok("trust", "show")
    assert "has changed since" in shown
    assert "    - make all\n    - make test\n    + make evil\n    + make test\n" in shown
    assert world.run("trust").returncode == 2
    assert world.json("trust", "show")["changes"][0]["mark"] == "~"
    world.ok("trust", "--yes")
    assert state(world) == "trusted"


def test_trusted_workspaces_are_listed_and_removed(world: World) -> None:
    bring(world)
    other = world.outside / "other"
    world.write("CLAUDE.md", "x", base=other)
    world.ok("trust", "--yes")
    world.ok("trust", str(other), "--yes")
    roots = [str(other), str(world.workspace)]
    assert [row["root"] for row in world.json("trust", "list")] == sorted(roots)
    assert all(root in world.ok("trust", "list") for root in roots)
    assert world.run("trust", "remove").returncode == 2
    assert world.run("trust", "remove", ".", "--all").returncode == 2
    assert world.run("trust", "remove", str(world.home)).returncode == 4
    world.ok("trust", "remove", ".")
    assert (state(world), state(world, str(other))) == ("untrusted", "trusted")
    (other / "CLAUDE.md").unlink()
    other.rmdir()
    assert "(gone)" in world.ok("trust", "list")
    assert world.json("trust", "remove", "--all") == {"removed": [str(other)]}
    assert world.json("trust", "list") == []


def test_a_workspace_that_is_gone_can_be_removed_by_its_path(world: World) -> None:
    other = world.outside / "other"
    file = world.write("CLAUDE.md", "x", base=other)
    world.ok("trust", str(other), "--yes")
    file.unlink()
    other.rmdir()
    world.ok("trust", "remove", str(other))


def test_what_brings_nothing_or_is_no_folder_is_said(world: World) -> None:
    assert "has nothing to trust" in world.ok("trust")
    assert world.run("trust", "nowhere").returncode == 2
    assert world.run("trust", "show", "nowhere").returncode == 2
    assert not (world.home / ".kitbag").exists()


def test_what_was_not_wholly_seen_is_refused_even_with_yes(world: World) -> None:
    bring(world)
    with (world.workspace / ".kitbag/skills/x/big.bin").open("wb") as file:
        file.truncate(1 << 30)
    done = world.run("trust", "--yes")
    assert (done.returncode, "big.bin" in done.stderr) == (6, True)
    assert state(world) == "untrusted"


def test_a_damaged_store_is_said_and_set_aside(world: World) -> None:
    bring(world)
    world.ok("trust", "--yes")
    store = world.home / ".kitbag/trust.json"
    store.write_text("{")
    shown = world.ok("trust", "show")
    assert "is not trusted" in shown
    assert "damaged" in shown
    done = world.run("trust", "--yes")
    assert (done.returncode, "trust.json.damaged-1" in done.stderr) == (0, True)
    assert state(world) == "trusted"


NASTY = "\x1b[2J\x1b]0;x\x07 \t\t\u202e\u200b\U000e0041 end"


def test_D22_nothing_hides_in_what_is_shown(world: World) -> None:
    world.skill(".kitbag/skills", "x", body=f"!`echo {NASTY} {' ' * 300}payload`")
    world.write(".mcp.json", json.dumps({"mcpServers": {f"s{NASTY}\n": {"command": f"a{NASTY}\nb"}}}))
    world.write(".claude/agents/a.md", f"---\nname: a\ndescription: d\ntools: {json.dumps(NASTY)}\n---\nx\n")
    for arguments in (("show",), ("--yes",), ("show", "--json"), ("list",)):
        done = world.run("trust", *arguments)
        assert done.returncode == 0
        for char in "\x1b\x07\t\u202e\u200b\U000e0041":
            assert char not in done.stdout + done.stderr, (arguments, char)
    assert "payload" in world.ok("trust", "show")


@pytest.mark.parametrize(
    ("answer", "code", "after"), [("y", 0, "trusted"), ("n", 1, "untrusted"), ("", 1, "untrusted")]
)
def test_on_a_terminal_a_person_is_asked_after_everything_was_shown(
    world: World, answer: str, code: int, after: str
) -> None:
    bring(world)
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "kitbag", "trust"], cwd=world.workspace, env=world.env, stdin=theirs, stdout=theirs,
        stderr=theirs, start_new_session=True,
    )  # fmt: skip
    os.close(theirs)
    shown = b""
    while b"[y/N]" not in shown:
        shown += read_some(ours)
    assert shown.index(b"touch $CANARY") < shown.index(b"[y/N]")
    os.write(ours, f"{answer}\n".encode())
    assert process.wait(TEST_TIMEOUT) == code
    os.close(ours)
    assert state(world) == after
    assert not world.canary.exists()
