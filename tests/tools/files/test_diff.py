"""Diffs: true for every pair of texts, bounded for large ones, and with nothing hidden in them."""

import re

from hypothesis import given
from hypothesis import strategies as st

from kitbag.tools.files.diff import MAX_CHARS, MAX_ROWS, UnifiedDiff, diff
from support.cost import processor_limit

texts = st.text(st.sampled_from("abc\n"), max_size=60)


def applied(before: str, found: UnifiedDiff) -> str:
    """What a program that patches makes of it."""
    lines = before.splitlines(keepends=True)
    made: list[str] = []
    at = 0
    rows = found.text.split("\n")[2:]
    for index, row in enumerate(rows):
        header = re.fullmatch(r"@@ -(\d+),(\d+) \+(\d+),(\d+) @@", row)
        ended = "" if rows[index + 1 : index + 2] == ["\\ No newline at end of file"] else "\n"
        if header:
            start = int(header[1]) - (header[2] != "0")
            made += lines[at:start]
            at = start
            assert len(made) == int(header[3]) - (header[4] != "0")
        elif row.startswith("+"):
            made.append(row[1:] + ended)
        elif row.startswith((" ", "-")):
            assert lines[at] == row[1:] + ended
            made += [lines[at]] if row.startswith(" ") else []
            at += 1
    return "".join(made + lines[at:])


@given(before=texts, after=texts)
def test_a_diff_leads_from_one_text_to_the_other(before: str, after: str) -> None:
    found = diff(before, after, "a.txt")
    if before == after:
        assert found == UnifiedDiff(text="", added=0, removed=0)
    else:
        assert applied(before, found) == after
        rows = found.text.split("\n")[2:]
        assert found.added == sum(row.startswith("+") for row in rows)
        assert found.removed == sum(row.startswith("-") for row in rows)


@given(st.data())
def test_it_is_true_for_longer_texts_that_have_much_in_common(data: st.DataObject) -> None:
    lines = [f"line {number}\n" for number in range(data.draw(st.integers(0, 60)))]
    changed = list(lines)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(changed)))
        changed[at : at + data.draw(st.integers(0, 3))] = data.draw(
            st.lists(st.sampled_from(["x\n", "line 3\n"]), max_size=3)
        )
    before, after = "".join(lines), "".join(changed)
    if before != after:
        assert applied(before, diff(before, after, "a")) == after


def test_changes_apart_from_each_other_are_apart() -> None:
    lines = [f"{number}\n" for number in range(1, 31)]
    changed = [line for line in lines if line != "20\n"]
    changed[3] = "four\n"
    assert diff("".join(lines), "".join(changed), "a").text.split("\n") == [
        "--- a", "+++ a",
        "@@ -1,7 +1,7 @@", " 1", " 2", " 3", "-4", "+four", " 5", " 6", " 7",
        "@@ -17,7 +17,6 @@", " 17", " 18", " 19", "-20", " 21", " 22", " 23",
    ]  # fmt: skip


def test_line_ends_are_seen_where_they_are_what_differs() -> None:
    assert "-a[U+000D]" in diff("a\r\n", "a\n", "a").text
    assert "-a\n+b" in diff("a\r\n", "b\r\n", "a").text


def test_hidden_characters_are_seen() -> None:
    assert "+x[U+202E]y[U+0000]" in diff("", "x\u202ey\0", "a").text


def test_what_is_too_long_is_cut_and_counted() -> None:
    found = diff(None, "".join(f"{number}\n" for number in range(5_000)), "a")
    assert found.added == 5_000
    assert found.text.count("\n") == MAX_ROWS
    assert found.truncation == "4,703 of 5,003 diff lines omitted"
    wide = diff("", "x" * 10_000 + "\n", "a")
    assert wide.truncation == "1 long line truncated"
    assert "[9,501 more characters in this line]" in wide.text
    assert len(diff(None, ("y" * 490 + "\n") * 200, "a").text) < MAX_CHARS + 1_000


def test_texts_with_little_in_common_cost_little() -> None:
    many = [f"line {number}\n" for number in range(60_000)]
    pairs = [
        ("".join(many), "".join(reversed(many))),
        ("".join(many[:20_000]), "".join(reversed(many[:20_000]))),
        ("x\ny\n" * 10_000, "x\nz\n" * 9_999),
        ("x\n" * 20_000, "x\n" * 10_000 + "y\n"),
        ("a" * 5_000_000, "b" * 5_000_000),
    ]
    for before, after in pairs:
        with processor_limit():
            assert diff(before, after, "a").text
