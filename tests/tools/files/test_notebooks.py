"""Notebooks as Read shows them: cells, outputs, pictures, and what is no notebook after all."""

import base64
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kitbag.messages import Image
from kitbag.tools.files.notebooks import MAX_OUTPUT_CHARS, Notebook
from kitbag.tools.files.read import MAX_NOTEBOOK_IMAGES, READ
from support.matrix import examples
from support.using import Bench, memory_growth, text_of

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 40


def code(source: Any, *outputs: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"cell_type": "code", "source": source, "outputs": list(outputs), "metadata": {}, **more}


def markdown(source: Any) -> dict[str, Any]:
    return {"cell_type": "markdown", "source": source, "metadata": {}}


def printed(text: Any) -> dict[str, Any]:
    return {"output_type": "stream", "name": "stdout", "text": text}


def picture(data: bytes = PNG, kind: str = "image/png") -> dict[str, Any]:
    shown = {kind: base64.encodebytes(data).decode(), "text/plain": "<Figure size 640x480>"}
    return {"output_type": "display_data", "data": shown, "metadata": {}}


def saved(bench: Bench, *cells: dict[str, Any], name: str = "a.ipynb") -> None:
    bench.write(name, json.dumps({"cells": list(cells), "metadata": {}, "nbformat": 4, "nbformat_minor": 5}))


def lines_of(bench: Bench, **more: Any) -> list[str]:
    """Without their numbers."""
    text = text_of(bench.use(READ, file_path="a.ipynb", **more))
    return [line.partition("\t")[2] if "\t" in line else line for line in text.splitlines()]


def test_cells_come_in_order_with_kind_number_source_and_what_they_printed(bench: Bench) -> None:
    saved(
        bench,
        markdown(["# Title\n", "Some words"]),
        code("print(1)\nprint(2)", printed(["1\n", "2\n"]), execution_count=3, id="ab12"),
        {"cell_type": "raw", "source": "as it is"},
    )
    assert lines_of(bench) == [
        "--- cell 1: markdown ---", "# Title", "Some words", "",
        "--- cell 2: code, run 3, id ab12 ---", "print(1)", "print(2)", "--- output ---", "1", "2", "",
        "--- cell 3: raw ---", "as it is", "",
    ]  # fmt: skip


def test_the_lines_are_numbered_and_windows_count_them(bench: Bench) -> None:
    saved(bench, *(code(f"x = {number}") for number in range(50)))
    outcome = bench.use(READ, file_path="a.ipynb", offset=4, limit=3)
    assert text_of(outcome).startswith("     4\t--- cell 2: code ---\n     5\tx = 1\n     6\t\n")
    assert "lines 4-6 of 150 lines" in outcome.truncation
    assert text_of(outcome).endswith("Continue with offset=7.]")


def test_errors_results_and_colours_of_outputs_are_shown_as_text(bench: Bench) -> None:
    error = {
        "output_type": "error",
        "ename": "ValueError",
        "evalue": "bad",
        "traceback": ["\x1b[31mTrace", "back\x1b[0m"],
    }
    result = {"output_type": "execute_result", "data": {"text/html": "<b>42</b>", "text/plain": ["42"]}}
    only_html = {"output_type": "display_data", "data": {"text/html": "<table>"}}
    bare = {"output_type": "error", "ename": "KeyError", "evalue": "'x'", "traceback": []}
    saved(bench, code("f()", error, result, only_html, bare))
    shown = lines_of(bench)[2:-1]
    assert shown == [
        "--- output ---", "Trace", "back", "--- output ---", "42", "--- output ---", "[omitted: text/html]",
        "--- output ---", "KeyError: 'x'",
    ]  # fmt: skip


def test_long_outputs_are_cut_and_say_so(bench: Bench) -> None:
    saved(bench, code("f()", printed("y" * 50 + "\n" + "x\n" * MAX_OUTPUT_CHARS)))
    assert any("more characters of output]" in line for line in lines_of(bench, offset=1_000, limit=10_000))


def test_pictures_are_passed_on_up_to_a_few_and_the_others_are_said(bench: Bench) -> None:
    saved(
        bench, *(code(f"plot({number})", picture(PNG + bytes([number]))) for number in range(MAX_NOTEBOOK_IMAGES + 2))
    )
    outcome = bench.use(READ, file_path="a.ipynb")
    pictures = [part for part in outcome.content if isinstance(part, Image)]
    assert [base64.b64decode(one.data) for one in pictures] == [
        PNG + bytes([number]) for number in range(MAX_NOTEBOOK_IMAGES)
    ]
    assert "[image 1: image/png]" in text_of(outcome)
    assert "[2 images omitted from the notebook" in text_of(outcome)
    assert "Figure" not in text_of(outcome)


def test_only_pictures_of_the_lines_that_are_shown_are_passed_on(bench: Bench) -> None:
    saved(bench, *(code("plot()", picture()) for _ in range(3)))
    outcome = bench.use(READ, file_path="a.ipynb", limit=2)
    assert not [part for part in outcome.content if isinstance(part, Image)]


@pytest.mark.parametrize("data", [b"no picture", b"\xff\xd8\xff jpeg"])
def test_a_picture_that_is_none_is_left_out(bench: Bench, data: bytes) -> None:
    saved(bench, code("plot()", picture(data)))
    outcome = bench.use(READ, file_path="a.ipynb")
    assert not [part for part in outcome.content if isinstance(part, Image)]
    assert "1 image omitted from the notebook" in text_of(outcome)


def test_an_older_notebook_is_read_too(bench: Bench) -> None:
    cells = [{"cell_type": "code", "input": ["x = 1\n", "x"], "outputs": [], "prompt_number": 2}]
    bench.write("a.ipynb", json.dumps({"worksheets": [{"cells": cells}], "nbformat": 3}))
    assert lines_of(bench)[:3] == ["--- cell 1: code, run 2 ---", "x = 1", "x"]


def test_a_notebook_without_cells_says_so(bench: Bench) -> None:
    saved(bench)
    assert lines_of(bench) == ["[The notebook has no cells.]"]


@pytest.mark.parametrize(
    "text",
    [
        '{"cells": [',
        "not json",
        '{"nbformat": 4}',
        '{"cells": [1, 2]}',
        "[]",
        '{"cells": {}}',
        '{"cells": "x"}',
        "[" * 9_000,
    ],
)
def test_what_is_no_notebook_is_shown_as_text_with_a_note(bench: Bench, text: str) -> None:
    bench.write("a.ipynb", text)
    shown = text_of(bench.use(READ, file_path="a.ipynb"))
    assert text[:1_000] in shown
    assert "[Shown as plain text, because it cannot be parsed as a notebook: " in shown


@pytest.mark.parametrize(
    "outputs", [5, "x", [1], {"a": 1}, [{"data": []}], [{"data": {"text/plain": 5}}], [{"text": {}}]]
)
def test_damaged_outputs_do_not_keep_the_rest_from_being_shown(bench: Bench, outputs: Any) -> None:
    saved(bench, code("first()") | {"outputs": outputs}, code("second()"))
    assert {"first()", "second()"} <= set(lines_of(bench))


def test_hidden_characters_can_be_seen(bench: Bench) -> None:
    saved(bench, code("a\u202eb", id="x\ny\u200b"))
    text = text_of(bench.use(READ, file_path="a.ipynb"))
    assert "a[U+202E]b" in text
    assert "id x y[U+200B] ---" in text


def test_a_title_can_not_be_forged_by_a_name(bench: Bench) -> None:
    saved(bench, code("x", id="a ---\n--- cell 9: code") | {"cell_type": "code\n--- cell 8"})
    assert sum(line.startswith("--- cell") for line in lines_of(bench)) == 1


@pytest.mark.parametrize(
    "data",
    [
        b'{"cells": [' + b"{}," * 3_000_000 + b"{}]}",
        b'{"cells": [{"source": [' + b'"",' * 3_000_000 + b'""]}]}',
        b'{"cells": [{"source": "' + b"x" * 20_000_000 + "\U0001f600".encode() + b'"}]}',
        b'{"cells": [{"cell_type": "' + b"x" * 20_000_000 + b'"}]}',
        b'{"cells": [{"outputs": [{"data": {"image/png": "' + b"A" * 30_000_000 + b'"}}]}]}',
        b'{"cells": [], "metadata": ' + b"[" * 200_000,
        b'{"cells": ["' + b"x" * 40_000_000,
    ],
    ids=["cells", "lines", "source", "kind", "picture", "depth", "size"],
)
def test_a_hostile_notebook_takes_little_memory(bench: Bench, data: bytes) -> None:
    bench.write("a.ipynb", data)
    with memory_growth() as growth:
        outcome = bench.use(READ, file_path="a.ipynb")
        assert growth() < 100 << 20
    assert len(text_of(outcome)) < 60_000


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
CELLS = st.fixed_dictionaries(
    {}, optional=dict.fromkeys(("cell_type", "source", "outputs", "id", "execution_count"), JSON)
)


@settings(max_examples=examples(40))
@given(cells=st.lists(CELLS, max_size=4))
def test_any_cells_are_shown(cells: list[dict[str, Any]]) -> None:
    text = b"".join(Notebook(json.dumps({"cells": cells}).encode()).render_cells()).decode()
    assert sum(line.startswith("--- cell ") for line in text.split("\n")) >= len(cells)
