"""The same agent comes back: what a provider receives besides the conversation is the same, byte for byte, after a resume,
a fork, a crash and a change of worker; or the change is announced."""

import itertools
import json
from typing import Any

import pytest

from conftest import World
from kitbag.store.fault_points import VARIABLE
from kitbag.testing import ModelServer, Rule, Script, Step
from support.headless import PROTOCOLS, answer, ask, point, reads, script, start
from support.matrix import sample
from support.waiting import TEST_TIMEOUT, wait_until

OPTIONS = {
    "append": ("--append-system-prompt", "Speak like a pirate."),
    "allowed": ("--allowed-tools", "Read,Grep,Skill,Bash(git log:*)"),
    "disallowed": ("--disallowed-tools", "Bash"),
    "effort": ("--effort", "low"),
    "persona": ("--persona", "boss"),
    "agent": ("--agent", "helper"),
    "model": ("--model", "anthropic/claude-opus-4-8"),
    "mode": ("--permission-mode", "plan"),
    "dir": ("--dir", "more"),
}
WAYS = ("--continue", "--continue --fork", "crash")


def identity(body: dict[str, Any]) -> bytes:
    """All that a provider receives, but for the conversation."""
    return json.dumps({key: value for key, value in body.items() if key not in ("messages", "input")}).encode()


@pytest.fixture
def furnished(world: World) -> World:
    world.write("~/.kitbag/personas/boss.yaml", "name: boss\nsystem_prompt_additions: PERSONA\ncore_skills: [ways]\n")
    world.write("~/.kitbag/agents/helper.md", "---\nname: helper\ndescription: Helps.\nskills: ways\n---\nHelp.")
    world.skill("~/.kitbag/skills", "ways")
    world.skill("more", "another")
    world.write("a.txt", "text")
    return world


def crash(world: World) -> None:
    """Kill a resumed run in the middle of its turn."""
    world.env[VARIABLE] = "reply-received"
    with start(world, "More", "--continue") as process:
        assert process.wait(TEST_TIMEOUT) < 0
    del world.env[VARIABLE]


@pytest.mark.parametrize(("options", "way"), sample(
    [(names, way) for way in WAYS for count in (1, 2) for names in itertools.combinations(OPTIONS, count)],
    8, unpack=True,
))  # fmt: skip
def test_a_session_comes_back_with_the_same_agent(furnished: World, options: tuple[str, ...], way: str) -> None:
    world = furnished
    protocol = sorted(PROTOCOLS)[len("".join(options)) % len(PROTOCOLS)] if "model" not in options else "anthropic"
    with ModelServer(script(*[f"Answer {number}." for number in range(9)])) as server:
        point(world, server, protocol)
        assert answer(world, "Hi", *itertools.chain(*(OPTIONS[name] for name in options)))["status"] == "completed"
        if way == "crash":
            crash(world)
        flags = way.split() if way != "crash" else ["--continue"]
        assert answer(world, "Again", *flags)["status"] == "completed"
        assert answer(world, "And again", *flags)["status"] == "completed"
        sent = {identity(request.body) for request in server.requests}
        assert len(server.requests) >= 3
    assert len(sent) == 1


def test_a_looser_mode_is_not_restored_and_that_is_announced(furnished: World) -> None:
    with ModelServer(script("One.", "Two.")) as server:
        point(furnished, server)
        ask(furnished, "Hi", "--permission-mode", "acceptEdits")
        again = ask(furnished, "Again", "--continue")
        assert "acceptEdits -> default" in again.stderr
        assert "<session-changes>" in json.dumps(server.requests[1].body["messages"][-1])


def test_options_that_change_are_announced_and_kept_from_then_on(furnished: World) -> None:
    with ModelServer(script("One.", "Two.", "Three.")) as server:
        point(furnished, server)
        ask(furnished, "Hi", "--allowed-tools", "Read,Grep")
        changed = ask(furnished, "Again", "--continue", "--allowed-tools", "Read")
        last = ask(furnished, "And again", "--continue")
        bodies = [request.body for request in server.requests]
    assert "--allowed-tools Read,Grep -> --allowed-tools Read" in changed.stderr
    assert "available tools have changed" in json.dumps(bodies[1]["messages"][-1])
    assert [[tool["name"] for tool in body["tools"]] for body in bodies] == [["Read", "Grep"], ["Read"], ["Read"]]
    assert "limited to Read" in last.stderr


def test_tools_of_an_earlier_run_stay_limited_but_are_not_approved_again(furnished: World) -> None:
    writes = Step(calls=(("w1", "Write", json.dumps({"file_path": "new.txt", "content": "x"})),))
    with ModelServer(script("One.", writes, "Two.")) as server:
        point(furnished, server)
        ask(furnished, "Hi", "--allowed-tools", "Write")
        again = answer(furnished, "Write", "--continue")
    assert [failed["tool"] for failed in again["failed_calls"]] == ["Write"]
    assert not (furnished.workspace / "new.txt").exists()


@pytest.mark.parametrize("fault", sample(["", "task-claimed", "request-sent", "reply-received", "result-written"], 2))
def test_a_task_comes_back_with_the_same_agent_in_another_worker(furnished: World, fault: str) -> None:
    """First in the foreground or in a worker that dies, then resumed in another one."""
    world = furnished
    steps = [reads("c1"), *(Step(text=f"Answer {number}.") for number in range(9))]
    with ModelServer(Script([Rule(steps)])) as server:
        point(world, server)
        if fault:
            world.env[VARIABLE] = fault
            world.run("agents", "run", "helper", "Go.", "--background")
            wait_until(lambda: _worker_has_ended(world))
            del world.env[VARIABLE]
            world.run("agents", "run", "helper", "Another.", "--background")
        else:
            world.ok("agents", "run", "helper", "Go.", "--background")
        wait_until(lambda: {task["status"] for task in world.json("tasks", "list", "--all")} == {"completed"})
        task = next(one for one in world.json("tasks", "list", "--all") if one["description"].startswith("Go"))
        world.end_worker()
        world.ok("tasks", "resume", task["id"], "More.")
        wait_until(lambda: {task["status"] for task in world.json("tasks", "list", "--all")} == {"completed"})
        world.end_worker()
        bodies = [request.body for request in server.requests if "Go." in json.dumps(request.body["system"])]
    assert len(bodies) >= 3
    assert len({identity(body) for body in bodies}) == 1


def _worker_has_ended(world: World) -> bool:
    from kitbag.tasks.worker_process import read_worker_record

    record = read_worker_record(str(world.home / ".kitbag"))
    return record is not None and not record.owner.check_alive()
