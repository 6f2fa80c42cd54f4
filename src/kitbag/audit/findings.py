"""The values of an audit: items, files, findings, and what was not read.

Used by every module of this package; imports none of them.
"""

from typing import Final, Literal, NamedTuple

import msgspec

Severity = Literal["high", "medium", "low", "info"]
Confidence = Literal["high", "medium", "low"]
SEVERITIES: Final[tuple[Severity, ...]] = ("high", "medium", "low", "info")
FAILING_SEVERITIES: Final[frozenset[Severity]] = frozenset(("high", "medium"))

AuditItemKind = Literal["skill", "command", "agent", "plugin", "workspace"]
AuditFileKind = Literal["file", "link", "special"]
MAX_EXCERPT: Final = 160


class AuditFile(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """A directory entry as found by the walk; not read yet."""

    path: str
    """Absolute."""
    relative: str
    """Relative to the item's folder."""
    kind: AuditFileKind
    size: int
    executable: bool


class UnreadPath(NamedTuple):
    """What was not examined, and why. Never dropped silently."""

    path: str
    """Relative to the audit's root."""
    reason: str


class AuditItem(msgspec.Struct, frozen=True, kw_only=True):
    """A skill, an agent, a command, a plugin, or the rest of a workspace."""

    kind: AuditItemKind
    folder: str
    """Absolute; its files are below. For a single-file item, the folder of that file."""
    path: str
    """Relative to the audit's root: the folder of a skill, the file of an agent."""
    main_file: str
    """The file with its instructions, relative to the folder; empty if there is none."""
    files: tuple[AuditFile, ...]
    unread: tuple[UnreadPath, ...] = ()


class AuditFinding(msgspec.Struct, frozen=True, kw_only=True):
    rule: str
    severity: Severity
    confidence: Confidence
    file: str
    """Relative to the audit's root."""
    line: int
    """1-based; 0 means the whole file."""
    excerpt: str
    """One line, safe to show."""
    note: str = ""
    """Details of this occurrence; the rule explains the rest."""
    item: str = ""
    fingerprint: str = ""
    """Stays the same if the matched text moves inside its file."""
    suppressed: str = ""
    """The reason given in the file for ignoring it."""

    @property
    def location(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file


def finding_sort_key(finding: AuditFinding) -> tuple[object, ...]:
    """Worst first, then by location; deterministic."""
    return (SEVERITIES.index(finding.severity), finding.file, finding.line, finding.rule, finding.excerpt)


def cap_severity(severity: Severity, limit: Severity) -> Severity:
    return SEVERITIES[max(SEVERITIES.index(severity), SEVERITIES.index(limit))]
