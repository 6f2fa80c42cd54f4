"""Renders Markdown as styled rows: headings, lists, tables, quotes, and code that can be copied unchanged.

Used by render for replies. Parsed by markdown-it. No borders, padding, backgrounds or terminal links; a link shows its
address as text. Without color the Markdown markers stay, so that nothing is lost.
"""

import re
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Final, NamedTuple

from kitbag.text.terminal_width import text_width
from kitbag.views.rendering.code import PLAIN, code_rows
from kitbag.views.rendering.styled_text import TONES, Cleaner, StyledRun, chop_row, combine_styles, wrap_row
from kitbag.views.rendering.table import TableCells, layout_columns

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

_HEADINGS: Final = {"h1": "1;4", "h2": "1", "h3": "1;3"}
_INLINE: Final = {"strong": ("1", "**"), "em": ("3", "*"), "s": ("9", "~~")}
_QUOTE: Final = StyledRun("│ ", TONES["dim"])
_TASKS: Final = {"[ ] ": "", "[x] ": TONES["good"], "[X] ": TONES["good"]}
MAX_DEPTH: Final = 60
"""Deeper nesting would be dropped by the parser."""
_CONTAINER_MARKS = re.compile(r"^(?:[ >]|[-*+] |\d{1,9}[.)] )+")
"""Markers of the lists and quotes around a line."""
_MAX_RULE_WIDTH: Final = 40
MAX_LANGUAGE_CHARS: Final = 40


@cache
def markdown_parser() -> "MarkdownIt":
    from markdown_it import MarkdownIt

    # A link definition would disappear from the text, so it stays a paragraph.
    options = {"html": False, "linkify": False, "maxNesting": MAX_DEPTH}
    return MarkdownIt("commonmark", options).enable(["table", "strikethrough"]).disable("reference")


def markdown_rows(
    text: str, width: int, clean: Cleaner, *, color: bool, highlights: bool = True
) -> list[list[StyledRun]]:
    """`text` is clean. What the parser decodes, such as `&#27;`, is cleaned again."""
    # Escapes and entities can decode to text that was not cleaned.
    is_changed = any(sign in text for sign in "&\\%")
    tokens = markdown_parser().parse(text)
    if any(token.level >= MAX_DEPTH - 1 for token in tokens):
        return plain_rows(text, width)
    view = _MarkdownRenderer(
        tokens=tokens, text=text, width=width, clean=clean if is_changed else None, color=color, highlights=highlights
    )
    view.render()
    return view.rows


def plain_rows(text: str, width: int) -> list[list[StyledRun]]:
    return [row for line in text.strip("\n").split("\n") for row in chop_row([StyledRun(line)], width)]


def source_if_cells_lost(table: "Token", text: str) -> str:
    """The table's source if a row has more cells than the header: the parser would drop them."""
    from markdown_it.rules_block.table import escapedSplit

    first, end = table.map or (0, 0)
    lines = [_CONTAINER_MARKS.sub("", line, 1) for line in text.split("\n")[first:end]]
    sizes = [len(escapedSplit(line.strip().removeprefix("|").removesuffix("|"))) for line in lines]
    return "\n".join(lines) if any(size > sizes[0] for size in sizes[2:]) else ""


_SOFT_BREAK: Final = StyledRun("\n")
"""Recognized by its identity."""


class _Prefix(NamedTuple):
    """What precedes the lines of a list item or quote."""

    first: tuple[StyledRun, ...]
    rest: tuple[StyledRun, ...]


class _MarkdownRenderer:
    def __init__(
        self, tokens: "Sequence[Token]", text: str, width: int, clean: Cleaner | None, color: bool, highlights: bool
    ) -> None:
        """`text`: the source of the tokens."""
        self._source = text
        self.rows: list[list[StyledRun]] = []
        self._tokens = tokens
        self._width = width
        self._clean = clean
        self._color = color
        self._highlights = highlights
        self._prefixes: list[_Prefix] = []
        self._is_tight: list[bool] = []
        """Of the enclosing lists."""
        self._gap = False
        """A blank line is due before the next block."""
        self._at = 0

    def render(self) -> None:
        while self._at < len(self._tokens):
            token = self._tokens[self._at]
            self._at += 1
            self._render_token(token)

    def _render_token(self, token: "Token") -> None:
        match token.type:
            case "paragraph_open" | "heading_open":
                self._start_block(tight=token.hidden)
                self._paragraph(token)
            case "fence" | "code_block":
                self._start_block()
                self._code(token)
            case "hr":
                self._start_block()
                self._add([[StyledRun("─" * min(self._width_left(), _MAX_RULE_WIDTH), TONES["dim"])]])
                self._gap = True
            case "table_open":
                self._start_block()
                cells, source = self._table(), source_if_cells_lost(token, self._source)
                self._add(
                    plain_rows(source, self._width_left())
                    if source
                    else layout_columns(cells, self._width_left(), rule=True)
                )
                self._gap = True
            case "blockquote_open":
                self._start_block()
                self._push((_QUOTE,), (_QUOTE,))
            case "bullet_list_open" | "ordered_list_open":
                self._start_block(tight=bool(self._is_tight and self._is_tight[-1]))
                self._is_tight.append(self._is_list_tight())
            case "list_item_open":
                self._start_block(tight=self._is_tight[-1])
                self._item(token)
            case "blockquote_close" | "list_item_close":
                self._prefixes.pop()
                self._gap = True
            case "bullet_list_close" | "ordered_list_close":
                self._is_tight.pop()
                self._gap = True
            case _:
                pass

    # Enclosing lists and quotes

    def _start_block(self, *, tight: bool = False) -> None:
        if self._gap and not tight:
            self.rows.append([run for prefix in self._prefixes for run in prefix.rest])
        self._gap = False

    def _push(self, first: tuple[StyledRun, ...], rest: tuple[StyledRun, ...]) -> None:
        if self._width_left() < self._width // 2:
            first, rest = first if first != rest else (), ()  # too deeply nested to indent further
        self._prefixes.append(_Prefix(first, rest))

    def _width_left(self) -> int:
        return self._width - sum(len(run.text) for prefix in self._prefixes for run in prefix.rest)

    def _take_prefixes(self) -> tuple[list[StyledRun], list[StyledRun]]:
        """For the first line and the others. A list marker stands only before the first line of its item."""
        first = [run for prefix in self._prefixes for run in prefix.first]
        rest = [run for prefix in self._prefixes for run in prefix.rest]
        self._prefixes = [_Prefix(prefix.rest, prefix.rest) for prefix in self._prefixes]
        return first, rest

    def _add(self, rows: list[list[StyledRun]]) -> None:
        first, rest = self._take_prefixes()
        self.rows += [[*(rest if index else first), *row] for index, row in enumerate(rows)]

    def _is_list_tight(self) -> bool:
        for token in self._tokens[self._at : self._at + 40]:
            if token.type == "paragraph_open":
                return token.hidden
        return True

    def _item(self, token: "Token") -> None:
        mark = f"{token.info}{token.markup} " if token.info else "- "
        inline = next(
            (following for following in self._tokens[self._at : self._at + 2] if following.type == "inline"), None
        )
        if inline is not None and inline.content[:4] in _TASKS:
            self._push((), (StyledRun("    "),))
        else:
            self._push((StyledRun(mark, TONES["accent"]),), (StyledRun(" " * len(mark)),))

    # Blocks

    def _paragraph(self, token: "Token") -> None:
        inline = self._tokens[self._at]
        self._at += 2  # including the closing token
        runs = self._inline(inline.children or [])
        if any(_QUOTE in prefix.rest for prefix in self._prefixes):
            runs = self._without_soft_breaks(runs)
        if token.type == "heading_open":
            style = _HEADINGS.get(token.tag, "3")
            mark = [] if self._color else [StyledRun("#" * int(token.tag[1:]) + " ")]
            runs = [*mark, *(StyledRun(text, combine_styles(style, inner)) for text, inner in runs)]
        elif self._prefixes and runs and runs[0].text[:4] in _TASKS:
            box = runs[0].text[:4]
            runs = [StyledRun(box, _TASKS[box]), runs[0]._replace(text=runs[0].text[4:]), *runs[1:]]
        first, rest = self._take_prefixes()
        self.rows += wrap_row(runs, self._width, first, rest)
        self._gap = not token.hidden

    def _code(self, token: "Token") -> None:
        language = self._text(token.info).strip().split(" ")[0][:MAX_LANGUAGE_CHARS]
        code = token.content.removesuffix("\n")
        first, rest = self._take_prefixes()
        highlighted = language if self._highlights else ""
        rows = code_rows(code, highlighted) if self._color else [[StyledRun(line)] for line in code.split("\n")]
        if not self._color and token.type == "fence":
            rows = [[StyledRun(f"{token.markup}{language}")], *rows, [StyledRun(token.markup)]]
        for row in rows:
            self.rows += chop_row(row, self._width, first, rest)
            first = rest
        self._gap = True

    def _table(self) -> TableCells:
        rows: list[list[list[StyledRun]]] = []
        right: set[int] = set()
        while self._tokens[self._at].type != "table_close":
            token = self._tokens[self._at]
            self._at += 1
            if token.type == "tr_open":
                rows.append([])
            elif token.type in ("th_open", "td_open"):
                if "right" in str(token.attrs.get("style", "")):
                    right.add(len(rows[-1]))
            elif token.type == "inline":
                rows[-1].append(self._inline(token.children or []))
        self._at += 1
        return TableCells(heads=rows[0], rows=rows[1:], right=frozenset(right))

    def _without_soft_breaks(self, runs: list[StyledRun]) -> list[StyledRun]:
        """If a line must be wrapped, the whole paragraph is: otherwise each of its lines would leave a short one."""
        lines = "".join(run.text for run in runs).split("\n")
        if max(map(text_width, lines)) <= self._width_left():
            return runs
        return [StyledRun(" ") if run is _SOFT_BREAK else run for run in runs]

    # Inline content

    def _text(self, text: str) -> str:
        return self._clean.text(text) if self._clean is not None else text

    def _inline(self, tokens: "Sequence[Token]") -> list[StyledRun]:
        runs: list[StyledRun] = []
        styles: list[str] = [""]
        links: list[tuple[str, int]] = []
        for token in tokens:
            name, _, end = token.type.partition("_")
            style = styles[-1]
            if name in _INLINE:
                sgr, mark = _INLINE[name]
                if not self._color:
                    runs.append(StyledRun(mark))
                styles.append(combine_styles(style, sgr)) if end == "open" else styles.pop()
            elif name == "link" and end == "open":
                links.append((str(token.attrs.get("href", "")), len(runs)))
                styles.append(combine_styles(style, "4"))
            elif name == "link":
                styles.pop()
                runs += self._address(*links.pop(), runs)
            elif token.type == "code_inline":
                runs += self._code_inline(token.content, style)
            elif token.type == "image":
                alt_text = self._text(token.content) or "image"
                runs.append(StyledRun(f"[{alt_text}] ({self._text(str(token.attrs.get('src', '')))})", style))
            elif token.type in ("softbreak", "hardbreak"):
                runs.append(_SOFT_BREAK if token.type == "softbreak" else StyledRun("\n"))
            else:
                runs.append(StyledRun(self._text(token.content), style))
        return runs

    def _code_inline(self, code: str, style: str) -> list[StyledRun]:
        text = self._text(code)
        if self._color:
            return [StyledRun(text, combine_styles(style, PLAIN))]
        fence = "``" if "`" in text else "`"
        return [StyledRun(f"{fence}{text}{fence}")]

    def _address(self, href: str, start: int, runs: list[StyledRun]) -> list[StyledRun]:
        """Shown unless the link text is the address itself: the text may name another one."""
        address = self._text(href)
        link_text = "".join(run.text for run in runs[start:])
        if link_text in (address, address.removeprefix("mailto:")) or not address:
            return []
        return [StyledRun(f" ({address})", TONES["dim"])]
