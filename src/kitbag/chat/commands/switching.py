"""Changes the state of a skill or an agent and describes the effect. Used by `/skills` and `/agents`."""

import asyncio
from typing import Final

from kitbag.agent.shield import run_ignoring_cancellation
from kitbag.chat.commands import CommandContext
from kitbag.library.item_states import ItemGroup, set_item_state
from kitbag.settings import ItemState
from kitbag.views.blocks import Block, NoticeBlock, text_block
from kitbag.views.item_states import describe_override, describe_state

CATALOG_NOTICE: Final = "the catalog in the prompt updates on /reload, on compaction and on a persona switch"
_OPEN: Final = frozenset(("on", "name-only"))


async def switch_item(
    chat: CommandContext, group: ItemGroup, name: str, new_state: str, before: ItemState
) -> list[Block]:
    """Writes the user's settings. Raises NotFoundError, AmbiguousError, UsageError and InvalidError."""
    library = chat.agent.environment.library

    def write() -> list[Block]:
        switched = set_item_state(library, group, name, new_state)
        # Takes effect now; the next message tells the model.
        library.rescan()
        blocks: list[Block] = [text_block(describe_state(switched))]
        if override := describe_override(switched):
            blocks.append(NoticeBlock("warning", override))
        blocks.append(
            text_block(_describe_switch(before, switched.effective, "load" if group == "skills" else "start"), "dim")
        )
        return blocks

    return await run_ignoring_cancellation(asyncio.to_thread(write))


def _describe_switch(before: ItemState, now: ItemState, verb: str) -> str:
    if before == now:
        return "no change"
    if (before in _OPEN) == (now in _OPEN):
        return CATALOG_NOTICE if now in _OPEN else "the model still can't use it"
    can = f"can now {verb} it" if now in _OPEN else f"can no longer {verb} it"
    return f"the model {can} and is notified with your next message; {CATALOG_NOTICE}"
