"""Where sections begin, as markdown-it-py sees it, and what their headings mean."""

import re
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from kitbag.text.sections import CodeFence, find_fences, parse_sections, section_role
from support.cost import processor_limit
from support.matrix import examples

ROOT = Path(__file__).parents[2]
MARKDOWN = MarkdownIt("commonmark", {"maxNesting": 500})


def expected(text: str) -> list[tuple[int, int, str]]:
    """(level, line, text) of the headings that are in no list and no quote."""
    tokens = MARKDOWN.parse(text)
    found: list[tuple[int, int, str]] = []
    for token, inline in pairwise(tokens):
        if token.type == "heading_open" and token.level == 0:
            assert token.map
            shown = "".join(
                {"softbreak": " ", "hardbreak": " ", "html_inline": ""}.get(child.type, child.content)
                for child in inline.children or ()
            )
            found.append((int(token.tag[1]), token.map[0] + 1, shown))
    return found


def places(text: str) -> list[tuple[int, int]]:
    return [(section.level, section.first_line) for section in parse_sections(text) if section.level]


def expected_fences(text: str) -> list[int]:
    return [token.map[0] for token in MARKDOWN.parse(text) if token.type == "fence" and token.map]


def agrees(text: str) -> None:
    assert places(text) == [(level, line) for level, line, _ in expected(text)]
    assert [fence.first for fence in find_fences(text)] == expected_fences(text)
    sections = parse_sections(text)
    assert "".join(text[section.start : section.end] for section in sections) == text
    for section in sections:
        assert section.start <= section.body_start <= section.end <= section.end_with_children <= len(text)


HAND_MADE = {
    "a hashtag": "#hashtag\n\n#\ttab\n#\n####### seven\n",
    "indents": "   # three\n\n    # four\n\n\t# tab\n",
    "closing marks": "# a #\n# b ##  \n# c#\n# d \\#\n# #\n## ##\n",
    "setext": "One\n===\n\nTwo\n---\n\nThree\nlines\n  of it\n=\n\n---\n\n===\n",
    "a break is no heading": "a\n\n---\n\n***\n- - -\n",
    "a break after a list": "- a\n---\nb\n---\n",
    "fences": "```\n# no\n```\n# yes\n~~~ md title\n# no\n```\n~~~~\n# yes\n",
    "a longer fence": "````\n```\n# no\n```\n````\n# yes\n",
    "backticks in the info string": "``` a`b\n# yes\n",
    "an unclosed fence": "# yes\n```\n# no\n",
    "a fence in a list": "- a\n  ```\n  # no\n  ```\n# yes\n",
    "a fence a list ends": "- ```\n  # no\n# yes\n\n# yes\n",
    "a fence a quote ends": "> ```\n> # no\n# yes\n",
    "a fence after a paragraph": "a\n```\n# no\n```\nb\n===\n",
    "headings in lists": "- # no\n\n  # no\n# yes\n1. a\n\n   b\n   ---\n",
    "headings in quotes": "> # no\n> b\n> ---\n# yes\n",
    "lazy lines": "- a\nb\n===\n\n> c\nd\n---\n",
    "lazy lines after an end": "- a\n\nb\n===\n> c\n>\nd\n---\n",
    "an empty item": "-\n\n  a\n  ===\n\nb\n===\n-\n  c\n  ===\n",
    "numbers": "a\n2. b\n===\n\n1. c\n===\nd\n---\n",
    "wide items": "-     code\n\n    # no\n10. a\n\n    # no\n   # yes\n",
    "indented code": "    a\n---\n    b\n===\n\nc\n    d\n---\n",
    "comments": "<!--\n# no\n\n# no\n-->\n# yes\n<!-- one --> x\n# yes\n",
    "an unclosed comment": "<!--\n# no\n\n# no\n",
    "blocks of HTML": "<div>\n# no\n\n# yes\n</div>\n# no\n\n# yes\n",
    "a pre": "<pre>\n\n# no\n</pre>\n# yes\n<script>\n# no\n",
    "any tag": "<custom-tag a='b'>\n# no\n\nx\n<b>\n# yes\n<b> y\n# yes\n",
    "a declaration": "<!DOCTYPE html>\n# yes\n<?php\n# no\n?>\n<![CDATA[\n# no\n]]>\n# yes\n",
    "link definitions": "[a]: /b\n===\n\n[a]: /b 'c'\nd\n===\n\n[a]:\n/b\n'c\nd'\n---\ne\n---\n\n[a] b\n---\n",
    "tabs": "-\ta\n\n\t# no\n\n  # yes\n>\t# no\n1.\t\ta\n",
    "Windows": "# a\r\n\r\nb\r\n---\r\n```\r\n# no\r\n```\r\n",
    "other blanks": "\u00a0# no\n\x0b\n# yes\n\u2028# no\n\x0c\n===\n",
    "deep": "> - > 1. # no\n> - > 1. b\n===\n# yes\n",
    "nothing": "",
    "no newline at the end": "# a",
    "underlines": "a\n=== b\n\nc\n- -\n\nd\n-\n\ne\n   ---   \n\nf\n    ---\n",
}


@pytest.mark.parametrize("text", HAND_MADE.values(), ids=HAND_MADE.keys())
def test_headings_and_fences_are_those_that_commonmark_sees(text: str) -> None:
    agrees(text)


LINES = st.sampled_from(
    """# a|## b ##|#|#c|   # d|    # e|a|b c|===|---|-|=|  ===|    ---|***|- - -|- a|* b|+ c|-|- # a|- ```|-     a|1. a|2. b|10) c|1.|
  a|   a|    a|     a|  # a|   ===|  ---|> a|>|> # a|> ```|> - a|>> b|> > c|- > a|```|````|~~~|``` py|~~~ x|``` a`b|  ```|    ```|   ~~~|
<div>|</div>|<!--|-->|<!-- a -->|<b>|<pre>|</pre>|<?|?>|- <div>|> <!--|\t# a|-\ta|\ta|>\ta|1.\ta| |\\# a|* * a|- - a|-\t-\ta|`a`|**a**|[a](b)""".replace(
        "|\n", "|"
    ).split("|")
)
DOCUMENTS = st.lists(st.one_of(LINES, LINES, LINES, st.just("")), max_size=14).map("\n".join)


# Where markdown-it-py leaves CommonMark: code-like lines that lazily continue a quote in a quote.
DISPUTED = re.compile("^ {0,3}(?:- )?> ?>.*\n(?:.+\n)*(?: {4}|\t)", re.MULTILINE)


@settings(max_examples=examples(1500))
@given(DOCUMENTS)
def test_headings_of_any_mixture_of_lines_are_those_that_commonmark_sees(text: str) -> None:
    assume(not DISPUTED.search(text))
    agrees(text)


@settings(max_examples=examples(300))
@given(st.text("ab#=-*+_>`~<!/ \t\n1.)[]:'\\", max_size=60))
def test_headings_of_any_characters_are_those_that_commonmark_sees(text: str) -> None:
    # What may follow the definition of a link without a blank line, readers of Markdown do not agree on.
    assume("]:" not in text and not DISPUTED.search(text))
    agrees(text)


def test_headings_of_the_files_around_here_are_those_that_commonmark_sees() -> None:
    files = [path for folder in ("src", "docs", "examples", "tests") for path in (ROOT / folder).rglob("*.md")]
    files += ROOT.glob("*.md")
    assert files
    for path in files:
        text = path.read_text(encoding="utf-8", errors="replace")
        assert (path, places(text)) == (path, [(level, line) for level, line, _ in expected(text)])


WORDS = st.text("abcdefg", min_size=1, max_size=6)
MARKED = st.one_of(
    WORDS,
    WORDS.map("**{}**".format),
    WORDS.map("*{}*".format),
    WORDS.map("_{}_".format),
    WORDS.map("`{}`".format),
    WORDS.map("[{}](http://a.b/c_d)".format),
    WORDS.map("[**{}** `x`](<a b> 'c')".format),
    WORDS.map("<http://a.b/{}>".format),
    WORDS.map("<b>{}</b>".format),
    WORDS.map("snake_{}_case".format),
    WORDS.map("\\*{}\\*".format),
    WORDS.map("&amp; {} &#35;".format),
    WORDS.map("``a ` {}``".format),
)


@given(st.lists(MARKED, min_size=1, max_size=4).map(" ".join), st.sampled_from(["## {}", "## {} ##", "{}\n---"]))
def test_a_title_is_what_a_reader_sees(title: str, form: str) -> None:
    text = form.format(title)
    [(_, _, shown)] = expected(text)
    [section] = parse_sections(text)
    assert section.title == shown


def test_the_text_before_the_first_heading_is_a_section_of_level_zero() -> None:
    opening, first = parse_sections("hello\n\n# One\ntext\n")
    assert (opening.level, opening.title, opening.role, opening.start, opening.end) == (0, "", "other", 0, 7)
    assert (first.level, first.title, first.start, first.body_start, first.first_line) == (1, "One", 7, 13, 3)


def test_a_section_ends_at_the_next_heading_and_its_children_at_the_next_of_its_rank() -> None:
    text = "# A\na\n## B\nb\n### C\nc\n## D\nd\n# E\ne\n"
    ends = {
        s.title: (text[s.body_start : s.end], text[s.body_start : s.end_with_children]) for s in parse_sections(text)
    }
    assert ends["A"] == ("a\n", "a\n## B\nb\n### C\nc\n## D\nd\n")
    assert ends["B"] == ("b\n", "b\n### C\nc\n")
    assert ends["C"] == ("c\n", "c\n")
    assert ends["E"] == ("e\n", "e\n")


def test_an_unclosed_fence_reaches_to_the_end_and_says_what_would_close_it() -> None:
    assert find_fences("a\n1. ~~~~ py\n   b\n") == [CodeFence(1, 3, False, "   ~~~~")]
    assert find_fences("> ```\n> b\nc\n") == [CodeFence(0, 2, False, "> ```")]
    assert find_fences("```\na\n```\nb") == [CodeFence(0, 3, True, "```")]


ROLES = {
    "summary": "Summary|OVERVIEW|TL;DR|1. Purpose|Introduction|## About|At a glance|What this does|What This Skill Does|Goals|"
    "🎯 Goal|Executive Summary|Quick overview|High-Level Overview|Overview of the process|Purpose & scope|Summary (short)|概述",
    "rules": "Core Rules|rules|Key Principles|Guidelines|Instructions|Constraints|MUST|Requirements|Best Practices|"
    "⚠️ CRITICAL RULES|The Iron Law|Non-Negotiables|2.1 Core rules|Rules for naming|Rules: read first|A) Rules|"
    "Do's and Don'ts|Dos and don’ts|Examples and rules|Important notes|核心规则|Правила",
    "examples": "Example|Examples|Usage Example|Usage examples:|Sample|Demo|Example 1|Example: a rename|Example workflow|"
    "Examples of good commits|Code Samples|Worked example|IV. Examples|示例",
    "references": "References|Reference|Further Reading|Resources|See also|Links|Bibliography|Related|Additional Resources|"
    "External links|10. References|📚 References|Related skills|References & further reading|参考资料",
    "appendix": "Appendix|Appendix A: Decision Log|Changelog|History|Version History|FAQ|F.A.Q.|Troubleshooting|Notes|Credits|"
    "License|Notes / Credits|附录",
    "other": "|Steps|Quick Reference|API Reference|Rules engine|Installation instructions|References to update|Setup and examples|"
    "Notes app|Usage|---|🎉|Step 1|Sample size|Workflow",
}


@pytest.mark.parametrize(
    ("role", "title"), [(role, title) for role, titles in ROLES.items() for title in titles.split("|")]
)
def test_a_role_follows_from_the_words_of_a_title(role: str, title: str) -> None:
    assert section_role(title.replace("F.A.Q.", "FAQ.")) == role


def test_a_child_of_examples_references_or_appendix_has_its_role_unless_it_has_one_of_its_own() -> None:
    text = "# Doc\n## Examples\n### Renaming\n#### Deeper\n### Rules\n#### Below\n## Appendix\n### Sizes\n## Steps\n## Rules\n### Naming\n"
    assert {section.title: section.role for section in parse_sections(text)} == {
        "Doc": "other",
        "Examples": "examples",
        "Renaming": "examples",
        "Deeper": "examples",
        "Rules": "rules",
        "Below": "other",
        "Appendix": "appendix",
        "Sizes": "appendix",
        "Steps": "other",
        "Naming": "other",
    }


HOSTILE = {
    "quotes": ">" * 200_000,
    "items": "- " * 100_000 + "\n" * 100_000,
    "blanks": "# a" + " " * 200_000 + "b",
    "a tag": "<a" + " a" * 100_000,
    "brackets": "[" * 200_000 + "\n===",
    "definitions": "[a]: b\n" * 30_000 + "===",
    "an open title": "[a]: b\n'" + "c\n" * 100_000 + "===",
    "marks": "# " + "*_`[<" * 40_000,
    "lazy": "- a\nb\n  c\n" * 20_000,
    "headings": "# Examples\n" * 20_000,
    "fences": "```\n" * 50_000,
    "backticks": "`" * 200_000,
    "tabs": "\t" * 100_000 + "a\n" + "-\t" * 50_000,
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_hostile_text_costs_no_more_than_its_length_asks_for(text: str) -> None:
    with processor_limit():
        sections = parse_sections(text)
    assert sum(section.end - section.start for section in sections) == len(text)


def test_a_title_is_bounded() -> None:
    assert re.fullmatch("a{1000}", parse_sections("# " + "a" * 5000)[0].title)
