"""Values put into a shell command: each stays one word, whatever it contains and whatever quotes it stands in.

The command is read from its start as the shell would read it. Where a value could be taken for code in spite
of its quotes (here-documents, backticks, comments, arithmetic, subscripts, substitutions inside double
quotes), the command must not run. Used by reference_plan and references.
"""

import re
import shlex
from collections.abc import Mapping
from typing import Final, NamedTuple

from kitbag.text.reference_syntax import NAME_PATTERN

_VALUE = rf"(?<![{{$])\{{\{{ *(?P<name>{NAME_PATTERN}) *\}}\}}(?!\}})"
_PIECES: Final = {
    "": re.compile(
        rf"{_VALUE}|(?P<hard>\\\n#|\$\(\(|\$['\"\[]|\$\{{(?!\w+\}})|`|(?<!<)<<(?!<)|\(\(|\[(?=\S)|(?<=\w)\[)"
        r"|\\.|['\"]|<<<"
        r"|(?<![^\s;&|()<>])(?P<comment>#)",
        re.DOTALL,
    ),
    "'": re.compile(rf"{_VALUE}|'"),
    '"': re.compile(rf"{_VALUE}|(?P<hard>\$[(\[]|\$\{{(?!\w+\}})|`)|\\.|\"", re.DOTALL),
    "#": re.compile(rf"{_VALUE}|\n"),
}


# Programs whose exit code 1 is an answer: nothing found, or not the same.
_EXIT_ONE_IS_RESULT: Final = frozenset(("grep", "egrep", "fgrep", "rg", "find", "diff", "test", "["))


# Programs that read one of their words as code: quotes do not reach that far.
_INTERPRETER: Final = re.compile(
    r"(?<![\w./-])(?:\S*/)?(?:eval|source|ssh|xargs|(?:ba|da|z|k|a)?sh|python[\d.]*|perl|ruby|node|awk|sed)(?![\w-])"
)


_PLAIN_VALUE: Final = re.compile(r"[\w./:@%+,-]*")


class FilledCommand(NamedTuple):
    text: str
    """As it would be run. What is unknown or unsafe is left as it was written."""
    unknown: tuple[str, ...]
    unsafe: str
    """Why a value can't be put where the command wants it; empty when all is well."""


def fill_command(command: str, values: Mapping[str, str]) -> FilledCommand:
    parts: list[str] = []
    unknown: list[str] = []
    unsafe, hard, state, at = "", "", "", 0
    while (piece := _PIECES[state].search(command, at)) is not None:
        parts.append(command[at : piece.start()])
        at = piece.end()
        found = piece[0]
        if (name := piece["name"]) is not None:
            value = values.get(name)
            if value is None:
                unknown.append(name)
            elif wrong := _unsafe_position(name, value, hard, state) or _interpreted_as_code(
                name, value, command[: piece.start()]
            ):
                unsafe = unsafe or wrong
            else:
                found = _quote(value, state)
        elif state == "#":
            state = ""
        elif state == "" and piece["comment"]:
            state = "#"
        elif state != "'" and piece["hard"]:
            hard = hard or found
        elif found in ("'", '"'):
            state = "" if state else found
        parts.append(found)
    parts.append(command[at:])
    return FilledCommand("".join(parts), tuple(dict.fromkeys(unknown)), unsafe)


def _unsafe_position(name: str, value: str, hard: str, state: str) -> str:
    if "\0" in value:
        return f"the value of {{{{{name}}}}} has a NUL character, which no command can be given"
    place = "in a comment" if state == "#" else f"behind `{hard}`" if hard else ""
    return f"{{{{{name}}}}} stands {place}, where the shell may read a value as code" if place else ""


def _interpreted_as_code(name: str, value: str, before: str) -> str:
    """`sh -c "echo {{X}}"`: one word for the outer shell, and code for the inner one."""
    program = _INTERPRETER.search(before)
    if program is None or _PLAIN_VALUE.fullmatch(value):
        return ""
    return f"{{{{{name}}}}} is handed to `{program[0]}`, which may read a value as code"


def _quote(value: str, state: str) -> str:
    # Quotes around a name or `NAME=value` keep the shell from taking it for an assignment.
    word = shlex.quote(value)
    if word == value and (state or "=" in value):
        word = f"'{value}'"
    return f"{state}{word}{state}"


def is_result_exit_code(command: str, status: int) -> bool:
    """Exit code 1 of `grep` and its like, when it is what the command ends with: no failure."""
    if status != 1:
        return False
    lines = command.strip().splitlines()
    lexer = shlex.shlex(lines[-1] if lines else "", posix=True, punctuation_chars=True)
    try:
        words = list(lexer)
    except ValueError:
        return False
    last = max((at for at, word in enumerate(words) if not word.strip(";|&()")), default=-1)
    program = words[last + 1 : last + 3]
    return program[:1] != [] and (program[0] in _EXIT_ONE_IS_RESULT or program in (["git", "diff"], ["git", "grep"]))
