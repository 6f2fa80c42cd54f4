"""What `kitbag doctor` and `/doctor` show: where items were found, and the sandbox."""

from kitbag.runtime.doctor import DoctorReport
from kitbag.store.journal_status import StoreStatus
from kitbag.text.human_format import format_bytes, shorten_path
from kitbag.views.blocks import FieldsBlock, TableBlock
from kitbag.views.permissions import describe_protection


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
    return ", ".join(f"{format_bytes(size)} {what}" for size, what in parts if size) or "nothing"
