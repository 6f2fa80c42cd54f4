"""The open elements during the conversion of a page or of one table cell. Used by html_to_markdown."""

from kitbag.tools.web.markdown_blocks import Container, MarkdownWriter


class OpenElement:
    __slots__ = ("container", "is_content", "is_flat", "language", "marks", "name", "nested", "skips")

    def __init__(self, name: str, marks: int) -> None:
        self.name = name
        self.marks = marks
        """The number of open marks at its start."""
        self.container: Container | None = None
        self.language = ""
        self.skips = False
        self.nested = 0
        """The number of open elements of the same name in a skipped element."""
        self.is_content = False
        self.is_flat = False
        """It is on a heading's line."""


class ElementScope:
    """The open elements of the page or of one table cell: an end tag reaches no further."""

    def __init__(self, cell: dict[str, str] | None = None, is_header: bool = False) -> None:
        self.writer = MarkdownWriter()
        self.open: list[OpenElement] = []
        self.counts: dict[str, int] = {}
        self.lists: list[int] = []
        """The number of the next item; 0 in unordered lists."""
        self.cell = cell
        self.is_header = is_header
