"""Renders a unified diff: line numbers, signs, colors by sign, and one header line per file.

Used by render, tool_call and the web pages. Reads the output of tools/files/diff and git; other lines stay unchanged.
Within the line counts of a `@@` hunk every line is a change, whatever it looks like.
"""

import re
from collections.abc import Iterator
from typing import Final, Literal, NamedTuple

from kitbag.text.terminal_width import text_width
from kitbag.views.rendering.styled_text import TONES, StyledRun, chop_row

_HUNK = re.compile(r"@@ -(\d{1,9})(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))? @@(.*)")
_TONES: Final = {"+": TONES["good"], "-": TONES["bad"], " ": ""}
_NULL_FILE: Final = "/dev/null"


def is_diff(text: str) -> bool:
    return text.startswith(("--- ", "diff --git ")) and "\n+++ " in text[:2_000]


def diff_body(text: str) -> str:
    """Without the file names, which may be relative or absolute."""
    return text[text.find("\n@@ ") :].strip("\n") if is_diff(text) and "\n@@ " in text else ""


def diff_rows(text: str, width: int, indent: str = "", *, headers: bool = True) -> list[list[StyledRun]]:
    """`text` is clean. `headers`: include the file names."""
    number_width = _number_width(text.split("\n"))
    margin = StyledRun(indent)
    rows: list[list[StyledRun]] = []
    for kind, line, number in parse_diff(text):
        if kind == "hunk":
            rows.append([margin, StyledRun(f"{'…':>{number_width}}{line}", TONES["dim"])])
        elif kind == "file":
            rows += _header_rows(line, width, margin) if headers else []
        elif kind == "other":
            rows += chop_row([StyledRun(line, TONES["dim"])], width, first=[margin])
        else:
            rows += _change_rows(line, kind, number, number_width, width, margin)
    return rows


class DiffLine(NamedTuple):
    kind: Literal["+", "-", " ", "hunk", "file", "other"]
    text: str
    """Without the sign; of a hunk: what follows its line counts; of a file: the whole line."""
    number: int = 0
    """In the new file, or of a removed line in the old one."""


def parse_diff(text: str) -> Iterator[DiffLine]:
    """The first hunk of a file has no line of its own."""
    old = new = old_left = new_left = 0
    in_file = False
    for line in text.rstrip("\n").split("\n"):
        sign = line[:1] or " "
        if (old_left or new_left) and (sign == "+" or sign == "-" or sign == " "):
            yield DiffLine(sign, line[1:], old if sign == "-" else new)
            old, old_left = (old + 1, max(0, old_left - 1)) if sign in "- " else (old, old_left)
            new, new_left = (new + 1, max(0, new_left - 1)) if sign in "+ " else (new, new_left)
        elif hunk := _HUNK.match(line):
            old, new = int(hunk[1]), int(hunk[3])
            old_left, new_left = int(hunk[2] or 1), int(hunk[4] or 1)
            if in_file:
                yield DiffLine("hunk", hunk[5])
            in_file = True
        elif line.startswith(("--- ", "+++ ", "diff --git ", "index ")):
            in_file = False
            yield DiffLine("file", line)
        else:
            yield DiffLine("other", line)


def _number_width(lines: list[str]) -> int:
    numbers = [
        int(hunk[group]) + int(hunk[group + 1] or 1)
        for line in lines
        if (hunk := _HUNK.match(line))
        for group in (1, 3)
    ]
    return min(len(str(max(numbers, default=1))), 8)


def _change_rows(line: str, sign: str, number: int, size: int, width: int, margin: StyledRun) -> list[list[StyledRun]]:
    style = _TONES[sign]
    first = [margin, StyledRun(f"{number:>{size}} ", TONES["dim"]), StyledRun(f"{sign} ", style)]
    rest = [StyledRun(" " * sum(text_width(run.text) for run in first))]
    return chop_row([StyledRun(line, style)], width, first=first, rest=rest)


def _header_rows(line: str, width: int, margin: StyledRun) -> list[list[StyledRun]]:
    """A new file has no old name, and a changed one is named once."""
    if line.startswith("+++ ") and line[4:] != _NULL_FILE:
        return chop_row([StyledRun(line[4:], TONES["strong"])], width, first=[margin])
    if line.startswith("+++ "):
        return [[margin, StyledRun("(deleted)", TONES["bad"])]]
    if line == f"--- {_NULL_FILE}":
        return [[margin, StyledRun("new file", TONES["good"])]]
    return []
