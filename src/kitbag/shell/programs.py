"""Checks the arguments of some programs: scripts of sed and awk, the expression of find, where cp writes.

Entries of commands.toml name functions of `CHECKS`, and `command_table` calls them. Each returns the table's
classification or a weaker one; anything it doesn't understand is "other".
"""

import posixpath
import re
from collections.abc import Mapping
from typing import Final

import msgspec

from kitbag.shell.classification import OTHER, Classification, ParsedArguments, ProgramCheck

# --- sed: checks every command; r, R, w, W, e and the flags of `s` that write or run make it "other" ---

_SED_ADDRESS = re.compile(r"\s*(?:[0-9]+(?:~[0-9]+)?|\$|[+~][0-9]+)")
_SED_SPACE = re.compile(r"[ \t\n;]*")
_SED_PLAIN: Final = frozenset("pPdDgGhHxnNz=F")
_SED_SUBSTITUTE_FLAGS = re.compile(r"[gpiIm0-9M]*")
_SED_LABEL = re.compile(r"[ \t]*[A-Za-z0-9_]*[ \t]*(?=[;\n}]|$)")
_SED_TEXT = re.compile(r"(?:[^\\\n]|\\.)*", re.DOTALL)
_SED_NUMBER = re.compile(r"[ \t]*[0-9]*")
_SED_END = re.compile(r"[ \t]*(?:[;\n]|(?=\})|#[^\n]*|$)")


def _sed_is_harmless(script: str) -> bool:
    at = 0
    while True:
        space = _SED_SPACE.match(script, at)
        at = space.end() if space else at
        if at >= len(script):
            return True
        after = _sed_command(script, at)
        if after is None:
            return False
        at = after


def _sed_command(script: str, at: int) -> int | None:
    """The index after the command at `at`; None if it is not known to be harmless."""
    addressed = _sed_addresses(script, at)
    if addressed is None or addressed >= len(script):
        return None
    letter, at = script[addressed], addressed + 1
    if letter in "{}":
        return at
    if letter == "#":
        newline = script.find("\n", at)
        return len(script) if newline < 0 else newline
    if letter in "aic":
        text = _SED_TEXT.match(script, at)
        return text.end() if text else None
    if letter in ":btT":
        label = _SED_LABEL.match(script, at)
        return label.end() if label else None
    if letter in "sy":
        middle = _sed_delimited(script, at)
        end = None if middle is None else _sed_delimited(script, middle - 1)
        if end is None:
            return None
        flags = _SED_SUBSTITUTE_FLAGS.match(script, end) if letter == "s" else None
        at = flags.end() if flags else end
    elif letter in "lLqQ":
        number = _SED_NUMBER.match(script, at)
        at = number.end() if number else at
    elif letter not in _SED_PLAIN:
        return None
    ended = _SED_END.match(script, at)
    return ended.end() if ended else None


def _sed_addresses(script: str, at: int) -> int | None:
    for address_index in range(2):
        if address_index:
            comma = re.compile(r"[ \t]*,[ \t]*").match(script, at)
            if comma is None:
                break
            at = comma.end()
        number = _SED_ADDRESS.match(script, at)
        if number is not None:
            at = number.end()
        elif script.startswith(("/", "\\"), at):
            opening = at if script[at] == "/" else at + 1
            end = _sed_delimited(script, opening)
            if end is None:
                return None
            at = end
            while script.startswith(("I", "M"), at):
                at += 1
        elif address_index:
            return None
        else:
            break
    negation = re.compile(r"[ \t]*(?:![ \t]*)*").match(script, at)
    return negation.end() if negation else at


def _sed_delimited(script: str, at: int) -> int | None:
    """`at` is the opening delimiter; returns the index after the closing one."""
    if at >= len(script):
        return None
    delimiter = script[at]
    if delimiter in "\\\n" or delimiter.isalnum() or delimiter in " []":
        return None
    index = at + 1
    while index < len(script) and script[index] != delimiter:
        if script[index] == "\n":
            return None
        index += 2 if script[index] == "\\" else 1
    if index >= len(script):
        return None
    # Some seds ignore a delimiter inside brackets: both readings must be the same.
    text = script[at + 1 : index]
    return index + 1 if text.count("[") == text.count("]") else None


def _sed(arguments: ParsedArguments, classification: Classification) -> Classification:
    scripts = [value for name, value in arguments.options if name in ("-e", "--expression") and value is not None]
    if not arguments.has_program:
        scripts = [arguments.operands[0]]
    if not _sed_is_harmless("\n".join(scripts)):
        return OTHER
    suffixes = [value or "" for name, value in arguments.options if name in ("-i", "--in-place")]
    if not suffixes:
        return classification
    if "/" in suffixes[-1] or "*" in suffixes[-1]:
        return OTHER
    backups = tuple(path + suffixes[-1] for path in classification.reads if suffixes[-1])
    return Classification(kind="edit", reads=(), writes=(*classification.reads, *backups))


# --- awk: no redirected output, no commands, no other files ---

_AWK_UNSAFE = re.compile(
    r">|(?<!\|)\|(?!\|)|\|\|\||@|`|\\\n|system|getline|close|fflush|ARGV|ARGC|SYMTAB|FUNCTAB|PROCINFO"
)


def _awk(arguments: ParsedArguments, classification: Classification) -> Classification:
    programs = [*(value for _, value in arguments.options if value is not None), arguments.operands[0]]
    if any(_AWK_UNSAFE.search(text) for text in programs):
        return OTHER
    shows_environment = any("ENVIRON" in text for text in programs)
    return msgspec.structs.replace(classification, shows_environment=shows_environment)


# --- jq: `env` and `$ENV` are the environment; `.env` and `"env"` are not ---

_JQ_ENVIRONMENT = re.compile(r"""(?<![.\w$"])env(?![\w"]|\s*:)|\$\s*ENV\b""")


def _jq(arguments: ParsedArguments, classification: Classification) -> Classification:
    shows_environment = _JQ_ENVIRONMENT.search(arguments.operands[0]) is not None
    return msgspec.structs.replace(classification, shows_environment=shows_environment)


# --- find: operators of the expression are not paths ---


def _find(_arguments: ParsedArguments, classification: Classification) -> Classification:
    reads = tuple(path for path in classification.reads if path not in ("(", ")", "!", ","))
    return Classification(kind="read", reads=reads or (".",))


# --- test, [ and [[ ---

_FILE_TEST = re.compile(r"-[abcdefghkprsuwxGLNOS]")
_TEXT_TEST = re.compile(r"-[znot]")
_FILE_COMPARISON = re.compile(r"-(?:nt|ot|ef)")
_NUMBER_COMPARISON = re.compile(r"-(?:eq|ne|lt|le|gt|ge)")
_NUMBER = re.compile(r"-?[0-9]+")


def _test(arguments: ParsedArguments, _classification: Classification) -> Classification:
    words = arguments.operands
    reads: list[str] = []
    for index, word in enumerate(words):
        before = words[index - 1] if index else ""
        after = words[index + 1] if index + 1 < len(words) else ""
        if _NUMBER_COMPARISON.fullmatch(word):
            # Anything else is evaluated, and evaluation can run a command: `[[ a[$(id)] -eq 1 ]]`.
            if not (_NUMBER.fullmatch(before) and _NUMBER.fullmatch(after)):
                return OTHER
        elif _FILE_COMPARISON.fullmatch(word):
            reads += [before, after]
        elif _FILE_TEST.fullmatch(before) and word not in ("]", "]]"):
            reads.append(word)
        elif len(word) == 2 and word[0] == "-" and not (_FILE_TEST.fullmatch(word) or _TEXT_TEST.fullmatch(word)):
            return OTHER
    return Classification(kind="read", reads=tuple(path for path in reads if path))


# --- cp and mv: where they write ---


def _copy(arguments: ParsedArguments, classification: Classification) -> Classification:
    flags = {name for name, _ in arguments.options}
    recursive = bool(flags & {"-r", "-R", "-a", "--recursive", "--archive"})
    exactly = bool(flags & {"-T", "--no-target-directory"})
    targets = arguments.writes
    sources = arguments.operands
    if len(targets) > 1:
        return OTHER
    if not targets:
        if len(sources) < 2:
            return OTHER
        sources, targets = sources[:-1], sources[-1:]
    target = targets[0]
    names = [posixpath.basename(source.rstrip("/")) for source in sources]
    moved = sources if classification.writes != arguments.writes else ()  # mv also writes its sources: it removes them
    # The source may be a whole tree, whose files would land next to those of the target.
    if any(name in ("", ".", "..", "~") for name in names) or (recursive and exactly):
        return Classification(kind="other", reads=sources, writes=(*moved, target))
    return Classification(
        kind="edit",
        reads=sources,
        writes=(*moved, target, *(posixpath.join(target, name) for name in names if not exactly)),
    )


# --- Programs with one harmless form ---


def _date(arguments: ParsedArguments, classification: Classification) -> Classification:
    return classification if all(word.startswith("+") for word in arguments.operands) else OTHER


def _printf(arguments: ParsedArguments, classification: Classification) -> Classification:
    form = arguments.operands[0]
    # `-v` and `%n` assign a variable.
    return OTHER if form.startswith("-") or re.search(r"%[^%a-zA-Z]*[hlLjzt]*n", form) else classification


def _ps(arguments: ParsedArguments, classification: Classification) -> Classification:
    # Excludes forms that print environments: `e` without a dash, and anything with -o.
    return (
        classification if all(word in ("aux", "ax", "-e", "-f", "-ef", "-A") for word in arguments.operands) else OTHER
    )


def _list(arguments: ParsedArguments, classification: Classification) -> Classification:
    lists = any(name in ("-l", "--list") for name, _ in arguments.options)
    return classification if lists or not arguments.operands else OTHER


def _first(*words: str, alone: bool) -> ProgramCheck:
    """The first operand must be one of these words."""

    def check(arguments: ParsedArguments, classification: Classification) -> Classification:
        if not arguments.operands:
            return classification if alone else OTHER
        return classification if arguments.operands[0] in words else OTHER

    return check


CHECKS: Final[Mapping[str, ProgramCheck]] = {
    "sed": _sed,
    "awk": _awk,
    "jq": _jq,
    "find": _find,
    "test": _test,
    "copy": _copy,
    "date": _date,
    "printf": _printf,
    "ps": _ps,
    "list": _list,
    "remote": _first("get-url", alone=True),
    "stash": _first("list", "show", alone=False),
    "listing": _first("list", alone=False),
    "reflog": _first("show", alone=True),
}
