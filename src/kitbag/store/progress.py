"""Tells the user what takes long while the journal is opened: a check, a recovery, an upgrade.

Set by the command line; used by the journal. Imports nothing, because every command sets it.
"""

from collections.abc import Callable

_reports: "list[Callable[[str], None]]" = []


def set_progress(report: Callable[[str], None]) -> None:
    """`report` gets a line now and then."""
    _reports[:] = [report]


def report_progress(text: str) -> None:
    for report in _reports:
        report(text)
