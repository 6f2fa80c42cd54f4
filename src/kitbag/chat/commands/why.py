"""`/why`: explains which skills the last message got and why, or why one was not suggested."""

import asyncio

from kitbag.agent.session_routing import read_routing
from kitbag.chat.commands import CommandContext
from kitbag.library.routing.skill_search import get_search_index
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
        if not found.skills:
            blocks.append(text_block("no skill matches"))
        if not get_search_index(library).is_filled:
            blocks.append(text_block("not all skills are indexed yet, so the ranking may change", "dim"))
        return blocks

    chat.show(*await asyncio.to_thread(explain))
