"""Renders tool calls with their results, and thinking: one line if folded, everything if open.

Used by render. A folded call still shows a short diff or the end of a command's output: what users want to see without
asking.
"""

from typing import Final

from kitbag.text.human_format import format_duration
from kitbag.text.terminal_width import text_width, truncate_to_width
from kitbag.views.blocks import ThinkingBlock, ToolBlock
from kitbag.views.rendering.diff import diff_rows, is_diff
from kitbag.views.rendering.styled_text import TONES, Cleaner, StyledRun, chop_row, wrap_row

FOLDED_LINES: Final = 12
_ERROR_LINES: Final = 5
_PRINTED_LINES: Final = 3
"""Of a successful command."""
_OPEN_LINES: Final = 400
_OPEN_CHARACTERS: Final = 60_000
_INDENT: Final = "  "
_COMMANDS: Final = frozenset(("Bash",))


def format_seconds(seconds: float) -> str:
    """Empty for negligible times."""
    return format_duration(seconds) if seconds >= 0.05 else ""


def tool_rows(call: ToolBlock, width: int, clean: Cleaner, details_key: str) -> list[list[StyledRun]]:
    title, summary = clean.line(call.title), clean.line(call.summary)
    name = clean.line(call.name)
    rows = [_summary_row(call, name, title, summary, width)]
    if call.is_error and not rows[0][-1].text.startswith(summary):  # show the whole error
        rows = [_summary_row(call, name, title, "", width)]
        rows += _truncate_rows(
            wrap_row([StyledRun(summary, TONES["bad"])], width, [StyledRun(_INDENT)]), _ERROR_LINES, width, details_key
        )
    if not call.details.strip():
        return rows
    details = call.details if len(call.details) <= _OPEN_CHARACTERS else call.details[:_OPEN_CHARACTERS]
    omitted_chars = len(call.details) - len(details)
    body = _detail_rows(clean.text(details), width)
    if call.is_open:
        rows += _truncate_rows(body, _OPEN_LINES, width)
        if omitted_chars:
            rows.append([StyledRun(f"{_INDENT}… {omitted_chars:,} more characters omitted", TONES["dim"])])
    elif is_diff(details):
        rows += _truncate_rows(body, FOLDED_LINES, width, details_key)
    elif call.is_error or call.name in _COMMANDS:
        tail = clean.text(call.details[-_OPEN_CHARACTERS:])
        max_rows = _ERROR_LINES if call.is_error else _PRINTED_LINES
        rows += _truncate_rows(_detail_rows(tail, width), max_rows, width, details_key, from_end=True)
    return rows


def _summary_row(call: ToolBlock, name: str, title: str, summary: str, width: int) -> list[StyledRun]:
    mark = StyledRun("✗", TONES["bad"]) if call.is_error else StyledRun("●", TONES["good"])
    time = format_seconds(call.seconds)
    suffix = " · ".join(part for part in (summary, time) if part)
    name = truncate_to_width(name, max(width // 2, 8))
    columns_left = width - text_width(name) - 5  # the marker and the spaces between the parts
    title = (
        truncate_to_width(title, max(columns_left - min(text_width(suffix), max(columns_left // 2, 12)), 4))
        if title
        else ""
    )
    row = [mark, StyledRun(" "), StyledRun(name, TONES["strong"])]
    if title:
        row.append(StyledRun(f" {title}"))
    used = sum(text_width(run.text) for run in row)
    if suffix and width - used > 4:
        tone = TONES["bad"] if call.is_error else TONES["dim"]
        row += [StyledRun("  "), StyledRun(truncate_to_width(suffix, width - used - 2), tone)]
    return row


def _detail_rows(text: str, width: int) -> list[list[StyledRun]]:
    if is_diff(text):
        return diff_rows(text, width, _INDENT, headers=False)
    lines = text.strip("\n").split("\n")
    return [row for line in lines for row in chop_row([StyledRun(line, TONES["dim"])], width, [StyledRun(_INDENT)])]


def _truncate_rows(
    rows: list[list[StyledRun]], max_rows: int, width: int, key: str = "", *, from_end: bool = False
) -> list[list[StyledRun]]:
    """At most `max_rows`, and how many were omitted."""
    omitted = len(rows) - max_rows
    if omitted <= 1:  # the note would take the same line
        return rows
    note = f"{_INDENT}… {omitted:,} more lines" + (f" ({key} to expand)" if key else " omitted")
    note_row = [StyledRun(truncate_to_width(note, width), TONES["dim"])]
    return [note_row, *rows[-max_rows:]] if from_end else [*rows[:max_rows], note_row]


def thought_rows(thought: ThinkingBlock, width: int, clean: Cleaner, details_key: str) -> list[list[StyledRun]]:
    elapsed = f"{thought.seconds:.0f}s" if thought.seconds < 60 else format_seconds(thought.seconds)
    label = f"✻ thought for {elapsed}" if thought.seconds >= 0.5 else "✻ thought"
    if not thought.is_open:
        return [[StyledRun(truncate_to_width(f"{label} ({details_key} to expand)", width), TONES["dim"])]]
    text = clean.text(thought.text[:_OPEN_CHARACTERS]).strip("\n")
    rows = [[StyledRun(truncate_to_width(label, width), TONES["dim"])]]
    body = [
        row
        for line in text.split("\n")
        for row in wrap_row([StyledRun(line, TONES["dim"])], width, [StyledRun(_INDENT)])
    ]
    return rows + _truncate_rows(body, _OPEN_LINES, width)
