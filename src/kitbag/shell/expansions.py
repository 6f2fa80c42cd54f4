"""What a word of shell text can expand to: templates, texts in which noncharacters stand for what is unknown.

Used by `variables` and `parts` for words that `words` has no value for. A template describes every text that bash may
pass; a word that can't be described has none. The noncharacters never occur in text: `analysis` rejects them.
"""

import re
from typing import Final, NamedTuple

from kitbag.shell.words import decode_ansi

TEXT: Final = "\ufdd0"
"""Any text, inside one word."""
WORDS: Final = "\ufdd1"
"""Any number of words of any text, or none."""
STAR: Final = "\ufdd2"
"""What `*` matches in names of existing files."""
ONE: Final = "\ufdd3"
"""What `?` or brackets match."""
UNQUOTED: Final = "\ufdd4"
"""At the start: the names of files are split at spaces and expanded again."""
BELOW: Final = "\ufdd5"
"""Any file below the directory before it whose name ends with the text after it."""
TRACKED: Final = "\ufdd6"
"""After `BELOW`: only files that git tracks."""
GLOB_MARKERS: Final = STAR + ONE
_UNKNOWN = re.compile(f"[{TEXT}{WORDS}]")
_MARKERS = re.compile("[\ufdd0-\ufdd6]")

_SHOWN: Final = str.maketrans({TEXT: "…", WORDS: "…", STAR: "*", ONE: "?", UNQUOTED: "", BELOW: "**", TRACKED: ""})
_MAX_BRACES: Final = 64
_MAX_NESTED: Final = 8
_MAX_PIECES: Final = 64
_LITERAL = re.compile(r"[^\\'\"$`*?\[{~<>()]+")
_LITERAL_QUOTED = re.compile(r"[^\"\\$`]+")
_VARIABLE = re.compile(r"\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)\})", re.ASCII)
_NUMBER = re.compile(r"\$(?:[?#$!]|\{#[A-Za-z_]\w*\})", re.ASCII)
_POSITIONAL = re.compile(r"\$(?:[0-9@*-]|\{[0-9@*]+\})")
# Operators that only select part of the value, or replace it by a plain default.
_DERIVED = re.compile(r"\$\{([A-Za-z_]\w*)(?:\[[0-9@*]*\])?(?!:?[?=])(?::?[-+#%/,^:][^{}'\"`$\\]*)?\}", re.ASCII)
_ARITHMETIC = re.compile(r"\$\(\([\d\s+*/%<>=!&|^~?:-]*\)\)", re.ASCII)
_ANSI = re.compile(r"\$'((?:[^'\\]|\\.)*)'", re.DOTALL)
_BACKTICKS = re.compile(r"`(?:[^`\\]|\\.)*`", re.DOTALL)
_BRACKETS = re.compile(r"\[[!^]?\]?[\w.,!^-]*\]", re.ASCII)
_PROCESS = re.compile(r"<\(")
_BRACE = re.compile(r"([^{}'\"\\$`]*)\{([^{}'\"\\$`\s]*)\}(.*)", re.DOTALL)
_BRACE_RANGE = re.compile(r"(\d{1,4})\.\.(\d{1,4})", re.ASCII)
# Prints a hash or the name of a branch or tag, which never begins with a dash.
_PRINTS_REVISION = re.compile(
    r"git (?:rev-parse(?: --short| --verify| --abbrev-ref)? [\w./@~^]+|merge-base [\w./@~^]+ [\w./@~^]+"
    r"|describe(?: --tags| --always| --abbrev=0)*|branch --show-current)",
    re.ASCII,
)
_AFTER_DIRECTORY = re.compile(r'"?(?:/|$)')
# Where a parenthesis may not be balanced.
_UNBALANCED = re.compile(r"\bcase\b|#|<<")
_ESCAPED_IN_DOUBLE = frozenset('"\\$`\n')


class LiteralPiece(NamedTuple):
    text: str


class GlobPiece(NamedTuple):
    marker: str
    raw: str


class UnknownPiece(NamedTuple):
    quoted: bool
    name: str = ""
    """The variable that it is derived from."""
    command: str = ""
    """The text of a command substitution."""


class VariablePiece(NamedTuple):
    name: str
    quoted: bool


Piece = LiteralPiece | GlobPiece | UnknownPiece | VariablePiece


def has_unknown(template: str) -> bool:
    return _UNKNOWN.search(template) is not None


def has_marker(template: str) -> bool:
    return _MARKERS.search(template) is not None


def is_glob(template: str) -> bool:
    return STAR in template or ONE in template


def may_be_several(template: str) -> bool:
    """Whether it stands for the names of any number of files."""
    return is_glob(template) or BELOW in template


def glob_directory(template: str) -> str:
    """The directory before the first component with a glob; empty for the working directory."""
    parts = template.removeprefix(UNQUOTED).split("/")
    fixed = parts[: next(number for number, part in enumerate(parts) if is_glob(part))]
    return "/" if fixed == [""] else "/".join(fixed)


def show_template(template: str) -> str:
    """For people, in the shell's own characters."""
    return template.translate(_SHOWN)


def may_be_option(template: str) -> bool:
    """Whether unknown text at its start may be a dash. Names of files are compared when they are known."""
    return template[:1] in (TEXT, WORDS)


def expand_braces(raw: str) -> list[str]:
    """The words that `a{b,c}` stands for; the word itself if braces mean nothing here or are too complex."""
    match = _BRACE.fullmatch(raw) if raw.count("{") <= _MAX_NESTED else None
    if match is None:
        return [raw]
    before, inside, after = match.groups()
    numbers = _BRACE_RANGE.fullmatch(inside)
    if numbers is not None:
        first, last = int(numbers[1]), int(numbers[2])
        if numbers[1].startswith("0") or numbers[2].startswith("0") or not 0 <= last - first < _MAX_BRACES:
            return [raw]
        choices = [str(number) for number in range(first, last + 1)]
    elif "," in inside:
        choices = inside.split(",")
    else:
        return [raw]
    if len(choices) > _MAX_BRACES:
        return [raw]
    words = [before + choice + rest for choice in choices for rest in expand_braces(after)]
    return words if len(words) <= _MAX_BRACES and all(words) else [raw]


def parse_pieces(raw: str) -> tuple[Piece, ...] | None:
    """None if the word has a form that is not understood."""
    if raw.count("(") > _MAX_NESTED:
        return None
    if _PROCESS.match(raw):
        end = _after_parentheses(raw, 2)
        return (LiteralPiece("/dev/stdin"),) if end == len(raw) else None
    pieces: list[Piece] = []
    at = 0
    while at < len(raw):
        after = _parse_piece(raw, at, pieces)
        if after is None or len(pieces) > _MAX_PIECES:
            return None
        at = after
    first = next((piece for piece in pieces if not isinstance(piece, LiteralPiece) or piece.text), None)
    if isinstance(first, LiteralPiece) and first.text.startswith("~") and not (raw == "~" or raw.startswith("~/")):
        return None  # quoted it is not the home directory; neither is `~user`
    return tuple(pieces)


def _parse_piece(raw: str, at: int, pieces: list[Piece]) -> int | None:
    """Add the piece at `at` and return the index after it."""
    character = raw[at]
    plain = _LITERAL.match(raw, at)
    if plain is not None:
        pieces.append(LiteralPiece(plain.group()))
        return plain.end()
    if character in "$`":
        return _parse_expansion(raw, at, pieces, quoted=False)
    if character == "\\":
        text = raw[at + 1 : at + 2]
        pieces.append(LiteralPiece("" if text == "\n" else text))
        return at + 2 if text else None
    if character == "'":
        closing = raw.find("'", at + 1)
        pieces.append(LiteralPiece(raw[at + 1 : closing]))
        return closing + 1 if closing > 0 else None
    if character == '"':
        return _parse_quoted(raw, at + 1, pieces)
    if character in "*?":
        pieces.append(GlobPiece(STAR if character == "*" else ONE, character))
        return at + 1
    if character == "[":
        brackets = _BRACKETS.match(raw, at)
        if brackets is None and "]" in raw[at:]:
            return None
        pieces.append(LiteralPiece("[") if brackets is None else GlobPiece(ONE, brackets.group()))
        return at + 1 if brackets is None else brackets.end()
    if character == "{":
        if "," in raw or ".." in raw:
            return None
        pieces.append(LiteralPiece("{"))
        return at + 1
    if character == "~" and (at == 0 or raw[at - 1] not in "=:"):
        pieces.append(LiteralPiece("~"))
        return at + 1
    return None


def _parse_quoted(raw: str, at: int, pieces: list[Piece]) -> int | None:
    """Inside double quotes; returns the index after the closing one."""
    pieces.append(LiteralPiece(""))  # so that an empty word is a word
    while at < len(raw):
        plain = _LITERAL_QUOTED.match(raw, at)
        if plain is not None:
            pieces.append(LiteralPiece(plain.group()))
            at = plain.end()
        elif raw[at] == '"':
            return at + 1
        elif raw[at] == "\\":
            following = raw[at + 1 : at + 2]
            escaped = "" if following == "\n" else following if following in _ESCAPED_IN_DOUBLE else "\\" + following
            pieces.append(LiteralPiece(escaped))
            at += 2
        else:
            after = _parse_expansion(raw, at, pieces, quoted=True)
            if after is None:
                return None
            at = after
    return None


def _parse_expansion(raw: str, at: int, pieces: list[Piece], *, quoted: bool) -> int | None:
    """A `$` or a backtick."""
    if raw[at] == "`":
        match = _BACKTICKS.match(raw, at)
        pieces.append(UnknownPiece(quoted))
        return match.end() if match else None
    if (match := _VARIABLE.match(raw, at)) is not None:
        pieces.append(VariablePiece(match[1] or match[2], quoted))
        return match.end()
    if (match := _NUMBER.match(raw, at)) is not None:
        pieces.append(LiteralPiece("0"))
        return match.end()
    if (match := _ARITHMETIC.match(raw, at)) is not None:
        pieces.append(UnknownPiece(True))  # a number is one word
        return match.end()
    if raw.startswith("$((", at):
        return None  # evaluates variables
    if raw.startswith("$(", at):
        end = _after_parentheses(raw, at + 2)
        inner = raw[at + 2 : (end or 0) - 1].strip()
        if _PRINTS_REVISION.fullmatch(inner):
            pieces.append(LiteralPiece("HEAD"))
        elif inner == "pwd" and quoted and at == 1 and end is not None and _AFTER_DIRECTORY.match(raw, end):
            pieces.append(LiteralPiece("."))
        else:
            pieces.append(UnknownPiece(quoted, command=inner))
        return end
    if (match := _DERIVED.match(raw, at)) is not None:
        pieces.append(UnknownPiece(quoted, match[1]))
        return match.end()
    if (match := _POSITIONAL.match(raw, at)) is not None:
        pieces.append(UnknownPiece(quoted and "@" not in match.group()))
        return match.end()
    if not quoted and (match := _ANSI.match(raw, at)) is not None:
        decoded = decode_ansi(match[1])
        pieces.append(LiteralPiece(decoded or ""))
        return match.end() if decoded is not None else None
    if not quoted and raw.startswith('$"', at):
        return _parse_quoted(raw, at + 2, pieces)
    following = raw[at + 1 : at + 2]
    if following in ("", "/", " ", ".", ",", ":", ")", "|", '"', "'", "\\") and not (not quoted and following in "'\""):
        pieces.append(LiteralPiece("$"))
        return at + 1
    return None


def _after_parentheses(raw: str, at: int) -> int | None:
    """The index after the parenthesis that closes the one before `at`."""
    if _UNBALANCED.search(raw, at):
        return None
    depth = 1
    while at < len(raw):
        character = raw[at]
        if character == "\\":
            at += 1
        elif character == "'":
            at = raw.find("'", at + 1)
            if at < 0:
                return None
        elif character == '"':
            scratch: list[Piece] = []
            after = _parse_quoted(raw, at + 1, scratch)
            if after is None:
                return None
            at = after - 1
        elif character == "(":
            depth += 1
        elif character == ")":
            depth -= 1
            if depth == 0:
                return at + 1
        at += 1
    return None
