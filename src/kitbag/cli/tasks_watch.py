"""`kitbag tasks watch`: a live view, redrawn in place on a terminal, one line per change in a pipe.

Needs no terminal feature but moving the cursor up.
"""

import asyncio
import json
import shutil
import sys
from typing import Any, Final

from kitbag.cli import output
from kitbag.library.scopes import find_places
from kitbag.tasks.board import Board
from kitbag.tasks.reports import build_report
from kitbag.tasks.task import Task
from kitbag.tasks.worker_process import ensure_tasks_hosted
from kitbag.text.terminal_width import truncate_to_width
from kitbag.tools.delegation import TaskReport
from kitbag.views.tasks import describe_activity

_POLL_SECONDS: Final = 1.0
_WIDE_COLUMNS: Final = 110
"""Below this width, ids and figures are shortened to leave room for the activity."""
_SHORT_ID: Final = 8
_STYLES: Final = {"completed": "green", "failed": "red", "interrupted": "red", "waiting-approval": "yellow"}


async def watch_board(board: Board, directory: str, as_json: bool) -> None:
    """Returns when no task is running."""
    live = sys.stdout.isatty() and not as_json
    drawn, printed = 0, dict[str, str]()
    started_at = board.journal.last_seq()
    kitbag_home = find_places().kitbag_home
    while True:
        seen = board.journal.last_seq()
        problem = (await ensure_tasks_hosted(board, kitbag_home)).problem
        tasks = _visible_tasks(board, directory, started_at)
        if live:
            drawn = _draw(board, tasks, drawn, problem)
        else:
            if problem and printed.get("") != problem:
                printed[""] = problem
                output.remark(output.clean(problem))
            _print_changes(board, tasks, printed, as_json)
        if all(task.is_finished for task in tasks):
            if not (tasks or live):
                output.remark("no running tasks" + (f" in {output.clean(directory)}" if directory else ""))
            return
        await board.journal.wait_async(seen, _POLL_SECONDS)
        if live:  # limit the redraw rate
            await asyncio.sleep(0.1)


def _visible_tasks(board: Board, directory: str, started_at: int) -> list[Task]:
    """Running tasks, and those that ended since the start of the watch; `started_at`: the last record then."""
    tasks = {task.id: task for task in (*board.unfinished(), *board.changed_since(started_at))}
    found = [task for task in tasks.values() if not directory or task.directory == directory]
    return sorted(found, key=lambda task: task.created)


def _draw(board: Board, tasks: list[Task], drawn: int, problem: str) -> int:
    size = shutil.get_terminal_size()
    lines = _render_rows(board, tasks, size.columns)
    if problem:
        lines.insert(1, output.style(truncate_to_width(output.clean(problem), size.columns - 1), "yellow"))
    lines = lines[: max(size.lines - 1, 1)]
    up = f"\x1b[{drawn}A" if drawn else ""
    sys.stdout.write(up + "".join(f"\x1b[2K{line}\n" for line in lines) + "\x1b[0J")
    sys.stdout.flush()
    return len(lines)


def _render_rows(board: Board, tasks: list[Task], width: int) -> list[str]:
    open_count = sum(not task.is_finished for task in tasks)
    lines = [
        output.style(f"{output.format_count(open_count, 'task')} running, {len(tasks) - open_count} ended", "bold")
    ]
    for task in sorted(tasks, key=lambda one: (one.is_finished, one.created)):
        report = build_report(board, task)
        status = output.style(f"{task.shown_status:<16}", _STYLES.get(task.status, "cyan"))
        figures = _format_figures(report, is_short=width < _WIDE_COLUMNS)
        task_id = task.id if width >= _WIDE_COLUMNS else task.id[:_SHORT_ID]
        head = output.clean(f"{'  ' * (task.depth - 1)}{task_id} {report.name:<15.15}")
        room = max(width - len(head) - 16 - len(figures) - 5, 0)
        lines.append(
            f"{head} {status} {figures} "
            f" {truncate_to_width(output.clean(describe_activity(board, task, report)), room)}"
        )
    if any(task.status == "waiting-approval" for task in tasks):
        lines.append(output.style("needs approval: run `kitbag permissions pending`", "yellow"))
    return lines


def _format_figures(report: TaskReport, is_short: bool) -> str:
    if report.is_command:
        figures = f"{report.output_size:,} bytes"
    elif is_short:
        figures = f"{report.tokens:,} tok"
    else:
        figures = f"{report.turns:,} turns {report.tokens:>9,} tokens"
    return f"{figures:>13}" if is_short else f"{figures:>26}"


def _print_changes(board: Board, tasks: list[Task], printed: dict[str, str], as_json: bool) -> None:
    for task in tasks:
        report = build_report(board, task)
        row: dict[str, Any] = {"id": task.id, "agent": report.name, "status": task.shown_status, "turns": report.turns}
        row |= {"tokens": report.tokens, "activity": report.activity, "error": report.error}
        text = (
            json.dumps(row)
            if as_json
            else output.clean(" ".join(f"{name}={value}" for name, value in row.items() if value))
        )
        if printed.get(task.id) != text:
            printed[task.id] = text
            output.echo(text)
            sys.stdout.flush()
