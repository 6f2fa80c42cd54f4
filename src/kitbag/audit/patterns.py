"""Matches the patterns of rules.toml against one text, in bounded time even for hostile input.

Searches for words first, and applies the expression only to lines around them; each pattern examines a limited
amount of text and reports if it reached the limit. Used by examine_item; uses regions and rules.
"""

import functools
import re
from collections.abc import Iterable
from typing import Final, NamedTuple

import msgspec

from kitbag.audit.findings import Confidence, Severity, cap_severity
from kitbag.audit.regions import EXAMPLE_ROLES, PROSE_ROLES, AuditedText, RegionRole
from kitbag.audit.rules import RulePattern, load_patterns
from kitbag.audit.word_index import WordTable, index_words
from kitbag.library.names import confusable_skeleton
from kitbag.text.hidden_characters import remove_hidden

MAX_EXAMINED: Final = 60_000
"""Characters that one pattern examines in one file; ordinary files have far fewer."""
MAX_WINDOW: Final = 2000
_CONTINUED = re.compile(r"(?:\\|\||&&)[ \t]*\n")
_DISGUISE = re.compile(r"''|\"\"|\\(?=[a-z])|\$\{IFS\}|\$IFS(?![A-Z_])|\$@|(?<=[a-z])\$\{[A-Za-z_]\w?\}(?=[a-z])")
_QUOTE_MARK = re.compile(r"\n[ \t]*(?:>[ \t]?|[#/]{1,2}[ \t]|(?P<bullet>[*-]{1,2}[ \t]))?")
_TEXT_CODE: Final[frozenset[str]] = frozenset(("", "text", "txt", "md", "markdown", "prompt", "xml", "plaintext"))


class RuleHit(msgspec.Struct, frozen=True, kw_only=True):
    rule: str
    start: int
    end: int
    severity: Severity | None = None
    """None: the rule's severity."""
    confidence: Confidence | None = None
    note: str = ""
    is_compound: bool = False
    """Several facts together, none of which would count on its own."""
    is_final: bool = False
    """The detector considered the context; do not adjust the severity."""


class ScanResult(NamedTuple):
    hits: list[RuleHit]
    exhausted: list[str]
    """Rules that stopped before the end of the text."""


def scan_patterns(source: AuditedText) -> ScanResult:
    hits: list[RuleHit] = []
    exhausted: list[str] = []
    for at in sorted(_pattern_table().find(source.words)):
        pattern = load_patterns()[at]
        words = words_in(source, pattern.words)
        if not words or (pattern.also and not words_in(source, pattern.also)):
            continue
        if not _search_pattern(source, pattern, words, hits):
            exhausted.append(pattern.rule)
    return ScanResult(hits, exhausted)


@functools.cache
def _pattern_table() -> WordTable[int]:
    return WordTable({at: pattern.words for at, pattern in enumerate(load_patterns())})


_group = functools.cache(index_words)


def words_in(source: AuditedText, words: tuple[str, ...]) -> list[str]:
    """Those of the words that the text contains."""
    return source.words.of_group(_group(words))


def _search_pattern(source: AuditedText, pattern: RulePattern, words: list[str], hits: list[RuleHit]) -> bool:
    """False if there was too much to examine."""
    examined = 0
    is_prose = pattern.where in ("text", "prose")
    offset = -1
    after = 0
    search = WordSearch(source.lower, words)
    while (offset := search.find(max(after, offset + 1))) >= 0:
        begin, window = text_window(source, offset) if is_prose else command_window(source, offset)
        after = begin + len(window)
        examined += len(window) + 64
        if examined > MAX_EXAMINED:
            return False
        # A match at the end of a window may need the next lines: the next window starts in this one's last line.
        for start, end in _matches(pattern.regex, window, is_prose):
            role, language = source.role_at(begin + start)
            if _applies_to_role(role, language, pattern.where):
                severity = (
                    cap_severity(pattern.severity, pattern.max_example_severity)
                    if role in EXAMPLE_ROLES
                    else pattern.severity
                )
                hits.append(
                    RuleHit(
                        rule=pattern.rule,
                        start=begin + start,
                        end=begin + end,
                        severity=severity,
                        confidence=pattern.confidence,
                    )
                )
        if is_prose:
            newline = source.text.find("\n", offset, after)
            after = newline if newline >= 0 else after
    return True


class WordSearch:
    """Where any of some words occurs next in a text."""

    __slots__ = ("_next", "_text")

    def __init__(self, text: str, words: list[str]) -> None:
        self._text = text
        self._next = dict.fromkeys(words, -1)

    def find(self, start: int) -> int:
        """The first offset that is not before `start`, which only grows; -1 if there is none."""
        nearest = -1
        for word, known in list(self._next.items()):
            offset = known
            if offset < start:
                offset = self._text.find(word, start)
                if offset < 0:
                    del self._next[word]
                    continue
                self._next[word] = offset
            if nearest < 0 or offset < nearest:
                nearest = offset
        return nearest


class LineMatch(NamedTuple):
    start: int
    end: int
    match: "re.Match[str]"
    """Its offsets are relative to the line."""


class LineMatches:
    """Matches of an expression in lines around words, bounded like the patterns."""

    __slots__ = ("exhausted", "found")

    def __init__(self, source: AuditedText, regex: "re.Pattern[str]", words: Iterable[str]) -> None:
        """`words` are a tuple, or those of it that the text contains."""
        self.found: list[LineMatch] = []
        """In order."""
        self.exhausted = False
        present = words_in(source, words) if isinstance(words, tuple) else list(words)
        if not present:
            return
        examined, after, offset = 0, 0, -1
        search = WordSearch(source.lower, present)
        while (offset := search.find(max(after, offset + 1))) >= 0:
            begin, row = source.line_text_at(offset)
            after = begin + len(row)
            examined += len(row) + 64
            if examined > MAX_EXAMINED:
                self.exhausted = True
                return
            self.found += [LineMatch(begin + m.start(), begin + m.end(), m) for m in regex.finditer(row)]


def _matches(regex: "re.Pattern[str]", window: str, is_prose: bool) -> list[tuple[int, int]]:
    spans = [(match.start(), match.end()) for match in regex.finditer(window)]
    if spans:
        return spans
    # Obfuscated text is searched again in plain form; then only the line is known.
    plain = ""
    if is_prose and not window.isascii():
        plain = confusable_skeleton(remove_hidden(window))
    elif not is_prose and _DISGUISE.search(window):
        plain = deobfuscate(window)
    if plain and regex.search(plain):
        stripped = len(window) - len(window.lstrip())
        return [(stripped, len(window))]
    return []


def deobfuscate(command: str) -> str:
    r"""Converts `cu''rl`, `c\url` and `cat${IFS}x` to what a shell sees."""
    return _DISGUISE.sub(lambda match: " " if match[0].startswith(("$I", "${I")) else "", command)


def command_window(source: AuditedText, offset: int) -> tuple[int, str]:
    """The command around an offset with its continuation lines; newlines become spaces, so offsets stay the same."""
    text = source.text
    begin, row = source.line_text_at(offset)
    end = begin + len(row)
    for _ in range(8):
        if end - begin > MAX_WINDOW or end >= len(text):
            break
        following = text[end : end + 200]
        if row.lstrip(" \t>").startswith("|"):
            break  # a table row
        ends_open = _CONTINUED.search(text[max(begin, end - 4) : end + 1])
        if not ends_open and not following.lstrip("\n \t").startswith(("|", "&&")):
            break
        if not ends_open and following[:2] == "\n\n":
            break
        newline = text.find("\n", end + 1, end + 1 + MAX_WINDOW)
        end = newline if newline >= 0 else min(len(text), end + 1 + MAX_WINDOW)
    for _ in range(4):
        above = text[max(0, begin - 4) : begin]
        if text.startswith("|", text.rfind("\n", max(0, begin - MAX_WINDOW), max(begin - 1, 0)) + 1):
            break
        if begin <= 0 or end - begin > MAX_WINDOW or not _CONTINUED.search(above):
            break
        begin = text.rfind("\n", max(0, begin - MAX_WINDOW), begin - 1) + 1
    window = text[begin:end]
    return begin, window.replace("\\\n", "  ").replace("\n", " ")


def text_window(source: AuditedText, offset: int) -> tuple[int, str]:
    """The line around an offset and its neighbors, since sentences wrap; has the same length as the text it covers."""
    text = source.text
    begin, row = source.line_text_at(offset)
    end = begin + len(row)
    if begin > 1:
        above = max(text.rfind("\n", max(0, begin - 400), begin - 1) + 1, begin - 400)
        begin = above if text[above : begin - 1].strip() else begin
    newline = text.find("\n", end + 1, end + 400)
    end = newline if newline >= 0 else min(len(text), end + 400)
    window = text[begin : min(end, begin + 2 * MAX_WINDOW)]
    window = _QUOTE_MARK.sub(lambda match: ("\n" if match["bullet"] else " ").ljust(len(match[0])), window)
    return begin, window.replace("**", "  ").replace("__", "  ")


def is_instruction_role(role: RegionRole, language: str) -> bool:
    """Whether a model reads the text as instructions."""
    return role in PROSE_ROLES or (role == "code" and language in _TEXT_CODE)


def _applies_to_role(role: RegionRole, language: str, where: str) -> bool:
    if where == "any":
        return True
    if where == "prose":
        return role in ("prose", "comment", "table")
    if where == "text":
        return is_instruction_role(role, language) or role == "config"
    return role != "prose" and role != "frontmatter"
