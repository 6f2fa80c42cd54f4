"""A cut-off reply is never executed: the real program against a scripted model, in each wire protocol and each place in
which a model's calls are executed."""

import json
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from conftest import World
from kitbag.testing import Fault, ModelServer, Rule, Script, Step
from kitbag.testing.server import ReceivedRequest
from support.headless import PROTOCOLS, answer, ask, point, script, start
from support.matrix import sample
from support.workshop import AN_AGENT, Workshop, call

ALLOWED = ("--allowed-tools", "Bash(*) Read Task")
DELETE = json.dumps({"command": "rm -rf build"})
NOT_EXECUTED = "none of its tool calls were run"


def cut_off(number: int = 1, **more: Any) -> Step:
    """Two calls that can be read: nothing but the end of the reply says that it is not complete."""
    names = (f"first{number}", f"second{number}")
    calls = tuple((name, "Bash", DELETE) for name in names)
    return Step(text="I clean up.", calls=calls, **({"stop": "length"} | more))


@pytest.fixture
def built(world: World) -> Iterator[World]:
    world.write("build/result", "took an hour")
    yield world
    assert (world.workspace / "build" / "result").exists(), "a cut-off reply was executed"


def results_in(received: ReceivedRequest) -> list[tuple[str, str]]:
    """(call, text) of each tool result of a request, in whichever protocol."""
    found: list[tuple[str, str]] = []
    for item in received.body.get("messages") or received.body["input"]:
        if item.get("role") == "tool":
            found.append((item["tool_call_id"], item["content"]))
        elif item.get("type") == "function_call_output":
            found.append((item["call_id"], item["output"]))
        elif isinstance(item.get("content"), list):
            blocks = [block for block in item["content"] if block["type"] == "tool_result"]
            found += [(block["tool_use_id"], block["content"][0]["text"]) for block in blocks]
            assert all(block["is_error"] for block in blocks)
    return found


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_its_calls_are_refused_and_the_model_may_send_them_again(built: World, protocol: str) -> None:
    again = Step(calls=(("again", "Bash", json.dumps({"command": "touch made"})),))
    with ModelServer(script(cut_off(), again, "Done.")) as server:
        point(built, server, protocol)
        done = ask(built, "Clean up", *ALLOWED)
        told = results_in(server.requests[1])
    assert (done.returncode, done.stdout) == (0, "Done.\n")
    assert [name for name, _ in told] == ["first1", "second1"]
    assert all("output limit" in text and "shorter or in parts" in text for _, text in told)
    assert "output limit" in done.stderr
    assert NOT_EXECUTED in done.stderr
    assert (built.workspace / "made").exists()


ENDS = {
    "anthropic": (
        "max_tokens", "model_context_window_exceeded", "pause_turn", "refusal", "never_heard_of", "tool_calls",
    ),
    "chat": ("length", "content_filter", "insufficient_system_resource", "error", "never_heard_of", "tool_use"),
    "responses": ("max_output_tokens", "content_filter", "never_heard_of"),
}  # fmt: skip


@pytest.mark.parametrize(("protocol", "reason"), [(name, reason) for name, ends in ENDS.items() for reason in ends])
def test_only_ends_that_are_known_to_be_complete_count(built: World, protocol: str, reason: str) -> None:
    with ModelServer(script(cut_off(stop_reason=reason), "Done.")) as server:
        point(built, server, protocol)
        done = ask(built, "Clean up", *ALLOWED)
        told = results_in(server.requests[1])
    assert done.returncode == 0
    assert [name for name, _ in told] == ["first1", "second1"]
    assert all(text.startswith("Error: Bash was not run: ") for _, text in told)
    assert NOT_EXECUTED in done.stderr


COMPLETE = {
    "anthropic": ("tool_use", "end_turn", "stop_sequence"),
    "chat": ("tool_calls", "stop", "function_call"),
    "responses": ("",),
}


@pytest.mark.parametrize(("protocol", "reason"), [(name, reason) for name, ends in COMPLETE.items() for reason in ends])
def test_after_every_complete_end_the_calls_are_executed(world: World, protocol: str, reason: str) -> None:
    step = Step(calls=(("c1", "Bash", json.dumps({"command": "touch made"})),), stop_reason=reason)
    with ModelServer(script(step, "Done.")) as server:
        point(world, server, protocol)
        assert ask(world, "Go", *ALLOWED).returncode == 0
    assert (world.workspace / "made").exists()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_stream_without_its_end_is_no_reply_at_all(built: World, protocol: str) -> None:
    broken = cut_off(stop=None, fault=Fault(kind="no-end"))
    other = Script([Rule([lambda _: "Done." if len(server.requests) > 1 else broken])])
    with ModelServer(other) as server:
        point(built, server, protocol)
        done = ask(built, "Clean up", *ALLOWED)
        assert len(server.requests) == 2
        assert results_in(server.requests[1]) == []
    assert (done.returncode, done.stdout) == (0, "Done.\n")


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_after_two_corrections_in_a_row_the_run_ends_as_one_that_reached_the_limit(built: World, protocol: str) -> None:
    with ModelServer(script(*(cut_off(number) for number in range(9)))) as server:
        point(built, server, protocol)
        found = answer(built, "Clean up", *ALLOWED)
        assert len(server.requests) == 3
        [*_, last] = server.requests
        assert len(results_in(last)) == 4
    assert (found["code"], found["status"], found["turns"]) == (7, "failed", 3)
    assert "output limit" in found["error"]
    with ModelServer(script("1", "2", "3", "Fine.")) as server:
        point(built, server, protocol)
        assert answer(built, "And now?", "--continue")["result"] == "Fine."
        assert len(results_in(server.requests[0])) == 6


TEXT_ENDS = [
    ("anthropic", "never_heard_of", "unknown stop reason (never_heard_of)"),
    ("anthropic", "max_tokens", "output limit"),
    ("anthropic", "model_context_window_exceeded", "context window is full"),
    ("anthropic", "refusal", "declined to answer"),
    ("chat", "never_heard_of", "unknown stop reason (never_heard_of)"),
    ("chat", "length", "output limit"),
    ("chat", "content_filter", "content filter stopped the reply"),
    ("responses", "never_heard_of", "unknown stop reason (never_heard_of)"),
    ("responses", "max_output_tokens", "output limit"),
    ("responses", "content_filter", "content filter stopped the reply"),
]


@pytest.mark.parametrize(("protocol", "reason", "problem"), TEXT_ENDS)
def test_a_text_that_is_not_complete_is_kept_and_the_run_fails(
    world: World, protocol: str, reason: str, problem: str
) -> None:
    with ModelServer(script(Step(text="So far.", stop_reason=reason))) as server:
        point(world, server, protocol)
        done = ask(world, "Hi")
        assert len(server.requests) == 1
    assert (done.returncode, done.stdout) == (7, "So far.\n")
    assert problem in done.stderr


def test_a_reply_that_the_provider_paused_is_continued(world: World) -> None:
    steps = (Step(text="So far.", stop_reason="pause_turn"), "And done.")
    with ModelServer(script(*steps)) as server:
        point(world, server)
        done = ask(world, "Hi")
        messages = server.requests[1].body["messages"]
    assert (done.returncode, done.stdout) == (0, "And done.\n")
    assert [message["role"] for message in messages] == ["user", "assistant", "user"]
    assert "Continue where it stopped" in messages[-1]["content"][0]["text"]


def test_a_provider_that_pauses_forever_is_given_up(world: World) -> None:
    with ModelServer(script(*[Step(text="So far.", stop_reason="pause_turn")] * 99)) as server:
        point(world, server)
        done = ask(world, "Hi")
        assert len(server.requests) == 11
    assert (done.returncode, done.stdout) == (7, "So far.\n")
    assert "the provider paused the reply" in done.stderr


def test_in_an_agent_that_another_one_started(built: World) -> None:
    task = Step(calls=(("t1", "Task", json.dumps({"subagent_type": "doer", "prompt": "Clean."})),))
    built.write("~/.kitbag/agents/doer.md", "---\nname: doer\ndescription: Does.\ntools: Bash\n---\nDo it.")
    rules = [Rule([cut_off(), Step(text="It is done.")], system=AN_AGENT), Rule([task, Step(text="Done.")])]
    with ModelServer(Script(rules)) as server:
        point(built, server)
        assert ask(built, "Clean up", *ALLOWED).returncode == 0
        told = [results_in(request) for request in server.requests if AN_AGENT in request.raw.decode()]
    assert [name for name, _ in told[-1]] == ["first1", "second1"]


CUT_OFF = {**call("Bash", "b1", command="rm -rf build"), "stop": "length"}


@pytest.mark.parametrize("moment", sample(["", "tool-done", "result-written"], 2))
def test_in_the_background_also_when_its_process_is_killed_meanwhile(workshop: Workshop, moment: str) -> None:
    kept = workshop.world.write("build/result", "took an hour")
    workshop.script(CUT_OFF, {"text": "Done."})
    task_id = workshop.put()
    if moment:
        assert workshop.nursery.wait(workshop.worker(moment)) == -signal.SIGKILL
    workshop.work()
    assert workshop.task(task_id).status == "completed"
    assert kept.exists()
    assert workshop.records(task_id, "intent") == []
    [result] = workshop.records(task_id, "result")
    assert "output limit" in str(result.body["result"])


@pytest.mark.parametrize("moment", ["tool-done", "result-written"])
def test_in_a_session_that_is_resumed_after_its_process_was_killed(built: World, moment: str) -> None:
    with ModelServer(script(cut_off(), "Done.")) as server:
        point(built, server)
        with start(built, "Clean up", *ALLOWED, env={**built.env, "KITBAG_FAULT_AT": moment}) as process:
            process.communicate(timeout=60)
        assert process.returncode == -signal.SIGKILL
        assert len(server.requests) == 1
        assert answer(built, "Go on", "--continue", *ALLOWED)["result"] == "Done."
        told = results_in(server.requests[1])
    assert [name for name, _ in told] == ["first1", "second1"]


def test_the_corrections_also_end_where_a_skill_in_use_forbids_the_tool(built: World) -> None:
    built.skill("~/.kitbag/skills", "careful", disallowed_tools="Bash")
    with ModelServer(script(*(cut_off(number) for number in range(9)))) as server:
        point(built, server)
        assert ask(built, "/careful", *ALLOWED).returncode == 7
        assert len(server.requests) == 3
