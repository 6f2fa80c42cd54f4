"""Fills values into a shell command so that each stays one word, whatever it contains and however it is quoted.

The command is scanned from its start as a shell would. Where a quoted value could still be read as code
(here-documents, backticks, comments, arithmetic, subscripts, substitutions inside double quotes), the command
must not run. Used by plan, resolve and substitutions.
"""

import re
import shlex
from collections.abc import Mapping
from typing import Final

import msgspec

from kitbag.text.reference_syntax import NAME_PATTERN

_VALUE = rf"(?<![{{$])\{{\{{ *(?P<name>{NAME_PATTERN}) *\}}\}}(?!\}})"
_TOKEN_PATTERNS: Final = {
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


# Programs whose exit code 1 is a result: no match, or files differ.
_EXIT_ONE_IS_RESULT: Final = frozenset(("grep", "egrep", "fgrep", "rg", "find", "diff", "test", "["))


# Programs that interpret one of their arguments as code; quoting for the outer shell does not protect there.
_INTERPRETER: Final = re.compile(
    r"(?<![\w./-])(?:\S*/)?(?:eval|source|ssh|xargs|(?:ba|da|z|k|a)?sh|python[\d.]*|perl|ruby|node|awk|sed)(?![\w-])"
)


_PLAIN_VALUE: Final = re.compile(r"[\w./:@%+,-]*")


class FilledCommand(msgspec.Struct, frozen=True, kw_only=True):
    text: str
    """The command to run. Unknown or unsafe placeholders stay as written."""
    unknown: tuple[str, ...]
    unsafe: str
    """Why a value can't be filled in safely; empty if all can."""


def fill_command(command: str, values: Mapping[str, str]) -> FilledCommand:
    parts: list[str] = []
    unknown: list[str] = []
    unsafe, construct, state, at = "", "", "", 0
    while (match := _TOKEN_PATTERNS[state].search(command, at)) is not None:
        parts.append(command[at : match.start()])
        at = match.end()
        text = match[0]
        if (name := match["name"]) is not None:
            value = values.get(name)
            if value is None:
                unknown.append(name)
            elif problem := _unsafe_position(name, value, construct, state) or _interpreted_as_code(
                name, value, command[: match.start()]
            ):
                unsafe = unsafe or problem
            else:
                text = _quote(value, state)
        elif state == "#":
            state = ""
        elif state == "" and match["comment"]:
            state = "#"
        elif state != "'" and match["hard"]:
            construct = construct or text
        elif text in ("'", '"'):
            state = "" if state else text
        parts.append(text)
    parts.append(command[at:])
    return FilledCommand(text="".join(parts), unknown=tuple(dict.fromkeys(unknown)), unsafe=unsafe)


def _unsafe_position(name: str, value: str, construct: str, state: str) -> str:
    if "\0" in value:
        return f"the value of {{{{{name}}}}} contains a NUL character"
    position = "in a comment" if state == "#" else f"after `{construct}`" if construct else ""
    return f"{{{{{name}}}}} is {position}, where the shell may treat the value as code" if position else ""


def _interpreted_as_code(name: str, value: str, before: str) -> str:
    """`sh -c "echo {{X}}"`: one word for the outer shell, code for the inner one."""
    program = _INTERPRETER.search(before)
    if program is None or _PLAIN_VALUE.fullmatch(value):
        return ""
    return f"{{{{{name}}}}} is passed to `{program[0]}`, which may treat the value as code"


def _quote(value: str, state: str) -> str:
    # Quotes around `NAME=value` keep the shell from reading it as an assignment.
    word = shlex.quote(value)
    if word == value and (state or "=" in value):
        word = f"'{value}'"
    return f"{state}{word}{state}"


def is_result_exit_code(command: str, status: int) -> bool:
    """True for exit code 1 when the command ends with `grep` or a similar program: a result, not a failure."""
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
