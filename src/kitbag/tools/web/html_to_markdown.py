"""Converts a web page to Markdown: headings, lists, tables, code with its language, absolute links, image texts.

Used by WebFetch. Omits scripts, styles, hidden elements and menus around the content. Plain Python, so it can be
stopped at any time and can't crash the process. Uses html_tokens, html_elements and markdown_blocks.
"""

# Why not html-to-markdown (PyPI, Rust; 3.19.0 measured): its native code has aborted on real pages (stack overflows,
# its issue 379 and pull request 421), so it would need a child process. Medians for pages of 49 to 150 KB on a busy
# 2-core machine: 8 to 41 ms here, 52 to 89 ms there with the process, 7 to 18 ms without. 3.19.0 survived 11 hostile
# pages, but returned nothing for text inside 100,000 nested elements, and leaves links relative. It is faster than this
# converter on most hostile pages (2 MB of `<`: 0.6 s, where this one stops at its limit of 5 s).

import html
import re
import threading
import time
from collections.abc import Callable
from typing import Final, NamedTuple

from kitbag.tools.web.html_elements import (
    BLOCKS,
    CONTENT,
    HEADINGS,
    IMPLICITLY_CLOSED,
    INLINE_MARKS,
    LISTS,
    SKIPPED,
    ContentScope,
    absolute_url,
    code_language,
    is_hidden,
)
from kitbag.tools.web.html_tokens import VOID_ELEMENTS, HtmlToken, parse_attributes, tokenize
from kitbag.tools.web.markdown_blocks import (
    MAX_CONTAINERS,
    PAGE_ANCHOR,
    Container,
    HtmlTable,
    HtmlTableCell,
    MarkdownWriter,
)

TIMEOUT_SECONDS: Final = 5.0
MAX_CHARS: Final = 2_000_000
_CHECK_INTERVAL = 256
_LONG_TOKEN_CHARS = 10_000
_MIN_MAIN_CHARS = 200
_MAX_TABLE_DEPTH = 8
_MAIN = re.compile(r"""<main[\s>]|role\s*=\s*["']?main["'\s>]""", re.IGNORECASE)


class MarkdownPage(NamedTuple):
    title: str
    text: str
    truncation: str
    """Why the page is incomplete; empty if it is complete."""


def html_to_markdown(source: str, base_url: str, stop: threading.Event) -> MarkdownPage:
    """`base_url` is the URL of the page, which relative links are resolved against."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    first: ContentScope = "main" if _MAIN.search(source) else "tidy"
    page = _Converter(base_url, first, stop, deadline).convert(source)
    if len(page.text) >= _MIN_MAIN_CHARS or stop.is_set() or page.truncation:
        return page
    # The content may be in a menu element, or the main part may be empty.
    full_page = _Converter(base_url, "all", stop, deadline).convert(source)
    return full_page if not page.text or len(full_page.text) > max(1_000, 10 * len(page.text)) else page


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


class _Converter:
    def __init__(self, base_url: str, scope: ContentScope, stop: threading.Event, deadline: float) -> None:
        self._base = base_url
        self._scope: ContentScope = scope
        self._stop = stop
        self._deadline = deadline
        self._scopes = [ElementScope()]
        self._tables: list[tuple[HtmlTable, ElementScope]] = []
        self._skipping: OpenElement | None = None
        self._content_depth = 0
        """The number of open content elements."""
        self._code: list[str] | None = None
        self._title = ""
        self._is_title = False
        self._url_cache: dict[str, str] = {}

    def convert(self, source: str) -> MarkdownPage:
        truncation = ""
        handlers: dict[str, Callable[[HtmlToken], None]] = {
            "text": self._on_text,
            "start": self._on_start,
            "end": self._on_end,
        }
        for count, token in enumerate(tokenize(source)):
            handlers[token.kind](token)
            if (count % _CHECK_INTERVAL == 0 or len(token.raw) > _LONG_TOKEN_CHARS) and (
                truncation := self._stop_reason()
            ):
                break
        if self._stop.is_set():
            return MarkdownPage("", "", truncation)
        while len(self._scopes) > 1 or self._tables:
            self._end_table()
        self._end_code()
        text = self._scopes[0].writer.text()
        if len(text) > MAX_CHARS:
            text, truncation = text[:MAX_CHARS], truncation or f"it is longer than {MAX_CHARS:,} characters"
        return MarkdownPage(self._title, text, truncation)

    def _stop_reason(self) -> str:
        if self._stop.is_set():
            return "canceled"
        if time.monotonic() > self._deadline:
            return f"conversion timed out after {TIMEOUT_SECONDS:g} s"
        if sum(scope.writer.size for scope in self._scopes) > MAX_CHARS:
            return f"it is longer than {MAX_CHARS:,} characters"
        return ""

    @property
    def _blocks(self) -> MarkdownWriter:
        return self._scopes[-1].writer

    @property
    def _is_visible(self) -> bool:
        is_part = self._scope != "main" or self._content_depth > 0 or self._scopes[-1].writer.heading == 1
        return is_part and self._skipping is None

    # Text

    def _on_text(self, token: HtmlToken) -> None:
        if self._is_title:
            self._title = self._title or " ".join(html.unescape(token.raw[:1_000]).split())
            self._is_title = False
        elif not self._is_visible:
            return
        elif self._code is not None:
            self._code.append(html.unescape(token.raw))
        else:
            self._blocks.write_text(token.raw)

    # Tags

    def _on_start(self, token: HtmlToken) -> None:
        name = token.name
        if name == "title":
            self._is_title = self._skipping is None or self._skipping.name != "svg"
        elif name == "base":
            self._base = absolute_url(self._base, parse_attributes(token.raw).get("href", "")) or self._base
        elif name in VOID_ELEMENTS:
            if self._is_visible:
                self._start_void(token)
        elif name in BLOCKS and self._code is None:
            self._start_block(token)
        elif self._skipping is not None:
            self._skipping.nested += name == self._skipping.name
        elif self._code is not None and name in BLOCKS:
            self._start_in_code(token)
        elif name in SKIPPED or name == "math" or (token.raw and self._is_hidden(token)):
            self._start_skipped(token)
        elif self._code is not None:
            self._start_in_code(token)
        elif self._is_visible:
            self._start_inline(token)

    def _start_void(self, token: HtmlToken) -> None:
        if token.name == "br":
            if self._code is not None:
                self._code.append("\n")
            else:
                self._blocks.break_line()
        elif token.name == "hr" and self._code is None:
            self._blocks.end_line()
            self._blocks.write_block(["---"])
        elif token.name == "img" and self._code is None:
            attributes = parse_attributes(token.raw)
            text = " ".join(attributes.get("alt", "").split())
            if text and attributes.get("aria-hidden") != "true":
                self._blocks.add_markup(f"![{text}]")

    def _start_inline(self, token: HtmlToken) -> None:
        if token.name == "a":
            address = self._absolute_url(parse_attributes(token.raw).get("href", ""))
            self._blocks.close_mark("a")  # links can't be nested
            self._blocks.open_mark("a", "", address or PAGE_ANCHOR)
        elif token.name in INLINE_MARKS:
            sign = INLINE_MARKS[token.name]
            if not (self._blocks.heading and sign == "**"):
                self._blocks.open_mark(token.name, sign)
        elif token.name == "q":
            self._blocks.add_markup("“")

    def _start_skipped(self, token: HtmlToken) -> None:
        element = self._push(token)
        element.skips = True
        if token.name == "math" and self._is_visible:
            formula = parse_attributes(token.raw).get("alttext", "").strip()
            if not formula:
                element.skips = False
                return
            self._blocks.add_markup(f"${formula}$")
        self._skipping = element

    def _start_block(self, token: HtmlToken) -> None:
        name, scope = token.name, self._scopes[-1]
        if scope.open and scope.open[-1].name == "p":
            self._pop()
        if name in ("tr", "td", "th") and scope.open and scope.open[0] is self._skipping:
            self._end_cell()  # the hidden cell before
        if name in ("table", "tr", "td", "th") and self._skipping is None and self._start_table(token):
            return
        scope = self._scopes[-1]
        if name in IMPLICITLY_CLOSED:
            self._close_siblings(*IMPLICITLY_CLOSED[name])
        if scope.writer.heading and self._start_in_heading(token):
            return
        scope.writer.end_line()
        element = self._push(token)
        if self._skipping is not None:
            return
        if self._is_hidden(token):
            element.skips = True
            self._skipping = element
            return
        if name in CONTENT or (token.raw and "main" in token.raw and parse_attributes(token.raw).get("role") == "main"):
            element.is_content = name != "article" or self._scope != "main"
            self._content_depth += element.is_content
        if self._is_visible or name == "h1":  # the page's title may precede its main part
            self._open_block(element, token)

    def _start_in_heading(self, token: HtmlToken) -> bool:
        """Whether the element stays on the heading's line; if not, the unclosed heading ends here."""
        scope = self._scopes[-1]
        if token.name in ("div", "p", "hgroup", "header"):
            self._push(token).is_flat = True
            scope.writer.add_markup(" ")
            return True
        self._pop_to(f"h{scope.writer.heading}")
        return False

    def _open_block(self, element: OpenElement, token: HtmlToken) -> None:
        """Set up what a visible block element means for its content."""
        name, scope = element.name, self._scopes[-1]
        if token.raw and name in ("div", "figure", "pre"):
            element.language = code_language(parse_attributes(token.raw))
        if name in HEADINGS:
            scope.writer.heading = HEADINGS[name]
        elif name == "blockquote":
            self._enter_container(element, Container("> ", "> ", False))
        elif name in ("ul", "menu", "dir"):
            scope.lists.append(0)
        elif name == "ol":
            scope.lists.append(_parse_int(parse_attributes(token.raw).get("start", ""), 1))
        elif name == "li":
            number = scope.lists[-1] if scope.lists else 0
            sign = f"{number}. " if number else "- "
            if number:
                scope.lists[-1] += 1
            self._enter_container(element, Container(sign, " " * len(sign), True))
        elif name in ("dt", "dd"):
            self._enter_container(element, Container(": ", "  ", True) if name == "dd" else Container("", "", True))
        elif name == "pre":
            self._code = []

    def _enter_container(self, element: OpenElement, container: Container) -> None:
        blocks = self._scopes[-1].writer
        if len(blocks.containers) < MAX_CONTAINERS:
            element.container = container
            blocks.containers.append(container)

    def _start_in_code(self, token: HtmlToken) -> None:
        """Expects only highlighting, and lines that are elements."""
        if token.name in ("table", "pre", "h1", "h2"):  # the end tag is missing
            self._end_code()
            self._on_start(token)
        elif token.name == "code" and token.raw and not self._scopes[-1].open[-1].language:
            self._scopes[-1].open[-1].language = code_language(parse_attributes(token.raw))

    def _on_end(self, token: HtmlToken) -> None:
        name, skipping = token.name, self._skipping
        if name == "title":
            self._is_title = False
        elif skipping is not None and name not in BLOCKS:
            self._end_in_skipped(name, skipping)
        elif self._code is not None:
            if name == "pre":
                self._end_code()
            elif name in ("div", "li", "p") and self._code and not self._code[-1].endswith("\n"):
                self._code.append("\n")
        elif name in BLOCKS or name == "math":
            if name not in ("table", "tr", "td", "th") or not self._end_table_part(name):
                self._pop_to(name)
        elif not self._is_visible:
            return
        elif name == "a" or name in INLINE_MARKS:
            self._blocks.close_mark(name)
        elif name == "q":
            self._blocks.add_markup("”")

    def _end_in_skipped(self, name: str, skipping: OpenElement) -> None:
        if name == skipping.name:
            if skipping.nested:
                skipping.nested -= 1
            else:
                self._pop_to(name)

    def _end_code(self) -> None:
        if self._code is None:
            return
        code, self._code = "".join(self._code), None
        around = [element.language for element in self._scopes[-1].open[-3:] if element.language]
        self._blocks.write_code(code, around[-1] if around else "")
        self._pop_to("pre")

    # Open elements

    def _push(self, token: HtmlToken) -> OpenElement:
        scope = self._scopes[-1]
        element = OpenElement(token.name, len(scope.writer.marks))
        scope.open.append(element)
        scope.counts[token.name] = scope.counts.get(token.name, 0) + 1
        return element

    def _pop_to(self, name: str) -> None:
        if self._scopes[-1].counts.get(name):
            while self._pop() != name:
                pass

    def _pop(self) -> str:
        scope = self._scopes[-1]
        element = scope.open.pop()
        name = element.name
        scope.counts[name] -= 1
        if element is self._skipping:
            self._skipping = None
        if name == "math" or element.is_flat:
            scope.writer.add_markup(" " if element.is_flat else "")
            return name
        if name in BLOCKS and not element.skips:
            scope.writer.end_line()
        for mark in scope.writer.marks[element.marks :]:
            scope.writer.close_mark(mark.name)
        if name in HEADINGS:
            scope.writer.heading = 0
        if element.container is not None:
            scope.writer.containers.remove(element.container)
        self._content_depth -= element.is_content
        if name in LISTS[:4] and scope.lists and not element.skips and self._skipping is None:
            scope.lists.pop()
        if name in LISTS and not any(scope.counts.get(outer) for outer in LISTS):
            scope.writer.leave_list()
        return name

    def _close_siblings(self, siblings: tuple[str, ...], borders: tuple[str, ...]) -> None:
        scope = self._scopes[-1]
        if not any(scope.counts.get(name) for name in siblings):
            return
        for element in reversed(scope.open[-50:]):
            if element.name in siblings:
                self._pop_to(element.name)
                return
            if element.name in borders:
                return

    def _is_hidden(self, token: HtmlToken) -> bool:
        return is_hidden(token, self._scope, self._content_depth > 0)

    # Tables

    def _start_table(self, token: HtmlToken) -> bool:
        """Whether it is part of a table; tables nested too deeply are not."""
        if not self._is_visible:
            return False
        if token.name == "table":
            if len(self._tables) >= _MAX_TABLE_DEPTH or self._is_hidden(token):
                return False
            self._blocks.heading = 0
            self._blocks.end_line()
            self._tables.append((HtmlTable(), self._scopes[-1]))
            return True
        if not self._tables:
            return False
        table, _ = self._tables[-1]
        self._end_cell()
        if token.name == "tr":
            table.start_row()
            return True
        scope = ElementScope(parse_attributes(token.raw), token.name == "th")
        self._scopes.append(scope)
        if self._is_hidden(token):
            element = self._push(token)
            element.skips = True
            self._skipping = element
        return True

    def _end_table_part(self, name: str) -> bool:
        if not self._tables:
            return False
        if name == "table":
            inner = self._scopes[-1].counts.get("table")
            if inner:
                return False  # a table nested too deeply
            self._end_table()
        elif self._scopes[-1].counts.get(name):
            if self._scopes[-1].open[0].name != name:
                return False
            self._end_cell()
        else:
            self._end_cell()
        return True

    def _end_cell(self) -> None:
        """Of the innermost open table."""
        scope = self._scopes[-1]
        if scope.cell is None or not self._tables or scope is self._tables[-1][1]:
            return
        while scope.open:
            self._pop()
        self._scopes.pop()
        self._tables[-1][0].add(
            HtmlTableCell(
                text=scope.writer.text(),
                has_structure=scope.writer.has_structure,
                is_header=scope.is_header,
                colspan=_parse_int(scope.cell.get("colspan", ""), 1),
                rowspan=_parse_int(scope.cell.get("rowspan", ""), 1),
            )
        )

    def _end_table(self) -> None:
        self._end_code()
        self._end_cell()
        table, around = self._tables.pop()
        around.writer.end_line()
        around.writer.write_table(table)

    # URLs

    def _absolute_url(self, href: str) -> str:
        """As a link has it; empty for a link within the page."""
        if href not in self._url_cache:
            if len(self._url_cache) > 10_000:
                self._url_cache.clear()
            self._url_cache[href] = absolute_url(self._base, href)
        return self._url_cache[href]


def _parse_int(text: str, otherwise: int) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 6 else otherwise
