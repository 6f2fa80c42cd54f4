"""A reply in pieces: whole blocks as soon as they are whole, all of the text, and nothing twice."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kitbag.views.blocks import ReplyBlock
from kitbag.views.rendering.markdown_stream import MAX_PIECE_CHARS, MAX_PIECE_LINES, MarkdownPiece, MarkdownStream
from kitbag.views.rendering.render import needs_gap, render
from support.matrix import examples

ALL_KINDS = """Intro text
goes on

# Head
Para:
- a
- b

  still b
  ```py
  x = 1

  # no heading
  ```
- c

1. one
```bash
ls

ls
```
2. two

````md
```py
inner
```
````
| a | b |
|---|---|
| 1 | 2 |

> quote
> more

---
    indented

end"""


def pieces(text: str, size: int = 1) -> list[MarkdownPiece]:
    stream = MarkdownStream()
    made = [piece for at in range(0, len(text), size) for piece in stream.add(text[at : at + size])]
    return [*made, *stream.finish()]


def texts(text: str, size: int = 1) -> list[str]:
    return [piece.text for piece in pieces(text, size)]


@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_each_block_is_a_piece_however_it_comes(size: int) -> None:
    assert texts(ALL_KINDS, size) == [
        "Intro text\ngoes on\n\n",
        "# Head\n",
        "Para:\n",
        "- a\n- b\n\n  still b\n  ```py\n  x = 1\n\n  # no heading\n  ```\n- c\n\n1. one\n",
        "```bash\nls\n\nls\n```\n",
        "2. two\n\n",
        "````md\n```py\ninner\n```\n````\n",
        "| a | b |\n|---|---|\n| 1 | 2 |\n\n",
        "> quote\n> more\n\n",
        "---\n",
        "    indented\n\n",
        "end",
    ]


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("one\n", False),
        ("one\n\n", True),
        ("# one", False),
        ("# one\n", True),
        ("```\none\n\n", False),
        ("```\none\n```\n", True),
        ("```\none\n````\n", True),
        ("````\none\n```\n", False),
        ("```\none\n~~~\n", False),
        ("```\none\n    ```\n", False),
        ("~~~py\none\n~~~\n", True),
        ("``` a`b\n\n", True),
        ("- one\n\n", False),
        ("- one\n\ntwo\n", True),
        ("---\n", True),
        ("title\n---\n", False),
        ("one\r\n\r\n", True),
        ("| a |\n|---|\n| b |\n\n", True),
    ],
)
def test_a_piece_is_given_when_it_is_whole_and_not_before(text: str, whole: bool) -> None:
    stream = MarkdownStream()
    given = [piece for char in text for piece in stream.add(char)]
    assert bool(given) is whole
    assert "".join(piece.text for piece in given) + stream.tail == text


PARTS = [
    "```",
    "````",
    "~~~",
    "py",
    "\n",
    "\n\n",
    "- ",
    "1. ",
    "  ",
    "    ",
    "# ",
    "> ",
    "| a ",
    "|---|",
    "text",
    "---",
    "\r\n",
]


@given(st.lists(st.sampled_from(PARTS) | st.text(max_size=5), max_size=60).map("".join), st.integers(1, 9))
@settings(max_examples=examples(300))
def test_all_pieces_together_are_the_text_and_the_size_of_the_deltas_does_not_matter(text: str, size: int) -> None:
    assert "".join(texts(text, size)) == text
    assert pieces(text, size) == pieces(text, 10_000)


def test_code_that_goes_on_for_long_is_given_in_parts_that_are_still_code() -> None:
    lines = [f"value_{number} = {number}\n" for number in range(500)]
    made = pieces(f"```python\n{''.join(lines)}```\nend", 50)
    assert len(made) > 500 // MAX_PIECE_LINES
    assert all(piece.head == "```python\n" for piece in made[1:-1])
    shown = "".join(
        render(ReplyBlock(piece.text, at == 0, piece.head), 80, color=False, hide=str) for at, piece in enumerate(made)
    )
    assert [line + "\n" for line in shown.splitlines() if line.startswith("value")] == lines
    assert made[-1] == MarkdownPiece("end")


def test_a_long_table_keeps_its_head_in_every_part() -> None:
    made = pieces("| Name | Size |\n|---|---|\n" + "".join(f"| n{number} | {number} |\n" for number in range(200)))
    assert len(made) > 1
    assert all(piece.head == "| Name | Size |\n|---|---|\n" for piece in made[1:])
    assert "n199  199\n" in render(ReplyBlock(made[-1].text, False, made[-1].head), 80, color=False, hide=str)


def test_a_long_list_is_given_at_its_items_and_stays_one_list() -> None:
    made = pieces("".join(f"{number}. item {number}\n" for number in range(1, 40)))
    assert len(made) > 2
    assert made[1].text.startswith("13. item 13\n")
    assert not needs_gap(ReplyBlock(made[0].text), ReplyBlock(made[1].text, False))
    same = pieces("1. item\n" * 40)
    assert len(same) == 1  # the one who reads counts them


def test_a_line_without_end_is_bounded() -> None:
    stream = MarkdownStream()
    for _ in range(100):
        stream.add("word " * 100)
        assert len(stream.tail) <= MAX_PIECE_CHARS
    assert pieces("x" * 100_000, 1_000)[0].text == "x" * MAX_PIECE_CHARS


@pytest.mark.parametrize("text", ["a", "- a\n", "```\n", "\n", "| ", "> - ", "`", " ", "1. ", "1. a\n", "- a\n\n"])
def test_what_is_held_is_bounded_so_that_each_piece_costs_the_same(text: str) -> None:
    stream = MarkdownStream()
    whole = text * (100_000 // len(text))
    given: list[MarkdownPiece] = []
    for at in range(0, len(whole), 100):
        given += stream.add(whole[at : at + 100])
        assert len(stream.tail) <= 2 * MAX_PIECE_CHARS
    assert "".join(piece.text for piece in [*given, *stream.finish()]) == whole


def test_the_tail_of_code_is_code() -> None:
    stream = MarkdownStream()
    stream.add("```python\n" + "x = 1\n" * 100)
    assert stream.tail.startswith("```python\n")
