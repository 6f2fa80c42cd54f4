"""Compacts a session before its context window is full: a summary replaces the older messages; the recent messages,
the last user message and the loaded skills stay.

Used by loop, automatically and for /compact. The session's own model writes the summary; if that fails, a plain
extract replaces it, so a session never ends because its window is full.
"""

import os
from collections.abc import Sequence
from typing import Final

import msgspec

from kitbag.agent.ask_model import Emit, RetryPolicy
from kitbag.agent.budget import Budget, ask_within_budget
from kitbag.agent.model_config import ModelConfig
from kitbag.agent.session import Session, is_user_message
from kitbag.agent.session_records import Compaction, make_skill_use
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
"""Tokens. In a small window each is also capped by a share of the conversation budget."""
_MAX_PART_CHARS = 2_000
_MAX_INSTRUCTIONS_CHARS = 2_000
"""Characters."""
_IMAGE_TOKENS = 1_600
_SUMMARY_END: Final = "</conversation-summary>"


_MAX_CACHED_MESSAGES: Final = 20_000
_cached_tokens: dict[int, tuple[Message, int]] = {}
"""By the identity of the message, which the entry keeps alive: a long session counts only its new messages."""


def estimate_message_tokens(message: Message) -> int:
    cached = _cached_tokens.get(id(message))
    if cached is not None:
        return cached[1]
    tokens = sum(_estimate_part_tokens(part) for part in message.parts) + 4
    if not any(isinstance(part, Image) for part in message.parts):  # fast to count, and too large to keep
        if len(_cached_tokens) >= _MAX_CACHED_MESSAGES:
            _cached_tokens.clear()
        _cached_tokens[id(message)] = message, tokens
    return tokens


def _estimate_part_tokens(part: Text | Image | Thinking | ToolCall | ToolResult) -> int:
    match part:
        case Text(text) | Thinking(text=text):
            return estimate_tokens(text)
        case Image():
            return _IMAGE_TOKENS
        case ToolCall():
            return estimate_tokens(str(part.arguments)) + 12
        case ToolResult():
            return sum(_estimate_part_tokens(inner) for inner in part.content) + 8


class ContextMeter:
    """Tracks how full the context window is: the provider's count of the last request plus an estimate of what was
    added since."""

    def __init__(self) -> None:
        self._counted_tokens = 0
        self._counted_messages = 0

    def record_usage(self, usage: Usage, messages: int) -> None:
        """`messages`: the number of messages in the request that `usage` counts."""
        if usage.total_input:
            self._counted_tokens, self._counted_messages = usage.total_input + usage.output, messages + 1

    def reset(self) -> None:
        self._counted_tokens = self._counted_messages = 0

    def estimate_tokens(self, prefix_tokens: int, messages: Sequence[Message]) -> int:
        """`prefix_tokens`: an estimate for system prompt and tools, used until the provider has counted them."""
        if not self._counted_tokens or self._counted_messages > len(messages):
            return prefix_tokens + sum(estimate_message_tokens(message) for message in messages)
        return self._counted_tokens + sum(
            estimate_message_tokens(message) for message in messages[self._counted_messages :]
        )


class CompactionRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What the user asked for when they ran /compact."""

    instructions: str = ""
    """What to keep, in the user's words."""
    max_recent_tokens: int = _MAX_RECENT_TOKENS
    """The most recent messages up to this size stay unchanged."""


class _KeptMessages(msgspec.Struct, frozen=True, kw_only=True):
    """Which recorded messages stay."""

    first_index: int
    """All messages from this index on stay."""
    last_prompt_index: int
    """The last user message, if it lies before `first_index` and stays; else -1."""
    last_prompt_start: str
    """The start of the last user message if it is too long to keep."""


async def compact_session(
    session: Session,
    skills: SessionSkills,
    model_config: ModelConfig,
    conversation_budget: int,
    tokens_before: int,
    emit: Emit,
    retry_policy: RetryPolicy,
    budget: Budget,
    request: CompactionRequest = CompactionRequest(),  # noqa: B008 - a NamedTuple is immutable
) -> bool:
    """`conversation_budget`: tokens available to the conversation. Returns False if nothing can be compacted."""
    recorded = session.recorded_messages()
    kept = _choose_kept([message for _, message in recorded], conversation_budget, request.max_recent_tokens)
    compacted = [
        (seq, message)
        for index, (seq, message) in enumerate(recorded[: kept.first_index])
        if index != kept.last_prompt_index
    ]
    if all(seq == 0 for seq, _ in compacted):  # only the last summary, or nothing
        return False
    max_output, max_transcript = _summary_limits(model_config, conversation_budget)
    system, messages = summary_request([message for _, message in compacted], max_transcript, request.instructions)
    model_request = ModelRequest(
        model=model_config.model, system=system, messages=messages, tools=(), max_output=max_output
    )
    summary, usage, cost = await _summarize(
        model_request, [message for _, message in compacted], model_config, emit, retry_policy, budget
    )
    kept_messages = [
        message
        for _, message in (
            *recorded[kept.first_index :],
            *(recorded[index] for index in (kept.last_prompt_index,) if index >= 0),
        )
    ]
    text = _replacement_text(summary, kept, session, kept_messages)
    max_each, max_all = (
        min(_MAX_TOKENS_PER_SKILL, conversation_budget // 4),
        min(_MAX_SKILLS_TOKENS, conversation_budget // 4),
    )
    attached = skills.reattach_after_compaction(max_each, max_all)
    skill_uses = tuple(make_skill_use(skill.loaded) for skill in reversed(attached) if skill.loaded is not None)
    tokens_after = (
        estimate_tokens(text)
        + sum(skill.tokens for skill in attached)
        + sum(map(estimate_message_tokens, kept_messages))
    )
    compaction = Compaction(
        summary=text,
        keep_from=recorded[kept.first_index][0] if kept.first_index < len(recorded) else recorded[-1][0] + 1,
        keep_also=recorded[kept.last_prompt_index][0] if kept.last_prompt_index >= 0 else 0,
        attached=tuple((skill.name, skill.text) for skill in attached),
        skills=skill_uses,
        before=tokens_before,
        after=tokens_after,
        usage=usage,
        cost=cost,
        instructions=request.instructions,
        max_transcript=max_transcript,
    )
    await session.record_compaction(compaction)
    emit(Compacted(before=tokens_before, after=tokens_after))
    for skill in attached:
        if skill.loaded is None:
            emit(SkillUnloaded(name=skill.name, reason="to free context"))
    return True


def _replacement_text(summary: str, kept: _KeptMessages, session: Session, kept_messages: Sequence[Message]) -> str:
    """What the model sees instead of the compacted messages."""
    text = f"<conversation-summary>\n{summary.strip().replace(_SUMMARY_END, '')}\n{_SUMMARY_END}"
    if kept.last_prompt_start:
        text += f"\n\nThe user's last message was too long to keep in full. It began:\n\n{kept.last_prompt_start}"
    todos = render_last_todos(
        session.calls, session.started_calls, {call.id for message in kept_messages for call in message.calls}
    )
    return f"{text}\n\n{todos}" if todos else text


def _choose_kept(
    messages: Sequence[Message], conversation_budget: int, max_recent_tokens: int = _MAX_RECENT_TOKENS
) -> _KeptMessages:
    first = _first_kept_index(messages, min(_MAX_RECENT_TOKENS, conversation_budget // 4, max_recent_tokens))
    last_prompt = max((index for index, message in enumerate(messages) if is_user_message(message)), default=-1)
    if last_prompt < 0 or last_prompt >= first:
        return _KeptMessages(first_index=first, last_prompt_index=-1, last_prompt_start="")
    text, tokens, max_prompt_tokens = (
        messages[last_prompt].text,
        estimate_message_tokens(messages[last_prompt]),
        conversation_budget // 4,
    )
    return (
        _KeptMessages(first_index=first, last_prompt_index=last_prompt, last_prompt_start="")
        if tokens <= max_prompt_tokens
        else _KeptMessages(
            first_index=first, last_prompt_index=-1, last_prompt_start=text[: len(text) * max_prompt_tokens // tokens]
        )
    )


def _first_kept_index(messages: Sequence[Message], max_tokens: int) -> int:
    """The start of the recent part: a user message or a reply, never between a call and its result."""
    first = len(messages)
    tokens_left = max_tokens
    for index in range(len(messages) - 1, -1, -1):
        tokens_left -= estimate_message_tokens(messages[index])
        if tokens_left < 0:
            break
        if not messages[index].results:
            first = index
    return first


def _summary_limits(model_config: ModelConfig, conversation_budget: int) -> tuple[int, int]:
    """Tokens of the summary, and of the messages that its request carries."""
    window = model_config.context_window
    max_output = max(min(_MAX_SUMMARY_TOKENS, conversation_budget // 8, window.max_output), 100)
    return max_output, int((window.size - max_output) * 0.7)


def summary_request(
    old: Sequence[Message], max_transcript: int, user_instructions: str
) -> tuple[tuple[SystemBlock, ...], tuple[Message, ...]]:
    """The system prompt and the messages. `max_transcript`: tokens."""
    with open(os.path.join(os.path.dirname(__file__), "compact.md"), encoding="utf-8") as file:
        instructions = file.read().strip() + _render_instructions(user_instructions)
    return (SystemBlock(text=instructions),), (user_message(_render_messages(old, max_transcript)),)


async def _summarize(
    request: ModelRequest,
    old: Sequence[Message],
    model_config: ModelConfig,
    emit: Emit,
    retry_policy: RetryPolicy,
    budget: Budget,
) -> tuple[str, Usage, float | None]:
    usage, cost = Usage(), 0.0
    try:
        texts = [*(block.text for block in request.system), *(message.text for message in request.messages)]
        expected = Usage(input=sum(map(estimate_tokens, texts)))
        retry_policy = msgspec.structs.replace(retry_policy, attempts=3)
        reply, _ = await ask_within_budget(budget, model_config, request, expected, lambda _: None, retry_policy)
        usage, cost = reply.usage, model_config.price(reply.usage)
        if reply.message.text.strip():
            return reply.message.text, usage, cost
        problem = "the summary was empty"
    except ModelError as error:
        problem = error.problem
    emit(
        Notice(
            severity="warning",
            text=f"could not write a summary ({problem}); the session was reduced to an excerpt",
        )
    )
    return "Could not write a summary. Excerpt:\n" + _render_messages(old, request.max_output), usage, cost


def _render_instructions(instructions: str) -> str:
    """The user's instructions decide what the summary keeps; they can't leave the block they stand in."""
    text = reveal_hidden(instructions).strip()[:_MAX_INSTRUCTIONS_CHARS].replace("<", "&lt;")
    return f"\n\nThe user asks you to keep this above all:\n\n<instructions>\n{text}\n</instructions>" if text else ""


def _render_messages(messages: Sequence[Message], max_tokens: int) -> str:
    """The conversation as text; if it is too long, only its newest part."""
    rendered: list[str] = []
    tokens_left = max_tokens
    for message in reversed(messages):
        text = _render_message(message)
        cost = estimate_tokens(text)
        if cost > tokens_left:
            rendered += [text[len(text) - len(text) * tokens_left // cost :], "(Earlier messages omitted.)"]
            break
        tokens_left -= cost
        rendered.append(text)
    return "\n\n".join(reversed(rendered))


def _render_message(message: Message) -> str:
    lines: list[str] = []
    for part in message.parts:
        match part:
            case Text(text):
                lines.append(f"{message.role}: {_shorten(text)}")
            case ToolCall():
                lines.append(f"call {part.name}: {_shorten(str(part.arguments))}")
            case ToolResult():
                text = "".join(inner.text for inner in part.content if isinstance(inner, Text))
                lines.append(f"result: {_shorten(text)}")
            case Image() | Thinking():
                pass
    return "\n".join(lines)


def _shorten(text: str) -> str:
    if len(text) <= _MAX_PART_CHARS:
        return text
    half = _MAX_PART_CHARS // 2
    return f"{text[:half]}\n[{len(text) - 2 * half:,} characters]\n{text[-half:]}"
