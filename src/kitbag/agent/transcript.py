"""Turns recorded messages into a conversation that every provider accepts, even after a crash, a truncation or an
edit.

Pure functions, used by session. The result starts with a user message, alternates roles, and has exactly one result
for each call, in the message after it. What does not fit is fixed and reported.
"""

from collections.abc import Iterable, Sequence
from typing import TypeVar

import msgspec

from kitbag.messages import Image, Message, Part, Text, Thinking, ToolCall, ToolResult

P = TypeVar("P", bound=Part)

NEVER_RUN = "Not run: the session was interrupted before this call."
UNKNOWN_OUTCOME = (
    "interrupted (unknown outcome): the session ended while this call was running. It may have taken effect in full or"
    " in part. Check before you repeat it."
)


class NormalizedTranscript(msgspec.Struct, frozen=True, kw_only=True):
    messages: tuple[Message, ...]
    problems: tuple[str, ...]


def normalize_transcript(
    messages: Iterable[Message], started_calls: frozenset[str] = frozenset()
) -> NormalizedTranscript:
    """`started_calls`: calls with a recorded intent; without a result, their outcome is unknown."""
    problems: list[str] = []
    normalized: list[Message] = []
    open_calls: dict[str, ToolCall] = {}
    seen: set[str] = set()
    for message in _merge_adjacent(messages):
        if message.role == "assistant":
            parts = _drop_repeated_calls(message.parts, seen, problems)
            if not normalized and parts:
                problems.append("the session starts with a reply")
                normalized.append(Message("user", (Text("(The beginning of this session is missing.)"),)))
            if parts:
                _answer_open_calls(normalized, open_calls, started_calls, problems)
                normalized.append(Message("assistant", parts))
                open_calls = {part.id: part for part in parts if isinstance(part, ToolCall)}
        else:
            results, rest = _match_results(message.parts, open_calls, problems)
            answered = {result.call_id for result in results}
            results += [
                _make_missing_result(call, started_calls, problems)
                for call in open_calls.values()
                if call.id not in answered
            ]
            order = {call_id: index for index, call_id in enumerate(open_calls)}
            results.sort(key=lambda result: order[result.call_id])
            open_calls = {}
            if results or rest:
                normalized.append(Message("user", (*results, *rest)))
    _answer_open_calls(normalized, open_calls, started_calls, problems)
    return NormalizedTranscript(messages=tuple(_merge_adjacent(normalized)), problems=tuple(problems))


def _merge_adjacent(messages: Iterable[Message]) -> list[Message]:
    """Merges adjacent messages of one role; drops empty ones."""
    merged: list[Message] = []
    for message in messages:
        if not message.parts:
            continue
        if merged and merged[-1].role == message.role:
            merged[-1] = Message(message.role, (*merged[-1].parts, *message.parts))
        else:
            merged.append(message)
    return merged


def _drop_repeated_calls(parts: Sequence[Part], seen: set[str], problems: list[str]) -> tuple[Part, ...]:
    kept: list[Part] = []
    for part in parts:
        if isinstance(part, ToolResult):
            problems.append("a reply contains a tool result")
            continue
        if isinstance(part, ToolCall):
            if part.id in seen:
                problems.append(f"the call {part.id} occurs twice")
                continue
            seen.add(part.id)
        kept.append(part)
    return tuple(kept)


def _match_results(
    parts: Sequence[Part], open_calls: dict[str, ToolCall], problems: list[str]
) -> tuple[list[ToolResult], list[Part]]:
    results: dict[str, ToolResult] = {}
    rest: list[Part] = []
    for part in parts:
        if not isinstance(part, ToolResult):
            if isinstance(part, ToolCall):
                problems.append("a user message contains a tool call")
            else:
                rest.append(part)
        elif part.call_id not in open_calls:
            problems.append(f"a result for {part.call_id} without a call")
        elif part.call_id in results:
            problems.append(f"a second result for {part.call_id}")
        else:
            results[part.call_id] = part
    return list(results.values()), rest


def _make_missing_result(call: ToolCall, started_calls: frozenset[str], problems: list[str]) -> ToolResult:
    problems.append(f"the call {call.id} ({call.name}) has no result")
    text = UNKNOWN_OUTCOME if call.id in started_calls else NEVER_RUN
    return ToolResult(call_id=call.id, content=(Text(text),), is_error=True)


def _answer_open_calls(
    normalized: list[Message], open_calls: dict[str, ToolCall], started_calls: frozenset[str], problems: list[str]
) -> None:
    """Adds results for calls that have none."""
    if open_calls:
        normalized.append(
            Message("user", tuple(_make_missing_result(call, started_calls, problems) for call in open_calls.values()))
        )
        open_calls.clear()


def replace_surrogates(text: str) -> str:
    """Escapes lone surrogates, which no provider accepts. Raises AttributeError if the value is not a string."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "backslashreplace").decode()
    return text


def replace_part_surrogates(part: P) -> P:
    match part:
        case Text(text):
            replaced: Part = Text(replace_surrogates(text))
        case Thinking():
            replaced = Thinking(
                text=replace_surrogates(part.text),
                provider=replace_surrogates(part.provider),
                opaque=replace_surrogates(part.opaque),
            )
        case Image():
            replaced = Image(media_type=replace_surrogates(part.media_type), data=replace_surrogates(part.data))
        case ToolCall():
            texts = {
                "id": replace_surrogates(part.id),
                "name": replace_surrogates(part.name),
                "raw": replace_surrogates(part.raw),
            }
            replaced = msgspec.structs.replace(part, **texts, arguments=dict(part.arguments))
        case ToolResult():
            replaced = msgspec.structs.replace(
                part,
                call_id=replace_surrogates(part.call_id),
                content=tuple(map(replace_part_surrogates, part.content)),
            )
    return replaced if replaced != part else part  # pyright: ignore[reportReturnType] - of the same kind as it was
