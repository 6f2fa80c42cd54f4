"""`kitbag store`: shows and checks what Kitbag stores, and acknowledges damage."""

import os
import sys
from typing import Any

import click

from kitbag.cli import output
from kitbag.cli.command_group import CommandGroup
from kitbag.cli.library_options import json_option
from kitbag.library.scopes import find_places
from kitbag.text.human_format import format_bytes


@click.group(cls=CommandGroup)
def command() -> None:
    """Show, check and clean up sessions, tasks and undo data."""


@command.command()
@json_option
def status(as_json: bool) -> Any:
    """Show how much is stored, and whether anything is damaged."""
    from kitbag.store.journal_status import read_status

    found = read_status(find_places().kitbag_home)
    if as_json:
        return output.as_json(found.to_json())
    output.fields(
        [
            ("journal", format_bytes(found.journal_bytes)),
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
    from kitbag.agent.session_table import SESSION_TABLE
    from kitbag.store.journal import Journal, journal_path
    from kitbag.store.journal_file import request_check
    from kitbag.store.journal_status import check_journal
    from kitbag.store.redaction import Redactor
    from kitbag.tasks.task_table import TASK_TABLE

    path = journal_path(find_places().kitbag_home)
    records, problem = check_journal(path) if os.path.lexists(path) else (0, "")
    if problem:
        request_check(path)
    elif os.path.lexists(path):
        with Journal.open(path, Redactor.from_environment(os.environ)) as journal:
            journal.drop_tables()
            for table in (TASK_TABLE, SESSION_TABLE):
                journal.ensure_table(table)
    if as_json:
        output.as_json({"path": path, "records": records, "problem": problem})
    elif problem:
        output.echo(f"{output.clean(path)} is damaged: {output.clean(problem)}")
        output.remark("the next command sets it aside and recovers the records before the damage")
    else:
        output.echo(f"{output.format_count(records, 'record')} checked, no problems")
    sys.exit(1 if problem else 0)
