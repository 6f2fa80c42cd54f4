"""A unified diff as a person reads it: numbers of lines, signs, colours by sign, and one line for each file.

Used by rendering and tool_view. Reads what tools/diffs and git write; a line that is none of a diff stays as it is.
Between `@@` and the end of what that counts, a line is a change, whatever it looks like.
"""

import re
from typing import Final

from kitbag.text.terminal_width import width_of
from kitbag.views.rendering.styled_text import TONES, Run, chopped

_HUNK = re.compile(r"@@ -(\d{1,9})(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))? @@(.*)")
_TONES: Final = {"+": TONES["good"], "-": TONES["bad"], " ": ""}
_NOTHING: Final = "/dev/null"


def is_diff(text: str) -> bool:
    return text.startswith(("--- ", "diff --git ")) and "\n+++ " in text[:2_000]


def changes_of(text: str) -> str:
    """Without the names of the files, which may be written from here or from the root."""
    return text[text.find("\n@@ ") :].strip("\n") if is_diff(text) and "\n@@ " in text else ""


def diff_rows(text: str, width: int, indent: str = "", *, heads: bool = True) -> list[list[Run]]:
    """Of a text that is clean. `heads`: with the names of the files."""
    lines = text.rstrip("\n").split("\n")
    size = _number_size(lines)
    margin = Run(indent)
    rows: list[list[Run]] = []
    old = new = old_left = new_left = 0
    begun = False
    for line in lines:
        sign = line[:1] or " "
        if (old_left or new_left) and sign in "+- ":
            number = old if sign == "-" else new
            rows += _change(line, sign, number, size, width, margin)
            old, old_left = (old + 1, max(0, old_left - 1)) if sign in "- " else (old, old_left)
            new, new_left = (new + 1, max(0, new_left - 1)) if sign in "+ " else (new, new_left)
        elif hunk := _HUNK.match(line):
            old, new = int(hunk[1]), int(hunk[3])
            old_left, new_left = int(hunk[2] or 1), int(hunk[4] or 1)
            if begun:
                rows.append([margin, Run(f"{'…':>{size}}{hunk[5]}", TONES["dim"])])
            begun = True
        elif line.startswith(("--- ", "+++ ", "diff --git ", "index ")):
            begun = False
            rows += _head(line, width, margin) if heads else []
        else:
            rows += chopped([Run(line, TONES["dim"])], width, first=[margin])
    return rows


def _number_size(lines: list[str]) -> int:
    numbers = [int(hunk[at]) + int(hunk[at + 1] or 1) for line in lines if (hunk := _HUNK.match(line)) for at in (1, 3)]
    return min(len(str(max(numbers, default=1))), 8)


def _change(line: str, sign: str, number: int, size: int, width: int, margin: Run) -> list[list[Run]]:
    style = _TONES[sign]
    first = [margin, Run(f"{number:>{size}} ", TONES["dim"]), Run(f"{sign} ", style)]
    rest = [Run(" " * sum(width_of(run.text) for run in first))]
    return chopped([Run(line[1:], style)], width, first=first, rest=rest)


def _head(line: str, width: int, margin: Run) -> list[list[Run]]:
    """A new file has no old name, and one that was changed needs no second."""
    if line.startswith("+++ ") and line[4:] != _NOTHING:
        return chopped([Run(line[4:], TONES["strong"])], width, first=[margin])
    if line.startswith("+++ "):
        return [[margin, Run("(deleted)", TONES["bad"])]]
    if line == f"--- {_NOTHING}":
        return [[margin, Run("new file", TONES["good"])]]
    return []
