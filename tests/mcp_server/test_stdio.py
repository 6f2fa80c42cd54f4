"""The server as a client starts it: a process that speaks nothing but the protocol on its standard output."""

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from mcp_types import ResourceListChangedNotification

from conftest import EXPLORE_ALLOWED, World
from kitbag.mcp_server.stdio import MAX_LINE_BYTES
from support.boards import all_tasks
from support.connected import at_home, over_stdio, run, scripted, text, until
from support.waiting import TEST_TIMEOUT, until_true

AS_INSTALLED = (sys.executable, "-m", "kitbag", "mcp")
INITIALIZE = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}

__all__ = ["at_home"]  # a fixture that every test here uses


class Process:
    """By hand, line by line."""

    def __init__(self, world: World, *arguments: str, program: Sequence[str] = ()) -> None:
        self.process = subprocess.Popen(
            [*program, *arguments] if program else world.command("mcp", *arguments),
            cwd=world.workspace,
            env=world.env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def send(self, line: bytes | dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write((line if isinstance(line, bytes) else json.dumps(line).encode()) + b"\n")
        self.process.stdin.flush()

    def receive(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def ask(self, number: int, method: str, params: Any = None) -> dict[str, Any]:
        self.send({"jsonrpc": "2.0", "id": number, "method": method, "params": params or {}})
        while True:
            answer = self.receive()
            if answer.get("id") == number:
                return answer

    def call(self, number: int, tool: str, **arguments: Any) -> str:
        result = self.ask(number, "tools/call", {"name": tool, "arguments": arguments})["result"]
        return "\n".join(part["text"] for part in result["content"])

    def begin(self) -> dict[str, Any]:
        answer = self.ask(0, "initialize", INITIALIZE)
        self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return answer["result"]

    def end(self) -> tuple[bytes, bytes, int]:
        out, err = self.process.communicate(timeout=TEST_TIMEOUT)
        return out, err, self.process.returncode


def test_both_protocols_are_served_and_a_change_is_told(world: World) -> None:
    world.skill("~/.kitbag/skills", "deploy", body="Do it well.")

    async def work() -> None:
        heard = asyncio.Event()

        async def hear(message: object) -> None:
            if isinstance(message, ResourceListChangedNotification):
                heard.set()

        async with over_stdio(world, mode="legacy", message_handler=hear) as client:
            assert client.protocol_version == "2025-11-25"
            assert "- deploy:" in str(client.instructions)
            assert "Do it well." in await text(client, "load_skill", skill_name="deploy", reason="r")
            assert "1 loaded" in await text(client, "list_loaded_skills")
            world.skill("~/.kitbag/skills", "another")
            await heard.wait()  # of its own accord
        async with over_stdio(world) as client:
            assert client.protocol_version == "2026-07-28"
            assert "Do it well." in await text(client, "load_skill", skill_name="deploy", reason="r")
            assert "1 loaded" in await text(client, "list_loaded_skills")
            extensions = client.server_capabilities.extensions
            assert extensions == {"io.modelcontextprotocol/skills": {"directoryRead": True}}

    run(work)


def test_what_is_no_message_is_answered_and_it_goes_on_and_output_stays_pure(world: World) -> None:
    # A skill whose command prints, below a trusted rule: its output is the skill's, never the wire's.
    world.skill("~/.kitbag/skills", "loud", body="!`echo LOUD; echo ERR >&2`")
    world.write("~/.kitbag/settings.toml", '[permissions]\nallow = ["Bash(echo *)"]\n')
    process = Process(world)
    assert process.begin()["serverInfo"]["name"] == "kitbag"
    for line, code in (
        (b"nonsense", -32700),
        (b"{" * 5_000, -32700),
        (b'{"jsonrpc":"2.0","id":"a","method":7}', -32600),
        (b"[]", -32600),
        (b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]', -32600),
        (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', -32600),
        (b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}', -32600),
        (b'{"jsonrpc":"2.0","id":{},"method":"ping"}', -32600),
        (b'"' + b"x" * (MAX_LINE_BYTES + 10) + b'"', -32600),
        (b"\xff\xfe", -32700),
    ):
        process.send(line)
        answer = process.receive()
        assert answer["error"]["code"] == code, line[:40]
        assert answer["id"] == ("a" if b'"a"' in line else None)
    assert process.ask(5, "no/such")["error"]["code"] == -32601
    assert process.ask(6, "tools/call", {"name": 7})["error"]["code"] == -32602
    process.send(b'{"jsonrpc":"2.0","method":"notifications/unknown","params":{"id":1,"_meta":{"id":null}}}')
    assert "LOUD" in process.call(7, "load_skill", skill_name="loud")
    assert "LOUD" not in process.call(8, "load_skill", skill_name="loud").replace("skill loud", "")
    out, _, code = process.end()
    assert code == 0
    for line in out.splitlines():
        json.loads(line)


def test_a_client_that_leaves_stops_what_works_in_front_and_leaves_what_works_behind(world: World) -> None:
    front = scripted(world, {"text": "Late.", "delay": 60})
    world.write("~/.kitbag/settings.toml", EXPLORE_ALLOWED)
    process = Process(world, "--model", front, program=AS_INSTALLED)
    process.begin()
    assert "background" in process.call(1, "Task", subagent_type="Explore", prompt="Behind.", run_in_background=True)
    call = {"name": "Task", "arguments": {"subagent_type": "Explore", "prompt": "In front."}}
    process.send({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call})

    async def begun() -> None:
        await until_true(lambda: sum(task.status == "running" for task in all_tasks(world)) == 2)

    run(begun)
    _, _, code = process.end()
    assert code == 0
    states = {task.background: task for task in all_tasks(world)}
    assert states[False].status == "cancelled"
    assert states[True].status == "running"
    world.run("tasks", "stop", states[True].id)
    run(lambda: until(world, "cancelled"))


def test_a_signal_ends_it_at_once(world: World) -> None:
    process = Process(world, program=AS_INSTALLED)
    process.begin()
    process.process.send_signal(signal.SIGTERM)
    out, err, code = process.end()
    assert code == 143, err
    assert out == b""
    assert b"Traceback" not in err


def test_nothing_that_a_workspace_brings_acts_when_the_server_starts(world: World) -> None:
    world.skill(".kitbag/skills", "theirs", body="!`touch $CANARY`")
    world.write(".kitbag/settings.toml", '[hooks]\nstart = "touch $CANARY"\n')
    world.write(".mcp.json", json.dumps({"mcpServers": {"x": {"command": "touch", "args": [str(world.canary)]}}}))
    process = Process(world)
    begun = process.begin()
    assert "not trusted" in begun["instructions"]
    assert "THEIRS" not in process.call(1, "load_skill", skill_name="theirs")
    _, err, _ = process.end()
    assert b"not trusted" in err
    assert not world.canary.exists()


def test_what_makes_no_sense_is_told_before_anything_is_served(world: World) -> None:
    for arguments, words in (
        (("--persona", "nobody"), "nobody"),
        (("--host", "0.0.0.0"), "--http"),
        (("--http", "0", "--host", "0.0.0.0"), "--token-file"),
    ):
        done = world.run("mcp", *arguments)
        assert done.returncode != 0
        assert done.stdout == ""
        assert words in done.stderr
        assert "Traceback" not in done.stderr


def test_errors_say_what_is_wrong_with_a_request(world: World) -> None:
    process = Process(world)
    assert process.ask(1, "tools/list")["error"]["message"] == "send initialize before tools/list"
    process.begin()
    wrong = {
        "uri: Field required": ("resources/subscribe", {}),
        "name: Input should be a valid string": ("tools/call", {"name": 7}),
        "arguments.a: Input should be a valid string": ("prompts/get", {"name": "x", "arguments": {"a": 7}}),
        "length <= 20000": ("prompts/get", {"name": "deploy", "arguments": {"arguments": "x" * 20_001}}),
    }
    world.skill("~/.kitbag/skills", "deploy")
    for number, (problem, (method, params)) in enumerate(wrong.items(), 2):
        error = process.ask(number, method, params)["error"]
        assert error["code"] == -32602
        assert problem in error["message"]
    process.end()
