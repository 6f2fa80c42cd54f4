"""What it means for findings that a text resembles attacks, or resembles none.

Used by examine_item; uses text_classifier, which measures it.
"""

from typing import Final

import msgspec

from kitbag.audit import text_classifier
from kitbag.audit.file_checks import FileRemark
from kitbag.audit.findings import MAX_EXCERPT, SEVERITIES, AuditFinding, cap_severity, finding_sort_key
from kitbag.audit.regions import AuditedText
from kitbag.audit.severity import TEXT_RULES

LIKENESS: Final = "resembles-attack"


def describe_likeness(
    source: AuditedText, likeness: text_classifier.Likeness, *, is_about_security: bool
) -> list[tuple[int, FileRemark]]:
    """A remark and its offset; empty if the text does not resemble attacks enough."""
    severity = text_classifier.rate(likeness)
    if severity is None:
        return []
    if is_about_security:  # it may quote them
        severity = cap_severity(severity, "low")
    explanation = text_classifier.explain(source.text, likeness.window)
    row = source.line_text_at(explanation.offset)[1]
    note = f"words that count most: {', '.join(explanation.words)}"
    return [(explanation.offset, FileRemark(rule=LIKENESS, severity=severity, excerpt=row[:MAX_EXCERPT], note=note))]


def adjust_for_ordinary_text(finding: AuditFinding, likeness: text_classifier.Likeness) -> AuditFinding:
    """Words that a rule for prose looks for also occur by accident, in texts that otherwise resemble no attack."""
    if finding.severity != "high" or finding.rule not in TEXT_RULES or not text_classifier.is_ordinary(likeness):
        return finding
    note = finding.note or "in a text that resembles no attack otherwise"
    return msgspec.structs.replace(finding, severity="medium", confidence="low", note=note)


def without_weaker_likeness(findings: list[AuditFinding]) -> list[AuditFinding]:
    """What only resembles an attack is worth a finding where no rule reports as much, and once."""
    other = min((SEVERITIES.index(f.severity) for f in findings if f.rule != LIKENESS), default=len(SEVERITIES))
    likest = min((f for f in findings if f.rule == LIKENESS), key=finding_sort_key, default=None)
    is_worse = likest is not None and (likest.suppressed or SEVERITIES.index(likest.severity) < other)
    return [f for f in findings if f.rule != LIKENESS or (is_worse and f is likest)]
