"""The live board of `kitbag tasks watch`: in a terminal rows that are drawn over, in a pipe a line for each change.

Needs nothing of a terminal but moving the cursor up.
"""

import asyncio
import json
import shutil
import sys
import time
from typing import Any, Final

from kitbag.cli import output
from kitbag.library.scopes import find_places
from kitbag.tasks.board import Board
from kitbag.tasks.reports import report_of
from kitbag.tasks.task import Task
from kitbag.tasks.worker_process import look_after
from kitbag.text.terminal_width import cut
from kitbag.tools.delegation import Report
from kitbag.views.tasks import what_it_does

_SECONDS: Final = 1.0
_WIDE: Final = 110
"""Columns below which ids and figures are shortened: what a task does says more."""
_SHORT_ID: Final = 8
_STYLES: Final = {"completed": "green", "failed": "red", "interrupted": "red", "waiting-approval": "yellow"}


async def follow_board(board: Board, directory: str, as_json: bool) -> None:
    """Until nothing runs any more."""
    live = sys.stdout.isatty() and not as_json
    drawn, said = 0, dict[str, str]()
    began = time.time()
    kitbag_home = find_places().kitbag_home
    while True:
        seen = board.journal.last_seq()
        problem = (await look_after(board, kitbag_home)).problem
        tasks = _shown(board, directory, began)
        if live:
            drawn = _draw(board, tasks, drawn, problem)
        else:
            if problem and said.get("") != problem:
                said[""] = problem
                output.remark(output.clean(problem))
            _tell(board, tasks, said, as_json)
        if all(task.is_finished for task in tasks):
            return
        await board.journal.changed(seen, _SECONDS)
        if live:  # not more often than an eye can follow
            await asyncio.sleep(0.1)


def _shown(board: Board, directory: str, began: float) -> list[Task]:
    """What runs, and what has ended since we look."""
    since = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(began))
    tasks = [task for task in board.all() if not directory or task.directory == directory]
    return [task for task in tasks if not task.is_finished or task.ended >= since]


def _draw(board: Board, tasks: list[Task], drawn: int, problem: str) -> int:
    size = shutil.get_terminal_size()
    lines = _lines(board, tasks, size.columns)
    if problem:
        lines.insert(1, output.style(cut(output.clean(problem), size.columns - 1), "yellow"))
    lines = lines[: max(size.lines - 1, 1)]
    up = f"\x1b[{drawn}A" if drawn else ""
    sys.stdout.write(up + "".join(f"\x1b[2K{line}\n" for line in lines) + "\x1b[0J")
    sys.stdout.flush()
    return len(lines)


def _lines(board: Board, tasks: list[Task], width: int) -> list[str]:
    open_count = sum(not task.is_finished for task in tasks)
    lines = [output.style(f"{output.count(open_count, 'task')} at work, {len(tasks) - open_count} ended", "bold")]
    for task in sorted(tasks, key=lambda one: (one.is_finished, one.created)):
        report = report_of(board, task)
        status = output.style(f"{task.status:<16}", _STYLES.get(task.status, "cyan"))
        figures = _figures(report, is_short=width < _WIDE)
        task_id = task.id if width >= _WIDE else task.id[:_SHORT_ID]
        head = output.clean(f"{'  ' * (task.depth - 1)}{task_id} {report.name:<15.15}")
        room = max(width - len(head) - 16 - len(figures) - 5, 0)
        lines.append(f"{head} {status} {figures}  {cut(output.clean(what_it_does(board, task, report)), room)}")
    if any(task.status == "waiting-approval" for task in tasks):
        lines.append(output.style("waiting for your answer: kitbag permissions pending", "yellow"))
    return lines


def _figures(report: Report, is_short: bool) -> str:
    if report.is_command:
        figures = f"{report.size:,} bytes"
    elif is_short:
        figures = f"{report.tokens:,} tok"
    else:
        figures = f"{report.turns:,} turns {report.tokens:>9,} tokens"
    return f"{figures:>13}" if is_short else f"{figures:>26}"


def _tell(board: Board, tasks: list[Task], said: dict[str, str], as_json: bool) -> None:
    for task in tasks:
        report = report_of(board, task)
        row: dict[str, Any] = {"id": task.id, "agent": report.name, "status": task.status, "turns": report.turns}
        row |= {"tokens": report.tokens, "activity": report.activity, "error": report.error}
        text = (
            json.dumps(row)
            if as_json
            else output.clean(" ".join(f"{name}={value}" for name, value in row.items() if value))
        )
        if said.get(task.id) != text:
            said[task.id] = text
            output.echo(text)
            sys.stdout.flush()
