"""Runs the patterns of rules.toml over one text, in time that does not depend on who wrote it.

Words are searched first, the expression only in the line around one; how much is examined is bounded for each
pattern, and going over the bound is reported. Used by examine; uses regions and rules.
"""

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from kitbag.audit.findings import Confidence, Severity, at_most
from kitbag.audit.regions import EXAMPLES, WRITTEN, Role, Source
from kitbag.audit.rules import Pattern, patterns
from kitbag.library.names import skeleton
from kitbag.text.hidden_characters import remove_hidden

EXAMINED: Final = 60_000
"""Characters that one pattern looks at in one file; an honest file has far less."""
LONGEST: Final = 2000
_CONTINUED = re.compile(r"(?:\\|\||&&)[ \t]*\n")
_DISGUISE = re.compile(r"''|\"\"|\\(?=[a-z])|\$\{IFS\}|\$IFS(?![A-Z_])|\$@")
_QUOTE_MARK = re.compile(r"\n[ \t]*(?:>[ \t]?|[#*/-]{1,2}[ \t])?")
_TEXT_CODE: Final[frozenset[str]] = frozenset(("", "text", "txt", "md", "markdown", "prompt", "xml", "plaintext"))


class Hit(NamedTuple):
    rule: str
    start: int
    end: int
    severity: Severity | None = None
    """None: as the rule says."""
    confidence: Confidence | None = None
    note: str = ""
    settled: bool = False
    """The detector has looked at what stands around it; its severity is final."""


class Scan(NamedTuple):
    hits: list[Hit]
    exhausted: list[str]
    """Rules that stopped before the end of the text."""


def scan(source: Source) -> Scan:
    hits: list[Hit] = []
    exhausted: list[str] = []
    for pattern in patterns():
        words = [word for word in pattern.words if source.has(word)]
        if words and not _search(source, pattern, words, hits):
            exhausted.append(pattern.rule)
    return Scan(hits, exhausted)


def _search(source: Source, pattern: Pattern, words: list[str], hits: list[Hit]) -> bool:
    """False when there was too much to look at."""
    examined = 0
    written = pattern.where in ("text", "prose")
    after = -1
    for offset in _occurrences(source.lower, words):
        if offset < after:
            continue
        begin, window = text_window(source, offset) if written else command_window(source, offset)
        after = begin + len(window)
        examined += len(window) + 64
        if examined > EXAMINED:
            return False
        # A hit at the end of a window may need what follows it: the next window begins in this one's last line.
        for start, end in _matches(pattern.regex, window, written):
            role, language = source.role_at(begin + start)
            if _belongs(role, language, pattern.where):
                severity = at_most(pattern.severity, pattern.example) if role in EXAMPLES else pattern.severity
                hits.append(Hit(pattern.rule, begin + start, begin + end, severity, pattern.confidence))
        if written:
            newline = source.text.find("\n", offset, after)
            after = newline if newline >= 0 else after
    return True


def _occurrences(text: str, words: list[str]) -> Iterator[int]:
    """Of any of the words, from left to right."""
    if len(words) == 1:
        word, at = words[0], text.find(words[0])
        while at >= 0:
            yield at
            at = text.find(word, at + len(word))
        return
    either = re.compile("|".join(re.escape(word) for word in words))
    for match in either.finditer(text):
        yield match.start()


class Place(NamedTuple):
    start: int
    end: int
    match: "re.Match[str]"
    """Its own offsets count from the line."""


class Places:
    """Matches of an expression in the lines around words, bounded like the patterns."""

    __slots__ = ("exhausted", "found")

    def __init__(self, source: Source, regex: "re.Pattern[str]", words: tuple[str, ...]) -> None:
        self.found: list[Place] = []
        """In order."""
        self.exhausted = False
        present = [word for word in words if source.has(word)]
        examined, after = 0, -1
        for offset in _occurrences(source.lower, present) if present else ():
            if offset < after:
                continue
            begin, row = source.row_at(offset)
            after = begin + len(row)
            examined += len(row) + 64
            if examined > EXAMINED:
                self.exhausted = True
                return
            self.found += [Place(begin + m.start(), begin + m.end(), m) for m in regex.finditer(row)]


def _matches(regex: "re.Pattern[str]", window: str, written: bool) -> list[tuple[int, int]]:
    found = [(match.start(), match.end()) for match in regex.finditer(window)]
    if found:
        return found
    # What is disguised is searched once more without the disguise; then only the line is known.
    plain = ""
    if written and not window.isascii():
        plain = skeleton(remove_hidden(window))
    elif not written and _DISGUISE.search(window):
        plain = undisguised(window)
    if plain and regex.search(plain):
        stripped = len(window) - len(window.lstrip())
        return [(stripped, len(window))]
    return []


def undisguised(command: str) -> str:
    r"""`cu''rl`, `c\url` and `cat${IFS}x` as a shell reads them."""
    return _DISGUISE.sub(lambda match: " " if match[0].startswith(("$I", "${I")) else "", command)


def command_window(source: Source, offset: int) -> tuple[int, str]:
    """The command around an offset, with its continuation lines; newlines as blanks, so that offsets stay."""
    text = source.text
    begin, row = source.row_at(offset)
    end = begin + len(row)
    for _ in range(8):
        if end - begin > LONGEST or end >= len(text):
            break
        following = text[end : end + 200]
        if row.lstrip(" \t>").startswith("|"):
            break  # a row of a table
        ends_open = _CONTINUED.search(text[max(begin, end - 4) : end + 1])
        if not ends_open and not following.lstrip("\n \t").startswith(("|", "&&")):
            break
        if not ends_open and following[:2] == "\n\n":
            break
        newline = text.find("\n", end + 1, end + 1 + LONGEST)
        end = newline if newline >= 0 else min(len(text), end + 1 + LONGEST)
    for _ in range(4):
        above = text[max(0, begin - 4) : begin]
        if text.startswith("|", text.rfind("\n", max(0, begin - LONGEST), max(begin - 1, 0)) + 1):
            break
        if begin <= 0 or end - begin > LONGEST or not _CONTINUED.search(above):
            break
        begin = text.rfind("\n", max(0, begin - LONGEST), begin - 1) + 1
    window = text[begin:end]
    return begin, window.replace("\\\n", "  ").replace("\n", " ")


def text_window(source: Source, offset: int) -> tuple[int, str]:
    """The line around an offset and its neighbours, for sentences go on; of one length with the text."""
    text = source.text
    begin, row = source.row_at(offset)
    end = begin + len(row)
    if begin > 1:
        above = max(text.rfind("\n", max(0, begin - 400), begin - 1) + 1, begin - 400)
        begin = above if text[above : begin - 1].strip() else begin
    newline = text.find("\n", end + 1, end + 400)
    end = newline if newline >= 0 else min(len(text), end + 400)
    window = text[begin : min(end, begin + 2 * LONGEST)]
    window = _QUOTE_MARK.sub(lambda match: " " * len(match[0]), window)
    return begin, window.replace("**", "  ").replace("__", "  ")


def _belongs(role: Role, language: str, where: str) -> bool:
    if where == "any":
        return True
    if where == "prose":
        return role in ("prose", "comment", "table")
    if where == "text":
        return role in WRITTEN or (role == "code" and language in _TEXT_CODE) or role == "config"
    return role != "prose" and role != "head"
