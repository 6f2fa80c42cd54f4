"""Runs an audit, from paths to a report: finds the items, examines each, compares their names.

The entry point of this package. Used by the command line and by lockfile.
"""

import os
from typing import Final

import msgspec

from kitbag.audit.examine_item import ExaminedItem, ReadBudget, examine_item
from kitbag.audit.find_items import find_items
from kitbag.audit.findings import SEVERITIES, AuditFinding, AuditItem, Severity, UnreadPath, finding_sort_key
from kitbag.audit.fingerprints import add_fingerprints
from kitbag.audit.name_checks import NamedItem, check_names, is_builtin
from kitbag.audit.rules import load_rules
from kitbag.text.hidden_characters import collapse_whitespace, escape_for_terminal

VERSION: Final = 1
CAUTION: Final = (
    "A clean audit grants no permissions; it cannot judge intent. You and your permission rules decide what may run."
)


class AuditReport(msgspec.Struct, frozen=True, kw_only=True):
    root: str
    requested_paths: tuple[str, ...]
    """Relative to the root."""
    examined: tuple[ExaminedItem, ...]
    unread: tuple[UnreadPath, ...]
    """From the walk itself; what an item could not read is listed with the item, as a finding."""

    @property
    def findings(self) -> list[AuditFinding]:
        """Without suppressed ones; worst first."""
        return sorted((f for one in self.examined for f in one.findings if not f.suppressed), key=finding_sort_key)

    def covers(self, path: str) -> bool:
        """Whether a path, relative to the root, was requested."""
        return any(top in (".", path) or path.startswith(top + os.sep) for top in self.requested_paths)

    @property
    def suppressed(self) -> list[AuditFinding]:
        return sorted((f for one in self.examined for f in one.findings if f.suppressed), key=finding_sort_key)


def run_audit(paths: tuple[str, ...], lock_file: str = "") -> AuditReport:
    """Excludes `lock_file`. Raises UsageError for a path that can't be audited."""
    target = find_items(paths, lock_file)
    budget = ReadBudget()
    examined = [examine_item(item, target.root, budget) for item in target.items]
    names = check_names(
        NamedItem(f"{one.item.kind} {one.item.path}", item_name(one), is_builtin(one.item.folder)) for one in examined
    )
    checked: list[ExaminedItem] = []
    for one in examined:
        name_findings: list[AuditFinding] = []
        for remark in names.get(f"{one.item.kind} {one.item.path}", []):
            rule = load_rules()[remark.rule]
            file = os.path.normpath(os.path.join(os.path.relpath(one.item.folder, target.root), one.item.main_file))
            excerpt = escape_for_terminal(collapse_whitespace(remark.excerpt))
            finding = AuditFinding(
                rule=rule.id,
                severity=remark.severity or rule.severity,
                confidence=rule.confidence,
                file=file,
                line=1,
                excerpt=excerpt,
                note=escape_for_terminal(remark.note),
            )
            name_findings += add_fingerprints([finding], one.item.path)
        checked.append(
            msgspec.structs.replace(one, findings=tuple(sorted((*one.findings, *name_findings), key=finding_sort_key)))
        )
    return AuditReport(
        root=target.root, requested_paths=target.requested_paths, examined=tuple(checked), unread=target.unread
    )


def item_name(examined: ExaminedItem) -> str:
    """The declared name, else the name of its file or folder."""
    if examined.declared.name and examined.item.kind != "command":
        return examined.declared.name
    return fallback_name(examined.item)


def fallback_name(item: AuditItem) -> str:
    if item.kind == "workspace":
        return ""
    if item.kind in ("skill", "plugin") and item.path.rpartition("/")[2] != item.main_file:
        return os.path.basename(item.folder)
    stem = os.path.splitext(os.path.basename(item.path))[0]
    return stem.removesuffix(".agent").removesuffix(".chatmode")


def has_failures(findings: list[AuditFinding], fail_on: Severity = "medium") -> bool:
    """Whether a finding is at least as severe."""
    return any(SEVERITIES.index(finding.severity) <= SEVERITIES.index(fail_on) for finding in findings)


def count_findings(report: AuditReport, findings: list[AuditFinding]) -> dict[str, int]:
    return {
        **{severity: sum(finding.severity == severity for finding in findings) for severity in SEVERITIES},
        "suppressed": len(report.suppressed),
        "items": len(report.examined),
        "files": sum(len(one.files) for one in report.examined),
        "not_read": len(report.unread) + sum(len(one.unread) for one in report.examined),
    }


def finding_to_json(finding: AuditFinding) -> dict[str, object]:
    rule = load_rules()[finding.rule]
    return {
        "rule": finding.rule,
        "severity": finding.severity,
        "confidence": finding.confidence,
        "item": finding.item,
        "file": finding.file,
        "line": finding.line,
        "excerpt": finding.excerpt,
        "note": finding.note,
        "why": rule.why,
        "fix": rule.fix,
        "fingerprint": finding.fingerprint,
        "suppressed": finding.suppressed or None,
    }


def report_to_json(report: AuditReport, findings: list[AuditFinding]) -> dict[str, object]:
    """The same for the same files, wherever they are."""
    return {
        "version": VERSION,
        "counts": count_findings(report, findings),
        "findings": [finding_to_json(finding) for finding in findings],
        "suppressed": [finding_to_json(finding) for finding in report.suppressed],
        "items": [
            {
                "kind": one.item.kind,
                "name": item_name(one),
                "path": one.item.path,
                "files": len(one.files),
                "manifest": one.manifest.to_json(),
            }
            for one in report.examined
        ],
        "not_read": [
            unread._asdict() for unread in sorted({*report.unread, *(u for one in report.examined for u in one.unread)})
        ],
        "caution": CAUTION,
    }
