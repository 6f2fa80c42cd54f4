"""`kitbag worker`: runs a worker for background tasks until it is idle. Kitbag starts one on demand."""

import sys
import time

import click

from kitbag.cli import output
from kitbag.cli.error_output import install_log
from kitbag.library.scopes import find_places
from kitbag.settings import load_settings


@click.command("worker")
@click.option(
    "--idle",
    type=click.FloatRange(0, 86_400),
    help="Exit after this many idle seconds.",
    show_default="the `tasks.idle` setting, 30",
)
@click.option(
    "--at-once",
    type=click.IntRange(1, 10_000),
    help="Run at most this many tasks at once.",
    show_default="the `tasks.at_once` setting, 20",
)
def command(idle: float | None, at_once: int | None) -> None:
    """Run background tasks until none are left.

    Kitbag starts a worker automatically for a background task, and the worker exits when idle. Run one yourself to
    watch it work. A second worker exits at once.
    """
    from kitbag.tasks.worker import run_worker

    def log(text: str) -> None:
        output.remark(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {output.clean(text)}")

    install_log()
    home = find_places().kitbag_home
    settings = load_settings(home, ())
    idle = float(settings.get("tasks.idle")) if idle is None else idle
    at_once = max(1, int(settings.get("tasks.at_once"))) if at_once is None else at_once
    if not run_worker(home, idle_seconds=idle, max_concurrent=at_once, log=log):
        output.remark("another worker is already running")
        sys.exit(0)
