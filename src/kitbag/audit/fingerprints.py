"""Fingerprints of findings: reports and lock files recognize them by these. Used by examine_item, run and lockfile."""

import hashlib

import msgspec

from kitbag.audit.findings import AuditFinding


def add_fingerprints(findings: list[AuditFinding], item: str) -> list[AuditFinding]:
    """Hashes the rule, the file and the matched text, so that prose around it may change."""
    seen: dict[str, int] = {}
    fingerprinted: list[AuditFinding] = []
    for finding in findings:
        base = f"{finding.rule}\0{finding.file}\0{finding.fingerprint or finding.excerpt}"
        seen[base] = seen.get(base, 0) + 1
        digest = hashlib.sha256(f"{base}\0{seen[base]}".encode("utf-8", "backslashreplace")).hexdigest()[:24]
        fingerprinted.append(msgspec.structs.replace(finding, item=item, fingerprint=digest))
    return fingerprinted
