"""Finds paragraphs that say several things which are harmless alone and dangerous together.

For example: a secret, a place to send it, a wish to hide. The combinations are in rules.toml, the facts that they name
in prose_facts.toml. Used by examine_item; uses patterns for bounded windows and urls to tell whose host it is.
"""

import re
from typing import Final

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
from kitbag.audit.prose_facts import load_facts
from kitbag.audit.regions import AuditedText
from kitbag.audit.rules import RuleCombination, load_combinations
from kitbag.audit.urls import foreign_hosts, is_ordinary_host

_BLANK = re.compile(r"\n[ \t>]*\n")
_MAIL = re.compile(r"(?<![\w.+/-])[\w.+-]{1,64}@([\w-]+(?:\.[\w-]+)+)")
_URL = re.compile(r"\w+://\S+|[\w.+-]+@[\w.-]+")
_OTHER_LANGUAGES: Final = ("conceals_abroad", "obeys_abroad", "runs_abroad")
_ENGLISH: Final = (" the ", " and ", " to ", " of ", " is ", " for ", " with ", " your ")
_MIN_ENGLISH: Final = 4
_MAX_JOINED: Final = 8_000
_MAX_PART: Final = 2_000
_MAX_FRAGMENT: Final = 300
_MAX_PLACES: Final = 8
"""How often one paragraph may state one fact."""


def find_dangerous_instructions(source: AuditedText) -> ScanResult:
    """Paragraphs of prose that match a combination."""
    hits: list[RuleHit] = []
    exhausted: list[str] = []
    if source.content.kind != "markdown" and not _describes_tools(source):
        return ScanResult(hits, exhausted)
    has_hosts = "://" in source.text or "@" in source.text
    paragraphs = _Paragraphs(source)
    for combination in load_combinations():
        if (has_hosts or not combination.foreign) and all(map(paragraphs.words, combination.parts)):
            for paragraph in paragraphs.with_words(combination.parts[0]):
                hits += _check(source, combination, paragraph)
    if paragraphs.exhausted:
        exhausted += sorted({combination.rule for combination in load_combinations()})
    return ScanResult(hits, exhausted)


def _describes_tools(source: AuditedText) -> bool:
    """Whether a model reads parts of a program or a data file: descriptions of tools are instructions, too."""
    if len(source.text) > MAX_EXAMINED:
        return False
    if source.content.kind == "config":
        return source.has('"description"') and (source.has('"tools"') or source.has('"inputschema"'))
    return source.has("mcp") and source.has(".tool(")


class _Paragraph:
    """Text between blank lines, and where it states which facts: several combinations ask for the same ones."""

    __slots__ = ("_is_foreign", "_lower", "_places", "begin", "end", "text")

    def __init__(self, text: str, begin: int = 0) -> None:
        # Line breaks and emphasis do not end a sentence; offsets stay the same.
        self.text = text.replace("\n", " ").replace("**", "  ")
        self.begin = begin
        self.end = begin + len(text)
        self._lower = " ".join(self.text.lower().split())
        self._places: dict[str, list[int]] = {name: [] for name in _OTHER_LANGUAGES} if _is_english(self.text) else {}
        self._is_foreign: bool | None = None

    @property
    def is_foreign(self) -> bool:
        """Whether it names a host or an address that is neither local nor well known."""
        if self._is_foreign is None:
            self._is_foreign = ("://" in self.text and bool(foreign_hosts(self.text))) or _mails_abroad(self.text)
        return self._is_foreign

    def places(self, name: str) -> list[int]:
        """Where it states a fact; the first ones."""
        known = self._places.get(name)
        if known is None:
            known = self._places[name] = load_facts()[name].find(self.text, self._lower, _MAX_PLACES)
        return known


class _Paragraphs:
    """The paragraphs of a text, made as they are asked for."""

    __slots__ = ("_by_anchor", "_by_begin", "_examined", "_words", "exhausted", "source")

    def __init__(self, source: AuditedText) -> None:
        self.source = source
        self.exhausted = False
        self._by_begin: dict[int, _Paragraph] = {}
        self._by_anchor: dict[str, list[_Paragraph]] = {}
        self._examined = 0
        self._words: dict[str, list[str]] = {}

    def words(self, name: str) -> list[str]:
        """Those of the words of a fact that the text contains."""
        known = self._words.get(name)
        if known is None:
            known = self._words[name] = words_in(self.source, load_facts()[name].words)
        return known

    def with_words(self, name: str) -> list[_Paragraph]:
        """Those that contain one of the words of a fact."""
        known = self._by_anchor.get(name)
        if known is not None:
            return known
        found: list[_Paragraph] = []
        after = -1
        for offset in occurrences(self.source.lower, self.words(name)):
            if offset < after:
                continue
            begin, after = _paragraph(self.source.text, offset)
            paragraph = self._by_begin.get(begin)
            if paragraph is None or paragraph.end != after:
                self._examined += after - begin + 64
                if self._examined > 4 * MAX_EXAMINED:
                    self.exhausted = True
                    break
                paragraph = self._by_begin[begin] = _Paragraph(self.source.plain[begin:after], begin)
            found.append(paragraph)
        self._by_anchor[name] = found
        return found


def _is_english(text: str) -> bool:
    """Whether it is plainly English: then expressions for other languages find nothing."""
    return text.isascii() and sum(text.count(word) for word in _ENGLISH) >= _MIN_ENGLISH


def _check(source: AuditedText, combination: RuleCombination, paragraph: _Paragraph) -> list[RuleHit]:
    start = _matches(combination, paragraph)
    if start is None:
        return []
    start += paragraph.begin
    role, language = source.role_at(start)
    if role == "inline":
        start = source.line_text_at(start)[0]  # a path in a code span is not a quotation
    is_step = role != ("frontmatter" if combination.rule == "download-and-run" else "table")
    is_description = source.content.kind != "markdown"
    if not (is_description or is_instruction_role(role, language)) or not is_step or role == "script-comment":
        return []
    return [
        RuleHit(
            rule=combination.rule,
            start=start,
            end=paragraph.end,
            severity=combination.severity,
            note=combination.note,
            is_compound=True,
        )
    ]


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
    near = combination.near
    if combination.foreign and not paragraph.is_foreign:
        return None
    found: list[list[int]] = []
    for name in combination.parts:
        found.append(paragraph.places(name))
        if not found[-1]:
            return None
    first, *others = found
    start = next((at for at in first if all(any(abs(at - to) <= near for to in other) for other in others)), None)
    if start is not None and combination.without:
        # `https://login.invalid` does not authenticate.
        words = _URL.sub(" ", paragraph.text)
        if any(load_facts()[name].regex.search(words) for name in combination.without):
            return None
    return start


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
            start = _matches(combination, _Paragraph(window))
            if start is None or start >= len(alone) or _matches(combination, _Paragraph(alone)) is not None:
                continue
            return [_split_hit(parts[at][0], window[start:])]
    return []


def _among_fragments(parts: list[tuple[AuditFile, str]]) -> list[tuple[str, RuleHit, str]]:
    """One tiny file names a secret, another a stranger's host, and one of them says to send."""
    tiny = [(entry, _Paragraph(text)) for entry, text in parts if len(text) <= _MAX_FRAGMENT]
    secrets = [(entry, text) for entry, text in tiny if text.places("secret_file")]
    hosts = [text for _, text in tiny if text.is_foreign]
    sends = any(text.places("sends") for _, text in tiny)
    for entry, secret in secrets:
        if sends and not secret.is_foreign and hosts and not secret.places("protects"):
            return [_split_hit(entry, secret.text)]
    return []


def _split_hit(entry: AuditFile, excerpt: str) -> tuple[str, RuleHit, str]:
    note = "an instruction split over several files"
    return entry.relative, RuleHit(rule="secret-exfiltration", start=0, end=0, note=note), excerpt[:160]
