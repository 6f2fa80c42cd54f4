"""Joins strings as a program would (`"cu" + "rl"`, `["ev", "al"].join("")`, character codes) and looks at the result.

Reports only what no fragment shows on its own: a name of a shell, a downloader or a function that runs code. Used by
examine_item; uses patterns for limits.
"""

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from kitbag.audit.expressions import load_expression
from kitbag.audit.patterns import RuleHit, ScanResult
from kitbag.audit.regions import AuditedText

_MAX_JOINS: Final = 500
_MAX_TEXT: Final = 200_000
_DANGEROUS = load_expression("joined_strings.dangerous")
_ESCAPE: Final = r"\\(?:x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4})"
_STRING: Final = rf"""(?:"(?:[^"\\\n]|{_ESCAPE}){{0,80}}"|'(?:[^'\\\n]|{_ESCAPE}){{0,80}}')"""
_FRAGMENT = re.compile(_STRING)
_ESCAPED = re.compile(_ESCAPE)
_BEFORE_STRING = re.compile(r"\+\s{0,4}[\"']")
_PLUS = re.compile(r"[\"']\s{0,4}\+\s{0,4}[\"']")
_ADDED = re.compile(rf"{_STRING}(?:\s{{0,4}}\+\s{{0,4}}{_STRING})++")
_LISTED = re.compile(rf"\[\s*{_STRING}(?:\s*,\s*{_STRING})++\s*,?\s*\]")
_CODES = re.compile(r"[\[(]\s*(\d{2,3}(?:\s*,\s*\d{2,3}){3,400}+)\s*,?\s*[\])]")
_REVERSED = re.compile(rf"""({_STRING})(?:\[::-1\]|\.split\(["']{{2}}\)\.reverse\(\))""")
_ASSIGNED = re.compile(
    r"(?:^|[;\s])(\w{1,12})=(?:\"([\w ./:|?=-]{0,80})\"|'([\w ./:|?=-]{0,80})'|([\w./:-]{1,80}))(?=[;\s]|$)"
)
_VARIABLES = re.compile(r"(?:\$\{?\w{1,12}\}?\s?\|?\s?){1,11}\$\{?\w{1,12}\}?")
_FORMATTED = re.compile(rf"({_STRING})\s?-f\s?((?:{_STRING}\s?,\s?)*{_STRING})")
_NAME = re.compile(r"\w+")
_NAMED = re.compile(r"\$\{?(\w{1,12})\}?")
_PLACE = re.compile(r"\{(\d)\}")


class _Joined(NamedTuple):
    start: int
    end: int
    fragments: list[str]
    text: str


def find_joined_code(source: AuditedText) -> ScanResult:
    if source.content.kind not in ("script", "markdown") or len(source.text) > _MAX_TEXT:
        return ScanResult([], [])
    hits: list[RuleHit] = []
    for number, joined in enumerate(_all_joined(source)):
        if number >= _MAX_JOINS:
            return ScanResult(hits, ["obfuscated-code"])
        role = source.role_at(joined.start)[0]
        if role in ("prose", "table", "frontmatter", "script-comment"):
            continue
        found = (match[0].strip() for match in _DANGEROUS.finditer(joined.text))
        if any(not any(one in fragment for fragment in joined.fragments) for one in found):
            note = f"joins to: {' '.join(joined.text.split())[:80]}"
            hits.append(
                RuleHit(
                    rule="obfuscated-code", start=joined.start, end=joined.end, note=note, is_final=role != "inline"
                )
            )
    return ScanResult(hits, [])


def _all_joined(source: AuditedText) -> Iterator[_Joined]:
    text = source.text
    if "\\" in text and _ESCAPED.search(text):
        for match in _FRAGMENT.finditer(text):
            if _ESCAPED.search(match[0]):
                yield _Joined(match.start(), match.end(), [match[0]], _unescape(match[0][1:-1]))
    if _BEFORE_STRING.search(text) and _PLUS.search(text):
        for match in _ADDED.finditer(text):
            yield _from_strings(match.start(), match.end(), match[0])
    if source.has("join"):
        for match in _LISTED.finditer(text):
            if "join" in text[max(0, match.start() - 12) : match.end() + 12]:
                yield _from_strings(match.start(), match.end(), match[0])
    if source.has("chr") or source.has("fromcharcode") or source.has("bytes("):
        for match in _CODES.finditer(text):
            codes = [int(code) for code in match[1].split(",")]
            if all(code < 128 for code in codes):
                yield _Joined(match.start(), match.end(), [], "".join(map(chr, codes)))
    if source.has("[::-1]") or source.has(".reverse()"):
        for match in _REVERSED.finditer(text):
            yield _Joined(match.start(), match.end(), [match[1][1:-1]], match[1][-2:0:-1])
    if source.has("-f ") or source.has("-f'"):
        for match in _FORMATTED.finditer(text):
            values = [value[1:-1] for value in _FRAGMENT.findall(match[2])]
            filled = _PLACE.sub(lambda found: "".join(values[int(found[1]) : int(found[1]) + 1]), match[1][1:-1])  # noqa: B023
            yield _Joined(match.start(), match.end(), values, filled)
    if "$" in text and (source.language == "shell" or source.content.kind == "markdown"):
        yield from _from_variables(text)


def _from_strings(start: int, end: int, code: str) -> _Joined:
    fragments = [fragment[1:-1] for fragment in _FRAGMENT.findall(code)]
    return _Joined(start, end, fragments, _unescape("".join(fragments)))


def _unescape(text: str) -> str:
    return _ESCAPED.sub(lambda escape: chr(int(escape[0][2:], 16)), text)


def _from_variables(text: str) -> Iterator[_Joined]:
    """`a=cu; b=rl; $a$b`."""
    found = list(_VARIABLES.finditer(text))
    if not found:
        return
    values = {match[1]: match[2] or match[3] or match[4] or "" for match in _ASSIGNED.finditer(text)}
    for match in found:
        names = _NAME.findall(match[0])
        if all(name in values for name in names):
            fragments = [values[name] for name in names]
            joined = _NAMED.sub(lambda found: values[found[1]], match[0])
            yield _Joined(match.start(), match.end(), fragments, joined)
