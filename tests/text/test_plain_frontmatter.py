"""The line reader for plain heads against YAML itself, which has the last word."""

from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from kitbag.text.plain_frontmatter import parse_plain_frontmatter
from support.matrix import examples

TYPICAL = """\
name: pdf-forms
description: Fills in PDF forms. Use when somebody has a form, a scan or a contract to complete.
version: 1.2.0
license: Apache-2.0
allowed-tools: Read, Grep, Bash(git log:*)
tags: [pdf, forms, office work]
metadata:
  author: a person
  version: "1.0"
"""

KEYS = [
    "name", "description", "tags", "b-c", "d_e", "x1", "é", "名前", "on", "y", "-k", "1k", "a b", "", "'q'", '"q"',
    "? x", "<<", "*a", "&a b", "!t a", "a.b", "k" * 1100,
]  # fmt: skip
VALUES = [
    "plain", "two words", "", "'single'", '"double"', '"a: b"', "a: b", "a:b", "a #c", "a#c", "#c", "[a, b]", "[a,b]",
    "[]", "[a, ]", "[,]", "[a: b]", '["a", b]', "[[a]]", "[a]b", "[a] [b]", "[-a]", "[- a]", "[a\\b]", "{}", "{a: b}",
    "{{x}}", ">", ">-", ">+", "|", "|-", "|2", "|+", "| # c", "> ", "&x v", "*x", "*", "!!str v", "!x", "%d", "@at",
    "`tick`", "~", "null", "=", "-", "- a", "-a", "---", "...", "? q", ": z", ":z", "::", "a:", "x, y", ", x", "a [b]",
    "it's", 'say "hi"', '"a" b', "'a' 'b'", "'it''s'", '"esc\\n"', '"open', "'open", "''", '""', "' '", '" x "',
    "a\tb", "\t", "  spaced  ", "a  b", "C:\\x", "http://x.y/z", "12:30", "1.10", "true", "2024-01-01", "<x>", "a > b",
    "a | b", "\\", "?", "?a", "!", "%", "<", "ü", "日本", "😀", "𝒳", "a\u00a0b", "a\u3000b", "a\ufeffb", "a\x85b",
    "a\u2028b", "a\x80b", "a\x07b",
]  # fmt: skip
INDENTS = ["", "", "", "", " ", "  ", "  ", "   ", "    ", "      ", "\t", "- ", "  - ", "    - ", "-", "# ", "  # "]
SEPARATORS = [": ", ": ", ": ", ":", ":  ", " : ", ":\t"]
LINES = ["", "", "  ", "     ", "\t", "# comment", "  # c", "---", "...", "--- a", "%YAML 1.1", "-", "? a", ": b", "}"]

scalar_line = st.builds("{}{}".format, st.sampled_from(INDENTS), st.sampled_from(VALUES))
field_line = st.builds(
    "{}{}{}{}{}".format,
    st.sampled_from(INDENTS),
    st.sampled_from(KEYS),
    st.sampled_from(SEPARATORS),
    st.sampled_from(VALUES),
    st.sampled_from(["", "", "", " ", " # c"]),
)
odd_head = st.lists(scalar_line | field_line | field_line | st.sampled_from(LINES), min_size=1, max_size=6)

# Fewer kinds of lines, so that most of these heads are answered rather than left to YAML.
plain_line = st.builds(
    "{}{}{}".format,
    st.sampled_from(["a", "b", "c", "d", "e", "f", "  g", "  h", "  - i", "- j"]),
    st.sampled_from([": ", ":", ":  ", ""]),
    st.sampled_from(["plain", "two words", "", "'q'", '"q"', "[a, b]", ">", "|", ">-", "|-", "it's", "x  ", "a:b"]),
)
plain_head = st.lists(
    plain_line | st.sampled_from(["", "   ", "  text", "  more text", "    deep", "# c", "      "]),
    min_size=1,
    max_size=7,
)


def by_yaml(head: str) -> Any:
    """What YAML makes of it, with all scalars as strings; the error where it can't be read."""
    try:
        return yaml.load(head + "\n", Loader=yaml.CBaseLoader) or {}
    except yaml.YAMLError as error:
        return error


def agrees(head: str) -> None:
    answer = parse_plain_frontmatter(head)
    if answer is not None:
        assert answer == by_yaml(head)


@settings(max_examples=examples(800))
@given(odd_head)
def test_whatever_is_answered_is_what_yaml_answers_for_odd_heads(lines: list[str]) -> None:
    agrees("\n".join(lines))


@settings(max_examples=examples(1_500))
@given(plain_head)
def test_whatever_is_answered_is_what_yaml_answers_for_nearly_plain_heads(lines: list[str]) -> None:
    agrees("\n".join(lines))


@settings(max_examples=examples(500))
@given(st.text(alphabet=st.sampled_from("ab:- #'\"[]{},>|&*!%@`?\\\n\t~=é日\u00a0\u200b")))
def test_whatever_is_answered_is_what_yaml_answers_for_any_text(head: str) -> None:
    agrees(head)


@settings(max_examples=examples(300))
@given(st.dictionaries(st.sampled_from(KEYS[:8]), st.text(st.characters(codec="utf-8"), max_size=40), max_size=4))
def test_any_characters_in_values_are_read_as_yaml_reads_them(fields: dict[str, str]) -> None:
    agrees("\n".join(f"{key}: {value}" for key, value in fields.items()))


@pytest.mark.parametrize(
    "head",
    [
        TYPICAL,
        "name: a\ndescription: One.\nallowed-tools:\n  - Read\n  - Bash(git:*)\nmodel: opus",
        "name: a\ndescription: >-\n  Folded over\n  two lines.\nversion: 1",
        "name: a\ndescription: |\n  Kept\n    as it is.\n\nversion: 1",
        "name: a\ndescription: Goes on\n  below, indented.\nversion: 1",
        "name: 'a'\ndescription: \"Use when: asked\"\n",
        "# written by hand\nname: a\n\ndescription: Überprüft 日本語 😀.\ntags:\n- one\n- two\n",
        "name: a\ndescription: See http://example.org/x#y, at 12:30.\nargument-hint: <file> [more]\n",
        "name: a\ndescription: b\nuser-invocable: false\nmetadata:\n  short-description: c\n  tags: [d, e]\n",
        "name:\ndescription: b\n",
    ],
)
def test_heads_as_people_write_them_need_no_yaml(head: str) -> None:
    assert parse_plain_frontmatter(head) == by_yaml(head)


@pytest.mark.parametrize(
    ("head", "why"),
    [
        ("a: b: c", "a colon inside a plain value"),
        ("a: b\na: c", "a field given twice"),
        ("a: |\n  b\n   ", "blanks below a block are part of it"),
        ("a: |\n  b\n\n  c", "a blank line inside a block"),
        ("a: b\n\n  c", "a value that goes on after a blank line"),
        ('a: "b\\n"', "an escape"),
        ("a: 'it''s'", "a doubled quote"),
        ("a: &x b\nc: *x", "an anchor and its alias"),
        ("a: {b: c}", "a flow map"),
        ("a:\n  b:\n    c: d", "a map in a map"),
        ("a:\n  - b: c", "a map in a list"),
        ("a: b # c", "a comment behind a value"),
        ("a:\tb", "a tab"),
        ("a: b\x80", "a control character"),
        ("a" * 1100 + ": b", "a key too long for YAML"),
        ("a:\n  " + "b" * 1100 + ": c", "a key too long for YAML, one level down"),
        ("- a", "a list"),
        ("just words", "no field at all"),
        ("a: b\n...", "an end mark"),
    ],
)
def test_every_doubt_is_left_to_yaml(head: str, why: str) -> None:
    assert parse_plain_frontmatter(head) is None, why


def test_an_empty_head_has_no_fields() -> None:
    assert parse_plain_frontmatter("") == {}
    assert parse_plain_frontmatter("\n\n# nothing yet\n") == {}
