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
from kitbag.audit.urls import foreign_hosts

_BLANK = re.compile(r"\n[ \t>]*\n")
_MAX_BLOCKS: Final = 400
_MAX_JOINED: Final = 8_000
_MAX_PART: Final = 2_000


def find_dangerous_instructions(source: AuditedText) -> ScanResult:
    """Paragraphs of prose that match a combination."""
    hits: list[RuleHit] = []
    exhausted: list[str] = []
    if source.content.kind != "markdown":
        return ScanResult(hits, exhausted)
    present: dict[str, list[str]] = {}
    for combination in load_combinations():
        for name in combination.parts:
            if name not in present:
                present[name] = words_in(source, load_words(f"instructions.{name}"))
            if not present[name]:
                break
        else:
            if not _search(source, combination, present[combination.parts[0]], hits):
                exhausted.append(combination.rule)
    return ScanResult(hits, exhausted)


def _search(source: AuditedText, combination: RuleCombination, words: list[str], hits: list[RuleHit]) -> bool:
    examined, after = 0, -1
    for offset in occurrences(source.lower, words):
        if offset < after:
            continue
        begin, after = _paragraph(source.text, offset)
        examined += after - begin + 64
        if examined > MAX_EXAMINED:
            return False
        # Line breaks and emphasis do not end a sentence; offsets stay the same.
        start = _matches(combination, source.plain[begin:after].replace("\n", " ").replace("**", "  "))
        if start is None:
            continue
        role, language = source.role_at(begin + start)
        if is_instruction_role(role, language) and role not in ("table", "script-comment"):
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


def _matches(combination: RuleCombination, paragraph: str) -> int | None:
    """Where the first part is; None if a part is missing or too far away."""
    first: int | None = None
    for name in combination.parts:
        match = _nearest(load_expression(f"instructions.{name}"), paragraph, first, combination.near)
        if match is None:
            return None
        first = match if first is None else first
    if any(load_expression(f"instructions.{name}").search(paragraph) for name in combination.without):
        return None
    if combination.foreign and not foreign_hosts(paragraph):
        return None
    return first


def _nearest(regex: "re.Pattern[str]", paragraph: str, first: int | None, near: int) -> int | None:
    if first is None:
        match = regex.search(paragraph)
        return match.start() if match else None
    found = regex.search(paragraph, max(0, first - near))
    return found.start() if found and found.start() - first <= near else None


def find_split_instructions(sources: list[tuple[FileContent, str]]) -> list[tuple[str, RuleHit, str]]:
    """Combinations that match only when short files are read one after the other: file, hit, excerpt."""
    parts = [(content, text) for content, text in sources if content.kind == "markdown" and len(text) <= _MAX_PART]
    if len(parts) < 2:
        return []
    joined, starts = "", list[int]()
    for _, text in parts:
        starts.append(len(joined))
        joined += " ".join(text.split()) + " "
    if len(joined) > _MAX_JOINED:
        return []
    return _across(joined, starts, [content.entry for content, _ in parts])


def _across(joined: str, starts: list[int], entries: list[AuditFile]) -> list[tuple[str, RuleHit, str]]:
    found: list[tuple[str, RuleHit, str]] = []
    for combination in load_combinations():
        if combination.rule != "secret-exfiltration":
            continue
        for at in range(len(starts) - 1):
            window = joined[starts[at] : starts[at] + MAX_WINDOW]
            alone = joined[starts[at] : starts[at + 1]]
            start = _matches(combination, window)
            if start is None or start >= len(alone) or _matches(combination, alone) is not None:
                continue
            hit = RuleHit(rule=combination.rule, start=start, end=start, note="an instruction split over several files")
            found.append((entries[at].relative, hit, window[start : start + 160]))
            return found
    return found
