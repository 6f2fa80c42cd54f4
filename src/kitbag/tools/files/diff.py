"""The line differences between two texts, as a unified diff for the user and as counts.

Used by Write and Edit; replace and closest_match use parts of it. Fast for large texts with small differences and
bounded for all: if two texts have little in common, the diff may be longer than the shortest one but is always correct.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

import msgspec

from kitbag.text.hidden_characters import reveal_hidden
from kitbag.text.human_format import format_count

MAX_ROWS: Final = 300
MAX_ROW_CHARS: Final = 500
MAX_CHARS: Final = 20_000
_CONTEXT_LINES = 3
_MAX_COMPARED_LINES = 50_000
"""Above this number of lines that may differ, they are not compared one by one."""
_MAX_MATCHER_LINES = 250
_STEP = 1 << 14


class UnifiedDiff(msgspec.Struct, frozen=True, kw_only=True):
    text: str
    added: int
    removed: int
    truncation: str = ""
    """What the text omits of the diff."""
    window_start: int = 0
    """Where the compared window starts, in both texts."""
    lines_before: int = 0
    """The number of lines before the window."""


class _ChangedBlock(msgspec.Struct, frozen=True, kw_only=True):
    """Lines that are replaced by others; either side may be empty."""

    start: int
    end: int
    new_start: int
    new_end: int


def diff(before: str | None, after: str, path: str) -> UnifiedDiff:
    """`before` is None for a file that does not exist."""
    old = before or ""
    start, end, new_end = _changed_window(old, after)
    lines, new_lines = _split_lines(old[start:end]), _split_lines(after[start:new_end])
    blocks = list(_changed_blocks(lines, new_lines))
    added = sum(block.new_end - block.new_start for block in blocks)
    removed = sum(block.end - block.start for block in blocks)
    first = old.count("\n", 0, start)
    has_returns = [any(line.endswith("\r\n") for line in side) for side in (lines, new_lines)]
    rows = _DiffRows(show_carriage_returns=before is not None and has_returns[0] != has_returns[1])
    rows.add(f"--- {path if before is not None else '/dev/null'}")
    rows.add(f"+++ {path}")
    for group in _group_blocks(blocks):
        _add_hunk(rows, group, lines, new_lines, first)
    text = "\n".join([*rows.rows, f"[{rows.truncation}]"] if rows.truncation else rows.rows)
    return (
        UnifiedDiff(
            text=text, added=added, removed=removed, truncation=rows.truncation, window_start=start, lines_before=first
        )
        if blocks
        else UnifiedDiff(text="", added=0, removed=0)
    )


def _changed_window(old: str, new: str) -> tuple[int, int, int]:
    """Where the lines that may differ start in both texts and end in each, including context lines."""
    start = common_prefix_length(old, new)
    ending = common_suffix_length(old, new, min(len(old), len(new)) - start)
    start = old.rfind("\n", 0, start) + 1
    end, new_end = len(old) - ending, len(new) - ending
    if not (_is_line_start(old, end) and _is_line_start(new, new_end)):
        found = old.find("\n", end) + 1 or len(old)
        end, new_end = found, new_end + found - end
    for _ in range(_CONTEXT_LINES):
        start = old.rfind("\n", 0, max(0, start - 1)) + 1
        found = old.find("\n", end) + 1 or len(old)
        end, new_end = found, new_end + found - end
    return start, end, new_end


def _is_line_start(text: str, at: int) -> bool:
    return at == 0 or text[at - 1] == "\n"


def common_prefix_length(old: str, new: str) -> int:
    """The number of equal characters at the start."""
    limit, at = min(len(old), len(new)), 0
    step = _STEP
    while step:
        while at + step <= limit and old[at : at + step] == new[at : at + step]:
            at += step
        step //= 2
    return at


def common_suffix_length(old: str, new: str, limit: int) -> int:
    """The number of equal characters at the end, at most `limit`."""
    at, step = 0, _STEP
    while step:
        while (
            at + step <= limit
            and old[len(old) - at - step : len(old) - at] == new[len(new) - at - step : len(new) - at]
        ):
            at += step
        step //= 2
    return at


def _split_lines(text: str) -> list[str]:
    """Keeps line ends, so that the last line shows whether it has one. Only `\\n` ends a line."""
    *ended, rest = text.split("\n")
    found = [f"{line}\n" for line in ended]
    return [*found, rest] if rest else found


def _changed_blocks(old: Sequence[str], new: Sequence[str]) -> Iterator[_ChangedBlock]:
    at, new_at = 0, 0
    for start, new_start, size in (*_equal_runs(old, new), (len(old), len(new), 0)):
        if start > at or new_start > new_at:
            yield _ChangedBlock(start=at, end=start, new_start=new_at, new_end=new_start)
        at, new_at = start + size, new_start + size


def _equal_runs(old: Sequence[str], new: Sequence[str]) -> Iterator[tuple[int, int, int]]:
    """Runs of equal lines: the start in each text and the length."""
    if len(old) == len(new):
        different = [at for at, (line, other) in enumerate(zip(old, new, strict=True)) if line != other]
        if len(different) * 2 <= len(old):  # most lines stayed in place
            edges = pairwise((-1, *different, len(old)))
            yield from ((at + 1, at + 1, end - at - 1) for at, end in edges if end > at + 1)
            return
    if len(old) + len(new) > _MAX_COMPARED_LINES:
        return
    anchors = [(-1, -1), *_unique_line_anchors(old, new), (len(old), len(new))]
    for (at, new_at), (next_at, new_next) in pairwise(anchors):
        if at >= 0:
            yield at, new_at, 1
        if next_at - at <= _MAX_MATCHER_LINES and new_next - new_at <= _MAX_MATCHER_LINES:
            from difflib import SequenceMatcher

            inner = SequenceMatcher(None, old[at + 1 : next_at], new[new_at + 1 : new_next], autojunk=False)
            yield from ((at + 1 + a, new_at + 1 + b, size) for a, b, size in inner.get_matching_blocks() if size)


def _unique_line_anchors(old: Sequence[str], new: Sequence[str]) -> list[tuple[int, int]]:
    """Lines that occur once in each text: the longest sequence in the same order in both."""
    counts, new_counts = Counter(old), Counter(new)
    positions = {line: at for at, line in enumerate(new) if new_counts[line] == 1}
    pairs = [(at, positions[line]) for at, line in enumerate(old) if counts[line] == 1 and line in positions]
    ends: list[int] = []  # the smallest end of an ordered run of each length
    last: list[int] = []  # the pair at that end
    before: list[int] = []  # the predecessor of each pair
    for at, (_, position) in enumerate(pairs):
        length = bisect_left(ends, position)
        ends[length : length + 1] = [position]
        last[length : length + 1] = [at]
        before.append(last[length - 1] if length else -1)
    found: list[tuple[int, int]] = []
    at = last[-1] if last else -1
    while at >= 0:
        found.append(pairs[at])
        at = before[at]
    return found[::-1]


def _group_blocks(blocks: list[_ChangedBlock]) -> Iterator[list[_ChangedBlock]]:
    """Groups blocks whose context lines overlap."""
    group: list[_ChangedBlock] = []
    for block in blocks:
        if group and block.start - group[-1].end > 2 * _CONTEXT_LINES:
            yield group
            group = []
        group.append(block)
    if group:
        yield group


def _add_hunk(
    rows: "_DiffRows", group: list[_ChangedBlock], lines: Sequence[str], new_lines: Sequence[str], first: int
) -> None:
    start, end = max(0, group[0].start - _CONTEXT_LINES), min(len(lines), group[-1].end + _CONTEXT_LINES)
    new_start = group[0].new_start - (group[0].start - start)
    new_end = group[-1].new_end + (end - group[-1].end)
    rows.add(
        f"@@ -{_format_range(first + start, end - start)} +{_format_range(first + new_start, new_end - new_start)} @@"
    )
    at = start
    for block in group:
        rows.add_lines(" ", lines, at, block.start)
        rows.add_lines("-", lines, block.start, block.end)
        rows.add_lines("+", new_lines, block.new_start, block.new_end)
        at = block.end
    rows.add_lines(" ", lines, at, end)


def _format_range(start: int, count: int) -> str:
    return f"{start + 1 if count else start},{count}"


class _DiffRows:
    """The rows that fit, and how many did not."""

    def __init__(self, show_carriage_returns: bool) -> None:
        self.rows: list[str] = []
        self.omitted_rows = 0
        self.truncated_rows = 0
        self._show_carriage_returns = show_carriage_returns
        self._remaining_chars = MAX_CHARS

    @property
    def truncation(self) -> str:
        every = len(self.rows) + self.omitted_rows
        parts = [f"{self.omitted_rows:,} of {every:,} diff lines omitted"] if self.omitted_rows else []
        parts += [f"{format_count(self.truncated_rows, 'long line')} truncated"] if self.truncated_rows else []
        return "; ".join(parts)

    def add_lines(self, sign: str, lines: Sequence[str], start: int, end: int) -> None:
        for at in range(start, end):
            if self.omitted_rows:
                self.omitted_rows += end - at
                return
            line = lines[at]
            text = line.removesuffix("\n")
            self.add(sign + (text if self._show_carriage_returns else text.removesuffix("\r")))
            if not line.endswith("\n"):
                self.add("\\ No newline at end of file")

    def add(self, row: str) -> None:
        if self.omitted_rows or len(self.rows) >= MAX_ROWS or self._remaining_chars <= 0:
            self.omitted_rows += 1
            return
        more = len(row) - MAX_ROW_CHARS
        shown = reveal_hidden(row[:MAX_ROW_CHARS])
        if more > 0:
            shown += f" [{more:,} more characters in this line]"
            self.truncated_rows += 1
        self.rows.append(shown)
        self._remaining_chars -= len(shown) + 1
