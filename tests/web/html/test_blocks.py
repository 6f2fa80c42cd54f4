"""What a reader sees of each block."""

import re
from pathlib import Path

import kitbag.web
from kitbag.views.blocks import (
    Bar,
    BarsBlock,
    DiffBlock,
    FieldsBlock,
    NoticeBlock,
    ReplyBlock,
    TableBlock,
    ThinkingBlock,
    ToolBlock,
    UserBlock,
    VerbatimBlock,
)
from kitbag.views.rendering.markdown_stream import MarkdownStream
from kitbag.web.html.blocks import render_block
from web.html.parsed import Parsed, parse

DIFF = "--- a/x\n+++ b/x\n@@ -9,2 +9,3 @@\n same\n-old\n+new\n+more\n"


def _reply(text: str, head: str = "") -> Parsed:
    return parse(render_block(ReplyBlock(text, head=head), str))


def test_code_is_highlighted_labelled_and_has_a_button_to_copy_it() -> None:
    shown = _reply("```python\nimport os\n```\n")
    assert "python" in shown.text
    assert "import os" in shown.text
    assert shown.with_class("copy-code")[0][1]["aria-label"]
    assert shown.with_class("k")


def test_code_keeps_its_tabs_so_that_a_copy_works() -> None:
    assert "\tcc -o a a.c" in _reply("```make\nall:\n\tcc -o a a.c\n```\n").text


def test_the_rest_of_a_code_block_continues_it_without_a_second_label() -> None:
    shown = _reply("import os\n```\n", head="```python\n")
    assert shown.with_class("continued")
    assert not shown.with_class("copy-code")
    assert shown.with_class("k")


def test_a_streamed_reply_reads_like_the_whole_one() -> None:
    text = "# Title\n\n- one\n- two\n\n```python\n" + "x = 1\n" * 200 + "```\n\nEnd.\n"
    stream = MarkdownStream()
    pieces = [*stream.add(text), *stream.finish()]
    assert len(pieces) > 3
    parts = [parse(render_block(ReplyBlock(piece.text, at == 0, piece.head), str)) for at, piece in enumerate(pieces)]
    assert sum(len(part.with_class("copy-code")) for part in parts) == 1
    assert "".join(part.text for part in parts).count("x = 1") == 200
    assert [bool(part.with_class("begins")) for part in parts] == [True, *[False] * (len(parts) - 1)]


def test_a_link_names_its_host_unless_its_text_is_the_address() -> None:
    shown = _reply("[https://bank.example](https://evil.example/x) and <https://plain.example>")
    assert shown.text.strip() == "https://bank.example (evil.example) and https://plain.example"
    assert [link["title"] for link in shown.named("a")] == [
        "opens evil.example in a new tab",
        "opens plain.example in a new tab",
    ]


def test_a_link_that_leads_to_no_web_or_mail_address_stays_text() -> None:
    shown = _reply("[app](src/app.py) [m](mailto:a@b.example) [f](ftp://x.example/y)")
    assert shown.text == "app (src/app.py) m (a@b.example) f (ftp://x.example/y)"
    assert len(shown.named("a")) == 1


def test_an_image_is_a_labelled_link_and_never_loaded() -> None:
    shown = _reply("![a chart](https://x.example/c.png)")
    assert shown.text == "image: a chart (x.example)"
    assert not shown.named("img")


def test_a_table_row_with_too_many_cells_loses_none() -> None:
    assert "third" in _reply("| a | b |\n|---|---|\n| 1 | 2 | third |\n").text


def test_a_reply_crafted_to_be_deep_or_slow_is_shown_in_full() -> None:
    deep = "> " * 300 + "word"
    assert "word" in _reply(deep).text
    slow = "*a_ `" * 40_000
    assert render_block(ReplyBlock(slow), str).count("a_") >= 30_000


def test_ordered_lists_keep_their_numbers_and_tasks_their_state() -> None:
    shown = _reply("7. seven\n8. eight\n")
    assert shown.named("ol")[0]["start"] == "7"
    assert [box["aria-label"] for _, box in _reply("- [x] a\n- [ ] b\n").with_class("task-box")] == ["done", "to do"]


def test_short_lines_stay_lines_and_wrapped_text_flows() -> None:
    assert len(_reply("Roses are red,\nviolets are blue").named("br")) == 1
    assert not _reply("word " * 15 + "\nand the rest of the sentence").named("br")


def test_thinking_is_folded_and_says_how_long_it_took() -> None:
    shown = parse(render_block(ThinkingBlock("why", 4.2), str))
    assert "Thought for 4s" in shown.text
    assert "open" not in shown.named("details")[0]
    assert "open" in parse(render_block(ThinkingBlock("why", 4.2, is_open=True), str)).named("details")[0]


def _tool(details: str = "", *, is_error: bool = False) -> Parsed:
    call = ToolBlock(name="Edit", title="x.py", summary="2 lines", is_error=is_error, seconds=1.0, details=details)
    return parse(render_block(call, str))


def test_a_tool_call_opens_if_it_has_details() -> None:
    assert not _tool().named("details")
    assert "open" not in _tool("some output").named("details")[0]
    assert "open" in _tool("some output", is_error=True).named("details")[0]
    assert "open" in _tool(DIFF).named("details")[0]
    assert "open" not in _tool(DIFF.replace("+3 @@", "+99 @@") + "+x\n" * 90).named("details")[0]
    assert "failed" in {mark["aria-label"] for _, mark in _tool(is_error=True).with_class("tool-mark")}


def test_details_of_a_tool_call_are_limited_and_say_so() -> None:
    shown = _tool("x" * 100_000)
    assert "40,000 more characters omitted" in shown.text


def test_a_diff_has_numbers_counts_and_the_file_name_once() -> None:
    shown = parse(render_block(DiffBlock(DIFF), str))
    assert shown.text == "+2 −1b/x\n9  same\n10- old\n10+ new\n11+ more\n"
    assert len(shown.with_class("line")) == 4


def test_figures_in_a_table_are_aligned_right_and_short_rows_filled() -> None:
    shown = parse(render_block(TableBlock(headers=("name", "tokens"), rows=(("a", "1,000"), ("b",))), str))
    assert [cell.get("class", "") for cell in shown.named("td")] == ["", "number", "", "number"]
    assert not parse(render_block(TableBlock(headers=("name",), rows=()), str)).named("table")


def test_bars_fit_the_whole_and_reserved_space_is_last() -> None:
    bars = (Bar(label="r", tokens=20, is_reserved=True), Bar(label="a", tokens=30), Bar(label="tiny", tokens=1))
    shown = parse(render_block(BarsBlock(bars=bars, whole=100), str))
    rects = {attributes["class"]: attributes for attributes in shown.named("rect")}
    assert rects["share-1"]["x"] == "0"
    assert int(rects["share-reserved"]["x"]) + int(rects["share-reserved"]["width"]) == 1000
    assert "free" in shown.text
    assert "49" in shown.text


def test_bars_of_more_than_the_whole_or_of_nothing_stay_inside() -> None:
    for whole in (0, -1, 10):
        source = render_block(BarsBlock(bars=(Bar(label="a", tokens=30), Bar(label="n", tokens=-30)), whole=whole), str)
        widths = [int(rect["width"]) for rect in parse(source).named("rect")]
        assert sum(widths) <= 1000


def test_a_notice_says_its_severity_in_words() -> None:
    shown = parse(render_block(NoticeBlock("error", "no file", "create it"), str))
    assert shown.text == "Error: no fileFix: create it"


def test_a_long_message_of_the_user_folds_its_end() -> None:
    shown = parse(render_block(UserBlock("\n".join(map(str, range(100))), images=1), str))
    assert "60 more lines" in shown.text
    assert "99" in shown.text
    assert "1 image" in shown.text


def test_text_that_begins_with_a_blank_line_keeps_it() -> None:
    assert "<pre" in render_block(VerbatimBlock("\n\nx"), str)
    assert "\n\n\nx" in render_block(VerbatimBlock("\n\nx"), str)


def test_the_copy_button_is_beside_the_code_that_it_copies() -> None:
    source = render_block(ReplyBlock("```\nx\n```\n"), str)
    assert re.search(r'</button><pre tabindex="0"><code>x</code></pre></div>', source)


def test_the_style_sheets_of_the_first_page_stay_small_together_and_those_of_other_views_each() -> None:
    static = Path(kitbag.web.__file__).parent / "static"
    css, page = static / "css", (static / "index.html").read_text()
    sizes = {sheet.name: len(sheet.read_bytes()) for sheet in css.glob("*.css")}
    first = {name for name in sizes if f"/static/css/{name}" in page}
    assert 20_000 < sum(sizes[name] for name in first) <= 40_960
    assert max(sizes[name] for name in sizes.keys() - first) <= 12_288
    assert not any("url(" in sheet.read_text() or "@import" in sheet.read_text() for sheet in css.glob("*.css"))


def test_fields_without_a_value_are_omitted() -> None:
    assert parse(render_block(FieldsBlock((("a", "1"), ("b", " "))), str)).text == "a1"
