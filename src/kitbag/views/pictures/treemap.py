"""A treemap: nested rectangles whose areas are shares of a whole, squarified, in groups.

Used for the context of a model call.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import msgspec

from kitbag.views.pictures.svg import GROUPS, attribute, fit, label, legend, measure, picture, rect

_MIN_SIDE: Final = 3.0
"""Pixels of the shorter side; thinner rectangles are drawn as one."""
_HEADING: Final = 20.0
_PADDING: Final = 16.0


class TreemapItem(msgspec.Struct, frozen=True, kw_only=True):
    key: str
    """Identifies the rectangle (`data-key`), for a page that selects it."""
    group: str
    """A key of GROUPS."""
    label: str
    value: int
    detail: str
    """Shown when the pointer rests on it."""


class _Box(NamedTuple):
    x: float
    y: float
    width: float
    height: float


def draw_treemap(
    items: Sequence[TreemapItem],
    title: str,
    subtitle: str,
    *,
    width: float = 960,
    height: float = 560,
    unit: str = "tokens",
    with_style: bool = True,
) -> str:
    total = sum(item.value for item in items)
    groups = [(name, [item for item in items if item.group == name and item.value > 0]) for name in GROUPS]
    groups = [(name, members) for name, members in groups if members]
    groups.sort(key=lambda group: -_sum(group[1]))
    entries = [(f"kb-g-{name}", f"{GROUPS[name][0]} {_share(_sum(members), total)}") for name, members in groups]
    key, key_height = legend(_PADDING, 62, entries, width - 2 * _PADDING)
    top = 62 + key_height + 4
    area = _Box(_PADDING, top, width - 2 * _PADDING, max(height - top - _PADDING, 60))
    body = [
        label(_PADDING, 30, title, size=17, style="strong", width=width - 2 * _PADDING),
        label(_PADDING, 49, subtitle, size=12, style="muted", width=width - 2 * _PADDING),
        key,
    ]
    for (name, members), box in zip(groups, _squarify([_sum(m) for _, m in groups], area), strict=True):
        body.append(_draw_group(name, members, box, total, unit))
    listed = "; ".join(f"{GROUPS[name][0]} {_sum(members):,}" for name, members in groups)
    description = f"{total:,} {unit}: {listed}" if groups else "nothing to show"
    return picture(width, top + area.height + _PADDING, title, description, "".join(body), with_style=with_style)


def _draw_group(name: str, members: list[TreemapItem], box: _Box, total: int, unit: str) -> str:
    value = _sum(members)
    heading = f"{GROUPS[name][0]} · {value:,}"
    has_heading = box.height > 54 and box.width > 70 and len(members) > 1
    inner = _Box(box.x, box.y + _HEADING, box.width, box.height - _HEADING) if has_heading else box
    parts = [f'<g class="kb-group"><title>{attribute(f"{GROUPS[name][0]}: {value:,} {unit}")}</title>']
    if has_heading:
        parts.append(rect(box.x, box.y, box.width, _HEADING + 2, f"kb-cell kb-g-{name}"))
        parts.append(label(box.x + 7, box.y + 14.5, heading, size=11.5, style="strong", width=box.width - 12))
    members = sorted(members, key=lambda item: -item.value)
    shown, rest = _merge_small(members, inner)
    values = [item.value for item in shown] + ([_sum(rest)] if rest else [])
    boxes = _squarify(values, inner)
    for item, place in zip(shown, boxes, strict=False):
        parts.append(_draw_cell(name, item, place, total, unit))
    if rest:
        other = TreemapItem(key="", group=name, label=f"{len(rest)} more", value=_sum(rest), detail="small pieces")
        parts.append(_draw_cell(name, other, boxes[-1], total, unit))
    return "".join((*parts, "</g>"))


def _draw_cell(group: str, item: TreemapItem, box: _Box, total: int, unit: str) -> str:
    hint = f"{item.label}: {item.value:,} {unit}, {_share(item.value, total)}. {item.detail}"
    key = f' data-key="{attribute(item.key)}"' if item.key else ""
    parts = [f'<g class="kb-item"{key}><title>{attribute(hint)}</title>', rect(*box, f"kb-cell kb-g-{group}")]
    room = box.width - 12
    if box.height >= 17 and room > 24:
        size = 12 if box.height >= 24 else 10.5
        baseline = box.y + min(15.5, box.height / 2 + 4)
        name = fit(item.label, room, size)
        parts.append(label(box.x + 6, baseline, name, size=size))
        if box.height >= 36 and name:
            value = f"{item.value:,} · {_share(item.value, total)}"
            value = value if measure(value, 10.5) <= room else f"{item.value:,}"
            parts.append(label(box.x + 6, baseline + 15, value, size=10.5, style="soft", width=room))
    return "".join((*parts, "</g>"))


def _merge_small(members: list[TreemapItem], box: _Box) -> tuple[list[TreemapItem], list[TreemapItem]]:
    """Members that are large enough to see, and the others, largest first."""
    scale = box.width * box.height / max(_sum(members), 1)
    shown = [item for item in members if item.value * scale >= _MIN_SIDE * _MIN_SIDE * 6]
    rest = members[len(shown) :]
    return (members, []) if len(rest) == 1 else (shown, rest)


def _squarify(values: Sequence[float], box: _Box) -> list[_Box]:
    """Boxes of these areas, largest first, each as square as possible (Bruls, Huizing and van Wijk)."""
    return list(_place([float(value) for value in values], box))


def _place(values: list[float], box: _Box) -> Iterator[_Box]:
    at = 0
    while at < len(values):
        left = sum(values[at:])
        if left <= 0 or box.width <= 0 or box.height <= 0:
            yield from (_Box(box.x, box.y, 0, 0) for _ in values[at:])
            return
        scale = box.width * box.height / left
        side = min(box.width, box.height)
        count = 1
        while at + count < len(values) and _worst(values[at : at + count + 1], scale, side) <= _worst(
            values[at : at + count], scale, side
        ):
            count += 1
        row = values[at : at + count]
        thickness = sum(row) * scale / side
        offset = 0.0
        for value in row:
            length = value * scale / thickness if thickness else 0.0
            if box.width >= box.height:
                yield _Box(box.x, box.y + offset, thickness, length)
            else:
                yield _Box(box.x + offset, box.y, length, thickness)
            offset += length
        if box.width >= box.height:
            box = _Box(box.x + thickness, box.y, box.width - thickness, box.height)
        else:
            box = _Box(box.x, box.y + thickness, box.width, box.height - thickness)
        at += count


def _worst(row: Sequence[float], scale: float, side: float) -> float:
    """The worst aspect ratio of a row."""
    areas = [max(value * scale, 1e-9) for value in row]
    thickness = sum(areas) / side
    return max(max(thickness * thickness / area, area / (thickness * thickness)) for area in areas)


def _sum(items: Sequence[TreemapItem]) -> int:
    return sum(item.value for item in items)


def _share(value: int, total: int) -> str:
    share = value / total if total else 0.0
    return f"{share:.0%}" if share >= 0.095 or not share else f"{share:.1%}"
