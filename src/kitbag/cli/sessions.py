"""`kitbag sessions`: lists past sessions to resume, and deletes them."""

import os
from typing import Any

import click

from kitbag.cli import output
from kitbag.cli.command_group import CommandGroup
from kitbag.cli.library_options import json_option, limit_option
from kitbag.library.scopes import find_places


@click.group(cls=CommandGroup)
def command() -> None:
    """List and delete sessions."""


@command.command("list")
@click.option("--here", is_flag=True, help="List only sessions in this directory.")
@limit_option
@json_option
def list_(here: bool, limit: int, as_json: bool) -> None:
    """List sessions, newest first. To resume one: kitbag --resume ID."""
    from kitbag.agent.session_list import count_sessions, list_sessions
    from kitbag.store.journal import Journal, journal_path
    from kitbag.store.redaction import Redactor

    places = find_places()
    path = journal_path(places.kitbag_home)
    rows: list[Any] = []
    if os.path.lexists(path):  # reading creates no journal
        with Journal.open(path, Redactor.from_environment(os.environ)) as journal:
            directory = places.cwd if here else ""
            rows = list_sessions(journal, directory, limit or -1)
            if len(rows) == limit:
                output.report_omitted("session", count_sessions(journal, directory) - limit)
    if as_json:
        return output.as_json([row.to_json() for row in rows])
    has_personas = any(row.persona for row in rows)
    output.table(
        ("ID", "LAST", "TURNS", "COST", "MODEL", *(("PERSONA",) if has_personas else ()), "DIRECTORY", "ABOUT"),
        [
            (
                row.id,
                row.last[:16].replace("T", " "),
                str(row.turns),
                f"${row.cost:.4f}" if isinstance(row.cost, int | float) else "?",
                row.model,
                *((row.persona,) if has_personas else ()),
                output.shorten_path(row.directory),
                row.problem or row.about,
            )
            for row in rows
        ],
    )
    output.footer("session", len(rows), 0, 0)
    return None


@command.command("delete")
@click.argument("session_id", metavar="ID")
@json_option
def delete(session_id: str, as_json: bool) -> None:
    """Delete a session with its tasks, their output and its undo data. This can't be undone."""
    from kitbag.agent.session_list import find_session, named_sessions
    from kitbag.assembly.open_journal import open_journal
    from kitbag.errors import NotFoundError
    from kitbag.permissions.approvals.queue import require_person
    from kitbag.runtime.retention import delete_session
    from kitbag.store.journal import journal_path

    require_person()
    home = find_places().kitbag_home
    if not os.path.lexists(journal_path(home)):
        raise NotFoundError(f"no session named {session_id[:80]!r}", "there are no sessions yet")
    with open_journal(home) as journal:
        session = find_session(named_sessions(journal, session_id), session_id)
        report = delete_session(journal, home, session.id)
    if as_json:
        return output.as_json(report.to_json())
    output.echo(f"deleted session {session.id} with {output.format_count(len(report.tasks), 'task')}")
    return None
