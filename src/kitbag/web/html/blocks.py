"""Renders blocks as HTML: one `<article class="block block-KIND">` each.

Used by the web UI for everything it shows. Cleans every text first, as in the terminal (styled_text.Cleaner), and
limits its size; elements escapes it.
"""

from collections.abc import Callable
from typing import Final, assert_never

from kitbag.text.human_format import format_count, format_duration
from kitbag.views.blocks import (
    Bar,
    BarsBlock,
    Block,
    DiffBlock,
    FieldsBlock,
    LinesBlock,
    NoticeBlock,
    ReplyBlock,
    TableBlock,
    ThinkingBlock,
    ToolBlock,
    UserBlock,
    VerbatimBlock,
)
from kitbag.views.rendering.context_bars import bar_widths, format_percent
from kitbag.views.rendering.diff import is_diff
from kitbag.views.rendering.render import MAX_USER_CHARS, MAX_USER_LINES, limit_text
from kitbag.views.rendering.styled_text import Cleaner
from kitbag.views.rendering.table import is_figure
from kitbag.views.rendering.tool_call import format_seconds
from kitbag.web.html.diff import diff_html
from kitbag.web.html.elements import EMPTY, Attribute, Html, element, icon, join

Redact = Callable[[str], str]
_MAX_DETAIL_CHARS: Final = 60_000
_MAX_OPEN_DIFF_LINES: Final = 30
"""A longer diff of a tool call is folded."""
_MAX_LINES: Final = 2_000
_MAX_ROWS: Final = 2_000
_SHARE_COLORS: Final = 8
_BAR_UNITS: Final = 1_000
_SEVERITIES: Final = {"error": "Error", "warning": "Warning", "info": "Note"}
_EXACT: Final = Cleaner(str, keeps_tabs=True)
"""For what the user is asked to approve: secrets are not redacted."""


def render_block(block: Block, redact: Redact) -> str:
    return block_html(block, Cleaner(redact, keeps_tabs=True))


def block_html(block: Block, clean: Cleaner) -> Html:
    match block:
        case LinesBlock():
            return _lines(block, clean)
        case UserBlock():
            return _user(block, clean)
        case ReplyBlock():
            return _reply(block, clean)
        case ThinkingBlock():
            return _thinking(block, clean)
        case ToolBlock():
            return _tool(block, clean)
        case NoticeBlock():
            return _notice(block, clean)
        case TableBlock():
            return _table(block, clean)
        case FieldsBlock():
            return _fields(block, clean)
        case BarsBlock():
            return _bars(block, clean)
        case VerbatimBlock():
            return _verbatim(block, _EXACT if block.exact else clean)
        case DiffBlock():
            clean = _EXACT if block.exact else clean
            return _article("diff", diff_html(clean.text(limit_text(block.text))) if block.text.strip() else EMPTY)
        case _:
            assert_never(block)


def _article(kind: str, *children: str, css: str = "", label: str = "") -> Html:
    attributes: dict[str, Attribute] = {"aria-label": label} if label else {}
    return element("article", *children, css=f"block block-{kind} {css}".rstrip(), attributes=attributes)


def _title(text: str, clean: Cleaner) -> Html:
    return element("p", clean.line(text), css="block-title") if text else EMPTY


def _foot(text: str, clean: Cleaner) -> Html:
    return element("p", clean.line(text), css="block-foot") if text else EMPTY


def _note(omitted: int, noun: str) -> Html:
    return element("p", f"{format_count(omitted, f'more {noun}')} omitted", css="omitted") if omitted > 0 else EMPTY


# Conversation


def _lines(block: LinesBlock, clean: Cleaner) -> Html:
    lines = [
        element(
            "div",
            *(
                element("span", clean.line(span.text), css=f"tone-{span.tone}")
                if span.tone != "plain"
                else clean.line(span.text)
                for span in line
            ),
            css="line",
        )
        for line in block.lines[:_MAX_LINES]
    ]
    return _article("lines", *lines, _note(len(block.lines) - _MAX_LINES, "line"))


def _user(block: UserBlock, clean: Cleaner) -> Html:
    lines = clean.text(limit_text(block.text, MAX_USER_CHARS).strip("\n")).split("\n")
    shown, rest = lines[:MAX_USER_LINES], lines[MAX_USER_LINES:]
    if len(rest) <= 1:
        shown, rest = lines, []
    more = (
        element(
            "details",
            element("summary", format_count(len(rest), "more line")),
            element("div", "\n".join(rest), css="text"),
            css="more",
        )
        if rest
        else EMPTY
    )
    images = element("p", format_count(block.images, "image"), css="images") if block.images > 0 else EMPTY
    return _article("user", element("div", "\n".join(shown), css="text"), more, images, label="You")


def _reply(block: ReplyBlock, clean: Cleaner) -> Html:
    from kitbag.web.html.markdown import markdown_html

    content = markdown_html(clean.text(limit_text(block.text)), clean.text(block.head[:MAX_USER_CHARS]), clean)
    if block.begins:
        return _article("reply", content, css="prose begins", label="Reply")
    return _article("reply", content, css="prose continues")


def _thinking(block: ThinkingBlock, clean: Cleaner) -> Html:
    elapsed = f"{block.seconds:.0f}s" if block.seconds < 60 else format_duration(block.seconds)
    label = f"Thought for {elapsed}" if block.seconds >= 0.5 else "Thought"
    text = clean.text(limit_text(block.text, _MAX_DETAIL_CHARS)).strip("\n")
    summary = element("summary", label)
    details = element("details", summary, element("div", text, css="text"), attributes={"open": block.is_open})
    return _article("thinking", details)


def _tool(call: ToolBlock, clean: Cleaner) -> Html:
    state = "failed" if call.is_error else "done"
    mark = element(
        "span", "✗" if call.is_error else "✓", css="tool-mark", attributes={"role": "img", "aria-label": state}
    )
    parts = [mark, element("span", clean.line(call.name), css="tool-name")]
    for css, text in (
        ("tool-title", clean.line(call.title)),
        ("tool-summary", clean.line(call.summary)),
        ("tool-time", format_seconds(call.seconds)),
    ):
        if text:
            parts.append(element("span", text, css=css))
    css = "tool-error" if call.is_error else ""
    if not call.details.strip():
        return _article("tool", element("div", EMPTY, *parts, css="tool-line"), css=css)
    details = clean.text(call.details[:_MAX_DETAIL_CHARS])
    omitted = _note(len(call.details) - _MAX_DETAIL_CHARS, "character")
    has_short_diff = is_diff(details) and details.count("\n") <= _MAX_OPEN_DIFF_LINES
    body = diff_html(details) if is_diff(details) else _pre(details.strip("\n"), "Output")
    return _article(
        "tool",
        element(
            "details",
            element("summary", *parts, css="tool-line"),
            element("div", body, omitted, css="tool-body"),
            attributes={"open": call.is_open or call.is_error or has_short_diff},
        ),
        css=css,
    )


def _pre(text: str, label: str) -> Html:
    return element("pre", text, css="pre", attributes={"tabindex": "0", "role": "group", "aria-label": label})


def _notice(block: NoticeBlock, clean: Cleaner) -> Html:
    severity = block.severity if block.severity in _SEVERITIES else "error"
    text = clean.text(limit_text(block.text, MAX_USER_CHARS).strip("\n"))
    fix = clean.text(limit_text(block.fix, MAX_USER_CHARS).strip("\n")) if block.fix else ""
    fix_label = EMPTY if severity == "info" else element("strong", "Fix: ")  # nothing to fix
    body = element(
        "div",
        element("p", element("strong", f"{_SEVERITIES[severity]}: ", css="severity"), text),
        element("p", fix_label, fix, css="fix") if fix else EMPTY,
        css="notice-text",
    )
    return _article("notice", icon(severity), body, css=f"severity-{severity}")


# Data


def _table(block: TableBlock, clean: Cleaner) -> Html:
    count = max(len(block.headers), *(len(row) for row in block.rows), 0)
    rows = [[clean.line(cell) for cell in (*row, *[""] * (count - len(row)))] for row in block.rows[:_MAX_ROWS]]
    heads = [clean.line(head) for head in (*block.headers, *[""] * (count - len(block.headers)))]
    right = {at for at in range(count) if rows and all(is_figure(row[at]) for row in rows)}
    classes = ["number" if at in right else "" for at in range(count)]
    head = element(
        "tr",
        *(element("th", text, css=css, attributes={"scope": "col"}) for text, css in zip(heads, classes, strict=True)),
    )
    body = [
        element("tr", *(element("td", text, css=css) for text, css in zip(row, classes, strict=True))) for row in rows
    ]
    table = element("table", element("thead", head) if any(heads) else EMPTY, element("tbody", *body), css="data-table")
    label = clean.line(block.title) or "Table"
    scroll = element(
        "div", table, css="table-scroll", attributes={"tabindex": "0", "role": "group", "aria-label": label}
    )
    return _article(
        "table",
        _title(block.title, clean),
        scroll if rows and count else EMPTY,
        _note(len(block.rows) - _MAX_ROWS, "row"),
        _foot(block.foot, clean),
    )


def _fields(block: FieldsBlock, clean: Cleaner) -> Html:
    pairs = [
        element(
            "div",
            element("dt", clean.line(label)),
            element("dd", clean.text(limit_text(value, MAX_USER_CHARS)).strip("\n")),
        )
        for label, value in block.pairs[:_MAX_ROWS]
        if value.strip()
    ]
    return _article("fields", _title(block.title, clean), element("dl", *pairs, css="fields") if pairs else EMPTY)


def _bars(block: BarsBlock, clean: Cleaner) -> Html:
    bars = block.bars[:_MAX_ROWS]
    tokens = [max(bar.tokens, 0) for bar in bars]
    whole = max(block.whole, sum(tokens))
    classes = ["share-reserved" if bar.is_reserved else f"share-{at % _SHARE_COLORS}" for at, bar in enumerate(bars)]
    label = f"{sum(tokens):,} of {whole:,} tokens"
    rows = [
        _legend_row(css, clean.line(bar.label), amount, whole, clean.line(bar.note))
        for css, bar, amount in zip(classes, bars, tokens, strict=True)
    ]
    rows.append(_legend_row("share-free", "free", whole - sum(tokens), whole, ""))
    legend = element("table", element("tbody", *rows), css="legend")
    return _article(
        "bars", _title(block.title, clean), _stack(bars, classes, whole, label), legend, _foot(block.foot, clean)
    )


def _stack(bars: tuple[Bar, ...], classes: list[str], whole: int, label: str) -> Html:
    """What is reserved comes last, after the free space."""
    widths = bar_widths([max(bar.tokens, 0) for bar in bars], whole, _BAR_UNITS)
    at = 0
    parts: list[Html] = []
    for is_reserved in (False, True):
        if is_reserved:
            at = _BAR_UNITS - sum(width for bar, width in zip(bars, widths, strict=True) if bar.is_reserved)
        for bar, css, width in zip(bars, classes, widths, strict=True):
            if bar.is_reserved == is_reserved and width:
                parts.append(element("rect", css=css, attributes={"x": at, "y": 0, "width": width, "height": 10}))
                at += width
    frame: dict[str, Attribute] = {"viewBox": f"0 0 {_BAR_UNITS} 10", "preserveAspectRatio": "none", "role": "img"}
    return element("svg", join(parts), css="stack", attributes={**frame, "aria-label": label})


def _legend_row(css: str, label: str, tokens: int, whole: int, note: str) -> Html:
    swatch = element("span", EMPTY, css=f"swatch {css}", attributes={"aria-hidden": "true"})
    return element(
        "tr",
        element("th", swatch, label, attributes={"scope": "row"}),
        element("td", f"{tokens:,}", css="number"),
        element("td", format_percent(tokens, whole).strip(), css="number"),
        element("td", note, css="note"),
    )


def _verbatim(block: VerbatimBlock, clean: Cleaner) -> Html:
    text = clean.text(limit_text(block.text)).removesuffix("\n")
    return _article("verbatim", _title(block.title, clean), _pre(text, clean.line(block.title) or "Text"))
