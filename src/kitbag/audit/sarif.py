"""Formats a report as SARIF 2.1.0, for code hosts and editors. Used by the command line."""

from typing import Final
from urllib.parse import quote

from kitbag.audit.findings import AuditFinding, Severity
from kitbag.audit.rules import AuditRule, load_rules
from kitbag.audit.run import CAUTION, AuditReport
from kitbag.version import __version__

SCHEMA: Final = "https://json.schemastore.org/sarif-2.1.0.json"
_LEVELS: Final[dict[Severity, str]] = {"high": "error", "medium": "warning", "low": "note", "info": "none"}
_SCORES: Final[dict[Severity, str]] = {"high": "8.0", "medium": "5.0", "low": "2.0", "info": "0.0"}


def report_to_sarif(report: AuditReport, findings: list[AuditFinding]) -> dict[str, object]:
    """Includes suppressed findings, marked as suppressed in source."""
    known = list(load_rules().values())
    index = {rule.id: at for at, rule in enumerate(known)}
    results = [_result(finding, index[finding.rule]) for finding in [*findings, *report.suppressed]]
    driver = {
        "name": "kitbag audit",
        "version": __version__,
        "rules": [_rule(rule) for rule in known],
    }
    unread = [{"level": "note", "message": {"text": f"not read: {path}: {reason}"}} for path, reason in report.unread]
    invocation = {"executionSuccessful": True, "toolExecutionNotifications": unread}
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "invocations": [invocation],
        "results": results,
        "properties": {"caution": CAUTION},
    }
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def _rule(rule: AuditRule) -> dict[str, object]:
    return {
        "id": rule.id,
        "shortDescription": {"text": rule.title},
        "fullDescription": {"text": rule.why},
        "help": {"text": rule.fix},
        "defaultConfiguration": {"level": _LEVELS[rule.severity]},
        "properties": {"security-severity": _SCORES[rule.severity], "precision": rule.confidence},
    }


def _result(finding: AuditFinding, index: int) -> dict[str, object]:
    rule = load_rules()[finding.rule]
    note = f" ({finding.note})" if finding.note else ""
    location: dict[str, object] = {"artifactLocation": {"uri": quote(finding.file), "uriBaseId": "%SRCROOT%"}}
    if finding.line:
        location["region"] = {"startLine": finding.line, "snippet": {"text": finding.excerpt}}
    result: dict[str, object] = {
        "ruleId": finding.rule,
        "ruleIndex": index,
        "level": _LEVELS[finding.severity],
        "message": {"text": f"{rule.title}: {finding.excerpt}{note}. {rule.fix}"},
        "locations": [{"physicalLocation": location}],
        "partialFingerprints": {"kitbagAudit/v1": finding.fingerprint},
        "properties": {"severity": finding.severity, "confidence": finding.confidence, "item": finding.item},
    }
    if finding.suppressed:
        result["suppressions"] = [{"kind": "inSource", "justification": finding.suppressed}]
    return result
