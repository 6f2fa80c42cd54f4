"""What is a token and what is text: the rule that reference_syntax documents, and CommonMark as its judge."""

import re
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token as MarkdownToken

from kitbag.text.reference_syntax import ReferenceToken, find_references
from support.cost import processor_limit
from support.matrix import examples, long, sample

TRIGGERS = ("@docs/a.md", "!`touch x`", "{{NAME}}", "${HOME}", "\\@docs/a.md", "\\{{NAME}}", "\\${HOME}", "\\!`x`")


def tokens(text: str) -> list[tuple[str, str]]:
    return [(token.kind, token.value) for token in find_references(text).tokens]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("see @docs/spec.md.", ("file", "docs/spec.md")),
        ("(@spec.md)", ("file", "spec.md")),
        ("**@docs/a.md** and", ("file", "docs/a.md")),
        ("*see @docs/a.md*", ("file", "docs/a.md")),
        ("_see @docs/a.md_", ("file", "docs/a.md")),
        ("@dir/*.md, then", ("file", "dir/*.md")),
        ("@skills/ct-*/*.md", ("file", "skills/ct-*/*.md")),
        ("@**/*", ("file", "**/*")),
        ("@{a,b}{c,d}.md", ("file", "{a,b}{c,d}.md")),
        ('@"path with spaces.md" x', ("file", "path with spaces.md")),
        ("@./x @", ("file", "./x")),
        ("@../../x", ("file", "../../x")),
        ("@/etc/hosts", ("file", "/etc/hosts")),
        ("@~/.ssh/id_rsa", ("file", "~/.ssh/id_rsa")),
        ("@.env", ("file", ".env")),
        ("@src/app/[id]/page.tsx", ("file", "src/app/[id]/page.tsx")),
        ("@src/a.py:10", ("file", "src/a.py")),
        ("参见@docs/规格.md的内容", ("file", "docs/规格.md")),
        ("{{TASK_ID}}", ("variable", "TASK_ID")),
        ("{{ task.id-x }}", ("variable", "task.id-x")),
        ("${HOME}/x", ("environment", "HOME")),
        ("!`git status`", ("command", "git status")),
        ("- now: !`date` ok", ("command", "date")),
        ("> !`date`", ("command", "date")),
        ("```!\ngit log\ndate\n```", ("command", "git log\ndate")),
        ("- x\n\n  ```!\n  a\n    b\n  ```", ("command", "a\n  b")),
        ("> ```!\n> a\n> ```", ("command", "a")),
    ],
)
def test_these_are_tokens(text: str, expected: tuple[str, str]) -> None:
    assert tokens(text) == [expected]


@pytest.mark.parametrize("trigger", TRIGGERS)
@pytest.mark.parametrize(
    "around",
    [
        "```\n{}\n```",
        "```bash\n{}\n```",
        "~~~\n{}\n~~~",
        "````\n```\n{}\n```\n````",
        "```\n{}",
        "- item\n\n  ```\n  {}\n  ```",
        "> ```\n> {}\n> ```",
        "~~~!\n{}\n~~~",
        "```!\n{}",
        "para\n\n    {}\n",
        "- item\n\n      {}\n",
        "\t{}",
        "before `` {} `` after",
        "before ``` {} ``` after",
        "``two\n{} lines``",
        "<!-- {} -->",
        "<!--\n\n{}\n\n-->",
        "text <!-- {}\n --> text",
        "<!-- {} never closed",
    ],
)
def test_D33_nothing_in_code_or_comments_is_a_token(around: str, trigger: str) -> None:
    assert tokens(around.replace("{}", trigger)) == []


@pytest.mark.parametrize("trigger", ["@docs/a.md", "{{NAME}}", "${HOME}"])
def test_D33_nothing_in_single_backticks_is_a_token(trigger: str) -> None:
    assert tokens(f"the form `{trigger}` and `x {trigger} y`") == []


@pytest.mark.parametrize(
    "text",
    [
        "write to a@b.c or first.last+x@example.md",
        "josé@correo.md",
        "@dataclass and @someone, @Makefile",
        "*ask @bob* or **@bob**",
        "KEY=!`x` stays, so does a!`b`",
        "wow!` what` ",
        "!``x``",
        "```!\n```",
        "{{}} {{ a b }} {{{x}}} ${{ github.sha }} {{1a}}",
        "${lower} ${input:x} $HOME ${} ${A B}",
        "${SKILL_ROOT} ${CLAUDE_SKILL_DIR} ${CLAUDE_PLUGIN_ROOT}/x",
        "@[text](url) and @{one}",
        "@ @. @.. @... @/ @*",
        "me@ you",
    ],
)
def test_these_are_text(text: str) -> None:
    assert tokens(text) == []


@pytest.mark.parametrize(
    "text", ["@scope/pkg", "@types/node", "@types/chart.js", "@app.route", "@pytest.mark.skip", "@scope/pkg@1.2.3"]
)
def test_packages_and_decorators_are_paths_only_if_something_has_that_name(text: str) -> None:
    (token,) = find_references(f"use {text} here").tokens
    assert (token.kind, token.is_certain) == ("file", False)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\\@docs/a.md", "@docs/a.md"),
        ("\\@someone", "@someone"),
        ("\\{{NAME}}", "{{NAME}}"),
        ("\\${HOME}", "${HOME}"),
        ("\\!`touch x`", "!`touch x`"),
    ],
)
def test_D33_a_backslash_makes_text_and_is_taken_away(text: str, shown: str) -> None:
    (token,) = find_references(text).tokens
    assert token.kind == "escape"
    assert token.value + text[token.end :] == shown


@pytest.mark.parametrize("text", ["user\\@host.md", "a \\! b", "\\{ x", "C:\\$x", "\\{{ not a name }}", "end\\"])
def test_a_backslash_before_anything_else_stays(text: str) -> None:
    assert tokens(text) == []


def test_two_backslashes_protect_nothing() -> None:
    assert tokens("\\\\{{NAME}}") == [("variable", "NAME")]


def test_a_default_belongs_to_its_variable() -> None:
    (token,) = find_references("${X:-some default}").tokens
    assert (token.value, token.default) == ("X", "some default")
    assert find_references("${X}").tokens[0].default is None
    assert find_references("${X:-}").tokens[0].default == ""


def test_line_and_column_are_counted_from_one() -> None:
    found = find_references("a {{B}}\n\n- x\n  @c.md {{D}}\n")
    assert [(token.line, token.column) for token in found.tokens] == [(1, 3), (4, 3), (4, 9)]


def test_what_looks_like_a_token_and_is_none_is_said() -> None:
    found = find_references("see @docs/{{ID}}.md\n\n```!\ntouch x\n")
    assert [token.kind for token in found.tokens] == ["variable"]
    assert [(note.line, note.code) for note in found.problems] == [(1, "not-a-reference"), (3, "not-a-reference")]


PIECES = (
    *TRIGGERS, "@a.md", "`", "``", "```", "```py", "```!", "~~~", "~~~~", "    ", "  ", " ", "> ", ">", "- ", "* ", "1. ",
    "2) ", "-", "#", "# h", "text", "<!--", "-->", "<!-- x -->", "\n", "\n", "\n", "\n\n", "===", "---", "***", "\\",
    "\\`", "*", "<b>", '<a href="`">',
)  # fmt: skip
COMMONMARK = MarkdownIt("commonmark")


def literal_parts(nodes: Sequence[MarkdownToken]) -> Iterator[str]:
    for node in nodes:
        if node.type in ("fence", "code_block", "code_inline"):
            yield node.content
        elif node.type in ("html_block", "html_inline"):
            # A comment that ends in `--->` is one for some versions of CommonMark and none for others.
            start = r"\A\s*" if node.type == "html_block" else ""
            for comment in re.finditer(start + r"<!--(?:>|->|.*?(?:-->|\Z))", node.content, re.DOTALL):
                yield comment[0]
        yield from literal_parts(node.children or [])


def with_marks(text: str, found: list[ReferenceToken]) -> str:
    """Each token becomes a word, but a command keeps its backticks, since the rest depends on them."""
    parts: list[str] = []
    at = 0
    for index, token in enumerate(found):
        kept = text[token.start + 1 : token.end] if text[token.start] == "!" else ""
        parts += [text[at : token.start], f"ZQ{index}QZ", kept]
        at = token.end
    return "".join([*parts, text[at:]])


@settings(max_examples=examples(1500), derandomize=True)
@given(st.lists(st.sampled_from(PIECES), max_size=25).map("".join))
def test_D33_no_token_lies_in_what_commonmark_calls_code_or_a_comment(text: str) -> None:
    marked = with_marks(text, find_references(text).tokens)
    assert not [part for part in literal_parts(COMMONMARK.parse(marked)) if re.search(r"ZQ\d+QZ", part)]


@settings(max_examples=examples(300))
@given(st.text(alphabet=st.sampled_from("ab@!`{}$\\<>-\n \t#~./*\"'[](),:_0X\r")))
def test_tokens_are_in_order_and_never_overlap(text: str) -> None:
    at = 0
    for token in find_references(text).tokens:
        assert at <= token.start < token.end <= len(text)
        assert text.count("\n", 0, token.start) == token.line - 1
        at = token.end


HOSTILE = [
    "`", "``` ", "` `` ", "${X:-", "{{", "{{a", "<!--", "@{", "@[", '@"', "<a b=", "<a b='", "!`", "\\", "> ", "- ", "@a",
    "@a.md ", "1. ", "  ", "\t", "```!\n", "~~~\n", "<!--\n", "- - ", "@" + "a/" * 50, "@**/",
]  # fmt: skip


@long
@pytest.mark.parametrize("piece", sample(HOSTILE, 5))
def test_no_text_costs_more_than_its_length_asks_for(piece: str) -> None:
    repeated = piece * (250_000 // len(piece))
    with processor_limit():
        find_references(f"@x.md {{{{A}}}} {repeated}")
        find_references(repeated + "\n@x.md\n" + "\n>\n x" * 10_000)
