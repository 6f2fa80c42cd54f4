"""SECURITY.md D58 and D60 for every tool: calls that are no calls, made from what each tool says of its arguments, and
a cancellation in the middle of each."""

import asyncio
import itertools
import json
import os
import threading
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, cast

import pytest

from behaviour.hostile import Call, Victim, bash, edit, hostile_world, processes_with, read, task, untouched, write
from kitbag.agent.run import Run
from kitbag.agent.turn_limits import Limits
from kitbag.assembly.tool_list import all_tools
from kitbag.events import Event, Notice, ToolStarted, TurnEnded
from kitbag.permissions.approvals.approval import ApprovalRequest
from kitbag.testing import Step
from kitbag.tools.base import Tool, UserQuestion
from support import needs
from support.matrix import long
from support.servers import Server
from support.waiting import until_true

TOOLS: dict[str, Tool[Any]] = {tool.name: tool for tool in all_tools()}
SOUND: dict[str, dict[str, Any]] = {
    "Read": {"file_path": "src/a.py"},
    "Write": {"file_path": "made", "content": "x"},
    "Edit": {"file_path": "src/a.py", "old_string": "a = 1", "new_string": "evil"},
    "Bash": {"command": "true"},
    "Glob": {"pattern": "*"},
    "Grep": {"pattern": "x"},
    "WebFetch": {"url": "http://127.0.0.1:9/"},
    "WebSearch": {"query": "zebra"},
    "TodoWrite": {"todos": [{"content": "x", "status": "pending"}]},
    "AskUser": {"questions": [{"question": "x?", "options": [{"label": "a"}, {"label": "b"}]}]},
    "Skill": {"skill": "ways"},
    "SearchSkills": {"query": "ways"},
    "ListLoadedSkills": {},
    "UnloadSkill": {"skill": "ways"},
    "Task": {"subagent_type": "Explore", "prompt": "x"},
    "TaskOutput": {"task_id": "x"},
    "TaskStop": {"task_id": "x"},
}
"""Arguments with which nothing is wrong."""
VALUES: list[Any] = [
    None,
    True,
    0,
    -1,
    1.5,
    10**400,
    [],
    {},
    [[]],
    {"a": 1},
    "",
    ["x"],
    "NUL\0",
    "\u202e\u200b",
    "\x1b[2K",
]
RAW = [
    "1e400",
    "-1e400",
    "NaN",
    "Infinity",
    '"\\ud800"',
    "[" * 600 + "]" * 600,
    "[" * 2_000 + "]" * 2_000,
    '{"a":' * 2_000 + "1" + "}" * 2_000,
    "'x'",
    "01",
    "9" * 5_000,
]
"""Written as they are: what is no JSON, or no number, or no character."""
BROKEN = [
    "{",
    "}",
    "[]",
    "3",
    "null",
    '"x"',
    "{}{}",
    '{"a": 1} x',
    "\0",
    "\ufeff{}",
    "[" * 2_000,
    "{'a': 1}",
    '{"a": 1, "a": 1}',
]


@pytest.fixture
def victim(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Victim]:
    with hostile_world(request, monkeypatch) as world:
        yield Victim(world)


class Case(NamedTuple):
    arguments: str
    wrong: bool
    """Whether it can be told from the schema alone that it must not run."""


def cases(tool: Tool[Any]) -> Iterator[Case]:
    sound, schema = SOUND[tool.name], tool.spec.schema
    required = cast("list[str]", schema.get("required", []))
    for name in required:
        yield Case(json.dumps({key: value for key, value in sound.items() if key != name}), wrong=True)
    for extra in ("extra", "__class__", "Command", "cwd"):
        yield Case(json.dumps({**sound, extra: "x"}), wrong=True)
    for name, described in cast("dict[str, Any]", schema.get("properties", {})).items():
        others = {key: value for key, value in sound.items() if key != name}
        for value in VALUES:
            if name != "run_in_background" or value is not True:  # which would begin something that goes on
                yield Case(json.dumps({**others, name: value}), wrong=not fits(described, value))
        before = json.dumps(others).removesuffix("}") + (", " if others else "") + json.dumps(name)
        yield from (Case(f"{before}: {raw}}}", wrong=True) for raw in RAW)
        yield Case(f"{before}: 1, {json.dumps(name)}: 2}}", wrong=True)
    yield from (Case(text, wrong=True) for text in BROKEN)


def fits(described: dict[str, Any], value: Any) -> bool:
    """Whether a value is of the kind that a schema wants; more is not looked at."""
    if "anyOf" in described:
        return any(fits(one, value) for one in described["anyOf"])
    if "enum" in described:
        return value in described["enum"]
    kinds = {"string": str, "boolean": bool, "integer": int, "number": (int, float), "array": list, "object": dict}
    wanted = kinds.get(described.get("type", ""), object)
    return isinstance(value, wanted) and (described.get("type") == "boolean" or not isinstance(value, bool))


class Answering:
    async def ask(self, questions: tuple[UserQuestion, ...]) -> tuple[str, ...]:
        return ("yes",) * len(questions)


def test_every_tool_there_is_is_tried() -> None:
    assert set(SOUND) == set(TOOLS)
    for name, arguments in SOUND.items():
        TOOLS[name].parse_arguments(arguments)


@pytest.mark.parametrize("name", TOOLS)
def test_D58_whatever_stands_in_a_call_it_has_one_result_and_nothing_wrong_runs(victim: Victim, name: str) -> None:
    victim.world.skill("~/.kitbag/skills", "ways")
    made = list(dict.fromkeys(cases(TOOLS[name])))
    with untouched(victim.world, victim.root):
        for start in range(0, len(made), 60):
            some = made[start : start + 60]
            told = victim.attack(*((name, case.arguments) for case in some), mode="default", person=Answering())
            assert len(told) == len(some)
            assert victim.agent is not None
            begun = victim.agent.session.started_calls
            for at, (case, one) in enumerate(zip(some, told, strict=True)):
                assert not case.wrong or (one.is_error and f"c0-{at}" not in begun), case.arguments[:200]
                assert "inside Kitbag" not in one.text, (case.arguments[:200], one.text)
                assert len(one.text) < 10_000, case.arguments[:200]


@pytest.mark.parametrize("bad", ["{", '{"file_path": 3}', '{"file_path": "../outside/tripwire"}', "[" * 2_000])
def test_D58_of_three_calls_one_bad_one_stops_no_other(victim: Victim, bad: str) -> None:
    told = victim.attack(
        read("src/a.py"), ("Read", bad), read("src/b.py"), write("made", "1"), ("Write", bad), mode="acceptEdits"
    )
    assert [one.is_error for one in told] == [False, True, False, False, True]
    assert (victim.root / "made").read_text() == "1"


def test_D58_what_has_an_effect_happens_once_for_one_id(victim: Victim) -> None:
    needs.bubblewrap()
    appends = ("same", "Bash", json.dumps({"command": "echo x >> log"}))
    other = ("same", "Write", json.dumps({"file_path": "made", "content": "x"}))
    steps = [Step(calls=(appends, appends, other)), Step(calls=(appends,)), Step(calls=(appends, ("", *appends[1:])))]
    victim.steps(steps, mode="autonomous")
    assert (victim.root / "made").read_text() == "x"  # another call, which gets an id of its own
    assert (victim.root / "log").read_text() == "x\n" * 2  # the call without an id is one of its own
    assert victim.of(Notice)


def test_D58_after_two_corrections_it_stops(victim: Victim) -> None:
    victim.replies([[("Read", "{"), ("Bash", '{"command": 1}')]] * 9)
    assert victim.ended is not None
    assert (victim.ended.status, victim.ended.turns) == ("failed", 3)


# --- D60 --------------------------------------------------------------------------------------------------------------

LINES = 500_000
LONG = f"37{os.getpid()}"
"""Seconds that nothing sleeps: so that it is found among the processes."""


class Silent:
    """A person who does not answer."""

    one_at_a_time = True

    async def ask(self, question: ApprovalRequest | tuple[UserQuestion, ...]) -> Any:
        await asyncio.Event().wait()


@pytest.fixture
def quiet() -> Iterator[Server]:
    """A server that says nothing."""
    server = Server(lambda _, connection: connection.recv(1), None, "127.0.0.1", b"")
    yield server
    server.close()


@pytest.fixture
def busy(victim: Victim, quiet: Server) -> dict[str, Call]:
    """For each tool a call that takes long, or as long as it can be made to take."""
    world, root = victim.world, victim.root
    host = f"127.0.0.1:{quiet.port}"
    victim.allow(
        "WebFetch", "WebSearch", "Task", f"Bash(sleep {LONG})",
        more=f'fetch.private = ["{host}"]\nsearch.url = "http://{host}"',
    )  # fmt: skip
    world.skill("~/.kitbag/skills", "slow", body=f"!`sleep {LONG}`")
    world.skill("~/.kitbag/skills", "forks", context="fork", agent="Explore")
    for number in range(2_000):
        world.write(f"many/{number % 40}/{number}.txt", "needle x\n")
    (root / "long").write_bytes(b"x" * (100 << 20))
    (root / "lines").write_text("".join(f"line {at} is like {at % 7}\n" for at in range(100_000)))
    stubborn = f"trap '' TERM INT HUP; setsid sleep {LONG} & (setsid sleep {LONG} &) ; bash -c \"trap '' TERM; sleep {LONG}\" & sleep {LONG}"
    return {
        "Read": read("long"), "Write": write("made", "x\n" * LINES), "Edit": edit("lines", "line 5 is lika 5", "evil"), "Bash": bash(stubborn),
        "Glob": ("Glob", {"pattern": "**/*none"}), "Grep": ("Grep", {"pattern": "(n+e+)+dle y", "multiline": True}),
        "WebFetch": ("WebFetch", {"url": f"http://{host}/"}), "WebSearch": ("WebSearch", {"query": "zebra"}), "AskUser": ("AskUser", SOUND["AskUser"]),
        "Skill": ("Skill", {"skill": "slow"}), "Skill, forked": ("Skill", {"skill": "forks"}), "Task": task("general-purpose"), "asking": write("made"),
    }  # fmt: skip


def test_D60_every_tool_can_be_cancelled_in_its_middle(victim: Victim, busy: dict[str, Call]) -> None:
    needs.bubblewrap()
    lines, made = (victim.root / "lines").read_bytes(), victim.root / "made"
    for (name, call), delay in itertools.product(busy.items(), (0.0, 0.2)):
        made.unlink(missing_ok=True)
        mode = "autonomous" if name in ("Write", "Edit", "Bash", "Task") else "default"
        approver = Silent() if name == "asking" else None
        cancel(victim, [call], delay, mode=mode, approver=approver, person=Silent())
        assert processes_with(f"sleep\0{LONG}") == [], name
        assert not [thread for thread in threading.enumerate() if thread.name == "kitbag-command"], name
        assert (victim.root / "lines").read_bytes() == lines
        assert not made.exists() or made.stat().st_size == 2 * LINES, "half a file was written"
        assert [path.name for path in victim.root.iterdir() if path.suffix == ".tmp"] == []
        if delay:
            goes_on(victim)


def cancel(victim: Victim, calls: Sequence[Call], delay: float, **options: Any) -> None:
    """So long after it began, and waits for its end; it may be at its end before."""
    told: list[Run] = []

    def end(run: Run) -> None:
        told.append(run)
        run.cancel()

    def then(run: Run, event: Event) -> None:
        # A person is asked before a call is told to have begun, and a call that waits for its turn begins later.
        if isinstance(event, ToolStarted | TurnEnded):
            wait = delay if isinstance(event, ToolStarted) else delay + 0.2 if options.get("approver") else 3_600
            asyncio.get_running_loop().call_later(wait, end, run)

    victim.replies([calls], agent=[Step(text="Slow.", delay=3_600)] * len(calls), then=then, **options)
    ended = victim.ended
    assert ended is not None
    # A call that ends by itself may do so in the very moment in which it is cancelled.
    assert ended.status in (("cancelled", "completed") if told else ("completed",))


def goes_on(victim: Victim) -> None:
    """The session that was cancelled takes the next request."""
    assert victim.agent is not None
    victim.replies([], resume=victim.agent.session.id)
    assert victim.ended is not None
    assert (victim.ended.status, victim.ended.text) == ("completed", "Done.")


@long
def test_D60_a_hundred_agents_at_once_end_together(victim: Victim) -> None:
    victim.allow("Task")
    cancelling: list[asyncio.Task[None]] = []

    async def cancel_in_the_middle(run: Run) -> None:
        await until_true(lambda: len(victim.model.requests) > 5)
        run.cancel()

    def then(run: Run, event: Event) -> None:
        if isinstance(event, ToolStarted) and not cancelling:
            cancelling.append(asyncio.create_task(cancel_in_the_middle(run)))

    victim.replies([[task("Explore")] * 100], agent=[Step(text="Slow.", delay=3_600)] * 100, then=then)
    assert victim.ended is not None
    assert victim.ended.status == "cancelled"
    goes_on(victim)


def test_D60_what_was_cancelled_before_it_began_is_not_done(victim: Victim) -> None:
    def then(run: Run, event: Event) -> None:
        if isinstance(event, ToolStarted):
            run.cancel()

    told = victim.attack(write("first"), write("second"), write("third"), mode="acceptEdits", then=then)
    assert all(one.is_error and "it changed nothing" in one.text for one in told[1:])
    assert not {"second", "third"} & set(os.listdir(victim.root))


def test_D60_a_model_without_end_is_ended_by_its_limits(victim: Victim) -> None:
    victim.world.skill("~/.kitbag/skills", "again", body="Load the skill `again`.")
    endless: list[list[Call]] = [[("Skill", {"skill": "again"}), read("src/a.py")]] * 50

    def ended(**options: Any) -> tuple[str, int]:
        victim.replies(endless, **options)
        assert victim.ended is not None
        return victim.ended.status, victim.ended.turns

    assert ended(limits=Limits(turns=7)) == ("max-turns", 7)
    assert victim.agent is not None
    assert ended(limits=Limits(turns=7), resume=victim.agent.session.id) == ("max-turns", 0)
    assert ended(limits=Limits(tokens=30_000))[0] == "over-budget"
