"""An audit from paths to a report: finds the items, examines each, compares their names.

The door of this package: used by the command line and by lockfile.
"""

import os
from typing import Final, NamedTuple

from kitbag.audit.examine_item import Budget, Examined, examine, with_fingerprints
from kitbag.audit.find_items import find_items
from kitbag.audit.findings import FAILING, SEVERITIES, Finding, Item, Unread, order
from kitbag.audit.name_checks import Named, check_names, is_builtin
from kitbag.audit.rules import rules
from kitbag.text.hidden_characters import for_terminal, one_line

VERSION: Final = 1
CAUTION: Final = (
    "A clean audit never raises a permission: it reads, it can't know what somebody means. "
    "What may run is decided by your rules and by you."
)


class Report(NamedTuple):
    root: str
    tops: tuple[str, ...]
    """What was asked for, relative to the root."""
    examined: tuple[Examined, ...]
    unread: tuple[Unread, ...]
    """Of the walk itself; what an item could not read is with the item, and a finding."""

    @property
    def findings(self) -> list[Finding]:
        """Without those that are suppressed; worst first."""
        return sorted((f for one in self.examined for f in one.findings if not f.suppressed), key=order)

    def covers(self, path: str) -> bool:
        """Whether a path, relative to the root, is part of what was asked for."""
        return any(top in (".", path) or path.startswith(top + os.sep) for top in self.tops)

    @property
    def suppressed(self) -> list[Finding]:
        return sorted((f for one in self.examined for f in one.findings if f.suppressed), key=order)


def audit(paths: tuple[str, ...], lock_file: str = "") -> Report:
    """`lock_file` is left out of it. Raises UsageError for a path that can't be audited."""
    target = find_items(paths, lock_file)
    budget = Budget()
    examined = [examine(item, target.root, budget) for item in target.items]
    names = check_names(
        Named(f"{one.item.kind} {one.item.path}", name_of(one), is_builtin(one.item.folder)) for one in examined
    )
    done: list[Examined] = []
    for one in examined:
        found: list[Finding] = []
        for remark in names.get(f"{one.item.kind} {one.item.path}", []):
            rule = rules()[remark.rule]
            file = os.path.normpath(os.path.join(os.path.relpath(one.item.folder, target.root), one.item.main))
            excerpt = for_terminal(one_line(remark.excerpt))
            finding = Finding(
                rule.id, remark.severity or rule.severity, rule.confidence, file, 1, excerpt, for_terminal(remark.note)
            )
            found += with_fingerprints([finding], one.item.path)
        done.append(one._replace(findings=tuple(sorted((*one.findings, *found), key=order))))
    return Report(target.root, target.tops, tuple(done), target.unread)


def name_of(one: Examined) -> str:
    """What it declares to be called, else what its file or folder is called."""
    if one.declared.name and one.item.kind != "command":
        return one.declared.name
    return fallback_name(one.item)


def fallback_name(item: Item) -> str:
    if item.kind == "workspace":
        return ""
    if item.kind in ("skill", "plugin") and item.path.rpartition("/")[2] != item.main:
        return os.path.basename(item.folder)
    stem = os.path.splitext(os.path.basename(item.path))[0]
    return stem.removesuffix(".agent").removesuffix(".chatmode")


def fails(findings: list[Finding], strict: bool = False) -> bool:
    return any(strict or finding.severity in FAILING for finding in findings)


def counts(report: Report, findings: list[Finding]) -> dict[str, int]:
    return {
        **{severity: sum(finding.severity == severity for finding in findings) for severity in SEVERITIES},
        "suppressed": len(report.suppressed),
        "items": len(report.examined),
        "files": sum(len(one.files) for one in report.examined),
        "not_read": len(report.unread) + sum(len(one.unread) for one in report.examined),
    }


def finding_json(finding: Finding) -> dict[str, object]:
    rule = rules()[finding.rule]
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


def report_json(report: Report, findings: list[Finding]) -> dict[str, object]:
    """The same text for the same files, wherever they lie."""
    return {
        "version": VERSION,
        "counts": counts(report, findings),
        "findings": [finding_json(finding) for finding in findings],
        "suppressed": [finding_json(finding) for finding in report.suppressed],
        "items": [
            {
                "kind": one.item.kind,
                "name": name_of(one),
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
