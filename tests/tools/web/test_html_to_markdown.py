"""HTML as Markdown: what a reader of the page would see, and nothing else; whatever the page is made of."""

import threading

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kitbag.tools.web import html_to_markdown as html_to_markdown_module
from kitbag.tools.web.html_to_markdown import MAX_CHARS, MarkdownPage, html_to_markdown
from support.cost import processor_limit
from support.matrix import examples, sample

FROM = "https://docs.example/guide/page.html"


def read(source: str) -> MarkdownPage:
    return html_to_markdown(source, FROM, threading.Event())


def text(source: str) -> str:
    return read(source).text


@pytest.mark.parametrize(
    ("source", "wanted"),
    [
        ("<h1>A <em>b</em></h1><h3>C</h3>", "# A *b*\n\n### C"),
        ("<h2><div>One</div><p>line</p></h2>x", "## One line\n\nx"),
        ("<h2>never closed<ul><li>a</ul>", "## never closed\n\n- a"),
        ("<p>one<p>two", "one\n\ntwo"),
        ("a<br>b<br/>c", "a\nb\nc"),
        ("<b> bold </b>x <i></i><s>gone</s>", "**bold** x ~~gone~~"),
        ("<b>one<p>two</p></b>three", "**one**\n\n**two**\n\nthree"),
        ("<code>a`b</code> <kbd>c</kbd>", "`` a`b `` `c`"),
        ("<ul><li>a<ul><li>b</ul><li>c</ul>d", "- a\n  - b\n- c\n\nd"),
        ("<ol start=9><li>a<li>b<p>c</ol>", "9. a\n10. b\n\n    c"),
        ("<ul><li>a</ul><ol><li>b</ol>", "- a\n\n1. b"),
        ("<dl><dt>t<dd>d<dt>u<dd>e</dl>", "t\n: d\nu\n: e"),
        ("<blockquote><p>a<p>b</blockquote>c", "> a\n>\n> b\n\nc"),
        ("x<hr>y", "x\n\n---\n\ny"),
        ("5 &lt; 6 &amp; 7&nbsp;&gt; &#x41;&copy;", "5 < 6 & 7 > A©"),
        ("if a < b and c <d>", "if a < b and c"),
        ("<q>said</q>", "“said”"),
        ('<math alttext="x^2"><mi>x</mi></math> and <math><mi>y</mi></math>', "$x^2$ and y"),
        ("<details><summary>S</summary>inside</details>", "S\n\ninside"),
        ("plain words\n  with   blanks", "plain words with blanks"),
        ("", ""),
    ],
)  # fmt: skip
def test_elements_become_their_markdown(source: str, wanted: str) -> None:
    assert text(source) == wanted


@pytest.mark.parametrize(
    ("address", "wanted"),
    [
        ("other.html", "[x](https://docs.example/guide/other.html)"),
        ("/top?a=1&amp;b=2#c", "[x](https://docs.example/top?a=1&b=2#c)"),
        ("//cdn.example/y", "[x](https://cdn.example/y)"),
        ("http://a.example/(b) c", "[x](http://a.example/%28b%29%20c)"),
        ("mailto:a@b.example", "[x](mailto:a@b.example)"),
        ("#part", "x"),
        ("javascript:alert(1)", "x"),
        ("JavaScript:alert(1)", "x"),
        ("data:text/html,hi", "x"),
        ("http://[::1", "x"),
        ("", "x"),
    ],
)
def test_links_are_absolute_and_lead_out_of_the_page(address: str, wanted: str) -> None:
    assert text(f'<a href="{address}">x</a>') == wanted


def test_links_start_from_the_base_that_the_page_names() -> None:
    assert text('<base href="/v2/"><a href=a>x</a>') == "[x](https://docs.example/v2/a)"


def test_signs_that_only_link_to_a_heading_are_left_out() -> None:
    assert text('<h2>Title<a class=headerlink href="#t">¶</a></h2>') == "## Title"


def test_images_are_their_texts() -> None:
    page = '<img src=a.png alt="A  map"><img src="data:image/png;base64,AAAA"><a href=/b><img alt=logo src=x></a>'
    assert text(page) == "![A map][![logo]](https://docs.example/b)"


@pytest.mark.parametrize(
    ("source", "wanted"),
    [
        ('<pre><code class="language-python">def f():\n    return 1 &lt; 2\n</code></pre>', "```python\ndef f():\n    return 1 < 2\n```"),
        ('<div class="highlight highlight-source-js"><pre>let <span>a</span></pre></div>', "```js\nlet a\n```"),
        ('<div class="highlight-toml notranslate"><div class=highlight><pre>a = 1</pre></div></div>', "```toml\na = 1\n```"),
        ("<pre data-lang=go>x</pre>", "```go\nx\n```"),
        ("<pre>a ``` b</pre>", "````\na ``` b\n````"),
        ("<pre>one<br>two</pre>", "```\none\ntwo\n```"),
        ("<pre><div>one</div><div>two</div></pre>", "```\none\ntwo\n```"),
        ('<pre><span class="linenos">1</span>x<button>Copy</button></pre>', "```\nx\n```"),
        ("<ul><li>a<pre>b\n  c</pre></ul>", "- a\n\n  ```\n  b\n    c\n  ```"),
        ("<table><tr><td class=linenos><pre>1\n2</pre><td><pre>a\nb</pre></table>", "```\na\nb\n```"),
        ("<pre>never closed", "```\nnever closed\n```"),
        ("<code>see <a href=/x>f</a></code>", "`see f`"),
    ],
)  # fmt: skip
def test_code_is_as_it_was_written_and_has_its_language(source: str, wanted: str) -> None:
    assert text(source) == wanted


@pytest.mark.parametrize(
    ("source", "wanted"),
    [
        ("<table><tr><th>A<th>B<tr><td>1|2<td>x<br>y</table>", "| A | B |\n| --- | --- |\n| 1\\|2 | x<br>y |"),
        ("<table><tbody><tr><td>a</td><td>b</td></tr></tbody></table>z", "| a | b |\n| --- | --- |\n\nz"),
        ("<table><tr><th colspan=2>A<th>B<tr><td rowspan=2>1<td>2<td>3<tr><td>4<td>5</table>",
         "| A |  | B |\n| --- | --- | --- |\n| 1 | 2 | 3 |\n| 1 | 4 | 5 |"),
        ("<table><tr><td><h1>Laid out</h1><p>a</p><td>side</table>", "# Laid out\n\na\n\nside"),
        ("<table><tr><td>only one column</table>", "only one column"),
        ("<table><tr><td><table><tr><td>a<td>b</table><td>c</table>", "| a | b |\n| --- | --- |\n\nc"),
        ("<table><caption>Says</caption><tr><td>a<td>b</table>", "Says\n\n| a | b |\n| --- | --- |"),
        ("<table><tr><td></div>a</td><td>b", "| a | b |\n| --- | --- |"),
        ("<ul><li><table><tr><td>a<td>b</table></ul>", "- | a | b |\n  | --- | --- |"),
    ],
)  # fmt: skip
def test_tables_of_data_are_tables_and_those_that_lay_out_are_not(source: str, wanted: str) -> None:
    assert text(source) == wanted


UNSEEN = [
    "<script>SEEN</script>", "<script>'</scr' + '<p>SEEN'</script>", "<style>SEEN</style>", "<!-- SEEN -->", "<!-- <p>SEEN", "<template><p>SEEN</p></template>",
    "<svg><title>SEEN</title><text>SEEN</text></svg>", "<p hidden>SEEN</p>", "<div hidden><p>a</p>SEEN</div>", "<span aria-hidden=true>SEEN</span>",
    "<span hidden>a<span>b</span>SEEN</span>", "<p style='display: none'>SEEN</p>", "<p style='color:red;DISPLAY:NONE'>SEEN", "<i style=visibility:hidden>SEEN</i>",
    "<i style='font-size:0px'>SEEN</i>", "<i style='opacity:0'>SEEN</i>", "<select><option>SEEN</select>", "<textarea>SEEN</textarea>", "<button>SEEN</button>",
    "<iframe>SEEN</iframe>", "<dialog>SEEN</dialog>", "<nav><a href=/>SEEN</a></nav>", "<footer>SEEN</footer>", "<aside>SEEN</aside>", "<div role=navigation>SEEN</div>",
    "<table hidden><tr><td>SEEN</table>", "<table><tr><td hidden>SEEN<td>a<td>b</table>", "<?php SEEN ?>", "<!SEEN>", "<title>SEEN</title>",
]  # fmt: skip


@pytest.mark.parametrize("source", UNSEEN)
def test_what_nobody_sees_is_left_out_and_the_rest_is_not(source: str) -> None:
    found = text(
        f"<p>Before it.</p>{source}<p>After it.</p>" if "<!-- <p>" not in source else f"Before it. After it.{source}"
    )
    assert "SEEN" not in found
    assert "Before it." in found
    assert "After it." in found


def test_the_main_part_is_enough_where_there_is_one() -> None:
    page = read(
        "<title> A &amp; B </title><header><h1>Top</h1>menu</header><main><aside>note</aside>text</main><footer>foot</footer>"
    )
    assert page == MarkdownPage("A & B", "# Top\n\nnote\n\ntext", "")


def test_a_page_that_is_all_menu_is_shown() -> None:
    links = "".join(f"<a href=/{number}>Chapter {number}</a> " for number in range(100))
    assert "[Chapter 99](https://docs.example/99)" in text(f"<main></main><nav>{links}</nav>")
    assert "[Chapter 99](https://docs.example/99)" in text(f"<p>Hi</p><nav>{links}</nav>")


def test_an_empty_title_takes_nothing_from_the_page() -> None:
    assert read("<title></title><p>text") == MarkdownPage("", "text", "")


DEEP = [
    "<div>", "<b>", "<ul><li>", "<blockquote>", "<table><tr><td>", "<table>", "<a href=x>", "<span hidden>", "<nav>", "<main>", "<h1>", "<pre>", "<dl><dd>",
    "<p hidden>", "<", "</", "<!", "<!-", "<!--", "<a b='", '<a b="', "<a =\">\" ", "&", "&#", "<script>", "<title>", "<svg>", "<math>", "</div>", "<td>", "</table>",
    "<p><b><table><tr><td><ul><li><h2>x", "<select><option>", "<tr><td rowspan=1000 colspan=50>x", "<![CDATA[", "\x00<\x00", "<details>",
]  # fmt: skip


@pytest.mark.parametrize("piece", sample(DEEP, 12))
def test_depth_and_repetition_end_in_bounded_time_and_size(piece: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(html_to_markdown_module, "TIMEOUT_SECONDS", 0.1)
    with processor_limit():
        page = read(piece * (100_000 // len(piece)) + "the end")
    assert len(page.text) <= MAX_CHARS


@pytest.mark.parametrize("piece", ["<div>", "<b>", "<blockquote>", "<ul><li>", "<table><tr><td>", "<span><p>"])
def test_what_is_deep_inside_is_not_lost(piece: str) -> None:
    assert "the end" in text(piece * 3_000 + "the end")


def test_a_page_that_takes_too_long_or_is_too_long_is_cut_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    page = read("<p>" + "word " * 500_000)
    assert len(page.text) == MAX_CHARS
    assert "longer than" in page.truncation
    monkeypatch.setattr(html_to_markdown_module, "TIMEOUT_SECONDS", 0.0)
    assert "timed out" in read("<p>a" * 1_000).truncation


def test_it_stops_when_it_is_told_to() -> None:
    stop = threading.Event()
    stop.set()
    assert html_to_markdown("<p>a" * 10_000, FROM, stop).text == ""


TAGS = """
<p> </p> <div> </div> <table> <tr> <td> <th> </td> </tr> </table> <ul> <ol> <li> </li> </ul> <pre> </pre> <code> </code> <b> </b> <a_href=x> </a> <h1> </h1> <dl> <dt>
<dd> </dl> <blockquote> </blockquote> <nav> </nav> <main> </main> <span_hidden> </span> <math> </math> <br> <hr> <img_alt=y> text &amp; <!-- --> <svg> </svg>
<td_hidden> <table_hidden> <title> </title> <script> </script> <q> </q> <p_hidden> <caption> < > &
"""


@settings(max_examples=examples(150), suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.sampled_from(TAGS.split()), max_size=40))
def test_no_order_of_tags_breaks_it(tags: list[str]) -> None:
    page = read("".join(tags).replace("_", " "))
    assert isinstance(page.text, str)
    assert page.truncation == ""
