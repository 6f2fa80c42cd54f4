"""Replacing in texts with one kind of line ends, the other, or both."""

from hypothesis import given
from hypothesis import strategies as st

from kitbag.tools.files.replace import MAX_POSITIONS, AmbiguousMatch, Replacement, ReplacementTooLong, replace_text

LONGEST = 10_000


@given(
    text=st.lists(st.sampled_from(["a", "b", "\n", "\r\n"]), max_size=20).map("".join),
    old=st.text(st.sampled_from("ab\n"), min_size=1, max_size=3),
    new=st.text(st.sampled_from("abc\n"), max_size=3),
)
def test_line_ends_do_not_matter_for_what_is_found_and_no_pair_is_torn(text: str, old: str, new: str) -> None:
    found = replace_text(text, old, new, replace_all=True, max_length=LONGEST)
    plain = text.replace("\r\n", "\n")
    if old not in plain:
        assert found is None
        return
    assert isinstance(found, Replacement)
    assert found.text.replace("\r\n", "\n") == plain.replace(old, new)
    assert found.occurrences == plain.count(old)
    assert "\r" not in found.text.replace("\r\n", "")
    if "\n" not in text.replace("\r\n", "") and "\r\n" in text:
        assert "\n" not in found.text.replace("\r\n", "")


@given(text=st.text(st.sampled_from("ab"), max_size=30), new=st.text(st.sampled_from("abc"), max_size=4))
def test_the_places_are_those_of_the_new_pieces(text: str, new: str) -> None:
    found = replace_text(text, "ab", new, replace_all=True, max_length=LONGEST)
    if found is not None:
        assert isinstance(found, Replacement)
        assert [found.text[start:end] for start, end in found.spans] == [new] * min(MAX_POSITIONS, text.count("ab"))


def test_several_are_told_with_the_lines_of_the_first_ones() -> None:
    assert replace_text("x\nx x\n" * 20, "x", "y", replace_all=False, max_length=LONGEST) == AmbiguousMatch(
        60, (1, 2, 3, 4, 5, 6, 7)
    )


def test_what_would_be_too_long_is_not_made() -> None:
    assert replace_text("a" * 100, "a", "b" * 10**6, replace_all=True, max_length=LONGEST) == ReplacementTooLong(10**8)
    assert replace_text("a", "a", "b" * 10_001, replace_all=False, max_length=LONGEST) == ReplacementTooLong(10_001)
