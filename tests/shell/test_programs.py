import random
import subprocess
from pathlib import Path

import pytest

from kitbag.shell.command_table import classify
from support.waiting import TEST_TIMEOUT


@pytest.mark.parametrize(
    "script",
    [
        "p", "1,20p", "$=", "/a/,/b/p", "s/a/b/g; s|x|y|2p", "/^$/d;s/^ *//", "$!N;$!D", "s/(a|b)+/\\1/g", ":a;N;$!ba;s/\\n/ /g", "y/abc/xyz/",
        "1~2d", "0,/x/I!d", "\\%a%d", "/a/{p;d}", "1i\\\ntext", "a text; w out", "# w out\np", "s/a/\\/w x/", "5q", "l 3", "$!{h;d};x;G",
        "s/[a-z]*/X/", "/x/c new",
    ],
)  # fmt: skip
def test_a_sed_script_without_files_and_commands_only_reads(script: str) -> None:
    assert classify(("sed", script, "f")).kind == "read"


@pytest.mark.parametrize(
    "script",
    [
        "w out", "1w out", "/a/w out", "s/a/b/w out", "s/a/b/gw out", "e", "e id", "1e id", "s/a/b/e", "s/a/b/ge", "s/a/b/eg", "r f", "R f",
        "W out", "p;w out", "p\nw out", "{w out\n}", "/a/!w out", "1,2{e id\n}", "s/[/]/w out/", "y/a/b/;e id", ":a;w out", "# c\ne id",
        "a x\nw out", "i\\\nx\ne id", "s/a/b", "s", "v 4.2", "s/a/b/m;e id", "\\%a%w out", "sw out", "s\na\nb\nw out", "0~4W out", "}w out",
    ],
)  # fmt: skip
def test_a_sed_script_that_writes_or_runs_is_neither_read_nor_edit(script: str) -> None:
    for words in (("sed", script, "f"), ("sed", "-n", "-e", "p", "-e", script, "f"), ("sed", "-i", script, "f")):
        assert classify(words).kind == "other"


def test_no_script_that_counts_as_harmless_makes_the_real_sed_write_or_run(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("a\nb\nabc\n")
    pieces = [
        "s", "/", "/", "|", "a", "b", "\\", "\n", ";", "{", "}", "w o", "w o\n", "e touch p", "e", "W o", "y", "p", "d", "q", "1", "$", "2,3", "!",
        ":a", "a\\", "i\\", "c\\", "a ", "g", "I", "M", "[", "]", "&", ",", "~", "+1", "#", " ", "N", "G", "h", "=", "s/a/b/", "s/a/touch p/",
        "s|a|b|", "/a/", "\\%a%", "l 3", "F", "z", "s/a/b\\\n/", "y/abc/xyz/", "s/[/]/b/", "s/./touch p/e",
    ]  # fmt: skip
    dice = random.Random(4)
    tried = 0
    while tried < 200:
        script = "".join(dice.choice(pieces) for _ in range(dice.randrange(1, 8)))
        if classify(("sed", script, "f")).kind == "read":
            tried += 1
            subprocess.run(
                ["sed", script, "f"], cwd=tmp_path, capture_output=True, stdin=subprocess.DEVNULL, timeout=TEST_TIMEOUT
            )
            assert [path.name for path in tmp_path.iterdir()] == ["f"], script


@pytest.mark.parametrize(
    "program", ["{print $1}", "NR==1 || /x/ {n++} END {print n}", 'BEGIN{FS=","} {printf "%s\\n", $2}', "$1 < 5"]
)
def test_an_awk_program_that_only_prints_only_reads(program: str) -> None:
    assert classify(("awk", program, "f")).kind == "read"


@pytest.mark.parametrize(
    "program",
    [
        'BEGIN{system("id")}', '{print > "x"}', '{print >> "x"}', '{print | "sh"}', '{print |& "sh"}', '"id" | getline', "{getline < $1}",
        'BEGIN{ARGV[1]="/etc/passwd"; ARGC=2}', '@load "x"', '@include "x"', '{@f()}', "{sys\\\ntem(1)}", '/"/{system("id")}', 'SYMTAB["a"]',
    ],
)  # fmt: skip
def test_an_awk_program_that_runs_or_writes_is_other(program: str) -> None:
    assert classify(("awk", program, "f")).kind == "other"
    assert classify(("awk", "-v", f"x={program}", "{print x}", "f")).kind == "other"
