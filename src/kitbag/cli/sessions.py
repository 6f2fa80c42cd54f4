"""`kitbag sessions`: lists, shows, exports and deletes sessions."""

import contextlib
import os
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import click

from kitbag.cli import output
from kitbag.cli.command_group import CommandGroup
from kitbag.cli.library_options import all_directories_option, json_option, limit_option
from kitbag.errors import NotFoundError
from kitbag.library.scopes import find_places
from kitbag.text.human_format import format_cost
from kitbag.views.tasks import format_time

if TYPE_CHECKING:
    from kitbag.agent.session_list import SessionSummary
    from kitbag.runtime.export import ExportInfo
    from kitbag.store.journal import Journal


@click.group(cls=CommandGroup)
def command() -> None:
    """List, show, export and delete sessions."""


@command.command("list")
@all_directories_option
@click.option("--here", is_flag=True, hidden=True, help="The default.")  # it was an option while --all was the default
@limit_option
@json_option
def list_(everything: bool, here: bool, limit: int, as_json: bool) -> None:
    """List sessions in this directory, newest first. To resume one: kitbag --resume ID."""
    from kitbag.agent.session_list import count_sessions, list_sessions
    from kitbag.assembly.open_store import has_journal, open_store
    from kitbag.store.redaction import Redactor

    places = find_places()
    directory = "" if everything and not here else places.cwd
    rows: list[Any] = []
    statuses: dict[str, str] = {}
    elsewhere = 0
    if has_journal(places.kitbag_home):
        with open_store(places.kitbag_home, Redactor.from_environment(os.environ)) as journal:
            rows = list_sessions(journal, directory, limit or -1)
            count = count_sessions(journal, directory)
            elsewhere = count_sessions(journal) - count
            if not as_json:
                statuses = {row.id: _describe_status(journal, row) for row in rows}
            if len(rows) == limit:
                output.report_omitted("older session", count - limit)
    if as_json:
        return output.as_json([row.to_json() for row in rows])
    _print_table(rows, statuses, with_directory=not directory)
    output.scope_footer("session", len(rows), directory, elsewhere)
    return None


def _print_table(rows: list[Any], statuses: dict[str, str], *, with_directory: bool) -> None:
    optional = {
        "PERSONA": any(row.persona for row in rows),
        "DIRECTORY": with_directory,
    }
    headers = ("ID", "LAST", "STATUS", "TURNS", "COST", "MODEL", "PERSONA", "DIRECTORY", "ABOUT")
    shown = [name for name in headers if optional.get(name, True)]

    def cells(row: "SessionSummary") -> dict[str, str]:
        return {
            "ID": row.id,
            "LAST": row.last[:16].replace("T", " "),
            "STATUS": statuses[row.id],
            "TURNS": str(row.turns),
            "COST": format_cost(row.cost),
            "MODEL": row.model,
            "PERSONA": row.persona,
            "DIRECTORY": output.shorten_path(row.directory),
            "ABOUT": row.problem or row.about,
        }

    table = [[cells(row)[name] for name in shown] for row in rows]
    omit = [name for name in ("COST", "TURNS", "PERSONA", "MODEL") if name in shown]
    output.table(shown, table, whole=("ID", "LAST", "STATUS"), omit=omit)


def _describe_status(journal: "Journal", summary: "SessionSummary") -> str:
    if summary.problem or summary.status:
        return "damaged" if summary.problem else summary.status
    from kitbag.runtime.session_locks import is_session_open

    return "open" if is_session_open(find_places().kitbag_home, summary.id, journal) else "interrupted"


@command.command()
@click.argument("session_id", metavar="[ID]", default="", required=False)
@json_option
def show(session_id: str, as_json: bool) -> None:
    """Show a session: its settings, cost, tasks and last exchange. Default: the newest in this directory."""
    from kitbag.agent.resume import resume
    from kitbag.agent.session import is_user_message
    from kitbag.agent.user_text import text_of_user
    from kitbag.tasks.board import Board

    with _open_journal(session_id) as journal:
        summary = _find(journal, session_id)
        session = resume(journal, summary.id)
        tasks = Board(journal).of_session(summary.id)
        messages = [message for _, message in session.recorded_messages()]
        status = summary.status or _describe_status(journal, summary)
    usage = session.totals.usage
    tokens = usage.total_input + usage.output
    asked = next((text_of_user(one) for one in reversed(messages) if is_user_message(one)), "")
    answer = next((one.text for one in reversed(messages) if one.role == "assistant" and one.text), "")
    if as_json:
        details = {"tokens": tokens, "tasks": [task.id for task in tasks], "last_message": asked, "last_answer": answer}
        return output.as_json({**summary.to_json(), **details})
    output.fields(
        (
            ("session", summary.id),
            ("status", status),
            ("problem", summary.problem),
            ("about", summary.about),
            ("directory", summary.directory),
            ("model", summary.model),
            ("mode", summary.mode),
            ("persona", summary.persona),
            ("forked from", summary.forked_from),
            ("turns", str(summary.turns)),
            ("tokens", f"{tokens:,}"),
            ("cost", format_cost(summary.cost)),
            ("started", format_time(summary.started)),
            ("last", format_time(summary.last)),
            ("tasks", ", ".join(task.id for task in tasks)),
            ("resume", f"kitbag --resume {summary.id}"),
        )
    )
    for title, text in (("Last message", asked), ("Last answer", answer)):
        if text:
            output.echo(f"\n{output.style(title, 'bold')}")
            output.block(text)
    return None


@command.command()
@click.argument("session_id", metavar="[ID]", default="", required=False)
@click.option(
    "--format",
    "form",
    type=click.Choice(["markdown", "json"]),
    help="Write this format.",
    show_default="markdown, or json if FILE ends in .json",
)
@click.option("--output", "file", metavar="FILE", help="Write to a new FILE, readable only by you.", show_default="-")
@json_option
def export(session_id: str, form: str | None, file: str | None, as_json: bool) -> None:
    """Export a session as /export does, with secrets redacted. Default: the newest in this directory."""
    from kitbag.runtime.export import export_json, export_markdown

    is_json = as_json or form == "json" or (form is None and bool(file) and file.lower().endswith(".json"))
    with _open_journal(session_id) as journal:
        info = _export_info(journal, _find(journal, session_id).id)
        text = (export_json if is_json else export_markdown)(journal, info)
    if file in (None, "-"):
        return output.exact(text.removesuffix("\n"))
    output.write_new_file(file, text)
    return output.echo(f"exported session {info.session} to {output.clean(output.shorten_path(file))}")


def _export_info(journal: "Journal", session_id: str) -> "ExportInfo":
    from kitbag.agent.resume import resume
    from kitbag.runtime.export import collect_export_info
    from kitbag.tasks.board import Board
    from kitbag.views.tasks import report_tasks

    board = Board(journal)
    reports = report_tasks(board, board.of_session(session_id))
    return collect_export_info(resume(journal, session_id), sum(report.cost or 0.0 for report in reports))


@command.command()
@click.argument("session_id", metavar="ID")
@json_option
def delete(session_id: str, as_json: bool) -> None:
    """Delete a session with its tasks, their output and its undo data. This can't be undone."""
    from kitbag.permissions.approvals.queue import require_person
    from kitbag.runtime.retention import delete_session

    require_person()
    with _open_journal(session_id) as journal:
        session = _find(journal, session_id)
        report = delete_session(journal, find_places().kitbag_home, session.id)
    if as_json:
        return output.as_json(report.to_json())
    output.echo(f"deleted session {session.id} with {output.format_count(len(report.tasks), 'task')}")
    return None


@contextlib.contextmanager
def _open_journal(session_id: str) -> "Generator[Journal, None, None]":
    """Raises NotFoundError if there is no journal: reading creates none."""
    from kitbag.assembly.open_journal import open_journal
    from kitbag.assembly.open_store import has_journal

    home = find_places().kitbag_home
    if not has_journal(home):
        wanted = f"no session named {session_id[:80]!r}" if session_id else "no sessions yet"
        raise NotFoundError(wanted, "there are no sessions yet" if session_id else "start one with `kitbag`")
    with open_journal(home) as journal:
        yield journal


def _find(journal: "Journal", session_id: str) -> "SessionSummary":
    """By id or its start; the newest in this directory if it is empty."""
    from kitbag.agent.session_list import find_session, named_sessions, newest_session

    name = session_id or newest_session(journal, find_places().cwd)
    return find_session(named_sessions(journal, name), name)
