"""A cut-off reply is never executed: all its tool calls are refused, whether or not their arguments can be read.

Used by the loop before a reply is written to the journal, so the refusal also holds for whoever resumes the session.
Which replies are complete is the adapters' to say, by a list of known stop reasons (models/provider).
"""

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
        return "the reply was cut off at the output limit"
    if reply.stop == "refusal":
        return "the reply was cut off by a refusal or a content filter"
    word = collapse_whitespace(reply.stop_reason)[:_MAX_STOP_REASON_CHARS]
    return f"the reply ended with an unknown stop reason ({word})" if word else "the reply ended without a stop reason"


def refuse_calls(reply: ModelReply) -> Message:
    """The reply's message; of a cut-off reply, every call has a problem, which keeps it from being executed."""
    message, why = reply.message, cut_off_reason(reply)
    if not why or not message.calls:
        return message
    again = "send the call again, shorter or in parts" if reply.stop == "length" else "send the call again if needed"
    problem = f"{why}, so none of its tool calls was executed; {again}"
    parts = (part._replace(problem=problem) if isinstance(part, ToolCall) else part for part in message.parts)
    return Message(message.role, tuple(parts))


def cut_off_notice(reply: ModelReply) -> Notice | None:
    """For the user. A text that is cut off or refused ends the run, which says so itself."""
    why = cut_off_reason(reply)
    if why and reply.message.calls:
        return Notice("warning", f"{why}; none of its tool calls was executed")
    return Notice("warning", f"{why}; the answer may be incomplete") if reply.stop == "other" else None
