"""Folds and unfolds thinking and tool results.

Used by terminal_ui for Ctrl-O.
"""

from collections.abc import Sequence

import msgspec

from kitbag.views.blocks import Block, ThinkingBlock, ToolBlock


def unfold_blocks(blocks: Sequence[Block], expanded: Sequence[Block]) -> list[Block]:
    """`expanded`: tool results with more content than was shown."""
    by_call = {_call_key(block): block for block in expanded if isinstance(block, ToolBlock)}
    unfolded: list[Block] = []
    for block in blocks:
        if isinstance(block, ToolBlock):
            block = msgspec.structs.replace(by_call.get(_call_key(block), block), is_open=True)
        elif isinstance(block, ThinkingBlock):
            block = msgspec.structs.replace(block, is_open=True)
        unfolded.append(block)
    return unfolded


def fold_block(block: Block) -> Block:
    return msgspec.structs.replace(block, is_open=False) if isinstance(block, ThinkingBlock | ToolBlock) else block


def _call_key(block: ToolBlock) -> tuple[str, str, str, float]:
    return block.name, block.title, block.summary, block.seconds
