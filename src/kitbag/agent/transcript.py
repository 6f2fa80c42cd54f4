"""A conversation as a provider accepts it, whatever the records look like after a crash, a cut or an edit.

Pure functions on messages, used by session. What comes out begins with a user's message, alternates roles, and
has exactly one result for each call, in the message right after it; what does not fit is mended, and said.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeVar

from kitbag.messages import Image, Message, Part, Text, Thinking, ToolCall, ToolResult

P = TypeVar("P", bound=Part)

NEVER_RUN = "Not run: the session was interrupted before this call began."
UNKNOWN_OUTCOME = (
    "interrupted (unknown outcome): the session ended while this call ran. It may have taken effect, wholly or in part."
    " Look before you repeat it."
)


class NormalizedTranscript(NamedTuple):
    messages: tuple[Message, ...]
    problems: tuple[str, ...]


def normalize_transcript(
    messages: Iterable[Message], started_calls: frozenset[str] = frozenset()
) -> NormalizedTranscript:
    """`began` are the calls with an intent in the journal: without a result, their outcome is not known."""
    problems: list[str] = []
    mended: list[Message] = []
    waiting: dict[str, ToolCall] = {}
    seen: set[str] = set()
    for message in _merge_adjacent(messages):
        if message.role == "assistant":
            parts = _drop_repeated_calls(message.parts, seen, problems)
            if not mended and parts:
                problems.append("the conversation began with a reply")
                mended.append(Message("user", (Text("(The beginning of this conversation is missing.)"),)))
            if parts:
                _answer_open_calls(mended, waiting, started_calls, problems)
                mended.append(Message("assistant", parts))
                waiting = {part.id: part for part in parts if isinstance(part, ToolCall)}
        else:
            results, rest = _match_results(message.parts, waiting, problems)
            given = {result.call_id for result in results}
            results += [
                _make_missing_result(call, started_calls, problems) for call in waiting.values() if call.id not in given
            ]
            order = {call_id: at for at, call_id in enumerate(waiting)}
            results.sort(key=lambda result: order[result.call_id])
            waiting = {}
            if results or rest:
                mended.append(Message("user", (*results, *rest)))
    _answer_open_calls(mended, waiting, started_calls, problems)
    return NormalizedTranscript(tuple(_merge_adjacent(mended)), tuple(problems))


def _merge_adjacent(messages: Iterable[Message]) -> list[Message]:
    """Neighbours of one role become one message; empty ones vanish."""
    joined: list[Message] = []
    for message in messages:
        if not message.parts:
            continue
        if joined and joined[-1].role == message.role:
            joined[-1] = Message(message.role, (*joined[-1].parts, *message.parts))
        else:
            joined.append(message)
    return joined


def _drop_repeated_calls(parts: Sequence[Part], seen: set[str], problems: list[str]) -> tuple[Part, ...]:
    kept: list[Part] = []
    for part in parts:
        if isinstance(part, ToolResult):
            problems.append("a result stood in a reply")
            continue
        if isinstance(part, ToolCall):
            if part.id in seen:
                problems.append(f"the call {part.id} was there twice")
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
                problems.append("a call stood in a user's message")
            else:
                rest.append(part)
        elif part.call_id not in open_calls:
            problems.append(f"a result for {part.call_id}, which nobody called")
        elif part.call_id in results:
            problems.append(f"a second result for {part.call_id}")
        else:
            results[part.call_id] = part
    return list(results.values()), rest


def _make_missing_result(call: ToolCall, started_calls: frozenset[str], problems: list[str]) -> ToolResult:
    problems.append(f"the call {call.id} ({call.name}) had no result")
    text = UNKNOWN_OUTCOME if call.id in started_calls else NEVER_RUN
    return ToolResult(call.id, (Text(text),), is_error=True)


def _answer_open_calls(
    normalized: list[Message], open_calls: dict[str, ToolCall], started_calls: frozenset[str], problems: list[str]
) -> None:
    """Results for calls that nothing answers."""
    if open_calls:
        normalized.append(
            Message("user", tuple(_make_missing_result(call, started_calls, problems) for call in open_calls.values()))
        )
        open_calls.clear()


def replace_surrogates(text: str) -> str:
    """Without half characters (lone surrogates), which no provider takes. Raises AttributeError for what is no text."""
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
            made: Part = Text(replace_surrogates(text))
        case Thinking():
            made = Thinking(*map(replace_surrogates, part))
        case Image():
            made = Image(*map(replace_surrogates, part))
        case ToolCall():
            texts = {
                "id": replace_surrogates(part.id),
                "name": replace_surrogates(part.name),
                "raw": replace_surrogates(part.raw),
            }
            made = part._replace(**texts, arguments=dict(part.arguments))
        case ToolResult():
            made = part._replace(
                call_id=replace_surrogates(part.call_id), content=tuple(map(replace_part_surrogates, part.content))
            )
    return made if made != part else part  # pyright: ignore[reportReturnType] - of the same kind as it was
