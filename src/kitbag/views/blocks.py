"""What the chat shows, as values. A face draws them: in colour at a terminal, as plain lines in a pipe.

Used by everything in chat that has something to say; made of texts as they are. Only faces turn them into what a
terminal gets, and only there is it cleaned: nothing else writes.
"""

from typing import Literal, NamedTuple

Tone = Literal["plain", "strong", "dim", "good", "warning", "bad", "accent"]


class Span(NamedTuple):
    text: str
    tone: Tone = "plain"


StyledLine = tuple[Span, ...]


class LinesBlock(NamedTuple):
    """Words of ours, each line wrapped where it is too long."""

    lines: tuple[StyledLine, ...]


class UserBlock(NamedTuple):
    """What the person said."""

    text: str
    images: int = 0


class ReplyBlock(NamedTuple):
    """What the model says: whole blocks of Markdown. A reply comes in several of these, one below the other."""

    text: str
    begins: bool = True
    """The first of a message."""
    head: str = ""
    """Of what was shown before, the lines without which this can't be read: those that open a code block or a table."""


class ThinkingBlock(NamedTuple):
    text: str
    seconds: float
    is_open: bool = False
    """Shown whole; else it is one line that says how long it was."""


class ToolBlock(NamedTuple):
    """A call with its result: a short line, and below it what is in it where it is open."""

    name: str
    title: str
    """What it was asked, one line: `src/app.py`, `git log`."""
    summary: str
    is_error: bool
    seconds: float
    details: str = ""
    """A diff, a list, what a command printed."""
    is_open: bool = False


class NoticeBlock(NamedTuple):
    severity: Literal["error", "warning", "info"]
    text: str
    fix: str = ""


class TableBlock(NamedTuple):
    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    """The last column is the one that is cut or wrapped."""
    title: str = ""
    foot: str = ""


class FieldsBlock(NamedTuple):
    """`label  value` lines; those without a value are left out."""

    pairs: tuple[tuple[str, str], ...]
    title: str = ""


class Bar(NamedTuple):
    label: str
    tokens: int
    tone: Tone = "accent"
    note: str = ""


class BarsBlock(NamedTuple):
    """Shares of a whole, such as what fills the window."""

    bars: tuple[Bar, ...]
    whole: int
    """What all bars are shares of; what they leave is free."""
    title: str = ""
    foot: str = ""


class VerbatimBlock(NamedTuple):
    """A text as it is, line by line: a prompt, a file, an answer of another agent, what stands behind a bar."""

    text: str
    title: str = ""
    exact: bool = False
    """It is what a person is asked to agree to: no secret is taken out, since nobody agrees to what they can't see."""


class DiffBlock(NamedTuple):
    """A unified diff."""

    text: str
    exact: bool = False
    """As of Verbatim."""


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


def text_block(text: str, tone: Tone = "plain") -> LinesBlock:
    """One line, or several."""
    return LinesBlock(tuple((Span(line, tone),) for line in text.split("\n")))
