"""`kitbag worker`: hosts background work until there is none. It is started by itself where one is needed."""

import sys
import time

import click

from kitbag.cli import output
from kitbag.library.scopes import find_places


@click.command("worker")
@click.option(
    "--idle", type=click.FloatRange(0, 86_400), default=30.0, show_default=True, help="Seconds before it leaves."
)
@click.option(
    "--at-once", type=click.IntRange(1, 10_000), default=20, show_default=True, help="Tasks that run at once."
)
def command(idle: float, at_once: int) -> None:
    """Host background work until there is none.

    One is started by itself when a task is begun in the background, and leaves when it has been idle. Running one by
    hand shows what it does. A second one leaves at once.
    """
    from kitbag.runtime.worker import run_worker

    def log(text: str) -> None:
        output.remark(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {output.clean(text)}")

    if not run_worker(find_places().kitbag_home, idle_seconds=idle, at_once=at_once, log=log):
        output.remark("another worker is at work already")
        sys.exit(0)
