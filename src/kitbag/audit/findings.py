"""The values an audit is about: what was looked at, what was found, what was not read.

Used by every module of this package; imports none of them.
"""

from typing import Final, Literal, NamedTuple

Severity = Literal["high", "medium", "low", "info"]
Confidence = Literal["high", "medium", "low"]
SEVERITIES: Final[tuple[Severity, ...]] = ("high", "medium", "low", "info")
FAILING_SEVERITIES: Final[frozenset[Severity]] = frozenset(("high", "medium"))

AuditItemKind = Literal["skill", "command", "agent", "plugin", "workspace"]
AuditFileKind = Literal["file", "link", "special"]
MAX_EXCERPT: Final = 160


class AuditFile(NamedTuple):
    """One name in a folder, as the walk met it; nothing of it has been read."""

    path: str
    """Absolute."""
    relative: str
    """To the item's folder."""
    kind: AuditFileKind
    size: int
    executable: bool


class UnreadPath(NamedTuple):
    """What was not looked at, and why. Never dropped silently."""

    path: str
    """Relative to the audit's root."""
    reason: str


class AuditItem(NamedTuple):
    """A skill, an agent, a command, a plugin, or what a workspace brings besides."""

    kind: AuditItemKind
    folder: str
    """Absolute: what belongs to it lies below. For an item of one file, the folder of that file."""
    path: str
    """Relative to the audit's root: the folder of a skill, the file of an agent."""
    main_file: str
    """The file with its instructions, relative to the folder; empty when it has none."""
    files: tuple[AuditFile, ...]
    unread: tuple[UnreadPath, ...] = ()


class AuditFinding(NamedTuple):
    rule: str
    severity: Severity
    confidence: Confidence
    file: str
    """Relative to the audit's root."""
    line: int
    """Counted from 1; 0 speaks of the whole file."""
    excerpt: str
    """One line, already safe to show."""
    note: str = ""
    """What is special about this place; the rule says the rest."""
    item: str = ""
    fingerprint: str = ""
    """The same for the same thing, wherever it moves inside its file."""
    suppressed: str = ""
    """The reason that the file gives for not reporting it."""

    @property
    def location(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file


def finding_sort_key(finding: AuditFinding) -> tuple[object, ...]:
    """Worst first, then by place: the same in every run."""
    return (SEVERITIES.index(finding.severity), finding.file, finding.line, finding.rule, finding.excerpt)


def cap_severity(severity: Severity, limit: Severity) -> Severity:
    return SEVERITIES[max(SEVERITIES.index(severity), SEVERITIES.index(limit))]
