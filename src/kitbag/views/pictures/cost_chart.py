"""Tokens and cost over the calls of a session: stacked bars and a line.

Used for `kitbag context --svg`, its HTML export and the web UI.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from kitbag.text.human_format import format_cost
from kitbag.views.pictures.svg import SERIES, attribute, label, legend, picture, rect

_PADDING: Final = 16.0
_LEFT, _RIGHT, _BOTTOM = 58.0, 62.0, 34.0
_MAX_BARS: Final = 240
_STACK: Final = ("cached", "written", "uncached", "output")


class CostPoint(msgspec.Struct, frozen=True, kw_only=True):
    """One call, or several in a row."""

    key: str
    label: str
    cached: int
    written: int
    uncached: int
    output: int
    cost: float | None
    total_cost: float | None
    """Up to here; None if a price is unknown."""
    note: str = ""

    @property
    def tokens(self) -> int:
        return self.cached + self.written + self.uncached + self.output


def draw_cost_chart(
    points: Sequence[CostPoint],
    title: str,
    subtitle: str,
    *,
    width: float = 960,
    height: float = 320,
    with_style: bool = True,
) -> str:
    points = _join_points(points)
    shown = [name for name in _STACK if any(getattr(point, name) for point in points)]
    has_cost = any(point.total_cost for point in points)
    names = [*shown, *(["cost"] if has_cost else [])]
    key, key_height = legend(_PADDING, 62, [(f"kb-c-{name}", SERIES[name][0]) for name in names], width - 2 * _PADDING)
    top, bottom = 62 + key_height + 10, height - _BOTTOM
    right = width - (_RIGHT if has_cost else _PADDING)
    body = [
        label(_PADDING, 30, title, size=17, style="strong", width=width - 2 * _PADDING),
        label(_PADDING, 49, subtitle, size=12, style="muted", width=width - 2 * _PADDING),
        key,
    ]
    most = _nice(max((point.tokens for point in points), default=0))
    for step in range(5):
        y = bottom - (bottom - top) * step / 4
        body.append(f'<path d="M{_LEFT:.1f} {y:.1f}H{right:.1f}" class="kb-line"/>')
        body.append(label(_LEFT - 8, y + 4, _short(most * step / 4), size=11, style="muted", anchor="end"))
    slot = (right - _LEFT) / max(len(points), 1)
    bar = min(max(slot * 0.72, 1.0), 42.0)
    for at, point in enumerate(points):
        body.append(_draw_bar(point, shown, _LEFT + slot * at + (slot - bar) / 2, bar, top, bottom, most))
    body.append(_draw_labels(points, slot, bottom))
    if has_cost:
        body.append(_draw_curve(points, slot, top, bottom, right))
    last = points[-1] if points else None
    total = format_cost(last.total_cost) if last is not None else "nothing"
    description = f"{len(points)} calls, {sum(point.tokens for point in points):,} tokens, {total}"
    return picture(width, height, title, description, "".join(body), with_style=with_style)


def _draw_bar(
    point: CostPoint, shown: Sequence[str], x: float, bar: float, top: float, bottom: float, most: float
) -> str:
    counts = [f"{SERIES[name][0].lower()} {getattr(point, name):,}" for name in shown if getattr(point, name)]
    hint = f"{point.label}: {', '.join(counts) or 'no tokens counted'}; {format_cost(point.cost)}"
    hint += f". {point.note}" if point.note else ""
    key = f' data-key="{attribute(point.key)}"' if point.key else ""
    parts = [f'<g class="kb-item"{key}><title>{attribute(hint)}</title>']
    y = bottom
    for name in shown:
        size = (bottom - top) * getattr(point, name) / most
        y -= size
        if size > 0:
            parts.append(rect(x, y, bar, size, f"kb-c-{name}"))
    if point.note:
        parts.append(f'<circle cx="{x + bar / 2:.1f}" cy="{max(y - 7, top):.1f}" r="3" class="kb-c-uncached"/>')
    return "".join((*parts, "</g>"))


def _draw_labels(points: Sequence[CostPoint], slot: float, bottom: float) -> str:
    every = max(1, round(46 / slot)) if slot else 1
    return "".join(
        label(_LEFT + slot * (at + 0.5), bottom + 16, point.label.rpartition(" ")[2], size=11, style="muted",
              anchor="middle")
        for at, point in enumerate(points)
        if at % every == 0
    )  # fmt: skip


def _draw_curve(points: Sequence[CostPoint], slot: float, top: float, bottom: float, right: float) -> str:
    known = [(at, point.total_cost) for at, point in enumerate(points) if point.total_cost is not None]
    most = _nice(max(cost for _, cost in known))
    places = [(_LEFT + slot * (at + 0.5), bottom - (bottom - top) * cost / most) for at, cost in known]
    path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
    axis = "".join(
        label(right + 8, bottom - (bottom - top) * step / 4 + 4, _dollars(most * step / 4), size=11, style="muted")
        for step in range(5)
    )
    dot = f'<circle cx="{places[-1][0]:.1f}" cy="{places[-1][1]:.1f}" r="3.5" class="kb-c-cost"/>'
    return f'<path d="{path}" class="kb-curve"/>{dot}{axis}'


def _join_points(points: Sequence[CostPoint]) -> list[CostPoint]:
    """Not more than fit; several calls in a row become one bar, their average."""
    size = -(-len(points) // _MAX_BARS) or 1
    if size == 1:
        return list(points)
    joined: list[CostPoint] = []
    for start in range(0, len(points), size):
        part = points[start : start + size]
        sums = {name: sum(getattr(point, name) for point in part) // len(part) for name in _STACK}
        costs = [point.cost for point in part if point.cost is not None]
        joined.append(
            CostPoint(
                key=part[-1].key,
                label=f"{part[0].label} to {part[-1].label.rpartition(' ')[2]}",
                **sums,
                cost=sum(costs) if len(costs) == len(part) else None,
                total_cost=part[-1].total_cost,
                note=next((point.note for point in part if point.note), ""),
            )
        )
    return joined


def _nice(value: float) -> float:
    """The next round number, for an axis."""
    if value <= 0:
        return 1.0
    power = 1.0
    while power > value:
        power /= 10
    while power * 10 <= value:
        power *= 10
    return next(step * power for step in (1, 1.2, 1.6, 2, 2.4, 3.2, 4, 6, 8, 10) if step * power >= value * 0.999)


def _short(value: float) -> str:
    if value >= 1_000_000:
        return f"{value / 1_000_000:.3g}M"
    return f"{value / 1_000:.3g}k" if value >= 1_000 else f"{value:.0f}"


def _dollars(value: float) -> str:
    return f"${value:.2f}" if value >= 0.1 or not value else f"${value:.2g}"
