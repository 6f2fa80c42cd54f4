"""Finds the code that a command gives to an interpreter: `python -c CODE`, `perl -e CODE`, a here-document, its input.

Used by `parts`; the names are in commands.toml. Code is not analyzed, only searched for the commands that rules deny. A
script file is a program like any other, and is not read.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from kitbag.shell.command_table import command_table
from kitbag.shell.words import ShellWord

STANDARD_INPUT: Final = frozenset({"-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"})
_VERSION = re.compile(r"[\d.]+$")
_CODE = re.compile(r"[\s;|&$`(<!'\"]")
_CODE_OPTION = re.compile(r"-\w*[cCeEr]|-p|--?e(?:val|xec|x)|--print|--cmd|--command|--execute|--expression|--source")
_FILE_OPTION = re.compile(r"-f|--(?:make)?file|-l|--load")
_CODE_SEPARATORS = re.compile(r"""[\s'"`,;:|&(){}\[\]<>=!$@+]+""")
_MAX_CODE_WORDS: Final = 5_000
_WORDS_PER_COMMAND: Final = 6
_ATTACHED_FILE = re.compile(r"-f|--?\w+=")
_INFORMATION = frozenset({"-V", "-v", "-h", "-i", "-m", "--version", "--help", "--info", "-version", "-help"})
_ENVIRONMENT = re.compile(r"\bgetenv\b|\benviron\b|\bENV(?:IRON)?\b|\bprocess\.env\b|\bphpinfo\b")
_DYNAMIC = re.compile(r"""\b(?:system|exec)\s*\(?\s*[$@]|\|\s*"(?:\S*/)?\w*sh\b""")
_SED_EXECUTE = re.compile(r"(?:^|[;{}\s\d$])e\s*(?:$|[;}])|/[gpiImM\d]*e[gp\d]*\s*(?:$|[;}])")
_UNKNOWN: Final = "runs code that is only known at run time"


class InterpretedCode(NamedTuple):
    texts: tuple[str, ...] = ()
    uncertainties: tuple[str, ...] = ()
    reads_input: bool = False
    """Runs code from its input that is not part of the command line."""


class CommandInput(NamedTuple):
    texts: tuple[str, ...] = ()
    """Here-documents and here-strings."""
    known: bool = True
    """Whether nothing in them is expanded."""


def is_interpreter(word: str | None) -> bool:
    return _name(word) in command_table().interpreters


def find_code(words: Sequence[ShellWord], values: Sequence[str | None], given: CommandInput) -> InterpretedCode:
    """`values`: of the words, None for those known only at run time."""
    table = command_table()
    name = _name(values[0]) if values else ""
    if name not in table.interpreters:
        return InterpretedCode()
    texts: list[str] = []
    uncertainties: list[str] = []
    for at in range(1, len(values)):
        value, option = values[at], values[at - 1] or ""
        text = words[at].bare if value is None else value
        follows = at > 1 and _CODE_OPTION.fullmatch(option) is not None
        if follows or _CODE.search(text):
            texts.append(text)
        if _DYNAMIC.search(text) or (name in ("sed", "gsed") and _SED_EXECUTE.search(text)):
            uncertainties.append("runs commands from its input")
        if words[at].raw.startswith("<(") or text.startswith("/dev/fd/"):
            uncertainties.append(_UNKNOWN)
        if value is None and (follows or (not text and name in table.interpreters_of_operands)):
            uncertainties.append(_UNKNOWN)
    reads_input = _reads_input(name, values[1:])
    if reads_input and not given.texts:
        uncertainties.append("runs code from its input")
    elif reads_input and not given.known:
        uncertainties.append(_UNKNOWN)
    return InterpretedCode((*texts, *given.texts), tuple(uncertainties), reads_input and not given.texts)


def commands_in_code(code: str) -> Iterator[str]:
    """Every text in code that could be a command: the words from each position on, without punctuation."""
    if _ENVIRONMENT.search(code):
        yield from ("env", "printenv")
    words = _CODE_SEPARATORS.split(code)[:_MAX_CODE_WORDS]
    for at, word in enumerate(words):
        name = word.rsplit("/", 1)[-1].lstrip("\\")
        if name:
            yield " ".join([name, *words[at + 1 : at + _WORDS_PER_COMMAND]])


def _name(word: str | None) -> str:
    return _VERSION.sub("", (word or "").rsplit("/", 1)[-1])


def _reads_input(name: str, arguments: Sequence[str | None]) -> bool:
    of_operands = name in command_table().interpreters_of_operands
    for before, word in zip(("", *arguments), arguments, strict=False):
        if word in STANDARD_INPUT and (not of_operands or _FILE_OPTION.fullmatch(before or "")):
            return True
        if word is not None and _ATTACHED_FILE.sub("", word, count=1) in STANDARD_INPUT - {word}:
            return True
    if of_operands:
        return False
    return all(word is not None and word.startswith("-") and word not in _INFORMATION for word in arguments)
