"""`kitbag tasks resume --all`: lists the interrupted tasks with what each was doing, asks once, and resumes them.

Used by tasks. Uses tasks/interrupted for the list.
"""

import sys

import click

from kitbag.cli import interruption, output
from kitbag.errors import KitbagError, UsageError
from kitbag.library.scopes import find_places
from kitbag.tasks.board import Board
from kitbag.tasks.interrupted import EFFECT_LABELS, InterruptedTask, list_interrupted
from kitbag.tasks.resume import resume_task
from kitbag.text.human_format import format_count, shorten_path


def resume_all(board: Board, *, yes: bool, as_json: bool) -> None:
    """Exits with 1 if the user declines or a task is not resumed."""
    found = list_interrupted(board)
    possible = [one for one in found if one.effect != "skip"]
    if not as_json:
        _print_list(found)
    if possible and not yes and not as_json and not _confirm(len(possible)):
        output.remark("nothing was resumed")
        sys.exit(1)
    problems = {one.task.id: one.problem for one in found if one.effect == "skip"}
    resumed = set[str]()
    for one in possible if yes or not as_json else ():
        try:
            start = interruption.run_interruptible(resume_task(board, one.task, "", find_places().kitbag_home))
            resumed.add(one.task.id)
            if start.problem:
                output.remark(output.clean(start.problem))
        except KitbagError as error:
            problems[one.task.id] = error.problem
            output.remark(output.clean(f"{one.task.id}: not resumed: {error.problem}"))
    if as_json:
        output.as_json(
            [
                {**one.to_json(), "problem": problems.get(one.task.id, ""), "resumed": one.task.id in resumed}
                for one in found
            ]
        )
    elif resumed:
        output.echo(f"resumed {format_count(len(resumed), 'task')}; follow them with `kitbag tasks watch --all`")
    if problems and (yes or not as_json):
        sys.exit(1)


def _print_list(found: list[InterruptedTask]) -> None:
    """Three lines for each task: a table would truncate what the user is asked about."""
    if not found:
        output.remark("no interrupted tasks")
    for one in found:
        task, effect = one.task, EFFECT_LABELS[one.effect]
        about = " · ".join(
            part for part in (task.agent or task.kind, task.description, shorten_path(task.directory)) if part
        )
        output.echo(f"{output.style(task.id, 'bold')}  {output.clean(about)}")
        output.echo(f"  interrupted: {output.clean(', '.join(one.steps) or 'waiting for the model')}")
        output.echo(f"  on resume:   {output.clean(f'{effect}: {one.problem}' if one.problem else effect)}")


def _confirm(count: int) -> bool:
    if not (sys.stdin and sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError("needs an interactive terminal", "review the list, then run `kitbag tasks resume --all --yes`")
    sys.stdout.flush()
    return click.confirm(f"Resume {format_count(count, 'task')}?", err=True)
