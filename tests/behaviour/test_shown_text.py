"""What reaches a terminal or a log has no character that acts or hides: messages, tracebacks, server logs, click's errors."""

import json
import logging
import os
import re
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from conftest import World
from kitbag.cli import error_output, output
from kitbag.text.hidden_characters import find_hidden
from support.waiting import TEST_TIMEOUT

HOSTILE = "a\x1b]0;owned\x07\x1b[2J\r\u202egnp\u2066\u200b\x9b31m\U000e0041\nkitbag mcp: forged"
SECRET = "tk-9f3Kx72mQp8LwZ4vR6nB1"


def assert_inert(text: str) -> None:
    assert not find_hidden(text), text


def assert_nothing_forged(text: str) -> None:
    assert_inert(text)
    assert "\nkitbag mcp: forged" not in f"\n{text}"


REQUESTS = [
    f"GET /{HOSTILE} HTTP/1.1\r\nHost: x\r\n\r\n",
    f"GET /mcp?{HOSTILE} HTTP/1.1\r\nHost: {{host}}\r\n\r\n",
    f"GET /mcp HTTP/1.1\r\nHost: {{host}}\r\nUser-Agent: {HOSTILE}\r\nAuthorization: Bearer {HOSTILE}\r\n\r\n",
    f"POST /mcp HTTP/1.1\r\nHost: {{host}}\r\nOrigin: {HOSTILE}\r\n\r\n",
    f"{HOSTILE} / HTTP/1.1\r\n\r\n",
    "POST /mcp HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\nAccept: application/json, text/event-stream"
    "\r\nContent-Type: application/json\r\nMcp-Session-Id: \x1b[31m\u202e\r\nContent-Length: {length}\r\n\r\n{body}",
    "POST /mcp HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\nAccept: application/json, text/event-stream"
    "\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}",
]
BODIES = [
    json.dumps({"jsonrpc": "2.0", "id": HOSTILE, "method": HOSTILE, "params": {"name": HOSTILE}}),
    json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": HOSTILE, "arguments": HOSTILE}}),
    "{" + HOSTILE,
]


def send(host: str, request: str) -> None:
    """One request to the letter, until the server has answered or hung up."""
    name, _, port = host.partition(":")
    with socket.create_connection((name, int(port)), timeout=TEST_TIMEOUT) as connection:
        connection.sendall(request.encode("utf-8", "surrogatepass"))
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(65536):
            pass


def test_nothing_in_a_request_reaches_the_log_of_the_http_server_raw(world: World) -> None:
    folder = world.workspace / ".kitbag" / "skills" / "\x1b[31mred\u202e"
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text(f"---\nname: {json.dumps(HOSTILE)}\nbad: [\n---\n")
    command = [sys.executable, "-m", "kitbag", "mcp", "--http", "0", "--trust-workspace"]
    with subprocess.Popen(
        command, cwd=world.workspace, env=world.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        printed = ""
        while (found := re.search(r"http://(\S+)/mcp; the token is in (\S+)", printed)) is None:
            line = process.stderr.readline()
            assert line, printed
            printed += line
        token = Path(found[2]).read_text()
        for request in REQUESTS:
            for body in BODIES if "{body}" in request else [""]:
                text = request.replace("{host}", found[1]).replace("{token}", token)
                send(found[1], text.replace("{length}", str(len(body.encode()))).replace("{body}", body))
        process.terminate()
        printed += process.communicate(timeout=TEST_TIMEOUT)[1]
    assert_nothing_forged(printed)
    assert token not in printed


@pytest.fixture
def handler(capsys: pytest.CaptureFixture[str]) -> Any:
    """The log of `kitbag mcp`, at the stderr of this test."""
    root, before = logging.getLogger(), list(logging.getLogger().handlers)
    root.handlers.clear()
    error_output.install_log("kitbag mcp: ")
    yield capsys
    root.handlers[:] = before


def test_a_log_record_is_escaped_and_redacted_with_its_traceback(
    handler: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SERVICE_TOKEN", SECRET)
    server_log = logging.getLogger("uvicorn.error")
    server_log.setLevel(logging.NOTSET)  # a server in this process may have set it
    server_log.warning("from %s with %s", HOSTILE, SECRET)
    try:
        raise ValueError(HOSTILE + SECRET)
    except ValueError:
        logging.getLogger("mcp.server").exception("%s failed", HOSTILE)
    text = handler.readouterr().err
    assert_nothing_forged(text)
    assert SECRET not in text
    assert "Traceback" in text
    assert text.startswith("kitbag mcp: from a\\x1b]0;owned")


def test_what_libraries_log_without_a_handler_is_escaped(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging, "lastResort", logging.lastResort)
    error_output.install_log()
    assert logging.lastResort is not None
    logging.lastResort.handle(logging.LogRecord("asyncio", logging.ERROR, "", 0, HOSTILE, None, None))
    logging.lastResort.handle(logging.LogRecord("asyncio", logging.ERROR, HOSTILE, 0, "%d", (HOSTILE,), None))
    text = capsys.readouterr().err
    assert text.startswith("a\\x1b]0;owned")
    assert "TypeError" in text
    assert_inert(text)


@pytest.mark.parametrize("where", ["main", "thread", "finalizer"])
def test_an_exception_that_nothing_catches_is_escaped_and_redacted(world: World, where: str) -> None:
    raising = {
        "main": "raise ValueError(text)",
        "thread": "import threading\ndef work(): raise ValueError(text)\n"
        "thread = threading.Thread(target=work)\nthread.start()\nthread.join()",
        "finalizer": "class Gone:\n    def __del__(self): raise ValueError(text)\nGone()",
    }[where]
    code = f"import click\nfrom kitbag.cli import error_output\nerror_output.install_error_hooks()\ntext = {HOSTILE + SECRET!r}\n"
    done = subprocess.run(
        [sys.executable, "-c", code + raising],
        env={**world.env, "SERVICE_TOKEN": SECRET},
        capture_output=True,
        text=True,
        timeout=TEST_TIMEOUT,
    )
    assert "ValueError: a\\x1b]0;owned" in done.stderr
    assert_nothing_forged(done.stderr)
    assert SECRET not in done.stderr


def test_the_real_program_installs_these_hooks(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from kitbag.cli import main

    for module, name in ((sys, "excepthook"), (sys, "unraisablehook"), (threading, "excepthook")):
        monkeypatch.setattr(module, name, getattr(module, name))
    monkeypatch.setattr(sys, "argv", ["kitbag", "--version"])
    with pytest.raises(SystemExit):
        main()
    for hook in (sys.excepthook, sys.unraisablehook, threading.excepthook):
        assert hook.__module__ == "kitbag.cli.error_output"
    assert "kitbag" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments",
    [
        [f"--{HOSTILE}"],
        [HOSTILE],
        ["skills", HOSTILE],
        ["skills", "show", HOSTILE],
        ["agents", "show", HOSTILE],
        ["personas", "show", HOSTILE],
        ["servers", "test", HOSTILE],
        ["tasks", "show", HOSTILE],
        ["plugins", "enable", HOSTILE],
        ["config", "get", HOSTILE],
        ["config", "set", HOSTILE, HOSTILE],
        ["mcp", "--http", HOSTILE],
        ["mcp", "--cwd", HOSTILE],
        ["mcp", "--http", "0", "--host", HOSTILE],
        ["pack", HOSTILE],
        ["undo", HOSTILE],
        ["quarantine", "restore", HOSTILE],
        ["permissions", "check", HOSTILE],
        ["audit", HOSTILE],
    ],
    ids=lambda arguments: " ".join(arguments).replace(HOSTILE, "HOSTILE"),
)
def test_no_command_prints_its_arguments_raw(world: World, arguments: list[str]) -> None:
    done = world.run(*arguments)
    assert_inert(done.stdout + done.stderr)


def test_whatever_is_printed_is_escaped_and_our_own_styles_stay(capsys: pytest.CaptureFixture[str]) -> None:
    output.echo(f"\x1b[1mbold\x1b[0m {HOSTILE}\ttab")
    output.remark(f"\x1b[31mred\x1b[0m {HOSTILE}")
    shown = capsys.readouterr()
    for text, start in ((shown.out, "\x1b[1mbold\x1b[0m "), (shown.err, "\x1b[31mred\x1b[0m ")):
        assert text.startswith(start)
        assert_inert(text.removeprefix(start))


def test_what_a_program_gets_is_exact_and_json_stays_json(capsys: pytest.CaptureFixture[str]) -> None:
    output.exact(HOSTILE)
    assert capsys.readouterr().out == f"{HOSTILE}\n"
    output.as_json({"text": HOSTILE})
    text = capsys.readouterr().out
    assert json.loads(text) == {"text": HOSTILE}
    assert text.isascii()


def test_the_log_of_a_server_is_escaped(tmp_path: Path) -> None:
    from kitbag.tools.mcp_client.listing_cache import FOLDER, write_log
    from kitbag.tools.mcp_client.server_config import ServerConfig

    server = ServerConfig(name="x", source="s", scope="user", label="x")
    write_log(str(tmp_path), server, f"one\n{HOSTILE}\n")
    text = Path(tmp_path, FOLDER, "x.log").read_text()
    assert text.startswith("one\na\\x1b]0;owned")
    assert_inert(text)
    assert os.listdir(tmp_path / FOLDER) == ["x.log"]
