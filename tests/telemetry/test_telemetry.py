"""Telemetry of the real program, as a collector on loopback gets it."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from conftest import World
from kitbag.telemetry.switch import CONTENT_VARIABLE, open_telemetry
from support.collector import Collector
from support.waiting import TEST_TIMEOUT, wait_until
from support.workshop import Workshop, call

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
PATIENT = {"OTEL_EXPORTER_OTLP_TIMEOUT": "60"}
"""However slow the machine is, all is sent before the program ends."""
SECRET = "sk-ant-canary-0123456789abcdef0123"


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as made:
        yield made


@pytest.fixture
def scripted(world: World) -> World:
    world.env |= {"KITBAG_HOME": str(world.home / ".kitbag"), **PATIENT}
    world.env["KITBAG_MODEL"] = f"scripted:{world.write('script.json', json.dumps(['A private answer.']))}"
    return world


def ask(world: World, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Not in a fork: a program sends what is left when its interpreter ends."""
    command = [sys.executable, "-m", "kitbag", "-p", *arguments]
    return subprocess.run(
        command, cwd=world.workspace, env=world.env, capture_output=True, text=True, timeout=TEST_TIMEOUT
    )


def test_a_run_and_the_agent_that_it_starts_in_another_process_are_one_trace(
    workshop: Workshop, collector: Collector
) -> None:
    world = workshop.world
    world.skill(".kitbag/skills", "calc", body="Calculate.")
    world.write("~/.kitbag/settings.toml", '[permissions]\nallow = ["Task(doer)"]\n')
    started = call("Task", subagent_type="doer", prompt="A private task.", run_in_background=True, description="x")
    waits = {"text": "Done.", "delay": 0.01}
    rules = [
        {"system": "A private task", "replies": [call("Bash", "b1", command=f"echo {SECRET}"), waits]},
        {"replies": [call("Skill", "s1", skill="calc"), started, {"text": "Started."}, {"text": "All done."}]},
    ]
    world.write("script.json", json.dumps({"rules": rules}))
    environment = {ENDPOINT: collector.url, "OTEL_SERVICE_NAME": "tests", "OTEL_EXPORTER_OTLP_HEADERS": "x-key=abc"}
    environment |= PATIENT
    world.env |= {"KITBAG_HOME": workshop.home, "KITBAG_MODEL": f"scripted:{world.workspace / 'script.json'}"}
    world.env |= environment
    workshop.environment |= environment
    workshop.worker(idle=60)
    done = ask(world, "A private message.", "--trust-workspace", "--allowed-tools", "Task,Skill,Bash(echo:*)")
    assert (done.returncode, done.stderr.count("telemetry")) == (0, 0), done.stderr
    wait_until(lambda: collector.named("invoke_agent doer"))
    [doer] = collector.named("invoke_agent doer")
    wait_until(lambda: any(span["trace"] == doer["trace"] for span in collector.named("invoke_agent kitbag")))
    [main] = [span for span in collector.named("invoke_agent kitbag") if span["trace"] == doer["trace"]]
    [task] = collector.named("execute_tool Task")
    assert (main["parent"], task["parent"], doer["parent"]) == ("", main["id"], task["id"])
    [bash] = collector.named("execute_tool Bash")
    assert (bash["parent"], bash["gen_ai.tool.call.id"], bash["gen_ai.operation.name"]) == (doer["id"], "b1", "execute_tool")  # fmt: skip
    chats = [span for span in collector.spans if span["gen_ai.operation.name"] == "chat"]
    assert {chat["parent"] for chat in chats} >= {main["id"], doer["id"]}
    assert all(chat["kind"] == 3 and chat["gen_ai.provider.name"] == "scripted" for chat in chats)
    own = [chat for chat in chats if chat["parent"] == doer["id"]]
    assert doer["gen_ai.usage.input_tokens"] == sum(chat["gen_ai.usage.input_tokens"] for chat in own) > 0
    assert (doer["gen_ai.agent.name"], doer["kitbag.status"]) == ("doer", "completed")
    assert doer["gen_ai.conversation.id"] == doer["gen_ai.agent.id"] == workshop.board.all()[0].id
    assert [name for name, _ in main["events"]] == ["kitbag.skill.loaded"]
    assert main["events"][0][1]["kitbag.skill.name"] == "calc"
    assert collector.services == {"tests"}
    assert len(collector.processes) == 2
    assert {host for host, _ in collector.processes} == {os.uname().nodename}
    assert all(headers["x-key"] == "abc" for headers in collector.headers)
    for text in ("private", "canary", str(world.home)):
        assert not any(text.encode() in body for body in collector.raw), "content is off"


def test_content_is_sent_if_the_user_wants_it_without_secrets(scripted: World, collector: Collector) -> None:
    replies = [call("Bash", "b1", command=f"echo {SECRET}"), {"text": f"It is {SECRET}."}]
    scripted.write("script.json", json.dumps(replies))
    scripted.env |= {ENDPOINT: collector.url, CONTENT_VARIABLE: "SPAN_ONLY", "ANTHROPIC_API_KEY": SECRET}
    ask(scripted, f"A private {SECRET} message.", "--allowed-tools", "Bash(echo:*)")
    [main] = collector.named("invoke_agent kitbag")
    [said] = json.loads(main["gen_ai.input.messages"])
    assert said["role"] == "user"
    assert said["parts"][0]["content"].startswith("A private [REDACTED")
    assert "It is [REDACTED" in main["gen_ai.output.messages"]
    chats = collector.named("chat scripted")
    assert "echo" in chats[0]["gen_ai.output.messages"]
    reasons = [json.loads(chat["gen_ai.output.messages"])[0]["finish_reason"] for chat in chats]
    assert reasons == [chat["gen_ai.response.finish_reasons"][0] for chat in chats] == ["tool_call", "stop"]
    assert "echo" in collector.named("execute_tool Bash")[0]["gen_ai.tool.call.arguments"]
    assert not any(SECRET.encode() in body for body in collector.raw)


@pytest.mark.parametrize("listens", [False, pytest.param(True, marks=pytest.mark.long)])
def test_a_collector_that_is_away_or_silent_is_reported_once_and_changes_nothing(
    scripted: World, listens: bool
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        if not listens:
            server.close()
        scripted.env |= {ENDPOINT: f"http://user:hunter2@127.0.0.1:{port}", "OTEL_EXPORTER_OTLP_TIMEOUT": "1"}
        done = ask(scripted, "Hi.")
    assert (done.returncode, done.stdout) == (0, "A private answer.\n")
    assert done.stderr.count("telemetry:") == 1, done.stderr
    assert "hunter2" not in done.stderr


def test_only_the_user_turns_it_on_and_metrics_are_sent_when_the_program_ends(
    scripted: World, collector: Collector
) -> None:
    setting = f'[telemetry]\nendpoint = "{collector.url}"\n'
    scripted.write(".kitbag/settings.toml", setting)
    assert ask(scripted, "Hi.", "--trust-workspace").returncode == 0
    assert collector.raw == []
    scripted.write("~/.kitbag/settings.toml", setting)
    scripted.env["TRACEPARENT"] = f"00-{'ab' * 16}-{'cd' * 8}-01"
    done = ask(scripted, "Hi.")
    assert (done.stdout, done.stderr.count("telemetry")) == ("A private answer.\n", 0), done.stderr
    [main], [chat] = collector.named("invoke_agent kitbag"), collector.named("chat scripted")
    assert (main["trace"], main["parent"]) == ("ab" * 16, "cd" * 8)
    tokens = {point["gen_ai.token.type"]: point["sum"] for point in collector.metrics["gen_ai.client.token.usage"]}
    assert tokens == {kind: chat[f"gen_ai.usage.{kind}_tokens"] for kind in ("input", "output")}
    durations = {point["gen_ai.operation.name"] for point in collector.metrics["gen_ai.client.operation.duration"]}
    assert durations == {"chat", "invoke_agent"}
    assert collector.services == {"kitbag"}


def test_it_stays_off_where_the_environment_says_so_or_the_extra_is_missing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("kitbag.telemetry.switch._opened", {})
    for name in (ENDPOINT, "OTEL_SDK_DISABLED", "OTEL_EXPORTER_OTLP_PROTOCOL"):
        monkeypatch.delenv(name, raising=False)
    assert open_telemetry("") is None
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    assert open_telemetry("http://127.0.0.1:1") is None
    assert caplog.messages == []
    monkeypatch.delenv("OTEL_SDK_DISABLED")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
    assert open_telemetry("http://127.0.0.1:2") is open_telemetry("http://127.0.0.1:2") is None
    [said] = caplog.messages
    assert "OTEL_EXPORTER_OTLP_PROTOCOL=grpc is not supported" in said
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk", None)
    assert open_telemetry("http://127.0.0.1:3") is None
    assert "kitbag[telemetry]" in caplog.messages[1]
    monkeypatch.setenv(ENDPOINT, "http://127.0.0.1:4")
    assert open_telemetry("") is None, "for others that use the variable"
    assert len(caplog.messages) == 2


def test_nothing_is_imported_for_it_when_it_is_off(scripted: World) -> None:
    program = (
        "import sys\nfrom kitbag.cli import main\nsys.argv = ['kitbag', '-p', 'Hi.']\n"
        "try:\n    main()\nfinally:\n"
        "    print([name for name in sys.modules if name.startswith(('opentelemetry', 'kitbag.telemetry'))])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=scripted.workspace,
        env=scripted.env,
        capture_output=True,
        text=True,
        timeout=TEST_TIMEOUT,
    )
    assert done.stdout.splitlines()[1:] == [
        "['kitbag.telemetry', 'kitbag.telemetry.switch', 'kitbag.telemetry.trace_context']"
    ], done.stderr
