"""Whatever a text contains, the page gets only elements and attributes that Kitbag wrote."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kitbag.chat.ui import ChatStatus, LiveState, RunningCall
from kitbag.dialogs.form import Form, FormOption
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
    ToolBlock,
    UserBlock,
    VerbatimBlock,
)
from kitbag.web.html.blocks import render_block
from kitbag.web.html.chat_state import render_live, render_status
from kitbag.web.html.forms import render_form
from support.matrix import examples, long, sample
from web.html.parsed import parse

DIFF = "--- a/{0}\n+++ b/{0}\n@@ -1,2 +1,2 @@ {0}\n-{0}\n+{0}\n \n{0}\n"
BLOCKS: dict[str, Callable[[str], Block]] = {
    "lines": lambda text: LinesBlock(((Span(text), Span(text, "bad")),)),
    "user": lambda text: UserBlock(text, images=2),
    "reply": ReplyBlock,
    "reply with a head": lambda text: ReplyBlock(text, begins=False, head="```" + text.replace("\n", " ") + "\n"),
    "code": lambda text: ReplyBlock(f"```python\n{text}\n```\n"),
    "cell": lambda text: ReplyBlock(f"| a | b |\n|---|--:|\n| {text} | `{text}` |\n"),
    "link": lambda text: ReplyBlock(f"[{text}](<{text}>) ![{text}]({text}) <{text}> [a]({text} '{text}')"),
    "thinking": lambda text: ThinkingBlock(text, 3.0, is_open=True),
    "tool": lambda text: ToolBlock(
        name=text, title=text, summary=text, is_error=True, seconds=1.0, details=text, is_open=True
    ),
    "tool with a diff": lambda text: ToolBlock(
        name="Edit", title=text, summary=text, is_error=False, seconds=1.0, details=DIFF.format(text)
    ),
    "notice": lambda text: NoticeBlock("warning", text, text),
    "table": lambda text: TableBlock(headers=(text, "b"), rows=((text, text, text), ("1",)), title=text, foot=text),
    "fields": lambda text: FieldsBlock(((text, text), ("empty", "")), text),
    "bars": lambda text: BarsBlock(
        bars=(Bar(label=text, tokens=10, note=text), Bar(label="r", tokens=-5, is_reserved=True)),
        whole=100,
        title=text,
        foot=text,
    ),
    "verbatim": lambda text: VerbatimBlock(text, text),
    "exact verbatim": lambda text: VerbatimBlock(text, text, exact=True),
    "diff": lambda text: DiffBlock(DIFF.format(text)),
    "exact diff": lambda text: DiffBlock(text, exact=True),
}
ATTACKS = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "</pre></code></div></article><script>alert(1)</script>",
    "\"><svg onload=alert(1)>'><b x='",
    "javascript:alert(1)",
    "JaVaScRiPt&colon;alert(1)",
    "java\tscript:alert(1)",
    "&#106;avascript:alert(1)",
    "data:text/html,<script>alert(1)</script>",
    "data:image/svg+xml,<svg onload=alert(1)>",
    "vbscript:msgbox(1)",
    "//evil.example/x",
    "https://good.example\\@evil.example/",
    "https://[broken",
    "file:///etc/passwd",
    "&lt;script&gt;alert(1)&lt;/script&gt;",
    "&#60;script&#62;alert(1)&#60;/script&#62;",
    "<!--><script>alert(1)</script-->",
    "<![CDATA[<script>alert(1)</script>]]>",
    "<style>*{display:none}</style><link rel=stylesheet href=//evil.example>",
    "<form action=//evil.example><input name=key value=a></form>",
    "<math><mtext></form><form><mglyph><svg><mtext><style><path id=</style><img onerror=alert(1) src>",
    "\u202egnp.exe\u202c \u2066x\u2069 \u200b",
    "nul\x00 escape \x1b[31m c1 \x9b bell \x07 \x0c \x0b",
    "&#0; &#27; &#8238; &#x202e; &NewLine; &Tab;",
    "\ud800 lone",
    "\r\n\r<b>",
    "```\n</code></pre><script>1</script>",
    "a` onclick=alert(1) `b",
    "[a](https://x.example/\"onmouseover=alert(1)) [b](<https://x.example/ onclick=1>)",
    "![a](javascript:1) [![b](https://x.example/i.png)](https://y.example)",
    "[a]: javascript:alert(1)\n\n[a]",
    "**_~~[`" * 50,
    "> - 1. " * 200 + "deep",
    "|" * 300 + "\n" + "|-" * 300,
    "e" + "\u0301" * 300,
]  # fmt: skip


def _forms(text: str) -> list[Form]:
    options = tuple(
        FormOption(key=key, label=text, note=text, preview=text, continues=key == "b") for key in (text, "b")
    )
    above = tuple(make(text) for make in BLOCKS.values())
    return [
        Form(prompt=text, options=options, above=above, free_text_hint=text, initial_text=text, cancel_effect=text),
        Form(prompt=text, options=options, multiple=True, default=text),
        Form(prompt=text, free_text_hint=text, secret=True),
    ]


def _render_all(text: str) -> list[str]:
    live = LiveState(
        activity=text,
        started_at=1.0,
        tokens=5,
        tail=text,
        running=(RunningCall(name=text, title=text, progress=text, started_at=1.0),),
        steering=(text,),
        queued=(text,),
        todos=((text, text), ("completed", text)),
    )
    status = ChatStatus(model=text, mode=text, persona=text, used=5, window=10, directory=text)
    return [
        *(render_block(make(text), str) for make in BLOCKS.values()),
        *(render_form(form, f"form-{text}", str) for form in _forms(text)),
        render_live(live, str, now=3.0),
        render_status(status),
    ]


@pytest.mark.parametrize("text", ATTACKS, ids=range(len(ATTACKS)))
def test_hostile_text_stays_text_in_every_field(text: str) -> None:
    for source in _render_all(text):
        shown = parse(source)
        for hidden in "\x00\x1b\x07\x9b\u202e\u2066\u200b":
            assert hidden not in shown.text
            assert all(hidden not in value for _, attributes in shown.elements for value in attributes.values())


FRAGMENTS = st.lists(
    st.sampled_from([*ATTACKS, "\n", "\n\n", "- ", "> ", "| ", "`", "```\n", "<", ">", '"', "'", "&", "[", "](", ")", "    "])
    | st.text(max_size=8),
    max_size=12,
).map("".join)  # fmt: skip


@settings(max_examples=examples(20), deadline=None)
@given(FRAGMENTS)
def test_every_mixture_of_markup_stays_text(text: str) -> None:
    for source in _render_all(text):
        parse(source)


@long
@pytest.mark.parametrize("kind", sample(BLOCKS, 4))
def test_a_line_of_ten_megabytes_is_limited(kind: str) -> None:
    source = render_block(BLOCKS[kind]("<b>&" * 2_500_000), str)
    assert len(source) < 8_000_000
    assert "<b>" not in source


def test_every_field_is_redacted_unless_the_user_approves_it_as_it_is() -> None:
    def redact(text: str) -> str:
        return text.replace("hunter2", "[redacted]")

    for kind, make in BLOCKS.items():
        source = render_block(make("hunter2"), redact)
        assert ("hunter2" in source) == kind.startswith("exact"), kind
    entity = render_block(ReplyBlock("hunter&#50; and `hunter2`"), redact)
    assert "hunter2" not in parse(entity).text
