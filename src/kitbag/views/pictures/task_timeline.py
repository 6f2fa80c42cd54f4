"""Tasks on a timeline: one row each, subtasks below their task, bars from start to end.

Used for `kitbag tasks --svg` and the web UI.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from kitbag.text.human_format import format_duration
from kitbag.views.pictures.svg import STATUSES, attribute, label, legend, measure, picture, rect

_PADDING: Final = 16.0
_ROW: Final = 28.0
_INDENT: Final = 14.0
_STEPS: Final = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 14_400, 43_200, 86_400)
"""Seconds between two lines of the axis."""


class TaskBar(msgspec.Struct, frozen=True, kw_only=True):
    key: str
    label: str
    depth: int
    status: str
    """A key of STATUSES."""
    start: float
    """Seconds since the epoch."""
    end: float
    summary: str
    """Beside the bar."""
    detail: str
    """Shown when the pointer rests on it."""


def draw_task_timeline(
    tasks: Sequence[TaskBar], title: str, subtitle: str, *, width: float = 960, with_style: bool = True
) -> str:
    first = min((task.start for task in tasks), default=0.0)
    span = max(max((task.end for task in tasks), default=0.0) - first, 1.0)
    names = [name for name in STATUSES if any(task.status == name for task in tasks)]
    key, key_height = legend(
        _PADDING, 62, [(f"kb-s-{name}", STATUSES[name][0]) for name in names], width - 2 * _PADDING
    )
    wanted = max((measure(task.label, 12) + _INDENT * task.depth for task in tasks), default=0.0) + 16
    left = _PADDING + min(max(wanted, 90.0), width * 0.34)
    right = width - _PADDING - 96
    top = 62 + key_height + 24
    bottom = top + _ROW * max(len(tasks), 1)
    body = [
        label(_PADDING, 30, title, size=17, style="strong", width=width - 2 * _PADDING),
        label(_PADDING, 49, subtitle, size=12, style="muted", width=width - 2 * _PADDING),
        key,
        _draw_axis(span, left, right, top, bottom),
    ]
    for at, task in enumerate(tasks):
        body.append(_draw_task(task, top + _ROW * at, first, span, left, right))
    if not tasks:
        body.append(label(_PADDING, top + 18, "no tasks", style="muted"))
    description = f"{len(tasks)} tasks within {format_duration(span)}"
    return picture(width, bottom + _PADDING, title, description, "".join(body), with_style=with_style)


def _draw_axis(span: float, left: float, right: float, top: float, bottom: float) -> str:
    most = max(int((right - left) / 80), 2)
    step = next((step for step in _STEPS if span / step <= most), 86_400 * (int(span / 86_400 / most) + 1))
    parts: list[str] = []
    at = 0
    while at <= span:
        x = left + (right - left) * at / span
        parts.append(f'<path d="M{x:.1f} {top - 6:.1f}V{bottom:.1f}" class="kb-line"/>')
        parts.append(
            label(x, top - 11, format_duration(at) if at else "start", size=11, style="muted", anchor="middle")
        )
        at += step
    return "".join(parts)


def _draw_task(task: TaskBar, y: float, first: float, span: float, left: float, right: float) -> str:
    scale = (right - left) / span
    x, length = left + (task.start - first) * scale, max((task.end - task.start) * scale, 3.0)
    indent = _PADDING + _INDENT * task.depth
    hint = f"{task.label}: {STATUSES[task.status][0].lower()}, {format_duration(task.end - task.start)}. {task.detail}"
    branch = ""
    if task.depth:
        branch = f'<path d="M{indent - 9:.1f} {y - 4:.1f}V{y + _ROW / 2:.1f}H{indent - 3:.1f}" class="kb-line"/>'
    fits_inside = measure(task.summary, 11) + 12 < length
    summary_x = x + 7 if fits_inside else x + length + 6
    return "".join(
        (
            f'<g class="kb-item" data-key="{attribute(task.key)}"><title>{attribute(hint)}</title>',
            branch,
            label(indent, y + _ROW / 2 + 4, task.label, width=left - indent - 8),
            rect(x, y + 5, length, _ROW - 10, f"kb-s-{task.status}", 4),
            label(summary_x, y + _ROW / 2 + 4, task.summary, size=11, style="" if fits_inside else "muted"),
            "</g>",
        )
    )
