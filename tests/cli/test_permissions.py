"""`kitbag permissions`: what it says about a use of a tool, and about the rules in force."""

import json

import pytest

from conftest import World

USER, PROJECT = "~/.kitbag/settings.toml", ".kitbag/settings.toml"


def test_a_decision_is_explained_part_by_part(world: World) -> None:
    path = world.write(USER, '[permissions]\nallow = ["Bash(git log:*)"]\ndeny = ["Bash(rm:*)"]\n')
    done = world.run("permissions", "test", "Bash(git log && touch x)", "--json")
    told = json.loads(done.stdout)
    assert (done.returncode, told["effect"], told["mode"], told["tool"]) == (1, "ask", "default", "Bash")
    parts = {part["what"]: part for part in told["parts"]}
    assert (parts["git log"]["rule"], parts["git log"]["source"]) == ("Bash(git log:*)", f"{path}:2")
    assert parts["touch x"]["effect"] == "ask"
    assert parts["touch x"]["reason"]
    shown = world.run("permissions", "test", "rm -rf / # x")
    assert shown.returncode == 6
    assert "denied" in shown.stdout
    assert "`Bash(rm:*)` (~/.kitbag/settings.toml:3)" in shown.stdout


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("Read(src/a.py)",), 0),
        (("Read(/etc/hosts)",), 1),
        (("Edit(src/a.py)",), 1),
        (("Edit(src/a.py)", "--permission-mode", "acceptEdits"), 0),
        (("Edit(src/a.py)", "--permission-mode", "plan"), 6),
        (("Edit(.git/config)", "--permission-mode", "autonomous"), 6),
        (("Edit(src/a.py)", "--allow", "Edit(src/**)"), 0),
        (("Edit(src/a.py)", "--allow", "Edit", "--deny", "Edit(*.py)"), 6),
        (("Edit(src/a.py)", "--allow", "Edit", "--ask", "Write"), 0),
        (("WebFetch(https://x.com/a)", "--allow", "WebFetch(domain:x.com)"), 0),
        (("Agent(Explore)",), 1),
        (("Agent(Explore)", "--permission-mode", "plan"), 0),
        (("Task(general-purpose)",), 1),
        (("Skill(deploy now)", "--deny", "Skill(deploy *)"), 6),
        (("mcp__srv__tool", "--allow", "mcp__srv"), 0),
        (("mcp__srv__tool",), 1),
        (("Read", "--input", '{"file_path": "x"}'), 0),
        (("Read",), 6),
        (("TodoWrite",), 0),
        (("Deploy", "--input", '{"x": 1}'), 1),
        (("curl http://x",), 1),
        (("echo 'half",), 1),
    ],
)
def test_the_exit_code_tells_the_decision(world: World, arguments: tuple[str, ...], code: int) -> None:
    done = world.run("permissions", "test", *arguments)
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("Read(x)", "--input", "{}"),
        ("Read", "--input", "[]"),
        ("Read", "--input", "{"),
        ("Read(x)", "--allow", "*"),
        ("Read(x)", "--deny", "Bash("),
        ("Read(x)", "--permission-mode", "yolo"),
        (),
    ],
)
def test_a_wrong_command_line_is_told(world: World, arguments: tuple[str, ...]) -> None:
    done = world.run("permissions", "test", *arguments)
    assert done.returncode == 2, done.stdout
    assert done.stderr
    assert "Traceback" not in done.stderr


def test_nothing_that_is_judged_is_run_or_acts_on_the_terminal(world: World) -> None:
    done = world.run("permissions", "test", f"touch {world.canary}; printf '\x1b[31m\u202e'", "--allow", "Bash")
    assert not world.canary.exists()
    assert "\x1b" not in done.stdout
    assert "\u202e" not in done.stdout


def test_rules_are_listed_with_their_source_and_what_does_not_count(world: World) -> None:
    world.write(
        USER,
        '[permissions]\nmode = "acceptEdits"\nallow = [{rule = "Bash(git log:*)", matches = ["git log -5"]}, "Bash(x"]\n'
        'deny = [{rule = "Bash(rm:*)", matches = ["rmdir x"]}]\n',
    )
    world.write(PROJECT, '[permissions]\nmode = "plan"\nallow = ["Bash"]\ndeny = ["Read(.env)"]\n')
    told = world.json("permissions", "list")
    assert told["mode"] == "acceptEdits"
    assert told["trust"] == "untrusted"
    assert [(rule["effect"], rule["text"], rule["scope"]) for rule in told["rules"]] == [
        ("deny", "Bash(rm:*)", "user"),
        ("allow", "Bash(git log:*)", "user"),
    ]
    assert told["rules"][0]["source"].endswith("settings.toml:4")
    assert told["rules"][0]["examples"]["failed"]
    assert told["rules"][1]["examples"] == {"tried": 1, "failed": ""}
    assert {one["setting"] for one in told["ignored"]} == {"permissions.mode", "permissions.allow", "permissions.deny"}
    trusted = world.json("permissions", "list", "--trust-workspace", "--ask", "Task")
    assert trusted["mode"] == "plan"
    assert [one["setting"] for one in trusted["ignored"]] == ["permissions.allow"]
    assert [rule["scope"] for rule in trusted["rules"]] == ["user", "project", "command line", "user"]
    done = world.run("permissions", "list")
    assert done.returncode == 0
    for word in ("plan", "locked", "default", "autonomous", "1 pass", "failing", "not trusted", "Bash(git log:*)"):
        assert word in done.stdout
    assert "unbalanced parentheses" in done.stderr


def test_without_settings_the_listing_says_what_modes_mean(world: World) -> None:
    shown = world.ok("permissions", "list")
    assert "default" in shown
    assert "sandbox" in shown
