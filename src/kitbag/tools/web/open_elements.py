"""What is open while a page is read: its elements, in the page or in one cell of a table. Used by web_page."""

from kitbag.tools.web.markdown_blocks import Container, MarkdownWriter


class OpenElement:
    __slots__ = ("container", "is_content", "is_flat", "language", "marks", "name", "nested", "skips")

    def __init__(self, name: str, marks: int) -> None:
        self.name = name
        self.marks = marks
        """How many marks were open when it began."""
        self.container: Container | None = None
        self.language = ""
        self.skips = False
        self.nested = 0
        """How many elements of the same name are open in one that is skipped."""
        self.is_content = False
        self.is_flat = False
        """It is on the line of a heading."""


class ElementScope:
    """What is open in the page, or in one cell of a table: an end tag reaches no further."""

    def __init__(self, cell: dict[str, str] | None = None, is_header: bool = False) -> None:
        self.writer = MarkdownWriter()
        self.open: list[OpenElement] = []
        self.counts: dict[str, int] = {}
        self.lists: list[int] = []
        """The number of the next item; 0 where items have no numbers."""
        self.cell = cell
        self.is_header = is_header
