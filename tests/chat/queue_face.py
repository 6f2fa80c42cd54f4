"""A face that does what is put into a queue, in the moment it is put there: for what happens at the same time."""

import asyncio
import functools
from collections.abc import Callable
from typing import Any

from chat.answering import text_of
from kitbag.chat.ui import ChatStatus, LiveState, Submitted, UserAction
from kitbag.views.blocks import UserBlock
from support.talking_face import TalkingFace
from support.waiting import until_true


class QueueFace(TalkingFace):
    """Does what is put into `deeds`, at once."""

    def __init__(self, *answers: Any, plain: bool = True) -> None:
        super().__init__(*answers, plain=plain)
        self.deeds: asyncio.Queue[UserAction] = asyncio.Queue()
        self.inserted: list[str] = []
        self.live = LiveState()

    def do(self, *deeds: UserAction | str) -> None:
        for deed in deeds:
            self.deeds.put_nowait(Submitted(text=deed) if isinstance(deed, str) else deed)

    async def next(self) -> UserAction:
        return await self.deeds.get()

    def insert(self, *submissions: Submitted) -> None:
        self.inserted.append("\n".join(one.display_text for one in submissions))

    def draw(self, live: LiveState, status: ChatStatus) -> None:
        self.live = live

    def said(self) -> list[str]:
        return [block.text for block in self.blocks if isinstance(block, UserBlock)]

    def seen(self) -> str:
        """Without the beginning, which names the directory of the test."""
        return "\n".join(text_of(block) for block in self.blocks[1:])

    async def until(self, condition: Callable[[], object]) -> None:
        await until_true(condition, self.seen)


def in_a_loop(test: Callable[..., Any]) -> Callable[..., None]:
    @functools.wraps(test)
    def run(*arguments: Any, **named: Any) -> None:
        asyncio.run(test(*arguments, **named))

    return run
