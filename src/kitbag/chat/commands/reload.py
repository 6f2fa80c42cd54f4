"""`/reload`: reads skills, agents, settings and memory again, and shows what changed."""

from kitbag.chat.commands import CommandContext
from kitbag.views.blocks import Block, notice_block, text_block


async def reload_command(chat: CommandContext, arguments: str) -> None:
    reloaded = await chat.agent.reload()
    # The text for the model, without the tags around it.
    changes = [line for line in reloaded.changes.split("\n") if line.strip("</>") != "library-changes" and line]
    blocks: list[Block] = [text_block("\n".join(changes))] if changes else []
    if reloaded.dropped:
        blocks.append(text_block(f"unloaded: {', '.join(reloaded.dropped)}", "warning"))
    if reloaded.tokens_before != reloaded.tokens_after:
        blocks.append(text_block(f"prompt: {reloaded.tokens_before:,} → {reloaded.tokens_after:,} tokens", "dim"))
    if not blocks:
        blocks.append(text_block("reloaded; no changes", "dim"))
    chat.show(*blocks, *(notice_block(notice) for notice in reloaded.notices))
    chat.refresh()
