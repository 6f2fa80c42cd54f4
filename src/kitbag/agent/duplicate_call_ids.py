"""Gives each tool call of a session a unique id. Providers repeat ids by mistake, and some restart numbering in every
reply.

Used by loop before a reply is recorded, so that no result belongs to two calls and no side effect happens twice.
"""

import os
from collections.abc import Mapping

import msgspec

from kitbag.agent.ask_model import Emit
from kitbag.events import Notice
from kitbag.messages import Message, Part, ToolCall
from kitbag.tools.toolset import AbstractToolset


def make_call_ids_unique(
    message: Message, earlier: Mapping[str, ToolCall], toolset: AbstractToolset, emit: Emit
) -> Message:
    """A repeated id within one reply: the second call is dropped. An id from an earlier reply: the call gets a new id,
    and an identical call with side effects is not run again."""
    if not message.calls:
        return message
    used: set[str] = set()
    parts: list[Part] = []
    for part in message.parts:
        if isinstance(part, ToolCall):
            if part.id in used:
                problem = f"the model used one call ID twice; the second call ({part.name}) was dropped"
                emit(Notice(severity="warning", text=problem))
                continue
            used.add(part.id)
            if part.id in earlier or not part.id:
                part = _with_new_id(part, earlier.get(part.id), toolset)
        parts.append(part)
    return Message(message.role, tuple(parts))


def _with_new_id(call: ToolCall, earlier: ToolCall | None, toolset: AbstractToolset) -> ToolCall:
    tool = toolset.get(call.name)
    problem = call.problem
    executed = earlier if earlier is not None and not earlier.problem else None
    is_identical = executed is not None and (call.name, call.arguments) == (executed.name, executed.arguments)
    if is_identical and not problem and tool is not None and not tool.read_only:
        problem = "this call was made before under the same ID and is not run again; its result is above"
    return msgspec.structs.replace(call, id=f"call_{os.urandom(8).hex()}", problem=problem)
