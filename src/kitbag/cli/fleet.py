"""`kitbag fleet`: shows the workers and queues that share a journal, drains workers and retries failed tasks."""

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import click

from kitbag.cli import interruption, output
from kitbag.cli.command_group import CommandGroup
from kitbag.cli.library_options import json_option
from kitbag.cli.tasks import open_board
from kitbag.library.scopes import find_places

if TYPE_CHECKING:
    from kitbag.tasks.worker_lock import WorkerRecord


class _FleetGroup(CommandGroup):
    bare_command = "status"


@click.group(cls=_FleetGroup)
def command() -> None:
    """Show workers and queues, drain workers, retry failed tasks."""


@command.command()
@click.option("--watch", is_flag=True, help="Keep showing it, once a second, until Ctrl-C.")
@json_option
def status(watch: bool, as_json: bool) -> Any:
    """Show workers, and what waits, runs and failed in each queue. Follow tasks with `kitbag tasks watch`."""
    from kitbag.cli.fleet_status import print_status, watch_status
    from kitbag.tasks.fleet import read_fleet

    with open_board(create=True) as board:
        if watch:
            with contextlib.suppress(KeyboardInterrupt, asyncio.CancelledError):
                watching = watch_status(lambda: read_fleet(board, _local_worker()), as_json=as_json)
                interruption.run_interruptible(watching)
            return None
        found = read_fleet(board, _local_worker())
    return output.as_json(found.to_json()) if as_json else print_status(found)


def _local_worker() -> "WorkerRecord | None":
    """The last worker of this Kitbag home; it may have ended, and one of another database is none of this fleet."""
    from kitbag.assembly.open_store import store_name
    from kitbag.tasks.worker_lock import read_worker_record

    home = find_places().kitbag_home
    found = read_worker_record(home)
    return found if found is not None and found.store in (None, store_name(home)) else None


@command.command()
@click.argument("workers", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="Drain all workers.")
@json_option
def drain(workers: tuple[str, ...], everything: bool, as_json: bool) -> Any:
    """Let workers finish what they run and exit. Queued tasks stay for other workers.

    For an upgrade: drain the workers, install the new version, start them again.
    """
    from kitbag.errors import UsageError
    from kitbag.permissions.approvals.queue import require_person
    from kitbag.tasks.fleet import drain as drain_workers

    require_person()
    if bool(workers) == everything:
        raise UsageError("name the workers to drain, or use --all", "list them with `kitbag fleet status`")
    with open_board(create=True) as board:
        drained = asyncio.run(drain_workers(board, workers, _local_worker()))
    if as_json:
        return output.as_json([{"worker": one.id, "running": one.running} for one in drained])
    if not drained:
        return output.echo("no workers are running")
    for one in drained:
        output.echo(output.clean(f"{one.id} exits after finishing {output.format_count(one.running, 'task')}"))
    return None


@command.command()
@click.argument("tasks", nargs=-1)
@click.option("--failed", is_flag=True, help="Retry all background agents that failed.")
@json_option
def retry(tasks: tuple[str, ...], failed: bool, as_json: bool) -> Any:
    """Queue failed tasks again; each continues where it stopped.

    Steps with an unknown outcome are not repeated: resume such a task with `kitbag tasks resume`.
    """
    from kitbag.errors import UsageError
    from kitbag.permissions.approvals.queue import require_person
    from kitbag.tasks.resume import check_resumable, resume_task

    require_person()
    if bool(tasks) == failed:
        raise UsageError("name the tasks to retry, or use --failed", "list them with `kitbag tasks list`")
    home = find_places().kitbag_home
    queued: list[str] = []
    with open_board(create=True) as board:
        chosen = [board.find(name) for name in tasks] or [
            task for task in board.all() if task.status == "failed" and task.background and task.kind == "agent"
        ]
        for task in chosen:
            check_resumable(task)
        for task in chosen:
            asyncio.run(resume_task(board, task, "", home))
            queued.append(task.id)
    if as_json:
        return output.as_json({"queued": queued})
    return output.echo(f"queued {output.format_count(len(queued), 'task')}")
