"""What is cut from a text that is too long, in which order, and what never is."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from kitbag.text.sections import find_fences
from kitbag.text.tokens import estimate_tokens
from kitbag.text.truncate import (
    MARKER,
    Omission,
    TruncatedText,
    extract_essential,
    truncate_body,
    truncate_by_lines,
    truncate_by_sections,
    truncate_to_first_lines,
)
from support.matrix import examples, long

Counter = Callable[[str], int]

SKILL = """\
Use this for releases.

# Releasing

What a release is, in a few words that are not needed.

## Summary

Tag, build, publish.

## Core Rules

Never publish by hand.

### Versions

Count up.

## Steps

1. Build it, and look at what was built before anything else is done with it.

## Cleaning up

Remove what is left over from the build, and say that it was removed.

## Examples

### Small

```sh
make release
```

### Large

```sh
make release ALL=1
```

## References

- https://example.org/a-long-address-of-a-page-about-releases

## Appendix

### Old ways

They were slow.
"""


def words(text: str) -> int:
    return len(text.split())


def titles(cut: TruncatedText) -> list[str]:
    return [each.what for each in cut.omissions]


def kept_titles(cut: TruncatedText) -> list[str]:
    return [line.lstrip("# ") for line in cut.text.split("\n") if line.startswith("#")]


def test_what_fits_is_returned_unchanged() -> None:
    for cut in (
        truncate_to_first_lines(SKILL, 200, words),
        truncate_by_sections(SKILL, 500, words),
        truncate_by_lines(SKILL, 500, words),
        truncate_body(SKILL, 500, words),
    ):
        assert cut == TruncatedText(SKILL, words(SKILL), ())


def test_references_and_appendix_go_first_and_from_the_end() -> None:
    cut = truncate_by_sections(SKILL, words(SKILL) - 1, words)
    assert titles(cut) == ["Old ways"]
    cut = truncate_by_sections(SKILL, words(SKILL) - 6, words)
    assert titles(cut) == ["References", "Appendix", "Old ways"]
    assert cut.text.endswith("```\n\n" + MARKER)
    assert cut.tokens == words(cut.text)
    assert cut.omissions[1] == Omission("Appendix", 2, "references and appendix are removed first")


def test_the_first_example_is_the_one_that_is_kept() -> None:
    cut = truncate_by_sections(SKILL, words(SKILL) - 12, words)
    assert titles(cut) == ["Large", "References", "Appendix", "Old ways"]
    assert kept_titles(cut)[-2:] == ["Examples", "Small"]
    assert cut.text.count(MARKER) == 1


def test_other_sections_go_last_and_from_the_end() -> None:
    cut = truncate_by_sections(SKILL, words(SKILL) - 25, words)
    assert kept_titles(cut) == ["Releasing", "Summary", "Core Rules", "Versions", "Steps", "Examples", "Small"]
    assert cut.text.count(MARKER) == 2


def test_summary_and_rules_with_their_children_and_one_example_stay_however_small_the_budget_is() -> None:
    cut = truncate_by_sections(SKILL, 1, words)
    assert kept_titles(cut) == ["Releasing", "Summary", "Core Rules", "Versions", "Examples", "Small"]
    assert cut.tokens > 1
    assert cut.text.startswith(f"Use this for releases.\n\n# Releasing\n\n{MARKER}\n\n## Summary\n\nTag")


def test_each_run_of_cut_sections_has_one_marker_in_a_paragraph_of_its_own() -> None:
    text = (
        "## Summary\na\n## One\n" + "b " * 30 + "\n## Two\n" + "c " * 30 + "\n\nRules\n---\nd\n## Three\n" + "e " * 30
    )
    cut = truncate_by_sections(text, 30, words)
    assert cut.text == f"## Summary\na\n\n{MARKER}\n\nRules\n---\nd\n\n{MARKER}"
    assert titles(cut) == ["One", "Two", "Three"]


def test_one_example_is_kept_of_several_below_one_heading() -> None:
    code = "```sh\nmake one two three\n```\n"
    text = f"## Examples\nFirst:\n\n{code}\nSecond:\n\n{code}\nThird:\n\n{code}## Rules\nx\n"
    cut = truncate_by_sections(text, 20, words)
    assert cut.text == f"## Examples\nFirst:\n\n{code}\n{MARKER}\n\n## Rules\nx\n"
    assert cut.omissions == (Omission("Examples", 14, "one example is kept"),)


def test_a_text_of_other_sections_keeps_its_first_for_the_lines_to_be_cut() -> None:
    cut = truncate_by_sections("# Title\na b c\n## Steps\n" + "d " * 40 + "\n## More\n" + "e " * 40, 5, words)
    assert cut.text == f"# Title\na b c\n\n{MARKER}"
    plain = "word " * 300
    assert truncate_by_sections(plain, 5, words) == TruncatedText(plain, 300, ())


def test_the_title_of_a_text_does_not_make_all_of_it_rules() -> None:
    text = "# Instructions\nDo it.\n## Steps\n" + "a " * 50 + "\n## Core rules\nNever stop.\n"
    assert extract_essential(text, words).text == f"# Instructions\nDo it.\n\n{MARKER}\n\n## Core rules\nNever stop.\n"


def test_the_essential_is_a_short_opening_and_summary_and_rules_with_their_children() -> None:
    floor = extract_essential(SKILL, words)
    assert kept_titles(floor) == ["Releasing", "Summary", "Core Rules", "Versions"]
    assert floor.text.startswith("Use this for releases.\n\n# Releasing\n\n" + MARKER)
    assert "Examples" in titles(floor)
    long_opening = "word " * 300 + "\n\n## Rules\nOne.\n"
    assert extract_essential(long_opening, words).text == f"{MARKER}\n\n## Rules\nOne.\n"


def test_the_whole_ladder_stops_where_only_the_essential_is_left() -> None:
    floor = extract_essential(SKILL, words)
    for budget in range(floor.tokens, words(SKILL)):
        cut = truncate_body(SKILL, budget, words)
        assert cut.tokens <= budget
        assert_kept(floor.text, cut.text)
    assert truncate_body(SKILL, 1, words).text == floor.text


def test_the_ladder_cuts_a_long_opening_by_lines_and_keeps_the_rules() -> None:
    text = "".join(f"line {number}\n" for number in range(300)) + "\n## Rules\nNever.\n"
    cut = truncate_body(text, 50, words)
    assert cut.text.startswith("line 0\nline 1\n")
    assert cut.text.endswith(f"{MARKER}\n\n## Rules\nNever.\n")
    assert 45 < cut.tokens <= 50
    assert titles(cut) == ["lines"]


def test_first_lines_ends_with_the_marker_and_counts_what_was_cut() -> None:
    text = "".join(f"line {number}\n" for number in range(100))
    cut = truncate_to_first_lines(text, count=words)
    assert cut.text == "".join(f"line {number}\n" for number in range(50)) + MARKER
    assert cut.omissions == (Omission("lines", 100, "only the first 50 lines are used"),)
    assert truncate_to_first_lines("a\n" * 50 + "\n\n", 50, words).omissions == ()


def test_first_lines_goes_back_to_before_a_fence_it_would_cut() -> None:
    text = "\n".join(["words and more"] * 7 + ["", "```", *["code"] * 20, "```", "end"])
    assert truncate_to_first_lines(text, 10, words).text == "\n".join(["words and more"] * 7 + [MARKER])


def test_first_lines_closes_a_fence_that_starts_too_early_to_go_back() -> None:
    text = "\n".join(["intro", "```py", *["code and more"] * 20, "```", "end"])
    assert truncate_to_first_lines(text, 10, words).text == "\n".join(
        ["intro", "```py", *["code and more"] * 7, "```", MARKER]
    )


def test_a_fence_in_a_list_is_closed_where_it_stands() -> None:
    text = "\n".join(["- intro", "  ~~~~", *["  code and more"] * 20, "end"])
    assert truncate_to_first_lines(text, 6, words).text == "\n".join(
        ["- intro", "  ~~~~", *["  code and more"] * 3, "  ~~~~", MARKER]
    )


def test_lines_are_cut_to_the_budget_with_the_marker_in_it() -> None:
    text = "\n".join(f"line {number}" for number in range(100))
    cut = truncate_by_lines(text, 25, words)
    assert cut.text == "\n".join([*(f"line {number}" for number in range(10)), MARKER])
    assert cut.tokens == 25
    assert cut.omissions == (Omission("lines", 180, "truncated to 25 tokens"),)


def test_where_the_marker_does_not_fit_nothing_is_left() -> None:
    assert truncate_by_lines("a b c d e f g h i j", 2, words) == TruncatedText(
        "", 0, (Omission("lines", 10, "truncated to 2 tokens"),)
    )


LINES = st.sampled_from(
    """# Title|## Summary|## Core Rules|### Detail|## Steps|## Examples|### Example 1|### Example 2|## References|# Appendix|# Rules|
# Summary|### Links|Notes|---|===|```|````|~~~|  ```|- item|- ```|> quote|> ```|  more|    code|<!-- a|-->|<div>|a b c d e f g h i j k l m n o p q|
one two three four five six seven eight nine ten|x|1. a|[a]: /b|the quick brown fox jumps over the lazy dog and then it rests|the quick brown fox jumps over the lazy dog and then it rests|the quick brown fox jumps over the lazy dog and then it rests""".replace(
        "|\n", "|"
    ).split("|")
)
DOCUMENTS = st.lists(st.one_of(LINES, LINES, LINES, st.just("")), min_size=6, max_size=30).map("\n".join)
COUNTS = st.sampled_from([words, estimate_tokens, len])


def assert_kept(shorter: str, longer: str) -> None:
    """Each line of one is in the other, in the same order; markers, blank lines and the line that closes a cut fence do
    not count. Of the last line before a marker, the beginning is enough."""
    lines = iter(longer.split("\n"))
    written = [line for line in shorter.split("\n") if line.strip()]
    for at, line in enumerate(written):
        following = [*written[at + 1 : at + 3], ""]
        is_cut = MARKER in following and (following[0] == MARKER or not following[0].strip("`~> "))
        if line == MARKER or (is_cut and not line.strip("`~> ")):
            continue
        assert any(other.startswith(line) if is_cut else line == other for other in lines), line


def check(text: str, cut: TruncatedText, count: Counter) -> None:
    assert cut.tokens == count(cut.text)
    assert cut.tokens <= count(text)
    if not cut.omissions:
        assert cut.text == text
    else:
        assert cut.tokens < count(text)
        assert all(each.tokens > 0 and each.reason and each.what for each in cut.omissions)
    if all(fence.closed for fence in find_fences(text)):
        assert_kept(cut.text, text)
        assert all(fence.closed for fence in find_fences(cut.text))


@settings(max_examples=examples(400))
@given(DOCUMENTS, st.integers(0, 80), COUNTS)
def test_cutting_by_sections_keeps_order_fences_and_the_essential(text: str, budget: int, count: Counter) -> None:
    cut = truncate_by_sections(text, budget, count)
    check(text, cut, count)
    assert truncate_by_sections(cut.text, budget, count)[:2] == cut[:2]
    floor = extract_essential(text, count)
    check(text, floor, count)
    assert extract_essential(floor.text, count)[:2] == floor[:2]
    if floor.omissions:
        assert_kept(floor.text, cut.text)


@settings(max_examples=examples(400))
@given(DOCUMENTS, st.integers(0, 80), COUNTS)
def test_cutting_by_lines_stays_in_the_budget(text: str, budget: int, count: Counter) -> None:
    cut = truncate_by_lines(text, budget, count)
    check(text, cut, count)
    assert cut.tokens <= budget
    assert truncate_by_lines(cut.text, budget, count)[:2] == cut[:2]


@settings(max_examples=examples(400))
@given(DOCUMENTS, st.integers(1, 20), COUNTS)
def test_the_first_lines_are_no_more_than_asked_for(text: str, lines: int, count: Counter) -> None:
    cut = truncate_to_first_lines(text, lines, count)
    check(text, cut, count)
    assert truncate_to_first_lines(cut.text, lines, count)[:2] == cut[:2]
    if cut.omissions:
        assert len(cut.text.split("\n")) <= lines + 1


@settings(max_examples=examples(400))
@given(DOCUMENTS, st.integers(0, 80), COUNTS)
def test_the_ladder_is_in_the_budget_unless_the_essential_is_not(text: str, budget: int, count: Counter) -> None:
    cut = truncate_body(text, budget, count)
    check(text, cut, count)
    floor = extract_essential(text, count)
    if floor.omissions and floor.tokens <= budget:
        assert cut.tokens <= budget
    if floor.omissions:
        assert_kept(floor.text, cut.text)


LONG = st.sampled_from(
    ["word " * 400, "x" * 2_000, "```\n" + "code = 1\n" * 150 + "```", "~~~\n" + "y, " * 500 + "\n~~~"]
)


@settings(max_examples=examples(200))
@given(st.lists(st.one_of(DOCUMENTS, LONG), min_size=1, max_size=6).map("\n\n".join), st.integers(100, 2_000))
def test_the_ladder_uses_nine_tenths_of_the_budget_whatever_the_text_is(text: str, budget: int) -> None:
    """Of very small budgets, the fences around one line of code are more than a tenth."""
    cut = truncate_body(text, budget, estimate_tokens)
    floor = extract_essential(text, estimate_tokens)
    if floor.tokens <= budget < estimate_tokens(text):
        assert budget * 0.9 <= cut.tokens <= budget


@settings(max_examples=examples(200))
@given(DOCUMENTS, st.integers(0, 60))
def test_a_heading_that_is_kept_stays_a_heading(text: str, budget: int) -> None:
    markdown = MarkdownIt("commonmark")
    cut = truncate_by_sections(text, budget, words)
    before = [token.content for token in markdown.parse(text) if token.type == "inline"]
    after = [token.content for token in markdown.parse(cut.text) if token.type == "inline" and token.content != MARKER]
    assert not [content for content in after if content not in before]


@long
@pytest.mark.parametrize("cut", [truncate_by_sections, truncate_by_lines, truncate_body])
def test_a_very_long_text_is_cut_in_bounded_time(cut: Callable[[str, int, Counter], TruncatedText]) -> None:
    text = "".join(f"## Part {number}\n\ntext of it\n\n" for number in range(20_000)) + "## Rules\n\nOne.\n"
    found = cut(text, 1000, estimate_tokens)
    assert found.tokens <= 1000


def test_a_long_line_under_a_heading_stays_in_part() -> None:
    body = "# Title\n\n" + "word " * 900 + "\n\n## Summary\n\nIn short."
    cut = truncate_body(body, 300, estimate_tokens)
    assert 270 <= cut.tokens <= 300
    assert cut.text.startswith("# Title\n\nword word")
    assert cut.text.endswith("## Summary\n\nIn short.")
