"""Finds paragraphs that say several things which are harmless alone and dangerous together.

For example: a secret, a place to send it, hiding. The combinations are in rules.toml, the facts that they name
in prose_facts.toml. Used by examine_item; uses patterns for bounded windows and urls to tell whose host it is.
"""

import functools
import itertools
import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from kitbag.audit.file_content import FileContent
from kitbag.audit.findings import AuditFile
from kitbag.audit.patterns import (
    MAX_EXAMINED,
    MAX_WINDOW,
    RuleHit,
    ScanResult,
    is_instruction_role,
)
from kitbag.audit.prose_facts import (
    SENTENCE_END,
    FactLine,
    find_cores,
    find_places,
    has_negation,
    load_facts,
    mark_sentences,
)
from kitbag.audit.regions import AuditedText
from kitbag.audit.rules import RuleCombination, load_combinations
from kitbag.audit.urls import find_hosts, find_mail_hosts, foreign_hosts, is_ordinary_host
from kitbag.audit.word_index import without_punctuation

_BULLET = re.compile(r"\n[ \t>]*[-*+•](?=\s)")
_BLANK = re.compile(r"\n[ \t>]*\n")
_PROGRAM = re.compile(r"[ \t>]*(?:```|~~~)(?!markdown|md\b|text|txt|prompt)\w")
"""A block of code, which other detectors read."""
_SENTENCE_END = re.compile(f"[{SENTENCE_END}。]")
_URL = re.compile(r"\w+://\S+|[\w.+-]+@[\w.-]+")
_OTHER_LANGUAGES: Final = ("conceals_abroad", "obeys_abroad", "runs_abroad")
_LINKS: Final = frozenset(("program_link", "bundle_link", "url_slot", "url_takes_text"))
"""What they say is about one link: others in the paragraph do not count."""
_ABOUT_PARAGRAPH: Final = frozenset(("explains", "manual"))
"""What a paragraph is about; what makes a theft harmless has to be said of the theft."""
_ENGLISH: Final = (" the ", " and ", " to ", " of ", " is ", " for ", " with ", " your ")
_MIN_ENGLISH: Final = 4
_ASCII_SHARE: Final = 0.98
_DESCRIBED: Final = ("tools", "inputschema", "mcpservers", "command", "parameters")
"""Keys beside descriptions that a model reads."""
_MAX_JOINED: Final = 8_000
_MAX_PART: Final = 2_000
_MAX_FRAGMENT: Final = 300
_MAX_FACT: Final = 300
"""About how long a statement is."""
_MAX_PLACES: Final = 8
"""How often one paragraph may state one fact."""


def find_dangerous_instructions(source: AuditedText) -> ScanResult:
    """Paragraphs of prose that match a combination."""
    hits: list[RuleHit] = []
    if source.content.kind != "markdown" and not _describes_tools(source):
        return ScanResult(hits, [])
    examined = 0
    flat = source.lower.replace("\n", " ")
    for section in _sections(source.text):
        windows = _possible_windows(source, flat, section)
        for begin, end, cores, possible in windows:
            paragraph = _Paragraph(source.plain[begin:end], begin, cores)
            if any(one.foreign for one in possible) and not paragraph.is_foreign:
                possible = [one for one in possible if not one.foreign]
            examined += end - begin + 64
            if examined > 4 * MAX_EXAMINED:
                return ScanResult(hits, sorted({combination.rule for combination in load_combinations()}))
            for combination in possible:
                if paragraph.lacks.isdisjoint(combination.parts):
                    hits += _check(source, combination, paragraph)
    return ScanResult(hits, [])


def _paragraph_bounds(text: str) -> Iterator[tuple[int, int]]:
    """The parts between blank lines; long ones as windows, each half of which is part of the next. A colon introduces
    the next part."""
    begin = 0
    for blank in itertools.chain(_BLANK.finditer(text), (None,)):
        end = blank.start() if blank else len(text)
        if blank and text.endswith((":", "："), begin, end) and not _PROGRAM.match(text, blank.end()):
            continue
        while end - begin > 2 * MAX_WINDOW:
            yield begin, begin + 2 * MAX_WINDOW
            begin += MAX_WINDOW
        if end > begin:
            yield begin, end
        begin = blank.end() if blank else end


def _sections(text: str) -> Iterator[list[tuple[int, int]]]:
    """The paragraphs of each section: below one heading, or as long as a window."""
    section: list[tuple[int, int]] = []
    for begin, end in _paragraph_bounds(text):
        if section and (end - section[0][0] > 2 * MAX_WINDOW or text.startswith("##", begin)):
            yield section
            section = []
        section.append((begin, end))
    if section:
        yield section


_PossibleWindow = tuple[int, int, set[str], list[RuleCombination]]
"""Where it begins and ends, the cores of its words, and the combinations whose facts it may state."""


def _possible_windows(source: AuditedText, flat: str, section: list[tuple[int, int]]) -> list[_PossibleWindow]:
    """The paragraphs of a section, and then the section, if they may state the facts of a combination."""
    start, last = section[0][0], section[-1][1]
    whole = _ReadWindow(source, flat, start, last)
    in_section = whole.combinations(is_section=True)
    if not in_section and not whole.combinations(is_section=False):
        return []
    windows: list[_PossibleWindow] = []
    starts = set[str]()
    names = {one.parts[0] for one in in_section}
    for begin, end in section:
        one = whole if len(section) == 1 else _ReadWindow(source, flat, begin, end)
        starts |= one.find_starts(names - starts)
        if not _is_program(source, begin, end) and (possible := one.combinations(is_section=False)):
            windows.append((begin, end, one.cores, possible))
    if in_section := [one for one in in_section if one.parts[0] in starts]:
        windows.append((start, last, whole.cores, in_section))
    return windows


class _ReadWindow:
    """A paragraph or a section, and the facts that it may state."""

    __slots__ = ("_facts", "_is_negated", "_lower", "_names_host", "cores")

    def __init__(self, source: AuditedText, flat: str, begin: int, end: int) -> None:
        self.cores = find_cores(source.words.spaced[begin:end])
        self._lower = flat[begin:end]
        self._is_negated = has_negation(self._lower)
        self._names_host = "://" in self._lower or "@" in self._lower
        self._facts = _possible_facts(self.cores, self._is_negated)

    def combinations(self, *, is_section: bool) -> list[RuleCombination]:
        """Those whose facts it may state."""
        facts = self._facts
        return [
            one
            for start, all_of in _combinations_by_parts(self._names_host, is_section)
            if start in facts
            for parts, one in all_of
            if parts <= facts
        ]

    def find_starts(self, names: set[str]) -> set[str]:
        """Those of some facts that it has the words of."""
        return {
            name
            for name in names & self._facts
            if not (name == "conceals_abroad" and _is_english(self._lower))
            and load_facts()[name].find_lines(self._lower, self.cores, self._is_negated)
        }


@functools.cache
def _combinations_by_parts(
    with_foreign: bool, is_section: bool
) -> list[tuple[str, list[tuple[frozenset[str], RuleCombination]]]]:
    """By their first part."""
    by_first: dict[str, list[tuple[frozenset[str], RuleCombination]]] = {}
    for one in load_combinations():
        if one.section == is_section and (with_foreign or not one.foreign):
            by_first.setdefault(one.parts[0], []).append((frozenset(one.parts), one))
    return list(by_first.items())


class _FactWord(NamedTuple):
    """One word of one way to state a fact."""

    fact: str
    parts: frozenset[str]
    """Of the word, besides the core that it is listed by."""
    beside: frozenset[str]
    """Cores of other words, one of which a text also has; empty for none."""
    negates: bool


@functools.cache
def _words_by_core() -> dict[str, list[_FactWord]]:
    """Of the facts that are part of a combination."""
    found: dict[str, dict[_FactWord, None]] = {}
    for name in sorted({part for one in load_combinations() for part in one.parts}):
        for line in load_facts()[name].lines:
            beside = frozenset(line.others.by_core)
            for core, words in line.words.by_core.items():
                for parts, _ in words:
                    found.setdefault(core, {})[_FactWord(name, parts, beside, line.negates)] = None
    return {core: list(words) for core, words in found.items()}


def _possible_facts(cores: set[str], is_negated: bool) -> set[str]:
    """The facts that a text with these cores may state."""
    found = set[str]()
    by_core = _words_by_core()
    for words in [by_core[core] for core in cores if core in by_core]:
        for fact, parts, beside, negates in words:
            if fact in found or (negates and not is_negated):
                continue
            if parts <= cores and not (beside and beside.isdisjoint(cores)):
                found.add(fact)
    return found


def _is_program(source: AuditedText, begin: int, end: int) -> bool:
    """Whether it is part of a block of code that other detectors read."""
    region = source.region_at(begin)
    return region is not None and end <= region.end and not is_instruction_role(region.role, region.language)


def _describes_tools(source: AuditedText) -> bool:
    """Whether a model reads parts of a program or a data file: descriptions of tools are instructions, too."""
    if len(source.text) > MAX_EXAMINED:
        return False
    if source.content.kind == "config":
        return source.has('"description"') and any(source.has(f'"{key}"') for key in _DESCRIBED)
    return source.has("mcp") and source.has(".tool(")


class _Paragraph:
    """Text between blank lines, and where it states which facts: several combinations ask for the same ones."""

    __slots__ = ("_cores", "_is_foreign", "_is_negated", "_lines", "_lower", "_places", "begin", "end", "lacks", "text")

    def __init__(self, text: str, begin: int = 0, cores: set[str] | None = None) -> None:
        # Bullets end a sentence, line breaks and emphasis do not; offsets stay the same.
        self.text = mark_sentences(_BULLET.sub(_end_sentence, text).replace("\n", " ").replace("**", "  "))
        self.begin = begin
        self.end = begin + len(text)
        self._lower = " ".join(self.text.lower().split())
        self._cores = find_cores(without_punctuation(self._lower)) if cores is None else cores
        self._is_negated = has_negation(self._lower)
        self._lines: dict[str, list[FactLine]] = {}
        self._places: dict[str, list[int]] = {}
        self.lacks: set[str] = set()
        """Facts that it does not state, of those that were asked for."""
        self._is_foreign: bool | None = None

    @property
    def is_foreign(self) -> bool:
        """Whether it names a host or an address that is neither local nor well known."""
        if self._is_foreign is None:
            self._is_foreign = _names_stranger(self.text)
        return self._is_foreign

    def is_foreign_near(self, at: int, near: int) -> bool:
        """The same within a distance; a long list names hosts that have nothing to do with most of its items."""
        low, high = max(0, at - near), at + near + _MAX_FACT
        if low == 0 and high >= len(self.text):
            return self.is_foreign
        return _names_stranger(self.text[low:high])

    def links_abroad(self, at: int) -> bool:
        """Whether the next link, if there is one, is to such a host."""
        hosts = find_hosts(self.text[at : at + _MAX_FACT])
        return not hosts or not is_ordinary_host(hosts[0])

    def sentences(self, first: int, last: int) -> str:
        """The sentences from one place to another."""
        end = _SENTENCE_END.search(self.text, last)
        return self.text[self.sentence_start(first) : end.end() if end else len(self.text)]

    def sentence_start(self, place: int) -> int:
        start = max((end.end() for end in _SENTENCE_END.finditer(self.text, 0, place)), default=0)
        return place - len(self.text[start:place].lstrip())

    def may_state(self, name: str) -> bool:
        """Whether it has the words of a fact."""
        lines = self._lines.get(name)
        if lines is None:
            is_abroad = name in _OTHER_LANGUAGES and _is_english(self.text)
            lines = [] if is_abroad else load_facts()[name].find_lines(self._lower, self._cores, self._is_negated)
            self._lines[name] = lines
            if not lines:
                self.lacks.add(name)
        return bool(lines)

    def places(self, name: str) -> list[int]:
        """Where it states a fact; the first ones."""
        known = self._places.get(name)
        if known is None:
            known = find_places(self._lines[name], self.text, _MAX_PLACES) if self.may_state(name) else []
            self._places[name] = known
            if not known:
                self.lacks.add(name)
        return known


def _end_sentence(bullet: "re.Match[str]") -> str:
    return "." + " " * (len(bullet[0]) - 1)


def _is_english(text: str) -> bool:
    """Whether it is plainly English: then expressions for other languages find nothing."""
    plain = text if text.isascii() else text.encode("ascii", "ignore")
    return len(plain) >= _ASCII_SHARE * len(text) and sum(text.count(word) for word in _ENGLISH) >= _MIN_ENGLISH


def _check(source: AuditedText, combination: RuleCombination, paragraph: _Paragraph) -> list[RuleHit]:
    start = _matches(combination, paragraph)
    if start is None:
        return []
    start += paragraph.begin
    role, language = source.role_at(start)
    if role == "inline":
        # A path in a code span is not a quotation.
        start = max(source.line_text_at(start)[0], paragraph.begin + paragraph.sentence_start(start - paragraph.begin))
    is_step = role != ("frontmatter" if combination.rule == "download-and-run" else "table")
    is_description = source.content.kind != "markdown"
    if not is_description and (role == "script-comment" or not is_step or not is_instruction_role(role, language)):
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


def _matches(combination: RuleCombination, paragraph: _Paragraph) -> int | None:
    """Where the first part is; None if a part is missing or too far away."""
    near = combination.near
    if combination.foreign and not paragraph.is_foreign:
        return None
    for name in combination.parts:  # words cost less than expressions
        if not paragraph.may_state(name):
            return None
    found: list[list[int]] = []
    for name in combination.parts:
        places = paragraph.places(name)
        if combination.foreign and name in _LINKS:
            places = [at for at in places if paragraph.links_abroad(at)]
        if not places:
            return None
        found.append(places)
    first, *others = found
    for at in first:
        # The same words are one statement, whatever they can mean.
        apart = [[to for to in other if to != at] if at in other else other for other in others]
        if not all(apart):
            continue
        closest = [min(other, key=lambda to: abs(at - to)) for other in apart]
        if any(abs(at - to) > near for to in closest):
            continue
        if combination.foreign and not paragraph.is_foreign_near(at, near):
            continue
        if not _is_excused(combination, paragraph, (at, *closest)):
            return at
    return None


def _is_excused(combination: RuleCombination, paragraph: _Paragraph, places: tuple[int, ...]) -> bool:
    """Whether the sentences that state the facts also state what makes them harmless. Others prove nothing."""
    for name in combination.without:
        text = paragraph.text if name in _ABOUT_PARAGRAPH else paragraph.sentences(min(places), max(places))
        if load_facts()[name].regex.search(_URL.sub(" ", text)):  # `https://login.invalid` does not authenticate
            return True
    return False


def _names_stranger(text: str) -> bool:
    return ("://" in text and bool(foreign_hosts(text))) or (
        any(not is_ordinary_host(host) for _, host in find_mail_hosts(text))
    )


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
            return [_split_hit(entry, secret.text.replace(SENTENCE_END, "."))]
    return []


def _split_hit(entry: AuditFile, excerpt: str) -> tuple[str, RuleHit, str]:
    note = "an instruction split over several files"
    return entry.relative, RuleHit(rule="secret-exfiltration", start=0, end=0, note=note), excerpt[:160]
