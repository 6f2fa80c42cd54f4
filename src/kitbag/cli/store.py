"""`kitbag store`: shows, checks and prunes what Kitbag stores, and acknowledges damage."""

import os
import sys
from typing import TYPE_CHECKING, Any

import click

from kitbag.cli import output
from kitbag.cli.command_group import CommandGroup
from kitbag.cli.library_options import json_option
from kitbag.library.scopes import find_places
from kitbag.text.human_format import format_bytes

if TYPE_CHECKING:
    from kitbag.store.journal import Journal

_RECOVERY = "the next command sets it aside and recovers the records before the damage"


class _StoreGroup(CommandGroup):
    bare_command = "status"


@click.group(cls=_StoreGroup)
def command() -> None:
    """Show, check and clean up sessions, tasks and undo data."""


@command.command()
@json_option
def status(as_json: bool) -> Any:
    """Show how much is stored, and whether anything is damaged."""
    from kitbag.assembly.open_store import database_url
    from kitbag.store.journal_status import read_status

    home = find_places().kitbag_home
    found = read_status(home, database_url(home))
    if as_json:
        return output.as_json(found.to_json())
    output.fields(
        [
            *([("database", output.clean(found.database))] if found.database else []),
            ("journal", format_bytes(found.journal_bytes)),
            *([("mirror", format_bytes(found.mirror_bytes))] if found.mirror_bytes else []),
            ("undo data", format_bytes(found.undo_bytes)),
            ("task output", format_bytes(found.output_bytes)),
            *([("set aside", f"{format_bytes(found.damaged_bytes)} (damaged)")] if found.damaged_bytes else []),
        ]
    )
    for notice in found.damage:
        output.echo(f"\n{output.style('damaged', 'yellow')} {notice.at}: {output.clean(notice.text())}")
    if found.damage:
        output.remark("run `kitbag store acknowledge` when you have checked your tasks and sessions")
    return None


@command.command()
@json_option
def acknowledge(as_json: bool) -> Any:
    """Stop the notices about a damaged journal. The damaged file stays where it is."""
    from kitbag.permissions.approvals.queue import require_person
    from kitbag.store.damage_notices import acknowledge as acknowledge_damage

    require_person()
    notices = acknowledge_damage(find_places().kitbag_home)
    if as_json:
        return output.as_json({"acknowledged": [notice._asdict() for notice in notices]})
    if not notices:
        return output.echo("nothing to acknowledge: no damage was reported")
    for notice in notices:
        output.echo(f"acknowledged; the damaged file is in {output.clean(notice.folder)}")
    return None


@command.command()
@json_option
def check(as_json: bool) -> Any:
    """Check every record of the journal, and build its tables again. Exits with 1 if the journal is damaged."""
    from kitbag.assembly.open_store import database_url

    home = find_places().kitbag_home
    url = database_url(home)
    name, records, problem = _check_database(url, home) if url else _check_file(home)
    if as_json:
        output.as_json({"path": name, "records": records, "problem": problem})
    elif problem:
        output.echo(f"{output.clean(name)} is damaged: {output.clean(problem)}")
        fix = "restore the database from a backup" if url else _RECOVERY
        output.remark(fix)
    else:
        output.echo(f"{output.format_count(records, 'record')} checked, no problems")
    sys.exit(1 if problem else 0)


def _check_file(home: str) -> tuple[str, int, str]:
    """The path, how many records there are, and the problem."""
    from kitbag.store.journal import Journal, journal_path
    from kitbag.store.journal_file import request_check
    from kitbag.store.journal_status import check_journal
    from kitbag.store.redaction import Redactor

    path = journal_path(home)
    if not os.path.lexists(path):
        return path, 0, ""
    records, problem = check_journal(path)
    if problem:
        request_check(path)
    else:
        with Journal.open(path, Redactor.from_environment(os.environ)) as journal:
            _rebuild_tables(journal)
    return path, records, problem


def _check_database(url: str, home: str) -> tuple[str, int, str]:
    from kitbag.assembly.open_store import open_database
    from kitbag.store.database_url import describe_url
    from kitbag.store.redaction import Redactor

    with open_database(url, home, Redactor.from_environment(os.environ)) as journal:
        from kitbag.store.postgres import check_database

        records, problem = check_database(url)
        if not problem:
            _rebuild_tables(journal)
    return describe_url(url), records, problem


def _rebuild_tables(journal: "Journal") -> None:
    from kitbag.agent.session_table import SESSION_TABLE
    from kitbag.tasks.task_table import TASK_TABLE

    journal.drop_tables()
    for table in (TASK_TABLE, SESSION_TABLE):
        journal.ensure_table(table)


@command.command()
@click.option(
    "--older-than",
    "age",
    metavar="AGE",
    default="",
    help="Delete what was last used before this: 90d, 12w or 1y.",
    show_default="the `store.retention_days` setting",
)
@click.option("--dry-run", is_flag=True, help="Show what would be deleted.")
@json_option
def prune(age: str, dry_run: bool, as_json: bool) -> Any:
    """Delete old sessions and ended tasks with their output, undo data and merged worktrees.

    Of a task, its id, status and dates stay. Nothing that is open, unfinished or not merged is deleted.
    """
    from kitbag.assembly.open_journal import open_journal
    from kitbag.assembly.open_store import has_journal
    from kitbag.permissions.approvals.queue import require_person
    from kitbag.runtime.retention import PruneReport
    from kitbag.runtime.retention import prune as prune_store

    home = find_places().kitbag_home
    days = _parse_age(age, home)
    if not dry_run:
        require_person()
    report = PruneReport(dry_run=dry_run, before="")
    if has_journal(home):
        with open_journal(home) as journal:
            report = prune_store(journal, home, days, dry_run=dry_run)
    if as_json:
        return output.as_json(report.to_json())
    verb = "would delete" if dry_run else "deleted"
    tasks = output.format_count(len(report.tasks), "task")
    output.echo(f"{verb} {output.format_count(len(report.sessions), 'session')} and the data of {tasks}")
    for name, reason in report.kept:
        output.remark(output.clean(f"kept {name}: {reason}"))
    return None


@command.command()
@click.option("--to", "target", metavar="URL", required=True, help="A postgresql:// URL, or `file` for this machine.")
@json_option
def copy(target: str, as_json: bool) -> Any:
    """Copy all sessions, tasks and approvals to a PostgreSQL database, or from the configured one to this machine.

    The target must be empty. The copy is read back and compared before it counts; the source stays as it is. To use
    a database afterwards, set KITBAG_DATABASE_URL or `store.database_url`. Undo data and the output of background
    commands stay on this machine.
    """
    from kitbag.agent.session_table import register_session_briefs
    from kitbag.assembly.open_store import database_url, needs_fleet_extra
    from kitbag.errors import NotFoundError, UsageError
    from kitbag.permissions.approvals.queue import require_person
    from kitbag.store.journal import journal_path

    require_person()
    home = find_places().kitbag_home
    path, url = journal_path(home), database_url(home)
    with needs_fleet_extra():
        from kitbag.store.postgres import parse_url
        from kitbag.store.store_copy import copy_to_database, copy_to_file
    register_session_briefs()
    if target != "file":
        parse_url(target)  # before the source, which may not exist because `file` was meant
        if not os.path.lexists(path):
            raise NotFoundError(f"{path} does not exist, so there is nothing to copy", "use the database as it is")
        report = copy_to_database(path, target)
    elif not url:
        raise UsageError("no database is configured", "set KITBAG_DATABASE_URL to the database to copy from")
    else:
        report = copy_to_file(url, path)
    if unfinished := _unfinished_tasks(path):
        count = output.format_count(len(unfinished), "unfinished task")
        shown = ", ".join(unfinished[:_SHOWN_TASKS]) + (", ..." if len(unfinished) > _SHOWN_TASKS else "")
        output.remark(f"warning: {count} would run in both stores ({shown}); do not use {report.source} any more")
        output.remark("  or stop them there with `kitbag tasks stop ID`")
    if as_json:
        fields = {name: getattr(report, name) for name in ("source", "target", "records", "digest")}
        return output.as_json(fields)
    count = output.format_count(report.records, "record")
    output.echo(output.clean(f"copied {count} from {report.source} to {report.target}, verified"))
    return None


def _unfinished_tasks(path: str) -> list[str]:
    """Background tasks in the file, which has the same ones after a copy in either direction."""
    from kitbag.store.journal import Journal
    from kitbag.store.redaction import Redactor
    from kitbag.tasks.board import Board

    with Journal.open(path, Redactor([])) as journal:
        return [task.id for task in Board(journal).unfinished() if task.background]


def _parse_age(age: str, home: str) -> int:
    from kitbag.errors import UsageError
    from kitbag.settings import load_settings

    if not age:
        days = int(load_settings(home, ()).get("store.retention_days"))
        if not days:
            raise UsageError("store.retention_days is 0, so nothing is too old", "use --older-than 90d")
        return days
    number, unit = age[:-1], age[-1:]
    if not (number.isascii() and number.isdecimal() and unit in _UNIT_DAYS and len(number) < 6):
        raise UsageError(f"--older-than {age[:40]}: not an age", "write a number and d, w or y, such as 90d")
    return int(number) * _UNIT_DAYS[unit]


_UNIT_DAYS = {"d": 1, "w": 7, "y": 365}
_SHOWN_TASKS = 5
