"""`/memory`: lists the memory files that the model gets, and where to write one."""

import os

from kitbag.chat.commands import CommandContext
from kitbag.chat.commands.env import env_sections
from kitbag.text.human_format import format_count, shorten_path
from kitbag.views.blocks import NoticeBlock, TableBlock, text_block


async def memory_command(chat: CommandContext, arguments: str) -> None:
    del arguments
    environment = chat.agent.environment
    sections = [section for section in env_sections(chat.agent)[0] if section.kind == "memory"]
    if sections:
        rows = tuple((shorten_path(one.source), one.scope, f"{one.tokens:,}", one.note) for one in sections)
        total = format_count(sum(section.tokens for section in sections), "token")
        headers = ("FILE", "SCOPE", "TOKENS", "OMITTED")
        columns = 4 if any(row[3] for row in rows) else 3
        cut = tuple(row[:columns] for row in rows)
        chat.show(TableBlock(headers=headers[:columns], rows=cut, title=f"Memory: {total}"))
        chat.show(text_block("show the text with /env memory; after editing a file, type /reload", "dim"))
    else:
        chat.show(text_block("no memory files"))
    places = environment.places
    own, project = (shorten_path(os.path.join(place, "AGENTS.md")) for place in (places.kitbag_home, places.project))
    chat.show(text_block(f"for all projects: {own}\nfor this project: {project} (/init writes it)", "dim"))
    if not environment.trust.can_load_items:
        problem = "this workspace is not trusted, so its memory files are not read"
        chat.show(NoticeBlock("warning", problem, "run `kitbag trust`"))
