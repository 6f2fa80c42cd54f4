"""Checks a reply before it is recorded, so that the result also holds when the session is resumed: refuses the tool
calls of a cut-off reply, even if their arguments can be read, and gives each call of a session a unique id that every
provider accepts.

Used by loop. The model adapters decide which replies are complete, by a list of known stop reasons (models/provider).
Providers repeat ids by mistake, and some restart numbering in every reply.
"""

import os
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from kitbag.agent.ask_model import Emit
from kitbag.events import Notice
from kitbag.messages import Message, Part, Text, ToolCall
from kitbag.models.portable_names import portable_id
from kitbag.models.provider import ModelReply
from kitbag.text.hidden_characters import collapse_whitespace
from kitbag.tools.toolset import AbstractToolset

CUT_OFF_MARKER: Final = "[The reply was truncated here.]"
MAX_INVALID_TURNS: Final = 3
"""Consecutive replies without a single valid call: the first and two corrections."""
_MAX_STOP_REASON_CHARS = 60


def cut_off_reason(reply: ModelReply) -> str:
    """Empty for a complete reply."""
    if reply.is_complete:
        return ""
    stop_reason = collapse_whitespace(reply.stop_reason)[:_MAX_STOP_REASON_CHARS]
    known = {
        "length": "the reply was truncated at the output limit",
        "context": "the reply was truncated because the context window is full",
        "refusal": "the reply was stopped by a refusal or a content filter",
        "pause": "the provider paused the reply",
        "limit": f"Kitbag cut the reply because {stop_reason}",
    }
    if reply.stop in known:
        return known[reply.stop]
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
        "send the call again, shorter or in parts"
        if reply.stop in ("length", "limit")
        else "send the call again if needed"
    )
    problem = f"{reason}, so none of its tool calls were run; {retry_hint}"
    parts = (
        msgspec.structs.replace(part, problem=problem) if isinstance(part, ToolCall) else part for part in message.parts
    )
    return Message(message.role, tuple(parts))


def cut_off_notice(reply: ModelReply) -> Notice | None:
    """For the user. None for a text without calls: that ends the run, and RunEnded reports it."""
    reason = cut_off_reason(reply)
    if reason and reply.message.calls:
        return Notice(severity="warning", text=f"{reason}; none of its tool calls were run")
    return None


def mark_cut(message: Message, reply: ModelReply) -> Message:
    """Tells the model that its reply was cut, where no result of a call does."""
    if reply.stop != "limit" or message.calls:
        return message
    return Message(message.role, (*message.parts, Text(f"\n\n{CUT_OFF_MARKER}")))


def describe_failure(reply: ModelReply) -> tuple[str, str] | None:
    """Why a reply that ends a run is not an answer, and the fix. It has no calls, or is the last of several with only
    invalid calls."""
    if reply.stop == "length":
        fix = "ask for less at once, or resume with --continue"
        return "the reply was truncated at the model's output limit", fix
    if reply.stop == "refusal" and reply.stop_reason == "content_filter":
        return "the provider's content filter stopped the reply", "rephrase the prompt, or use another model"
    if reply.stop == "refusal":
        return "the model declined to answer", "rephrase the prompt, or use another model"
    if reply.stop == "context":
        return cut_off_reason(reply), "start a new session, compact this one, or use a model with a larger window"
    if reply.stop == "limit":
        return cut_off_reason(reply), "resume with --continue, or raise `limits.reply` or `timeouts.reply`"
    if reply.stop in ("pause", "other") and not reply.message.calls:
        return f"{cut_off_reason(reply)}; the answer may be incomplete", "resume with --continue, or use another model"
    if reply.message.calls:
        problem = cut_off_reason(reply) or f"{MAX_INVALID_TURNS} replies in a row contained only invalid tool calls"
        return problem, "use another model, or rephrase the prompt"
    return None


def normalize_call_ids(
    message: Message,
    earlier: Mapping[str, ToolCall],
    toolset: AbstractToolset,
    emit: Emit,
    redact: Callable[[str], str],
) -> Message:
    """Replaces ids that a provider would refuse, that repeat, or that the journal would redact. A call that repeats
    another one of the same reply is dropped; an id from an earlier reply with the same call is not run again if it has
    side effects."""
    if not message.calls:
        return message
    used: dict[str, ToolCall] = {}
    parts: list[Part] = []
    for part in message.parts:
        if isinstance(part, ToolCall):
            call_id = portable_id(part.id) if part.id else _new_id()
            if call_id in used and _is_same_call(part, used[call_id]):
                problem = (
                    f"the model sent the same tool call twice in one reply; the second one ({part.name}) was omitted"
                )
                emit(Notice(severity="warning", text=problem))
                continue
            if call_id in earlier:
                part = _refuse_repetition(part, earlier[call_id], toolset)
            if call_id in used or call_id in earlier or redact(call_id) != call_id:
                call_id = _new_id()
            part = msgspec.structs.replace(part, id=call_id)
            used[call_id] = part
        parts.append(part)
    return Message(message.role, tuple(parts))


def _new_id() -> str:
    return f"call_{os.urandom(8).hex()}"


def _is_same_call(call: ToolCall, other: ToolCall) -> bool:
    return (call.name, call.arguments, call.raw) == (other.name, other.arguments, other.raw)


def _refuse_repetition(call: ToolCall, earlier: ToolCall, toolset: AbstractToolset) -> ToolCall:
    """A call with side effects that was already run under the same id."""
    tool = toolset.get(call.name)
    if call.problem or earlier.problem or tool is None or tool.read_only or not _is_same_call(call, earlier):
        return call
    problem = "duplicate call ID: this call is not run again; its result is above"
    return msgspec.structs.replace(call, problem=problem)
