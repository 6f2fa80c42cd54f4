"""Detects text that a reader can't see: hidden characters, rated by what they can do, and instructions in comments.

Used by examine_item; uses text.hidden_characters, which knows emoji, joining scripts and right-to-left text.
"""

import re
from typing import Final

import msgspec

from kitbag.audit.expressions import load_expression
from kitbag.audit.findings import Severity
from kitbag.audit.patterns import RuleHit, ScanResult
from kitbag.audit.prose_facts import load_facts, mark_sentences
from kitbag.audit.regions import MIXED_WORD, AuditedText
from kitbag.audit.urls import foreign_hosts
from kitbag.text.hidden_characters import find_disguises, find_hidden, format_code_points

_MAX_LINES: Final = 25
_MAX_CHARACTERS: Final = 5000
_LINES = re.compile(r"[^\n]{1,2000}")
_RIGHT_TO_LEFT = re.compile("[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc\U00010800-\U00010fff\U0001e800-\U0001efff]")
_UNSPACED = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]")
_DIRECTION_MARKS = frozenset((0x200E, 0x200F, 0x061C))
_OVERRIDES = frozenset((0x202D, 0x202E))
_ISOLATES = frozenset((0x202A, 0x202B, 0x202C, 0x2066, 0x2067, 0x2068, 0x2069))
_ZERO_WIDTH = frozenset((0x200B, 0x200C, 0x200D, 0x2060, 0x2061, 0x2062, 0x2063, 0x2064, 0xFEFF))
_INVISIBLE = re.compile("\u200b+")
_ADDRESSED = load_expression("hidden_text.addressed")
_ORDERED = load_expression("hidden_text.ordered")
_ACTS = re.compile(
    r"https?://|\b(?:curl|wget|bash|\.ssh|\.env|api[ _-]?keys?|tokens?|secrets?|passwords?|credentials?|environment)\b",
    re.I,
)


def find_hidden_characters(source: AuditedText) -> ScanResult:
    hits: list[RuleHit] = []
    text = source.text
    if text.isascii() and text.replace("\n", "").replace("\t", "").isprintable():
        return ScanResult(hits, [])
    right_to_left = _RIGHT_TO_LEFT.search(text) is not None
    found_so_far = 0
    for line in _LINES.finditer(text):
        line_text = line[0]
        if line_text.isascii() and line_text.isprintable():
            continue
        found = find_hidden(line_text)
        found_so_far += len(found)
        if right_to_left:
            found = [(at, point) for at, point in found if point not in _DIRECTION_MARKS]
        if found:
            severity = rate_hidden_characters(line_text, found)
            if severity is not None:
                start = line.start() + found[0][0]
                note = format_code_points(found)
                hits.append(
                    RuleHit(
                        rule="hidden-characters",
                        start=start,
                        end=line.start() + found[-1][0] + 1,
                        severity=severity,
                        confidence=None,
                        note=note,
                        is_final=True,
                    )
                )
        if len(hits) >= _MAX_LINES or found_so_far > _MAX_CHARACTERS:
            hits[-1:] = [
                msgspec.structs.replace(hit, note=f"{hit.note}; similar lines are not listed") for hit in hits[-1:]
            ]
            break
    return ScanResult(hits, [])


_OVERRIDES_RULES = re.compile(
    r"\b(?:ignore|disregard|override|forget)\b[^.\n]{0,40}\b(?:instructions?|rules|prompt)", re.IGNORECASE
)
_RANGE = re.compile("\\[(?:[\u200b-\u206f\ufeff]-[\u200b-\u206f]|[\u200b-\u206f\ufeff]){1,8}\\]")


def rate_hidden_characters(line: str, found: list[tuple[int, int]]) -> Severity | None:
    """None if a writing system needs the characters."""
    ranges = [match.span() for match in _RANGE.finditer(line)]
    if all(any(start < at < end for start, end in ranges) for at, _ in found):
        return "low"  # an expression that searches for them
    if not find_disguises(line):
        return "low"
    severities: list[Severity] = []
    offsets = {at for at, point in found if point in _ZERO_WIDTH or point >= 0xFE00}
    for at, point in found:
        if at + 1 in offsets and at + 2 in offsets and at + 3 in offsets:
            return "high"  # a run of them can encode text
        severities.append(_rate_character(line, at, point, at + 1 in offsets or at - 1 in offsets))
    return min(severities, key=("high", "medium", "low", "info").index) if set(severities) != {"info"} else None


def _rate_character(line: str, at: int, point: int, has_neighbor: bool) -> Severity:
    before, after = line[at - 1 : at], line[at + 1 : at + 2]
    left, right = _INVISIBLE.sub("", line[:at][-9:])[-1:], _INVISIBLE.sub("", line[at + 1 : at + 10])[:1]
    if 0xE0000 <= point <= 0xE0FFF or point in _OVERRIDES:
        return "high"
    if point in _ISOLATES:
        return "low" if _RIGHT_TO_LEFT.search(line) else "high"
    if point in _ZERO_WIDTH:
        if point == 0x200B and (_UNSPACED.match(before) or _UNSPACED.match(after)):
            return "info"  # a line-break opportunity in a script without spaces
        is_inside = left.isalnum() and right.isalnum()  # not left behind by a translation, at a space
        return "high" if (_is_word(before) and _is_word(after)) or (has_neighbor and is_inside) else "medium"
    if 0xFE00 <= point <= 0xFE0F:
        return "high" if has_neighbor else "low"
    if point == 0xAD or point in (0x0C, 0x0B):
        return "low"
    return "medium"


def _is_word(char: str) -> bool:
    return char.isascii() and (char.isalnum() or char in "_-$./")


def find_mixed_words(source: AuditedText) -> list[RuleHit]:
    hits: list[RuleHit] = []
    if not source.has_mixed_words:
        return hits
    for match in MIXED_WORD.finditer(source.text):
        if len(hits) >= _MAX_LINES:
            break
        points = format_code_points([(0, ord(char)) for char in match[0] if not char.isascii()])
        hits.append(
            RuleHit(
                rule="look-alike-letters",
                start=match.start(),
                end=match.end(),
                severity=None,
                confidence=None,
                note=points,
                is_final=True,
            )
        )
    return hits


def _is_attack(text: str) -> bool:
    """Whether it sends, hides or overrides something, not only explains how to run a script."""
    facts, marked = load_facts(), mark_sentences(text)
    if any(facts[name].regex.search(marked) for name in ("secret_file", "conceals", "conceals_abroad")):
        return True
    return _OVERRIDES_RULES.search(text) is not None or (_ACTS.search(text) is not None and bool(foreign_hosts(text)))


def find_hidden_instructions(source: AuditedText) -> list[RuleHit]:
    """Comments that address the agent and tell it to act."""
    hits: list[RuleHit] = []
    for region in source.regions:
        if region.role != "comment" or len(hits) >= _MAX_LINES:
            continue
        text = source.text[region.start : min(region.end, region.start + 4000)]
        if _ADDRESSED.search(text) and _ORDERED.search(text) and "kitbag-audit:" not in text:
            severity: Severity = "high" if _is_attack(text) else "medium" if _ACTS.search(text) else "low"
            hits.append(
                RuleHit(
                    rule="hidden-comment",
                    start=region.start,
                    end=region.end,
                    severity=severity,
                    confidence=None,
                    note="",
                    is_final=True,
                )
            )
    return hits
