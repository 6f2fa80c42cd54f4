"""Renders blocks as terminal text; colors are the only escape sequences.

Used by the terminal and plain UIs. Cleans every text of a block first (styled_text.Cleaner), then lays it out with the
module for its kind; markdown-it and pygments are imported with the first block that needs them.
"""

import re
import time
from collections.abc import Callable
from typing import Final, assert_never

from kitbag.text.terminal_width import text_width, truncate_to_width
from kitbag.views.blocks import (
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
from kitbag.views.rendering.markdown_stream import markdown_pieces
from kitbag.views.rendering.styled_text import TONES, Cleaner, StyledRun, chop_row, wrap_row, write_rows

Hide = Callable[[str], str]
MAX_USER_LINES: Final = 40
"""Lines of a user message: the user knows what they pasted."""
_MIN_TAIL_CHARS: Final = 500
_MARGIN: Final = 4
"""Columns of what stands around the two longest texts of a line."""
_MAX_CHARS: Final = 1_000_000
MAX_USER_CHARS: Final = 20_000
"""Characters of text that is not meant to be read in full."""
MAX_SECONDS: Final = 1.0
"""After this time the rest of a reply stays plain: it was crafted to be slow."""
FENCES: Final = ("```", "~~~")
_BAR: Final = StyledRun("│ ", TONES["dim"])
_MARKS: Final = {
    "error": StyledRun("✗ error: ", TONES["bad"]),
    "warning": StyledRun("! warning: ", TONES["warning"]),
    "info": StyledRun("· ", TONES["dim"]),
}
_ITEM = re.compile(r" {0,3}(?:[-*+]|\d{1,9}[.)]) ")
_OWN_BLOCK = re.compile(r" {0,3}(?:#{1,6} |`{3}|~{3}|>|\|)")


def render(block: Block, width: int, *, color: bool, hide: Hide, details_key: str = "Ctrl-O") -> str:
    """Ends with a newline; empty for an empty block. `details_key`: expands folded blocks."""
    rows = _rows(block, max(width, 1), Cleaner(hide), color, details_key)
    return write_rows(rows, max(width, 1), color=color)


def preload() -> None:
    """Imports what the first reply needs; call it in a thread while nothing is drawn."""
    render(ReplyBlock("```python\n1\n```"), 80, color=True, hide=str)


def needs_gap(above: Block | None, block: Block) -> bool:
    """Whether a blank line belongs between two blocks."""
    if above is None:
        return False
    if isinstance(block, ReplyBlock) and isinstance(above, ReplyBlock) and not block.begins:
        return _is_separate(above.text, block)
    short = (ToolBlock, ThinkingBlock, NoticeBlock, LinesBlock)
    return not (isinstance(block, short) and isinstance(above, short))


def _is_separate(above: str, block: ReplyBlock) -> bool:
    """False within a code block, a tight list or a paragraph."""
    if block.head:
        return False
    if not above.endswith("\n"):
        return False
    if above.endswith("\n\n") or block.text.startswith("\n"):
        return True
    items = [bool(_ITEM.match(text)) for text in (above, block.text)]
    return items[0] != items[1] or (not items[0] and any(_OWN_BLOCK.match(text) for text in (above, block.text)))


def _rows(block: Block, width: int, clean: Cleaner, color: bool, details_key: str) -> list[list[StyledRun]]:
    match block:
        case LinesBlock():
            return _line_rows(block, width, clean)
        case UserBlock():
            return _user_rows(block, width, clean)
        case ReplyBlock():
            return _reply_rows(block, width, clean, color)
        case ThinkingBlock():
            from kitbag.views.rendering.tool_call import thought_rows

            return thought_rows(block, width, clean, details_key)
        case ToolBlock():
            from kitbag.views.rendering.tool_call import tool_rows

            return tool_rows(block, width, clean, details_key)
        case NoticeBlock():
            return _notice_rows(block, width, clean)
        case TableBlock():
            from kitbag.views.rendering.table import table_rows

            return table_rows(block, width, clean)
        case FieldsBlock():
            from kitbag.views.rendering.table import field_rows

            return field_rows(block, width, clean)
        case BarsBlock():
            from kitbag.views.rendering.context_bars import bars_rows

            return bars_rows(block, width, clean, color=color)
        case VerbatimBlock():
            return _verbatim_rows(block, width, Cleaner(str) if block.exact else clean)
        case DiffBlock():
            from kitbag.views.rendering.diff import diff_rows

            clean = Cleaner(str) if block.exact else clean
            return diff_rows(clean.text(limit_text(block.text)), width) if block.text.strip() else []
        case _:
            assert_never(block)


def limit_text(text: str, max_chars: int = _MAX_CHARS) -> str:
    """Limits what is rendered at all."""
    return text if len(text) <= max_chars else f"{text[:max_chars]}\n… {len(text) - max_chars:,} more characters"


def _truncate_longest(runs: list[StyledRun], width: int) -> None:
    """The second longest only if the longest would take less than half of the row."""
    widths = [text_width(run.text) for run in runs]
    for at in sorted(range(len(runs)), key=widths.__getitem__, reverse=True)[:2]:
        text, style = runs[at]
        others = sum(widths) - widths[at]
        text = truncate_to_width(text, max(width - others, width // 2 - _MARGIN))
        runs[at], widths[at] = StyledRun(text, style), text_width(text)


def _line_rows(block: LinesBlock, width: int, clean: Cleaner) -> list[list[StyledRun]]:
    rows: list[list[StyledRun]] = []
    for line in block.lines:
        runs = [StyledRun(clean.line(span.text), TONES[span.tone]) for span in line]
        if block.one_row:
            _truncate_longest(runs, width)
        first = runs[0].text if runs else ""
        indent = min(len(first) - len(first.lstrip(" ")), width // 2)
        rows += wrap_row(runs, width, rest=[StyledRun(" " * indent)])
    return rows


def _user_rows(block: UserBlock, width: int, clean: Cleaner) -> list[list[StyledRun]]:
    lines = clean.text(limit_text(block.text, MAX_USER_CHARS).strip("\n")).split("\n")
    hidden_lines = len(lines) - MAX_USER_LINES
    first, rest = [StyledRun("> ", TONES["dim"])], [StyledRun("  ")]
    rows: list[list[StyledRun]] = []
    for line in lines[:MAX_USER_LINES] if hidden_lines > 1 else lines:
        rows += wrap_row([StyledRun(line, TONES["strong"])], width, first, rest)
        first = rest
    if hidden_lines > 1:
        rows.append([StyledRun(f"  … {hidden_lines:,} more lines", TONES["dim"])])
    if block.images:
        count = "1 image" if block.images == 1 else f"{block.images} images"
        rows.append([StyledRun(f"  [{count}]", TONES["dim"])])
    return rows


def _reply_rows(block: ReplyBlock, width: int, clean: Cleaner, color: bool) -> list[list[StyledRun]]:
    from kitbag.views.rendering.markdown import markdown_rows, plain_rows

    head, text = clean.text(block.head), clean.text(limit_text(block.text))
    rows: list[list[StyledRun]] = []
    above: ReplyBlock | None = None
    started = time.monotonic()
    for piece in markdown_pieces(text, head):
        reply = ReplyBlock(piece.text, above is None, piece.head)
        if above is not None and needs_gap(above, reply):
            rows.append([])
        elapsed = time.monotonic() - started
        if elapsed < MAX_SECONDS or (piece.head or piece.text).startswith(
            FENCES
        ):  # fast to parse; only highlighting takes time
            text = piece.head + piece.text
            rows += markdown_rows(text, width, clean, color=color, highlights=elapsed < MAX_SECONDS / 4)
        else:
            rows += plain_rows(piece.text, width)
        above = reply
    return rows


def _notice_rows(block: NoticeBlock, width: int, clean: Cleaner) -> list[list[StyledRun]]:
    mark = _MARKS.get(block.severity, _MARKS["error"])
    tone = TONES["dim"] if block.severity == "info" else ""
    text = clean.text(limit_text(block.text, MAX_USER_CHARS).strip("\n"))
    rows = wrap_row([StyledRun(text, tone)], width, first=[mark], rest=[StyledRun("  ")])
    if block.fix:
        fix = StyledRun(clean.text(limit_text(block.fix, MAX_USER_CHARS).strip("\n")), tone)
        label = StyledRun("  " if block.severity == "info" else "  fix: ", TONES["dim"])  # nothing to fix
        rows += wrap_row([fix], width, first=[label], rest=[StyledRun("  ")])
    return rows


def _verbatim_rows(block: VerbatimBlock, width: int, clean: Cleaner) -> list[list[StyledRun]]:
    rows = wrap_row([StyledRun(clean.line(block.title), TONES["strong"])], width) if block.title else []
    text = clean.text(limit_text(block.text)).removesuffix("\n")
    bar = [_BAR] if width > 4 else []
    return rows + [row for line in text.split("\n") for row in chop_row([StyledRun(line)], width, bar)]


# Incomplete replies

_last_tail: tuple[tuple[object, ...], str] = ((), "")


def render_tail(markdown: str, width: int, height: int, *, color: bool, hide: Hide) -> str:
    """The last lines of incomplete Markdown, at most `height`. Ignores what is far above: this runs for every delta."""
    global _last_tail  # noqa: PLW0603 - caches the last result for a redraw without changes
    if not markdown.strip() or height < 1:
        return ""
    key = (markdown, width, height, color, hide)
    if _last_tail[0] == key:
        return _last_tail[1]
    rendered = render(
        ReplyBlock(_last_lines(markdown, max(_MIN_TAIL_CHARS, width * height))), width, color=color, hide=hide
    )
    tail = "".join(rendered.splitlines(keepends=True)[-height:])
    _last_tail = (key, tail)
    return tail


def _last_lines(markdown: str, max_chars: int) -> str:
    """From the start of a line, with the opening of its code block."""
    if len(markdown) <= max_chars:
        return markdown
    start = markdown.find("\n", len(markdown) - max_chars) + 1 or len(markdown) - max_chars
    opening = markdown[:200].lstrip("\n").partition("\n")[0]
    is_code = opening.lstrip().startswith(FENCES)
    return f"{opening}\n{markdown[start:]}" if is_code else markdown[start:]
