"""`kitbag tasks ...`: what other agents and background commands do and did, from any terminal."""

import asyncio
import contextlib
import os
import sys
from collections.abc import Generator

import click

from kitbag.assembly.open_journal import open_journal
from kitbag.cli import interruption, output
from kitbag.cli.command_group import CommandGroup
from kitbag.cli.library_options import json_option
from kitbag.errors import NotFoundError
from kitbag.library.scopes import find_places
from kitbag.store.journal import journal_path
from kitbag.tasks.board import Board
from kitbag.text.human_format import money
from kitbag.views.tasks import Costs, costs_of, fields_of, live_tasks, what_it_does


@contextlib.contextmanager
def open_board(*, make: bool = False) -> Generator[Board, None, None]:
    """To look makes no journal: then there is nothing on it."""
    kitbag_home = find_places().kitbag_home
    if not make and not os.path.lexists(journal_path(kitbag_home)):
        raise NotFoundError("there are no tasks yet", "start one: kitbag agents run Explore 'What is this?'")
    with open_journal(kitbag_home) as journal:
        yield Board(journal)


async def _look_after(board: Board) -> None:
    from kitbag.tasks.worker_process import look_after

    hosting = await look_after(board, find_places().kitbag_home)
    if hosting.problem:
        output.remark(output.clean(hosting.problem))


@click.group(cls=CommandGroup)
def command() -> None:
    """Look at, stop and resume what other agents do."""


@command.command("list")
@click.option("--all", "everything", is_flag=True, help="Of every directory, not only of this one.")
@click.option("--running", is_flag=True, help="Only what has not ended.")
@json_option
def list_(everything: bool, running: bool, as_json: bool) -> None:
    """All of them, the newest first, for ever."""
    here = find_places().cwd
    with contextlib.suppress(NotFoundError), open_board() as board:
        interruption.run(_look_after(board))
        found = [task for task in board.all() if everything or task.directory == here]
        found = [task for task in reversed(found) if not running or not task.is_finished]
        views = live_tasks(board, found)
        if as_json:
            return output.as_json(
                [{**task.to_json(), **view._asdict()} for task, view in zip(found, views, strict=True)]
            )
        output.table(
            ("ID", "AGENT", "STATUS", "TURNS", "TOKENS", "COST", "STARTED", "WHAT"),
            [
                (
                    task.id,
                    view.name,
                    task.status,
                    "" if view.is_command else str(view.turns),
                    "" if view.is_command else f"{view.tokens:,}",
                    "" if view.is_command else money(view.cost),
                    (task.started or task.created)[:16].replace("T", " "),
                    what_it_does(board, task, view),
                )
                for task, view in zip(found, views, strict=True)
            ],
        )
        output.footer("task", len(found), 0, 0)
        return None
    if as_json:
        return output.as_json([])
    output.footer("task", 0, 0, 0)
    return None


@command.command()
@click.argument("task_id", metavar="ID")
@json_option
def show(task_id: str, as_json: bool) -> None:
    """One task: what it was asked, how it stands, what it cost with all that it began."""
    with open_board() as board:
        interruption.run(_look_after(board))
        task = board.find(task_id)
        [view] = live_tasks(board, [task])
        costs = costs_of(board, task)
        wish = board.wish(task.id)
        if as_json:
            return output.as_json(
                {
                    **task.to_json(),
                    **view._asdict(),
                    "prompt": wish.prompt,
                    "request": wish.request,
                    "command": wish.command,
                    "costs": costs.to_json(),
                }
            )
        output.fields(fields_of(board, task, view))
        output.echo(f"\n{output.style('Command' if view.is_command else 'Asked', 'bold')}")
        output.block(wish.command or wish.prompt)
        if wish.request:
            output.echo(f"\n{output.style('And then', 'bold')}")
            output.block(wish.request)
        if view.text:
            name = "So far" if not task.is_finished else "Output" if view.is_command else "Answer"
            output.echo(f"\n{output.style(name, 'bold')}")
            output.block(view.text.rstrip("\n") if view.is_command else view.text)
            if view.next < view.size:
                output.remark(f"{view.size - view.next:,} more bytes: kitbag tasks output {task.id}")
        if costs.children:
            output.echo(f"\n{output.style('Cost, with what it began', 'bold')}")
            _show_costs(costs)
    return None


def _show_costs(costs: Costs, indent: str = "") -> None:
    mark = f"{costs.tokens:,} tokens, {money(costs.cost)}"
    whole = f"  (in all {costs.all_tokens:,}, {money(costs.all_cost)})" if costs.children else ""
    output.echo(f"{indent}{output.clean(costs.name)} {costs.id}: {mark}{whole}")
    for child in costs.children:
        _show_costs(child, f"{indent}  ")


@command.command("output")
@click.argument("task_id", metavar="ID")
@click.option(
    "--wait", "seconds", type=click.FloatRange(0, 86_400), default=0.0, metavar="SECONDS", help="For its end."
)
@click.option("--follow", is_flag=True, help="What a command prints, as it comes, until it ends.")
@click.option("--offset", type=click.IntRange(0), default=0, help="Character to begin at; of a command, byte.")
@json_option
def output_(task_id: str, seconds: float, follow: bool, offset: int, as_json: bool) -> None:
    """What it has put out so far; exit code 1 while it runs, 6 when it failed."""
    from kitbag.cli.tasks_output import follow_output, show_output
    from kitbag.tasks.reports import report_of
    from kitbag.tasks.worker_process import until_finished

    with open_board() as board:
        task = board.find(task_id)
        if seconds:
            interruption.run(until_finished(board, find_places().kitbag_home, task.id, seconds))
        interruption.run(_look_after(board))
        if follow and not as_json:
            interruption.run(follow_output(board, task.id, offset))
        elif not as_json:
            show_output(board, task.id, offset)
        report = report_of(board, board.find(task.id), offset)
    if as_json:
        text = report.text if report.is_command else report.text[offset:]
        output.as_json({**report._asdict(), "text": text, "offset": offset})
    elif report.status not in ("completed", "empty"):
        output.remark(output.clean(f"{report.name}: {report.status}{': ' if report.error else ''}{report.error}"))
    sys.exit(0 if report.status in ("completed", "empty") else 6 if report.is_finished else 1)


@command.command()
@click.argument("task_ids", metavar="ID...", nargs=-1, required=True)
@json_option
def stop(task_ids: tuple[str, ...], as_json: bool) -> None:
    """Stop tasks, what they began and their processes; what they put out stays."""
    from kitbag.tasks.stop import stop_task, told_stopped

    with open_board() as board:
        tasks = [board.find(task_id) for task_id in task_ids]  # all of them, before one is stopped
        done = [interruption.run(stop_task(board, task, "person")) for task in tasks]
    for warning in (warning for one in done for warning in one.report.warnings):
        output.remark(output.clean(warning))
    if not as_json:
        return output.echo("\n".join(output.clean(told_stopped(one)) for one in done))
    return output.as_json(
        [
            {
                "id": one.report.id,
                "status": one.report.status,
                "was_finished": one.was_finished,
                "others": one.others,
                "processes": one.processes,
            }
            for one in done
        ]
    )


@command.command()
@click.argument("task_id", metavar="ID")
@click.argument("prompt", default="", required=False)
@json_option
def resume(task_id: str, prompt: str, as_json: bool) -> None:
    """Let a task go on in the background, from where it was; PROMPT tells it what to do now."""
    from kitbag.tasks.resume import resume_task

    with open_board() as board:
        task = board.find(task_id)
        hosting = interruption.run(resume_task(board, task, prompt, find_places().kitbag_home))
    if as_json:
        return output.as_json({"id": task.id, "status": "queued"})
    output.echo(f"{task.id} goes on in the background; watch it: kitbag tasks watch")
    if hosting.problem:
        output.remark(output.clean(hosting.problem))
    return None


@command.command()
@click.option("--all", "everything", is_flag=True, help="Of every directory, not only of this one.")
@json_option
def watch(everything: bool, as_json: bool) -> None:
    """A live board until everything has ended; leave it with Ctrl-C, the tasks go on."""
    from kitbag.cli.tasks_watch import follow_board

    here = "" if everything else find_places().cwd
    with open_board() as board, contextlib.suppress(KeyboardInterrupt, asyncio.CancelledError):
        interruption.run(follow_board(board, here, as_json))
