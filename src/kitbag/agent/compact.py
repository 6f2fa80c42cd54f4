"""Makes room before the window is full: the older part of a conversation becomes a summary, the recent part and what
the person asked for last stay, and loaded skills are attached again.

Used by the loop, when it needs room or the person wants it. The summary is written by the same model; where that
fails, a plain extract takes its place, so that a session never ends for want of room.
"""

import os
from collections.abc import Sequence
from typing import Final, NamedTuple

from kitbag.agent.ask_model import Emit, Patience, ask_model
from kitbag.agent.model_config import Brain
from kitbag.agent.session import Session, is_said
from kitbag.agent.session_records import Compaction, SkillUse
from kitbag.events import Compacted, Notice, SkillUnloaded
from kitbag.messages import Image, Message, Text, Thinking, ToolCall, ToolResult, Usage, user
from kitbag.models.provider import Block, ModelError, Request
from kitbag.packing.session_skills import SessionSkills
from kitbag.text.hidden_characters import reveal_hidden
from kitbag.text.tokens import estimate_tokens
from kitbag.tools.todo import told_again

_MOST_RECENT = 40_000
_MOST_SUMMARY = 2_000
_MOST_SKILLS = 25_000
_MOST_OF_A_SKILL = 5_000
"""Tokens. In a small window each has its share of what is left to the conversation."""
_LONGEST_PART = 2_000
_LONGEST_WISH = 2_000
"""Characters."""
_IMAGE_TOKENS = 1_600
_END: Final = "</conversation-summary>"


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

    def counted(self, usage: Usage, messages: int) -> None:
        """After a reply to a request of so many messages."""
        if usage.shown_to_model:
            self._counted, self._messages = usage.shown_to_model + usage.output, messages + 1

    def reset(self) -> None:
        self._counted = self._messages = 0

    def tokens(self, prefix: int, messages: Sequence[Message]) -> int:
        """`prefix`: an estimate of system prompt and tools, used until the provider has counted them."""
        if not self._counted or self._messages > len(messages):
            return prefix + sum(tokens_of(message) for message in messages)
        return self._counted + sum(tokens_of(message) for message in messages[self._messages :])


class Aim(NamedTuple):
    """What the person says about it, where they want it themselves."""

    wish: str = ""
    """What to keep, in their words."""
    recent: int = _MOST_RECENT
    """Tokens that stay as they are, at most."""


class _Kept(NamedTuple):
    """Which lines stay."""

    first: int
    """All from here on."""
    asked: int
    """And before it what the person said last; -1 when that is not to be kept as it is."""
    began: str
    """The beginning of it, where it is too long to be kept."""


async def compact(
    session: Session,
    skills: SessionSkills,
    brain: Brain,
    share: int,
    before: int,
    emit: Emit,
    patience: Patience,
    aim: Aim = Aim(),  # noqa: B008 - a NamedTuple can't be changed
) -> bool:
    """`share`: the tokens that are left to the conversation. False: there is nothing that could be made shorter."""
    lines = session.lines()
    kept = _choose([message for _, message in lines], share, aim.recent)
    old = [(seq, message) for at, (seq, message) in enumerate(lines[: kept.first]) if at != kept.asked]
    if all(seq == 0 for seq, _ in old):  # the last summary, or nothing
        return False
    summary, usage, cost = await _summary([message for _, message in old], brain, share, emit, patience, aim.wish)
    text = f"<conversation-summary>\n{summary.strip().replace(_END, '')}\n{_END}"
    if kept.began:
        text += f"\n\nThe person's last message was too long to keep whole. It began:\n\n{kept.began}"
    stay = [message for _, message in (*lines[kept.first :], *(lines[at] for at in (kept.asked,) if at >= 0))]
    todos = told_again(session.called, session.began, {call.id for message in stay for call in message.calls})
    text += f"\n\n{todos}" if todos else ""
    each, altogether = min(_MOST_OF_A_SKILL, share // 4), min(_MOST_SKILLS, share // 4)
    attached = skills.reattachment(each, altogether)
    uses = tuple(SkillUse(*one.loaded) for one in reversed(attached) if one.loaded is not None)
    after = estimate_tokens(text) + sum(one.tokens for one in attached) + sum(map(tokens_of, stay))
    made = Compaction(
        text,
        lines[kept.first][0] if kept.first < len(lines) else lines[-1][0] + 1,
        lines[kept.asked][0] if kept.asked >= 0 else 0,
        tuple((one.name, one.text) for one in attached),
        uses,
        before,
        after,
        usage,
        cost,
    )
    await session.compact(made)
    emit(Compacted(before, after))
    for one in attached:
        if one.loaded is None:
            emit(SkillUnloaded(one.name, "to make room"))
    return True


def _choose(messages: Sequence[Message], share: int, recent: int = _MOST_RECENT) -> _Kept:
    first = _first_kept(messages, min(_MOST_RECENT, share // 4, recent))
    asked = max((at for at, message in enumerate(messages) if is_said(message)), default=-1)
    if asked < 0 or asked >= first:
        return _Kept(first, -1, "")
    text, tokens, most = messages[asked].text, tokens_of(messages[asked]), share // 4
    return _Kept(first, asked, "") if tokens <= most else _Kept(first, -1, text[: len(text) * most // tokens])


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


async def _summary(
    old: Sequence[Message], brain: Brain, share: int, emit: Emit, patience: Patience, wish: str
) -> tuple[str, Usage, float | None]:
    with open(os.path.join(os.path.dirname(__file__), "compact.md"), encoding="utf-8") as file:
        instructions = file.read().strip() + _wished(wish)
    room = brain.room
    most = max(min(_MOST_SUMMARY, share // 8, room.max_output), 100)
    told = _told(old, int((room.window - most) * 0.7))
    request = Request(brain.model, (Block(instructions),), (user(told),), (), most)
    usage, cost = Usage(), 0.0
    try:
        reply = await ask_model(brain.provider, request, lambda _: None, patience._replace(attempts=3))
        usage, cost = reply.usage, brain.price(reply.usage)
        if reply.message.text.strip():
            return reply.message.text, usage, cost
        problem = "the summary was empty"
    except ModelError as error:
        problem = error.problem
    emit(Notice("warning", f"no summary could be made ({problem}); the conversation was shortened to an extract"))
    return "No summary could be made. An extract:\n" + _told(old, most), usage, cost


def _wished(wish: str) -> str:
    """The person's own words are the last word on what matters, and no more than that."""
    words = reveal_hidden(wish).strip()[:_LONGEST_WISH].replace("<", "&lt;")
    return f"\n\nThe person asks you to keep this above all:\n\n<wish>\n{words}\n</wish>" if words else ""


def _told(messages: Sequence[Message], tokens: int) -> str:
    """The conversation as text, the newest part of it where all would be too long."""
    told: list[str] = []
    left = tokens
    for message in reversed(messages):
        text = _as_text(message)
        cost = estimate_tokens(text)
        if cost > left:
            told += [text[len(text) - len(text) * left // cost :], "(What came before is left out.)"]
            break
        left -= cost
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
