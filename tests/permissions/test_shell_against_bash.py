"""The analysis against the real bash: whatever runs must have been found.

Texts come from a grammar and are then damaged. They run with a PATH that holds nothing but stubs, which write down
their name and arguments, in an empty directory. No text names a place outside: a damaged one would write there.
"""

import contextlib
import functools
import os
import random
import signal
import subprocess
from pathlib import Path

import pytest

from kitbag.shell.analysis import ShellAnalysis, analyze
from support.matrix import sample

STUBS = ("s0", "s1", "s2", "s3", "s4", "q0", "q1")
STUB = """#!/bin/sh
line=NAME; for a in "$@"; do line="$line\x1f$a"; done
printf '%s\\036' "$line" >> "$STUB_LOG"
echo out
exit STATUS
"""
# fmt: off
WORDS = ["a", "b", "-x", "a=b", "x#y", "~", "a:b", "!", "'a b'", "'$(s4)'", "'`s4`'", "''", '"a b"', '"a\'b"', '"\\$(s4)"', "\\;", "a\\ b",
         "$'a\\'b'", "';s4'", '";s4"', "$x", '"$x"', '"${x:-y}"', "${#x}", "$?", '"$@"', "{", "}", "if", "do", "done", "fi", "in", "[[", "]]",
         "esac", "*.zz", "a{b,c}", "[a]"]
REDIRECTS = [">o1", "2>&1", ">>o2", "<o0", ">|o3", "&>o4", ">&2", "3>o5", "<<<x"]
JOINTS = [" && ", " || ", "; ", "\n", " | ", "&&", "|", " & ", ";", " |& ", " \\\n&& ", " # c\n"]
DAMAGE = ["s0", " ", "\n", ";", "&&", "|", "&", "(", ")", "{ ", "; }", "$(", "`", '"', "'", "\\", "\\\n", "$", "${x:-", "}", "$((", "))", "[[ ",
          "]]", "! ", "#", "<", ">", "<<E\n", "\nE\n", "<<<", "<(", "then ", "fi", "do ", "done", "x) ", ";;", " esac", "time ", "()", "=", "*",
          "~", "$'", "\t", "eval ", "env ", "{a,b}", "a[", "]=", "@("]
# fmt: on


class Grammar:
    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)

    def text(self, depth: int = 0) -> str:
        text = self.command(depth)
        for _ in range(self.dice.randrange(3 if depth < 2 else 2)):
            text += self.dice.choice(JOINTS) + self.command(depth)
        return text

    def stub(self) -> str:
        return self.dice.choice(STUBS)

    def word(self, depth: int) -> str:
        if depth > 2 or self.dice.random() < 0.6:
            return self.dice.choice(WORDS)
        inner = self.text(depth + 1)
        return self.dice.choice(
            [
                f"$({inner})",
                f'"x$({inner})y"',
                f"`{self.stub()} a`",
                f"<({inner})",
                f"$((1+$({self.stub()})))",
                f"${{x:-$({self.stub()})}}",
            ]
        )

    def simple(self, depth: int) -> str:
        dice = self.dice
        words = [dice.choice(["A=1", 'B="x y"', f"C=$({self.stub()})", "D[0]=1"])] if dice.random() < 0.1 else []
        words += [">o6"] if dice.random() < 0.05 else []
        name = self.stub()
        if dice.random() < 0.25:
            name = (
                dice.choice(
                    [
                        '"%s"',
                        "\\%s",
                        "$'%s'",
                        "command %s",
                        "time %s",
                        "env A=1 %s",
                        "exec %s",
                        "eval %s",
                        "! %s",
                        "time -p %s",
                    ]
                )
                % name
            )
        words += [name, *(self.word(depth) for _ in range(dice.randrange(3)))]
        if dice.random() < 0.2:
            heredoc = f"<<E\nx $({self.stub()})\nE\n"
            words.append(heredoc if depth == 0 and dice.random() < 0.3 else dice.choice(REDIRECTS))
        return " ".join(words)

    def command(self, depth: int) -> str:
        if depth > 2 or self.dice.random() < 0.6:
            return self.simple(depth)
        inner, other = self.text(depth + 1), self.text(depth + 1)
        return self.dice.choice(
            [
                f"({inner})",
                f"{{ {inner}; }}",
                f"if {inner}; then {other}; elif q0; then {self.stub()}; else {self.stub()}; fi",
                f"for i in {self.word(depth)} b; do {inner}; done",
                f"while q0; do {inner}; done",
                f"until s0; do {inner}; done",
                f"case {self.word(depth)} in a|b) {inner};; (*) {other};; esac",
                f"[[ $({self.stub()}) == * && -n a ]]",
                f"g() {{ {inner}; }}; g",
                f"bash -c '{self.stub()} a; {self.stub()}'",
            ]
        )

    def damaged(self) -> str:
        text = self.text()
        for _ in range(self.dice.randrange(1, 4)):
            at = self.dice.randrange(len(text) + 1)
            text = text[:at] + self.dice.choice(DAMAGE) + text[at + self.dice.choice([0, 0, 1, 5]) :]
        return text


@pytest.fixture
def stubs(tmp_path: Path) -> Path:
    for directory in ("bin", "work"):
        (tmp_path / directory).mkdir()
    (tmp_path / "work/o0").touch()
    for name in STUBS:
        path = tmp_path / "bin" / name
        path.write_text(STUB.replace("NAME", name).replace("STATUS", "1" if name.startswith("q") else "0"))
        path.chmod(0o755)
    return tmp_path


def run(text: str, stubs: Path) -> list[tuple[str, ...]]:
    """The stubs that ran, with their arguments."""
    log = stubs / "log"
    log.write_text("")
    process = subprocess.Popen(
        ["/bin/bash", "-c", "--", text],
        cwd=stubs / "work",
        env={"PATH": str(stubs / "bin"), "STUB_LOG": str(log), "HOME": "H", "FUNCNEST": "20"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    with contextlib.suppress(subprocess.TimeoutExpired):  # a loop without end has done enough
        process.wait(2)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    return [tuple(line.split("\x1f")) for line in log.read_text(errors="replace").split("\x1e") if line]


def fits(words: tuple[str | None, ...], ran: tuple[str, ...]) -> bool:
    """A word that isn't known may be any number of words."""

    @functools.cache
    def fit(at: int, place: int) -> bool:
        if at == len(words):
            return place == len(ran)
        word = words[at]
        if word is None:
            return any(fit(at + 1, end) for end in range(place, len(ran) + 1))
        return place < len(ran) and word.replace("~", "H") == ran[place] and fit(at + 1, place + 1)

    return fit(0, 0)


def missing(found: ShellAnalysis, ran: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """What ran and was not found; where nothing is doubted, with exactly these arguments."""
    names = {form.split()[0] for part in found.parts for form in part.forms if form.split()}
    sure = not found.uncertainties and not any(part.uncertainties for part in found.parts)
    return [
        one for one in ran if one[0] not in names or (sure and not any(fits(part.words, one) for part in found.parts))
    ]


@pytest.mark.parametrize("seed", sample(range(6), 2))
def test_every_stub_that_bash_runs_was_found(seed: int, stubs: Path) -> None:
    grammar = Grammar(seed)
    some_ran = sure = 0
    for _ in range(40):
        text = grammar.text()
        found, ran = analyze(text), run(text, stubs)
        assert not missing(found, ran), text
        some_ran += bool(ran)
        sure += bool(ran) and not found.uncertainties
    assert some_ran > 20, "the grammar must make texts that bash can run"
    assert sure > 15, "and most of them must be read without a doubt"


@pytest.mark.parametrize("seed", sample(range(6), 2))
def test_every_stub_that_bash_runs_from_damaged_text_was_found(seed: int, stubs: Path) -> None:
    grammar = Grammar(100 + seed)
    for _ in range(60):
        text = grammar.damaged()
        assert not missing(analyze(text), run(text, stubs)), text
