"""A call and its result, and a thought: one line where they are folded, all that there is where they are open.

Used by rendering. What a tool changed in a file, and the last that a command printed, are shown in short even where
they are folded: that is what a person wants to see without asking.
"""

from typing import Final

from kitbag.text.human_format import duration
from kitbag.text.terminal_width import cut, width_of
from kitbag.views.blocks import Thought, ToolDone
from kitbag.views.rendering.diff import diff_rows, is_diff
from kitbag.views.rendering.styled_text import TONES, Cleaner, Run, chopped, wrapped

FOLDED_LINES: Final = 12
_ERROR_LINES: Final = 5
_PRINTED_LINES: Final = 3
"""Of a command that went well."""
_OPEN_LINES: Final = 400
_OPEN_CHARACTERS: Final = 60_000
_INDENT: Final = "  "
_COMMANDS: Final = frozenset(("Bash",))
_KEY: Final = "Ctrl-O"


def seconds_of(seconds: float) -> str:
    """Empty for what took no time worth telling."""
    return duration(seconds) if seconds >= 0.05 else ""


def tool_rows(done: ToolDone, width: int, clean: Cleaner) -> list[list[Run]]:
    title, summary = clean.line(done.title), clean.line(done.summary)
    name = clean.line(done.name)
    rows = [_line(done, name, title, summary, width)]
    if done.is_error and not rows[0][-1].text.startswith(summary):  # what went wrong is told whole
        rows = [_line(done, name, title, "", width)]
        rows += _left(wrapped([Run(summary, TONES["bad"])], width, [Run(_INDENT)]), _ERROR_LINES, width)
    if not done.details.strip():
        return rows
    details = done.details if len(done.details) <= _OPEN_CHARACTERS else done.details[:_OPEN_CHARACTERS]
    left_out = len(done.details) - len(details)
    body = _body(clean.text(details), width)
    if done.is_open:
        rows += _left(body, _OPEN_LINES, width, key="")
        if left_out:
            rows.append([Run(f"{_INDENT}… {left_out:,} more characters are left out", TONES["dim"])])
    elif is_diff(details):
        rows += _left(body, FOLDED_LINES, width)
    elif done.is_error or done.name in _COMMANDS:
        tail = clean.text(done.details[-_OPEN_CHARACTERS:])
        most = _ERROR_LINES if done.is_error else _PRINTED_LINES
        rows += _left(_body(tail, width), most, width, from_end=True)
    return rows


def _line(done: ToolDone, name: str, title: str, summary: str, width: int) -> list[Run]:
    mark = Run("✗", TONES["bad"]) if done.is_error else Run("●", TONES["good"])
    time = seconds_of(done.seconds)
    after = " · ".join(part for part in (summary, time) if part)
    name = cut(name, max(width // 2, 8))
    room = width - width_of(name) - 5  # the mark, and what is between the parts
    title = cut(title, max(room - min(width_of(after), max(room // 2, 12)), 4)) if title else ""
    row = [mark, Run(" "), Run(name, TONES["strong"])]
    if title:
        row.append(Run(f" {title}"))
    used = sum(width_of(run.text) for run in row)
    if after and width - used > 4:
        tone = TONES["bad"] if done.is_error else TONES["dim"]
        row += [Run("  "), Run(cut(after, width - used - 2), tone)]
    return row


def _body(text: str, width: int) -> list[list[Run]]:
    if is_diff(text):
        return diff_rows(text, width, _INDENT, heads=False)
    lines = text.strip("\n").split("\n")
    return [row for line in lines for row in chopped([Run(line, TONES["dim"])], width, [Run(_INDENT)])]


def _left(rows: list[list[Run]], most: int, width: int, *, from_end: bool = False, key: str = _KEY) -> list[list[Run]]:
    """So many of them, and how many more there are."""
    more = len(rows) - most
    if more <= 1:  # to say so would take the same line
        return rows
    note = f"{_INDENT}… {more:,} more lines" + (f" ({key})" if key else " are left out")
    told = [Run(cut(note, width), TONES["dim"])]
    return [told, *rows[-most:]] if from_end else [*rows[:most], told]


def thought_rows(thought: Thought, width: int, clean: Cleaner) -> list[list[Run]]:
    took = f"{thought.seconds:.0f} s" if thought.seconds < 60 else seconds_of(thought.seconds)
    said = f"✻ thought for {took}" if thought.seconds >= 0.5 else "✻ thought"
    if not thought.is_open:
        return [[Run(cut(f"{said} ({_KEY} shows it)", width), TONES["dim"])]]
    text = clean.text(thought.text[:_OPEN_CHARACTERS]).strip("\n")
    rows = [[Run(cut(said, width), TONES["dim"])]]
    body = [row for line in text.split("\n") for row in wrapped([Run(line, TONES["dim"])], width, [Run(_INDENT)])]
    return rows + _left(body, _OPEN_LINES, width, key="")
