"""A chat that runs on while a test types into it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from chat.queue_face import QueueFace
from conftest import World
from kitbag.chat.ui import ExitRequested
from support.talking_face import Talk, talking
from support.waiting import TEST_TIMEOUT


class Conversing:
    def __init__(self, talk: Talk, face: QueueFace) -> None:
        self.talk, self.face, self.chat = talk, face, talk.chat
        self.ending = asyncio.ensure_future(self.chat.run())

    async def left(self, deed: ExitRequested | None = None) -> int:
        self.face.do(deed or ExitRequested())
        return await asyncio.wait_for(self.ending, TEST_TIMEOUT)

    async def until_idle(self) -> None:
        await self.face.until(lambda: not self.chat._is_busy() and self.chat._events.empty())


@asynccontextmanager
async def conversing(
    world: World, *steps: Any, face: QueueFace | None = None, **more: Any
) -> AsyncIterator[Conversing]:
    played = face or QueueFace()
    async with talking(world, *steps, face=played, **more) as talk:
        here = Conversing(talk, played)
        try:
            yield here
        finally:
            if not here.ending.done():
                await here.left()
