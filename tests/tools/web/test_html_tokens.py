"""HTML cut into pieces, in one pass."""

import pytest

from kitbag.tools.web.html_tokens import html_text, parse_attributes, tokenize


def cut(source: str) -> list[tuple[str, str]]:
    return [(piece.kind, piece.name or piece.raw) for piece in tokenize(source)]


@pytest.mark.parametrize(
    ("source", "wanted"),
    [
        ("a<B>c</b >", [("text", "a"), ("start", "b"), ("text", "c"), ("end", "b")]),
        ("<a href='x>y' b=\">\">z", [("start", "a"), ("text", "z")]),
        ("<a title=don't>it's", [("start", "a"), ("text", "it's")]),
        ('<a b="never closed>text', [("start", "a"), ("text", "text")]),
        ("1 < 2 <3 a<", [("text", "1 <"), ("text", " 2 <"), ("text", "3 a<")]),
        ("x<!-- a > b -->y<!-->z", [("text", "x"), ("text", "y"), ("text", "z")]),
        ("x<!-- no end", [("text", "x")]),
        ("<!doctype html><?xml ?></ >x", [("text", "x")]),
        ("<script>if (a<b) '</p>'</SCRIPT >x", [("start", "script"), ("text", "if (a<b) '</p>'"), ("end", "script"), ("text", "x")]),
        ("<style>x", [("start", "style"), ("text", "x")]),
        ("text <unfinished", [("text", "text ")]),
    ],
)  # fmt: skip
def test_tags_and_text_are_told_apart_as_a_browser_does(source: str, wanted: list[tuple[str, str]]) -> None:
    assert cut(source) == wanted


def test_attributes_are_read_in_every_spelling() -> None:
    found = parse_attributes(""" A="1" b='2' c=3 d e = "x > y" a=again f=&quot;&amp; """)
    assert found == {"a": "1", "b": "2", "c": "3", "d": "", "e": "x > y", "f": '"&'}


def test_a_long_text_is_cut_but_no_reference_in_it() -> None:
    text = "&amp;" * 100_000
    found = [piece.raw for piece in tokenize(text)]
    assert "".join(found) == text
    assert len(found) > 1
    assert all(piece.startswith("&") for piece in found)


def test_markup_is_read_as_one_line() -> None:
    assert html_text("A <b>b</b>\n&lt;c&gt;  &amp;amp;") == "A b <c> &amp;"
