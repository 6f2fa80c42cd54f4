"""Pictures: well-formed whatever is in them, areas that are true, readable without color."""

import re
from xml.etree import ElementTree

from hypothesis import given, settings
from hypothesis import strategies as st

from kitbag.views.pictures.cost_chart import CostPoint, draw_cost_chart
from kitbag.views.pictures.svg import GROUPS, PICTURE_CSS, STATUSES
from kitbag.views.pictures.task_timeline import TaskBar, draw_task_timeline
from kitbag.views.pictures.treemap import TreemapItem, draw_treemap
from support.matrix import examples

_text = st.text(max_size=20) | st.sampled_from(
    ["</svg><script>", "a & b", "\x00\x1b[31m", "\u202eevil", "é" * 50, "'\"<"]
)
_item = st.builds(
    TreemapItem,
    key=_text,
    group=st.sampled_from([*GROUPS]),
    label=_text,
    value=st.integers(0, 100_000),
    detail=_text,
)
_count = st.integers(0, 1_000_000)
_cost = st.none() | st.floats(0, 1_000)
_point = st.builds(
    CostPoint, key=_text, label=_text, cached=_count, written=_count, uncached=_count, output=_count, cost=_cost,
    total_cost=_cost, note=_text,
)  # fmt: skip
_bar = st.builds(
    TaskBar, key=_text, label=_text, depth=st.integers(0, 8), status=st.sampled_from([*STATUSES]),
    start=st.floats(0, 1e6), end=st.floats(1e6, 1e8), summary=_text, detail=_text,
)  # fmt: skip


def elements(svg: str) -> list[ElementTree.Element]:
    return list(ElementTree.fromstring(svg).iter())


def assert_harmless(svg: str) -> None:
    names = {element.tag.rpartition("}")[2] for element in elements(svg)}
    assert names <= {"svg", "title", "desc", "style", "rect", "text", "g", "path", "circle"}
    assert not any(name.lower().startswith("on") for element in elements(svg) for name in element.attrib)


@settings(max_examples=examples(10))
@given(items=st.lists(_item, max_size=30), title=_text, width=st.integers(200, 1_400))
def test_a_treemap_is_well_formed_and_its_cells_do_not_leave_it(
    items: list[TreemapItem], title: str, width: int
) -> None:
    drawn = draw_treemap(items, title, title, width=width)
    assert_harmless(drawn)
    for x, y, cell_width, cell_height in cells(drawn):
        assert cell_width >= 0
        assert cell_height >= 0
        assert x >= 0
        assert y >= 0
        assert x + cell_width <= width + 1


def cells(svg: str) -> list[tuple[float, float, float, float]]:
    found = [element for element in elements(svg) if "kb-cell" in element.get("class", "")]
    return [(*(float(one.get(name, "0")) for name in ("x", "y", "width", "height")),) for one in found]  # type: ignore[misc]


def test_the_area_of_a_cell_is_its_share() -> None:
    values = (600, 300, 80, 20)
    items = [
        TreemapItem(key=str(value), group=group, label=str(value), value=value, detail="")
        for value, group in zip(values, ("tools", "user", "skill", "result"), strict=True)
    ]
    areas = [width * height for _, _, width, height in cells(draw_treemap(items, "t", "s"))]
    whole = sum(areas)
    assert [round(1_000 * area / whole) for area in areas] == [*values]


def test_many_small_pieces_are_one_cell() -> None:
    small = [TreemapItem(key=str(at), group="tools", label=f"t{at}", value=1, detail="") for at in range(500)]
    big = TreemapItem(key="b", group="user", label="big", value=1_000_000, detail="")
    drawn = draw_treemap([*small, big], "t", "s")
    assert len(cells(drawn)) < 10
    assert "500 more" in drawn


@settings(max_examples=examples(10))
@given(points=st.lists(_point, max_size=12))
def test_a_chart_is_well_formed(points: list[CostPoint]) -> None:
    assert_harmless(draw_cost_chart(points, "t", "s"))


def test_a_chart_of_many_calls_joins_them() -> None:
    point = CostPoint(key="1", label="call 1", cached=5, written=0, uncached=5, output=1, cost=0.1, total_cost=0.1)
    drawn = draw_cost_chart([point] * 5_000, "t", "s")
    assert drawn.count("kb-item") <= 240


@settings(max_examples=examples(10))
@given(bars=st.lists(_bar, max_size=12))
def test_a_timeline_is_well_formed(bars: list[TaskBar]) -> None:
    assert_harmless(draw_task_timeline(bars, "t", "s"))


def test_a_picture_says_in_words_what_it_shows() -> None:
    item = TreemapItem(key="1", group="skill", label="sql-style", value=40, detail="loaded")
    drawn = elements(draw_treemap([item], "The context", "s"))
    assert drawn[0].get("role") == "img"
    assert [element.text for element in drawn if element.tag.endswith("desc")] == ["40 tokens: Loaded skills 40"]
    assert "sql-style: 40 tokens, 100%. loaded" in [element.text for element in drawn]


def test_a_page_with_a_strict_policy_has_no_style_in_its_pictures() -> None:
    drawn = draw_treemap([], "t", "s", with_style=False)
    assert "<style" not in drawn
    assert 'style="' not in drawn


def test_text_is_readable_on_every_color_in_light_and_dark() -> None:
    for tables, at, foreground in ((GROUPS, 1, "fg"), (GROUPS, 2, "fg")):
        text = re.findall(rf"--kb-{foreground}:(#\w+)", PICTURE_CSS)[at - 1]
        for name, colors in tables.items():
            assert contrast(text, colors[at]) >= 4.5, (name, at)


def contrast(one: str, other: str) -> float:
    """As WCAG defines it."""

    def light(color: str) -> float:
        parts = [int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    high, low = sorted((light(one), light(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)
