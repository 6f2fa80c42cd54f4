"""Expands aliases and one-line functions of a shell text, so that a chain of short names shows what it runs.

Used by examine_item; uses shell_checks to judge the expanded command.
"""

import itertools
import re
from typing import Final

from kitbag.audit.patterns import RuleHit, ScanResult
from kitbag.audit.regions import AuditedText
from kitbag.audit.shell_checks import pipes_into_shell

_MAX_NAMES: Final = 60
_MAX_LENGTH: Final = 2000
_ROUNDS: Final = 5
_ALIAS = re.compile(
    r"alias(?<![^;&\s]alias)\s+(?P<name>[\w-]{1,30})=(?:\"(?P<double>[^\"\n]{1,400})\"|'(?P<single>[^'\n]{1,400})'|(?P<bare>[^\s;'\"]{1,60}))"
)
_OPENED = re.compile(r"\(\)\s?\{|function\s")
_FUNCTION = re.compile(
    r"^[ \t]*(?:function\s+(?=[\w-]+\s*[({])|(?=[\w-]+\s*\())(?P<name>[\w-]{1,30})"
    r"[ \t]*(?:\(\))?\s?\{\s*(?P<body>[^{}]{1,400}?);?\s*\}",
    re.MULTILINE,
)
_FISH_FUNCTION = re.compile(
    r"^[ \t]*function\s+(?P<name>[\w-]{1,30})[^;\n]*;\s*(?P<body>[^\n]{1,400}?);?\s*end\b", re.MULTILINE
)
_CALLED = re.compile(r"(?:^|(?<=[|;&({]))(\s*)([\w-]{1,30})(?![\w=-])")
_STEALS = re.compile(r"\b(?:curl|wget|nc)\s|https?://|\bread\s+-\w*s|/dev/tcp/")
_PASSWORD_PROGRAMS: Final = frozenset(("sudo", "su", "ssh", "passwd", "gpg", "doas", "login", "kinit", "mysql", "psql"))


def find_alias_chains(source: AuditedText) -> ScanResult:
    hits: list[RuleHit] = []
    values: dict[str, str] = {}
    matches: list[tuple[re.Match[str], str]] = []
    if source.has("alias "):
        found = _ALIAS.finditer(source.text)
        matches += [(match, match["double"] or match["single"] or match["bare"]) for match in found]
    if (source.language == "shell" or source.content.kind == "markdown") and _OPENED.search(source.text):
        for function in (_FUNCTION, _FISH_FUNCTION):
            matches += [(match, match["body"]) for match in function.finditer(source.text)]
    for match, value in matches[:_MAX_NAMES]:
        values[match["name"]] = value
    for match, value in matches[:_MAX_NAMES]:
        start = match.start("name")
        if match["name"] in _PASSWORD_PROGRAMS and _STEALS.search(value):
            note = f"replaces `{match['name']}`"
            hits.append(RuleHit(rule="secret-exfiltration", start=start, end=match.end(), severity="high", note=note))
        expanded = _expand(value, values)
        if expanded != value and not pipes_into_shell(value) and pipes_into_shell(expanded):
            note = f"`{match['name']}` expands to: {expanded[:120]}"
            hits.append(RuleHit(rule="pipe-to-shell", start=start, end=match.end(), note=note))
    if values and not hits:
        hits += _find_expanded_lines(source, values)
    return ScanResult(hits, ["pipe-to-shell"] if len(matches) > _MAX_NAMES else [])


def _find_expanded_lines(source: AuditedText, values: dict[str, str]) -> list[RuleHit]:
    """`g $u | h`, where `g` and `h` are aliases."""
    names = "|".join(re.escape(name) for name in values)
    calls = re.compile(
        rf"^[ \t]*(?:{names})\b[^\n]{{0,300}}|^[^\n]{{1,200}}\|\s*(?:{names})\b[^\n]{{0,100}}", re.MULTILINE
    )
    hits: list[RuleHit] = []
    for match in itertools.islice(calls.finditer(source.text), _MAX_NAMES):
        line = match[0].strip()
        if "()" in line or line.startswith(("alias ", "function ")):
            continue
        expanded = _expand(line, values)
        if expanded != line and not pipes_into_shell(line) and pipes_into_shell(expanded):
            note = f"expands to: {expanded[:120]}"
            hits.append(RuleHit(rule="pipe-to-shell", start=match.start(), end=match.end(), note=note))
    return hits


def _expand(command: str, values: dict[str, str]) -> str:
    for _ in range(_ROUNDS):
        expanded = _CALLED.sub(lambda found: found[1] + values.get(found[2], found[2]), command)[:_MAX_LENGTH]
        if expanded == command:
            break
        command = expanded
    return command
