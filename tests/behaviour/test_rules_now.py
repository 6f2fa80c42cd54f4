"""The rules in force are the rules now: a change of the settings holds for the next step of every agent that runs."""

import json
import os
import re
from collections.abc import Callable

import pytest

from behaviour.rules import PROJECT, TOUCH, USER, allow, live_rules, settings
from conftest import World
from kitbag.models.scripted import Seen
from kitbag.testing import ModelServer, Rule, Script, Step
from support import needs
from support.headless import ask, point
from support.workshop import Workshop, call


def unreadable(world: World) -> None:
    world.write(USER, "").unlink()
    (world.home / ".kitbag/settings.toml").mkdir()


def link_out(world: World) -> None:
    world.write(USER, "").unlink()
    (world.home / ".kitbag/settings.toml").symlink_to("nowhere")


CHANGES: dict[str, Callable[[World], object]] = {
    "a deny rule": lambda world: world.write(USER, settings(deny=["Bash(touch:*)"])),
    "a deny rule for the tool": lambda world: world.write(USER, settings(deny=["Bash"])),
    "plan mode": lambda world: world.write(USER, settings(mode="plan")),
    "locked mode": lambda world: world.write(USER, settings(mode="locked")),
    "settings that are no TOML": lambda world: world.write(USER, "[permissions\n"),
    "settings that are no text": lambda world: world.write(USER, b"\xff\xfe\x00\x00"),
    "settings that are a folder": unreadable,
    "settings behind a broken link": link_out,
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_background_command_that_was_approved_does_not_run_against_what_the_settings_say_by_then(
    workshop: Workshop, change: str
) -> None:
    workshop.world.write(USER, settings(ask=["Bash"]))
    workshop.script(call("Bash", command=TOUCH, description="d"), "Done.")
    task = workshop.put(options={"only_tools": []})
    workshop.worker()
    workshop.until_asked(task)
    CHANGES[change](workshop.world)
    allow(workshop)
    workshop.until_status(task, "completed", "failed")
    assert not (workshop.world.workspace / "made.txt").exists()
    [result] = workshop.records(task, "result")
    assert re.search("no longer allowed|changed since it was approved", str(result.body)), result.body


def test_an_approved_background_command_runs_when_nothing_that_concerns_it_has_changed(workshop: Workshop) -> None:
    workshop.world.write(USER, settings(ask=["Bash"]))
    workshop.script(call("Bash", command=TOUCH, description="d"), "Done.")
    task = workshop.put(options={"only_tools": []})
    workshop.worker()
    workshop.until_asked(task)
    workshop.world.write(USER, "# a remark\n" + settings(ask=["Bash"], deny=["WebFetch"]))
    allow(workshop)
    workshop.until_status(task, "completed")
    assert (workshop.world.workspace / "made.txt").exists()


def test_a_task_that_was_requested_before_the_settings_became_stricter_starts_under_the_stricter_mode(
    workshop: Workshop,
) -> None:
    workshop.agent("editor", **{"permission-mode": "autonomous"})
    workshop.script(call("Bash", command=TOUCH, description="d"), "Done.")
    task = workshop.put(
        agent="editor", options={"settings_mode": "default", "only_tools": []}, parent_mode="autonomous"
    )
    workshop.world.write(USER, settings(mode="locked"))
    workshop.work()
    assert workshop.task(task).status == "completed"
    assert not (workshop.world.workspace / "made.txt").exists()


def bash(call_id: str, command: str) -> Step:
    return Step(calls=((call_id, "Bash", json.dumps({"command": command, "description": "d"})),))


def run_with_change(world: World, change: Callable[[World], object], *arguments: str) -> str:
    """Two commands of an agent; before the second, the settings become others."""

    def second(seen: Seen) -> Step:
        assert (world.workspace / "first.txt").exists()
        change(world)
        return bash("c2", TOUCH)

    with ModelServer(Script([Rule([bash("c1", "touch first.txt"), second, Step(text="Done.")])])) as server:
        point(world, server)
        done = ask(world, "Do it.", "--output-format", "stream-json", *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("change", CHANGES)
def test_an_agent_in_the_foreground_obeys_settings_that_change_between_two_steps(world: World, change: str) -> None:
    needs.bubblewrap()
    said = run_with_change(world, CHANGES[change], "--permission-mode", "autonomous")
    assert not (world.workspace / "made.txt").exists(), said
    assert "permission settings changed" in said


def test_a_project_that_takes_back_its_own_deny_rule_is_not_obeyed_until_it_is_trusted_again(world: World) -> None:
    needs.bubblewrap()
    world.write(PROJECT, settings(deny=["Bash(touch made*)"]))
    said = run_with_change(
        world,
        lambda world: world.write(PROJECT, settings(deny=[])),
        "--permission-mode", "autonomous", "--trust-workspace",
    )  # fmt: skip
    assert not (world.workspace / "made.txt").exists(), said


def test_a_rule_that_a_person_takes_back_no_longer_counts(world: World) -> None:
    needs.bubblewrap()
    world.write(USER, settings(deny=["Bash(touch made*)"]))
    run_with_change(world, lambda world: world.write(USER, settings(deny=[])), "--permission-mode", "autonomous")
    assert (world.workspace / "made.txt").exists()


def test_a_rule_that_a_broken_file_held_still_denies_and_everything_else_asks(world: World) -> None:
    live = live_rules(world, settings(deny=["Bash(rm:*)"], allow=["Bash(ls:*)"]))
    world.write(USER, "[permissions\n")
    rules = live.current().rules
    assert [rule.text for rule in rules.deny] == ["Bash(rm:*)"]
    assert [rule.tool for rule in rules.ask] == ["*"]
    assert any("not valid TOML" in news for news in live.take_notices())
    world.write(USER, settings(allow=["Bash(ls:*)"]))
    assert [rule.text for rule in live.current().rules.all] == ["Bash(ls:*)"]


def test_two_changes_within_one_tick_of_the_clock_are_both_seen(world: World) -> None:
    live = live_rules(world, settings(deny=["Bash(aa:*)"]))
    path = world.home / ".kitbag/settings.toml"
    stamp = path.stat()
    for name in ("bb", "cc", "dd"):
        with path.open("r+") as file:
            file.write(settings(deny=[f"Bash({name}:*)"]))
        os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
        assert [rule.text for rule in live.current().rules.deny] == [f"Bash({name}:*)"]


def test_settings_that_do_not_change_are_read_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    path = world.write(USER, settings(deny=["Bash(rm:*)"]))
    os.utime(path, ns=(1, 1))
    monkeypatch.setattr("time.time_ns", lambda: path.stat().st_ctime_ns + 3_000_000_000)
    live = live_rules(world, None)
    first = live.current()
    opened: list[str] = []
    monkeypatch.setattr("kitbag.settings.read_bytes", lambda *_: opened.append("") or pytest.fail("it was read again"))
    assert all(live.current() is first for _ in range(100))
