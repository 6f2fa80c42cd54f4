"""`kitbag-audit: ignore RULE-ID reason`, in a comment of Markdown or of a script: which findings it covers.

It covers its own line and the next one that is not blank; where that begins a fence, the whole fence. What hides
text, and what speaks of the audit itself, can't be suppressed. Used by examine.
"""

import re
from typing import Final, NamedTuple

from kitbag.audit.findings import Finding
from kitbag.audit.patterns import Hit
from kitbag.audit.regions import Source
from kitbag.audit.rules import NEVER_SUPPRESSED, rules
from kitbag.text.hidden_characters import for_terminal, one_line

_MARK: Final = "kitbag-audit:"
_SUPPRESSION = re.compile(
    r"(?P<open><!--|#|//|--|/\*|;)[ \t]*kitbag-audit:[ \t]*ignore(?P<rest>[^\n]{0,600})", re.IGNORECASE
)
_REASON = re.compile(r"\w{2,}")
_MOST: Final = 200


class Suppression(NamedTuple):
    rule: str
    reason: str
    first: int
    last: int
    """Lines that it covers."""
    start: int


class Suppressions(NamedTuple):
    found: list[Suppression]
    hits: list[Hit]
    """What is wrong with them."""


def find_suppressions(source: Source) -> Suppressions:
    found: list[Suppression] = []
    hits: list[Hit] = []
    if _MARK not in source.lower:
        return Suppressions(found, hits)
    for number, match in enumerate(_SUPPRESSION.finditer(source.text)):
        if number >= _MOST:
            break
        if not _counts(source, match):
            continue
        rest = match["rest"].split("-->")[0].split("*/")[0].strip()
        rule, _, reason = rest.partition(" ")
        reason = reason.strip(" -:—")
        if rule not in rules() or rule in NEVER_SUPPRESSED:
            what = "can't be suppressed" if rule in rules() else "no such rule"
            hits.append(
                Hit("suppression-unknown", match.start(), match.end(), None, None, f"{rule[:60]}: {what}", True)
            )
        elif not _REASON.search(reason):
            hits.append(Hit("suppression-no-reason", match.start(), match.end(), None, None, rule, True))
        else:
            first = source.line_at(match.start())
            found.append(
                Suppression(rule, for_terminal(one_line(reason)), first, _last(source, match.end()), match.start())
            )
    return Suppressions(found, hits)


def _counts(source: Source, match: "re.Match[str]") -> bool:
    """Markdown has comments in `<!-- -->`, and `#` inside of fences; a fence that shows a comment is an example."""
    if source.content.kind != "markdown":
        return match["open"] != "<!--" or source.content.name.endswith((".html", ".xml", ".svg"))
    region = source.region_at(match.start())
    if match["open"] == "<!--":
        return region is not None and region.role == "comment"
    return region is not None and region.role in ("shell", "code", "command")


def _last(source: Source, end: int) -> int:
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


def suppress(findings: list[Finding], found: list[Suppression]) -> tuple[list[Finding], list[Suppression]]:
    """The findings, each with the reason that covers it, and the suppressions that cover none."""
    used: set[Suppression] = set()
    marked: list[Finding] = []
    for finding in findings:
        covering = next((s for s in found if s.rule == finding.rule and s.first <= finding.line <= s.last), None)
        if covering is None or finding.rule in NEVER_SUPPRESSED:
            marked.append(finding)
        else:
            used.add(covering)
            marked.append(finding._replace(suppressed=covering.reason))
    return marked, [suppression for suppression in found if suppression not in used]
