"""A call and its result, and a thought: one line where they are folded, all that there is where they are open.

Used by rendering. What a tool changed in a file, and the last that a command printed, are shown in short even where
they are folded: that is what a person wants to see without asking.
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
"""Of a command that went well."""
_OPEN_LINES: Final = 400
_OPEN_CHARACTERS: Final = 60_000
_INDENT: Final = "  "
_COMMANDS: Final = frozenset(("Bash",))
_KEY: Final = "Ctrl-O"


def format_seconds(seconds: float) -> str:
    """Empty for what took no time worth telling."""
    return format_duration(seconds) if seconds >= 0.05 else ""


def tool_rows(done: ToolBlock, width: int, clean: Cleaner) -> list[list[StyledRun]]:
    title, summary = clean.line(done.title), clean.line(done.summary)
    name = clean.line(done.name)
    rows = [_summary_row(done, name, title, summary, width)]
    if done.is_error and not rows[0][-1].text.startswith(summary):  # what went wrong is told whole
        rows = [_summary_row(done, name, title, "", width)]
        rows += _truncate_rows(
            wrap_row([StyledRun(summary, TONES["bad"])], width, [StyledRun(_INDENT)]), _ERROR_LINES, width
        )
    if not done.details.strip():
        return rows
    details = done.details if len(done.details) <= _OPEN_CHARACTERS else done.details[:_OPEN_CHARACTERS]
    left_out = len(done.details) - len(details)
    body = _detail_rows(clean.text(details), width)
    if done.is_open:
        rows += _truncate_rows(body, _OPEN_LINES, width, key="")
        if left_out:
            rows.append([StyledRun(f"{_INDENT}… {left_out:,} more characters are left out", TONES["dim"])])
    elif is_diff(details):
        rows += _truncate_rows(body, FOLDED_LINES, width)
    elif done.is_error or done.name in _COMMANDS:
        tail = clean.text(done.details[-_OPEN_CHARACTERS:])
        most = _ERROR_LINES if done.is_error else _PRINTED_LINES
        rows += _truncate_rows(_detail_rows(tail, width), most, width, from_end=True)
    return rows


def _summary_row(done: ToolBlock, name: str, title: str, summary: str, width: int) -> list[StyledRun]:
    mark = StyledRun("✗", TONES["bad"]) if done.is_error else StyledRun("●", TONES["good"])
    time = format_seconds(done.seconds)
    after = " · ".join(part for part in (summary, time) if part)
    name = truncate_to_width(name, max(width // 2, 8))
    room = width - text_width(name) - 5  # the mark, and what is between the parts
    title = truncate_to_width(title, max(room - min(text_width(after), max(room // 2, 12)), 4)) if title else ""
    row = [mark, StyledRun(" "), StyledRun(name, TONES["strong"])]
    if title:
        row.append(StyledRun(f" {title}"))
    used = sum(text_width(run.text) for run in row)
    if after and width - used > 4:
        tone = TONES["bad"] if done.is_error else TONES["dim"]
        row += [StyledRun("  "), StyledRun(truncate_to_width(after, width - used - 2), tone)]
    return row


def _detail_rows(text: str, width: int) -> list[list[StyledRun]]:
    if is_diff(text):
        return diff_rows(text, width, _INDENT, headers=False)
    lines = text.strip("\n").split("\n")
    return [row for line in lines for row in chop_row([StyledRun(line, TONES["dim"])], width, [StyledRun(_INDENT)])]


def _truncate_rows(
    rows: list[list[StyledRun]], max_rows: int, width: int, *, from_end: bool = False, key: str = _KEY
) -> list[list[StyledRun]]:
    """So many of them, and how many more there are."""
    more = len(rows) - max_rows
    if more <= 1:  # to say so would take the same line
        return rows
    note = f"{_INDENT}… {more:,} more lines" + (f" ({key})" if key else " are left out")
    told = [StyledRun(truncate_to_width(note, width), TONES["dim"])]
    return [told, *rows[-max_rows:]] if from_end else [*rows[:max_rows], told]


def thought_rows(thought: ThinkingBlock, width: int, clean: Cleaner) -> list[list[StyledRun]]:
    took = f"{thought.seconds:.0f} s" if thought.seconds < 60 else format_seconds(thought.seconds)
    said = f"✻ thought for {took}" if thought.seconds >= 0.5 else "✻ thought"
    if not thought.is_open:
        return [[StyledRun(truncate_to_width(f"{said} ({_KEY} shows it)", width), TONES["dim"])]]
    text = clean.text(thought.text[:_OPEN_CHARACTERS]).strip("\n")
    rows = [[StyledRun(truncate_to_width(said, width), TONES["dim"])]]
    body = [
        row
        for line in text.split("\n")
        for row in wrap_row([StyledRun(line, TONES["dim"])], width, [StyledRun(_INDENT)])
    ]
    return rows + _truncate_rows(body, _OPEN_LINES, width, key="")
