"""`kitbag fleet status`: workers and queues, once or redrawn in place.

In a pipe, the live view prints the whole status once a second, only if it changed.
"""

import asyncio
import json
import shutil
import sys
from collections.abc import Callable
from typing import Final

from kitbag.cli import output
from kitbag.tasks.fleet import FleetStatus, QueueStatus, queue_label
from kitbag.text.human_format import format_duration
from kitbag.text.terminal_width import truncate_to_width

_SECONDS: Final = 1.0
_NO_WORKERS: Final = "no workers are running; start one with `kitbag worker`"


def print_status(status: FleetStatus) -> None:
    if not status.workers:
        output.echo(_NO_WORKERS)
    else:
        output.table(("WORKER", "RUNNING", "QUEUES", "KEYS FOR", "VERSION", ""), _worker_rows(status))
    if status.queues:
        output.echo()
        headers = ("QUEUE", "QUEUED", "OLDEST", "SCHEDULED", "RUNNING", "APPROVAL", "LAST MIN", "LAST HOUR", "FAILED")
        output.table(headers, [_queue_row(one) for one in status.queues], omit=("SCHEDULED", "APPROVAL"))
    for one in status.queues:
        if one.waits_for:
            output.echo(output.clean(f"queue {queue_label(one.name)}: the oldest task waits for {one.waits_for}"))
        if one.needs_version:
            text = f"queue {queue_label(one.name)}: a task waits for a worker of Kitbag {one.needs_version}"
            output.echo(output.clean(text))


async def watch_status(read: Callable[[], FleetStatus], *, as_json: bool) -> None:
    """Until interrupted."""
    is_live, drawn, last = sys.stdout.isatty() and not as_json, 0, None
    while True:
        status = read()
        if is_live:
            drawn = _draw(status, drawn)
        elif status != last:
            if as_json:
                output.echo(json.dumps(status.to_json()))
            else:
                print_status(status)
                output.echo()
            sys.stdout.flush()
        last = status
        await asyncio.sleep(_SECONDS)


def _draw(status: FleetStatus, drawn: int) -> int:
    size = shutil.get_terminal_size()
    lines = [truncate_to_width(line, size.columns - 1) for line in _lines(status)][: max(size.lines - 1, 1)]
    up = f"\x1b[{drawn}A" if drawn else ""
    sys.stdout.write(up + "".join(f"\x1b[2K{line}\n" for line in lines) + "\x1b[0J")
    sys.stdout.flush()
    return len(lines)


def _lines(status: FleetStatus) -> list[str]:
    running = sum(one.running for one in status.workers)
    title = f"{output.format_count(len(status.workers), 'worker')}, {output.format_count(running, 'agent')} running"
    lines = [output.style(title if status.workers else _NO_WORKERS, "bold")]
    for cells in _worker_rows(status):
        lines.append("  ".join(f"{cell:<{width}}" for cell, width in zip(cells, (24, 10, 24, 20, 8, 0), strict=True)))
    for one in status.queues:
        rate = f"{one.last_minute}/min now, {one.per_minute:g}/min in 1 h"
        failed = output.style(f"{one.failed} failed", "red") if one.failed else "0 failed"
        oldest = f", oldest {format_duration(one.oldest_seconds)}" if one.queued else ""
        scheduled = f", {one.scheduled} scheduled" if one.scheduled else ""
        approval = f", {one.waiting} need approval" if one.waiting else ""
        lines.append("")
        lines.append(output.style(output.clean(queue_label(one.name)), "bold"))
        lines.append(f"  {one.queued} queued{oldest}{scheduled}, {one.running} running{approval}")
        lines.append(f"  {one.ended} ended in 1 h ({rate}), {failed}")
        if one.waits_for:
            lines.append(output.style(output.clean(f"  the oldest waits for {one.waits_for}"), "yellow"))
    return lines


def _worker_rows(status: FleetStatus) -> list[tuple[str, ...]]:
    return [
        (
            output.clean(one.id),
            f"{one.running} of {one.concurrency}" if one.concurrency else str(one.running),
            output.clean(", ".join(queue_label(name) for name in one.queues)),
            output.clean(", ".join(one.providers)),
            output.clean(one.version),
            "draining" if one.is_draining else "",
        )
        for one in status.workers
    ]


def _queue_row(one: QueueStatus) -> tuple[str, ...]:
    return (
        output.clean(queue_label(one.name)),
        str(one.queued),
        format_duration(one.oldest_seconds) if one.queued else "",
        str(one.scheduled),
        str(one.running),
        str(one.waiting),
        str(one.last_minute),
        str(one.ended),
        str(one.failed),
    )
