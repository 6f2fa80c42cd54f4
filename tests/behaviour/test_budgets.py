"""Budgets, as a user sets them: the next model call is refused, the work so far is kept and can be resumed."""

import msgspec
import pytest

from conftest import World
from kitbag.testing import ModelServer
from support.headless import answer, ask, point, reads, script


@pytest.mark.parametrize(
    ("setting", "owner"),
    [
        ("task_turns = 1", "this task"),
        ("session_turns = 1", "this session and its subagents"),
        ("day_turns = 1", "of the day: "),
        ("session_minutes = 0.00001", "this session"),
        ("day_cost = 0.01", "of the day: "),
        ("task_tokens = 8000", "this task"),
    ],
)
def test_each_cap_refuses_the_next_call_keeps_the_text_and_can_be_raised(
    world: World, setting: str, owner: str
) -> None:
    world.write("a.txt", "text")
    first = msgspec.structs.replace(reads("c1"), text="I read it.")
    with ModelServer(script(first, reads("c2"), reads("c3"), "Done.")) as server:
        point(world, server)
        world.write("~/.kitbag/settings.toml", f"[limits]\n{setting}\n")
        found = answer(world, "Hi")
        assert (found["status"], found["code"]) == ("over-budget", 12)
        assert owner in found["error"]
        assert "limits." in found["fix"]
        if found["turns"]:
            assert found["result"] == "I read it."
        again = answer(world, "Go on", "--continue")
        assert (again["status"], again["turns"]) == ("over-budget", 0)
        assert len(server.requests) == found["turns"]
        world.write("~/.kitbag/settings.toml", f"[limits]\n{setting.split(' ')[0]} = 900000\n")
        assert answer(world, "Go on", "--continue")["status"] == "completed"


def test_the_day_counts_all_sessions(world: World) -> None:
    with ModelServer(script("One.", "Two.", "Three.")) as server:
        point(world, server)
        world.write("~/.kitbag/settings.toml", "[limits]\nday_turns = 2\n")
        statuses = [answer(world, "Hi")["status"] for _ in range(3)]
    assert statuses == ["completed", "completed", "over-budget"]


def test_time_is_an_option_of_a_run(world: World) -> None:
    world.write("a.txt", "text")
    with ModelServer(script(reads("c1"), "Done.")) as server:
        point(world, server)
        found = ask(world, "Hi", "--max-time", "0.000001")
    assert found.returncode == 12
    assert "seconds" in found.stderr


def test_a_cap_that_is_no_number_is_named(world: World) -> None:
    assert "non-negative number" in world.run("config", "set", "limits.day_cost", "much").stderr
    assert world.run("config", "set", "limits.day_cost", "2.50").returncode == 0
    assert "2.5" in world.run("config", "get", "limits.day_cost").stdout
