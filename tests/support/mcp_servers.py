"""Servers for tests: descriptions of `plain_server.py`, connections to it, and a server of the SDK behind HTTP."""

import asyncio
import contextlib
import json
import os
import sys
import threading
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from kitbag.tools.mcp_client.connection import ServerConnection, TransportSetup
from kitbag.tools.mcp_client.server_config import ServerConfig, parse_server
from kitbag.tools.mcp_client.server_listing import ServerListing
from kitbag.tools.mcp_client.servers import create_transport
from support.waiting import TEST_TIMEOUT

PROGRAM = str(Path(__file__).with_name("plain_server.py"))


def described(**behaviour: Any) -> dict[str, Any]:
    """As it stands in a file."""
    return {"command": sys.executable, "args": ["-S", "-E", PROGRAM, json.dumps(behaviour)]}


def server_of(definition: dict[str, Any], name: str = "plain", directory: str = "/tmp") -> ServerConfig:
    server, wrong = parse_server(name, definition, "settings.toml", "user", directory)
    assert not wrong
    return server


class Talk:
    """A connection, and what was heard of it."""

    def __init__(self, server: ServerConfig) -> None:
        self.listings: list[ServerListing] = []
        self.said: list[str] = []
        self.opened = 0
        self.connection = ServerConnection(server, self._opens, self.listings.append, self.said.append)

    async def _opens(self, ended: Callable[[str], None]) -> TransportSetup:
        self.opened += 1
        return create_transport(self.connection.server, ended)

    async def call(
        self, tool: str, text: str = "", seconds: float = TEST_TIMEOUT, progress: Any = lambda _: None
    ) -> str:
        result = await self.connection.call(tool, {"text": text}, seconds, progress)
        return result.content[0].text

    def names(self) -> list[str]:
        return [tool.name for tool in self.listings[-1].tools]


@asynccontextmanager
async def talking(definition: dict[str, Any]) -> AsyncGenerator[Talk, None]:
    """Nothing of it is left afterwards."""
    talk = Talk(server_of(definition))
    async with asyncio.timeout(TEST_TIMEOUT):
        try:
            yield talk
        finally:
            await talk.connection.close()
    others = asyncio.all_tasks() - {asyncio.current_task()}
    assert not others, f"left behind: {others}"


def is_alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:
        return False


def started(notes: Path) -> list[int]:
    """The processes of a plain server that wrote these notes."""
    text = notes.read_text() if notes.exists() else ""
    return [int(line.split()[1]) for line in text.splitlines() if line.startswith("started ")]


@contextlib.contextmanager
def behind_http(make: Callable[[], Any], port: int = 0, **options: Any) -> Generator[str, None, None]:
    """The address of an MCPServer of the SDK."""
    return (yield from _listening(make().streamable_http_app(**options), port))


def _listening(app: Any, port: int) -> Generator[str, None, None]:
    import socket

    import uvicorn

    listener = socket.create_server(("127.0.0.1", port))
    server = uvicorn.Server(uvicorn.Config(app, log_level="error", timeout_graceful_shutdown=1))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/mcp"
    finally:
        server.should_exit = True
        thread.join(TEST_TIMEOUT)
        listener.close()


@contextlib.contextmanager
def app_behind_http(app: Any) -> Generator[str, None, None]:
    return (yield from _listening(app, 0))


def environment_without(*names: str) -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in names}
