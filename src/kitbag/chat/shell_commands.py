"""Runs `!command` in the user's shell; the model sees the output with the next message.

Used by chat. Uses runtime/user_commands.
"""

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from kitbag.chat.ui import LiveState, RunningCall
from kitbag.runtime.agent import Agent
from kitbag.text.human_format import format_count, format_duration
from kitbag.views.blocks import Block, UserBlock, VerbatimBlock, text_block

if TYPE_CHECKING:
    from kitbag.runtime.user_commands import UserCommand


async def run_shell_command(
    agent: Agent, command: str, show: Callable[[Block], None], draw: Callable[[LiveState], None]
) -> None:
    """Raises WorkspaceMovedError."""
    from kitbag.runtime.user_commands import UserCommand, queue_for_model

    show(UserBlock(f"!{command}"))
    agent.environment.workspace.check_in_place()
    loop, started_at = asyncio.get_running_loop(), time.monotonic()

    def progress(line: str) -> None:
        draw(
            LiveState(
                activity="running",
                started_at=started_at,
                running=(RunningCall(name="!", title=command, progress=line, started_at=started_at),),
            )
        )

    user_command = UserCommand(command, agent.environment.places.cwd)
    progress("")
    try:
        await user_command.run(lambda line: loop.call_soon_threadsafe(progress, line) and None)
    finally:
        draw(LiveState())
        is_seen = queue_for_model(agent, user_command)
        if user_command.text:
            show(VerbatimBlock(user_command.text))
        show(text_block(_describe_result(user_command, is_seen=is_seen), "dim"))


def _describe_result(user_command: "UserCommand", *, is_seen: bool) -> str:
    sent_note = "the model sees this with your next message"
    omitted_note = "too much pending output: the model sees only that you ran it"
    end = user_command.outcome[:1].lower() + user_command.outcome[1:]
    lines = format_count(user_command.lines, "line") if user_command.lines else "no output"
    return " · ".join(
        part
        for part in (end, lines, format_duration(user_command.seconds), sent_note if is_seen else omitted_note)
        if part
    )
