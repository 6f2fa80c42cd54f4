"""Blocks as a terminal gets them: nothing acts on it, everything fits, nothing is lost, and code is clean to copy."""

import re
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from wcwidth import wcwidth

from kitbag.tools.files.diff import diff
from kitbag.views.blocks import (
    Bar,
    BarsBlock,
    Block,
    DiffBlock,
    FieldsBlock,
    LinesBlock,
    NoticeBlock,
    ReplyBlock,
    Span,
    TableBlock,
    ThinkingBlock,
    Tone,
    ToolBlock,
    UserBlock,
    VerbatimBlock,
    text_block,
)
from kitbag.views.rendering.render import needs_gap, render, render_tail
from support.matrix import examples, long, sample

SGR = re.compile(r"\x1b\[[0-9]{1,2}(?:;[0-9]{1,2})*m")
CONTROL = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u2028\u2029]")
EVIL = "\x1b]0;owned\x07\x1b[2J\x1b[31mred\x9b5n\r\n\tx\u202eabc\u200b\x00"


def seen(block: Block, width: int = 80, colour: bool = False, **options: Any) -> str:
    return SGR.sub("", render(block, width, color=colour, hide=options.get("hide", str)))


def coloured(block: Block, width: int = 80) -> str:
    return render(block, width, color=True, hide=str)


def check(text: str, width: int) -> None:
    bare = SGR.sub("", text)
    assert not CONTROL.search(bare), CONTROL.search(bare)
    assert not text or text.endswith("\n")
    for line in bare.split("\n"):
        assert sum(max(wcwidth(char), 0) for char in line) <= width, line
        assert line == line.rstrip(" "), line


# Whatever it is, it is safe

PIECES = [
    EVIL,
    "\x1b[0m",
    "plain words ",
    "日本語のテキスト",
    "👨‍👩‍👧‍👦❤️",
    "e\u0301\u0302\u0303",
    "שלום\u200f ",
    "\n",
    "\n\n",
    "\t",
    "  ",
    "# ",
    "- ",
    "1. ",
    "> ",
    "```python\n",
    "```\n",
    "~~~",
    "| a | b |\n|---|--:|\n| c |\n",
    "**",
    "`",
    "[x](http://e.org/%1b%5b2J)",
    "<http://a/%1b[2J>",
    "&#27;[2J&#x9b;&#x202e;&#13;&ZeroWidthSpace;",
    "\\",
    "![",
    "](",
    "--- a\n+++ b\n@@ -1,2 +1,2 @@\n",
    "-old\n+new\n",
    "@@ -1,99999999999999 +1 @@\n",
    "\ud800",
    "x" * 90,
]
HOSTILE = st.lists(st.sampled_from(PIECES) | st.text(max_size=12), max_size=14).map("".join)
TONES = st.sampled_from(get_args(Tone))
COUNTS = st.integers(min_value=-3, max_value=10**12)


def blocks() -> st.SearchStrategy[Block]:
    seconds = st.floats(min_value=0, max_value=10**6)
    lines = st.lists(st.lists(st.builds(Span, HOSTILE, TONES), max_size=3).map(tuple), max_size=3).map(tuple)
    rows = st.lists(st.lists(HOSTILE, max_size=4).map(tuple), max_size=3).map(tuple)
    bars = st.lists(
        st.builds(Bar, label=HOSTILE, tokens=COUNTS, is_reserved=st.booleans(), note=HOSTILE), max_size=8
    ).map(tuple)
    return st.one_of(
        st.builds(LinesBlock, lines),
        st.builds(UserBlock, HOSTILE, st.integers(0, 3)),
        st.builds(ReplyBlock, HOSTILE, st.booleans(), st.sampled_from(["", "```python\n", "| a |\n|---|\n"])),
        st.builds(ThinkingBlock, HOSTILE, seconds, st.booleans()),
        st.builds(
            ToolBlock,
            name=HOSTILE | st.just("TodoWrite"),
            title=HOSTILE,
            summary=HOSTILE,
            is_error=st.booleans(),
            seconds=seconds,
            details=HOSTILE | HOSTILE.map("--- a\n+++ b\n@@ -1,2 +1,2 @@\n".__add__),
            is_open=st.booleans(),
        ),
        st.builds(NoticeBlock, st.sampled_from(["error", "warning", "info"]), HOSTILE, HOSTILE),
        st.builds(TableBlock, headers=st.lists(HOSTILE, max_size=4).map(tuple), rows=rows, title=HOSTILE, foot=HOSTILE),
        st.builds(FieldsBlock, st.lists(st.tuples(HOSTILE, HOSTILE), max_size=3).map(tuple), HOSTILE),
        st.builds(BarsBlock, bars=bars, whole=COUNTS, title=HOSTILE, foot=HOSTILE),
        st.builds(VerbatimBlock, HOSTILE, HOSTILE),
        st.builds(DiffBlock, HOSTILE),
    )


@given(blocks(), st.integers(min_value=1, max_value=120), st.booleans())
@settings(max_examples=examples(400))
def test_no_text_in_any_block_acts_on_the_terminal_or_is_wider_than_it(block: Block, width: int, colour: bool) -> None:
    text = render(block, width, color=colour, hide=str)
    check(text, max(width, 2))
    assert colour or "\x1b" not in text


@given(HOSTILE, st.integers(min_value=2, max_value=100), st.integers(min_value=1, max_value=20), st.booleans())
@settings(max_examples=examples(100))
def test_neither_does_what_is_not_whole(text: str, width: int, height: int, colour: bool) -> None:
    shown = render_tail(text, width, height, color=colour, hide=str)
    check(shown, width)
    assert shown.count("\n") <= height


@long
@pytest.mark.parametrize(
    "text",
    sample(
        [
            "x" * 1_000_000,
            "日本" * 300_000,
            "word " * 200_000,
            "[" * 1_000_000,
            "*a_b" * 250_000,
            "`" * 500_000 + "a",
            "> " * 300_000,
            "- " * 300_000,
            "<a " * 300_000,
            "![](" * 250_000,
            "&#27;" * 200_000,
            "\\" * 1_000_000,
            "| a " * 250_000 + "\n" + "|---" * 250_000,
            "```python\n" + '"""' * 300_000,
            "```html\n" + "<a " * 300_000,
            "```c++\n" + "(((" * 6_000,
            "- a\n  " * 150_000,
            "👨‍" * 300_000,
        ],
        6,
    ),
    ids=lambda text: text[:8],
)
def test_a_huge_text_is_rendered_whatever_it_is_made_of(text: str) -> None:
    text = text[:120_000]
    check(render(ReplyBlock(text), 80, color=True, hide=str), 80)
    for block in (
        UserBlock(text),
        VerbatimBlock(text),
        NoticeBlock("error", text),
        ToolBlock(name="Bash", title=text, summary=text, is_error=True, seconds=1, details=text, is_open=True),
    ):
        check(render(block, 40, color=True, hide=str), 40)
    check(render_tail(text, 80, 20, color=True, hide=str), 80)


FIELDS: list[Block] = [
    text_block("SECRET"),
    UserBlock("SECRET"),
    ReplyBlock("**SECRET**"),
    ReplyBlock("SE&#67;RET"),
    ThinkingBlock("SECRET", 1, True),
    ToolBlock(
        name="SECRET", title="SECRET", summary="SECRET", is_error=True, seconds=1, details="SECRET", is_open=True
    ),
    NoticeBlock("error", "SECRET", "SECRET"),
    TableBlock(headers=("SECRET",), rows=(("SECRET",),), title="SECRET", foot="SECRET"),
    FieldsBlock((("SECRET", "SECRET"),), "SECRET"),
    BarsBlock(bars=(Bar(label="SECRET", tokens=1, note="SECRET"),), whole=2, title="SECRET", foot="SECRET"),
    VerbatimBlock("SECRET", "SECRET"),
    DiffBlock("SECRET"),
]


@pytest.mark.parametrize("block", FIELDS, ids=lambda block: type(block).__name__)
def test_secrets_are_hidden_in_every_block(block: Block) -> None:
    shown = seen(block, hide=lambda text: text.replace("SECRET", "[HIDDEN]"))
    assert "SECRET" not in shown
    assert "[HIDDEN]" in shown


# Markdown


def test_markdown_is_drawn_in_words_and_marks_without_colour() -> None:
    text = "# Title\n\nSome **bold** *soft* ~~gone~~ `code`.\n\n- one\n  - two\n- [ ] open\n- [x] done\n\n3. three\n\n> said\n\n---"
    assert seen(ReplyBlock(text)) == (
        "# Title\n\nSome **bold** *soft* ~~gone~~ `code`.\n\n- one\n  - two\n[ ] open\n[x] done\n\n3. three\n\n"
        "│ said\n\n" + "─" * 40 + "\n"
    )


def test_with_colour_marks_become_styles_of_the_sixteen_colours_without_backgrounds() -> None:
    text = "# Title\n\n**bold** `code`\n\n```python\ndef f(): return 'x'  # why\n```"
    shown = coloured(ReplyBlock(text))
    assert "\x1b[1;4mTitle\x1b[0m" in shown
    assert "\x1b[1mbold\x1b[0m" in shown
    assert "\x1b[36mcode\x1b[0m" in shown
    assert "\x1b[35mdef\x1b[0m" in shown
    numbers = {int(one) for found in SGR.findall(shown) for one in re.findall(r"\d+", found)}
    assert numbers <= {0, 1, 2, 3, 4, 9, *range(31, 38)}


def test_a_line_that_ends_is_a_line_that_ends() -> None:
    assert seen(ReplyBlock("one\ntwo  \nthree")) == "one\ntwo\nthree\n"


def test_an_address_is_shown_where_the_words_are_another() -> None:
    text = "[https://good.example](https://evil.example) and [https://a.example](https://a.example) <b@c.example>"
    assert (
        seen(ReplyBlock(text), 200) == "https://good.example (https://evil.example) and https://a.example b@c.example\n"
    )


def test_nothing_that_is_written_is_taken_out() -> None:
    assert seen(ReplyBlock("[one]: https://a.example\n\n<script>x</script> <b>y</b> &amp; ![alt](pic.png)")) == (
        "[one]: https://a.example\n\n<script>x</script> <b>y</b> & [alt] (pic.png)\n"
    )


CODE = 'def f(x):\n    """Doc."""\n\n    return {\n        "a": [1, 2],\n    }\n'


@pytest.mark.parametrize("language", ["python", "json", "bash", "nothing-known", "", "c++ title=x", "PYTHON"])
def test_code_can_be_copied_as_it_is(language: str) -> None:
    shown = SGR.sub("", coloured(ReplyBlock(f"```{language}\n{CODE}```")))
    assert shown == CODE


def test_large_code_and_long_lines_of_code_are_shown_whole_without_colours() -> None:
    code = "x = 1\n" * 5_000
    assert SGR.sub("", coloured(ReplyBlock(f"```python\n{code}```"))) == code


def test_a_piece_of_code_is_coloured_by_what_opened_it() -> None:
    shown = coloured(ReplyBlock("def f(): pass\n```\n", False, "```python\n"))
    assert shown.startswith("\x1b[35mdef\x1b[0m")


TABLE = "| Name | Count | What |\n|---|--:|---|\n| `a` | 1 | short |\n| bb | 2000 | words that go on and on and do not fit beside |"


def test_a_table_fits() -> None:
    assert seen(ReplyBlock(TABLE), 80).split("\n")[:3] == [
        "Name  Count  What",
        "────  ─────  ─────────────────────────────────────────────",
        "`a`       1  short",
    ]
    assert seen(ReplyBlock(TABLE), 40) == (
        "Name  Count  What\n"
        "────  ─────  ───────────────────────────\n"
        "`a`       1  short\n"
        "bb     2000  words that go on and on and\n"
        "             do not fit beside\n"
    )
    narrow = seen(ReplyBlock(TABLE), 20)
    assert "Name: bb\n" in narrow
    assert "Count: 2000\n" in narrow


def test_wide_characters_wrap_where_they_must() -> None:
    assert seen(ReplyBlock("日本語のテキスト"), 9) == "日本語の\nテキスト\n"
    assert seen(ReplyBlock("a 日本"), 4) == "a 日\n本\n"


def test_deeply_nested_lists_and_quotes_keep_room_for_words() -> None:
    text = "\n".join("  " * depth + f"- level {depth}" for depth in range(15)) + "\n\n" + "> " * 15 + "deep"
    for line in seen(ReplyBlock(text), 30).splitlines():
        assert sum(max(wcwidth(char), 0) for char in line) <= 30
    assert "level 14" in seen(ReplyBlock(text), 30)
    assert "deep" in seen(ReplyBlock(text), 30)
    deepest = "\n".join("  " * depth + f"- level {depth}" for depth in range(100))
    assert "level 99" in seen(ReplyBlock(deepest), 300)


# What a person said, results and thoughts


def test_what_a_person_said_stands_behind_a_mark() -> None:
    assert seen(UserBlock("one two\nthree", 2)) == "> one two\n  three\n  [2 images]\n"
    assert "… 60 more lines" in seen(UserBlock("x\n" * 99 + "x"))


def test_a_result_is_one_line() -> None:
    assert (
        seen(ToolBlock(name="Read", title="src/app.py", summary="120 lines", is_error=False, seconds=0.21))
        == "● Read src/app.py  120 lines · 0.2s\n"
    )
    assert (
        seen(ToolBlock(name="Read", title="a.py", summary="gone", is_error=True, seconds=0.0)) == "✗ Read a.py  gone\n"
    )
    long = seen(ToolBlock(name="Bash", title="echo " * 40, summary="exit 0", is_error=False, seconds=3.0), 40)
    assert long.count("\n") == 1
    assert long.endswith("…  exit 0 · 3.0s\n")


def test_a_folded_result_hides_its_details_and_an_open_one_shows_them() -> None:
    done = ToolBlock(name="Grep", title="x", summary="3 found", is_error=False, seconds=0.0, details="a\nb\nc")
    assert seen(done) == "● Grep x  3 found\n"
    assert seen(msgspec.structs.replace(done, is_open=True)) == "● Grep x  3 found\n  a\n  b\n  c\n"


def test_an_open_result_says_what_is_left_out() -> None:
    assert "… 600 more lines omitted" in seen(
        ToolBlock(name="Bash", title="x", summary="", is_error=False, seconds=0.0, details="x\n" * 1_000, is_open=True)
    )
    assert "40,000 more characters omitted" in seen(
        ToolBlock(name="Bash", title="x", summary="", is_error=False, seconds=0.0, details="x" * 100_000, is_open=True)
    )


def test_the_last_that_a_command_printed_is_seen_also_where_it_is_folded():
    printed = "\n".join(f"line {n}" for n in range(1, 10))
    shown = seen(
        ToolBlock(name="Bash", title="make", summary="exit 0, 9 lines", is_error=False, seconds=0.0, details=printed)
    )
    assert shown == (
        "● Bash make  exit 0, 9 lines\n  … 6 more lines (Ctrl-O to expand)\n  line 7\n  line 8\n  line 9\n"
    )
    assert (
        seen(ToolBlock(name="Bash", title="pwd", summary="exit 0, 1 line", is_error=False, seconds=0.0, details="/x"))
        == "● Bash pwd  exit 0, 1 line\n  /x\n"
    )


def test_of_an_error_the_last_lines_are_shown_and_the_reason_is_whole() -> None:
    shown = seen(
        ToolBlock(
            name="Bash",
            title="make",
            summary="exit 2",
            is_error=True,
            seconds=0.0,
            details="\n".join(f"line {n}" for n in range(1, 21)),
        )
    )
    assert shown == "✗ Bash make  exit 2\n  … 15 more lines (Ctrl-O to expand)\n" + "".join(
        f"  line {n}\n" for n in range(16, 21)
    )
    reason = "Read is not allowed: the file is outside of the workspace and nobody can be asked about it"
    assert (
        " ".join(seen(ToolBlock(name="Read", title="x", summary=reason, is_error=True, seconds=0.0), 50).split())
        == f"✗ Read x {reason}"
    )


def test_a_change_is_shown_in_short_even_when_it_is_folded() -> None:
    before = "".join(f"line {number}\n" for number in range(1, 60))
    change = diff(before, before.replace("line 5\n", "LINE 5\n"), "a.py").text
    shown = coloured(
        ToolBlock(name="Edit", title="a.py", summary="1 line", is_error=False, seconds=0.0, details=change)
    )
    assert "\x1b[31m- line 5\x1b[0m" in shown
    assert "\x1b[32m+ LINE 5\x1b[0m" in shown
    all_of_it = diff(before, before.replace("line", "LINE"), "a.py").text
    folded = seen(
        ToolBlock(name="Edit", title="a.py", summary="59 lines", is_error=False, seconds=0.0, details=all_of_it)
    )
    assert folded.count("\n") == 14
    assert "… 106 more lines (Ctrl-O to expand)" in folded


def test_a_diff_has_numbers_signs_and_the_name_of_the_file() -> None:
    text = diff("one\ntwo\nthree\n", "one\n2\nthree\n", "src/a.py").text
    assert seen(DiffBlock(text)) == "src/a.py\n1   one\n2 - two\n2 + 2\n3   three\n"
    assert seen(DiffBlock(diff(None, "x\n", "b.py").text)) == "new file\nb.py\n1 + x\n"


def test_a_removed_line_that_looks_like_a_head_is_a_removed_line() -> None:
    text = diff("-- a\nb\n", "b\n", "q.sql").text
    assert seen(DiffBlock(text)) == "q.sql\n1 - -- a\n1   b\n"


def test_a_thought_is_folded_or_open() -> None:
    assert seen(ThinkingBlock("hm\nso", 3.2)) == "✻ thought for 3s (Ctrl-O to expand)\n"
    assert seen(ThinkingBlock("hm\nso", 3.2, True)) == "✻ thought for 3s\n  hm\n  so\n"


# Words of ours


def test_remarks_say_how_bad_it_is_and_what_to_do() -> None:
    assert seen(NoticeBlock("error", "no", "yes")) == "✗ error: no\n  fix: yes\n"
    assert seen(NoticeBlock("info", "it has ended", "/tasks show 1")) == "· it has ended\n  /tasks show 1\n"
    assert seen(NoticeBlock("warning", "hm")) == "! warning: hm\n"
    assert seen(NoticeBlock("info", "so")) == "· so\n"


def test_a_table_of_ours_keeps_names_whole_and_wraps_the_last_column() -> None:
    table = TableBlock(
        headers=("Name", "Tokens", "What"),
        rows=(("pdf", "1,200", "reads files " * 4), ("docx", "30", "")),
        title="Skills",
        foot="2",
    )
    assert seen(table, 40) == (
        "Skills\nName  Tokens  What\npdf    1,200  reads files reads files\n              reads files reads files\n"
        "docx      30\n2\n"
    )
    wide = TableBlock(
        headers=("Name", "State", "Tokens", "What"),
        rows=(("incident_investigation", "name-only", "300", "Looks into it"),),
    )
    assert seen(wide, 40) == "Name: incident_investigation\nState: name-only\nTokens: 300\nWhat: Looks into it\n"
    assert "…" in seen(TableBlock(headers=("A", "B"), rows=(("a", "word " * 100),)), 40)


def test_fields_are_wrapped_below_their_values() -> None:
    assert seen(FieldsBlock((("model", "m"), ("none", ""), ("where", "a b c d e f g h"))), 16) == (
        "model  m\nwhere  a b c d e\n       f g h\n"
    )


def test_the_window_is_a_bar_with_a_legend() -> None:
    bars = BarsBlock(
        bars=(
            Bar(label="prompt", tokens=10_000),
            Bar(label="tools", tokens=1),
            Bar(label="talk", tokens=50_000, note="12 messages"),
        ),
        whole=100_000,
        title="Window",
    )
    assert seen(bars, 40) == (
        "Window\nAAAABCCCCCCCCCCCCCCCCCCCC...............\n"
        "A prompt  10,000   10.0%\nB tools        1    0.0%\nC talk    50,000   50.0%  12 messages\n"
        ". free    39,999   40.0%\n"
    )
    shown = coloured(bars, 40)
    assert "\x1b[36m████\x1b[0m\x1b[32m█\x1b[0m\x1b[35m████" in shown  # each share has its color
    reserved = msgspec.structs.replace(bars, bars=(*bars.bars, Bar(label="kept", tokens=10_000, is_reserved=True)))
    assert "CCCC...........----\n" in seen(reserved, 40)  # not among what is used
    assert "░····\n" in SGR.sub("", coloured(reserved, 40))


def test_a_quoted_paragraph_that_must_be_wrapped_has_no_short_lines() -> None:
    quote = ReplyBlock("> one two three four\n> five six seven eight\n")
    assert seen(quote, 40) == "│ one two three four\n│ five six seven eight\n"
    assert seen(quote, 18) == "│ one two three\n│ four five six\n│ seven eight\n"


def test_what_is_more_than_the_window_still_fits_on_the_screen() -> None:
    check(seen(BarsBlock(bars=(Bar(label="a", tokens=300), Bar(label="b", tokens=100)), whole=200), 40), 40)
    check(seen(BarsBlock(bars=(), whole=0), 40), 40)


def test_a_text_of_others_stands_behind_a_bar_line_by_line() -> None:
    assert seen(VerbatimBlock("one\n" + "x" * 10, "Prompt"), 8) == "Prompt\n│ one\n│ xxxxxx\n│ xxxx\n"


# Between blocks, and what is not whole


def test_blocks_stand_apart_where_they_are_something_else() -> None:
    done = ToolBlock(name="Read", title="a", summary="b", is_error=False, seconds=0.0)
    assert not needs_gap(None, UserBlock("x"))
    assert needs_gap(UserBlock("x"), done)
    assert not needs_gap(done, done)
    assert needs_gap(done, ReplyBlock("x"))
    assert needs_gap(ReplyBlock("# x\n"), ReplyBlock("y\n", False))
    assert needs_gap(ReplyBlock("x\n\n"), ReplyBlock("- y\n", False))
    assert not needs_gap(ReplyBlock("- x\n"), ReplyBlock("- y\n", False))
    assert not needs_gap(ReplyBlock("```\nx\n"), ReplyBlock("y\n", False, "```\n"))


def test_of_what_is_not_whole_the_last_lines_are_shown() -> None:
    assert render_tail("one\ntwo\nthree", 80, 2, color=False, hide=str) == "two\nthree\n"
    assert render_tail("", 80, 2, color=False, hide=str) == ""
    code = "```python\n" + "x = 1\n" * 5_000 + "def f"
    assert render_tail(code, 80, 1, color=True, hide=str) == "\x1b[35mdef\x1b[0m \x1b[34mf\x1b[0m\n"


@pytest.mark.parametrize("around", ["", "> ", "- "])
def test_no_cell_of_a_table_is_lost(around: str) -> None:
    rows = ["| a | b |", "|---|---|", "| `x | y` | rm -rf |", "| 1 |"]
    indent = around if around == "> " else " " * len(around)
    table = "\n".join((indent if at else around) + row for at, row in enumerate(rows))
    assert "rm -rf" in render(ReplyBlock(table), 60, color=True, hide=str)
    whole = render(ReplyBlock(table.replace("x | y", "x \\| y")), 60, color=True, hide=str)
    assert "rm -rf" in whole
    assert "|--" not in whole  # nothing is lost, so it is drawn
