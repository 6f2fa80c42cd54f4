"""`kitbag tasks`: lists, shows, watches, steers, stops and resumes agents' tasks and background commands."""

import asyncio
import contextlib
import os
import sys
from collections.abc import Generator
from typing import Any

import click

from kitbag.assembly.open_journal import open_journal
from kitbag.assembly.open_store import has_journal
from kitbag.cli import interruption, output
from kitbag.cli.command_group import CommandGroup
from kitbag.cli.library_options import all_directories_option, json_option, limit_option
from kitbag.cli.number_types import FloatRange, IntRange
from kitbag.errors import InvalidError, NotFoundError, UsageError
from kitbag.library.scopes import find_places
from kitbag.tasks.board import Board
from kitbag.text.human_format import format_cost
from kitbag.views.tasks import (
    COSTS_TITLE,
    compute_task_costs,
    cost_lines,
    describe_activity,
    draw_tasks,
    output_title,
    report_tasks,
    request_sections,
    task_fields,
)


@contextlib.contextmanager
def open_board(*, create: bool = False) -> Generator[Board, None, None]:
    """Reading creates no journal: without one there are no tasks."""
    kitbag_home = find_places().kitbag_home
    if not create and not has_journal(kitbag_home):
        raise NotFoundError("no tasks yet", "start one: kitbag agents run Explore 'What is this?'")
    with open_journal(kitbag_home) as journal:
        board = Board(journal)
        try:
            yield board
        finally:
            if notice := board.unreadable_notice():
                output.remark(output.clean(notice))


async def _ensure_hosted(board: Board) -> None:
    from kitbag.tasks.worker_process import ensure_tasks_hosted

    start = await ensure_tasks_hosted(board, find_places().kitbag_home)
    if start.problem:
        output.remark(output.clean(start.problem))


@click.group(cls=CommandGroup)
def command() -> None:
    """List, watch, steer, stop and resume background tasks."""


@command.command("list")
@all_directories_option
@click.option("--running", is_flag=True, help="List only tasks that have not ended.")
@limit_option
@click.option(
    "--svg", metavar="FILE", help="Draw them on a timeline to a new FILE; - is stdout.", show_default="no picture"
)
@json_option
def list_(everything: bool, running: bool, limit: int, svg: str | None, as_json: bool) -> None:
    """List tasks in this directory, newest first."""
    directory = "" if everything else find_places().cwd
    with contextlib.suppress(NotFoundError), open_board() as board:
        interruption.run_interruptible(_ensure_hosted(board))
        tasks = board.newest(directory, limit or -1, unfinished=running)
        omitted = board.count(directory) - len(tasks) if len(tasks) == limit and not running else 0
        if svg:
            return output.write_picture(svg, draw_tasks(board, tasks), "the tasks")
        views = report_tasks(board, tasks)
        output.report_omitted("older task", omitted)
        if as_json:
            return output.as_json(
                [{**task.to_json(), **view.to_json()} for task, view in zip(tasks, views, strict=True)]
            )
        output.table(
            ("ID", "AGENT", "STATUS", "TURNS", "TOKENS", "COST", "STARTED", "WHAT"),
            [
                (
                    task.id,
                    view.name,
                    task.shown_status,
                    "" if view.is_command else str(view.turns),
                    "" if view.is_command else f"{view.tokens:,}",
                    "" if view.is_command else format_cost(view.cost),
                    (task.started or task.created)[:16].replace("T", " "),
                    describe_activity(board, task, view),
                )
                for task, view in zip(tasks, views, strict=True)
            ],
            whole=("ID", "STATUS", "STARTED"),
            omit=("COST", "TOKENS", "TURNS"),
        )
        elsewhere = board.count() - board.count(directory) if directory else 0
        output.scope_footer("running task" if running else "task", len(tasks), directory, elsewhere)
        return None
    if svg:
        raise NotFoundError("no tasks yet", "start one: kitbag agents run Explore 'What is this?'")
    if as_json:
        return output.as_json([])
    output.scope_footer("task", 0, directory, 0)
    return None


@command.command()
@click.argument("task_id", metavar="ID")
@json_option
def show(task_id: str, as_json: bool) -> None:
    """Show a task: its prompt, status, result and cost, with its subtasks."""
    from kitbag.tasks.fleet import waiting_reason
    from kitbag.tasks.reports import waiting_messages

    with open_board() as board:
        interruption.run_interruptible(_ensure_hosted(board))
        task = board.find(task_id)
        [view] = report_tasks(board, [task])
        costs = compute_task_costs(board, task)
        request = board.request(task.id)
        if as_json:
            return output.as_json(
                {
                    **task.to_json(),
                    **view.to_json(),
                    "prompt": request.prompt,
                    "request": request.message,
                    "command": request.command,
                    "waits_for": waiting_reason(board, task),
                    "pending_messages": waiting_messages(board, task),
                    "costs": costs.to_json(),
                }
            )
        output.fields(task_fields(board, task, view))
        for title, text in request_sections(request):
            output.echo(f"\n{output.style(title, 'bold')}")
            output.block(text)
        if view.text:
            output.echo(f"\n{output.style(output_title(task), 'bold')}")
            output.block(view.text.rstrip("\n") if view.is_command else view.text)
            if view.next_offset < view.output_size:
                output.remark(f"{view.output_size - view.next_offset:,} more bytes: kitbag tasks output {task.id}")
        if costs.children:
            output.echo(f"\n{output.style(COSTS_TITLE, 'bold')}")
            output.block("\n".join(cost_lines(costs)))
    return None


@command.command("output")
@click.argument("task_id", metavar="ID")
@click.option(
    "--wait",
    "seconds",
    type=FloatRange(0, 86_400),
    default=0.0,
    show_default=True,
    metavar="SECONDS",
    help="Wait up to SECONDS for the task to end.",
)
@click.option("--follow", is_flag=True, help="Print output of a command as it arrives, until the command ends.")
@click.option(
    "--offset",
    type=IntRange(0),
    default=0,
    show_default=True,
    help="Start at this character (for commands: byte).",
)
@json_option
def output_(task_id: str, seconds: float, follow: bool, offset: int, as_json: bool) -> None:
    """Print the output of a task so far. Exits with 1 while it is running and with 6 if it failed or does not
    meet its output requirements."""
    from kitbag.cli.tasks_output import follow_output, show_output
    from kitbag.tasks.reports import build_report
    from kitbag.tasks.worker_process import wait_until_finished

    with open_board() as board:
        task = board.find(task_id)
        if seconds:
            interruption.run_interruptible(wait_until_finished(board, find_places().kitbag_home, task.id, seconds))
        interruption.run_interruptible(_ensure_hosted(board))
        if follow and not as_json:
            interruption.run_interruptible(follow_output(board, task.id, offset))
        elif not as_json:
            show_output(board, task.id, offset)
        report = build_report(board, board.find(task.id), offset)
    if as_json:
        text = report.text if report.is_command else report.text[offset:]
        output.as_json({**report.to_json(), "text": text, "offset": offset})
    for warning in report.further_warnings if report.is_finished and not as_json else ():
        output.remark(output.clean(f"warning: {warning}"))
    if not as_json and report.status not in ("completed", "empty"):
        output.remark(output.clean(f"{report.name}: {report.status}{': ' if report.error else ''}{report.error}"))
    is_done = report.status in ("completed", "empty") and not report.violations
    sys.exit(0 if is_done else 6 if report.is_finished else 1)


@command.command()
@click.argument("task_ids", metavar="ID...", nargs=-1, required=True)
@json_option
def stop(task_ids: tuple[str, ...], as_json: bool) -> None:
    """Stop tasks, their subtasks and their processes. Output so far is kept."""
    from kitbag.tasks.stop import stop_task, stopped_message

    with open_board() as board:
        tasks = [board.find(task_id) for task_id in task_ids]  # find all before stopping any
        stopped = [interruption.run_interruptible(stop_task(board, task, "person")) for task in tasks]
    for warning in (warning for result in stopped for warning in result.report.warnings):
        output.remark(output.clean(warning))
    if not as_json:
        return output.echo("\n".join(output.clean(stopped_message(result)) for result in stopped))
    return output.as_json(
        [
            {
                "id": result.report.id,
                "status": result.report.status,
                "was_finished": result.was_finished,
                "others": result.subtask_count,
                "processes": result.process_count,
            }
            for result in stopped
        ]
    )


@command.command()
@click.argument("task_id", metavar="ID")
@click.argument("text")
@json_option
def send(task_id: str, text: str, as_json: bool) -> None:
    """Send TEXT to a running agent, which gets it after its running tool calls."""
    from kitbag.tasks.send import send_to_task

    with open_board() as board:
        task = board.find(task_id)
        sent = interruption.run_interruptible(send_to_task(board, task, text))
        interruption.run_interruptible(_ensure_hosted(board))
    if as_json:
        return output.as_json({"id": task.id, "message": sent.to_json()})
    output.echo(f"sent to {output.clean(task.agent)} {task.id}; it gets the message after its running tool calls")
    return None


@command.command()
@click.argument("task_id", metavar="ID")
@click.option(
    "--output",
    "file",
    type=click.Path(dir_okay=False, allow_dash=True),
    help="Write the patch to this file instead; `-`: to stdout.",
    show_default="apply it",
)
@json_option
def apply(task_id: str, file: str | None, as_json: bool) -> Any:
    """Apply the changes of an agent that worked in a clone to the current directory's repository.

    All files are changed, or none. Nothing is committed.
    """
    from kitbag.tasks.git_workspace import apply_to_repository
    from kitbag.tasks.task_patches import read_patch

    with open_board() as board:
        task = board.find(task_id)
        name = task.result.patch if task.result is not None else ""
        if not name:
            raise InvalidError(f"task {task.id} has no patch", "see its status with `kitbag tasks show`")
        patch = read_patch(board.journal, task.id, "returned", name)
    if file == "-":
        return output.exact_bytes(patch)
    if file is not None:
        try:
            with open(file, "xb") as target:
                target.write(patch)
        except OSError as error:
            raise InvalidError(f"cannot write {file}: {error.strerror}", "name a new file") from error
        return output.as_json({"task": task.id, "file": file}) if as_json else output.echo(f"wrote {file}")
    files = apply_to_repository(os.getcwd(), patch)
    if as_json:
        return output.as_json({"task": task.id, "files": files})
    for changed in files:
        output.echo(changed)
    return None


@command.command()
@click.argument("task_id", metavar="[ID]", default="", required=False)
@click.argument("prompt", default="", required=False)
@click.option("--all", "everything", is_flag=True, help="Resume every interrupted task, in all directories.")
@click.option("--yes", is_flag=True, help="With --all: resume without asking.")
@json_option
def resume(task_id: str, prompt: str, everything: bool, yes: bool, as_json: bool) -> Any:
    """Resume a task in the background, with PROMPT as its next instruction.

    After a crash, tasks whose interrupted step only read continue on their own. `--all` lists what the others were
    doing and what resuming them does, and asks once; with `--json` and without `--yes` it only lists. Exits with 1 if
    you decline or a task is not resumed.
    """
    from kitbag.tasks.resume import resume_task

    if everything:
        from kitbag.cli.tasks_resume import resume_all

        if task_id:
            raise UsageError("--all takes no task id", "omit the id, or --all")
        with open_board() as board:
            return resume_all(board, yes=yes, as_json=as_json)
    if not task_id or yes:
        fix = "name one of `kitbag tasks list`, or resume all interrupted tasks with --all"
        raise UsageError("--yes needs --all" if task_id else "no task id", fix)
    with open_board() as board:
        task = board.find(task_id)
        start = interruption.run_interruptible(resume_task(board, task, prompt, find_places().kitbag_home))
    if as_json:
        return output.as_json({"id": task.id, "status": "queued"})
    output.echo(f"{task.id} resumed in the background; follow it with `kitbag tasks watch`")
    if start.problem:
        output.remark(output.clean(start.problem))
    return None


@command.command()
@all_directories_option
@json_option
def watch(everything: bool, as_json: bool) -> None:
    """Watch tasks in this directory until all have ended. Ctrl-C stops watching; the tasks keep running."""
    from kitbag.cli.tasks_watch import watch_board

    here = "" if everything else find_places().cwd
    with open_board() as board, contextlib.suppress(KeyboardInterrupt, asyncio.CancelledError):
        interruption.run_interruptible(watch_board(board, here, as_json))
