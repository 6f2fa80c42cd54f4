"""Classifies HTML elements: blocks, inline marks, and elements whose content is not shown.

Used by html_to_markdown.
"""

import re
from typing import Final, Literal
from urllib.parse import urljoin

from kitbag.tools.web.html_tokens import HtmlToken, parse_attributes

ContentScope = Literal["main", "tidy", "all"]
"""What to convert: the main part, everything but menus and the like, or everything visible."""


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


SKIPPED: Final = _names(
    "script style template svg canvas object audio video select datalist button iframe noembed noframes textarea map"
)
MENUS: Final = _names("nav menu")
ASIDES: Final = _names("footer aside")
"""Omitted around the content, but kept inside it, where they are notes."""
CONTENT: Final = _names("main article")
BLOCKS: Final = _names(
    "address article aside blockquote body caption center dd details dialog dir div dl dt fieldset figcaption figure "
    "footer form h1 h2 h3 h4 h5 h6 header hgroup html legend li main menu nav ol p pre search section summary table "
    "tbody td tfoot th thead tr ul"
)
LISTS: Final = ("ul", "ol", "menu", "dir", "dl")
HEADINGS: Final = {f"h{level}": level for level in range(1, 7)}
INLINE_MARKS: Final = {
    **dict.fromkeys(("b", "strong"), "**"),
    **dict.fromkeys(("i", "em", "cite", "dfn", "var"), "*"),
    **dict.fromkeys(("code", "kbd", "samp", "tt"), "`"),
    **dict.fromkeys(("del", "s", "strike"), "~~"),
}
IMPLICITLY_CLOSED: Final = {
    "li": (("li",), ("ul", "ol", "menu", "dir")),
    "dt": (("dt", "dd"), ("dl",)),
    "dd": (("dt", "dd"), ("dl",)),
}
"""Which open elements a start tag closes, and where the search for them ends."""
_MENU_ROLES: Final = _names("navigation banner contentinfo search menu menubar toolbar")
_MAX_ATTRIBUTE_CHARS = 4_000
_MAX_URL_CHARS = 2_000
_MAY_HIDE = re.compile(r"hidden|style|role|lineno|line-num|gutter|blob-num", re.IGNORECASE)
_HIDING_STYLE = re.compile(r"display:none|visibility:hidden|font-size:0(?:[;pe]|$)|opacity:0(?:\.0+)?(?:;|!|$)")
_LINE_NUMBERS = re.compile(r"(?:^|\s)(?:linenos|lineno|line-numbers|gutter|blob-num)(?:\s|$)")
_LANGUAGE = re.compile(
    r"(?:^|\s)(?:language-|lang-|highlight-source-|brush:\s*|sourceCode\s+|highlight-)([\w+#.-]{1,20})"
)


def is_hidden(token: HtmlToken, scope: ContentScope, in_content: bool) -> bool:
    """Whether an element's content is not for readers: invisible, a menu, or line numbers."""
    name = token.name
    if scope != "all" and (name in MENUS or (name in ASIDES and not in_content)):
        return True
    if name == "dialog" and "open" not in token.raw[:_MAX_ATTRIBUTE_CHARS]:
        return True
    if not _MAY_HIDE.search(token.raw, 0, _MAX_ATTRIBUTE_CHARS):
        return False
    attributes = parse_attributes(token.raw)
    style = "".join(attributes.get("style", "").split()).lower()
    if "hidden" in attributes or attributes.get("aria-hidden") == "true" or _HIDING_STYLE.search(style):
        return attributes.get("hidden") != "until-found"
    if scope != "all" and attributes.get("role", "").lower() in _MENU_ROLES:
        return True
    return _LINE_NUMBERS.search(attributes.get("class", "")) is not None


def absolute_url(base: str, href: str) -> str:
    """An absolute URL that fits into a Markdown link; empty if there is none."""
    href = "".join(href.split()) if "\n" in href else href.strip()
    if not href or href.startswith("#") or len(href) > _MAX_URL_CHARS:
        return ""
    try:
        url = urljoin(base, href)
    except ValueError:
        return ""
    if not url.lower().startswith(("http://", "https://", "mailto:", "ftp://")):
        return ""
    return re.sub(r"[\s()<>]", lambda found: f"%{ord(found[0]):02X}", url)


def code_language(attributes: dict[str, str]) -> str:
    language = attributes.get("data-lang") or attributes.get("data-language") or ""
    if not language:
        found = _LANGUAGE.search(attributes.get("class", ""))
        language = found[1] if found else ""
    language = language.strip().lower()
    return language if re.fullmatch(r"[\w+#.-]{1,20}", language) and language not in ("default", "none", "text") else ""
