"""Makes room before the window is full: the older part of a conversation becomes a summary, the recent part and what
the person asked for last stay, and loaded skills are attached again.

Used by the loop, when it needs room or the person wants it. The summary is written by the same model; where that
fails, a plain extract takes its place, so that a session never ends for want of room.
"""

import os
from collections.abc import Sequence
from typing import Final, NamedTuple

from kitbag.agent.ask_model import Emit, RetryPolicy, ask_model
from kitbag.agent.model_config import ModelConfig
from kitbag.agent.session import Session, is_user_message
from kitbag.agent.session_records import Compaction, SkillUse
from kitbag.events import Compacted, Notice, SkillUnloaded
from kitbag.messages import Image, Message, Text, Thinking, ToolCall, ToolResult, Usage, user_message
from kitbag.models.provider import ModelError, ModelRequest, SystemBlock
from kitbag.packing.session_skills import SessionSkills
from kitbag.text.hidden_characters import reveal_hidden
from kitbag.text.tokens import estimate_tokens
from kitbag.tools.todo import render_last_todos

_MAX_RECENT_TOKENS = 40_000
_MAX_SUMMARY_TOKENS = 2_000
_MAX_SKILLS_TOKENS = 25_000
_MAX_TOKENS_PER_SKILL = 5_000
"""Tokens. In a small window each has its share of what is left to the conversation."""
_MAX_PART_CHARS = 2_000
_MAX_INSTRUCTIONS_CHARS = 2_000
"""Characters."""
_IMAGE_TOKENS = 1_600
_SUMMARY_END: Final = "</conversation-summary>"


def estimate_message_tokens(message: Message) -> int:
    return sum(_estimate_part_tokens(part) for part in message.parts) + 4


def _estimate_part_tokens(part: Text | Image | Thinking | ToolCall | ToolResult) -> int:
    match part:
        case Text(text) | Thinking(text):
            return estimate_tokens(text)
        case Image():
            return _IMAGE_TOKENS
        case ToolCall():
            return estimate_tokens(str(part.arguments)) + 12
        case ToolResult():
            return sum(_estimate_part_tokens(inner) for inner in part.content) + 8


class ContextMeter:
    """How full the window is: the provider's own count of the last request, and an estimate of what came since."""

    def __init__(self) -> None:
        self._counted_tokens = 0
        self._counted_messages = 0

    def record_usage(self, usage: Usage, messages: int) -> None:
        """After a reply to a request of so many messages."""
        if usage.total_input:
            self._counted_tokens, self._counted_messages = usage.total_input + usage.output, messages + 1

    def reset(self) -> None:
        self._counted_tokens = self._counted_messages = 0

    def estimate_tokens(self, prefix_tokens: int, messages: Sequence[Message]) -> int:
        """`prefix`: an estimate of system prompt and tools, used until the provider has counted them."""
        if not self._counted_tokens or self._counted_messages > len(messages):
            return prefix_tokens + sum(estimate_message_tokens(message) for message in messages)
        return self._counted_tokens + sum(
            estimate_message_tokens(message) for message in messages[self._counted_messages :]
        )


class CompactionRequest(NamedTuple):
    """What the person says about it, where they want it themselves."""

    instructions: str = ""
    """What to keep, in their words."""
    max_recent_tokens: int = _MAX_RECENT_TOKENS
    """Tokens that stay as they are, at most."""


class _KeptMessages(NamedTuple):
    """Which lines stay."""

    first_index: int
    """All from here on."""
    last_prompt_index: int
    """And before it what the person said last; -1 when that is not to be kept as it is."""
    last_prompt_start: str
    """The beginning of it, where it is too long to be kept."""


async def compact_session(
    session: Session,
    skills: SessionSkills,
    model_config: ModelConfig,
    conversation_budget: int,
    tokens_before: int,
    emit: Emit,
    retry_policy: RetryPolicy,
    request: CompactionRequest = CompactionRequest(),  # noqa: B008 - a NamedTuple can't be changed
) -> bool:
    """`share`: the tokens that are left to the conversation. False: there is nothing that could be made shorter."""
    lines = session.recorded_messages()
    kept = _choose_kept([message for _, message in lines], conversation_budget, request.max_recent_tokens)
    old = [
        (seq, message) for at, (seq, message) in enumerate(lines[: kept.first_index]) if at != kept.last_prompt_index
    ]
    if all(seq == 0 for seq, _ in old):  # the last summary, or nothing
        return False
    summary, usage, cost = await _summarize(
        [message for _, message in old], model_config, conversation_budget, emit, retry_policy, request.instructions
    )
    text = f"<conversation-summary>\n{summary.strip().replace(_SUMMARY_END, '')}\n{_SUMMARY_END}"
    if kept.last_prompt_start:
        text += f"\n\nThe person's last message was too long to keep whole. It began:\n\n{kept.last_prompt_start}"
    stay = [
        message
        for _, message in (*lines[kept.first_index :], *(lines[at] for at in (kept.last_prompt_index,) if at >= 0))
    ]
    todos = render_last_todos(
        session.calls, session.started_calls, {call.id for message in stay for call in message.calls}
    )
    text += f"\n\n{todos}" if todos else ""
    each, altogether = (
        min(_MAX_TOKENS_PER_SKILL, conversation_budget // 4),
        min(_MAX_SKILLS_TOKENS, conversation_budget // 4),
    )
    attached = skills.reattach_after_compaction(each, altogether)
    uses = tuple(SkillUse(*one.loaded) for one in reversed(attached) if one.loaded is not None)
    after = estimate_tokens(text) + sum(one.tokens for one in attached) + sum(map(estimate_message_tokens, stay))
    made = Compaction(
        text,
        lines[kept.first_index][0] if kept.first_index < len(lines) else lines[-1][0] + 1,
        lines[kept.last_prompt_index][0] if kept.last_prompt_index >= 0 else 0,
        tuple((one.name, one.text) for one in attached),
        uses,
        tokens_before,
        after,
        usage,
        cost,
    )
    await session.record_compaction(made)
    emit(Compacted(tokens_before, after))
    for one in attached:
        if one.loaded is None:
            emit(SkillUnloaded(one.name, "to make room"))
    return True


def _choose_kept(
    messages: Sequence[Message], conversation_budget: int, max_recent_tokens: int = _MAX_RECENT_TOKENS
) -> _KeptMessages:
    first = _first_kept_index(messages, min(_MAX_RECENT_TOKENS, conversation_budget // 4, max_recent_tokens))
    asked = max((at for at, message in enumerate(messages) if is_user_message(message)), default=-1)
    if asked < 0 or asked >= first:
        return _KeptMessages(first, -1, "")
    text, tokens, most = messages[asked].text, estimate_message_tokens(messages[asked]), conversation_budget // 4
    return (
        _KeptMessages(first, asked, "")
        if tokens <= most
        else _KeptMessages(first, -1, text[: len(text) * most // tokens])
    )


def _first_kept_index(messages: Sequence[Message], max_tokens: int) -> int:
    """Where the recent part begins: at a message of the person or a reply, never between a call and its result."""
    keep = len(messages)
    left = max_tokens
    for at in range(len(messages) - 1, -1, -1):
        left -= estimate_message_tokens(messages[at])
        if left < 0:
            break
        if not messages[at].results:
            keep = at
    return keep


async def _summarize(
    old: Sequence[Message],
    model_config: ModelConfig,
    conversation_budget: int,
    emit: Emit,
    retry_policy: RetryPolicy,
    user_instructions: str,
) -> tuple[str, Usage, float | None]:
    with open(os.path.join(os.path.dirname(__file__), "compact.md"), encoding="utf-8") as file:
        instructions = file.read().strip() + _render_instructions(user_instructions)
    room = model_config.context_window
    most = max(min(_MAX_SUMMARY_TOKENS, conversation_budget // 8, room.max_output), 100)
    told = _render_messages(old, int((room.size - most) * 0.7))
    request = ModelRequest(model_config.model, (SystemBlock(instructions),), (user_message(told),), (), most)
    usage, cost = Usage(), 0.0
    try:
        reply = await ask_model(model_config.provider, request, lambda _: None, retry_policy._replace(attempts=3))
        usage, cost = reply.usage, model_config.price(reply.usage)
        if reply.message.text.strip():
            return reply.message.text, usage, cost
        problem = "the summary was empty"
    except ModelError as error:
        problem = error.problem
    emit(Notice("warning", f"no summary could be made ({problem}); the conversation was shortened to an extract"))
    return "No summary could be made. An extract:\n" + _render_messages(old, most), usage, cost


def _render_instructions(instructions: str) -> str:
    """The person's own words are the last word on what matters, and no more than that."""
    words = reveal_hidden(instructions).strip()[:_MAX_INSTRUCTIONS_CHARS].replace("<", "&lt;")
    return f"\n\nThe person asks you to keep this above all:\n\n<wish>\n{words}\n</wish>" if words else ""


def _render_messages(messages: Sequence[Message], max_tokens: int) -> str:
    """The conversation as text, the newest part of it where all would be too long."""
    told: list[str] = []
    left = max_tokens
    for message in reversed(messages):
        text = _render_message(message)
        cost = estimate_tokens(text)
        if cost > left:
            told += [text[len(text) - len(text) * left // cost :], "(What came before is left out.)"]
            break
        left -= cost
        told.append(text)
    return "\n\n".join(reversed(told))


def _render_message(message: Message) -> str:
    pieces: list[str] = []
    for part in message.parts:
        match part:
            case Text(text):
                pieces.append(f"{message.role}: {_shorten(text)}")
            case ToolCall():
                pieces.append(f"call {part.name}: {_shorten(str(part.arguments))}")
            case ToolResult():
                text = "".join(inner.text for inner in part.content if isinstance(inner, Text))
                pieces.append(f"result: {_shorten(text)}")
            case Image() | Thinking():
                pass
    return "\n".join(pieces)


def _shorten(text: str) -> str:
    if len(text) <= _MAX_PART_CHARS:
        return text
    half = _MAX_PART_CHARS // 2
    return f"{text[:half]}\n[{len(text) - 2 * half:,} characters]\n{text[-half:]}"
