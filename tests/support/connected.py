"""A real server and real clients: over HTTP in this process, over stdio in one of its own."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

from conftest import World
from kitbag.assembly.run_options import Options
from kitbag.mcp_server.http import serve_http
from kitbag.mcp_server.server_state import HttpOptions, ServerState
from support.boards import all_tasks
from support.waiting import TEST_TIMEOUT, until_true


@pytest.fixture(autouse=True)
def at_home(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test has its own home; nothing of the machine's models is seen. Imported by each module that needs it."""
    for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "KITBAG_MODEL", "OLLAMA_HOST"):
        monkeypatch.delenv(name, raising=False)
        world.env.pop(name, None)
    monkeypatch.setenv("HOME", str(world.home))
    monkeypatch.setenv("KITBAG_HOME", str(world.home / ".kitbag"))


def run(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def within() -> None:
        async with asyncio.timeout(TEST_TIMEOUT):
            await work()

    asyncio.run(within())


class Served:
    def __init__(self, house: ServerState, url: str, token_file: Path) -> None:
        self.house = house
        self.url = url
        self.token_file = token_file
        self.token = token_file.read_text()
        self.host = url.split("/")[2]

    @contextlib.asynccontextmanager
    async def client(self, mode: str = "auto", **options: Any) -> AsyncIterator[Client]:
        given = {"Authorization": f"Bearer {self.token}"}
        async with (
            httpx2.AsyncClient(headers=given, timeout=TEST_TIMEOUT) as http,
            Client(streamable_http_client(self.url, http_client=http), mode=mode, **options) as client,
        ):
            yield client

    @contextlib.asynccontextmanager
    async def http(self, **headers: str) -> AsyncIterator[httpx2.AsyncClient]:
        given = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json", **headers}
        given["Accept"] = "application/json, text/event-stream"
        async with httpx2.AsyncClient(headers={k: v for k, v in given.items() if v}, timeout=TEST_TIMEOUT) as client:
            yield client


@contextlib.asynccontextmanager
async def served(world: World, listening: HttpOptions | None = None, **options: Any) -> AsyncIterator[Served]:
    said: asyncio.Queue[str] = asyncio.Queue()
    house = ServerState(Options(directory=str(world.workspace), **options))
    running = asyncio.create_task(serve_http(house, listening or HttpOptions(port=0), said.put_nowait))
    try:
        telling = asyncio.create_task(said.get())
        await asyncio.wait([telling, running], return_when="FIRST_COMPLETED")
        if running.done():
            telling.cancel()
            running.result()
        words = telling.result().split()
        yield Served(house, words[1].rstrip(";"), Path(words[-1]))
    finally:
        running.cancel()
        await asyncio.wait([running])


@contextlib.asynccontextmanager
async def over_stdio(world: World, *arguments: str, mode: str = "auto", **options: Any) -> AsyncIterator[Client]:
    command = world.command("mcp", *arguments)
    given = StdioServerParameters(command=command[0], args=command[1:], env=world.env, cwd=str(world.workspace))
    async with Client(given, mode=mode, **options) as client:
        yield client


async def text(client: Client, tool: str, **arguments: Any) -> str:
    """What a call says; `ERROR ` before what is an error."""
    result = await client.call_tool(tool, arguments)
    said = "\n".join(part.text for part in result.content if part.type == "text")
    return f"ERROR {said}" if result.is_error else said


def scripted(world: World, *replies: Any) -> str:
    steps = [{"text": one} if isinstance(one, str) else one for one in replies]
    path = world.write("script.json", json.dumps({"rules": [{"replies": steps}]}), world.outside)
    return f"scripted:{path}"


async def until(world: World, status: str) -> None:
    await until_true(lambda: any(task.status == status for task in all_tasks(world)))
