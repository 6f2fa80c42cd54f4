"""Pictures of a session's model calls: the treemap of a request and the cost over time.

Used by `kitbag context`, its HTML export and the web UI; takes the values of runtime/context_calls and context_costs.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from kitbag.runtime.context_calls import CallContext, CallPiece
from kitbag.runtime.context_check import ContextFinding
from kitbag.runtime.context_costs import ContextCosts
from kitbag.text.human_format import format_cost, format_count, shorten_path
from kitbag.views.pictures.cost_chart import CostPoint, draw_cost_chart
from kitbag.views.pictures.treemap import TreemapItem, draw_treemap

_GROUPS: Final = {
    "tool": "tools",
    "memory": "memory",
    "catalog": "catalog",
    **dict.fromkeys(("skill", "one-message", "preload"), "skill"),
    **dict.fromkeys(("user", "mentioned", "image"), "user"),
    **dict.fromkeys(("reply", "thinking", "call"), "reply"),
    "result": "result",
    **dict.fromkeys(("summary", "changes", "suggestions", "stub"), "other"),
}
"""Every other kind is a section of the system prompt."""
_TITLES: Final = {
    "user": "user message",
    "reply": "reply",
    "thinking": "reasoning",
    "summary": "summary",
    "changes": "changes",
    "suggestions": "suggestions",
    "base": "instructions",
    "tools": "tool guidance",
    "skills": "skill guidance",
    "provider": "provider guidance",
    "environment": "environment",
    "identity": "identity",
    "guidelines": "guidelines",
    "task": "task",
}


def piece_group(piece: CallPiece) -> str:
    if piece.kind == "agent":
        return "agent" if piece.message else "prompt"
    return _GROUPS.get(piece.kind, "prompt")


def piece_label(piece: CallPiece) -> str:
    """A short name."""
    if piece.kind in ("reply", "user", "summary", "thinking", "changes", "suggestions"):
        return f"{_TITLES[piece.kind]}, turn {piece.turn}"
    if piece.kind in _TITLES:
        return _TITLES[piece.kind]
    name = shorten_path(piece.name) if piece.name.startswith("/") else piece.name
    if piece.kind in ("call", "result", "stub", "image"):
        return f"{name} {piece.kind}".strip()
    return f"{name} catalog" if piece.kind == "catalog" else name or piece.kind


def draw_call(context: CallContext, *, width: float = 960, height: float = 560, with_style: bool = True) -> str:
    call = context.call
    groups: dict[tuple[str, str], list[CallPiece]] = {}
    keys: dict[tuple[str, str], int] = {}
    for index, piece in enumerate(context.pieces):  # calls and results of one tool are one rectangle
        key = (piece_group(piece), piece_label(piece))
        groups.setdefault(key, []).append(piece)
        keys.setdefault(key, index)
    items = [
        TreemapItem(
            key=str(keys[group, name]),
            group=group,
            label=f"{piece_label(pieces[0])} ×{len(pieces)}" if len(pieces) > 1 else piece_label(pieces[0]),
            value=sum(piece.tokens for piece in pieces),
            detail=_describe(pieces),
        )
        for (group, name), pieces in groups.items()
    ]
    title = f"Call {call.number}: what {call.model or 'the model'} was given" if call.at else "What would be sent now"
    counted = f", {call.usage.total_input:,} counted by the provider" if call.usage.total_input else ""
    cost = f" · {format_cost(context.input_cost)}" if context.input_cost is not None else ""
    subtitle = f"{context.tokens:,} tokens estimated{counted} · {context.bytes:,} bytes{cost}"
    return draw_treemap(items, title, subtitle, width=width, height=height, with_style=with_style)


def _describe(pieces: Sequence[CallPiece]) -> str:
    first = pieces[0]
    size = sum(piece.bytes for piece in pieces)
    costs = [piece.cost for piece in pieces]
    known = [cost for cost in costs if cost is not None]
    cost = f", {format_cost(sum(known))}" if known and len(known) == len(costs) else ""
    return f"{size:,} bytes from byte {first.offset:,}{cost}. From {first.source}: {first.reason}."


def draw_costs(
    costs: ContextCosts,
    title: str = "Tokens and cost by call",
    *,
    width: float = 960,
    height: float = 320,
    findings: Sequence[ContextFinding] = (),
    with_style: bool = True,
) -> str:
    """`findings`: cache breaks among them are marked."""
    breaks: Mapping[int, str] = {finding.call: finding.text for finding in findings if finding.code == "break"}
    points = [
        CostPoint(
            key=str(row.call.number),
            label=f"{'call' if row.call.kind == 'turn' else 'compaction'} {row.call.number}",
            cached=row.call.usage.cache_read,
            written=row.call.usage.cache_write,
            uncached=row.call.usage.input,
            output=row.call.usage.output,
            cost=row.call.cost,
            total_cost=row.total_cost,
            note=breaks.get(row.call.number, ""),
        )
        for row in costs.timeline
    ]
    counted = sum(point.cached + point.written + point.uncached for point in points)
    cached = sum(point.cached for point in points)
    total = points[-1].total_cost if points else 0.0
    share = f", {cached / counted:.0%} of them cached" if counted else ""
    subtitle = f"{format_count(len(points), 'call')} · {counted:,} input tokens{share} · {format_cost(total)}"
    return draw_cost_chart(points, title, subtitle, width=width, height=height, with_style=with_style)
