"""`kitbag worker`: runs a worker for background tasks until it is idle. Kitbag starts one on demand."""

import sys
import time

import click

from kitbag.cli import output
from kitbag.cli.error_output import install_log
from kitbag.cli.number_options import NumberRange
from kitbag.library.scopes import find_places
from kitbag.settings import load_settings


@click.command("worker")
@click.option(
    "--idle",
    type=NumberRange(0, 86_400),
    help="Exit after this many idle seconds.",
    show_default="the `tasks.idle` setting, 30",
)
@click.option(
    "--concurrency",
    "--at-once",
    "at_once",
    metavar="N",
    type=click.IntRange(1, 10_000),
    help="Run at most this many tasks at once.",
    show_default="the `tasks.at_once` setting, 20",
)
@click.option(
    "--queue",
    "queues",
    metavar="NAME",
    multiple=True,
    help="Also run tasks of this queue, from any machine that shares the database; repeatable.",
    show_default="the `tasks.queue` setting",
)
def command(idle: float | None, at_once: int | None, queues: tuple[str, ...]) -> None:
    """Run background tasks until none are left.

    Kitbag starts a worker automatically for a background task, and the worker exits when idle. Run one yourself to
    watch it work. A second worker exits at once.

    Several machines that share a database (KITBAG_DATABASE_URL) run the tasks of a named queue together. A machine runs
    a task only if it has the task's directory.
    """
    from kitbag.assembly.open_store import database_url
    from kitbag.errors import UsageError
    from kitbag.tasks.worker import run_worker
    from kitbag.tasks.worker_needs import read_queue_limits

    def log(text: str) -> None:
        output.remark(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {output.clean(text)}")

    install_log()
    home = find_places().kitbag_home
    if queues and not database_url(home):
        raise UsageError("--queue needs a shared database", "set KITBAG_DATABASE_URL, or remove --queue")
    settings = load_settings(home, ())
    idle = float(settings.get("tasks.idle")) if idle is None else idle
    at_once = max(1, int(settings.get("tasks.at_once"))) if at_once is None else at_once
    limits, problems = read_queue_limits(settings)
    for problem in problems:
        log(problem)
    if not run_worker(home, idle_seconds=idle, max_concurrent=at_once, queues=queues, limits=limits, log=log):
        output.remark("another worker is already running")
        sys.exit(0)
