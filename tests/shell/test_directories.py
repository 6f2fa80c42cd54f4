import pytest

from kitbag.shell.analysis import analyze


def directory_of(text: str) -> str | None:
    """Where the command `x` of the text runs."""
    (part,) = (part for part in analyze(text).parts if part.words == ("x",))
    return part.directory


@pytest.mark.parametrize(
    ("text", "directory"),
    [
        ("x", ""),
        ("cd a && x", "a"),
        ("cd a && cd b/c && x", "a/b/c"),
        ("cd ./a//b/ && x", "a/b"),
        ("cd -- a && x", "a"),
        ("cd 'a b' && x", "a b"),
        ("cd /tmp/w && x", "/tmp/w"),
        ("cd .git/hooks && x", ".git/hooks"),
        ("cd a && cd .. && x", ""),
        ("cd a/b && cd .. && x", "a"),
        ("cd a && y | x", "a"),
        ("cd a && (y; x)", "a"),
        ("cd a && y $(x)", "a"),
        ("(cd a && y); x", ""),
        ("y $(cd a) && x", ""),
        ("cd a && { x; }", None),
        ("cd a; x", None),
        ("cd a\nx", None),
        ("cd a || x", None),
        ("cd a & x", None),
        ("cd a | x", None),
        ("cd a && y; x", None),
        ("! cd a && x", None),
        ("cd $a && x", None),
        ("cd && x", None),
        ("cd - && x", None),
        ("cd ~ && x", None),
        ("cd .. && x", None),
        ("cd a/../b && x", None),
        ("cd /a/../b && x", None),
        ("cd a && cd ../b && x", None),
        ("cd -P a && x", None),
        ("cd a b && x", None),
        ("CDPATH=/ cd a && x", None),
        ("pushd a && x", None),
        ("popd; x", None),
        ("time cd a && x", None),
        ("command cd a && x", None),
        ("eval y && x", None),
        ("source y && x", None),
        ("$y && x", None),
        ("if cd a; then x; fi", None),
        ("while x; do cd a; done", None),
        ("for i in a b; do x; cd $i; done", None),
        ("f() { x; }; cd a && f", None),
        ("f() { cd a; }; f && x", None),
        ("cat <<E && cd a\n$(x)\nE", None),
        ("cd a && y `x`", None),
    ],
)
def test_a_directory_is_known_only_where_cd_makes_it_certain(text: str, directory: str | None) -> None:
    assert directory_of(text) == directory


def test_text_inside_runs_where_its_command_runs() -> None:
    assert directory_of("cd a && bash -c 'x'") == "a"
    assert directory_of("cd a && bash -c 'cd b && x'") == "a/b"
