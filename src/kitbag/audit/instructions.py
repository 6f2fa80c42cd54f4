"""Finds paragraphs whose parts are harmless alone and dangerous together: a secret, a place to send it, a wish to hide.

The combinations are in rules.toml, the expressions that they name in expressions.toml. Used by examine_item; uses
patterns for bounded windows and urls to tell whose host it is.
"""

import re
from typing import Final

from kitbag.audit.expressions import load_expression, load_words
from kitbag.audit.file_content import FileContent
from kitbag.audit.findings import AuditFile
from kitbag.audit.patterns import (
    MAX_EXAMINED,
    MAX_WINDOW,
    RuleHit,
    ScanResult,
    is_instruction_role,
    occurrences,
    words_in,
)
from kitbag.audit.regions import AuditedText
from kitbag.audit.rules import RuleCombination, load_combinations
from kitbag.audit.urls import foreign_hosts, is_ordinary_host

_BLANK = re.compile(r"\n[ \t>]*\n")
_MAIL = re.compile(r"(?<![\w.+/-])[\w.+-]{1,64}@([\w-]+(?:\.[\w-]+)+)")
_URL = re.compile(r"\w+://\S+|[\w.+-]+@[\w.-]+")
_OTHER_LANGUAGES: Final = ("hides_abroad", "obeys_abroad", "runs_abroad", "sends_abroad", "unasked_abroad")
_ENGLISH: Final = (" the ", " and ", " to ", " of ", " is ", " for ", " with ", " your ")
_MIN_ENGLISH: Final = 4
_MAX_JOINED: Final = 8_000
_MAX_PART: Final = 2_000
_MAX_FRAGMENT: Final = 300


def find_dangerous_instructions(source: AuditedText) -> ScanResult:
    """Paragraphs of prose that match a combination."""
    hits: list[RuleHit] = []
    exhausted: list[str] = []
    if source.content.kind != "markdown":
        return ScanResult(hits, exhausted)
    present: dict[str, list[str]] = {}
    paragraphs: dict[int, _Paragraph] = {}
    for combination in load_combinations():
        for name in combination.parts:
            words = load_words(f"instructions.{name}")
            if name not in present:
                present[name] = words_in(source, words)
            if words and not present[name]:
                break
        else:
            if not _search(source, combination, present[combination.parts[0]], paragraphs, hits):
                exhausted.append(combination.rule)
    return ScanResult(hits, exhausted)


class _Paragraph:
    """Text between blank lines, and which parts it lacks: several combinations ask for the same ones."""

    __slots__ = ("_is_foreign", "_lacks", "end", "text")

    def __init__(self, text: str, end: int) -> None:
        # Line breaks and emphasis do not end a sentence; offsets stay the same.
        self.text = text.replace("\n", " ").replace("**", "  ")
        self.end = end
        self._lacks: set[str] = set(_OTHER_LANGUAGES) if _is_english(self.text) else set()
        self._is_foreign: bool | None = None

    @property
    def is_foreign(self) -> bool:
        """Whether it names a host or an address that is neither local nor well known."""
        if self._is_foreign is None:
            self._is_foreign = ("://" in self.text and bool(foreign_hosts(self.text))) or _mails_abroad(self.text)
        return self._is_foreign

    def find(self, name: str, first: int | None = None, near: int = 0) -> int | None:
        """Where a part is; with `first`, at most `near` characters away from it."""
        if name in self._lacks:
            return None
        regex = load_expression(f"instructions.{name}")
        found = regex.search(self.text, 0 if first is None else max(0, first - near))
        if found is None:
            if first is None or first <= near:
                self._lacks.add(name)
            return None
        return found.start() if first is None or found.start() - first <= near else None


def _is_english(text: str) -> bool:
    """Whether it is plainly English: then expressions for other languages find nothing."""
    return text.isascii() and sum(text.count(word) for word in _ENGLISH) >= _MIN_ENGLISH


def _search(
    source: AuditedText,
    combination: RuleCombination,
    words: list[str],
    paragraphs: dict[int, _Paragraph],
    hits: list[RuleHit],
) -> bool:
    examined, after = 0, -1
    for offset in occurrences(source.lower, words):
        if offset < after:
            continue
        begin, after = _paragraph(source.text, offset)
        examined += after - begin + 64
        if examined > MAX_EXAMINED:
            return False
        paragraph = paragraphs.get(begin)
        if paragraph is None or paragraph.end != after:
            paragraph = paragraphs[begin] = _Paragraph(source.plain[begin:after], after)
        start = _matches(combination, paragraph)
        if start is None:
            continue
        role, language = source.role_at(begin + start)
        if role == "inline":
            # A path in a code span is not a quotation.
            start = source.line_text_at(begin + start)[0] - begin
        is_step = role != ("frontmatter" if combination.rule == "download-and-run" else "table")
        if is_instruction_role(role, language) and is_step and role != "script-comment":
            hits.append(
                RuleHit(
                    rule=combination.rule,
                    start=begin + start,
                    end=after,
                    severity=combination.severity,
                    note=combination.note,
                )
            )
    return True


def _paragraph(text: str, offset: int) -> tuple[int, int]:
    """The lines up to the blank lines around an offset, at most MAX_WINDOW characters on either side."""
    low, high = max(0, offset - MAX_WINDOW), min(len(text), offset + MAX_WINDOW)
    begin = low
    for blank in _BLANK.finditer(text, low, offset):
        begin = blank.end()
    blank = _BLANK.search(text, offset, high)
    return begin, blank.start() if blank else high


def _matches(combination: RuleCombination, paragraph: _Paragraph) -> int | None:
    """Where the first part is; None if a part is missing or too far away."""
    if combination.foreign and not paragraph.is_foreign:
        return None
    first: int | None = None
    for name in combination.parts:
        found = paragraph.find(name, first, combination.near)
        if found is None:
            return None
        first = found if first is None else first
    if combination.without:
        # `https://login.invalid` does not authenticate.
        words = _URL.sub(" ", paragraph.text)
        if any(load_expression(f"instructions.{name}").search(words) for name in combination.without):
            return None
    return first


def _mails_abroad(text: str) -> bool:
    return "@" in text and any(not is_ordinary_host(match[1].lower()) for match in _MAIL.finditer(text))


def find_split_instructions(sources: list[tuple[FileContent, str]]) -> list[tuple[str, RuleHit, str]]:
    """Combinations that match only when short files are read one after the other: file, hit, excerpt."""
    parts = [
        (content.entry, " ".join(text.split()))
        for content, text in sources
        if content.kind == "markdown" and len(text) <= _MAX_PART
    ]
    if len(parts) < 2 or sum(len(text) for _, text in parts) > _MAX_JOINED:
        return []
    return _across(parts) or _among_fragments(parts)


def _across(parts: list[tuple[AuditFile, str]]) -> list[tuple[str, RuleHit, str]]:
    texts = [text for _, text in parts]
    for combination in load_combinations():
        if combination.rule != "secret-exfiltration":
            continue
        for at, alone in enumerate(texts[:-1]):
            window = " ".join(texts[at:])[:MAX_WINDOW]
            start = _matches(combination, _Paragraph(window, 0))
            if start is None or start >= len(alone) or _matches(combination, _Paragraph(alone, 0)) is not None:
                continue
            return [_split_hit(parts[at][0], window[start:])]
    return []


def _among_fragments(parts: list[tuple[AuditFile, str]]) -> list[tuple[str, RuleHit, str]]:
    """One tiny file names a secret, another a stranger's host, and one of them says to send."""
    tiny = [(entry, _Paragraph(text, 0)) for entry, text in parts if len(text) <= _MAX_FRAGMENT]
    secrets = [(entry, text) for entry, text in tiny if text.find("secret_file") is not None]
    hosts = [text for _, text in tiny if text.is_foreign]
    sends = any(text.find("sends") is not None for _, text in tiny)
    for entry, secret in secrets:
        if sends and not secret.is_foreign and hosts and secret.find("authenticates") is None:
            return [_split_hit(entry, secret.text)]
    return []


def _split_hit(entry: AuditFile, excerpt: str) -> tuple[str, RuleHit, str]:
    note = "an instruction split over several files"
    return entry.relative, RuleHit(rule="secret-exfiltration", start=0, end=0, note=note), excerpt[:160]
