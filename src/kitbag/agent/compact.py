"""Makes room before the window is full: the older part of a conversation becomes a summary, the recent part stays,
and loaded skills are attached again.

Used by the loop. The summary is written by the same model; where that fails, a plain extract takes its place, so
that a session never ends for want of room.
"""

import os
from collections.abc import Sequence
from typing import Final, NamedTuple

from kitbag.agent.ask_model import Emit, Patience, ask_model
from kitbag.agent.session import Session
from kitbag.events import Compacted, Notice
from kitbag.messages import Image, Message, Text, Thinking, ToolCall, ToolResult, Usage, user
from kitbag.models.provider import Block, ModelError, Provider, Request
from kitbag.packing.session_skills import SessionSkills
from kitbag.text.tokens import estimate_tokens

FULL_AT: Final = 0.8
"""The share of the window, less the room for a reply, at which a conversation is compacted."""
RECENT_SHARE: Final = 0.2
"""The share of the window that recent messages may keep."""
_LONGEST_PART = 2_000
_SUMMARY_TOKENS = 2_000
_IMAGE_TOKENS = 1_600


class Room(NamedTuple):
    """What a model can hold."""

    window: int
    max_output: int

    @property
    def full_at(self) -> int:
        return int((self.window - self.max_output) * FULL_AT)


def tokens_of(message: Message) -> int:
    return sum(_part_tokens(part) for part in message.parts) + 4


def _part_tokens(part: Text | Image | Thinking | ToolCall | ToolResult) -> int:
    match part:
        case Text(text) | Thinking(text):
            return estimate_tokens(text)
        case Image():
            return _IMAGE_TOKENS
        case ToolCall():
            return estimate_tokens(str(part.arguments)) + 12
        case ToolResult():
            return sum(_part_tokens(inner) for inner in part.content) + 8


class Meter:
    """How full the window is: the provider's own count of the last request, and an estimate of what came since."""

    def __init__(self) -> None:
        self._counted = 0
        self._messages = 0
        self._estimate = 0

    def counted(self, usage: Usage, messages: int) -> None:
        """After a reply to a request of so many messages."""
        if usage.shown_to_model:
            self._counted, self._messages = usage.shown_to_model + usage.output, messages + 1
            self._estimate = 0

    def reset(self) -> None:
        self._counted = self._messages = self._estimate = 0

    def tokens(self, prefix: int, messages: Sequence[Message]) -> int:
        """`prefix`: an estimate of system prompt and tools, used until the provider has counted them."""
        if not self._counted or self._messages > len(messages):
            return prefix + sum(tokens_of(message) for message in messages)
        return self._counted + sum(tokens_of(message) for message in messages[self._messages :])


async def compact(
    session: Session,
    skills: SessionSkills,
    provider: Provider,
    model: str,
    room: Room,
    before: int,
    emit: Emit,
) -> None:
    lines = session.lines()
    keep = _first_kept([message for _, message in lines], int(room.window * RECENT_SHARE))
    if keep == 0:
        return
    old = [message for _, message in lines[:keep]]
    summary = await _summary(old, provider, model, room, emit)
    attached = [delivered.text for delivered in skills.reattachment()]
    parts = ["<conversation-summary>", summary.strip(), "</conversation-summary>", *attached]
    text = "\n".join(parts)
    keep_from = lines[keep][0] if keep < len(lines) else (lines[-1][0] + 1)
    after = estimate_tokens(text) + sum(tokens_of(message) for _, message in lines[keep:])
    await session.compacted(text, keep_from, before, after)
    emit(Compacted(before, after))


def _first_kept(messages: Sequence[Message], tokens: int) -> int:
    """Where the recent part begins: at a message of the person or a reply, never between a call and its result."""
    keep = len(messages)
    left = tokens
    for at in range(len(messages) - 1, -1, -1):
        left -= tokens_of(messages[at])
        if left < 0:
            break
        if not messages[at].results:
            keep = at
    return keep


async def _summary(old: Sequence[Message], provider: Provider, model: str, room: Room, emit: Emit) -> str:
    with open(os.path.join(os.path.dirname(__file__), "compact.md"), encoding="utf-8") as file:
        instructions = file.read().strip()
    told = _told(old, int((room.window - room.max_output) * 0.7))
    request = Request(model, (Block(instructions),), (user(told),), (), min(room.max_output, _SUMMARY_TOKENS))
    try:
        reply = await ask_model(provider, request, lambda _: None, Patience(attempts=3))
        if reply.message.text.strip():
            return reply.message.text
        problem = "the summary was empty"
    except ModelError as error:
        problem = error.problem
    emit(Notice("warning", f"no summary could be made ({problem}); the conversation was shortened to an extract"))
    return "No summary could be made. An extract:\n" + _told(old, _SUMMARY_TOKENS)


def _told(messages: Sequence[Message], tokens: int) -> str:
    """The conversation as text, the newest part of it where all would be too long."""
    told: list[str] = []
    left = tokens
    for message in reversed(messages):
        text = _as_text(message)
        left -= estimate_tokens(text)
        if left < 0:
            told.append("(What came before is left out.)")
            break
        told.append(text)
    return "\n\n".join(reversed(told))


def _as_text(message: Message) -> str:
    pieces: list[str] = []
    for part in message.parts:
        match part:
            case Text(text):
                pieces.append(f"{message.role}: {_short(text)}")
            case ToolCall():
                pieces.append(f"call {part.name}: {_short(str(part.arguments))}")
            case ToolResult():
                text = "".join(inner.text for inner in part.content if isinstance(inner, Text))
                pieces.append(f"result: {_short(text)}")
            case Image() | Thinking():
                pass
    return "\n".join(pieces)


def _short(text: str) -> str:
    if len(text) <= _LONGEST_PART:
        return text
    half = _LONGEST_PART // 2
    return f"{text[:half]}\n[{len(text) - 2 * half:,} characters]\n{text[-half:]}"
