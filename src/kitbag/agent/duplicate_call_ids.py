"""Calls that come under an id that was used before: a provider's slip, or one whose ids begin anew with each reply.

Used by the loop before a reply is written down. What comes out has one id for each call of the conversation, so
that no result belongs to two calls and nothing that has an effect is done twice by mistake.
"""

import os
from collections.abc import Mapping

from kitbag.agent.ask_model import Emit
from kitbag.events import Notice
from kitbag.messages import Message, Part, ToolCall
from kitbag.tools.toolset import AbstractToolset


def make_call_ids_unique(
    message: Message, earlier: Mapping[str, ToolCall], toolset: AbstractToolset, emit: Emit
) -> Message:
    """Twice in one reply: the second is left out. Again in a later one: it gets an id of its own; and where it has an
    effect and is the same call in every respect, it is not run again."""
    if not message.calls:
        return message
    used: set[str] = set()
    parts: list[Part] = []
    for part in message.parts:
        if isinstance(part, ToolCall):
            if part.id in used:
                what = f"the model made two calls under one id; the second, of {part.name}, was left out"
                emit(Notice("warning", what))
                continue
            used.add(part.id)
            if part.id in earlier or not part.id:
                part = _with_new_id(part, earlier.get(part.id), toolset)
        parts.append(part)
    return Message(message.role, tuple(parts))


def _with_new_id(call: ToolCall, earlier: ToolCall | None, toolset: AbstractToolset) -> ToolCall:
    tool = toolset.get(call.name)
    problem = call.problem
    ran = earlier if earlier is not None and not earlier.problem else None
    same = ran is not None and (call.name, call.arguments) == (ran.name, ran.arguments)
    if same and not problem and tool is not None and not tool.read_only:
        problem = "this very call, under this id, was made before and is not run again; its result stands above"
    return call._replace(id=f"call_{os.urandom(8).hex()}", problem=problem)
