"""Splits HTML into tags and text in one pass, in linear time.

Used by html_to_markdown and the DuckDuckGo search backend. Builds no tree and does not recurse, so nesting depth does
not matter; unclosed elements end with the page, as in a browser.
"""

import html
import re
from collections.abc import Iterator
from typing import Final, Literal, NamedTuple


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


VOID_ELEMENTS: Final = _names("area base br col embed hr img input link meta param source track wbr")
"""Elements without content."""
_RAW_TEXT_ELEMENTS: Final = _names("script style textarea title iframe noembed noframes xmp")
"""Elements that contain only text, whatever it looks like."""
# Possessive quantifiers: a tag is read once. A quote counts only at the start of a value.
_TAG = re.compile(r"""<(/?)([a-zA-Z][^\s/>]*+)((?:[^>=]++|=\s*+(?:"[^"]*+"|'[^']*+')?+)*+)>""")
_ATTRIBUTE = re.compile(r"""([^\s/>="']++)(?:\s*+=\s*+(?:"([^"]*+)"|'([^']*+)'|([^\s>]++))?+)?+""")
_MAX_NAME_CHARS = 40
_MAX_TEXT_CHARS = 1 << 16
_MAX_REFERENCE_CHARS = 40
_MAX_ATTRIBUTES = 100


class HtmlToken(NamedTuple):
    kind: Literal["start", "end", "text"]
    name: str
    """Of a tag, in lower case."""
    raw: str
    """Of a tag, its attributes as written; of text, the text. References such as `&amp;` are not decoded."""


def tokenize(text: str) -> Iterator[HtmlToken]:
    at = 0
    while (tag_at := text.find("<", at)) >= 0:
        found = _TAG.match(text, tag_at)
        if found is None:
            end = _markup_end(text, tag_at)
            if end < 0:  # an unterminated tag contains the rest of the page
                break
            if end == 0:  # just a character
                yield from _text_tokens(text, at, tag_at + 1)
                at = tag_at + 1
                continue
            yield from _text_tokens(text, at, tag_at)
            at = end
            continue
        yield from _text_tokens(text, at, tag_at)
        at = found.end()
        name = found[2][:_MAX_NAME_CHARS].lower()
        if found[1]:
            yield HtmlToken("end", name, "")
            continue
        yield HtmlToken("start", name, found[3])
        if name in _RAW_TEXT_ELEMENTS:
            closing = re.compile(rf"</{name}(?=[\s/>])", re.IGNORECASE).search(text, at)
            end = closing.start() if closing else len(text)
            yield from _text_tokens(text, at, end)
            at = end
    else:
        tag_at = len(text)
    yield from _text_tokens(text, at, tag_at)


def _text_tokens(text: str, start: int, end: int) -> Iterator[HtmlToken]:
    """In chunks that convert quickly, none of which ends inside a reference."""
    while end - start > _MAX_TEXT_CHARS:
        limit = start + _MAX_TEXT_CHARS
        reference = text.rfind("&", limit - _MAX_REFERENCE_CHARS, limit)
        cut = reference if reference >= 0 else limit
        yield HtmlToken("text", "", text[start:cut])
        start = cut
    if end > start:
        yield HtmlToken("text", "", text[start:end])


def _markup_end(text: str, at: int) -> int:
    """The end of a comment or declaration; 0 if it is not markup, -1 if it is unterminated."""
    if text.startswith("<!--", at):
        end = text.find("-->", at + 2)
        return end + 3 if end >= 0 else len(text)
    following = text[at + 1 : at + 2]
    if following and following in "!?/":
        end = text.find(">", at)
        return end + 1 if end >= 0 else len(text)
    return -1 if following.isascii() and following.isalpha() else 0


def parse_attributes(raw: str) -> dict[str, str]:
    """Of duplicate names the first counts."""
    found: dict[str, str] = {}
    for match in _ATTRIBUTE.finditer(raw):
        name, *values = match.groups()
        found.setdefault(name.lower(), html.unescape(next((value for value in values if value), "")))
        if len(found) >= _MAX_ATTRIBUTES:
            break
    return found


def html_text(markup: str) -> str:
    """The text of a short HTML fragment, on one line."""
    texts = (token.raw for token in tokenize(markup) if token.kind == "text")
    return " ".join(html.unescape("".join(texts)).split())
