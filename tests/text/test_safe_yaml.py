"""YAML that somebody wrote to do harm, or by mistake: a value or an error, soon, and small."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kitbag.library.dialects.field_names import KNOWN_FIELDS
from kitbag.text.frontmatter_fields import parse_metadata
from kitbag.text.safe_yaml import MAX_DEPTH, MAX_NODES, MAX_PROBLEMS, YamlError, YamlProblem, parse_yaml
from support.cost import processor_limit, steps
from support.matrix import long, sample
from support.waiting import TEST_TIMEOUT
from text.hostile_heads import ALIAS_BOMB, HEADS


def error_of(text: str) -> YamlProblem:
    with pytest.raises(YamlError) as caught:
        parse_yaml(text)
    return caught.value.problem


def odd_things(text: str) -> list[tuple[int, str]]:
    return [(problem.line, problem.code) for problem in parse_yaml(text)[1]]


def test_all_scalars_are_the_words_that_were_written() -> None:
    value, problems = parse_yaml("a: 1.10\nb: on\nc: 2024-01-01\nd: ~\ne: null\nf: 0x1F\ng:\nh: 12:30:00\n")
    assert value == {
        "a": "1.10", "b": "on", "c": "2024-01-01", "d": "~", "e": "null", "f": "0x1F", "g": "", "h": "12:30:00",
    }  # fmt: skip
    assert problems == []


def test_lists_and_maps_nest() -> None:
    assert parse_yaml("a: [b, {c: d}]\ne:\n  - f\n  - g: [h]\n")[0] == {
        "a": ["b", {"c": "d"}],
        "e": ["f", {"g": ["h"]}],
    }


def test_nothing_is_an_empty_text() -> None:
    assert parse_yaml("") == ("", [])
    assert parse_yaml("# only a comment\n") == ("", [])


def test_aliases_are_kept_as_words_and_reported_where_they_stand() -> None:
    value, problems = parse_yaml("a: &x [1]\nb: *x\n")
    assert value == {"a": ["1"], "b": "*x"}
    assert [(problem.line, problem.code) for problem in problems] == [(1, "yaml-alias")]


def test_an_alias_bomb_stays_as_small_as_its_file() -> None:
    value, problems = parse_yaml(ALIAS_BOMB)
    assert isinstance(value, dict)
    assert value["i"] == ["*h"] * 9
    assert len(problems) == MAX_PROBLEMS


@pytest.mark.parametrize(
    "text",
    [
        "[" * 200_000,
        "{a: " * 5_000,
        "a: " + "[" * 5_000 + "]" * 5_000,
        "- " * 5_000,
        "\n".join(" " * n + "a:" for n in range(500)),
    ],
    ids=["200 KB of brackets", "5,000 maps", "5,000 closed lists", "5,000 block lists", "500 block maps"],
)
def test_deep_nesting_is_an_error_before_it_costs_anything(text: str) -> None:
    problem = error_of(text)
    assert problem.code == "yaml-limit"
    assert str(MAX_DEPTH) in problem.problem
    assert steps(lambda: error_of(text)) < 10_000


def test_nesting_that_people_use_is_fine() -> None:
    value, _ = parse_yaml("[" * (MAX_DEPTH - 1) + "]" * (MAX_DEPTH - 1))
    assert isinstance(value, list)


def test_too_many_values_are_an_error_that_names_the_line() -> None:
    problem = error_of("a: b\nc:\n" + "- x\n" * (MAX_NODES + 1))
    assert problem.code == "yaml-limit"
    assert problem.line == MAX_NODES - 3


def test_a_field_given_twice_is_reported_at_the_second_one() -> None:
    value, problems = parse_yaml("name: a\ndescription: b\nname: c\n")
    assert value == {"name": "c", "description": "b"}
    assert problems[0][:2] == (2, "yaml-duplicate-key")
    assert "`name`" in problems[0].problem


def test_the_line_is_that_of_the_key_also_when_the_value_is_long() -> None:
    assert odd_things("a: 1\na:\n  - x\n  - y\nb: 2\n") == [(1, "yaml-duplicate-key")]
    assert odd_things("m:\n  a: 1\n  a: |\n    x\n    y\nb: 2\n") == [(2, "yaml-duplicate-key")]


def test_tags_make_nothing_but_a_note() -> None:
    value, problems = parse_yaml("a: !!python/object/apply:os.system ['exit 1']\nb: !include other.yaml\nc: !!int 3\n")
    assert value == {"a": ["exit 1"], "b": "other.yaml", "c": "3"}
    assert [(problem.line, problem.code) for problem in problems] == [(0, "yaml-tag"), (1, "yaml-tag"), (2, "yaml-tag")]
    assert "python/object" in problems[0].problem


def test_merge_keys_are_keys_like_any_other() -> None:
    assert parse_yaml("<<: {a: b}\nc: d\n")[0] == {"<<": {"a": "b"}, "c": "d"}


def test_only_the_first_document_counts_and_that_is_said() -> None:
    value, problems = parse_yaml("a: b\n---\nc: [\n")
    assert value == {"a": "b"}
    assert [(problem.line, problem.code) for problem in problems] == [(1, "yaml-documents")]


def test_a_map_or_list_as_a_key_is_an_error() -> None:
    assert error_of("a: b\nc: {{x}}\n")[:2] == (1, "yaml-invalid")
    assert error_of("? [a, b]\n: c\n").code == "yaml-invalid"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a: b\nc: d: e\n", 1),
        ("a: b\nc: 'd\n", 2),
        ("a: [b\nc: d\n", 1),
        ("a: b\nc: *\n", 1),
        ("a: b\n\tc: d\n", 1),
        ("a: b\nc: ü\nd: e\x80\n", 2),
        ("a: b\nc: d\x00\n", 1),
    ],
)
def test_what_is_no_yaml_is_an_error_with_its_line(text: str, line: int) -> None:
    problem = error_of(text)
    assert problem.code == "yaml-invalid"
    assert problem.line == line
    assert "\n" not in problem.problem
    assert problem.fix


def test_a_lone_surrogate_is_an_error_not_a_crash() -> None:
    assert error_of("a: \udc80\n").code == "yaml-invalid"


MEMORY = """
import json, resource
from kitbag.library.dialects.field_names import KNOWN_FIELDS
from kitbag.text.frontmatter_fields import parse_metadata
from text.hostile_heads import HEADS
grown = {}
for label, text in HEADS.items():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    parse_metadata(text, 2, KNOWN_FIELDS, [])
    grown[label] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
print(json.dumps(grown))
"""


@long
def test_no_hostile_head_takes_100_megabytes() -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, "-c", MEMORY],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=TEST_TIMEOUT,
    )
    for label, kilobytes in json.loads(done.stdout).items():
        assert kilobytes < 100 * 1024, (label, kilobytes)


@pytest.mark.parametrize("text", sample(HEADS.values(), 5), ids=HEADS.keys())
def test_a_hostile_head_takes_a_few_steps_a_character(text: str) -> None:
    def read() -> None:
        assert parse_metadata(text, 2, KNOWN_FIELDS, [])["name"] == "x"

    with processor_limit():
        assert steps(read) < 100 * len(text)
