"""`/init`: asks the model to write AGENTS.md, the memory file of a project."""

import os

from kitbag.chat.commands import CommandContext
from kitbag.errors import InvalidError


async def init_command(chat: CommandContext, arguments: str) -> None:
    """`arguments`: what else the file should cover."""
    if chat.agent.chosen.provider == "offline":
        raise InvalidError("/init needs a model; `offline` can't write AGENTS.md", "connect one with /model")
    with open(os.path.join(os.path.dirname(__file__), "init.md"), encoding="utf-8") as file:
        prompt = file.read().strip()
    chat.submit(f"{prompt}\n\n{arguments.strip()}".strip())
