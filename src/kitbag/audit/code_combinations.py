"""Finds code whose parts are ordinary alone and an attack together: fetching and evaluating, recording and sending.

The combinations are `rule.code` in rules.toml, their expressions `code.NAME` in expressions.toml; they know many
languages. Used by examine_item; uses patterns for bounded searches and urls to tell whose host it is.
"""

import functools
from typing import Final

from kitbag.audit.expressions import load_expression, load_words
from kitbag.audit.file_types import file_extension
from kitbag.audit.findings import cap_severity
from kitbag.audit.patterns import LineMatch, LineMatches, RuleHit, ScanResult
from kitbag.audit.regions import RUNNING_ROLES, AuditedText
from kitbag.audit.rules import RuleCombination, load_combinations
from kitbag.audit.severity import is_printed
from kitbag.audit.urls import WEBHOOK, foreign_hosts
from kitbag.audit.warning_context import instructs_to_act
from kitbag.audit.word_index import WordTable

_MAX_MATCHES: Final = 100
_LONG_LINE: Final = 1_000
_LONG_PROGRAM: Final = 40_000
_NEAR_IN_BUNDLE: Final = 150
"""A large program does everything somewhere; only neighbors belong together."""
_HOST_RANGE: Final = 3_000
_THEFTS: Final = frozenset(("secret-exfiltration", "agent-memory-write", "hidden-access"))
"""An example of a theft is none that a document needs."""
_LISTS: Final = frozenset(("csv", "tsv", "jsonl", "css", "scss", "yar", "yara"))
"""Files of values that nothing runs."""
_CODE_ROLES: Final = frozenset(("command", "script", "shell", "code", "config", "inline"))


def find_dangerous_code(source: AuditedText) -> ScanResult:
    """Blocks of code that match a combination."""
    hits: list[RuleHit] = []
    exhausted: list[str] = []
    found: dict[str, list[LineMatch]] = {}
    possible = _part_table().find(source.words)
    for combination in load_combinations("code"):
        if not possible.issuperset(combination.parts):
            continue
        for name in reversed(combination.parts) if combination.is_rare_last else combination.parts:
            if name not in found:
                matches = LineMatches(source, load_expression(f"code.{name}"), load_words(f"code.{name}"))
                found[name] = [one for one in matches.found[:_MAX_MATCHES] if _is_code(source, one.start, name)]
                exhausted += [combination.rule] if matches.exhausted else []
            if not found[name]:
                break
        else:
            hits += _search(source, combination, [found[name] for name in combination.parts])
    return ScanResult(hits, exhausted)


@functools.cache
def _part_table() -> WordTable[str]:
    names = {name for combination in load_combinations("code") for name in combination.parts}
    return WordTable({name: load_words(f"code.{name}") for name in sorted(names)})


def _is_code(source: AuditedText, offset: int, part: str) -> bool:
    role = source.role_at(offset)[0]
    # A model reads the first string of a function as the description of the tool.
    if role == "script" and source.language == "shell" and is_printed(source, offset):
        return False  # shown or searched for
    return role in _CODE_ROLES or (part == "tool_wants_secret" and role == "script-comment")


def _search(source: AuditedText, combination: RuleCombination, parts: list[list[LineMatch]]) -> list[RuleHit]:
    """At most one hit: where the last part is closest to the others."""
    *others, sinks = parts
    for sink in sinks:
        is_bundled = len(source.text) > _LONG_PROGRAM or _in_long_line(source, sink.start)
        near = min(combination.near, _NEAR_IN_BUNDLE) if is_bundled else combination.near
        block = source.region_at(sink.start)
        closest = [
            next(
                (
                    one
                    for one in part
                    if one[:2] != sink[:2]  # the same code is one fact
                    and abs(one.start - sink.start) <= near
                    and source.region_at(one.start) == block
                ),
                None,
            )
            for part in others
        ]
        if None in closest:
            continue
        around = source.text[max(0, sink.start - _HOST_RANGE) : sink.end + _HOST_RANGE]
        if combination.foreign and not _names_stranger(around):
            continue
        if any(load_expression(f"code.{name}").search(around) for name in combination.without):
            continue
        context = source.context_at(sink.start)
        runs = context.role in RUNNING_ROLES
        acts = runs or (context.role == "config" and file_extension(source.content.name) not in _LISTS)
        is_step = (
            context.role == "shell"
            or (context.role == "inline" and instructs_to_act(context))
            or (context.role == "code" and combination.rule in _THEFTS and len(parts) > 1)
        )
        return [
            RuleHit(
                rule=combination.rule,
                start=sink.start,
                end=sink.end,
                severity=combination.severity if acts or is_step else cap_severity(combination.severity, "medium"),
                note=combination.note,
                is_compound=True,
                is_final=runs,
            )
        ]
    return []


def _names_stranger(code: str) -> bool:
    """Whether it names a host that nobody knows, or somebody's chat by its token."""
    return bool(foreign_hosts(code) or WEBHOOK.search(code) or load_expression("code.bare_host").search(code))


def _in_long_line(source: AuditedText, offset: int) -> bool:
    return len(source.line_text_at(offset)[1]) > _LONG_LINE
