import pytest

from kitbag.shell.analysis import analyze


def directories_of(text: str) -> tuple[str, ...]:
    """Where the command `x` of the text may run."""
    (part,) = (part for part in analyze(text).parts if part.words == ("x",))
    return part.directories


@pytest.mark.parametrize(
    ("text", "directories"),
    [
        ("x", ("",)),
        ("cd a && x", ("a",)),
        ("cd a && cd b/c && x", ("a/b/c",)),
        ("cd ./a//b/ && x", ("a/b",)),
        ("cd -- a && x", ("a",)),
        ("cd 'a b' && x", ("a b",)),
        ("cd /tmp/w && x", ("/tmp/w",)),
        ("cd .git/hooks && x", (".git/hooks",)),
        ("cd a && cd .. && x", ("",)),
        ("cd a/b && cd .. && x", ("a",)),
        ("cd a && y | x", ("a",)),
        ("cd a && (y; x)", ("a",)),
        ("cd a && y $(x)", ("a",)),
        ("(cd a && y); x", ("",)),
        ("y $(cd a) && x", ("",)),
        ("cd a; cd b; x", ("", "a", "b", "a/b")),
        ("cd a 2>/dev/null && x", ("a",)),
        ("d=a; cd $d && x", ("a",)),
        ('for d in a b; do (cd "$d" && x); done', ("a", "b")),
        ("cd a; cd ..; x", ()),
        ("cd a; pushd b; x", ()),
        ("cd a && { x; }", ()),
        ("cd a; x", ("", "a")),
        ("cd a\nx", ("", "a")),
        ("cd a || x", ("", "a")),
        ("cd a & x", ("", "a")),
        ("cd a | x", ()),
        ("cd a && y; x", ("", "a")),
        ("! cd a && x", ()),
        ("cd $a && x", ()),
        ("cd && x", ()),
        ("cd - && x", ()),
        ("cd ~ && x", ()),
        ("cd .. && x", ()),
        ("cd a/../b && x", ()),
        ("cd /a/../b && x", ()),
        ("cd a && cd ../b && x", ()),
        ("cd -P a && x", ()),
        ("cd a b && x", ()),
        ("CDPATH=/ cd a && x", ()),
        ("pushd a && x", ()),
        ("popd; x", ()),
        ("time cd a && x", ()),
        ("command cd a && x", ()),
        ("eval y && x", ()),
        ("source y && x", ()),
        ("$y && x", ()),
        ("if cd a; then x; fi", ()),
        ("while x; do cd a; done", ()),
        ("for i in a b; do x; cd $i; done", ()),
        ("f() { x; }; cd a && f", ()),
        ("f() { cd a; }; f && x", ()),
        ("cat <<E && cd a\n$(x)\nE", ()),
        ("cd a && y `x`", ()),
    ],
)
def test_directories_are_known_as_far_as_cd_determines_them(text: str, directories: tuple[str, ...]) -> None:
    assert directories_of(text) == directories


def test_text_inside_runs_where_its_command_runs() -> None:
    assert directories_of("cd a && bash -c 'x'") == ("a",)
    assert directories_of("cd a && bash -c 'cd b && x'") == ("a/b",)
