"""Limits the tool calls of one reply: the calls beyond the limit are recorded with the reason and never run, also after
a crash.

Used by loop and execute.
"""

from typing import Final

import msgspec

from kitbag.agent.ask_model import Emit
from kitbag.events import Notice
from kitbag.messages import Message, Part, ToolCall

MAX_CALLS: Final = 64
_PREFIX: Final = "not run: one reply can run "


def refuse_calls_over_limit(message: Message, max_calls: int, emit: Emit) -> Message:
    """`max_calls`: 0 for no limit."""
    total = len(message.calls)
    if not max_calls or total <= max_calls:
        return message
    problem = f"{_PREFIX}{max_calls} tool calls, and this one has {total:,}; send this call again if it is still needed"
    parts: list[Part] = []
    count = 0
    for part in message.parts:
        if isinstance(part, ToolCall):
            count += 1
            if count > max_calls:
                part = msgspec.structs.replace(part, problem=problem)
        parts.append(part)
    text = f"the model sent {total:,} tool calls in one reply; only the first {max_calls} are run"
    emit(Notice(severity="warning", text=text, fix="to run more, set `limits.calls`"))
    return Message(message.role, tuple(parts))


def is_over_limit(call: ToolCall) -> bool:
    return call.problem.startswith(_PREFIX)
