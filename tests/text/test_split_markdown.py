"""Splitting a long text: the parts are the text, each fits, and none ends inside a code block that fits."""

from hypothesis import given
from hypothesis import strategies as st

from kitbag.text.sections import find_fences, parse_sections
from kitbag.text.split_markdown import split_markdown
from kitbag.text.tokens import estimate_tokens

PIECES = st.sampled_from(
    [
        "# Title\n", "## Part\r\n", "Some words about the work.\n", "\n", "\n\n", "```python\nx = 1\n# no heading\n```\n",
        "~~~\nopen fence\n", "- item\n\n  ```\n  # nested\n  ```\n", "word " * 60 + "\n", "x" * 400, "été 中文 👩‍💻\n", "   \n",
    ]
)  # fmt: skip


def split(text: str, max_tokens: int) -> list[str]:
    spans = split_markdown(text, parse_sections(text), max_tokens, estimate_tokens)
    return [text[start:end] for start, end in spans]


@given(st.lists(PIECES, max_size=40).map("".join), st.integers(1, 80))
def test_the_parts_are_the_text_byte_for_byte_and_each_fits(text: str, max_tokens: int) -> None:
    parts = split(text, max_tokens)
    assert "".join(parts) == text
    assert all(estimate_tokens(part) <= max_tokens or len(part) == 1 for part in parts)
    assert all(parts) or not text


def section(number: int, lines: int = 10) -> str:
    return f"## Section {number}\n\n" + "A line of plain words.\n" * lines


def test_parts_start_at_headings_where_the_sections_are_small() -> None:
    text = "".join(section(number) for number in range(30))
    parts = split(text, 300)
    assert len(parts) > 3
    assert all(part.startswith("## Section") for part in parts)


def test_a_code_block_that_fits_is_never_split() -> None:
    code = "```\n" + "# not a heading\n\n" * 20 + "```\n"
    text = ("Words before it.\n" * 15 + code) * 6
    parts = split(text, 200)
    assert all(all(fence.closed for fence in find_fences(part)) for part in parts)


def test_a_code_block_that_is_too_long_is_split_at_lines() -> None:
    text = "```\n" + "".join(f"line {number}\n" for number in range(500)) + "```\n"
    parts = split(text, 100)
    assert "".join(parts) == text
    assert all(part.endswith("\n") for part in parts)


def test_one_endless_line_is_split_anywhere() -> None:
    parts = split("x" * 10_000, 100)
    assert "".join(parts) == "x" * 10_000
    assert len(parts) >= 20
