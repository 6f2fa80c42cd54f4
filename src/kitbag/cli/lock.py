"""`kitbag lock`: writes the capabilities and files of skills to a lock file, and checks it."""

import os
import sys

import click

from kitbag.audit.find_items import LOCK_FILE, find_audit_root
from kitbag.audit.lockfile import build_lock, format_lock, list_differences, read_lock, write_lock
from kitbag.audit.run import AuditReport, run_audit
from kitbag.cli import output
from kitbag.cli.library_options import json_option
from kitbag.library.scopes import find_places


@click.command(epilog="Exit codes: 0 written or unchanged, 1 --check found differences, 2 failed.")
@click.argument("path", required=False, metavar="[PATH]")
@click.option(
    "-o",
    "--output",
    "target",
    metavar="FILE",
    help="Write to FILE; - is stdout.",
    show_default=f"{LOCK_FILE} at the root",
)
@click.option("--check", is_flag=True, help="Write nothing; exit 1 if anything differs, including prose.")
@json_option
def command(path: str | None, target: str | None, check: bool, as_json: bool) -> None:
    """Record what skills can do, to detect changes.

    The lock file lists the files of every item with their hashes, its capabilities and its known findings. It contains
    no timestamps or machine paths, so you can commit it; `kitbag audit --since kitbag.lock` then shows only what
    changed. It grants no permissions and no trust.
    """
    top = path if path is not None else find_places().project
    file = target or os.path.join(find_audit_root(os.path.realpath(top)), LOCK_FILE)
    report = run_audit((path,) if path is not None else (), "" if file == "-" else file)
    if check:
        _check_lock(report, file, as_json)
        return
    if file == "-":
        output.echo(format_lock(build_lock(report)).rstrip("\n"))
    else:
        write_lock(file, report)
    _print_unread(report)
    files = sum(len(one.files) for one in report.examined)
    if as_json and file != "-":
        output.as_json({"file": file, "items": len(report.examined), "files": files})
    elif file != "-":
        what = f"{output.format_count(len(report.examined), 'item')}, {output.format_count(files, 'file')}"
        output.echo(f"wrote {output.clean(output.shorten_path(file))}: {what}")


def _check_lock(report: AuditReport, file: str, as_json: bool) -> None:
    differences = list_differences(report, read_lock(file))
    if as_json:
        listed = [{"path": path, "what": what} for path, what in differences]
        output.as_json({"file": file, "same": not differences, "differences": listed})
    else:
        for path, what in differences:
            output.echo(f"{output.clean(path)}: {output.clean(what)}")
        output.echo(
            f"{output.format_count(len(differences), 'difference')}"
            if differences
            else "no differences from the lock file"
        )
    _print_unread(report)
    sys.exit(1 if differences else 0)


def _print_unread(report: AuditReport) -> None:
    for unread in report.unread:
        output.remark(f"not locked: {output.clean(unread.path)}: {output.clean(unread.reason)}")
