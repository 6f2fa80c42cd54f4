"""The scripted model behind loopback HTTP: what another program sees of it."""

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from kitbag.errors import InvalidError
from kitbag.testing import Fault, ModelServer, Rule, Script, Step
from support.waiting import TEST_TIMEOUT, wait_until

BODIES: dict[str, dict[str, Any]] = {
    "/v1/messages": {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]},
    "/v1/chat/completions": {"model": "m", "messages": [{"role": "user", "content": "hi"}]},
    "/v1/responses": {"model": "m", "input": "hi"},
}


def post(url: str, body: object, timeout: float = TEST_TIMEOUT) -> bytes:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    with urllib.request.urlopen(urllib.request.Request(url, data), timeout=timeout) as answer:
        return answer.read()


def refused(url: str, body: object) -> tuple[int, Any]:
    with pytest.raises(urllib.error.HTTPError) as error:
        post(url, body)
    with error.value as answer:
        return answer.code, answer.headers


@pytest.mark.parametrize("path", BODIES)
def test_a_program_without_streaming_gets_one_document(path: str) -> None:
    with ModelServer(Script([Rule([Step(text="Hello.")])])) as server:
        answer = post(server.url + path, BODIES[path]).decode()
        assert "Hello." in answer
        json.loads(answer)
        assert server.requests[0].path == path
        assert json.loads(server.requests[0].raw) == BODIES[path]


@pytest.mark.parametrize("path", BODIES)
def test_a_stream_is_made_of_events(path: str) -> None:
    with ModelServer(Script([Rule([Step(text="Hello.")])]), chunk=3, newline="\r\n") as server:
        answer = post(server.url + path, {**BODIES[path], "stream": True}).decode()
    lines = [line.removeprefix("data: ") for line in answer.splitlines() if line.startswith("data: ")]
    assert all(line == "[DONE]" or isinstance(json.loads(line), dict) for line in lines)
    assert "Hello." in "".join(lines)


def test_a_status_comes_with_its_headers_and_body() -> None:
    fault = Fault(times=1, status=429, headers={"retry-after": "7"}, body='{"error": "later"}')
    with ModelServer(Script([Rule([Step(text="x", fault=fault)])])) as server:
        status, headers = refused(server.url + "/v1/messages", BODIES["/v1/messages"])
        assert (status, headers["retry-after"]) == (429, "7")
        assert b"x" in post(server.url + "/v1/messages", BODIES["/v1/messages"])


def test_other_paths() -> None:
    with ModelServer(Script([])) as server:
        with urllib.request.urlopen(f"{server.url}/v1/models") as answer:
            assert json.load(answer)["data"]
        assert refused(f"{server.url}/v1/nothing", {})[0] == 404
        assert refused(f"{server.url}/v1/messages", b"{no json")[0] == 400


def test_one_that_hangs_up_is_noticed() -> None:
    step = Step(text="Hello, you there.", fault=Fault(kind="idle", seconds=3_600))
    with ModelServer(Script([Rule([step])])) as server:
        with socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2]))) as connection:
            body = json.dumps({**BODIES["/v1/messages"], "stream": True}).encode()
            connection.sendall(b"POST /v1/messages HTTP/1.1\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body))
            wait_until(lambda: server.open_streams == 1)
            assert b"Hello" in connection.recv(1 << 16)
        wait_until(lambda: server.open_streams == 0 and server.connections == 0)


def test_garbage_on_the_wire_harms_nobody() -> None:
    with ModelServer(Script([Rule([Step(text="Hello.")])])) as server:
        for junk in (b"\r\n\r\n", b"POST / HTTP/1.1\r\ncontent-length: x\r\n\r\n", b"\xff" * 100):
            with socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2]))) as connection:
                connection.sendall(junk)
        wait_until(lambda: server.connections == 0)
        assert b"Hello" in post(server.url + "/v1/messages", BODIES["/v1/messages"])


def test_a_port_that_is_taken_is_told() -> None:
    with ModelServer(Script([])) as first, pytest.raises(InvalidError, match="port"):
        ModelServer(Script([]), int(first.url.rpartition(":")[2])).__enter__()


class TestCommand:
    def start(self, *arguments: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [sys.executable, "-m", "kitbag.testing.serve", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )

    def test_it_says_where_it_listens_and_serves_until_it_is_interrupted(self, tmp_path: Path) -> None:
        script = tmp_path / "script.json"
        script.write_text('["Hello."]')
        with self.start(str(script)) as process:
            assert process.stdout is not None
            said = dict(process.stdout.readline().strip().split("=", 1) for _ in range(4))
            url = said["ANTHROPIC_BASE_URL"]
            assert b"Hello." in post(f"{url}/v1/messages", BODIES["/v1/messages"])
            process.send_signal(signal.SIGINT)
            assert process.wait(TEST_TIMEOUT) == 0

    def test_a_script_that_is_wrong_ends_it(self, tmp_path: Path) -> None:
        script = tmp_path / "script.json"
        script.write_text("[3]")
        with self.start(str(script)) as process:
            _, problem = process.communicate(timeout=TEST_TIMEOUT)
        assert process.returncode == 6
        assert "replies[0]" in problem

    def test_a_port_that_is_taken_ends_it(self, tmp_path: Path) -> None:
        script = tmp_path / "script.json"
        script.write_text('["Hello."]')
        with (
            ModelServer(Script([])) as server,
            self.start(str(script), "--port", server.url.rpartition(":")[2]) as busy,
        ):
            _, problem = busy.communicate(timeout=TEST_TIMEOUT)
        assert busy.returncode == 1
        assert "can't be used" in problem
