"""The value of a word of shell text after quote removal, if it is known before run time.

Used by `parts`. A word that depends on a variable, a command, existing files (`*`, `?`, `[`) or braces has no value;
neither have words for which bash's rules are unclear.
"""

import re
from typing import NamedTuple

_PLAIN = re.compile(r"[A-Za-z0-9_./,:@%+^=-]+", re.ASCII)
_PIECE = re.compile(
    r"(?P<plain>[^\\'\"$`*?\[{~<>()]+)|(?P<escape>\\.)|'(?P<single>[^']*)'|\$'(?P<ansi>(?:[^'\\]|\\.)*)'"
    r"|\"(?P<double>(?:[^\"\\$`]|\\.|\$(?![\w@*#?$!({\[-]))*)\"|(?P<dollar>\$(?![\w@*#?$!({\['\"-]))"
    r"|(?P<bracket>\[)|(?P<brace>\{)|(?P<tilde>~)",
    re.DOTALL | re.ASCII,
)
_EXPANSION = re.compile(
    r"\$\{[^{}]*\}|\$\([^()]*\)|\$[A-Za-z_]\w*|\$[0-9@*#?$!-]|`[^`]*`|[<>]\([^()]*\)", re.DOTALL | re.ASCII
)
_QUOTING = re.compile(r"\\\n|\\(?=.)|\$(?=['\"])|['\"]", re.DOTALL)
_ESCAPED_IN_DOUBLE = re.compile(r"\\([\"\\$`\n])")
_ANSI_ESCAPE = re.compile(
    r"\\(?:x([0-9a-fA-F]{1,2})|([0-7]{1,3})|u([0-9a-fA-F]{1,4})|U([0-9a-fA-F]{1,8})|c(.)|(.))", re.DOTALL
)
_ANSI_LETTERS = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "e": "\x1b", "E": "\x1b", "f": "\f", "v": "\v"}


class ShellWord(NamedTuple):
    raw: str
    """As written."""
    value: str | None
    """The argument that the command receives; None if unknown. A leading `~` means the home directory."""
    bare: str
    """Its value if every expansion were empty: what `cu$x"rl"` most likely hides."""


def parse_word(raw: str) -> ShellWord:
    if _PLAIN.fullmatch(raw):
        return ShellWord(raw, raw, raw)
    value = _value(raw)
    return ShellWord(raw, value, value if value is not None else _bare(raw))


def _value(raw: str) -> str | None:
    if "{" in raw and ("," in raw or ".." in raw) and _has_unquoted_brace(raw):
        return None
    globs = "]" in raw
    parts: list[str] = []
    at = 0
    while at < len(raw):
        match = _PIECE.match(raw, at)
        if match is None or (globs and match.lastgroup == "bracket"):
            return None
        kind = match.lastgroup
        text = match.group(kind) if kind else ""
        if kind == "escape":
            text = "" if text == "\\\n" else text[1]
        elif kind == "ansi":
            decoded = decode_ansi(text)
            if decoded is None:
                return None
            text = decoded
        elif kind == "double":
            text = _ESCAPED_IN_DOUBLE.sub(lambda found: "" if found.group(1) == "\n" else found.group(1), text)
        elif kind == "tilde" and at > 0 and raw[at - 1] in "=:":
            return None
        if at == 0 and text.startswith("~") and not (kind == "tilde" and (raw == "~" or raw.startswith("~/"))):
            return None  # quoted it is not the home directory; neither are `~user` and `~+`
        parts.append(text)
        at = match.end()
    value = "".join(parts)
    # A value that begins with `~` after an empty quote would be taken for the home directory.
    return None if value.startswith("~") and not raw.startswith("~") else value


def _has_unquoted_brace(raw: str) -> bool:
    at = 0
    while at < len(raw):
        match = _PIECE.match(raw, at)
        if match is None or match.lastgroup == "brace":
            return True
        at = match.end()
    return False


def decode_ansi(text: str) -> str | None:
    unclear = False

    def decode(match: re.Match[str]) -> str:
        nonlocal unclear
        digits = match.group(1) or match.group(3) or match.group(4)
        if match.group(5) is not None:
            unclear = True
            return ""
        if digits is not None or match.group(2) is not None:
            number = int(digits, 16) if digits is not None else int(match.group(2), 8)
            if not 0 < number < 128:  # NUL ends the word, and values above ASCII depend on the locale
                unclear = True
                return ""
            return chr(number)
        letter = match.group(6)
        return _ANSI_LETTERS.get(letter) or (letter if letter in "\\'\"?" else "\\" + letter)

    decoded = _ANSI_ESCAPE.sub(decode, text)
    return None if unclear else decoded


def _bare(raw: str) -> str:
    for _ in range(4):
        raw, count = _EXPANSION.subn("", raw)
        if not count:
            break
    return _QUOTING.sub("", raw)
