"""Refuses the tool calls of a cut-off reply, even if their arguments can be read.

Used by loop before a reply is recorded, so the refusal also holds when the session is resumed. The model adapters
decide which replies are complete, by a list of known stop reasons (models/provider).
"""

import msgspec

from kitbag.events import Notice
from kitbag.messages import Message, ToolCall
from kitbag.models.provider import ModelReply
from kitbag.text.hidden_characters import collapse_whitespace

_MAX_STOP_REASON_CHARS = 60


def cut_off_reason(reply: ModelReply) -> str:
    """Empty for a complete reply."""
    if reply.is_complete:
        return ""
    if reply.stop == "length":
        return "the reply was truncated at the output limit"
    if reply.stop == "refusal":
        return "the reply was stopped by a refusal or a content filter"
    stop_reason = collapse_whitespace(reply.stop_reason)[:_MAX_STOP_REASON_CHARS]
    return (
        f"the reply ended with an unknown stop reason ({stop_reason})"
        if stop_reason
        else "the reply ended without a stop reason"
    )


def refuse_calls(reply: ModelReply) -> Message:
    """The reply's message. In a cut-off reply every call gets a problem, which keeps it from running."""
    message, reason = reply.message, cut_off_reason(reply)
    if not reason or not message.calls:
        return message
    retry_hint = (
        "send the call again, shorter or in parts" if reply.stop == "length" else "send the call again if needed"
    )
    problem = f"{reason}, so none of its tool calls were run; {retry_hint}"
    parts = (
        msgspec.structs.replace(part, problem=problem) if isinstance(part, ToolCall) else part for part in message.parts
    )
    return Message(message.role, tuple(parts))


def cut_off_notice(reply: ModelReply) -> Notice | None:
    """For the user. None for a cut-off or refused text: that ends the run, and RunEnded reports it."""
    reason = cut_off_reason(reply)
    if reason and reply.message.calls:
        return Notice(severity="warning", text=f"{reason}; none of its tool calls were run")
    return Notice(severity="warning", text=f"{reason}; the answer may be incomplete") if reply.stop == "other" else None
