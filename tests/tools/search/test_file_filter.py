"""Which files `glob` and `type` mean."""

import pytest

from kitbag.text.glob_patterns import GlobError
from kitbag.tools.search.file_filter import FILE_TYPES, FileFilter


@pytest.mark.parametrize(
    ("glob", "yes", "no"),
    [
        ("*.py", ["a.py", "b/c/a.py", ".a.py"], ["a.pyc"]),
        ("/top.py", ["top.py"], ["a/top.py"]),
        ("./src/*", ["src/a"], ["src/a/b"]),
        ("src/", ["src/a", "src/b/c"], ["x/src"]),
        ("*.py !test_*", ["a.py"], ["test_a.py", "b/test_a.py"]),
        ("!vendor/**", ["a.py"], ["vendor/a.py"]),
        ("", ["anything"], []),
    ],
)
def test_a_glob_chooses_files(glob: str, yes: list[str], no: list[str]) -> None:
    chosen = FileFilter(glob)
    assert [path for path in (*yes, *no) if chosen.matches(path)] == yes


def test_a_glob_may_start_from_the_working_directory_too() -> None:
    chosen = FileFilter("src/lib/*.py", prefix="src/")
    assert chosen.matches("lib/a.py")
    assert not chosen.matches("other/a.py")


@pytest.mark.parametrize(
    ("glob", "names"),
    [
        ("*.py", ("*.py",)),
        ("src/**/*.{ts,tsx}", ("*.ts", "*.tsx")),
        ("src/**", ()),
        ("*", ()),
        ("[ab].py", ()),
        ("*.py src/**", ()),
        ("!*.py", ()),
        ("a:include:b", ()),
    ],
)
def test_plain_names_are_given_only_when_every_wanted_file_has_one(glob: str, names: tuple[str, ...]) -> None:
    assert FileFilter(glob).name_patterns() == names


def test_every_type_can_be_used_and_another_is_refused_with_those_there_are() -> None:
    for name in FILE_TYPES:
        assert FileFilter("", name).name_patterns() or name == "make"
    with pytest.raises(GlobError, match="known types: c, config"):
        FileFilter("", "klingon")
