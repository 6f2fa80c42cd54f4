"""`/why`: explains which skills the last message got and why, or why one was not suggested."""

import asyncio

from kitbag.agent.session_routing import read_routing
from kitbag.chat.commands import CommandContext
from kitbag.packing.catalog import shorten
from kitbag.packing.routing_explanation import explain_routing
from kitbag.text.hidden_characters import collapse_whitespace
from kitbag.views.blocks import Block, FieldsBlock, text_block
from kitbag.views.routing import explanation_fields

_MAX_SKILLS = 3


async def why_command(chat: CommandContext, arguments: str) -> None:
    session, library = chat.agent.session, chat.agent.environment.library
    names = (name,) if (name := arguments.strip().removeprefix("/")) else ()

    def explain() -> list[Block]:
        message, state, number = read_routing(session.journal, session.id)
        found = explain_routing(library, message, state, most=_MAX_SKILLS, names=names)
        about = shorten(collapse_whitespace(message), 120)
        blocks: list[Block] = [text_block(f"message {number}: {about}", "dim")]
        blocks += [FieldsBlock(tuple(explanation_fields(one)), one.name) for one in found.skills]
        return blocks if found.skills else [*blocks, text_block("no skill matches")]

    chat.show(*await asyncio.to_thread(explain))
