"""`!command`: the person runs something in their own shell without leaving the chat, and the model sees it with their
next message.

Used by chat.
"""

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from kitbag.chat.ui import Live, Running
from kitbag.runtime.agent import Agent
from kitbag.text.human_format import count, duration
from kitbag.views.blocks import Block, Said, Verbatim, words

if TYPE_CHECKING:
    from kitbag.runtime.user_commands import PersonCommand


async def run_own_command(
    agent: Agent, command: str, show: Callable[[Block], None], draw: Callable[[Live], None]
) -> None:
    from kitbag.runtime.user_commands import PersonCommand, keep_for_model

    show(Said(f"!{command}"))
    loop, since = asyncio.get_running_loop(), time.monotonic()

    def progress(line: str) -> None:
        draw(Live("running", since, running=(Running("!", command, line, since),)))

    own = PersonCommand(command, agent.ground.places.cwd)
    progress("")
    try:
        await own.run(lambda line: loop.call_soon_threadsafe(progress, line) and None)
    finally:
        draw(Live())
        is_seen = keep_for_model(agent, own)
        if own.text:
            show(Verbatim(own.text))
        show(words(_told(own, is_seen=is_seen), "dim"))


def _told(own: "PersonCommand", *, is_seen: bool) -> str:
    whole = "the model sees it with your next message"
    short = "the model is told only that you ran it: there is too much already"
    end = own.end[:1].lower() + own.end[1:]
    lines = count(own.lines, "line") if own.lines else "no output"
    return " · ".join(part for part in (end, lines, duration(own.seconds), whole if is_seen else short) if part)
