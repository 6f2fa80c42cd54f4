"""A head as its author wrote it, or none: nothing in between."""

import contextlib

import pytest

from kitbag.mcp_server.verbatim_frontmatter import NotVerbatimError, read_verbatim_frontmatter
from support.cost import processor_limit


def head(text: str, begin: str = "---\n", end: str = "\n---\nbody\n") -> dict[str, object]:
    return read_verbatim_frontmatter(f"{begin}{text}{end}".encode())


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("a: 1", 1), ("a: -7", -7), ("a: 0x1F", 31), ("a: 0o17", 15), ("a: 1.50", 1.5), ("a: 1e3", 1000.0),
        ("a: true", True), ("a: FALSE", False), ("a: yes", "yes"), ("a: ~", None), ("a:", None), ("a: ''", ""),
        ("a: '1'", "1"), ('a: "true"', "true"), ("a: 2024-01-02", "2024-01-02"), ("a: 1_000", "1_000"),
        ("a: .inf", ".inf"), ("a: |\n  x\n  y", "x\ny\n"), ("a: >-\n  x\n  y", "x y"), ("a: [1, {b: c}]", [1, {"b": "c"}]),
        ("a: 1e999", "1e999"),
    ],
)  # fmt: skip
def test_values_are_what_yaml_says(written: str, meant: object) -> None:
    assert head(written) == {"a": meant}
    assert type(head(written)["a"]) is type(meant)


def test_keys_are_texts_and_a_mark_and_other_newlines_do_not_matter() -> None:
    assert head("1: a\ntrue: b") == {"1": "a", "true": "b"}
    assert read_verbatim_frontmatter(b"\xef\xbb\xbf---\r\na: b\r\n---\r\n") == {"a": "b"}


@pytest.mark.parametrize(
    "text",
    [
        "a: &x 1\nb: *x",
        "a: !!python/object/apply:os.system [id]",
        "a: 1\na: 2",
        "- a",
        "just text",
        "a: [",
        "? [a]\n: b",
        "",
    ],
)
def test_what_is_no_plain_map_has_no_such_form(text: str) -> None:
    with pytest.raises(NotVerbatimError):
        head(text)


@pytest.mark.parametrize("data", [b"", b"no head", b"---\na: b\n", b"---\na: \xff\n---\n", b"\n---\na: b\n---\n"])
def test_nor_has_a_file_without_a_head(data: bytes) -> None:
    with pytest.raises(NotVerbatimError):
        read_verbatim_frontmatter(data)


def test_a_hostile_head_costs_little() -> None:
    for text in ("a: " + "[" * 5_000, "a: " + "{b: " * 5_000, "a: [" + "1, " * 100_000 + "]", "a: " + "9" * 4_500):
        with processor_limit(), contextlib.suppress(NotVerbatimError):
            head(text)
