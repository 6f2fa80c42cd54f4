"""Renders blocks as plain lines that start with a word for their kind.

Used by plain_ui, for pipes, dumb terminals and screen readers. Sanitizes every text. A reply keeps its Markdown, but
lines that look like Kitbag's own get a bar.
"""

import re
import unicodedata
from collections.abc import Callable
from typing import Final, assert_never

from kitbag.text.hidden_characters import escape_for_terminal
from kitbag.text.human_format import format_count, format_duration
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
from kitbag.views.rendering.diff import is_diff

_COLLAPSED_LINES: Final = 12
_ERROR_LINES: Final = 5
_EXPANDED_LINES: Final = 400
_LIST_TOOLS: Final = frozenset(("TodoWrite",))
_TODO_MARKS: Final = {"[x]": "done:", "[>]": "now:", "[ ]": "todo:"}
_BAR: Final = "│ "
_OURS: Final = re.compile(
    r"\W*(?:you|kitbag|thinking|tool|error|warning|note|fix|question|answer|working|changes|why|warnings)\s*:", re.I
)
"""Starts of lines that the chat itself writes."""


class PlainRenderer:
    def __init__(self, redact: Callable[[str], str]) -> None:
        self._redact = redact

    def clean(self, text: str) -> str:
        if "\r" in text:
            text = text.replace("\r\n", "\n")
        return escape_for_terminal(self._redact(text))

    def line(self, text: str) -> str:
        return self.clean(" ".join(text.splitlines()) if "\n" in text or "\r" in text else text)

    def render(self, block: Block) -> list[str]:
        match block:
            case LinesBlock():
                return [self.line("".join(span.text for span in line)).rstrip() for line in block.lines]
            case UserBlock():
                return self._user(block)
            case ReplyBlock():
                return self._reply(block)
            case ThinkingBlock():
                return self._thinking(block)
            case ToolBlock():
                return self._tool(block)
            case NoticeBlock():
                return self._notice(block)
            case TableBlock():
                return self._table(block)
            case FieldsBlock():
                pairs = [(label, value) for label, value in block.pairs if value.strip()]
                lines = (f"{self.line(one)}: {self._quote_others(self.clean(two))}" for one, two in pairs)
                return [*self._title(block.title), *lines]
            case BarsBlock():
                return self._bars(block)
            case VerbatimBlock():
                # Every line gets a bar, as at a terminal, so that none passes for one of ours.
                text = (_EXACT if block.exact else self).clean(block.text).rstrip("\n")
                return [*self._title(block.title), *(f"{_BAR}{line}".rstrip() for line in text.split("\n"))]
            case DiffBlock():
                rows = (_EXACT if block.exact else self).clean(block.text).rstrip("\n").split("\n")
                return ["changes:", *map(_add_bar_if_ours, rows)] if block.text.strip() else []
            case _:
                assert_never(block)

    def _quote_others(self, text: str) -> str:
        """Text by others: each line but the first gets a bar if it looks like one of ours."""
        first, *rest = text.split("\n")
        return "\n".join((first, *map(_add_bar_if_ours, rest)))

    def _title(self, title: str) -> list[str]:
        return [f"{self.line(title)}:"] if title else []

    def _user(self, block: UserBlock) -> list[str]:
        first, *others = self.clean(block.text.strip("\n")).split("\n")
        images = [f"with {format_count(block.images, 'image')}"] if block.images else []
        return [f"you: {first}", *map(_add_bar_if_ours, others), *images]

    def _reply(self, block: ReplyBlock) -> list[str]:
        """Unchanged, with the blank lines between its blocks."""
        whole = self.clean(block.text)
        text = whole.strip("\n")
        if not text.strip():
            return []
        before = [""] if whole.startswith("\n") and not block.begins else []
        after = [""] if whole.endswith("\n\n") else []
        shown = self._quote_others(f"kitbag: {text}") if block.begins else self._quote_others(f"\n{text}")[1:]
        return [*before, shown, *after]

    def _thinking(self, block: ThinkingBlock) -> list[str]:
        took = f"for {format_duration(block.seconds)}" if block.seconds >= 0.5 else "a moment"
        said = self._quote_others(self.clean(block.text).strip())
        return [f"thinking: {said}" if block.is_open else f"thinking: {took}"]

    def _tool(self, block: ToolBlock) -> list[str]:
        call = " ".join(part for part in (block.name, block.title) if part)
        outcome = ": ".join(part for part in ("failed" if block.is_error else "", block.summary) if part)
        took = f", {format_duration(block.seconds)}" if block.seconds >= 1 else ""
        rows = [f"tool: {self.line(call)}: {self.line(outcome)}{took}"]
        details = self.clean(block.details).strip("\n")
        if not details.strip():
            return rows
        lines = details.split("\n")
        if block.name in _LIST_TOOLS:
            lines = [_spell_todo_mark(line) for line in lines]
        lines = [_add_bar_if_ours(line) for line in lines]
        if block.is_open:
            return rows + _truncate(lines, _EXPANDED_LINES)
        if is_diff(details) or block.name in _LIST_TOOLS:
            return rows + _truncate(lines, _COLLAPSED_LINES)
        if block.is_error:
            left = len(lines) - _ERROR_LINES
            return [
                *rows,
                *([f"({format_count(left, 'earlier line')})"] if left > 0 else []),
                *lines[-_ERROR_LINES:],
            ]
        return rows

    def _notice(self, block: NoticeBlock) -> list[str]:
        word = "note" if block.severity == "info" else block.severity
        label = "note" if block.severity == "info" else "fix"  # without a problem it is what the user may do next
        fix = [f"{label}: {self._quote_others(self.clean(block.fix))}"] if block.fix else []
        return [f"{word}: {self._quote_others(self.clean(block.text))}", *fix]

    def _table(self, block: TableBlock) -> list[str]:
        rows = [
            "; ".join(
                f"{self.line(head).lower()}: {self.line(cell)}" if head else self.line(cell)
                for head, cell in zip((*block.headers, *[""] * len(row)), row, strict=False)
                if cell.strip()
            )
            for row in block.rows
        ]
        return [*self._title(block.title), *rows, *([self.line(block.foot)] if block.foot else [])]

    def _bars(self, block: BarsBlock) -> list[str]:
        whole = max(block.whole, sum(max(bar.tokens, 0) for bar in block.bars), 1)
        shown = [(bar.label, max(bar.tokens, 0), bar.note) for bar in block.bars]
        shown.append(("free", whole - sum(tokens for _, tokens, _ in shown), ""))
        rows = [
            f"{self.line(label)}: {format_count(tokens, 'token')}, {100 * tokens / whole:.1f} percent"
            + (f", {self.line(note)}" if note else "")
            for label, tokens, note in shown
        ]
        return [*self._title(block.title), *rows, *([self.line(block.foot)] if block.foot else [])]


_EXACT: Final = PlainRenderer(str)


def _add_bar_if_ours(line: str) -> str:
    return f"{_BAR}{line}" if _OURS.match(unicodedata.normalize("NFKC", line[:80])) else line


def _spell_todo_mark(line: str) -> str:
    return f"{_TODO_MARKS[line[:3]]}{line[3:]}" if line[:3] in _TODO_MARKS else line


def _truncate(lines: list[str], limit: int) -> list[str]:
    left = len(lines) - limit
    return lines if left <= 1 else [*lines[:limit], f"({format_count(left, 'more line')})"]
