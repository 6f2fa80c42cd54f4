"""The context of a session as one HTML file for a colleague: pictures, pieces with their texts, absent items, calls,
skills and savings. It works offline: no script, nothing fetched, every text escaped and redacted.

Used by `kitbag context --html`; takes the values of runtime/context_calls, context_costs and context_check.
"""

from collections.abc import Callable, Iterable, Sequence
from html import escape
from typing import Final

from kitbag.runtime.context_calls import CallContext
from kitbag.runtime.context_check import ContextCheck, summarize_check
from kitbag.runtime.context_costs import ContextCosts, SavingRow
from kitbag.text.hidden_characters import escape_for_terminal
from kitbag.text.human_format import format_cost
from kitbag.views.context_pictures import draw_call, draw_costs, piece_group, piece_label
from kitbag.views.pictures.svg import GROUPS, PICTURE_CSS

Redact = Callable[[str], str]
_MAX_TEXT: Final = 40_000
"""Characters of one piece."""
_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
_CSS: Final = """
:root{color-scheme:light dark;--bg:#f6f7f9;--card:#fff;--fg:#1b2430;--muted:#5b6675;--line:#e3e7ed;--bad:#b3261e}
@media (prefers-color-scheme:dark){:root{--bg:#0e1217;--card:#161b22;--fg:#e8edf4;--muted:#9aa6b5;--line:#2c3440;
--bad:#ff8a80}}
*{box-sizing:border-box}body{margin:0 auto;max-width:1040px;padding:24px 16px;background:var(--bg);color:var(--fg);
font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,Arial,sans-serif}
h1{font-size:24px;margin:0 0 4px}h2{font-size:17px;margin:0 0 12px}p{margin:0 0 12px}.muted{color:var(--muted)}
section{background:var(--card);border:1px solid var(--line);border-radius:12px;padding:18px;margin:16px 0}
svg{display:block;max-width:100%;height:auto}.scroll{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-size:13.5px;font-variant-numeric:tabular-nums}
th{text-align:left;color:var(--muted);font-weight:600}th,td{padding:5px 10px 5px 0;border-bottom:1px solid var(--line);
vertical-align:top;overflow-wrap:anywhere}td.n,th.n{text-align:right;white-space:nowrap}
td.k{white-space:nowrap}
.dot{display:inline-block;width:10px;height:10px;border-radius:3px;margin-right:7px}
details>summary{cursor:pointer}pre{white-space:pre-wrap;overflow-wrap:anywhere;font:12.5px/1.45 ui-monospace,Menlo,
Consolas,monospace;max-height:420px;overflow:auto;margin:8px 0;padding:10px;border:1px solid var(--line);
border-radius:8px}.problem{color:var(--bad)}ul{margin:0;padding-left:20px}
"""


def render_context_page(
    session: str, context: CallContext, costs: ContextCosts, check: ContextCheck, redact: Redact
) -> str:
    """`context`: the call that is shown in detail."""
    clean = _cleaner(redact)
    call = context.call
    title = f"Context of session {session}"
    sections = [
        f'<section class="scroll">{redact(draw_call(context, with_style=False))}</section>',
        f'<section class="scroll">{redact(draw_costs(costs, findings=check.findings, with_style=False))}</section>',
        _section("What was sent, in order", _render_pieces(context, clean)),
        _section("What was not sent", _render_absent(context, clean)),
        _section("Check", _render_check(check, clean)),
        _section("Calls", _render_calls(costs, clean)),
        _section("Skills", _render_skills(costs, clean)),
        _section("Saved by loading skills on demand", _render_savings(costs)),
    ]
    shown = f"call {call.number} of {check.calls}" if call.at else f"the next request, after {check.calls} calls"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="referrer" content="no-referrer">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{clean(title)}</title><style>{_CSS}{_dot_colors()}{PICTURE_CSS}</style></head><body>"
        f'<h1>{clean(title)}</h1><p class="muted">{clean(call.model)} · {clean(shown)} · made by Kitbag</p>'
        f"{''.join(sections)}</body></html>\n"
    )


def _cleaner(redact: Redact) -> Callable[[str], str]:
    return lambda text: escape(escape_for_terminal(redact(text)), quote=True)


def _dot_colors() -> str:
    light = "".join(f".g-{name}{{background:{values[1]}}}" for name, values in GROUPS.items())
    dark = "".join(f".g-{name}{{background:{values[2]}}}" for name, values in GROUPS.items())
    return f"{light}@media (prefers-color-scheme:dark){{{dark}}}"


def _section(title: str, body: str) -> str:
    return f'<section><h2>{escape(title)}</h2><div class="scroll">{body}</div></section>'


def _table(headers: Sequence[str], rows: Iterable[Sequence[str]], numbers: Sequence[int]) -> str:
    """Cells are HTML. `numbers`: the columns of numbers."""

    def cells(tag: str, row: Sequence[str]) -> str:
        styles = ["n" if at in numbers else "k" if at == 1 else "t" for at in range(len(row))]
        return "".join(f'<{tag} class="{style}">{cell}</{tag}>' for style, cell in zip(styles, row, strict=True))

    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    return (
        f"<table><thead><tr>{cells('th', [escape(one) for one in headers])}</tr></thead><tbody>{body}</tbody></table>"
    )


def _render_pieces(context: CallContext, clean: Callable[[str], str]) -> str:
    rows: list[tuple[str, ...]] = []
    for piece in context.pieces:
        dot = f'<span class="dot g-{piece_group(piece)}"></span>'
        text = piece.text if piece.kind != "image" else "(an image)"
        omitted = f"\n… {len(text) - _MAX_TEXT:,} more characters" if len(text) > _MAX_TEXT else ""
        name = f"<details><summary>{dot}{clean(piece_label(piece))}</summary><pre>{clean(text[:_MAX_TEXT] + omitted)}"
        rows.append(
            (
                f"{name}</pre></details>",
                clean(piece.kind),
                f"{piece.tokens:,}",
                f"{piece.bytes:,}",
                f"{piece.offset:,}",
                _cost(piece.cost),
                clean(f"{piece.source}: {piece.reason}"),
            )
        )
    headers = ("Piece", "Kind", "Tokens", "Bytes", "From byte", "Cost", "Source and reason")
    notes = "".join(f'<p class="muted">{clean(text)}</p>' for text in context.unknown)
    return notes + _table(headers, rows, (2, 3, 4, 5))


def _render_absent(context: CallContext, clean: Callable[[str], str]) -> str:
    rows = [
        (clean(item.name), clean(item.kind), "?" if item.tokens is None else f"{item.tokens:,}", clean(item.reason))
        for item in context.absent
    ]
    return _table(("Item", "Kind", "Tokens", "Reason"), rows, (2,)) if rows else "<p>Nothing.</p>"


def _render_check(check: ContextCheck, clean: Callable[[str], str]) -> str:
    lines = "".join(f"<p>{clean(line)}</p>" for line in summarize_check(check))
    findings = "".join(
        f'<li class="{finding.severity}">{clean(f"call {finding.call}: " if finding.call else "")}{clean(finding.text)}'
        for finding in check.findings
    )
    return f"{lines}<ul>{findings}</ul>" if findings else f"{lines}<p>No problems and no cache breaks.</p>"


def _render_calls(costs: ContextCosts, clean: Callable[[str], str]) -> str:
    rows = [
        (
            str(row.call.number),
            clean(row.call.kind),
            clean(row.call.at[:19].replace("T", " ")),
            f"{row.tokens:,}",
            f"{row.call.usage.total_input:,}",
            f"{row.call.usage.cache_read:,}",
            "" if row.predicted is None else f"{row.predicted:,}",
            f"{row.call.usage.output:,}",
            _cost(row.call.cost),
            clean(row.call.model),
        )
        for row in costs.timeline
    ]
    headers = ("Call", "Kind", "Time (UTC)", "Estimated", "Counted", "Cached", "Predicted", "Reply", "Cost", "Model")
    return _table(headers, rows, (0, 3, 4, 5, 6, 7, 8))


def _render_skills(costs: ContextCosts, clean: Callable[[str], str]) -> str:
    rows = [
        (
            clean(skill.name),
            f"{skill.listed_tokens:,} × {skill.listed_requests:,}",
            f"{skill.tokens:,} × {skill.requests:,}",
            f"{skill.total_tokens:,}",
            _cost(skill.cost),
        )
        for skill in costs.skills
    ]
    return _table(("Skill", "Listed × calls", "Loaded × calls", "Tokens in all", "Cost"), rows, (1, 2, 3, 4))


def _render_savings(costs: ContextCosts) -> str:
    tables = (
        ("Every token of the request", costs.savings.tokens),
        ("1.3 tokens per word: prompt and skills", costs.savings.words),
    )
    return "".join(f'<p class="muted">{escape(title)}</p>{_saving_table(rows)}' for title, rows in tables)


def _saving_table(rows: Sequence[SavingRow]) -> str:
    cells = [(escape(row.name), f"{row.everything:,}", f"{row.used:,}", f"{row.saved:.0%}") for row in rows]
    return _table(("", "All skills loaded", "Kitbag", "Saved"), cells, (1, 2, 3))


def _cost(cost: float | None) -> str:
    return "?" if cost is None else escape(format_cost(cost))
