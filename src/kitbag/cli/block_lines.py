"""Blocks as plain lines, complete and without redaction: the user is asked to approve them.

Used by terminal_dialog and `kitbag permissions pending`. Text of others is behind a gutter, so that it can't imitate
Kitbag's.
"""

from collections.abc import Iterable

from kitbag.permissions.approvals.question_view import GUTTER
from kitbag.text.hidden_characters import escape_for_terminal
from kitbag.views.blocks import Block, DiffBlock, LinesBlock, NoticeBlock, VerbatimBlock

_WIDTH = 80


def block_lines(blocks: Iterable[Block]) -> list[str]:
    return [line for block in blocks for line in _block_lines(block)]


def _block_lines(block: Block) -> list[str]:
    match block:
        case LinesBlock():
            return [escape_for_terminal("".join(span.text for span in line)) for line in block.lines]
        case VerbatimBlock():
            title = [f"{escape_for_terminal(block.title)}:"] if block.title else []
            return [*title, *quote_lines(block.text)]
        case NoticeBlock():
            return [escape_for_terminal(block.text)]
        case _:
            from kitbag.views.rendering.render import render

            gutter = GUTTER if isinstance(block, DiffBlock) else ""
            lines = render(block, _WIDTH - len(gutter), color=False, hide=str).splitlines()
            return [gutter + line for line in lines]


def quote_lines(text: str) -> list[str]:
    # With a line break at the end, so that an empty last line counts.
    return [GUTTER + escape_for_terminal(line).replace("\t", " ") for line in f"{text}\n".splitlines()]
