"""Patterns for paths: what they match, and that none takes long."""

import re

import pytest

from kitbag.text.glob_patterns import (
    GlobError,
    expand_braces,
    glob_regex,
    matches_hidden,
    max_depth,
    split_fixed_prefix,
)
from support.cost import processor_limit


def matches(pattern: str, path: str, *, hidden: bool = False) -> bool:
    return re.fullmatch(glob_regex(pattern, hidden=hidden), path) is not None


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("*.py", ["a.py"], ["b/a.py", "a.pyc", ".a.py"]),
        ("**/*.py", ["a.py", "b/a.py", "b/c/a.py"], ["a.pyc", ".b/a.py", "b/.a.py"]),
        ("src/**", ["src/a", "src/b/c"], ["src", "srcx/a", "src/.a"]),
        ("**", ["a", "a/b"], [".a", "a/.b"]),
        ("a/**/b/**/c", ["a/b/c", "a/x/b/y/c", "a/b/b/c"], ["a/c", "a/b/x"]),
        ("*.{ts,tsx}", ["a.ts", "a.tsx"], ["a.t"]),
        ("{a,b/{c,d}}/x", ["a/x", "b/c/x", "b/d/x"], ["b/x"]),
        ("[a-c]?.txt", ["ax.txt", "c1.txt"], ["d1.txt", "a.txt"]),
        ("[!a]b", ["cb"], ["ab", "/b"]),
        ("[]a]", ["]", "a"], ["b"]),
        ("[--0]", ["-", "0"], ["a"]),
        ("a[b", ["a[b"], ["ab"]),
        ("\\*x", ["*x"], ["ax"]),
        (".*", [".env"], ["env"]),
        ("**/.github/*", [".github/x", "a/.github/x"], ["a/github/x"]),
        ("a*b*c*d", ["abcd", "a1b2c3d", "abbccdd"], ["abdc", "abcdx"]),
        ("*a*", ["a", "xax"], ["x"]),
        ("./a", ["a"], ["b"]),
        ("a\nb", ["a\nb"], ["ab"]),
    ],
)
def test_a_pattern_matches_what_a_shell_would(pattern: str, yes: list[str], no: list[str]) -> None:
    for path in yes:
        assert matches(pattern, path), path
    for path in no:
        assert not matches(pattern, path), path


def test_hidden_names_are_matched_by_any_part_when_they_are_wanted() -> None:
    assert matches("**/*.py", ".a/.b.py", hidden=True)


@pytest.mark.parametrize(
    ("pattern", "fixed", "rest"),
    [
        ("src/lib/*.py", "src/lib", "*.py"),
        ("/abs/**/x", "/abs", "**/x"),
        ("/*.py", "/", "*.py"),
        ("a/b.py", "a", "b.py"),
        ("b.py", "", "b.py"),
        ("~/x/*", "~/x", "*"),
        ("{a,b}/c", "", "{a,b}/c"),
    ],
)
def test_the_folders_before_the_first_wildcard_are_where_a_search_begins(pattern: str, fixed: str, rest: str) -> None:
    assert split_fixed_prefix(pattern) == (fixed, rest)


def test_a_pattern_tells_how_deep_and_whether_hidden_names_are_looked_for() -> None:
    assert [max_depth(one) for one in ("*.py", "*/x", "{a,b/c/d}", "**/x")] == [1, 2, 3, 0]
    assert [matches_hidden(one) for one in ("*.py", "**/.env", "{a,.b}/c", "a.b")] == [False, True, True, False]


def test_braces_that_stand_for_too_much_are_refused() -> None:
    assert len(expand_braces("{a,b}{c,d}")) == 4
    for bomb in ("{a,b}" * 20, "{" * 500 + "a,b" + "}" * 500 + "{c,d}" * 30, "x" * 3_000):
        with pytest.raises(GlobError):
            expand_braces(bomb)


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("*a" * 60 + "b", "a" * 250),
        ("**/" * 20 + "*a*a*a*a*ab", "a/" * 100 + "a" * 200),
        ("**/a/" * 15 + "b", "a/" * 200),
        ("?*" * 60 + "b", "a" * 250),
        ("{" * 1_900, "x"),
        ("[" * 1_900, "x"),
    ],
)
def test_no_pattern_costs_much(pattern: str, path: str) -> None:
    with processor_limit():
        assert not matches(pattern, path)
