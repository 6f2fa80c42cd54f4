"""Heads as people leave them in files: what is recovered, what is said about it, and on which line."""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kitbag.library.dialects.field_names import KNOWN_FIELDS
from kitbag.text.frontmatter import (
    Frontmatter,
    first_paragraph,
    key_line,
    parse_frontmatter,
    read_body,
    read_frontmatter,
)
from kitbag.text.frontmatter_fences import split_frontmatter
from kitbag.text.source_files import FRONTMATTER_LIMIT, SourceError
from support.cost import memory_peak
from support.matrix import examples


def head_of(folder: Path, text: str | bytes) -> Frontmatter:
    path = folder / "SKILL.md"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_frontmatter(str(path), KNOWN_FIELDS, None)[1]


def notes(head: Frontmatter) -> list[tuple[str, str, int]]:
    return [(problem.severity, problem.code, problem.line) for problem in head.problems]


def fenced(*lines: str, body: str = "Body.") -> str:
    return "\n".join(("---", *lines, "---", body, ""))


RECOVERED = [("warning", "yaml-recovered", 3)]


# -- heads that are in order -----------------------------------------------------------------------


def test_a_plain_head_is_read_without_a_word(tmp_path: Path) -> None:
    head = head_of(tmp_path, fenced("name: a", "description: Does it."))
    assert head == Frontmatter({"name": "a", "description": "Does it."}, (), True, "")


def test_yaml_of_every_kind_is_read(tmp_path: Path) -> None:
    head = head_of(
        tmp_path,
        fenced(
            "name: a",
            "description: >",
            "  Folded",
            "  text.",
            "",
            "  Second paragraph.",
            "metadata: {author: b, list: [1, 2]}",
            "hooks:",
            "  PreToolUse:",
            "    - matcher: Bash",
        ),
    )
    assert head.problems == ()
    assert head.metadata == {
        "name": "a",
        "description": "Folded text.\nSecond paragraph.\n",
        "metadata": {"author": "b", "list": ["1", "2"]},
        "hooks": {"PreToolUse": [{"matcher": "Bash"}]},
    }


def test_unknown_fields_are_kept(tmp_path: Path) -> None:
    assert head_of(tmp_path, fenced("name: a", "description: b", "x-own: c")).metadata["x-own"] == "c"


def test_a_block_at_the_very_end_reads_the_same_fast_and_slow(tmp_path: Path) -> None:
    fast = head_of(tmp_path, fenced("name: a", "description: |", "  One line."))
    slow = head_of(tmp_path, fenced("name: &x a", "description: |", "  One line."))
    assert fast.metadata == slow.metadata == {"name": "a", "description": "One line.\n"}


# -- the rows of COMPATIBILITY §4.2: why strict YAML fails ---------------------------------------------


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("description: Use when: somebody asks", "Use when: somebody asks"),
        ('description: He said "a: b" # twice', 'He said "a: b" # twice'),
        ("argument-hint: [file] | --all", "[file] | --all"),
        ("argument-hint: [x] [y]", "[x] [y]"),
        ('argument-hint: "a" or "b"', '"a" or "b"'),
        ("argument-hint: 'a' and more", "'a' and more"),
        ('metadata: {"author": "b", "tags": {"c": 1}', '{"author": "b", "tags": {"c": 1}'),
        ("metadata: [a, b", "[a, b"),
        ("tools: *", "*"),
        ("tools: *, Read", "*, Read"),
        ("description: {{summary}}", "{{summary}}"),
        ("description: {{summary}} of {{title}}", "{{summary}} of {{title}}"),
        ("description: a\u0080b", "a\u0080b"),
        ("description: , then more", ", then more"),
        ("description: - one - two", "- one - two"),
        ("description: @file is read", "@file is read"),
        ("description: `code` first", "`code` first"),
        ("description: %d items", "%d items"),
        ('description: "Say "hi" now"', 'Say "hi" now'),
        ("description: 'it's fine'", "it's fine"),
        ("description: Steps: one\\ntwo", "Steps: one\ntwo"),
        ("version: 1.0: beta", "1.0: beta"),
    ],
)
def test_a_value_that_yaml_refuses_is_read_as_it_was_meant(tmp_path: Path, line: str, value: str) -> None:
    key = line.partition(":")[0]
    head = head_of(tmp_path, fenced("name: a", line, "license: MIT", "model: opus"))
    assert head.metadata == {"name": "a", key: value, "license": "MIT", "model": "opus"}
    severity = "info" if key == "argument-hint" else "warning"
    assert [note[:2] for note in notes(head)] == [(severity, "yaml-recovered")]
    assert head.problems[0].line in (3, 4), "the value's line, or the next one, where YAML gave up"


def test_unindented_examples_belong_to_the_description(tmp_path: Path) -> None:
    example = [
        "Use it for reviews.",
        "<example>",
        "Context: the user wrote a function",
        'user: "check this"',
        "assistant: I will use it",
        "</example>",
    ]
    head = head_of(tmp_path, fenced("name: a", "description: " + example[0], *example[1:], "tools: Read, Grep"))
    assert head.metadata == {"name": "a", "description": "\n".join(example), "tools": "Read, Grep"}


def test_unindented_lines_below_a_block_mark_belong_to_it(tmp_path: Path) -> None:
    head = head_of(tmp_path, fenced("name: a", "description: |", "  First.", "<example>", "</example>", "model: opus"))
    assert head.metadata == {"name": "a", "description": "First.\n<example>\n</example>", "model": "opus"}


def test_a_field_without_a_space_after_its_colon_is_a_field(tmp_path: Path) -> None:
    head = head_of(
        tmp_path, fenced("name:a", "description:Does it: well.", "allowed-tools:[Read]", "user-invocable\uff1afalse")
    )
    assert head.metadata == {
        "name": "a",
        "description": "Does it: well.",
        "allowed-tools": ["Read"],
        "user-invocable": "false",
    }
    spacing = [note for note in notes(head) if note == ("warning", "yaml-recovered", note[2])]
    assert [note[2] for note in spacing][:4] == [2, 3, 4, 5]
    assert head.problems[1].fix == "write `description: ` with a space"
    body = head_of(tmp_path, "---\nname:a\ndescription:b\n\nText.\n")
    assert (body.metadata, body.body_prefix) == ({"name": "a", "description": "b"}, "\nText.\n")


@pytest.mark.parametrize("value", ["http://x.example/a", "C:\\dir\\x", "12:30:05", "a:b", "source:x"])
def test_a_colon_inside_a_value_starts_no_field(tmp_path: Path, value: str) -> None:
    for lines in ((f"homepage: {value}",), ("homepage: >-", f"  {value}"), ("tags:", f"- {value}")):
        metadata = head_of(tmp_path, fenced("description: b", *lines)).metadata
        assert list(metadata.values())[1] in (value, [value])
    text = head_of(tmp_path, fenced("name: a: b", "description: see", f"{value}")).metadata
    assert set(text) == ({"name", "description", "source"} if value == "source:x" else {"name", "description"})


@pytest.mark.parametrize("lines", [("metadata:", "\tauthor: x"), ("metadata:", " \tauthor: x"), ("tags:", "\t- x")])
def test_a_tab_is_read_as_spaces_and_the_fix_says_so(tmp_path: Path, lines: tuple[str, str]) -> None:
    head = head_of(tmp_path, fenced("name: a", "description: b", *lines))
    assert head.metadata[lines[0][:-1]] in ({"author": "x"}, ["x"])
    assert [(note.line, note.fix) for note in head.problems] == [(5, "indent with spaces, not tabs")]


@pytest.mark.parametrize("items", [("  - Read", "  -Write", "  -'Grep'"), ("- Read", "-Write", "-'Grep'")])
def test_an_item_without_a_space_after_its_dash_is_an_item(tmp_path: Path, items: tuple[str, ...]) -> None:
    head = head_of(tmp_path, fenced("name: a", "description: b", "tools:", *items, "model: x"))
    assert head.metadata == {"name": "a", "description": "b", "tools": ["Read", "Write", "Grep"], "model": "x"}
    assert [(note.line, note.fix) for note in head.problems] == [
        (number, "write `- ` with a space") for number in (6, 7)
    ]
    prose = head_of(tmp_path, fenced("name: a", "description: >", "  Use:", "  -x", "  -y", "model: a: b"))
    assert prose.metadata["description"] == "Use: -x -y\n"


@pytest.mark.parametrize("indent", ["\t", "  ", " \t"])
def test_an_indented_field_after_a_complete_one_is_a_field(tmp_path: Path, indent: str) -> None:
    head = head_of(tmp_path, fenced("name: a", f"{indent}description: b", f"{indent}tools: Read"))
    assert head.metadata == {"name": "a", "description": "b", "tools": "Read"}
    assert [note.problem for note in head.problems] == ["not valid YAML: `description` is indented; read as a field"]
    prose = head_of(tmp_path, fenced("name: a: b", "description: Do this.", f"{indent}tools: are needed"))
    assert set(prose.metadata) == {"name", "description"}


def test_unknown_fields_survive_a_head_that_has_to_be_recovered(tmp_path: Path) -> None:
    head = head_of(
        tmp_path,
        fenced("x-first: 1", "name: a", "x-own: 2", "Shouting: 3", "license: MIT", "description: Use when: asked"),
    )
    assert head.metadata == {
        "x-first": "1", "name": "a", "x-own": "2", "Shouting": "3", "license": "MIT", "description": "Use when: asked",
    }  # fmt: skip


def test_a_field_that_breaks_yaml_does_not_spoil_the_one_before_it(tmp_path: Path) -> None:
    head = head_of(tmp_path, fenced("name: a", "x-note: see: this", "description: b"))
    assert head.metadata == {"name": "a", "x-note": "see: this", "description": "b"}


def test_words_in_prose_that_look_like_fields_are_prose(tmp_path: Path) -> None:
    head = head_of(tmp_path, fenced("name: a", "description: Do this.", "Context: always: so", "note: that: too"))
    assert head.metadata == {"name": "a", "description": "Do this.\nContext: always: so\nnote: that: too"}


def test_the_first_of_two_fields_counts_where_yaml_fails(tmp_path: Path) -> None:
    assert head_of(tmp_path, fenced("name: a", "description: b: c", "name: d")).metadata["name"] == "a"


def test_a_mark_of_yaml_inside_a_head_hides_no_field(tmp_path: Path) -> None:
    for mark in ("...", "--- x", "--- # x"):
        head = head_of(tmp_path, fenced("name: a", mark, "tools: Read", "description: b"))
        assert (head.metadata["tools"], head.metadata["description"]) == ("Read", "b")
        assert [note[:2] for note in notes(head)] == [("warning", "yaml-recovered")]


def test_a_head_without_any_field_is_an_error_and_an_empty_head(tmp_path: Path) -> None:
    head = head_of(tmp_path, fenced("just: [words", "without a field", body="What it does."))
    assert notes(head)[0][:2] == ("warning", "yaml-recovered")
    head = head_of(tmp_path, fenced("[words", "{", body="What it does."))
    assert (head.metadata, head.present, head.body_prefix) == ({}, True, "What it does.\n")
    assert notes(head)[0][:2] == ("error", "yaml-invalid")


def test_a_head_that_is_a_list_or_a_sentence_is_reported(tmp_path: Path) -> None:
    assert notes(head_of(tmp_path, fenced("- a", "- b"))) == [("warning", "head-not-fields", 2)]
    assert notes(head_of(tmp_path, fenced("A title"))) == [("warning", "head-not-fields", 2)]


# -- lines in what is said ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lines", "code", "line"),
    [
        (("name: a", "description: b: c"), "yaml-recovered", 3),
        (("name: a", "", "# note", "description: b: c"), "yaml-recovered", 5),
        (("name: a", "description: b", "name: c"), "yaml-duplicate-key", 4),
        (("name: a", "description: b", "tags: *x"), "yaml-alias", 4),
        (("name: a", "description: !x b"), "yaml-tag", 3),
        (("name: a", "license: b", "description: c\u0080"), "yaml-recovered", 4),
        (("name: ü", "license: é", "description: c\u0080"), "yaml-recovered", 4),
    ],
)
def test_a_problem_names_the_line_of_the_file(tmp_path: Path, lines: tuple[str, ...], code: str, line: int) -> None:
    text = fenced(*lines)
    assert [note[1:] for note in notes(head_of(tmp_path, text))] == [(code, line)]
    assert (code, line + 2) in [note[1:] for note in notes(head_of(tmp_path, "\n\n" + text))]
    assert [note[1:] for note in notes(head_of(tmp_path, text.replace("\n", "\r\n")))] == [(code, line)]


def test_line_of_finds_a_field_or_the_line_above_the_head() -> None:
    assert key_line("name: a\ndescription: b", "description") == 3
    assert key_line("name: a", "model") == 1


# -- encodings and newlines --------------------------------------------------------------------------


def test_a_byte_order_mark_is_accepted(tmp_path: Path) -> None:
    head = head_of(tmp_path, b"\xef\xbb\xbf" + fenced("name: a", "description: b").encode())
    assert (head.metadata, head.problems) == ({"name": "a", "description": "b"}, ())


@pytest.mark.parametrize("newline", ["\r\n", "\r"])
def test_any_newline_is_accepted(tmp_path: Path, newline: str) -> None:
    head = head_of(tmp_path, fenced("name: a", "description: b").replace("\n", newline))
    assert (head.metadata, head.problems) == ({"name": "a", "description": "b"}, ())


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32", "cp1252"])
def test_other_encodings_are_read_with_a_warning(tmp_path: Path, encoding: str) -> None:
    head = head_of(tmp_path, fenced("name: a", "description: Grüße – hier").encode(encoding))
    assert head.metadata == {"name": "a", "description": "Grüße – hier"}
    assert [note[1] for note in notes(head)] == ["encoding"]


def test_binary_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="NUL"):
        head_of(tmp_path, b"\x7fELF\0\0\0")
    with pytest.raises(SourceError, match="NUL"):
        head_of(tmp_path, fenced("name: a\0b", "description: c"))


def test_a_fifo_a_directory_and_a_loop_are_refused_and_nothing_blocks(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "loop").symlink_to("loop")
    for name in ("fifo", "", "loop"):
        with pytest.raises(SourceError):
            read_frontmatter(str(tmp_path / name), KNOWN_FIELDS, None)


# -- fences ------------------------------------------------------------------------------------------


def test_a_file_without_a_head_is_all_body(tmp_path: Path) -> None:
    for text in ("# Title\n\nText.\n", "", "--\nname: a\n--\n", "--- name: a\n---\n", "text\n---\nname: a\n---\n"):
        assert head_of(tmp_path, text) == Frontmatter({}, (), False, text)


def test_a_file_that_is_only_a_head_has_an_empty_body(tmp_path: Path) -> None:
    for end in ("---", "---\n"):
        head = head_of(tmp_path, f"---\nname: a\ndescription: b\n{end}")
        assert (head.metadata, head.problems) == ({"name": "a", "description": "b"}, ())
        assert read_body(str(tmp_path / "SKILL.md"), None)[0] == ""


def test_an_empty_head_is_a_head(tmp_path: Path) -> None:
    assert head_of(tmp_path, "---\n---\nText.\n") == Frontmatter({}, (), True, "Text.\n")
    assert head_of(tmp_path, "---\n\n# nothing\n---\nText.\n") == Frontmatter({}, (), True, "Text.\n")


def test_blanks_behind_the_fences_do_no_harm(tmp_path: Path) -> None:
    head = head_of(tmp_path, "--- \t\nname: a\ndescription: b\n---   \nText.\n")
    assert (head.metadata, head.problems) == ({"name": "a", "description": "b"}, ())


def test_longer_fences_are_fences(tmp_path: Path) -> None:
    for text in (
        "-----\nname: a\ndescription: b\n-----\nText\n\n---\n\nmore: text\n",
        "---\nname: a\ndescription: b\n-----\nText\n\n---\n\nmore: text\n",
    ):
        head = head_of(tmp_path, text)
        assert (head.metadata, head.problems) == ({"name": "a", "description": "b"}, ())
        assert read_body(str(tmp_path / "SKILL.md"), None)[0] == "Text\n\n---\n\nmore: text\n"


def test_dashes_inside_a_value_do_not_end_the_head(tmp_path: Path) -> None:
    head = head_of(tmp_path, fenced("name: a", "description: one --- two", "x: |", "  ---", "  x", "y: '---'"))
    assert head.metadata == {"name": "a", "description": "one --- two", "x": "---\nx\n", "y": "---"}


def test_a_line_that_only_begins_with_dashes_does_not_end_the_head(tmp_path: Path) -> None:
    parts = split_frontmatter("---\nname: a\n---x\ndescription: b\n---\nText")
    assert (parts.frontmatter, parts.body, parts.body_line) == ("name: a\n---x\ndescription: b", "Text", 6)


@pytest.mark.parametrize("before", ["\n", "\n\n  \n", "  ", "\ufeff\n"])
def test_a_head_below_the_first_line_is_read_with_a_note(tmp_path: Path, before: str) -> None:
    head = head_of(tmp_path, before + fenced("name: a", "description: b"))
    assert head.metadata == {"name": "a", "description": "b"}
    assert notes(head) == [("info", "head-not-first", 1)]


def test_a_head_that_is_never_closed_ends_where_the_fields_end(tmp_path: Path) -> None:
    head = head_of(tmp_path, "---\nname: a\ndescription: b\n  goes on\ntags:\n- c\n\n# Title\n\nText.\n")
    assert head.metadata == {"name": "a", "description": "b goes on", "tags": ["c"]}
    assert notes(head) == [("warning", "head-unclosed", 1)]
    assert "after line 6" in head.problems[0].fix
    body, line, _, _ = read_body(str(tmp_path / "SKILL.md"), None)
    assert (body, line) == ("\n# Title\n\nText.\n", 7)


@pytest.mark.parametrize(
    ("closing", "start"),
    [
        ("---## Do", "## Do"),
        ("---# Title", "# Title"),
        ("--- Read first.", "Read first."),
        ("---Read first.", "Read first."),
        ("----- Read", "Read"),
        ("--- - item", "- item"),
        (" ---", None),
        ("   ----  ", None),
        ("...", None),
        ("***", None),
        ("___", None),
        ("--", None),
        ("\u2014", None),
        ("\u2014-", None),
        ("---\u200b", "\u200b"),
    ],
)
def test_a_malformed_closing_fence_costs_no_line_of_the_body(tmp_path: Path, closing: str, start: str | None) -> None:
    after = "Step one.\n\n- a\n\n---\n\nStep two: go on.\n\n```yaml\nkey: x\n```\n"
    others = (after.replace("---\n", "\n"), after.replace("Step one.\n\n", ""), "One.\n---\n" + "x " * 5_000)
    for rest in (after, *others, "\n" + after, "\n## More\n\n" + after):
        for text in (rest, rest.replace("\n", "\r\n")):
            head = head_of(tmp_path, f"---\nname: a\ndescription: b\n{closing}\n{text}")
            assert head.metadata == {"name": "a", "description": "b"}
            assert notes(head) == [("warning", "head-fence", 4)]
            body, line, _, problems = read_body(str(tmp_path / "SKILL.md"), None)
            assert body == (rest if start is None else f"{start}\n{rest}")
            assert line == (5 if start is None else 4)
            assert [problem.code for problem in problems] == ["head-fence"]


@pytest.mark.parametrize("line", ["---x", "--- # more", "--- one", "...", "***", " ---"])
def test_a_field_after_what_resembles_a_closing_fence_still_counts(tmp_path: Path, line: str) -> None:
    head = head_of(tmp_path, fenced("name: a", "description: b", line, "allowed-tools: Read", "version: 1"))
    assert head.metadata["allowed-tools"] == "Read"
    assert read_body(str(tmp_path / "SKILL.md"), None)[0] == "Body.\n"


def test_the_body_of_an_unclosed_head_is_kept_up_to_its_first_rule(tmp_path: Path) -> None:
    body = "# Title\n\nText.\n\n---\n\n# More\n"
    head = head_of(tmp_path, "---\nname: a\ndescription: b\n\n" + body)
    assert head.metadata == {"name": "a", "description": "b"}
    assert notes(head) == [("warning", "head-unclosed", 1)]
    assert read_body(str(tmp_path / "SKILL.md"), None)[:2] == (body, 5)
    for inner in ("# Text\n\nb", "---## Do\n\nb"):
        quoted = head_of(tmp_path, f"---\nname: a\ndescription: 'x\n\n{inner}'\n---\nBody.\n")
        assert list(quoted.metadata) == ["name", "description"]
        assert read_body(str(tmp_path / "SKILL.md"), None)[0] == "Body.\n"
    commented = fenced("name: a", "", "# Tools", "", "tools: Read", "", "# Text", "description: 'b", "c'")
    assert head_of(tmp_path, commented).metadata == {"name": "a", "tools": "Read", "description": "b c"}


def test_a_rule_at_the_top_of_a_text_costs_nothing_of_it(tmp_path: Path) -> None:
    head = head_of(tmp_path, "---\n\nText: and more.\n")
    assert (head.metadata, head.body_prefix) == ({}, "\nText: and more.\n")


def test_the_body_and_its_first_line_are_found_from_every_kind_of_head(tmp_path: Path) -> None:
    path = tmp_path / "SKILL.md"
    for text, line in (
        ("---\nname: a\n---\nText", 4),
        ("\n\n---\nname: a\n---\nText", 6),
        ("\ufeff---\r\nname: a\r\n---\r\nText", 4),
        ("Text", 1),
    ):
        path.write_bytes(text.encode())
        assert read_body(str(path), None)[:2] == ("Text", line)


# -- sizes -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [3_900, 4_000, 4_060, *range(4_068, 4_100), 5_000, 70_000, 131_000, 250_000])
def test_a_head_of_any_size_up_to_the_limit_is_read_whole(tmp_path: Path, size: int) -> None:
    long = "x" * (size - 40)
    for text in (fenced("name: a", f"description: {long}", "tags: [a: b]"), fenced(f"description: {long}", "name: a")):
        for variant in (text, "\n" + text, text.replace("\n", "\r\n")):
            head = head_of(tmp_path, variant)
            assert head.metadata["name"] == "a"
            assert head.metadata["description"] == long
            assert not {note[1] for note in notes(head)} - {"head-not-first"}


@pytest.mark.parametrize("ending", ["----x", "---x: y", "--------------x"])
def test_a_line_that_the_first_block_cuts_is_not_taken_for_a_fence(tmp_path: Path, ending: str) -> None:
    for shift in range(12):
        long = "x" * (4_096 - len("---\ndescription: \n") - shift)
        head = head_of(tmp_path, f"---\ndescription: {long}\n{ending}\nname: a\n---\nText.\n")
        assert head.metadata["name"] == "a"


def test_a_character_on_the_edge_of_the_first_block_is_read(tmp_path: Path) -> None:
    for shift in range(4):
        text = "日" * 1_400 + "x" * shift
        head = head_of(tmp_path, fenced("name: a", f"description: {text}: y"))
        assert head.metadata["description"] == f"{text}: y"
        assert {note[1] for note in notes(head)} == {"yaml-recovered"}
        assert head_of(tmp_path, "日" * 1_400 + "x" * shift + "日" * 900).problems == ()


def test_a_head_beyond_the_limit_is_cut_and_reported(tmp_path: Path) -> None:
    head = head_of(tmp_path, fenced("name: a", "description: " + "x" * FRONTMATTER_LIMIT))
    assert head.metadata["name"] == "a"
    assert len(str(head.metadata["description"])) < FRONTMATTER_LIMIT
    assert notes(head) == [("warning", "head-unclosed", 1)]
    assert "256 KiB" in head.problems[0].problem


def test_a_value_of_ten_megabytes_costs_no_more_than_the_limit(tmp_path: Path) -> None:
    path = tmp_path / "SKILL.md"
    path.write_text(fenced("name: a", "description: " + "x" * 10_000_000))
    with memory_peak() as peak:
        head = read_frontmatter(str(path), KNOWN_FIELDS, None)[1]
    assert sum(len(str(value)) for value in head.metadata.values()) <= FRONTMATTER_LIMIT
    assert peak() < 20 * FRONTMATTER_LIMIT


def test_enough_of_the_body_is_read_to_describe_a_file_without_description(tmp_path: Path) -> None:
    for size in (10, 4_000, 4_070, 4_090, 60_000):
        head = head_of(tmp_path, fenced("name: a", "license: " + "x" * size, body="What it does.\n\n" + "y" * 9_000))
        assert first_paragraph(head.body_prefix) == "What it does."


@pytest.mark.parametrize("line", ["description:", "description: ''", "description: null", 'description: " "'])
def test_an_empty_description_leaves_the_opening_to_describe_it(tmp_path: Path, line: str) -> None:
    assert head_of(tmp_path, fenced("name: a", line, body="What it does.")).body_prefix == "What it does.\n"


# -- one answer, whichever way it is read --------------------------------------------------------------

value = st.sampled_from(
    ["plain", "two words", "'q: r'", '"q"', "a: b", "[a, b]", "[a", "*", "", ">-\n  folded\n  text", "|\n  kept\n   so",
     "\n  - a\n  - b", "\n  k: v", "it's", "ü 日本", "x # y", "{{x}}", "goes\n  on", "&a b", "- c"]
)  # fmt: skip
field = st.tuples(st.sampled_from(["name", "description", "tags", "license", "x-own", "Own"]), value)


@settings(max_examples=examples(150), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(field, min_size=1, max_size=6))
def test_newlines_marks_and_blank_lines_make_no_difference(tmp_path: Path, fields: list[tuple[str, str]]) -> None:
    text = fenced(*(f"{key}: {text}" for key, text in fields))
    head = head_of(tmp_path, text)
    for variant in (text.replace("\n", "\r\n"), text.replace("\n", "\r"), "\ufeff" + text, "\n" + text):
        other = head_of(tmp_path, variant)
        assert other.metadata == head.metadata
        assert {note[1] for note in notes(other)} - {"head-not-first"} == {note[1] for note in notes(head)}


@settings(max_examples=examples(200), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=300) | st.text(max_size=300).map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_no_bytes_raise_anything_but_a_source_error(tmp_path: Path, data: bytes) -> None:
    for content in (data, b"---\n" + data + b"\n---\nText.\n", b"---\nname: " + data):
        try:
            head = head_of(tmp_path, content)
            read_body(str(tmp_path / "SKILL.md"), None)
        except SourceError:
            continue
        assert all(isinstance(key, str) for key in head.metadata)


# -- the first paragraph -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("", ""),
        ("\n\n", ""),
        ("What it does.\n", "What it does."),
        ("# Title\n\nWhat it\ndoes.\n\nMore.\n", "What it does."),
        ("# Title\nWhat it does.\n## More\n", "What it does."),
        ("# Only a title\n\n## And another\n", "Only a title"),
        ("```sh\necho no\n```\n\nWhat it does.", "What it does."),
        ("~~~\necho no\n~~~\nWhat it does.", "What it does."),
        ("```\nnever closed\n", ""),
        ("<!-- a note -->\nWhat it does.", "What it does."),
        ("<!--\na longer note\n-->\n\nWhat it does.", "What it does."),
        ("![logo](logo.png)\n[![badge](b.svg)](b)\n\nWhat it does.", "What it does."),
        ("| a | b |\n|---|---|\n\nWhat it does.", "What it does."),
        ("---\n\nWhat it does.", "What it does."),
        ("Title\n=====\n\nText.", "Title"),
        ("- one\n- two\n", "- one - two"),
        ("   indented   \n", "indented"),
    ],
)
def test_the_first_paragraph_is_the_first_prose(body: str, found: str) -> None:
    assert first_paragraph(body) == found


def test_a_long_paragraph_is_cut_with_a_mark() -> None:
    assert first_paragraph("word " * 1_000, limit=20) == "word word word word…"
    assert len(first_paragraph("x" * 5_000)) == 1024


def test_an_unknown_field_behind_a_broken_description_is_not_part_of_it(tmp_path: Path) -> None:
    text = "---\nname: x\ndescription: Use for two things: this and that\ndomain: testing\npriority: high\ntools: Read\n---\n"
    metadata = head_of(tmp_path, text).metadata
    assert metadata["description"] == "Use for two things: this and that"
    assert metadata["tools"] == "Read"


def test_what_people_say_in_an_example_stays_in_the_description(tmp_path: Path) -> None:
    text = "---\nname: x\ndescription: Use it: often\nuser: please do\nassistant: I will\nmodel: opus\n---\n"
    metadata = head_of(tmp_path, text).metadata
    assert metadata["description"] == "Use it: often\nuser: please do\nassistant: I will"
    assert metadata["model"] == "opus"


def test_a_comment_is_not_part_of_a_recovered_value(tmp_path: Path) -> None:
    text = "---\nname: x\nargument-hint: [one] [two]\n# a remark\nallowed-tools: Read\n---\n"
    assert head_of(tmp_path, text).metadata["argument-hint"] == "[one] [two]"


def test_a_hint_in_brackets_is_only_a_remark_and_other_recoveries_name_the_field(tmp_path: Path) -> None:
    hint = head_of(tmp_path, "---\nname: x\nargument-hint: [one] [two]\n---\n")
    assert [problem.severity for problem in hint.problems] == ["info"]
    colon = head_of(tmp_path, "---\nname: x\ndescription: Use: it\n---\n")
    assert "the value of `description` contains `: `" in colon.problems[0].problem
    star = head_of(tmp_path, "---\nname: x\ntools: *\ndescription: d\n---\n")
    assert "`tools` starts with `*`" in star.problems[0].problem


def test_a_text_from_a_json_encoder_has_its_emoji_back(tmp_path: Path) -> None:
    head = head_of(tmp_path, '---\nname: x\ndescription: "\\u00dcber \\ud83d\\ude80"\n---\n')
    assert head.metadata["description"] == "Über 🚀"


@pytest.mark.parametrize(
    "prose",
    [
        "Check every change before you commit.\nUse tabs.",
        "**Always** run the tests.",
        "Note: this text has a colon.\nSecond line.",
        "1. Read the file.\n2. Fix it.",
        "> Quoted advice.",
        "Advice:\n\nkey: a word with a colon in the body\nand more of it.",
        "# Title\n\nText.\n\nverdict: one of\ngood or bad, as a sentence.",
        "- First do this\n- Then that",
        "Zuerst alle Dateien lesen.",
    ],
)
def test_prose_after_unclosed_frontmatter_is_body_although_a_rule_follows_later(prose: str) -> None:
    text = f"---\nname: a\ndescription: Does a.\n\n{prose}\n\n---\n\nMore text.\n"
    parts = split_frontmatter(text)
    assert parts.frontmatter == "name: a\ndescription: Does a.\n"
    assert parts.body == f"{prose}\n\n---\n\nMore text.\n"
    assert parts.body_line == 5
    assert [(problem.code, problem.line) for problem in parts.problems] == [("head-unclosed", 1)]


def test_a_heading_right_after_a_complete_field_starts_the_body() -> None:
    parts = split_frontmatter("---\nname: a\ndescription: Does a.\n# Title\nText.\n\n---\n\nMore.\n")
    assert (parts.frontmatter, parts.body) == ("name: a\ndescription: Does a.", "# Title\nText.\n\n---\n\nMore.\n")
    kept = split_frontmatter("---\nname: a\n# a comment\ndescription: Does a.\n---\nBody.\n")
    assert (kept.body, kept.problems) == ("Body.\n", [])


def test_a_missing_opening_is_added_before_a_description_that_a_fence_closes() -> None:
    parts = split_frontmatter("description: Does a.\nargument-hint: x\n---\nBody.\n")
    assert (parts.frontmatter, parts.body) == ("description: Does a.\nargument-hint: x", "Body.\n")
    assert [problem.code for problem in parts.problems] == ["head-unopened"]
    assert split_frontmatter("description: Does a.\n\nText.\n").frontmatter is None


def test_fields_after_a_blank_line_or_prose_stay_fields() -> None:
    for text in (
        "---\nname: a\n\ndescription: Does a.\n---\nBody.\n",
        "---\nname: a\n\nthis line is broken\ndescription: Does a.\n---\nBody.\n",
        "---\nname: a\ntools:\n\n- Read\n- Write\n---\nBody.\n",
        "---\nname: a\ndescription: Does a.\n\n# Context\nSome text.\n\ntools: Read\n---\nBody.\n",
        "---\nname: a\ndescription: |\n  One.\n\n  Two words.\n---\nBody.\n",
        '---\nname: a\ndescription: "One.\n\nTwo words."\n---\nBody.\n',
    ):
        assert split_frontmatter(text).body == "Body.\n"


_FIELDS = "name: x\ndescription: Does a thing\ntools: Read\n"
_BODY = "Start of the body.\n\nMore.\n\n---\n\n## Section\n\nEnd\n"


@pytest.mark.parametrize(
    "text",
    [
        f"```chatagent\n---\n{_FIELDS}---\n\n{_BODY}```\n",
        f"````skill\n---\n{_FIELDS}---\n\n{_BODY}\n```sh\nls\n```\n````\n",
        f"````chatagent\n```chatagent\n---\n{_FIELDS}---\n{_BODY}```\n````\n",
        f"```yaml\n---\n{_FIELDS}---\n```\n\n{_BODY}",
        f"```yaml\n{_FIELDS}```\n\n{_BODY}",
        f"<!-- License -->\n\n---\n{_FIELDS}---\n{_BODY}",
        f"<!--\nLicense\n-->\n---\n{_FIELDS}---\n{_BODY}",
        f"// skills/x/SKILL.md\n---\n{_FIELDS}---\n{_BODY}",
        f"--- # frontmatter\n{_FIELDS}---\n{_BODY}",
        f"---yaml\n{_FIELDS}---\n{_BODY}",
        f"---\n---\n{_FIELDS}---\n{_BODY}",
        f"---\n```yaml\n{_FIELDS}```\n---\n{_BODY}",
        f"\u2014\n{_FIELDS}\u2014\n{_BODY}",
        f"{_FIELDS}---\n{_BODY}",
        f"{_FIELDS}\n{_BODY}",
        f"tools: Read\nname: x\ndescription: Does a thing\n---\n{_BODY}",
        f"%YAML 1.2\n---\n{_FIELDS}---\n{_BODY}",
        f"\ufeff\ufeff---\n{_FIELDS}---\n{_BODY}",
        f"\u200b---\n{_FIELDS}---\n{_BODY}",
        f'+++\nname = "x"\ndescription = "Does a thing"\ntools = "Read"\n+++\n{_BODY}',
        f"---\nname = x\ndescription = Does a thing\ntools = Read\n---\n{_BODY}",
        f"  ---\n  {_FIELDS[:-1].replace(chr(10), chr(10) + '  ')}\n  ---\n{_BODY}",
    ],
)
def test_frontmatter_in_a_wrapper_or_with_a_malformed_opening_is_read_and_reported(text: str) -> None:
    head = parse_frontmatter(text, [], KNOWN_FIELDS)
    assert head.metadata == {"name": "x", "description": "Does a thing", "tools": "Read"}
    assert [problem.line for problem in head.problems if problem.line > 0]
    assert all(problem.problem and problem.fix for problem in head.problems)
    body = split_frontmatter(text).body.strip()
    assert body.removesuffix("```sh\nls\n```").strip() == _BODY.strip()
    lines = text.split("\n")
    at = split_frontmatter(text).body_line
    assert "Start of the body." in lines[at - 1 : at + 2]


def test_fields_in_a_code_fence_without_body_are_read_whole() -> None:
    text = f"```chatagent\n{_FIELDS}prompt: |\n  # Role\n\n  Audit: everything.\n```\n"
    assert parse_frontmatter(text, [], KNOWN_FIELDS).metadata["prompt"] == "# Role\n\nAudit: everything.\n"


@pytest.mark.parametrize(
    "text", ["# Notes\n\n---\nstatus: draft\n---\n", "name: x\n\nText\n", "```sh\nls\n```\n\n---\n"]
)
def test_other_texts_have_no_frontmatter(text: str) -> None:
    assert split_frontmatter(text).frontmatter is None


@pytest.mark.parametrize(
    "start",
    ["# Title\n", "Plain prose.\n", "\n- First\n- Second\n", "~~~\ncode\n~~~\n", "**Bold** text.\n"],
)
def test_what_follows_the_last_field_of_unclosed_frontmatter_is_all_body(start: str) -> None:
    text = f"---\n{_FIELDS}{start}\n{_BODY}"
    parts = split_frontmatter(text)
    assert parts.body == f"{start}\n{_BODY}".lstrip("\n")
    assert [problem.code for problem in parts.problems] == ["head-unclosed"]


@pytest.mark.parametrize("closing", ["===", "+++", "- - -", "* * *"])
def test_other_rules_close_frontmatter(closing: str) -> None:
    parts = split_frontmatter(f"---\n{_FIELDS}{closing}\n{_BODY}")
    assert (parts.body, [problem.code for problem in parts.problems]) == (_BODY, ["head-fence"])


_CONTROLLER = "# Orchestrator\n\nYou are the **loop controller**: setup and planning.\n\n---\n\n## Policy\n"


@pytest.mark.parametrize("closing", ["", "  ---\n"])
def test_prose_with_a_colon_after_a_heading_is_body_not_a_field(closing: str) -> None:
    parts = split_frontmatter(f"---\n{_FIELDS}{closing}\n{_CONTROLLER}")
    assert (parts.frontmatter or "").strip() == _FIELDS.strip()
    assert parts.body.strip() == _CONTROLLER.strip()
    assert [problem.severity for problem in parts.problems] == ["warning"]


def test_blank_lines_in_a_block_do_not_end_unclosed_frontmatter() -> None:
    fields = "name: x\ndescription: |\n  Does a thing.\n\n  <example>\n  Hi\n  </example>\ntools: Read\n"
    head = parse_frontmatter(f"---\n{fields}\nYou are x.\n\n    code\n", [], KNOWN_FIELDS)
    assert head.metadata["tools"] == "Read"
    assert head.metadata["description"] == "Does a thing.\n\n<example>\nHi\n</example>\n"
    assert head.body_prefix == "\nYou are x.\n\n    code\n"


def test_comments_between_fields_do_not_end_unclosed_frontmatter() -> None:
    head = parse_frontmatter("---\nname: x\n# Only reads\ntools: Read\n\nYou are x.\n", [], KNOWN_FIELDS)
    assert (head.metadata, head.body_prefix) == ({"name": "x", "tools": "Read"}, "\nYou are x.\n")


def test_text_behind_the_closing_fence_is_body_although_comments_precede_it() -> None:
    parts = split_frontmatter(f"---\n{_FIELDS}# hooks:\n#   Stop:\n---<role>\nYou are x.\n")
    assert parts.body == "<role>\nYou are x.\n"


@pytest.mark.parametrize("closing", ["...", "***", "\u2014\u2014\u2014"])
def test_what_resembles_fields_after_a_heading_of_the_body_is_body(closing: str) -> None:
    body = "# Title\n\n## Part\n\nText.\n\nnote: kept\n\n---\n\nEnd\n"
    parts = split_frontmatter(f"---\n{_FIELDS}{closing}\n\n{body}")
    assert (parts.frontmatter, parts.body.lstrip()) == (_FIELDS.rstrip(), body)


def test_toml_frontmatter_of_a_command_needs_no_name() -> None:
    head = parse_frontmatter('+++\ndescription = "Goes"\n+++\nGo.\n', [], KNOWN_FIELDS)
    assert (head.metadata, head.body_prefix) == ({"description": "Goes"}, "Go.\n")
    assert parse_frontmatter("+++\nText\n+++\n", [], KNOWN_FIELDS).present is False


def test_an_unknown_field_without_a_space_is_no_part_of_the_field_above_it(tmp_path: Path) -> None:
    head = head_of(tmp_path, fenced("name:x", "description:Does a thing", "origin:community"))
    assert head.metadata == {"name": "x", "description": "Does a thing", "origin": "community"}


def test_an_unknown_mapping_behind_a_broken_description_is_not_part_of_it(tmp_path: Path) -> None:
    head = head_of(tmp_path, fenced("description: Use: always", "compat:", "  from: a", "  to: b", "domain: c"))
    assert head.metadata == {"description": "Use: always", "compat": {"from": "a", "to": "b"}, "domain": "c"}


@pytest.mark.parametrize(
    "field",
    ["model: sonnet", "tools: Read, Bash(git:*)", "disable-model-invocation: true", "tools:\n  - Read\n  - Grep"],
)
@pytest.mark.parametrize("after", ["\n---\n\nMore.\n", "---\nMore.\n"])
def test_a_sentence_right_after_a_name_or_a_list_is_body(field: str, after: str) -> None:
    parts = split_frontmatter(f"---\nname: a\ndescription: Does a.\n{field}\nYou are a helper.\n{after}")
    assert parts.frontmatter == f"name: a\ndescription: Does a.\n{field}"
    assert parts.body == f"You are a helper.\n{after}"
    assert [problem.code for problem in parts.problems] == ["head-unclosed"]


@pytest.mark.parametrize(
    "fields",
    [
        "name: a\ndescription: Does\na thing or two.",
        "name: a\ndescription: Does a.\ntools: Read,\nGrep, Glob, Bash",
        "name: a\ndescription: Does a.\ntools: Read\nGrep\nGlob",
        "name: a\nmodel: sonnet\nGarbage in the middle.\ndescription: Does a.",
    ],
)
def test_lines_that_may_continue_a_field_are_no_body(fields: str) -> None:
    parts = split_frontmatter(f"---\n{fields}\n---\nBody.\n")
    assert (parts.frontmatter, parts.body, parts.problems) == (fields, "Body.\n", [])


@pytest.mark.parametrize("opening", ["---", "--- ", "----  "])
def test_a_field_on_the_line_of_the_opening_fence_is_read_and_reported(opening: str) -> None:
    parts = split_frontmatter(f"{opening}name: a\ndescription: Does a.\n---\nBody.\n")
    assert (parts.frontmatter, parts.frontmatter_line) == ("name: a\ndescription: Does a.", 1)
    assert (parts.body, parts.body_line) == ("Body.\n", 4)
    assert [(problem.code, problem.line) for problem in parts.problems] == [("head-unopened", 1)]
    assert split_frontmatter(f"{opening}name: a\n\nText.\n").frontmatter is None
