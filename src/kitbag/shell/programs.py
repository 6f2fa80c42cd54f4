"""Checks the arguments of some programs: scripts of sed and awk, the expression of find, where cp writes.

Entries of commands.toml name functions of `CHECKS`, and `command_table` calls them. Each returns the table's
classification or a weaker one; anything it doesn't understand is "other".
"""

import posixpath
import re
from collections.abc import Mapping
from typing import Final

import msgspec

from kitbag.shell.classification import (
    OTHER,
    UNKNOWN_PATH,
    UNKNOWN_WORD,
    Classification,
    ParsedArguments,
    ProgramCheck,
)
from kitbag.shell.expansions import TEXT, WORDS, has_marker, has_unknown, may_be_several
from kitbag.store.secret_names import is_secret_name

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


_RUNS_OR_WRITES: Final = Classification(kind="other", reason="its script may write files or run programs")


def _sed(arguments: ParsedArguments, classification: Classification) -> Classification:
    scripts = [value for name, value in arguments.options if name in ("-e", "--expression") and value is not None]
    if not arguments.has_program:
        scripts = [arguments.operands[0]]
    if any(has_marker(script) for script in scripts):
        return UNKNOWN_WORD
    if not _sed_is_harmless("\n".join(scripts)):
        return _RUNS_OR_WRITES
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
    texts = [*(value for _, value in arguments.options if value is not None), arguments.operands[0]]
    if any(has_marker(text) for text in texts):
        return UNKNOWN_WORD
    if any(_AWK_UNSAFE.search(text) for text in texts):
        return _RUNS_OR_WRITES
    shows_environment = any("ENVIRON" in text for text in texts)
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
    is_keyword = words[-1:] == ("]]",)
    reads: list[str] = []
    for index, word in enumerate(words):
        before = words[index - 1] if index else ""
        after = words[index + 1] if index + 1 < len(words) else ""
        if WORDS in word or may_be_several(word) or (TEXT in word and TEXT in before and not is_keyword):
            return UNKNOWN_WORD  # several words, or two that may be `-v` and what it evaluates
        if _NUMBER_COMPARISON.fullmatch(word):
            # `[[` evaluates anything else, and that can run a command: `[[ a[$(id)] -eq 1 ]]`. `[` does not.
            if not all(_NUMBER.fullmatch(one) or (TEXT in one and not is_keyword) for one in (before, after)):
                return OTHER
        elif _FILE_COMPARISON.fullmatch(word):
            reads += [before, after]
        elif _FILE_TEST.fullmatch(before) and word not in ("]", "]]"):
            reads.append(word)
        elif len(word) == 2 and word[0] == "-" and not (_FILE_TEST.fullmatch(word) or _TEXT_TEST.fullmatch(word)):
            return OTHER
    if any(has_unknown(path) for path in reads):
        return UNKNOWN_PATH
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
    if any(map(has_marker, (*sources, *targets))):
        return UNKNOWN_PATH
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


# --- rm and chmod ---

# Never set-user-ID or sticky bits, and never a mode that keeps the owner from reading, which undo needs.
_MODE = re.compile(r"0?[4-7][0-7]{2}|[ugoa]*(?:[+=]r?w?x?X?|-w?x?)(?:,[ugoa]*(?:[+=]r?w?x?X?|-w?x?))*")


def _chmod(arguments: ParsedArguments, classification: Classification) -> Classification:
    mode = arguments.operands[0]
    plain = not has_marker(mode) and _MODE.fullmatch(mode) and not re.search(r"=(?!r)", mode)
    return classification if plain else Classification(kind="other", reason="sets unusual permissions")


# --- tar: only lists ---

_TAR_LIST = re.compile(r"-?(?:[vzjJ]*t[vzjJ]*f|t[vzjJ]*f[vzjJ]*)")


def _tar(arguments: ParsedArguments, _classification: Classification) -> Classification:
    words = arguments.operands
    if len(words) < 2 or not _TAR_LIST.fullmatch(words[0]) or any(word.startswith("-") for word in words[1:]):
        return OTHER
    return UNKNOWN_PATH if any(map(has_marker, words)) else Classification(kind="read", reads=words[1:2])


# --- Builtins and queries with one harmless form ---

_READABLE_NAME = re.compile(r"[a-z_][a-z0-9_]*")
_SETTING_WITHOUT_SECRETS = re.compile(
    r"user\.(?:name|email)|init\.defaultbranch|(?:pull|push|fetch|merge|rebase|commit|diff|branch|log|color|core)\.[a-z]+"
    r"|branch\.[\w./-]+\.(?:remote|merge|rebase)",
    re.IGNORECASE,
)
_NPM_SETTING_WITHOUT_SECRETS = re.compile(r"[a-z][a-z-]*")


def _printenv(arguments: ParsedArguments, classification: Classification) -> Classification:
    names = arguments.operands
    if not names or any(has_marker(name) for name in names):
        return Classification(kind="other", reason="prints environment variables")
    secret = next((name for name in names if is_secret_name(name)), "")
    return (
        Classification(kind="other", reason=f"prints ${secret}, which may hold a secret") if secret else classification
    )


def _read(arguments: ParsedArguments, classification: Classification) -> Classification:
    """Lowercase names, so that no variable that programs know is set."""
    safe = all(
        _READABLE_NAME.fullmatch(name) and "proxy" not in name and name[:4] != "npm_" for name in arguments.operands
    )
    return classification if safe else Classification(kind="other", reason="sets a variable that may affect programs")


def _git_config(arguments: ParsedArguments, classification: Classification) -> Classification:
    """With one operand it prints a setting; URLs and credentials may hold secrets."""
    plain = _SETTING_WITHOUT_SECRETS.fullmatch(arguments.operands[0])
    return classification if plain else Classification(kind="other", reason="may print a credential")


def _npm_config(arguments: ParsedArguments, classification: Classification) -> Classification:
    verb, name = arguments.operands
    plain = verb == "get" and _NPM_SETTING_WITHOUT_SECRETS.fullmatch(name) and not is_secret_name(name)
    return classification if plain else OTHER


def _requires(*options: str) -> ProgramCheck:
    """One of these options must be given."""

    def check(arguments: ParsedArguments, classification: Classification) -> Classification:
        return classification if any(name in options for name, _ in arguments.options) else OTHER

    return check


# --- Programs with one harmless form ---


def _date(arguments: ParsedArguments, classification: Classification) -> Classification:
    return classification if all(word.startswith("+") for word in arguments.operands) else OTHER


def _printf(arguments: ParsedArguments, classification: Classification) -> Classification:
    form = arguments.operands[0]
    if has_marker(form):
        return UNKNOWN_WORD
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
    "notes": _first("list", "show", alone=True),
    "chmod": _chmod,
    "tar": _tar,
    "unzip": _requires("-l", "-v", "-t"),
    "printenv": _printenv,
    "read": _read,
    "git_config": _git_config,
    "npm_config": _npm_config,
    "get": _first("get", alone=False),
    "uv_pip": _first("list", "show", "freeze", "tree", "check", alone=False),
    "uv_python": _first("list", "find", alone=False),
    "poetry_env": _first("info", "list", alone=False),
    "query": _requires(
        "-l", "--list", "-L", "--listfiles", "-s", "--status", "-S", "--search", "-q", "-qa", "-ql", "-qi", "-qf"
    ),
    "go_mod": _first("graph", "why", "verify", alone=False),
    "ls": _first("ls", "list", alone=False),
    "docker_system": _first("df", "info", alone=False),
    "docker_compose": _first("ps", "ls", "version", "images", "top", alone=False),
    "kubectl_version": _requires("--client"),
    "kubectl_config": _first("current-context", "get-contexts", "get-clusters", alone=False),
}
