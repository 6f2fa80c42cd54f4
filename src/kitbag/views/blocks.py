"""What users see, as values. A UI draws them: in color at a terminal, as plain lines in a pipe.

Used by the chat and by everything that renders for it. Blocks hold raw text; only UIs write to a terminal, and
rendering cleans the text there.
"""

from typing import Literal

import msgspec

from kitbag.errors import Diagnostic
from kitbag.events import Notice
from kitbag.text.human_format import shorten_path

Tone = Literal["plain", "strong", "dim", "good", "warning", "bad", "accent"]


class Span(msgspec.Struct, frozen=True):
    text: str
    tone: Tone = "plain"


StyledLine = tuple[Span, ...]


class LinesBlock(msgspec.Struct, frozen=True):
    """Kitbag's own text; long lines are wrapped."""

    lines: tuple[StyledLine, ...]
    one_row: bool = False
    """A terminal truncates the longest spans of a line that does not fit."""


class UserBlock(msgspec.Struct, frozen=True):
    """A user's message."""

    text: str
    images: int = 0


class ReplyBlock(msgspec.Struct, frozen=True):
    """A model's reply: complete Markdown blocks. One reply arrives as several of these."""

    text: str
    begins: bool = True
    """The first block of a message."""
    head: str = ""
    """Earlier lines that this one needs: the opening of a code block or a table."""


class ThinkingBlock(msgspec.Struct, frozen=True):
    text: str
    seconds: float
    is_open: bool = False
    """Show everything; else one line with its duration."""


class ToolBlock(msgspec.Struct, frozen=True, kw_only=True):
    """A call with its result: one line, and the details below it if open."""

    name: str
    title: str
    """The main argument on one line: `src/app.py`, `git log`."""
    summary: str
    is_error: bool
    seconds: float
    details: str = ""
    """A diff, a list, or a command's output."""
    is_open: bool = False


class NoticeBlock(msgspec.Struct, frozen=True):
    severity: Literal["error", "warning", "info"]
    text: str
    fix: str = ""


class TableBlock(msgspec.Struct, frozen=True, kw_only=True):
    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    """The last column is the one that is cut or wrapped."""
    title: str = ""
    foot: str = ""


class FieldsBlock(msgspec.Struct, frozen=True):
    """`label value` lines; those without a value are omitted."""

    pairs: tuple[tuple[str, str], ...]
    title: str = ""


class Bar(msgspec.Struct, frozen=True, kw_only=True):
    label: str
    tokens: int
    note: str = ""
    is_reserved: bool = False
    """Not used, but not free either."""


class BarsBlock(msgspec.Struct, frozen=True, kw_only=True):
    """Shares of a whole, such as what fills the context window."""

    bars: tuple[Bar, ...]
    whole: int
    """The total; what the bars don't use is free."""
    title: str = ""
    foot: str = ""


class VerbatimBlock(msgspec.Struct, frozen=True):
    """Text shown unchanged, line by line: a prompt, a file, another agent's answer."""

    text: str
    title: str = ""
    exact: bool = False
    """The user is asked to approve it: secrets are not redacted, because users can't approve what they can't see."""


class DiffBlock(msgspec.Struct, frozen=True):
    """A unified diff."""

    text: str
    exact: bool = False
    """As in VerbatimBlock."""


Block = (
    LinesBlock
    | UserBlock
    | ReplyBlock
    | ThinkingBlock
    | ToolBlock
    | NoticeBlock
    | TableBlock
    | FieldsBlock
    | BarsBlock
    | VerbatimBlock
    | DiffBlock
)


def diagnostic_block(diagnostic: Diagnostic, *, with_code: bool = False) -> NoticeBlock:
    code = f" [{diagnostic.code}]" if with_code else ""
    text = f"{shorten_path(diagnostic.place)}: {diagnostic.problem}{code}"
    return NoticeBlock(diagnostic.severity, text, diagnostic.fix)


def text_block(text: str, tone: Tone = "plain") -> LinesBlock:
    """One or more lines in one tone."""
    return LinesBlock(tuple((Span(line, tone),) for line in text.split("\n")))


def notice_block(notice: Notice) -> NoticeBlock:
    return NoticeBlock(notice.severity, notice.text, notice.fix)
