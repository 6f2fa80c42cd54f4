"""From blocks to the text of a terminal: colours where there are any, nothing that acts on it but colours.

Used by the face that draws. Every text of a block is cleaned first (styled.Cleaner), then laid out by the view of its
kind; markdown-it and pygments are loaded by the first block that needs them.
"""

import re
import time
from collections.abc import Callable
from typing import Final, assert_never

from kitbag.views.blocks import (
    Bars,
    Block,
    Diff,
    Fields,
    Lines,
    Remark,
    Reply,
    Said,
    Table,
    Thought,
    ToolDone,
    Verbatim,
)
from kitbag.views.rendering.markdown_stream import LONGEST, MarkdownStream, Piece
from kitbag.views.rendering.styled_text import TONES, Cleaner, Run, chopped, wrapped, written

Hide = Callable[[str], str]
_MOST_SAID: Final = 40
"""Lines of what a person said: a long text that was pasted is known to them."""
_SHORTEST_TAIL: Final = 500
_LARGEST: Final = 1_000_000
_LARGEST_SAID: Final = 20_000
"""Characters, of what is not meant to be read whole."""
_SECONDS: Final = 1.0
"""After these, what is left of a reply is shown as it was written: it was made to take long."""
_FENCES: Final = ("```", "~~~")
_BAR: Final = Run("│ ", TONES["dim"])
_MARKS: Final = {
    "error": Run("✗ error: ", TONES["bad"]),
    "warning": Run("! warning: ", TONES["warning"]),
    "info": Run("· ", TONES["dim"]),
}
_ITEM = re.compile(r" {0,3}(?:[-*+]|\d{1,9}[.)]) ")
_OWN_BLOCK = re.compile(r" {0,3}(?:#{1,6} |`{3}|~{3}|>|\|)")


def render(block: Block, width: int, *, colour: bool, hide: Hide) -> str:
    """Ends with a newline; empty for a block that says nothing."""
    rows = _rows(block, max(width, 1), Cleaner(hide), colour)
    return written(rows, max(width, 1), colour=colour)


def load() -> None:
    """What the first reply would have to wait for; for a thread, while there is nothing to draw."""
    render(Reply("```python\n1\n```"), 80, colour=True, hide=str)


def gap(above: Block | None, block: Block) -> bool:
    """Whether a blank line belongs between two blocks."""
    if above is None:
        return False
    if isinstance(block, Reply) and isinstance(above, Reply) and not block.begins:
        return _is_apart(above.text, block)
    short = (ToolDone, Thought, Remark, Lines)
    return not (isinstance(block, short) and isinstance(above, short))


def _is_apart(above: str, block: Reply) -> bool:
    """Not in the middle of a code block, of a list without blank lines, or of a paragraph."""
    if block.head:
        return False
    if not above.endswith("\n"):
        return False
    if above.endswith("\n\n") or block.text.startswith("\n"):
        return True
    items = [bool(_ITEM.match(text)) for text in (above, block.text)]
    return items[0] != items[1] or (not items[0] and any(_OWN_BLOCK.match(text) for text in (above, block.text)))


def _rows(block: Block, width: int, clean: Cleaner, colour: bool) -> list[list[Run]]:
    match block:
        case Lines():
            return _line_rows(block, width, clean)
        case Said():
            return _said_rows(block, width, clean)
        case Reply():
            return _reply_rows(block, width, clean, colour)
        case Thought():
            from kitbag.views.rendering.tool_call import thought_rows

            return thought_rows(block, width, clean)
        case ToolDone():
            from kitbag.views.rendering.tool_call import tool_rows

            return tool_rows(block, width, clean)
        case Remark():
            return _remark_rows(block, width, clean)
        case Table():
            from kitbag.views.rendering.table import table_rows

            return table_rows(block, width, clean)
        case Fields():
            from kitbag.views.rendering.table import field_rows

            return field_rows(block, width, clean)
        case Bars():
            from kitbag.views.rendering.context_bars import bars_rows

            return bars_rows(block, width, clean, colour=colour)
        case Verbatim():
            return _verbatim_rows(block, width, Cleaner(str) if block.exact else clean)
        case Diff():
            from kitbag.views.rendering.diff import diff_rows

            clean = Cleaner(str) if block.exact else clean
            return diff_rows(clean.text(_bounded(block.text)), width) if block.text.strip() else []
        case _:
            assert_never(block)


def _bounded(text: str, largest: int = _LARGEST) -> str:
    """What is shown at all has an end."""
    return text if len(text) <= largest else f"{text[:largest]}\n… {len(text) - largest:,} more characters"


def _line_rows(block: Lines, width: int, clean: Cleaner) -> list[list[Run]]:
    rows: list[list[Run]] = []
    for line in block.lines:
        runs = [Run(clean.line(span.text), TONES[span.tone]) for span in line]
        first = runs[0].text if runs else ""
        indent = min(len(first) - len(first.lstrip(" ")), width // 2)
        rows += wrapped(runs, width, rest=[Run(" " * indent)])
    return rows


def _said_rows(block: Said, width: int, clean: Cleaner) -> list[list[Run]]:
    lines = clean.text(_bounded(block.text, _LARGEST_SAID).strip("\n")).split("\n")
    more = len(lines) - _MOST_SAID
    first, rest = [Run("> ", TONES["dim"])], [Run("  ")]
    rows: list[list[Run]] = []
    for line in lines[:_MOST_SAID] if more > 1 else lines:
        rows += wrapped([Run(line, TONES["strong"])], width, first, rest)
        first = rest
    if more > 1:
        rows.append([Run(f"  … {more:,} more lines", TONES["dim"])])
    if block.images:
        count = "1 image" if block.images == 1 else f"{block.images} images"
        rows.append([Run(f"  [{count}]", TONES["dim"])])
    return rows


def _reply_rows(block: Reply, width: int, clean: Cleaner, colour: bool) -> list[list[Run]]:
    from kitbag.views.rendering.markdown import as_written, markdown_rows

    head, text = clean.text(block.head), clean.text(_bounded(block.text))
    pieces = [Piece(text, head)] if len(text) <= LONGEST else _pieces(text, head)
    rows: list[list[Run]] = []
    above: Reply | None = None
    begun = time.monotonic()
    for piece in pieces:
        shown = Reply(piece.text, above is None, piece.head)
        if above is not None and gap(above, shown):
            rows.append([])
        took = time.monotonic() - begun
        if took < _SECONDS or (piece.head or piece.text).startswith(_FENCES):  # which takes no time but for its colours
            text = piece.head + piece.text
            rows += markdown_rows(text, width, clean, colour=colour, highlights=took < _SECONDS / 4)
        else:
            rows += as_written(piece.text, width)
        above = shown
    return rows


def _pieces(text: str, head: str) -> list[Piece]:
    """Each small enough that no parser takes long for it."""
    stream = MarkdownStream()
    begun = stream.add(head) if head else []
    pieces = [*begun, *stream.add(text), *stream.rest()]
    return [piece for piece in pieces if piece.text.strip()]


def _remark_rows(block: Remark, width: int, clean: Cleaner) -> list[list[Run]]:
    mark = _MARKS.get(block.severity, _MARKS["error"])
    tone = TONES["dim"] if block.severity == "info" else ""
    text = clean.text(_bounded(block.text, _LARGEST_SAID).strip("\n"))
    rows = wrapped([Run(text, tone)], width, first=[mark], rest=[Run("  ")])
    if block.fix:
        fix = Run(clean.text(_bounded(block.fix, _LARGEST_SAID).strip("\n")), tone)
        label = Run("  " if block.severity == "info" else "  fix: ", TONES["dim"])  # nothing is broken
        rows += wrapped([fix], width, first=[label], rest=[Run("  ")])
    return rows


def _verbatim_rows(block: Verbatim, width: int, clean: Cleaner) -> list[list[Run]]:
    rows = wrapped([Run(clean.line(block.title), TONES["strong"])], width) if block.title else []
    text = clean.text(_bounded(block.text)).removesuffix("\n")
    bar = [_BAR] if width > 4 else []
    return rows + [row for line in text.split("\n") for row in chopped([Run(line)], width, bar)]


# What is not whole yet

_last_tail: tuple[tuple[object, ...], str] = ((), "")


def render_tail(markdown: str, width: int, height: int, *, colour: bool, hide: Hide) -> str:
    """The last lines of Markdown that is not whole yet, at most `height`. What is far above is not looked at: this is
    called for each piece that comes."""
    global _last_tail  # noqa: PLW0603 - the last answer, for a screen that is drawn again without news
    if not markdown.strip() or height < 1:
        return ""
    asked = (markdown, width, height, colour, hide)
    if _last_tail[0] == asked:
        return _last_tail[1]
    shown = render(Reply(_end_of(markdown, max(_SHORTEST_TAIL, width * height))), width, colour=colour, hide=hide)
    made = "".join(shown.splitlines(keepends=True)[-height:])
    _last_tail = (asked, made)
    return made


def _end_of(markdown: str, longest: int) -> str:
    """From the start of a line, and with what opens the code in which it stands."""
    if len(markdown) <= longest:
        return markdown
    start = markdown.find("\n", len(markdown) - longest) + 1 or len(markdown) - longest
    opening = markdown[:200].lstrip("\n").partition("\n")[0]
    is_code = opening.lstrip().startswith(_FENCES)
    return f"{opening}\n{markdown[start:]}" if is_code else markdown[start:]
