"""The offline model asked in a real workspace: real tools, real permissions, real files."""

import asyncio
from typing import Any

import pytest

from conftest import World
from kitbag.assembly.run_options import Options
from kitbag.events import Event, RunEnded, ToolStarted
from kitbag.runtime.agent import Agent
from support.waiting import TEST_TIMEOUT


class Desk:
    """Where requests are put, one session each unless they are put together."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.events: list[Event] = []

    def ask(self, *requests: str, mode: str = "acceptEdits", **options: Any) -> str:
        """The last answer."""
        return asyncio.run(self._ask(requests, Options(directory=str(self.world.workspace), mode=mode, **options)))

    async def _ask(self, requests: tuple[str, ...], options: Options) -> str:
        self.events = []
        ended: RunEnded | None = None
        async with asyncio.timeout(TEST_TIMEOUT), Agent("offline", options=options) as agent:
            for request in requests:
                async with agent.run(request) as run:
                    self.events += [event async for event in run]
                ended = run.ended
        assert ended is not None
        assert ended.status == "completed", ended.error
        return ended.text

    @property
    def calls(self) -> list[str]:
        return [event.name for event in self.events if isinstance(event, ToolStarted)]

    def write(self, path: str, text: str | bytes) -> None:
        self.world.write(path, text)

    def text(self, path: str) -> str:
        return (self.world.workspace / path).read_bytes().decode()


def desk_in(world: World, monkeypatch: pytest.MonkeyPatch) -> Desk:
    for name in ("KITBAG_HOME", "KITBAG_MODEL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(world.home))
    return Desk(world)
