"""Builds HTML from values: every text is escaped unless it already is HTML, and only known elements can be made.

Used by everything in web/html. What an element may be and which attributes it may have is listed here; anything else
is a mistake in the code and raises.
"""

import html
from collections.abc import Iterable
from typing import Final

# fmt: off
_ELEMENTS: Final = frozenset((
    "a", "article", "blockquote", "button", "code", "dd", "del", "details", "div", "dl", "dt", "em", "fieldset",
    "form", "h1", "h2", "h3", "h4", "h5", "h6", "input", "kbd", "label", "legend", "li", "ol", "p", "path",
    "pre", "rect", "span", "strong", "summary", "svg", "table", "tbody", "td", "textarea", "th", "thead", "tr",
    "ul",
))
_ATTRIBUTES: Final = frozenset((
    "aria-hidden", "aria-label", "autocomplete", "d", "data-default", "data-form-id", "data-started-ago", "for",
    "height", "href", "id", "method", "name", "open", "preserveAspectRatio", "rel", "role", "rows", "scope",
    "spellcheck", "start", "tabindex", "target", "title", "type", "value", "viewBox", "width", "x", "y",
))
# fmt: on


class Html(str):
    """Text that is HTML already. Made only by this module."""

    __slots__ = ()


EMPTY: Final = Html("")
BREAK: Final = Html("<br>")
RULE: Final = Html("<hr>")
Attribute = str | int | float | bool


def escape(text: str) -> Html:
    """Between tags and in attributes."""
    return text if isinstance(text, Html) else Html(html.escape(text, quote=True))


def join(parts: Iterable[str]) -> Html:
    """Parts that are not HTML are escaped."""
    return Html("".join(map(escape, parts)))


def opening(name: str, attributes: dict[str, Attribute] | None = None, *, css: str = "") -> Html:
    """A start tag. An attribute that is True has no value; one that is False or an empty class is omitted."""
    if name not in _ELEMENTS:
        raise ValueError(f"no element {name}")
    written = [f' class="{escape(css)}"'] if css else []
    for key, value in (attributes or {}).items():
        if key not in _ATTRIBUTES:
            raise ValueError(f"no attribute {key}")
        if value is True:
            written.append(f" {key}")
        elif value is not False:
            written.append(f' {key}="{escape(str(value))}"')
    return Html(f"<{name}{''.join(written)}>")


def closing(name: str) -> Html:
    if name not in _ELEMENTS:
        raise ValueError(f"no element {name}")
    return Html(f"</{name}>")


def element(name: str, *children: str, css: str = "", attributes: dict[str, Attribute] | None = None) -> Html:
    """`children`: HTML, or text that gets escaped. A newline that begins a `pre` or `textarea` is kept."""
    start = opening(name, attributes, css=css)
    if name == "input":
        return start
    content = join(children)
    if name in ("pre", "textarea") and content.startswith("\n"):
        content = f"\n{content}"  # HTML drops the first one
    return Html(f"{start}{content}</{name}>")


_ICONS: Final = {
    "error": "M8 1.5a6.5 6.5 0 1 0 0 13 6.5 6.5 0 0 0 0-13ZM7.2 4.5h1.6v4.6H7.2V4.5Zm0 5.7h1.6v1.6H7.2v-1.6Z",
    "warning": "M8 1.6 15 14H1L8 1.6ZM7.3 6v4h1.4V6H7.3Zm0 4.9v1.4h1.4v-1.4H7.3Z",
    "info": "M8 1.5a6.5 6.5 0 1 0 0 13 6.5 6.5 0 0 0 0-13ZM7.2 4.4h1.6V6H7.2V4.4Zm0 2.7h1.6v4.6H7.2V7.1Z",
    "copy": "M5 1.5h8.5V11H12V3H5V1.5ZM2.5 4.5H11v10H2.5v-10ZM4 6v7h5.5V6H4Z",
}


def icon(name: str) -> Html:
    """Decoration: its meaning is also written as text."""
    path = element("path", attributes={"d": _ICONS[name]})
    return element("svg", path, css=f"icon icon-{name}", attributes={"viewBox": "0 0 16 16", "aria-hidden": "true"})


def meter(share: float, label: str) -> Html:
    """A bar that is filled up to `share`, 0 to 1; nearly full ones get another color."""
    filled = min(max(share, 0.0), 1.0)
    level = "meter meter-full" if filled >= 0.9 else "meter meter-high" if filled >= 0.7 else "meter"
    attributes: dict[str, Attribute] = {"width": 100, "height": 6, "x": 0, "y": 0}
    track = element("rect", css="meter-track", attributes=attributes)
    fill = element("rect", css="meter-fill", attributes={**attributes, "width": round(filled * 100, 2)})
    frame: dict[str, Attribute] = {"viewBox": "0 0 100 6", "preserveAspectRatio": "none", "role": "img"}
    return element("svg", track, fill, css=level, attributes={**frame, "aria-label": label})
