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
_MAX_SHOWN_OF_MANY = 2
_MANY_GROUPS = 8


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

    @property
    def fix(self) -> str:
        """The fix of all that are shown; empty if they need different ones."""
        fixes = {diagnostic.fix for diagnostic in self.shown}
        return fixes.pop() if len(fixes) == 1 else ""


def group_diagnostics(diagnostics: Iterable[Diagnostic], details: bool = False) -> list[DiagnosticGroup]:
    """By severity and code: the worst first, then the most frequent. Of a large group only examples are shown, unless
    `details`: of different fixes, if there are any."""
    groups: dict[tuple[Severity, str], list[Diagnostic]] = {}
    for diagnostic in diagnostics:
        groups.setdefault((diagnostic.severity, diagnostic.code), []).append(diagnostic)
    ordered = sorted(groups.items(), key=lambda group: (SEVERITIES.index(group[0][0]), -len(group[1]), group[0][1]))
    is_large = sum(len(found) > _MAX_SHOWN + 1 for found in groups.values()) > _MANY_GROUPS
    examples = _MAX_SHOWN_OF_MANY if is_large else _MAX_SHOWN
    result: list[DiagnosticGroup] = []
    for (severity, code), found in ordered:
        shown = found if details or len(found) <= _MAX_SHOWN + 1 else _choose_examples(found, examples)
        result.append(
            DiagnosticGroup(severity=severity, code=code, shown=tuple(shown), omitted=len(found) - len(shown))
        )
    return result


def _choose_examples(found: list[Diagnostic], number: int) -> list[Diagnostic]:
    """One of each fix first; in the order of `found`."""
    first = {diagnostic.fix: at for at, diagnostic in reversed(list(enumerate(found)))}
    chosen = sorted(first.values())[:_MAX_SHOWN]
    chosen += [at for at in range(len(found)) if at not in chosen][: max(number - len(chosen), 0)]
    return [found[at] for at in sorted(chosen)]


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
