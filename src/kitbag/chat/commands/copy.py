"""`/copy`: copies the last reply to the clipboard."""

import asyncio

from kitbag.chat.clipboard import write_clipboard
from kitbag.chat.commands import CommandContext
from kitbag.errors import NotFoundError
from kitbag.text.human_format import format_count
from kitbag.views.blocks import text_block


async def copy_command(chat: CommandContext, arguments: str) -> None:
    del arguments
    replies = [message.text for message in chat.agent.session.messages() if message.role == "assistant"]
    text = next((reply for reply in reversed(replies) if reply.strip()), "")
    if not text:
        raise NotFoundError("there is no reply to copy yet")
    text = chat.ui.redact(text)
    if not await asyncio.to_thread(write_clipboard, text) and not chat.ui.copy(text):
        raise NotFoundError("no clipboard found", "install wl-copy, xclip or pbcopy")
    chat.show(text_block(f"copied {format_count(len(text), 'character')} to the clipboard", "dim"))
