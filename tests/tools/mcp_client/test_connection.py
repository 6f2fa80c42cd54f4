"""A server, connected and used: well-behaved ones of the SDK over both transports, and others that misbehave."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from kitbag.tools.mcp_client.connection import ServerError
from support.mcp_servers import app_behind_http, behind_http, described, is_alive, started, talking
from support.waiting import until_true

SDK_PROGRAM = """
from mcp.server import MCPServer
server = MCPServer("made with the SDK")

@server.tool()
def add(a: int, b: int) -> int:
    "Adds two numbers."
    return a + b

@server.prompt()
def greet(who: str) -> str:
    "Greets."
    return f"Greet {who}."

server.run("stdio")
"""


def test_a_program_made_with_the_sdk_is_listed_called_and_ended(tmp_path: Path) -> None:
    import sys

    async def go() -> None:
        (tmp_path / "server.py").write_text(SDK_PROGRAM)
        async with talking({"command": sys.executable, "args": [str(tmp_path / "server.py")]}) as talk:
            await talk.connection.open()
            assert talk.names() == ["add"]
            listed = talk.listings[0].tools[0]
            assert listed.description == "Adds two numbers."
            assert listed.arguments["required"] == ["a", "b"]
            assert talk.listings[0].prompts[0].needed == ("who",)
            found = await talk.connection.call("add", {"a": 2, "b": 3}, 30, lambda _: None)
            assert (found.content[0].text, found.is_error) == ("5", False)
            wrong = await talk.connection.call("add", {"a": "x"}, 30, lambda _: None)
            assert wrong.is_error
            said = await talk.connection.get_prompt("greet", {"who": "Ann"}, 30)
            assert said.messages[0].content.text == "Greet Ann."

    asyncio.run(go())


def echo_server() -> Any:
    from mcp.server import MCPServer

    server = MCPServer("over HTTP")

    @server.tool()
    def echo(text: str) -> str:
        "Says it again."
        return f"heard {text}"

    return server


class TestHttp:
    @pytest.mark.parametrize("options", [{}, {"json_response": True}, {"stateless_http": True}])
    def test_it_is_listed_and_called(self, options: dict[str, Any]) -> None:
        async def go(url: str) -> None:
            async with talking({"url": url}) as talk:
                assert await talk.call("echo", "hi") == "heard hi"
                assert talk.names() == ["echo"]

        with behind_http(echo_server, **options) as url:
            asyncio.run(go(url))

    def test_one_that_was_started_anew_is_connected_to_again_and_the_call_is_made(self) -> None:
        server = behind_http(echo_server)
        url = server.__enter__()
        port = int(url.split(":")[2].split("/")[0])

        async def again() -> None:
            async with talking({"url": url}) as talk:
                assert await talk.call("echo", "one") == "heard one"
                await asyncio.to_thread(server.__exit__, None, None, None)
                with behind_http(echo_server, port):
                    assert await talk.call("echo", "two") == "heard two"

        asyncio.run(again())

    def test_one_that_is_not_there_is_told(self) -> None:
        async def go() -> None:
            async with talking({"url": "http://127.0.0.1:9/mcp"}) as talk:
                with pytest.raises(ServerError) as error:
                    await talk.call("echo")
                assert error.value.kind == "connect"
                assert "kitbag servers test plain" in error.value.fix

        asyncio.run(go())

    def test_headers_are_sent_and_a_refusal_is_told_as_one(self) -> None:
        from starlette.applications import Starlette
        from starlette.requests import Request
        from starlette.responses import Response
        from starlette.routing import Route

        seen: list[str] = []

        async def refuse(request: Request) -> Response:
            seen.append(request.headers.get("authorization", ""))
            return Response("go away", 401)

        async def go(url: str) -> None:
            async with talking({"url": url, "headers": {"Authorization": "Bearer abc"}}) as talk:
                with pytest.raises(ServerError, match="401: authentication required"):
                    await talk.connection.open()

        with app_behind_http(Starlette(routes=[Route("/mcp", refuse, methods=["POST", "GET"])])) as url:
            asyncio.run(go(url))
        assert set(seen) == {"Bearer abc"}

    @pytest.mark.parametrize("packed", [False, True])
    def test_an_answer_without_end_is_not_read(self, packed: bool) -> None:
        import gzip

        from starlette.applications import Starlette
        from starlette.requests import Request
        from starlette.responses import Response, StreamingResponse
        from starlette.routing import Route

        async def answer(request: Request) -> Response:
            asked = await request.json()
            if "id" not in asked:
                return Response(status_code=202)
            if asked["method"] == "initialize":
                result = {
                    "protocolVersion": "2025-06-18",
                    "serverInfo": {"name": "x", "version": "1"},
                    "capabilities": {"tools": {}},
                }
                return Response(
                    json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), media_type="application/json"
                )
            if asked["method"] != "tools/list":
                return Response(status_code=404)
            if packed:
                body = gzip.compress(b" " * 1_000_000)
                return Response(body, media_type="application/json", headers={"content-encoding": "gzip"})

            async def body() -> Any:
                for _ in range(40):
                    yield b" " * (1 << 20)

            return StreamingResponse(body(), media_type="application/json")

        async def go(url: str) -> None:
            async with talking({"url": url}) as talk:
                with pytest.raises(ServerError, match="compressed" if packed else "larger than 16,777,216 bytes"):
                    await talk.connection.open()

        with app_behind_http(Starlette(routes=[Route("/mcp", answer, methods=["POST", "GET", "DELETE"])])) as url:
            asyncio.run(go(url))


class TestCalls:
    def test_it_connects_with_the_first_call_and_once(self) -> None:
        async def go() -> None:
            async with talking(described()) as talk:
                assert talk.opened == 0
                assert await talk.call("echo", "a") == "echo heard a"
                assert await talk.call("echo", "b") == "echo heard b"
                assert talk.opened == 1

        asyncio.run(go())

    def test_calls_at_once_share_one_connection(self) -> None:
        async def go() -> None:
            async with talking(described()) as talk:
                found = await asyncio.gather(*(talk.call("echo", str(at)) for at in range(20)))
                assert found == [f"echo heard {at}" for at in range(20)]
                assert talk.opened == 1

        asyncio.run(go())

    def test_progress_is_passed_on_and_prolongs_the_time(self) -> None:
        async def go() -> None:
            heard: list[str] = []
            async with talking(described(tools=["progress"])) as talk:
                assert await talk.call("progress", progress=heard.append) == "done"
                await until_true(lambda: len(heard) == 3)
            assert heard == ["0 of 3: step 0", "1 of 3: step 1", "2 of 3: step 2"]

        asyncio.run(go())

    def test_one_that_never_answers_is_given_up_and_told_so(self, tmp_path: Path) -> None:
        async def go() -> None:
            async with talking(described(tools=["hang"], notes=str(tmp_path / "notes"))) as talk:
                with pytest.raises(ServerError) as error:
                    await talk.call("hang", seconds=0.2)
                assert error.value.kind == "time"
                assert "0.2 s" in error.value.problem
                await until_true(lambda: "cancelled" in (tmp_path / "notes").read_text())
                assert await talk.call("other") == "other heard "

        asyncio.run(go())

    def test_one_that_is_cancelled_is_told_to_the_server(self, tmp_path: Path) -> None:
        notes = tmp_path / "notes"

        async def go() -> None:
            async with talking(described(tools=["hang"], notes=str(notes))) as talk:
                call = asyncio.create_task(talk.call("hang"))
                await until_true(lambda: notes.exists() and "call hang" in notes.read_text())
                call.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await call
                await until_true(lambda: "cancelled" in notes.read_text())

        asyncio.run(go())

    def test_a_refusal_is_passed_on_with_nothing_hidden(self) -> None:
        async def go() -> None:
            async with talking(described(tools=["refuses"])) as talk:
                with pytest.raises(ServerError) as error:
                    await talk.call("refuses")
                assert error.value.kind == "refused"
                assert "[U+001B]" in error.value.problem

        asyncio.run(go())

    def test_nonsense_is_an_error_and_the_server_stays(self) -> None:
        async def go() -> None:
            async with talking(described()) as talk:
                with pytest.raises(ServerError, match="invalid response"):
                    await talk.call("nonsense")
                assert await talk.call("echo", "still here") == "echo heard still here"

        asyncio.run(go())


class TestBrokenConnections:
    def test_a_call_in_which_the_program_crashed_is_not_made_again(self, tmp_path: Path) -> None:
        notes = tmp_path / "notes"

        async def go() -> None:
            async with talking(described(notes=str(notes))) as talk:
                with pytest.raises(ServerError) as error:
                    await talk.call("crash")
                assert error.value.kind == "broken"
                assert "status 3" in error.value.problem
                assert "may have taken effect" in error.value.fix
                assert await talk.call("echo", "again") == "echo heard again"
                assert talk.opened == 2
            assert notes.read_text().count("call crash") == 1

        asyncio.run(go())

    def test_one_that_ended_between_two_calls_is_started_again(self, tmp_path: Path) -> None:
        import os
        import signal

        notes = tmp_path / "notes"

        async def go() -> None:
            async with talking(described(notes=str(notes))) as talk:
                await talk.call("echo")
                os.kill(started(notes)[0], signal.SIGKILL)
                await until_true(lambda: not talk.connection.is_open)
                assert await talk.call("echo", "b") == "echo heard b"

        asyncio.run(go())

    @pytest.mark.parametrize(("tool", "why"), [("flood", "unsolicited"), ("garbage", "overlong")])
    def test_one_that_floods_is_ended(self, tool: str, why: str, tmp_path: Path) -> None:
        notes = tmp_path / "notes"

        async def go() -> None:
            async with talking(described(notes=str(notes))) as talk:
                with pytest.raises(ServerError, match=why):
                    await talk.call(tool)
                await until_true(lambda: not is_alive(started(notes)[0]))

        asyncio.run(go())

    def test_an_answer_of_fifty_megabytes_fails_alone(self) -> None:
        async def go() -> None:
            async with talking(described()) as talk:
                with pytest.raises(ServerError, match="too large"):
                    await talk.call("huge")
                assert await talk.call("echo", "fine") == "echo heard fine"
                assert talk.opened == 1

        asyncio.run(go())


class TestPrograms:
    def test_one_that_can_t_be_started_says_why(self) -> None:
        async def go(definition: dict[str, Any], why: str) -> None:
            async with talking(definition) as talk:
                with pytest.raises(ServerError, match=why) as error:
                    await talk.connection.open()
                assert error.value.kind == "connect"

        asyncio.run(go({"command": "/no/such/program"}, "No such file"))
        asyncio.run(
            go(
                described(quits=4, says="Traceback\nModuleNotFoundError: no\x1b[2J thing\n"),
                "status 4.*no.U.001B..2J thing",
            )
        )

    def test_nothing_of_it_stays_not_even_what_left_its_group(self, tmp_path: Path) -> None:
        notes = tmp_path / "notes"

        async def go() -> int:
            async with talking(described(notes=str(notes), stays=True)) as talk:
                child = int(await talk.call("leaves"))
                assert is_alive(child)
            return child

        child = asyncio.run(go())
        assert not is_alive(child)
        assert not is_alive(started(notes)[0])

    def test_what_it_prints_on_its_error_output_is_kept_bounded(self) -> None:
        async def go() -> list[str]:
            async with talking(described(chatters=500_000, says="the end")) as talk:
                await talk.call("echo")
            return talk.said

        (said,) = asyncio.run(go())
        assert said.endswith("the end")
        assert len(said) <= 1 << 16

    def test_leaving_while_it_connects_leaves_nothing(self, tmp_path: Path) -> None:
        notes = tmp_path / "notes"

        async def go() -> None:
            async with talking(described(silent=True, notes=str(notes))) as talk:
                opening = asyncio.create_task(talk.connection.open())
                await until_true(lambda: started(notes))
                opening.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await opening

        asyncio.run(go())
        assert not is_alive(started(notes)[0])


def test_it_is_asked_again_when_its_tools_change() -> None:
    async def go() -> None:
        async with talking(described(tools=["changes"])) as talk:
            await talk.call("changes")
            await until_true(lambda: len(talk.listings) == 2)
            assert talk.names() == ["changes", "newcomer"]

    asyncio.run(go())
