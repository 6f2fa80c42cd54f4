"""Classifies commands with the table in commands.toml: read, edit or other.

Used by `parts` for the words of one command; `programs` parses the scripts of sed, awk and find. Anything not proven is
"other". The file is loaded once per process.
"""

import os
import re
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, Final, cast

import msgspec

from kitbag.shell.classification import (
    OTHER,
    UNKNOWN_OPTION,
    UNKNOWN_PATH,
    UNKNOWN_WORD,
    Classification,
    CommandKind,
    ParsedArguments,
)
from kitbag.shell.expansions import (
    WORDS,
    glob_directory,
    has_marker,
    has_unknown,
    is_glob,
    may_be_option,
    may_be_several,
)
from kitbag.shell.programs import CHECKS

_MANY_FILES: Final = Classification(kind="other", reason="changes every file that a glob or a command finds")
_VERSION_OPTIONS: Final = frozenset(("--version", "-v", "-V", "-version"))
# Options of git whose value is neither a format nor a path.
_TEXT_OPTION: Final = re.compile(r"--(?:author|committer|grep|since|until|after|before|max-count|skip|date)=|-[SGn]")
TRUSTED_DIRECTORIES: Final = ("/bin/", "/usr/bin/")
_SUFFIX = re.compile(r"(--?[^=?^\s]*)(\^|\?|={1,2})?([rwp]*)")
_ROLE = re.compile(r"(text|read|write)([?*+]?)")


class CommandOption(msgspec.Struct, frozen=True, kw_only=True):
    values: int
    """The number of values: 0, 1 or 2."""
    attached: bool
    """Takes a value only if it is attached."""
    role: str
    """Any of r (a path that is read), w (a path that is written) and p (replaces the first operand)."""


class CommandEntry(msgspec.Struct, frozen=True, kw_only=True):
    kind: CommandKind
    options: Mapping[str, CommandOption]
    operands: tuple[tuple[str, str], ...]
    default: str
    refuse: re.Pattern[str] | None
    check: str
    verbatim: bool
    any_words: bool
    """No option or operand can do harm, so words may be unknown."""
    loads: tuple[str, ...]
    subcommands: Mapping[str, "CommandEntry"]


class WrapperEntry(msgspec.Struct, frozen=True, kw_only=True):
    options: Mapping[str, CommandOption]
    skip: int
    assignments: bool
    strips: bool
    bare: bool
    blocks: bool
    joins: bool
    unless: frozenset[str]


class CommandTable(msgspec.Struct, frozen=True, kw_only=True):
    commands: Mapping[str, CommandEntry]
    wrappers: Mapping[str, WrapperEntry]
    global_options: Mapping[str, Mapping[str, CommandOption]]
    launchers: frozenset[str]
    launchers_elsewhere: frozenset[str]
    runs_others: frozenset[str]
    """Every program whose arguments may contain another command."""
    launching_git: frozenset[str]
    """git subcommands that run a command."""
    launching_words: Mapping[str, frozenset[str]]
    """Program to words after which any word may be a command."""
    launching_options: frozenset[str]
    interpreters: frozenset[str]
    interpreters_of_operands: frozenset[str]
    """Interpreters whose first operand is code, and whose input is not."""
    shells: frozenset[str]
    shell_values: frozenset[str]
    reasons: Mapping[str, str]
    """Program to why it needs approval."""
    checks: Mapping[tuple[str, ...], str]
    """First words of tests and linters to what they are."""
    check_runners: frozenset[tuple[str, ...]]
    check_targets: frozenset[str]
    """Programs of which every word is a target."""
    check_refusals: re.Pattern[str]
    versions: Mapping[str, frozenset[str]]
    """Program to words that make it print its version."""
    version_loads: Mapping[str, tuple[str, ...]]
    network: frozenset[str]
    network_subcommands: Mapping[str, frozenset[str]]
    safe_names: re.Pattern[str]
    dangerous_names: re.Pattern[str]


@cache
def command_table() -> CommandTable:
    import tomllib

    with open(os.path.join(os.path.dirname(__file__), "commands.toml"), "rb") as file:
        data: dict[str, Any] = tomllib.load(file)
    commands: dict[str, CommandEntry] = {}
    for name, fields in cast("dict[str, dict[str, Any]]", data["commands"]).items():
        commands.update(dict.fromkeys(cast("list[str]", fields.get("names", [name])), _parse_entry(fields)))
    launchers = data["launchers"]
    return CommandTable(
        commands=commands,
        wrappers={name: _parse_wrapper(fields) for name, fields in data["wrappers"].items()},
        global_options={name: _parse_options(text) for name, text in data["globals"].items()},
        launchers=frozenset(launchers["names"]),
        launchers_elsewhere=frozenset(launchers["elsewhere"]),
        runs_others=frozenset(
            (
                *("find", "fd", "fdfind", "git", *launchers["names"], *launchers["elsewhere"], *launchers["words"]),
                *(*data["wrappers"], *data["shells"]["names"]),
            )
        ),
        launching_git=frozenset(launchers["git"]),
        launching_words={name: frozenset(words) for name, words in launchers["words"].items()},
        launching_options=frozenset(launchers["options"]["names"]),
        interpreters=frozenset((*data["interpreters"]["names"], *data["interpreters"]["of_operands"])),
        interpreters_of_operands=frozenset(data["interpreters"]["of_operands"]),
        shells=frozenset(data["shells"]["names"]),
        shell_values=frozenset(data["shells"]["with_value"]),
        reasons={name: reason for reason, names in data["reasons"].items() for name in names},
        checks={
            tuple(command.split()): kind["label"]
            for kind in (data["checks"]["tests"], data["checks"]["linters"])
            for command in kind["commands"]
        },
        check_runners=frozenset(tuple(runner.split()) for runner in data["checks"]["runners"]),
        check_targets=frozenset(data["checks"]["targets"]),
        check_refusals=re.compile(data["checks"]["refuse"]),
        versions=_parse_versions(data["versions"]),
        version_loads={name: tuple(files) for name, files in data["versions"]["loads"].items()},
        network=frozenset(data["network"]["commands"]),
        network_subcommands={name: frozenset(found) for name, found in data["network"]["subcommands"].items()},
        safe_names=_name_pattern(data["assignments"]["safe"]),
        dangerous_names=_name_pattern(data["assignments"]["dangerous"]),
    )


def _parse_versions(data: Mapping[str, Any]) -> dict[str, frozenset[str]]:
    words: dict[str, set[str]] = {name: {"--version"} for name in data["names"]}
    for word, names in data["words"].items():
        for name in names:
            words.setdefault(name, set()).add(word)
    return {name: frozenset(found) for name, found in words.items()}


def _name_pattern(patterns: Iterable[str]) -> re.Pattern[str]:
    return re.compile("|".join(re.escape(pattern).replace(r"\*", r"\w*") for pattern in patterns))


def _parse_options(text: str) -> dict[str, CommandOption]:
    options: dict[str, CommandOption] = {}
    for word in text.split():
        match = _SUFFIX.fullmatch(word)
        if match is None:
            raise ValueError(f"commands.toml: {word!r} is not an option")
        name, suffix, role = match.groups()
        options[name] = CommandOption(
            values=len(suffix) if suffix and "=" in suffix else 0,
            attached=suffix == "?",
            role="p" if suffix == "^" else role,
        )
    return options


def _parse_entry(fields: Mapping[str, Any]) -> CommandEntry:
    subcommands: dict[str, CommandEntry] = {}
    for name, inner in fields.get("with", {}).items():
        subcommands.update(dict.fromkeys(inner.get("names", [name]), _parse_entry(inner)))
    return CommandEntry(
        kind=fields["kind"],
        options=_parse_options(fields.get("options", "")),
        operands=tuple((match[1], match[2]) for match in _ROLE.finditer(fields.get("operands", ""))),
        default=fields.get("default", ""),
        refuse=re.compile(fields["refuse"]) if "refuse" in fields else None,
        check=fields.get("check", ""),
        verbatim=fields.get("verbatim", False),
        any_words=fields.get("any_words", False) or fields.get("verbatim", False),
        loads=tuple(fields.get("loads", ())),
        subcommands=subcommands,
    )


def _parse_wrapper(fields: Mapping[str, Any]) -> WrapperEntry:
    return WrapperEntry(
        options=_parse_options(fields.get("options", "")),
        skip=fields.get("skip", 0),
        assignments=fields.get("assignments", False),
        strips=fields.get("strips", False),
        bare=fields.get("bare", False),
        blocks=fields.get("blocks", False),
        joins=fields.get("joins", False),
        unless=frozenset(fields.get("unless", ())),
    )


def program_name(word: str) -> str:
    """The program's name in the table; the word itself for a program in an untrusted directory."""
    for directory in TRUSTED_DIRECTORIES:
        if word.startswith(directory) and "/" not in word[len(directory) :]:
            return word[len(directory) :]
    return word


def classify(words: tuple[str | None, ...]) -> Classification:
    """Classify a command by its words after wrappers: texts, or templates of `expansions`."""
    if not words:
        return OTHER
    if None in words or has_marker(words[0] or ""):
        return UNKNOWN_WORD
    known = cast("tuple[str, ...]", words)
    table = command_table()
    name = program_name(known[0])
    if len(known) == 2 and known[1] in table.versions.get(name, ()):
        return Classification(kind="read", loads=table.version_loads.get(name, ()))
    entry = table.commands.get(name)
    if entry is None:
        return OTHER
    if entry.refuse is not None:
        if any(has_unknown(word) and not _TEXT_OPTION.match(word) for word in known[1:]):
            return UNKNOWN_WORD
        if any(entry.refuse.search(word) for word in known[1:]):
            return UNKNOWN_OPTION
    reads: tuple[str, ...] = ()
    rest = known[1:]
    default, loads = entry.default, entry.loads
    if entry.subcommands:
        subcommand_index = skip_options(rest, entry.options)
        if subcommand_index is None:
            return UNKNOWN_OPTION
        before = parse_arguments(rest[:subcommand_index], entry)
        if before is None:
            return UNKNOWN_OPTION
        if subcommand_index == len(rest):
            prints_version = before.options and before.options[0][0] in _VERSION_OPTIONS
            return Classification(kind="read", loads=loads) if prints_version else OTHER
        inner = entry.subcommands.get(rest[subcommand_index])
        if inner is None:
            return OTHER
        reads, rest, entry = before.reads, rest[subcommand_index + 1 :], inner
    found = _classify_arguments(entry, rest, reads, default)
    return msgspec.structs.replace(found, loads=(*loads, *entry.loads)) if found.kind == "read" else found


def _classify_arguments(
    entry: CommandEntry, words: tuple[str, ...], reads: tuple[str, ...], default: str
) -> Classification:
    if entry.refuse is not None and any(entry.refuse.search(word) for word in words):
        return UNKNOWN_OPTION
    arguments = parse_arguments(words, entry)
    if arguments is None:
        return UNKNOWN_WORD if any(map(has_unknown, words)) else UNKNOWN_OPTION
    roles = _roles(entry, arguments)
    if roles is None:
        return OTHER
    pairs = tuple(zip(arguments.operands, roles, strict=True))
    named = [path for path, role in pairs if role == "read" and path != "-"]
    reads = (*reads, *arguments.reads, *named)
    if not named and default:
        reads = (*reads, default)
    globs = [text for text, role in pairs if role == "text" and is_glob(text)]
    # Names of files may be options; where they are only printed, the directory counts.
    reads = (*reads, *(globs if not entry.any_words else filter(None, map(glob_directory, globs))))
    writes = (*arguments.writes, *(path for path, role in pairs if role == "write"))
    if any(has_unknown(path) for path in (*reads, *writes)):
        return UNKNOWN_PATH
    classification = Classification(kind=entry.kind, reads=reads, writes=writes)
    if entry.check:
        classification = CHECKS[entry.check](arguments, classification)
    return _MANY_FILES if any(map(may_be_several, classification.writes)) else classification


def _roles(entry: CommandEntry, arguments: ParsedArguments) -> list[str] | None:
    """The role of each operand; None if there are too few or too many, or if a glob may match too many."""
    roles: list[str] = []
    left = len(arguments.operands)
    roles_and_counts = entry.operands[1:] if arguments.has_program else entry.operands
    for role, count in roles_and_counts:
        if count in ("", "+") and not left:
            return None
        taken = left if count in ("*", "+") else min(left, 1)
        if taken and count in ("", "?") and may_be_several(arguments.operands[len(roles)]):
            return None
        roles += [role] * taken
        left -= taken
    return None if left else roles


def skip_options(words: tuple[str | None, ...], options: Mapping[str, CommandOption], at: int = 0) -> int | None:
    """Index of the first word from `at` on that is neither an option nor its value; None if that is unclear."""
    parsed = parse_leading_options(words, options, at)
    return None if parsed is None else parsed[0]


def parse_leading_options(
    words: tuple[str | None, ...], options: Mapping[str, CommandOption], at: int
) -> tuple[int, list[tuple[str, str | None]]] | None:
    """What `skip_options` returns, and the options before it with their values."""
    found: list[tuple[str, str | None]] = []
    while at < len(words):
        word = words[at]
        if word is None:
            return None
        if word == "--":
            return at + 1, found
        if word == "-" and "-" in options:
            at += 1
            continue
        if not word.startswith("-") or word == "-":
            break
        taken = _parse_option(words, at, options)
        if taken is None:
            return None
        at = taken[0]
        found += taken[1]
    return at, found


def parse_arguments(words: tuple[str, ...], entry: CommandEntry) -> ParsedArguments | None:
    """None if there is an unknown option, or a word that may be one."""
    if entry.verbatim:
        return ParsedArguments(options=(), operands=words, reads=(), writes=(), has_program=False)
    if not entry.any_words and any(WORDS in word for word in words):
        return None
    options = entry.options
    found: list[tuple[str, str | None]] = []
    operands: list[str] = []
    at = 0
    while at < len(words):
        word = words[at]
        if word == "--":
            operands += words[at + 1 :]
            break
        if not word.startswith("-") or word == "-":
            if may_be_option(word) and not entry.any_words:
                return None
            operands.append(word)
            at += 1
            continue
        taken = _parse_option(words, at, options)
        if taken is None:
            return None
        # A glob in place of a value may match several files: the others are operands.
        operands += [one for one in words[at + 1 : taken[0]] if is_glob(one)]
        if any(is_glob(value or "") and options[name].role not in ("", "p") for name, value in taken[1]):
            return None
        at = taken[0]
        found += taken[1]
    roles = [(value, options[name].role) for name, value in found if name in options]
    return ParsedArguments(
        options=tuple(found),
        operands=tuple(operands),
        reads=tuple(value for value, role in roles if value not in (None, "-") and "r" in role),
        writes=tuple(value for value, role in roles if value is not None and "w" in role),
        has_program=any("p" in role for _, role in roles),
    )


def _parse_option(
    words: tuple[str | None, ...], at: int, options: Mapping[str, CommandOption]
) -> tuple[int, list[tuple[str, str | None]]] | None:
    """The options in this word with their values, and the index after them."""
    word = words[at]
    assert word is not None
    if word in options and (word.startswith("--") or len(word) != 2):
        return _with_values(words, at, word, options[word])
    if word.startswith("--"):
        name, equals, value = word.partition("=")
        option = options.get(name)
        if option is None or not equals or not (option.attached or option.values == 1):
            return None
        return at + 1, [(name, value)]
    if "-#" in options and word[1:].isascii() and word[1:].isdigit():
        return at + 1, [("-#", word[1:])]
    found: list[tuple[str, str | None]] = []
    for index in range(1, len(word)):
        name = "-" + word[index]
        option = options.get(name)
        if option is None:
            return None
        rest = word[index + 1 :]
        if rest and (option.attached or option.values == 1):
            return at + 1, [*found, (name, rest)]
        if option.values:
            taken = None if rest else _with_values(words, at, name, option)
            return None if taken is None else (taken[0], [*found, *taken[1]])
        found.append((name, None))
    return at + 1, found


def _with_values(
    words: tuple[str | None, ...], at: int, name: str, option: CommandOption
) -> tuple[int, list[tuple[str, str | None]]] | None:
    after = at + 1 + option.values
    if after > len(words) or None in words[at + 1 : after]:
        return None
    return after, [(name, words[after - 1] if option.values else None)]


def uses_network(words: tuple[str | None, ...]) -> bool:
    """Whether a command uses the network."""
    if not words or words[0] is None:
        return False
    name = words[0].rsplit("/", 1)[-1]
    table = command_table()
    if name in table.network:
        return True
    subcommands = table.network_subcommands.get(name)
    if subcommands is None:
        return False
    at = skip_options(words, table.global_options.get(name, {}), 1)
    subcommand = "" if at is None or at >= len(words) else words[at] or ""
    return "*" in subcommands or subcommand in subcommands
