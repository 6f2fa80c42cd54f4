"""`kitbag new` and `kitbag init`: what they create is valid, and nothing that exists is touched."""

import json
import os
import subprocess
import sys

import pytest

from conftest import World
from kitbag.library.new_items import ITEM_KINDS
from support.driving import Driven

PATHS = {
    "skill": "skills/tidy-up/SKILL.md",
    "agent": "agents/tidy-up.md",
    "persona": "personas/tidy-up.yaml",
    "command": "commands/tidy-up.md",
}


@pytest.mark.parametrize("description", ["", 'Says: "hi" #1 & {more}', "- off: yes\n---\nname: other"])
def test_every_kind_is_valid_and_commented(world: World, description: str) -> None:
    for kind in ITEM_KINDS:
        found = world.json("new", kind, "tidy-up", "--description", description)
        assert found["path"] == str(world.workspace / ".kitbag" / PATHS[kind])
        text = (world.workspace / ".kitbag" / PATHS[kind]).read_text()
        assert "\n# " in f"\n{text}"
        assert "{{" not in text
        if kind != "skill":  # the skill and the command have one name
            continue
        assert world.run("skills", "validate", "--portable", "tidy-up").returncode == 0
        assert world.run("skills", "validate", "tidy-up").returncode == 0
        os.rename(world.workspace / ".kitbag/skills/tidy-up", world.outside / "tidy-up")
    problems = [one for one in world.json("doctor")["diagnostics"] if one["severity"] != "info"]
    assert problems == []
    wanted = " ".join(description.split())
    for listing, name in (("skills", "tidy-up"), ("agents", "tidy-up"), ("personas", "tidy-up")):
        shown = next(one for one in world.json(listing, "list") if one["name"] == name)
        assert shown["description"] == (wanted or shown["description"]) != ""


def test_the_audit_finds_nothing_in_what_is_created(world: World) -> None:
    world.run("init", "--yes")
    for kind in ITEM_KINDS:
        world.run("new", kind, f"a-{kind}")
    assert world.json("audit")["findings"] == []


def test_an_existing_one_is_never_overwritten_in_any_spelling(world: World) -> None:
    kept = world.write(".kitbag/agents/Tidy-Up.yaml", "mine")
    done = world.run("new", "agent", "tidy-up")
    assert (done.returncode, "already exists" in done.stderr, kept.read_text()) == (6, True, "mine")
    assert os.listdir(kept.parent) == ["Tidy-Up.yaml"]
    assert world.run("new", "skill", "x").returncode == 0
    assert world.run("new", "skill", "x").returncode == 6


@pytest.mark.parametrize("name", ["My Skill", "../up", "a/b", "", "-x", "ü", "x" * 65])
def test_a_name_that_some_tool_could_not_use_is_refused(world: World, name: str) -> None:
    assert world.run("new", "skill", "--", name).returncode == 2
    assert not (world.workspace / ".kitbag").exists()


def test_nothing_is_written_through_a_link(world: World) -> None:
    (world.workspace / ".kitbag").symlink_to(world.outside)
    assert world.run("new", "skill", "x").returncode == 6
    assert world.run("init", "--yes").returncode == 6
    assert os.listdir(world.outside) == []


def test_user_items_are_created_in_the_users_directory(world: World) -> None:
    world.ok("new", "skill", "mine", "--user")
    assert (world.home / ".kitbag/skills/mine/SKILL.md").is_file()
    assert not (world.workspace / ".kitbag").exists()


def test_the_editor_opens_in_a_terminal_and_what_it_leaves_is_checked(world: World) -> None:
    editor = world.write("~/editor.sh", '#!/bin/sh\nprintf "%s\\n" "---" "nme: x" "---" > "$1"\n')
    editor.chmod(0o755)
    world.env["VISUAL"] = str(editor)
    with Driven(world, "new", "skill", "edited") as driven:
        assert driven.until_ended() == 0
        assert "created .kitbag/skills/edited/SKILL.md" in driven.all()
        assert "[no-description]" in driven.all() or "description" in driven.all()
    assert "nme: x" in (world.workspace / ".kitbag/skills/edited/SKILL.md").read_text()
    world.ok("new", "skill", "piped")
    with Driven(world, "new", "skill", "unedited", "--no-edit") as driven:
        assert driven.until_ended() == 0
    for name in ("piped", "unedited"):
        assert "nme" not in (world.workspace / f".kitbag/skills/{name}/SKILL.md").read_text()


def test_init_creates_samples_once_and_keeps_what_exists(world: World) -> None:
    assert world.run("init").returncode == 2  # nobody can be asked
    assert not (world.workspace / ".kitbag").exists()
    below = world.workspace / "src"
    below.mkdir()
    world.ok("init", "--yes", cwd=below)
    skill = world.workspace / ".kitbag/skills/commit-style/SKILL.md"
    skill.write_text(f"{skill.read_text()}\nMine.\n")
    found = world.json("init", "--yes")
    assert (found["created"], len(found["kept"])) == ([], 2)
    assert skill.read_text().endswith("Mine.\n")
    assert world.run("skills", "validate").returncode == 0
    assert {"commit-style"} <= {one["name"] for one in world.json("skills", "list")}
    assert {"project-guide"} <= {one["name"] for one in world.json("agents", "list")}
    assert json.loads(world.ok("doctor", "--json"))["counts"]["warnings"] == 0


def test_init_asks_once_in_a_terminal(world: World) -> None:
    with Driven(world, "init") as driven:
        driven.until_seen("Continue?")
        driven.press("n\r")
        assert driven.until_ended() == 1
    assert not (world.workspace / ".kitbag").exists()


def test_on_a_full_disk_nothing_half_written_is_left(world: World) -> None:
    """A limit on the size of files is what a full disk is."""
    program = ["sh", "-c", 'ulimit -f 0; exec "$@"', "sh", sys.executable, "-m", "kitbag", "new", "skill", "tidy-up"]
    done = subprocess.run(program, cwd=world.workspace, env=world.env, capture_output=True, text=True)
    assert (done.returncode, "can't create" in done.stderr) == (6, True), done.stderr
    assert not (world.workspace / ".kitbag" / PATHS["skill"]).exists()
