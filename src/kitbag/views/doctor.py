"""What `kitbag doctor` and `/doctor` show: problems by kind, where items were found, and the sandbox."""

from collections.abc import Iterable

import msgspec

from kitbag.errors import SEVERITIES, Diagnostic, Severity
from kitbag.runtime.doctor import DoctorReport
from kitbag.store.journal_status import StoreStatus
from kitbag.text.human_format import format_bytes, shorten_path
from kitbag.views.blocks import FieldsBlock, TableBlock
from kitbag.views.permissions import describe_protection

_MAX_SHOWN = 3
"""How many diagnostics of one kind are shown."""


class DiagnosticGroup(msgspec.Struct, frozen=True, kw_only=True):
    """All diagnostics of one kind."""

    severity: Severity
    code: str
    shown: tuple[Diagnostic, ...]
    omitted: int
    """How many are not shown."""

    @property
    def title(self) -> str:
        return f"{len(self.shown) + self.omitted:,} × {self.code}"


def group_diagnostics(diagnostics: Iterable[Diagnostic], details: bool = False) -> list[DiagnosticGroup]:
    """By severity and code: the worst first, then the most frequent. Of a large group only examples are shown, unless
    `details`."""
    groups: dict[tuple[Severity, str], list[Diagnostic]] = {}
    for diagnostic in diagnostics:
        groups.setdefault((diagnostic.severity, diagnostic.code), []).append(diagnostic)
    ordered = sorted(groups.items(), key=lambda group: (SEVERITIES.index(group[0][0]), -len(group[1]), group[0][1]))
    result: list[DiagnosticGroup] = []
    for (severity, code), found in ordered:
        shown = found if details or len(found) <= _MAX_SHOWN + 1 else found[:_MAX_SHOWN]
        result.append(
            DiagnosticGroup(severity=severity, code=code, shown=tuple(shown), omitted=len(found) - len(shown))
        )
    return result


def root_table(report: DoctorReport, *, path_first: bool = False) -> TableBlock:
    """`path_first`: the path in the first column, not in the last, which may be truncated."""
    headers: tuple[str, ...] = ("KIND", "SCOPE", "ITEMS", "PATH")
    rows = [(root.kind, root.scope, str(root.items), shorten_path(root.path)) for root in report.roots]
    if path_first:
        return TableBlock(headers=(headers[3], *headers[:3]), rows=tuple((row[3], *row[:3]) for row in rows))
    return TableBlock(headers=headers, rows=tuple(rows))


def sandbox_fields(report: DoctorReport) -> FieldsBlock:
    protection = report.protection
    pairs = (("sandbox", describe_protection(protection)), ("note", protection.problem), ("fix", protection.fix))
    return FieldsBlock(pairs)


def describe_store(status: StoreStatus) -> str:
    """How much is stored of what."""
    parts = (
        (status.journal_bytes, "sessions and tasks"),
        (status.undo_bytes, "undo data"),
        (status.output_bytes, "task output"),
        (status.damaged_bytes, "damaged journals"),
    )
    stored = [f"{format_bytes(size)} {what}" for size, what in parts if size]
    return ", ".join([*([f"sessions and tasks in {status.database}"] if status.database else []), *stored]) or "nothing"
