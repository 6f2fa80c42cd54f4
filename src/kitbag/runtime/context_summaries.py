"""Sizes of all calls of a session in one pass: a request shares most messages with the one before, and only what is new
is counted, so that a long session takes time in proportion to its length.

Used by context_costs and context_check; uses context_calls and context_diff.
"""

from typing import Any, NamedTuple

import msgspec

from kitbag.agent.context_ledger import RequestPiece, count_message_bytes
from kitbag.agent.model_calls import ModelCall
from kitbag.messages import Message
from kitbag.runtime.context_calls import (
    SKILL_KINDS,
    SessionContext,
    count_words,
    is_sent,
    skill_name,
)
from kitbag.runtime.context_diff import scale_cached

_CATALOG = ("catalog", "skills")


class SkillSpan(NamedTuple):
    """The text of a skill in a request; positions are in estimated tokens."""

    name: str
    start: int
    tokens: int
    words: int
    message: int


class CallSummary(msgspec.Struct, frozen=True, kw_only=True):
    call: ModelCall
    tokens: int
    """Of the request, estimated."""
    skills: tuple[SkillSpan, ...]
    catalog_start: int
    listed_tokens: int
    listed_words: int
    """Of the catalog of skills."""
    prompt_words: int
    """Of the system prompt without preloaded skills."""
    difference: int | None
    """As ModelCall.difference."""
    before: ModelCall | None
    """The previous turn."""
    is_broken: bool
    """The request does not continue the previous one."""
    predicted: int | None
    """As CallDiff.predicted."""


class _Prefix(NamedTuple):
    """Tools and system prompt."""

    pieces: list[RequestPiece]
    tokens: int
    stable_tokens: int
    bytes: int


class _Counted(NamedTuple):
    """A request, with its tokens and bytes up to the end of each message."""

    call: ModelCall
    prefix: _Prefix
    tokens: list[int]
    bytes: list[int]
    skills: list[SkillSpan]


def summarize_calls(context: SessionContext) -> list[CallSummary]:
    counter = _Counter(context)
    origin = context.history.origin
    last = counter.count(origin, None) if origin is not None else None
    summaries: list[CallSummary] = []
    for call in context.history.calls:
        before = last if call.kind == "turn" else None
        counted = counter.count(call, before)
        summaries.append(_summarize(context, counted, before))
        if call.kind == "turn":
            last = counted
    return summaries


class _Counter:
    def __init__(self, context: SessionContext) -> None:
        self._context = context
        self._prefixes: dict[tuple[int, int], tuple[Any, _Prefix]] = {}
        """By the identity of tools and prompt, which the entry keeps alive."""

    def count(self, call: ModelCall, before: _Counted | None) -> _Counted:
        prefix = self._find_prefix(call)
        if before is not None and before.prefix is prefix and before.call.first_turn == call.first_turn:
            same = _count_same(before.call.messages(), call.messages())
            if same and before.call.provider != call.provider:  # reasoning may be sent to one and not to the other
                same = 0
            tokens, sizes = before.tokens[: same + 1], before.bytes[: same + 1]
            skills = [span for span in before.skills if span.message < same]
        else:
            same, tokens, sizes, skills = 0, [prefix.tokens], [prefix.bytes], _find_preloads(prefix)
        messages = call.messages()
        pieces = self._context.message_pieces(call, same)
        at = 0
        for number in range(same, len(messages)):
            total = tokens[-1]
            while at < len(pieces) and pieces[at].message == number:
                piece = pieces[at]
                at += 1
                if not is_sent(piece, call):
                    continue
                if piece.kind in SKILL_KINDS:
                    skills.append(SkillSpan(piece.name, total, piece.tokens, count_words(piece.text), number))
                total += piece.tokens
            tokens.append(total)
            sizes.append(sizes[-1] + count_message_bytes(messages[number : number + 1]))
        return _Counted(call, prefix, tokens, sizes, skills)

    def _find_prefix(self, call: ModelCall) -> _Prefix:
        key = (id(call.tools), id(call.prompt))
        known = self._prefixes.get(key)
        if known is None:
            pieces = self._context.prefix_pieces(call)
            tokens = sum(piece.tokens for piece in pieces)
            varies = pieces and pieces[-1].kind in ("environment", "task")
            stable = tokens - (pieces[-1].tokens if varies else 0)
            known = (call.tools, call.prompt), _Prefix(pieces, tokens, stable, sum(piece.bytes for piece in pieces))
            self._prefixes[key] = known
        return known[1]


def _find_preloads(prefix: _Prefix) -> list[SkillSpan]:
    spans: list[SkillSpan] = []
    start = 0
    for piece in prefix.pieces:
        if piece.kind in SKILL_KINDS:
            spans.append(SkillSpan(skill_name(piece), start, piece.tokens, count_words(piece.text), -1))
        start += piece.tokens
    return spans


def _count_same(before: tuple[Message, ...], after: tuple[Message, ...]) -> int:
    """How many messages are the same at the start; almost always the same objects, so that comparing is fast."""
    most = min(len(before), len(after))
    if before[:most] == after[:most]:
        return most
    low, high = 0, most - 1
    while low < high:
        middle = (low + high + 1) // 2
        if before[low:middle] == after[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _summarize(context: SessionContext, counted: _Counted, before: _Counted | None) -> CallSummary:
    call, prefix = counted.call, counted.prefix
    start = listed_tokens = listed_words = prompt_words = catalog_start = 0
    for piece in prefix.pieces:
        if piece.kind not in ("tool", *SKILL_KINDS):
            prompt_words += count_words(piece.text)
        if (piece.kind, piece.name) == _CATALOG:
            catalog_start, listed_tokens, listed_words = start, piece.tokens, count_words(piece.text)
        start += piece.tokens
    is_broken, shared = _compare(counted, before) if before is not None else (False, 0)
    is_known = call.recorded_bytes is not None and call.tools is not None
    return CallSummary(
        call=call,
        tokens=counted.tokens[-1],
        skills=tuple(counted.skills),
        catalog_start=catalog_start,
        listed_tokens=listed_tokens,
        listed_words=listed_words,
        prompt_words=prompt_words,
        difference=(call.recorded_bytes or 0) - counted.bytes[-1] if is_known else None,
        before=before.call if before is not None else None,
        is_broken=is_broken,
        predicted=scale_cached(before.call, call, shared, counted.tokens[-1]) if before is not None else None,
    )


def _compare(counted: _Counted, before: _Counted) -> tuple[bool, int]:
    """Whether the request does not continue the previous one, and the estimated tokens that a cache can have."""
    old, new = before.call.messages(), counted.call.messages()
    is_anthropic = counted.call.provider == "anthropic"
    if before.prefix is not counted.prefix and not _is_same_prefix(before.prefix, counted.prefix):
        return True, _shared_prefix_tokens(before.prefix, counted.prefix, only_stable=is_anthropic)
    same = _count_same(old, new)
    if before.call.provider != counted.call.provider:  # one may send reasoning that the other omits
        sizes = zip(before.tokens[: same + 1], counted.tokens[: same + 1], strict=True)
        same = next((at - 1 for at, (one, other) in enumerate(sizes) if one != other), same)
    if same == len(old):
        return False, counted.tokens[same]
    if same == len(old) - 1 and same < len(new) and new[same].parts[: len(old[same].parts)] == old[same].parts:
        return False, before.tokens[-1]  # the last message has grown
    if not is_anthropic:
        return True, counted.tokens[same]
    marked = same - (same > 0 and new[same - 1].role == "assistant")
    return True, counted.tokens[marked] if marked else counted.prefix.stable_tokens


def _is_same_prefix(before: _Prefix, after: _Prefix) -> bool:
    return [piece.text for piece in before.pieces] == [piece.text for piece in after.pieces]


def _shared_prefix_tokens(before: _Prefix, after: _Prefix, *, only_stable: bool) -> int:
    shared = 0
    for old, new in zip(before.pieces, after.pieces, strict=False):
        if old.text != new.text:
            break
        shared += new.tokens
    return shared if not only_stable else after.stable_tokens if shared >= after.stable_tokens else 0
