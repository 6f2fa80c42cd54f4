"""The door over HTTP: who is turned away before anything of a request is looked at (SECURITY D40-D42)."""

import asyncio
import contextlib
import json
import os
import stat
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from conftest import World
from kitbag.errors import InvalidError, UsageError
from kitbag.mcp_server.http import MAX_BODY_BYTES
from kitbag.mcp_server.response_format import MAX_PEEKED_BYTES
from kitbag.mcp_server.server_state import HttpOptions
from support.connected import Served, at_home, run, served, text
from support.matrix import long
from support.waiting import TEST_TIMEOUT

LOAD = {"name": "load_skill", "arguments": {"skill_name": "deploy"}}
INITIALIZE = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}

__all__ = ["at_home"]  # a fixture that every test here uses


def message(method: str, params: Any = None, number: int = 1) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params or {}}


async def raw(server: Served, request: str) -> str:
    """One request to the letter; the first line of the answer and its headers."""
    host, port = server.host.split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(request.replace("\n", "\r\n").encode())
    await writer.drain()
    answer = await reader.readuntil(b"\r\n\r\n")
    writer.close()
    return answer.decode()


@pytest.mark.parametrize("path", ["/mcp", "/", "/mcp/x", "/static/a.js"])
def test_D40_only_its_own_name_is_answered_to(world: World, path: str) -> None:
    async def work() -> None:
        async with served(world) as server:
            port = server.host.split(":")[1]
            wrong = ["evil.com", f"evil.com:{port}", f"127.0.0.1.evil.com:{port}", f"[::1]:{port}", "127.0.0.1"]
            wrong += ["127.0.0.1:1", f"127.0.0.1:{port}@evil.com", f"0.0.0.0:{port}", "", f"127.0.0.2:{port}"]
            for method in ("GET", "POST", "DELETE", "OPTIONS"):
                for host in wrong:
                    head = f"{method} {path} HTTP/1.1\nHost: {host}\nAuthorization: Bearer {server.token}\n\n"
                    assert " 421 " in (await raw(server, head)).split("\r\n")[0]
            for head in (f"GET {path} HTTP/1.0\n\n", f"GET {path} HTTP/1.1\n\n"):
                assert (await raw(server, head)).split()[1] in ("421", "400")
            twice = f"GET {path} HTTP/1.1\nHost: {server.host}\nHost: evil.com\n\n"
            assert (await raw(server, twice)).split()[1] in ("421", "400")

    run(work)


def test_D41_no_other_site_gets_in_and_nothing_changes(world: World) -> None:
    async def work() -> None:
        async with served(world) as server, server.http() as http:
            begin = message("initialize", INITIALIZE)
            for origin in (
                "null",
                "http://evil.com",
                f"http://{server.host}1",
                "http://localhost:1",
                f"https://{server.host}",
            ):
                for method in ("GET", "POST", "OPTIONS", "DELETE"):
                    answer = await http.request(method, server.url, json=begin, headers={"Origin": origin})
                    assert answer.status_code == 403
                    assert "access-control-allow-origin" not in answer.headers
            for site in ("cross-site", "same-site"):
                assert (await http.post(server.url, json=begin, headers={"Sec-Fetch-Site": site})).status_code == 403
            for kind in (
                "text/plain",
                "application/x-www-form-urlencoded",
                "multipart/form-data; boundary=x",
                "text/json",
            ):
                answer = await http.post(server.url, content=json.dumps(begin), headers={"Content-Type": kind})
                assert answer.status_code == 403
            assert not server.house.clients.all()
            for method in ("PUT", "PATCH", "OPTIONS", "HEAD"):
                assert (await http.request(method, server.url)).status_code == 405
            assert (await http.get(server.url + "?method=tools/call")).status_code in (400, 404, 406)
            same = await http.post(server.url, json=begin, headers={"Origin": f"http://{server.host}"})
            assert same.status_code == 200
            assert "access-control-allow-origin" not in same.headers

    run(work)


def test_D42_without_the_token_of_this_start_there_is_nothing(world: World) -> None:
    async def work() -> None:
        async with served(world) as server:
            old, file = server.token, server.token_file
            assert stat.S_IMODE(file.stat().st_mode) == 0o600
            assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
            assert file.is_relative_to(world.home / ".kitbag")
        assert not file.exists()
        async with served(world) as server:
            assert server.token != old
            for given in ("", f"Bearer {old}", f"Bearer {server.token}x", f"Basic {server.token}", server.token):
                async with server.http(Authorization=given) as http:
                    for path in ("/mcp", "/", f"/mcp?token={server.token}", f"/mcp?access_token={server.token}"):
                        url = server.url.removesuffix("/mcp") + path
                        for method in ("GET", "POST", "DELETE"):
                            answer = await http.request(method, url, json=message("initialize", INITIALIZE))
                            assert answer.status_code == 401, (given, path)
                            assert server.token not in answer.text

    run(work)


def test_D42_it_binds_to_this_machine_and_to_others_only_with_a_token_of_yours(world: World, tmp_path: Path) -> None:
    async def work() -> None:
        async with served(world) as server:
            assert server.host.startswith("127.0.0.1:")
        with pytest.raises(UsageError, match="other machines"):
            async with served(world, HttpOptions(port=0, host="0.0.0.0")):
                pass
        token = tmp_path / "token"
        token.write_text("t" * 40)
        token.chmod(0o644)
        with pytest.raises(UsageError, match="readable by other users"):
            async with served(world, HttpOptions(port=0, host="0.0.0.0", token_file=str(token))):
                pass
        token.chmod(0o600)
        token.write_text("short")
        with pytest.raises(UsageError, match="at least"):
            async with served(world, HttpOptions(port=0, token_file=str(token))):
                pass
        token.write_text("t" * 40)
        with pytest.raises(UsageError, match=r"no\.such\.host"):
            async with served(world, HttpOptions(port=0, host="no.such.host.invalid", token_file=str(token))):
                pass

    run(work)


def test_a_token_and_a_name_of_your_own_are_taken(world: World, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("t" * 40 + "\n")
    token.chmod(0o600)

    async def work() -> None:
        async with served(
            world, HttpOptions(port=0, host="127.0.0.1", names=("box.example",), token_file=str(token))
        ) as server:
            port = server.host.split(":")[1]
            for name, status in (("box.example", "404"), ("BOX.example", "404"), ("x.box.example", "421")):
                head = f"GET /x HTTP/1.1\nHost: {name}:{port}\nAuthorization: Bearer {'t' * 40}\n\n"
                assert (await raw(server, head)).split()[1] == status
        assert token.exists()

    run(work)


def test_a_port_that_is_taken_is_told(world: World) -> None:
    async def work() -> None:
        async with served(world) as server:
            with pytest.raises(InvalidError, match="cannot listen on"):
                async with served(world, HttpOptions(port=int(server.host.split(":")[1]))):
                    pass

    run(work)


def test_bodies_that_are_too_large_or_no_messages_are_refused_and_it_goes_on(world: World) -> None:
    async def work() -> None:
        async with served(world) as server, server.http() as http:
            huge = b'{"jsonrpc":"2.0","id":1,"method":"' + b"x" * MAX_BODY_BYTES + b'"}'
            assert (await http.post(server.url, content=huge)).status_code == 413

            async def pieces() -> AsyncIterator[bytes]:
                for _ in range(80):
                    yield b"x" * 65_536

            assert (await http.post(server.url, content=pieces())).status_code == 413
            for body in (b"", b"{", b"[]", b"null", b'{"jsonrpc":"1.0"}', b"[" * 100_000, b"\xff\xfe"):
                assert (await http.post(server.url, content=body)).status_code == 400, body[:20]
            async with server.client() as client:
                assert (await client.list_tools()).tools

    run(work)


def test_a_session_that_is_not_there_is_not_found_and_one_that_was_ended_neither(world: World) -> None:
    world.skill("~/.kitbag/skills", "deploy")

    async def work() -> None:
        async with served(world) as server, server.http() as http:
            for session in ("0" * 32, "x", "../../etc", "a" * 4_000):
                headers = {"mcp-session-id": session, "mcp-protocol-version": "2025-11-25"}
                answer = await http.post(server.url, json=message("tools/call", LOAD), headers=headers)
                assert answer.status_code in (400, 404)
            assert not server.house.clients.all()
            opened = await http.post(server.url, json=message("initialize", INITIALIZE))
            headers = {"mcp-session-id": opened.headers["mcp-session-id"], "mcp-protocol-version": "2025-11-25"}
            assert (
                await http.post(server.url, json=message("tools/call", LOAD, 2), headers=headers)
            ).status_code == 200
            assert len(server.house.clients.all()) == 1
            assert (await http.delete(server.url, headers=headers)).status_code == 200
            assert not server.house.clients.all()
            answer = await http.post(server.url, json=message("tools/call", LOAD, 3), headers=headers)
            assert answer.status_code == 404

    run(work)


@long
def test_many_clients_at_once_are_kept_apart(world: World) -> None:
    for number in range(8):
        world.skill("~/.kitbag/skills", f"s-{number}", body=f"BODY-{number}")

    async def one(server: Served, number: int) -> None:
        async with server.client("legacy") as client:
            assert f"BODY-{number}" in await text(client, "load_skill", skill_name=f"s-{number}")
            listed = await text(client, "list_loaded_skills")
            assert "1 loaded" in listed
            assert f"s-{number}:" in listed

    async def work() -> None:
        async with served(world) as server:
            await asyncio.gather(*(one(server, number) for number in range(8)))

    run(work)


def test_the_token_is_neither_printed_nor_in_the_arguments(world: World) -> None:
    import subprocess
    import sys

    command = [sys.executable, "-m", "kitbag", "mcp", "--http", "0"]
    with subprocess.Popen(
        command, cwd=world.workspace, env=world.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        assert process.stdout is not None
        line = process.stderr.readline()
        while "token is in" not in line:
            assert line
            line = process.stderr.readline()
        token = Path(line.split()[-1]).read_text()
        assert token not in line
        assert token not in Path(f"/proc/{process.pid}/cmdline").read_text()
        assert token not in Path(f"/proc/{process.pid}/environ").read_text()
        process.terminate()
        out, err = process.communicate(timeout=TEST_TIMEOUT)
        assert process.returncode == 143
        assert out == ""
        assert token not in err
        assert not os.path.exists(line.split()[-1])


def test_short_requests_are_answered_with_json_and_calls_that_may_take_long_with_a_stream(world: World) -> None:
    world.skill("~/.kitbag/skills", "deploy", body="Do it.")
    json_type, stream_type = "application/json", "text/event-stream"

    async def work() -> None:
        async with served(world) as server, server.http() as http:

            async def kind(body: dict[str, Any], **headers: str) -> str:
                answer = await http.post(server.url, json=body, headers=headers)
                assert answer.status_code == 200, answer.text
                assert "result" in answer.text
                nonlocal session
                session = answer.headers.get("mcp-session-id", session)
                return answer.headers["content-type"].partition(";")[0]

            session = ""
            assert await kind(message("initialize", INITIALIZE)) == json_type
            given = {"Mcp-Session-Id": session}
            await http.post(server.url, json={"jsonrpc": "2.0", "method": "notifications/initialized"}, headers=given)
            assert await kind(message("tools/list"), **given) == json_type
            assert await kind(message("tools/call", {"name": "list_loaded_skills"}), **given) == json_type
            assert await kind(message("tools/call", LOAD), **given) == stream_type
            # What looks like another method inside a call, and a call that is too large to look at.
            nested = {"name": "load_skill", "arguments": {"skill_name": "deploy", "reason": '"method":"tools/list"'}}
            assert await kind({**message("tools/call", nested), "extra": {"method": "ping"}}, **given) == stream_type
            large = {"name": "list_loaded_skills", "arguments": {}, "_meta": {"x": "y" * MAX_PEEKED_BYTES}}
            assert await kind(message("tools/call", large), **given) == stream_type

    run(work)


@long
def test_hundreds_of_open_connections_leave_room_for_requests(world: World) -> None:
    async def work() -> None:
        async with served(world) as server:
            host, port = server.host.split(":")
            with contextlib.ExitStack() as stack:
                for _ in range(600):
                    _, writer = await asyncio.open_connection(host, int(port))
                    stack.callback(writer.close)
                async with server.client() as client:
                    assert (await client.list_tools()).tools

    run(work)
