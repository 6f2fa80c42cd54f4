"""Parses rendered HTML strictly: only listed elements and attributes, everything closed, no dangerous address."""

from html.parser import HTMLParser
from urllib.parse import urlsplit

VOID = {"input", "br", "hr"}
PLAIN = {
    "article", "div", "p", "pre", "code", "strong", "em", "del", "blockquote", "ul", "li", "h1", "h2", "h3", "h4", "h5",
    "h6", "table", "thead", "tbody", "tr", "td", "dl", "dt", "dd", "summary", "kbd", "fieldset", "legend", "br", "hr",
}  # fmt: skip
COMMON = {"class", "aria-label", "aria-hidden", "role", "title", "tabindex"}
ALLOWED: dict[str, set[str]] = {
    **{name: set() for name in PLAIN},
    "span": {"data-started-ago"},
    "ol": {"start"},
    "th": {"scope"},
    "details": {"open"},
    "a": {"href", "target", "rel"},
    "button": {"type", "name", "value", "data-default"},
    "input": {"type", "name", "value", "id", "data-default", "autocomplete", "spellcheck"},
    "textarea": {"name", "id", "rows", "autocomplete", "spellcheck"},
    "label": {"for"},
    "form": {"data-form-id", "method", "autocomplete"},
    "svg": {"viewbox", "preserveaspectratio"},
    "path": {"d"},
    "rect": {"x", "y", "width", "height"},
}


class Parsed(HTMLParser):
    def __init__(self, source: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.texts: list[str] = []
        self.feed(source)
        self.close()
        assert not self.open, f"not closed: {self.open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in ALLOWED, tag
        attributes = {name: value or "" for name, value in attrs}
        assert len(attributes) == len(attrs), f"an attribute twice: {attrs}"
        assert set(attributes) <= ALLOWED[tag] | COMMON, (tag, attributes)
        if tag == "a":
            assert urlsplit(attributes["href"]).scheme in ("http", "https", "mailto"), attributes
            assert attributes["rel"] == "noopener noreferrer nofollow"
            assert attributes["target"] == "_blank"
            assert "a" not in self.open
        if tag == "form":
            assert attributes["method"] == "dialog"
        self.elements.append((tag, attributes))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"{tag} closed but not open"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    def handle_comment(self, data: str) -> None:
        raise AssertionError(f"a comment: {data}")

    def handle_decl(self, decl: str) -> None:
        raise AssertionError(f"a declaration: {decl}")

    def handle_pi(self, data: str) -> None:
        raise AssertionError(f"an instruction: {data}")

    def unknown_decl(self, data: str) -> None:
        raise AssertionError(f"a declaration: {data}")

    @property
    def text(self) -> str:
        return "".join(self.texts)

    def named(self, name: str) -> list[dict[str, str]]:
        return [attributes for tag, attributes in self.elements if tag == name]

    def with_class(self, css: str) -> list[tuple[str, dict[str, str]]]:
        return [found for found in self.elements if css in found[1].get("class", "").split()]


def parse(source: str) -> Parsed:
    source.encode()  # what can't be sent can't be shown
    return Parsed(source)
