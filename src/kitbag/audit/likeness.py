"""What it means for findings that texts resemble attacks, or resemble none.

A high finding needs both: something that a rule describes, and a text that resembles attacks; or a text that resembles
them very much. Used by examine_item; uses text_classifier, which measures the resemblance.
"""

import math
from collections.abc import Callable
from typing import Final

import msgspec

from kitbag.audit import text_classifier
from kitbag.audit.expressions import load_words
from kitbag.audit.file_checks import FileRemark
from kitbag.audit.findings import MAX_EXCERPT, SEVERITIES, AuditFinding, Severity, cap_severity
from kitbag.audit.regions import AuditedText
from kitbag.audit.severity import TEXT_RULES
from kitbag.audit.text_classifier import Likeness

LIKENESS: Final = "resembles-attack"
_CERTAIN: Final = frozenset(load_words("likeness.certain"))
"""Rules that are high in any text."""
_OF_REMARKS: Final = ("high", "beside-medium", "medium", "low")
_MANY_WINDOWS: Final = 40
"""In more text, a resemblance is medium at most: hardly any attack is so long, and by chance some part of a long text
resembles one."""
_UNRATED: Final[Severity] = "info"


class Resemblances:
    """How much the texts of one item resemble attacks."""

    def __init__(self) -> None:
        self._texts: dict[str, Likeness] = {}

    def add(self, source: AuditedText, file: str, likeness: Likeness) -> list[tuple[int, FileRemark]]:
        """Remembers a text that is read or run. Returns a remark to be rated by `rate`, and its offset, if the text
        could be worth one."""
        self._texts[file] = likeness
        thresholds = text_classifier.load_weights().thresholds
        if likeness.score < min(thresholds[name] for name in _OF_REMARKS):
            return []
        explanation = text_classifier.explain(source.text, likeness.window)
        row = source.line_text_at(explanation.offset)[1]
        note = f"words that count most: {', '.join(explanation.words)}"
        remark = FileRemark(rule=LIKENESS, severity=_UNRATED, excerpt=row[:MAX_EXCERPT], note=note)
        return [(explanation.offset, remark)]

    def rate(
        self,
        findings: list[AuditFinding],
        *,
        together: bool,
        about_security: bool,
        counts: Callable[[AuditFinding], bool],
    ) -> list[AuditFinding]:
        """Rates high findings of rules, and remarks of `add`, of which only the worst is kept, and only if it is worse
        than what the rules find. `together`: the texts are few, so they belong to each other. `about_security`: they
        may quote attacks, so a high finding needs a rule and a text that would be worth one alone. `counts`: whether a
        finding may confirm a resemblance."""
        everything = text_classifier.combine(self._texts.values())
        if everything is None:
            return findings
        is_long = everything.windows > _MANY_WINDOWS
        most: Severity = "medium" if about_security or is_long else "high"
        rated: list[AuditFinding] = []
        remarks: list[AuditFinding] = []
        for finding in findings:
            likeness = everything if together else self._texts.get(finding.file, everything)
            if finding.rule == LIKENESS:
                beside = [one for one in findings if counts(one) and (together or one.file == finding.file)]
                # The more other text there is, the more often a part of it resembles an attack by chance.
                alone = likeness._replace(windows=everything.windows)
                severity = _rate(alone, any(one.severity in ("high", "medium") for one in beside))
                if severity is not None:
                    remarks.append(msgspec.structs.replace(finding, severity=cap_severity(severity, most)))
                continue
            least = self._least_score(finding, about_security=about_security, is_long=is_long)
            rated.append(finding if likeness.score >= least else _lower(finding))
        return rated + self._worst(remarks, rated)

    def _least_score(self, finding: AuditFinding, *, about_security: bool, is_long: bool) -> float:
        """What the text around a high finding must score. A few lines cannot score much; what a rule finds there in
        code is no accident."""
        thresholds = text_classifier.load_weights().thresholds
        text = self._texts.get(finding.file)
        is_prose = finding.rule in TEXT_RULES
        if about_security or (is_long and is_prose):
            return thresholds["high"]
        if text is None or not text_classifier.is_long(text):
            return thresholds["low"] if is_prose else -math.inf
        return thresholds["beside-high"]

    def _worst(self, remarks: list[AuditFinding], others: list[AuditFinding]) -> list[AuditFinding]:
        if not remarks:
            return []
        worst = min(remarks, key=lambda one: (SEVERITIES.index(one.severity), -self._texts[one.file].score, one.file))
        known = min((SEVERITIES.index(one.severity) for one in others), default=len(SEVERITIES))
        return [worst] if worst.suppressed or SEVERITIES.index(worst.severity) < known else []


def _rate(likeness: Likeness, is_beside_medium: bool) -> Severity | None:
    thresholds = text_classifier.load_weights().thresholds
    severities = SEVERITIES if likeness.windows > 1 else SEVERITIES[1:]  # a few words prove nothing
    if is_beside_medium and likeness.score >= thresholds["beside-medium"]:
        return severities[0]
    return next((one for one in severities if one in thresholds and likeness.score >= thresholds[one]), None)


def _lower(finding: AuditFinding) -> AuditFinding:
    """What a rule looks for also occurs by accident, in texts that otherwise resemble no attack."""
    if finding.severity != "high" or finding.rule in _CERTAIN:
        return finding
    note = finding.note or "in a text that resembles no attack otherwise"
    return msgspec.structs.replace(finding, severity="medium", confidence="low", note=note)
