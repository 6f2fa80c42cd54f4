"""Renders a unified diff as HTML: line numbers, signs, counts, and one header line per file.

Used by blocks. Parsed as in the terminal (views/rendering/diff).
"""

from itertools import islice
from typing import Final

from kitbag.views.rendering.diff import DiffLine, parse_diff
from kitbag.web.html.elements import EMPTY, Html, element, join

_MAX_LINES: Final = 20_000
_LINE_CLASSES: Final = {"+": "line added", "-": "line removed", " ": "line"}
_NULL_FILE: Final = "/dev/null"


def diff_html(text: str) -> Html:
    """`text` is clean."""
    lines = list(islice(parse_diff(text), _MAX_LINES + 1))
    added, removed = (sum(line.kind == sign for line in lines) for sign in "+-")
    counts = element(
        "p",
        element("span", f"+{added:,}", css="added", attributes={"aria-label": f"{added:,} added", "role": "img"}),
        " ",
        element(
            "span", f"−{removed:,}", css="removed", attributes={"aria-label": f"{removed:,} removed", "role": "img"}
        ),
        css="diff-counts",
    )
    body = element(
        "pre",
        join(map(_line_html, lines[:_MAX_LINES])),
        css="diff",
        attributes={"tabindex": "0", "role": "group", "aria-label": "Changes"},
    )
    more = (
        element("p", f"Only the first {_MAX_LINES:,} lines are shown", css="omitted")
        if len(lines) > _MAX_LINES
        else EMPTY
    )
    return element("div", counts, body, more, css="diff-view")


def _line_html(line: DiffLine) -> Html:
    if line.kind == "file":
        name = _file_header(line.text)
        return element("span", name, "\n", css="diff-file") if name else EMPTY
    if line.kind == "hunk":
        return element("span", f"…{line.text}\n", css="diff-hunk")
    if line.kind == "other":
        return element("span", f"{line.text}\n", css="diff-other")
    number = element("span", str(line.number), css="line-number", attributes={"aria-hidden": "true"})
    return element("span", number, f"{line.kind} {line.text}\n", css=_LINE_CLASSES[line.kind])


def _file_header(line: str) -> str:
    """A new file has no old name, and a changed one is named once."""
    if line == f"+++ {_NULL_FILE}":
        return "(deleted)"
    if line.startswith("+++ "):
        return line[4:]
    return "new file" if line == f"--- {_NULL_FILE}" else ""
