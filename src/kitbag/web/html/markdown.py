"""Renders Markdown as HTML: headings, lists, tables, quotes, highlighted code with a button to copy it.

Used by blocks for replies. Parsed as in the terminal (views/rendering/markdown). HTML in the source stays text, only
links to http, https and mailto become links, and images are links, so that nothing is loaded.
"""

import time
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from kitbag.views.rendering.code import code_tokens
from kitbag.views.rendering.markdown import MAX_DEPTH, MAX_LANGUAGE_CHARS, markdown_parser, source_if_cells_lost
from kitbag.views.rendering.markdown_stream import markdown_pieces
from kitbag.views.rendering.render import FENCES, MAX_SECONDS
from kitbag.views.rendering.styled_text import Cleaner
from kitbag.web.html.elements import (
    BREAK,
    EMPTY,
    RULE,
    Attribute,
    Html,
    closing,
    element,
    escape,
    icon,
    join,
    opening,
)

if TYPE_CHECKING:
    from markdown_it.token import Token

_INLINE: Final = {"strong": "strong", "em": "em", "s": "del"}
_PLAIN_TAGS: Final = frozenset(
    ("blockquote", "ul", "ol", "li", "p", "thead", "tbody", "tr", "h1", "h2", "h3", "h4", "h5", "h6")
)
_TASKS: Final = {"[ ] ": "to do", "[x] ": "done", "[X] ": "done"}
_MAX_LINK_CHARS: Final = 2_000
_MAX_KEPT_LINE_CHARS: Final = 60
_CODE_CLASSES: Final = (
    ("Token.Comment", "c"),
    ("Token.Keyword.Constant", "m"),
    ("Token.Keyword", "k"),
    ("Token.Operator.Word", "k"),
    ("Token.Literal.String", "s"),
    ("Token.Literal.Number", "m"),
    ("Token.Name.Function", "nf"),
    ("Token.Name.Class", "nf"),
    ("Token.Name.Tag", "nt"),
    ("Token.Name.Attribute", "na"),
    ("Token.Name.Builtin", "nb"),
    ("Token.Name.Decorator", "na"),
    ("Token.Name.Variable", "nb"),
    ("Token.Generic.Deleted", "gd"),
    ("Token.Generic.Inserted", "gi"),
    ("Token.Generic.Heading", "gh"),
    ("Token.Generic.Subheading", "gh"),
    ("Token.Generic.Strong", "gh"),
)


def markdown_html(text: str, head: str, clean: Cleaner) -> Html:
    """`text` and `head` are clean. After a second the rest stays plain: it was crafted to be slow."""
    started = time.monotonic()
    parts: list[Html] = []
    for piece in markdown_pieces(text, head):
        elapsed = time.monotonic() - started
        if elapsed < MAX_SECONDS or (piece.head or piece.text).startswith(FENCES):
            parts.append(
                _piece_html(piece.head + piece.text, clean, bool(piece.head), highlights=elapsed < MAX_SECONDS / 4)
            )
        else:
            parts.append(_plain(piece.text))
    return join(parts)


def _plain(text: str) -> Html:
    return element("pre", text.strip("\n"), css="plain")


def _piece_html(text: str, clean: Cleaner, continues: bool, *, highlights: bool) -> Html:
    tokens = markdown_parser().parse(text)
    if any(token.level >= MAX_DEPTH - 1 for token in tokens):
        return _plain(text)
    # Escapes and entities can decode to text that was not cleaned.
    is_changed = any(sign in text for sign in "&\\%")
    view = _MarkdownHtml(tokens, text, clean if is_changed else None, continues, highlights)
    return view.render()


class _MarkdownHtml:
    def __init__(
        self, tokens: "Sequence[Token]", source: str, clean: Cleaner | None, continues: bool, highlights: bool
    ) -> None:
        self._tokens = tokens
        self._source = source
        self._clean = clean
        self._continues = continues
        """The first block began in an earlier piece."""
        self._highlights = highlights
        self._at = 0

    def render(self) -> Html:
        parts: list[Html] = []
        while self._at < len(self._tokens):
            token = self._tokens[self._at]
            self._at += 1
            parts.append(self._token(token))
        return join(parts)

    def _token(self, token: "Token") -> Html:
        match token.type:
            case "inline":
                return self._inline(token)
            case "fence" | "code_block":
                return self._code(token)
            case "hr":
                return RULE
            case "table_open":
                return self._table_open(token)
            case "table_close":
                return join((closing("table"), closing("div")))
            case "th_open" | "td_open":
                align = str(token.attrs.get("style", "")).removeprefix("text-align:")
                css = f"align-{align}" if align in ("right", "center") else ""
                scope: dict[str, Attribute] = {"scope": "col"} if token.tag == "th" else {}
                return opening(token.tag, scope, css=css)
            case "th_close" | "td_close":
                return closing(token.tag)
            case "list_item_open":
                return opening("li", css="task" if self._is_task() else "")
            case _ if token.hidden:
                return EMPTY
            case _ if token.tag in _PLAIN_TAGS and token.nesting:
                return self._plain_tag(token)
            case _:
                return escape(self._text(token.content))

    def _plain_tag(self, token: "Token") -> Html:
        if token.nesting < 0:
            return closing(token.tag)
        start = token.attrs.get("start")
        return opening(token.tag, {"start": start} if isinstance(start, int) else None)

    # Blocks

    def _code(self, token: "Token") -> Html:
        language = self._text(token.info).strip().split(" ")[0][:MAX_LANGUAGE_CHARS]
        code = token.content.removesuffix("\n")
        tokens = code_tokens(code, language) if self._highlights and code else None
        content = join(_token_html(text, kind) for text, kind in tokens) if tokens else escape(code)
        body = element("pre", element("code", content), attributes={"tabindex": "0"})
        if self._continues and token.level == 0 and token.map and token.map[0] == 0:
            return element("div", body, css="code-block continued")
        label = element("span", language or "text", css="code-language")
        copy = element(
            "button", icon("copy"), css="copy-code", attributes={"type": "button", "aria-label": "Copy this code"}
        )
        return element("div", label, copy, body, css="code-block")

    def _table_open(self, token: "Token") -> Html:
        source = source_if_cells_lost(token, self._source)
        if not source:
            scroll: dict[str, Attribute] = {"tabindex": "0", "role": "group", "aria-label": "Table"}
            return join((opening("div", scroll, css="table-scroll"), opening("table", css="data-table")))
        while self._tokens[self._at].type != "table_close":
            self._at += 1
        self._at += 1
        return _plain(source)

    def _is_task(self) -> bool:
        following = self._tokens[self._at : self._at + 2]
        return any(token.type == "inline" and token.content[:4] in _TASKS for token in following)

    # Inline content

    def _text(self, text: str) -> str:
        return self._clean.text(text) if self._clean is not None else text

    def _inline(self, block: "Token") -> Html:
        # Short lines are meant as lines; long ones were wrapped by the writer.
        keeps_lines = all(len(line) <= _MAX_KEPT_LINE_CHARS for line in block.content.split("\n"))
        parts: list[Html] = []
        links: list[tuple[str, int]] = []
        is_item = self._at >= 3 and self._tokens[self._at - 3].type == "list_item_open"
        for token in block.children or []:
            name, _, end = token.type.partition("_")
            if name in _INLINE and end:
                parts.append((opening if end == "open" else closing)(_INLINE[name]))
            elif token.type == "link_open":
                links.append((str(token.attrs.get("href", "")), len(parts)))
            elif token.type == "link_close":
                href, start = links.pop()
                parts[start:] = [self._link(href, join(parts[start:]))]
            elif token.type == "code_inline":
                parts.append(element("code", self._text(token.content)))
            elif token.type == "image":
                label = self._text(token.content) or "image"
                is_linked = bool(links)  # a link can't contain another one
                address = "" if is_linked else str(token.attrs.get("src", ""))
                parts.append(self._link(address, join(("image: ", label)), css="image-link"))
            elif token.type in ("softbreak", "hardbreak"):
                parts.append(BREAK if keeps_lines or token.type == "hardbreak" else escape("\n"))
            else:
                text = self._text(token.content)
                if is_item and not parts and text[:4] in _TASKS:
                    parts.append(_task_box(text[:4]))
                    text = text[4:]
                parts.append(escape(text))
        return join(parts)

    def _link(self, href: str, label: Html, css: str = "") -> Html:
        """A link shows where it leads, unless its text is the address itself: the text may name another one."""
        address = self._text(href)
        place = _link_place(address)
        if not place:
            shown = f" ({address})" if address and escape(address) != label else ""
            return join((element("span", label, css=css) if css else label, shown))
        attributes: dict[str, Attribute] = {
            "href": address,
            "title": f"opens {place} in a new tab",
            "target": "_blank",
            "rel": "noopener noreferrer nofollow",
        }
        says_place = label in {
            escape(text) for text in (address, address.removeprefix("mailto:"), address.rstrip("/"), place)
        }
        host = EMPTY if says_place else element("span", f" ({place})", css="link-host")
        return element("a", label, host, css=f"external {css}".strip(), attributes=attributes)


def _link_place(address: str) -> str:
    """The host or mail address that a link leads to; empty: it may not be a link."""
    if not address.isascii() or not address.isprintable() or " " in address or len(address) > _MAX_LINK_CHARS:
        return ""
    try:
        parts = urlsplit(address)
        host = parts.hostname or ""
    except ValueError:
        return ""
    if parts.scheme == "mailto":
        return parts.path
    # Browsers read a backslash as a slash, Python does not.
    return host if parts.scheme in ("http", "https") and "\\" not in address else ""


def _task_box(mark: str) -> Html:
    done = _TASKS[mark] == "done"
    return element(
        "span",
        "✓" if done else "",
        css="task-box task-done" if done else "task-box",
        attributes={"role": "img", "aria-label": _TASKS[mark]},
    )


@cache
def _code_class(kind: str) -> str:
    return next((css for prefix, css in _CODE_CLASSES if kind.startswith(prefix)), "")


def _token_html(text: str, kind: str) -> Html:
    css = _code_class(kind)
    return element("span", text, css=css) if css and text.strip() else escape(text)
