import subprocess
from pathlib import Path

import pytest

from kitbag.shell.words import parse_word


def as_bash_reads(raw: str, directory: Path) -> list[str]:
    done = subprocess.run(
        ["/bin/bash", "-c", f"printf '%s\\0' {raw}"],
        cwd=directory,
        env={"HOME": "/home/me", "PATH": "/nowhere"},
        capture_output=True,
        text=True,
    )
    return done.stdout.split("\0")[:-1]


KNOWN = [
    "a", "-x", "--a=b", "c'u'rl", '"a b"', "''", '""', "$'\\x63url'", "$'a\\'b\\n\\t\\\\\\101'", "\\curl", "a\\ b", "a\\\nb", '"a$"', "a$",
    '"a\\"b\\x\\\\"', "HEAD@{1}", "a{b}", '"{a,b}"', "\\{a,b}", "[", "[a", "]", "a#b", "!x", "a=b", "a:b", "'*'", '"$\'a"', "'a\nb'",
    '"a\\\nb"', "%", "^", "@", "+", ",", "a'b'\"c\"d", "\\\\", "\\$x", "'$x'", '"\\$x"', '"\\`"', "{}", "{a", "a}", "é",
]  # fmt: skip


@pytest.mark.parametrize("raw", KNOWN)
def test_a_known_word_is_what_bash_makes_of_it(raw: str, tmp_path: Path) -> None:
    assert [parse_word(raw).value] == as_bash_reads(raw, tmp_path)


@pytest.mark.parametrize("raw", ["~", "~/x", "~/'a b'"])
def test_a_home_directory_stays_a_tilde(raw: str, tmp_path: Path) -> None:
    value = parse_word(raw).value
    assert value is not None
    assert [value.replace("~", "/home/me")] == as_bash_reads(raw, tmp_path)


@pytest.mark.parametrize(
    "raw",
    [
        "$x", '"$x"', "${x}", "a$(b)c", "`a`", "<(a)", ">(a)", "$((1))", "$@", "*", "a*", "?", "[a]", "a[1]", "{a,b}", "a{1..3}", '{a,"b"}',
        "'~'/x", '"~"', "''~", "\\~", "~root", "~+", "~-", "a=~/x", "a=b:~", "$'a\\0b'", "$'\\xff'", "$'\\u263a'", "$'\\cA'", '$"x"',
        "@(a|b)", "'a", '"a', "a(b)",
    ],
)  # fmt: skip
def test_a_word_that_nobody_can_know_has_no_value(raw: str) -> None:
    assert parse_word(raw).value is None


def test_the_likely_value_has_every_expansion_left_out() -> None:
    assert parse_word('cu$x"r"${y}l`z`$(w)').bare == "curl"
