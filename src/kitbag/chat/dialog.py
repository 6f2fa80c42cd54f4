"""The Dialog of the chat: asks forms through its UI.

Used by start for the agent's approvals and questions, and by commands/tasks for those of background tasks.
"""

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import msgspec

from kitbag.chat.ui import ChatUI
from kitbag.dialogs.form import Form, FormSequence, next_step
from kitbag.views.blocks import Block, LinesBlock, Span, StyledLine

T = TypeVar("T")
FlushEvents = Callable[[], Awaitable[None]]
"""Waits until the UI has received all events so far, so that a question appears below what led to it."""
_MAX_LINE_LENGTH: Final = 1_000


async def no_flush() -> None:
    """For callers without a running agent."""


class ChatDialog:
    """Implements Dialog."""

    def __init__(self, ui: ChatUI, flush: FlushEvents = no_flush) -> None:
        self._ui = ui
        self._flush = flush

    @property
    def no_user_reason(self) -> str:
        return "" if self._ui.can_ask else "stdin is not a terminal"

    async def run(self, forms: FormSequence[T]) -> T:
        await self._flush()
        step = next_step(forms)
        while isinstance(step, Form):
            form = msgspec.structs.replace(step, above=tuple(map(_split_long_lines, step.above)))
            step = next_step(forms, await self._ui.ask(form))
        return step.value


def _split_long_lines(block: Block) -> Block:
    """The UI would truncate them, and the end matters in a question, such as the target of a symbolic link."""
    if not isinstance(block, LinesBlock):
        return block
    lines: list[StyledLine] = []
    for line in block.lines:
        if sum(len(span.text) for span in line) <= _MAX_LINE_LENGTH:
            lines.append(line)
            continue
        for span in line:
            starts = range(0, len(span.text), _MAX_LINE_LENGTH)
            lines += ((Span(span.text[start : start + _MAX_LINE_LENGTH], span.tone),) for start in starts)
    return LinesBlock(tuple(lines))
