"""Which files the output of a pipeline can name: what `find src -name '*.py' | xargs wc -l` passes to wc.

Used by `parts` to classify a command behind xargs, and by `variables` for `$(git ls-files)`. Only programs that print
paths below what they read are known; anything else is unknown.
"""

import re
from collections.abc import Sequence
from typing import Final

from kitbag.shell.command_table import classify
from kitbag.shell.expansions import BELOW, TRACKED, UNQUOTED, has_marker
from kitbag.shell.scan import scan
from kitbag.shell.words import parse_word
from kitbag.text.secret_paths import secret_path_reason

Words = Sequence[str | None]
# They print names, sizes and counts, not what the files contain.
WITHOUT_CONTENTS: Final = frozenset(
    ("wc", "ls", "du", "stat", "file", "basename", "dirname", "echo", "realpath", "md5sum", "sha1sum", "sha256sum")
)
_FILTERS: Final = frozenset(("head", "tail", "sort", "uniq"))
_XARGS_OPTION = re.compile(r"-0|--null|-r|--no-run-if-empty|-t|-[nPL][0-9]+")
_NUL_SEPARATED: Final = frozenset(("-0", "--null"))
_XARGS_OPTION_WITH_NUMBER: Final = frozenset(("-n", "-P", "-L"))
_SUFFIX_PATTERN = re.compile(r"\*(\.\w+)+", re.ASCII)
_HIDDEN: Final = re.compile(r"--hidden|--no-ignore.*|--unrestricted|-\w*[uHI.]\w*")


def piped_words(
    xargs: Sequence[str | None], command: Sequence[str | None], sources: Sequence[Words]
) -> tuple[str, ...]:
    """Templates of the words that xargs adds to a command; empty if unknown. `xargs`: its own words. `sources`: the
    commands before it in the pipeline."""
    if not _is_plain_xargs(xargs[1:]) or not command or command[0] is None:
        return ()
    templates = _templates(sources, needs_suffix=command[0] not in WITHOUT_CONTENTS)
    is_split = _NUL_SEPARATED.isdisjoint(xargs)
    return templates if is_split else tuple(template.removeprefix(UNQUOTED) for template in templates)


def substituted_words(text: str) -> tuple[str, ...]:
    """Templates of the words that `$(text)` stands for; empty if unknown."""
    scanned = scan(text)
    if scanned.ambiguities or scanned.uncertainties or not scanned.commands or len(scanned.frames) > 1:
        return ()
    for number, command in enumerate(scanned.commands):
        targets = [text[start:end] for _, (start, end) in command.redirects]
        if command.assignments or set(targets) - {"/dev/null"} or (command.connector == "|") != (number > 0):
            return ()
    sources = [[parse_word(text[start:end]).value for start, end in command.words] for command in scanned.commands]
    return _templates(sources, needs_suffix=True)


def _templates(sources: Sequence[Words], needs_suffix: bool) -> tuple[str, ...]:
    remaining = list(sources)
    while remaining and _is_filter(remaining[-1]):
        remaining.pop()
    directories = _printed_below(remaining[-1], needs_suffix) if remaining else ()
    return tuple(f"{UNQUOTED}{directory}" for directory in directories)


def _is_plain_xargs(options: Sequence[str | None]) -> bool:
    at = 0
    while at < len(options):
        word = options[at]
        if word in _XARGS_OPTION_WITH_NUMBER and at + 1 < len(options) and (options[at + 1] or "").isdigit():
            at += 2
        elif word is not None and _XARGS_OPTION.fullmatch(word):
            at += 1
        else:
            return False
    return True


def _is_filter(words: Words) -> bool:
    """Prints some of the lines that it is given."""
    if not words or None in words:
        return False
    operands = [word for word in words[1:] if word is not None and not word.startswith("-") and not word.isdigit()]
    if words[0] in _FILTERS:
        return not operands
    is_plain_grep = words[0] in ("grep", "egrep") and len(operands) == 1
    return is_plain_grep and all(re.fullmatch(r"-[vEiFwx]+", word or "") for word in words[1:] if word not in operands)


def _printed_below(words: Words, needs_suffix: bool) -> tuple[str, ...]:
    """Templates of the files that a command prints; empty if unknown."""
    known = tuple(word for word in words if word is not None)
    if len(known) < len(words) or not known:
        return ()
    classification = classify(known)
    reads = classification.reads
    if classification.kind != "read" or any(map(has_marker, reads)):
        return ()
    below = tuple(f"{path.rstrip('/')}/{BELOW}" for path in reads)
    if known[0] == "find":
        patterns = [known[at + 1] for at, word in enumerate(known[:-1]) if word in ("-name", "-iname")]
        negated = {"!", "-not", "-o", "-or", ","} & set(known)
        if not needs_suffix:
            return below
        is_safe = bool(patterns) and not negated and all(map(_is_harmless_suffix, patterns))
        return tuple(path + pattern[1:] for path in below for pattern in patterns[:1]) if is_safe else ()
    if known[0] == "git" and "--name-only" in known and {"diff", "log", "show", "diff-tree"} & set(known):
        return (f"./{BELOW}{TRACKED}",)
    if known[:2] == ("git", "ls-files"):
        return () if {"-o", "--others", "-i", "--ignored"} & set(known) else (f"./{BELOW}{TRACKED}",)
    if known[0] == "rg" and {"-l", "--files", "--files-with-matches"} & set(known):
        return () if any(_HIDDEN.fullmatch(word) for word in known[1:]) else below
    if known[0] == "grep" and any(re.fullmatch(r"-\w*l\w*|--files-with-matches", word) for word in known[1:]):
        return below
    return ()


def _is_harmless_suffix(pattern: str) -> bool:
    return _SUFFIX_PATTERN.fullmatch(pattern) is not None and not secret_path_reason(f"/x/{pattern.replace('*', 'x')}")
