"""Compares two model calls: pieces that came and went, the first byte that differs, and how much of the second the
provider can read from its cache.

Used by `kitbag context diff` and `check`, and the web UI; uses context_calls.
"""

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final, Literal

import msgspec

from kitbag.agent.context_ledger import RequestPiece, utf8_size
from kitbag.agent.model_calls import ModelCall
from kitbag.runtime.context_calls import SessionContext, unloaded_text

_EXCERPT_CHARS: Final = 60
_GRANULARITY: Final = 128
"""Tokens: what providers that cache any prefix round down to."""


class PieceChange(msgspec.Struct, frozen=True, kw_only=True):
    change: Literal["added", "removed", "changed"]
    kind: str
    name: str
    offset: int
    """In the second request; of a removed piece, in the first."""
    tokens_before: int
    tokens_after: int
    bytes_before: int
    bytes_after: int

    def to_json(self) -> dict[str, Any]:
        return {
            "change": self.change,
            "kind": self.kind,
            "name": self.name,
            "offset": self.offset,
            "tokens_before": self.tokens_before,
            "tokens_after": self.tokens_after,
            "bytes_before": self.bytes_before,
            "bytes_after": self.bytes_after,
        }


class Divergence(msgspec.Struct, frozen=True, kw_only=True):
    """The first byte in which two requests differ."""

    offset: int
    kind: str
    name: str
    """Of the piece in which they differ."""
    within: int
    """Bytes from the start of the piece."""
    before: str
    after: str
    """How the text goes on from there in each request; empty: it ends."""
    cause: str
    """Empty: unknown."""

    def to_json(self) -> dict[str, Any]:
        return {
            "offset": self.offset,
            "kind": self.kind,
            "name": self.name,
            "within": self.within,
            "before": self.before,
            "after": self.after,
            "cause": self.cause,
        }


class CallDiff(msgspec.Struct, frozen=True, kw_only=True):
    first: int
    second: int
    """Numbers of the calls; 0: the last one of the session that this one was forked from."""
    shared_bytes: int
    shared_tokens: int
    """Of the common prefix, estimated."""
    divergence: Divergence | None
    """None: the second request continues the first."""
    changes: tuple[PieceChange, ...]
    predicted: int | None
    """Tokens of the second request that the provider can read from its cache, in its own count; None if it counted
    nothing."""
    reported: int | None
    seconds: float
    """Between the calls."""

    def to_json(self) -> dict[str, Any]:
        return {
            "first": self.first,
            "second": self.second,
            "shared_bytes": self.shared_bytes,
            "shared_tokens": self.shared_tokens,
            "divergence": self.divergence.to_json() if self.divergence is not None else None,
            "changes": [change.to_json() for change in self.changes],
            "predicted_cached": self.predicted,
            "reported_cached": self.reported,
            "seconds": self.seconds,
        }


def diff_calls(context: SessionContext, first: ModelCall, second: ModelCall) -> CallDiff:
    before, after = context.request_pieces(first), context.request_pieces(second)
    same = _count_same(before, after)
    shared = sum(piece.bytes for piece in after[:same])
    shared_tokens = sum(piece.tokens for piece in after[:same])
    divergence = None
    if same < len(before):
        between = context.history.calls[max(first.number, 0) : second.number]
        is_rewound = any(call.notes.is_rewound for call in between)
        divergence = _describe_divergence(first, second, before, after, same, shared, is_rewound=is_rewound)
        shared += divergence.within
        if same < len(after) and divergence.within:
            shared_tokens += after[same].tokens * divergence.within // max(after[same].bytes, 1)
    cached = shared_tokens
    if divergence is not None and second.provider == "anthropic":
        cached = _tokens_to_marker(second, after, same)
    return CallDiff(
        first=first.number,
        second=second.number,
        shared_bytes=shared,
        shared_tokens=shared_tokens,
        divergence=divergence,
        changes=tuple(_list_changes(before, after)),
        predicted=scale_cached(first, second, cached, sum(piece.tokens for piece in after)),
        reported=second.usage.cache_read if second.usage.total_input else None,
        seconds=seconds_between(first.at, second.at),
    )


def _count_same(before: Sequence[RequestPiece], after: Sequence[RequestPiece]) -> int:
    pairs = zip(before, after, strict=False)
    different = (at for at, (one, other) in enumerate(pairs) if (one.message, one.text) != (other.message, other.text))
    return next(different, min(len(before), len(after)))


def _describe_divergence(
    first: ModelCall,
    second: ModelCall,
    before: Sequence[RequestPiece],
    after: Sequence[RequestPiece],
    at: int,
    offset: int,
    *,
    is_rewound: bool,
) -> Divergence:
    """`before` has a piece at this index; `after` may have ended."""
    old, new = before[at], after[at] if at < len(after) else None
    common = _common_length(old.text, new.text) if new is not None and new.message == old.message else 0
    within = utf8_size(old.text[:common])
    shown = new or old
    return Divergence(
        offset=offset + within,
        kind=shown.kind,
        name=shown.name,
        within=within,
        before=old.text[common : common + _EXCERPT_CHARS],
        after=new.text[common : common + _EXCERPT_CHARS] if new is not None else "",
        cause="the session was rewound" if is_rewound and old.message >= 0 else _find_cause(first, second, old, new),
    )


def _common_length(one: str, other: str) -> int:
    """Characters, by bisection: texts may be long."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _find_cause(first: ModelCall, second: ModelCall, old: RequestPiece, new: RequestPiece | None) -> str:
    if old.message < 0 or (new is not None and new.message < 0):
        return _find_prefix_cause(first, second, old, new)
    if new is not None and new.kind == "stub":
        dropped = second.notes.dropped.get(new.name)
        shown = f"the skill {new.name} was shown for one message"
        return f"the skill {new.name} was {unloaded_text(dropped)}" if dropped else shown
    if second.notes.compacted != first.notes.compacted:
        return "the session was compacted"
    if first.header.model != second.header.model:
        return "the session switched models, and reasoning goes back only to the provider that wrote it"
    if second.difference or first.difference:
        return "a secret is redacted in one of them"
    return ""


def _find_prefix_cause(first: ModelCall, second: ModelCall, old: RequestPiece, new: RequestPiece | None) -> str:
    if old.kind == "tool" or (new is not None and new.kind == "tool"):
        names = {spec.name for spec in first.tools or ()}, {spec.name for spec in second.tools or ()}
        added, removed = sorted(names[1] - names[0]), sorted(names[0] - names[1])
        signs = [*(f"+{name}" for name in added[:5]), *(f"-{name}" for name in removed[:5])]
        return f"the tools changed: {', '.join(signs)}" if signs else "the description of a tool changed"
    switches = [
        f"{what} {getattr(first.header, what) or 'none'} to {getattr(second.header, what) or 'none'}"
        for what in ("persona", "team", "model", "mode")
        if getattr(first.header, what) != getattr(second.header, what)
    ]
    if switches:
        return f"the session switched from {', '.join(switches)}"
    if second.notes.compacted != first.notes.compacted:
        return "the session was compacted, which renews the system prompt"
    name = (new or old).name
    return f"the system prompt changed: {(new or old).kind}{f' {name}' if name else ''}"


def _list_changes(before: Sequence[RequestPiece], after: Sequence[RequestPiece]) -> list[PieceChange]:
    """Pieces that only one request has. Two of one kind and name, one in each, are one that changed."""
    removed: defaultdict[tuple[str, str], list[tuple[int, RequestPiece]]] = defaultdict(list)
    counts: defaultdict[tuple[str, str, str], int] = defaultdict(int)
    for piece in after:
        counts[_key(piece)] += 1
    for offset, piece in _with_offsets(before):
        counts[_key(piece)] -= 1
        if counts[_key(piece)] < 0:
            removed[(piece.kind, piece.name)].append((offset, piece))
    for piece in before:
        counts[_key(piece)] = max(counts[_key(piece)], 0)
    changes: list[PieceChange] = []
    for offset, piece in reversed(_with_offsets(after)):  # of equal pieces, the last ones are new
        if counts[_key(piece)] > 0:
            counts[_key(piece)] -= 1
            olds = removed[(piece.kind, piece.name)] if piece.message < 0 or piece.kind in ("skill", "stub") else []
            old = olds.pop()[1] if olds else None
            changes.append(_change("changed" if old is not None else "added", offset, old, piece))
    changes.reverse()
    gone = [_change("removed", offset, piece, None) for pieces in removed.values() for offset, piece in pieces]
    return [*sorted(gone, key=lambda change: change.offset), *changes]


def _key(piece: RequestPiece) -> tuple[str, str, str]:
    return piece.kind, piece.name, piece.text


def _with_offsets(pieces: Sequence[RequestPiece]) -> list[tuple[int, RequestPiece]]:
    found: list[tuple[int, RequestPiece]] = []
    offset = 0
    for piece in pieces:
        found.append((offset, piece))
        offset += piece.bytes
    return found


def _change(
    change: Literal["added", "removed", "changed"], offset: int, old: RequestPiece | None, new: RequestPiece | None
) -> PieceChange:
    shown = new or old
    return PieceChange(
        change=change,
        kind=shown.kind if shown is not None else "",
        name=shown.name if shown is not None else "",
        offset=offset,
        tokens_before=old.tokens if old is not None else 0,
        tokens_after=new.tokens if new is not None else 0,
        bytes_before=old.bytes if old is not None else 0,
        bytes_after=new.bytes if new is not None else 0,
    )


def scale_cached(first: ModelCall, second: ModelCall, shared_tokens: int, estimated: int) -> int | None:
    """Estimated tokens that both requests begin with, in the count of the second one's provider; None if it counted
    nothing. `estimated`: all of the second request."""
    if not second.usage.total_input:
        return None
    if first.header.model != second.header.model or "compaction" in (first.kind, second.kind):
        return 0
    counted = round(shared_tokens * second.usage.total_input / estimated) if estimated else 0
    return counted if second.provider == "anthropic" else counted // _GRANULARITY * _GRANULARITY


def _tokens_to_marker(call: ModelCall, pieces: Sequence[RequestPiece], same: int) -> int:
    """The estimated tokens up to the last cache marker in the first `same` pieces. Anthropic reads up to a marker, and
    Kitbag sets one after the stable part of the system prompt and after user messages; others read any prefix."""
    diverging = pieces[same].message if same < len(pieces) else len(call.messages())
    if diverging > 0:
        last = diverging - 1 - (call.messages()[diverging - 1].role == "assistant")
        return sum(piece.tokens for piece in pieces if piece.message <= last)
    prefix = [piece for piece in pieces if piece.message < 0]
    stable = prefix[:-1] if prefix and prefix[-1].kind in ("environment", "task") else prefix
    return sum(piece.tokens for piece in stable) if same >= len(stable) else 0


def seconds_between(first: str, second: str) -> float:
    try:
        return (datetime.fromisoformat(second) - datetime.fromisoformat(first)).total_seconds()
    except ValueError:
        return 0.0
