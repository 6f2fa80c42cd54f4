"""`kitbag-audit: ignore RULE-ID reason` in a comment: which findings it suppresses.

It covers its own line and the next non-blank one; if that starts a fence, the whole fence. Rules about hidden text
and about the audit itself cannot be suppressed. Used by examine_item.
"""

import re
from typing import Final, NamedTuple

import msgspec

from kitbag.audit.findings import AuditFinding
from kitbag.audit.patterns import RuleHit
from kitbag.audit.regions import AuditedText
from kitbag.audit.rules import NEVER_SUPPRESSED, load_rules
from kitbag.text.hidden_characters import collapse_whitespace, escape_for_terminal

_DIRECTIVE: Final = "kitbag-audit:"
_SUPPRESSION = re.compile(
    r"(?P<open><!--|#|//|--|/\*|;)[ \t]*kitbag-audit:[ \t]*ignore(?P<rest>[^\n]{0,600})", re.IGNORECASE
)
_REASON = re.compile(r"\w{2,}")
_MAX_SUPPRESSIONS: Final = 200
_WHOLE_FILE: Final = frozenset(("resembles-attack",))
"""What a text as a whole is found for: a suppression anywhere in it holds."""


class Suppression(msgspec.Struct, frozen=True, kw_only=True):
    rule: str
    reason: str
    first: int
    last: int
    """First and last line it covers."""
    start: int


class Suppressions(NamedTuple):
    valid: list[Suppression]
    hits: list[RuleHit]
    """Problems with suppressions."""


def find_suppressions(source: AuditedText) -> Suppressions:
    valid: list[Suppression] = []
    hits: list[RuleHit] = []
    if _DIRECTIVE not in source.lower:
        return Suppressions(valid, hits)
    for number, match in enumerate(_SUPPRESSION.finditer(source.text)):
        if number >= _MAX_SUPPRESSIONS:
            break
        if not _is_comment(source, match):
            continue
        rest = match["rest"].split("-->")[0].split("*/")[0].strip()
        rule, _, reason = rest.partition(" ")
        reason = reason.strip(" -:—")
        if rule not in load_rules() or rule in NEVER_SUPPRESSED:
            problem = "cannot be suppressed" if rule in load_rules() else "no such rule"
            hits.append(
                RuleHit(
                    rule="suppression-unknown",
                    start=match.start(),
                    end=match.end(),
                    severity=None,
                    confidence=None,
                    note=f"{rule[:60]}: {problem}",
                    is_final=True,
                )
            )
        elif not _REASON.search(reason):
            hits.append(
                RuleHit(
                    rule="suppression-no-reason",
                    start=match.start(),
                    end=match.end(),
                    severity=None,
                    confidence=None,
                    note=rule,
                    is_final=True,
                )
            )
        else:
            first = source.line_at(match.start())
            valid.append(
                Suppression(
                    rule=rule,
                    reason=escape_for_terminal(collapse_whitespace(reason)),
                    first=first,
                    last=_last_covered_line(source, match.end()),
                    start=match.start(),
                )
            )
    return Suppressions(valid, hits)


def _is_comment(source: AuditedText, match: "re.Match[str]") -> bool:
    """Markdown comments are `<!-- -->`, and `#` inside fences; a comment shown in a fence is an example."""
    if source.content.kind != "markdown":
        return match["open"] != "<!--" or source.content.name.endswith((".html", ".xml", ".svg"))
    region = source.region_at(match.start())
    if match["open"] == "<!--":
        return region is not None and region.role == "comment"
    return region is not None and region.role in ("shell", "code", "command")


def _last_covered_line(source: AuditedText, end: int) -> int:
    text = source.text
    newline = text.find("\n", end)
    if newline < 0:
        return source.line_at(end)
    after = re.compile(r"\s*").match(text, newline)
    start = after.end() if after else newline
    region = source.region_at(start)
    if region is not None and region.role in ("shell", "code", "command") and region.start > end:
        return source.line_at(region.end - 1)
    return source.line_at(min(start, len(text)))


def apply_suppressions(
    findings: list[AuditFinding], suppressions: list[Suppression]
) -> tuple[list[AuditFinding], list[Suppression]]:
    """The findings, suppressed ones with their reason, and the suppressions that cover none."""
    used: set[Suppression] = set()
    marked: list[AuditFinding] = []
    for finding in findings:
        is_whole = finding.rule in _WHOLE_FILE
        covering = next(
            (s for s in suppressions if s.rule == finding.rule and (is_whole or s.first <= finding.line <= s.last)),
            None,
        )
        if covering is None or finding.rule in NEVER_SUPPRESSED:
            marked.append(finding)
        else:
            used.add(covering)
            marked.append(msgspec.structs.replace(finding, suppressed=covering.reason))
    return marked, [suppression for suppression in suppressions if suppression not in used]
