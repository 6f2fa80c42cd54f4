"""`kitbag agents run NAME PROMPT --each FILE`: one background agent per row, with a progress bar and a summary.

Used by agents_run. tasks/batch does the work.
"""

import contextlib
import hashlib
import os
import shlex
import shutil
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from kitbag.cli import interruption, output
from kitbag.cli.number_types import IntRange
from kitbag.errors import KitbagError, UsageError
from kitbag.text.human_format import format_cost, format_count, format_duration, format_thousands
from kitbag.text.terminal_width import truncate_to_width

if TYPE_CHECKING:
    from kitbag.events import Notice
    from kitbag.tasks.batch import Batch, BatchPlan, BatchProgress
    from kitbag.tasks.board import Board
    from kitbag.tools.delegation import DelegationRequest

F = TypeVar("F", bound=Callable[..., Any])
DEFAULT_CONCURRENCY: Final = 20
FAILED_ROWS: Final = 1
_BAR_CELLS: Final = 24
_REDRAW_SECONDS: Final = 0.1
_PLAIN_STEPS: Final = 20
"""Progress lines that a pipe gets, in addition to one for each failure."""
_OPTIONS: Final = (
    click.option(
        "--each",
        default="",
        metavar="FILE",
        help="Run the agent once for each row of a .jsonl or .csv FILE; {{column}} in PROMPT is the row's value.",
        show_default="run it once",
    ),
    click.option(
        "--results",
        default="",
        metavar="FILE",
        help="With --each: append results to FILE, and skip rows that have one.",
        show_default="rows.results.jsonl for rows.csv",
    ),
    click.option(
        "--concurrency",
        type=IntRange(1),
        help="With --each: have at most this many tasks queued and running.",
        show_default=f"{DEFAULT_CONCURRENCY}",
    ),
    click.option("--retry-failed", is_flag=True, help="With --each: run rows again that failed in an earlier run."),
)


def each_options(function: F) -> F:
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def check_each_options(options: dict[str, Any]) -> None:
    if not options["each"]:
        given = [name for name in ("results", "concurrency", "retry_failed") if options[name]]
        if given:
            raise UsageError(f"--{given[0].replace('_', '-')} needs --each", "add --each FILE")
        return
    for name in ("background", "resume"):
        if options[name]:
            raise UsageError(f"--each and --{name} can't be combined", "remove one of the two")


def run_each(board: "Board", request: "DelegationRequest", options: dict[str, Any]) -> int:
    """Returns the exit code."""
    path = str(options["each"])
    results_path = str(options["results"]) or f"{os.path.splitext(path)[0]}.results.jsonl"
    started = time.monotonic()
    with interruption.Interruption() as interrupted:
        try:
            batch = interruption.run_interruptible(_run_batch(board, request, path, results_path, options, interrupted))
        except interruption.InterruptedRunError:
            return interrupted.exit_code
    progress = batch.progress
    if options["as_json"]:
        output.as_json(_summary_json(progress, results_path, batch.running_tasks))
    else:
        _print_summary(progress, results_path, time.monotonic() - started)
    if batch.is_stopped:
        _print_resume(batch.running_tasks)
        return interrupted.exit_code
    return FAILED_ROWS if progress.failed else 0


async def _run_batch(
    board: "Board",
    request: "DelegationRequest",
    path: str,
    results_path: str,
    options: dict[str, Any],
    interrupted: interruption.Interruption,
) -> "Batch":
    from kitbag.cli.agent_delegation import open_delegation
    from kitbag.library.scopes import find_places
    from kitbag.tasks.batch import Batch, BatchTask
    from kitbag.tasks.batch_results import ResultsFile

    notices: list[Notice] = []
    async with open_delegation(board.journal, request, options, notices) as (delegation, request):
        facts = delegation.approval_facts(request.agent, "")  # raises if the agent can't be started
        task = BatchTask(request=request, agent_hash=_hash_agent(facts))
        with ResultsFile(results_path) as results:
            try:
                batch = Batch(path, task, results, retry_failed=options["retry_failed"])
            except BaseException:
                results.discard()
                raise
            for notice in results.notices:
                output.remark(output.clean(notice))
            _print_plan(batch.plan, results_path, options["retry_failed"])
            interrupted.on_signal(batch.stop)
            bar = _ProgressBar(batch.progress)
            try:
                await batch.run(
                    board,
                    find_places().kitbag_home,
                    lambda row_request: delegation.start(row_request, lambda _: None),
                    options["concurrency"] or DEFAULT_CONCURRENCY,
                    bar.show,
                )
            except KitbagError:
                bar.close()
                _print_resume(batch.running_tasks)
                raise
            bar.close()
            return batch


def _hash_agent(facts: tuple[tuple[str, str], ...]) -> str:
    """Of what the agent may do, and of its file."""
    digest = hashlib.sha256(repr(facts).encode("utf-8", "surrogatepass"))
    with contextlib.suppress(OSError), open(dict(facts)["from"], "rb") as file:
        digest.update(file.read())
    return digest.hexdigest()


def _print_plan(plan: "BatchPlan", results_path: str, retry_failed: bool) -> None:
    parts = [format_count(plan.rows, "row")]
    if plan.completed:
        parts.append(f"{plan.completed:,} completed before")
    if plan.failed:
        hint = "run again" if retry_failed else "skipped; add --retry-failed to run them again"
        parts.append(f"{plan.failed:,} failed before ({hint})")
    output.remark(output.clean(f"{', '.join(parts)}; results in {results_path}"))
    if plan.outdated:
        results = format_count(plan.outdated, "result")
        output.remark(f"{results} of rows that changed or were removed since; changed rows are run again")


class _ProgressBar:
    """On stderr: redrawn in a terminal, a line now and then in a pipe."""

    def __init__(self, progress: "BatchProgress") -> None:
        self._is_live = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self._started = time.monotonic()
        self._drawn_at = 0.0
        self._next_line = _done(progress) + 1
        self._said: set[str] = set()

    def show(self, progress: "BatchProgress", problem: str) -> None:
        if problem:
            self._say(problem)
        if progress.waiting:
            self._say("tasks wait for your approval: run `kitbag permissions pending`")
        if self._is_live:
            self._draw(progress)
        elif _done(progress) >= self._next_line:
            output.remark(self._format_counts(progress))
            self._next_line = _done(progress) + max(1, progress.rows // _PLAIN_STEPS)
            sys.stderr.flush()

    def close(self) -> None:
        if self._is_live:
            sys.stderr.write("\r\x1b[2K")
            sys.stderr.flush()

    def _say(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            self.close()
            output.remark(output.clean(text))

    def _draw(self, progress: "BatchProgress") -> None:
        now = time.monotonic()
        if now - self._drawn_at < _REDRAW_SECONDS:
            return
        self._drawn_at = now
        filled = _BAR_CELLS * _done(progress) // progress.rows
        line = f"[{'#' * filled}{'.' * (_BAR_CELLS - filled)}] {self._format_counts(progress)}"
        width = shutil.get_terminal_size().columns
        sys.stderr.write(f"\r\x1b[2K{truncate_to_width(line, width - 1)}")
        sys.stderr.flush()

    def _format_counts(self, progress: "BatchProgress") -> str:
        parts = [f"{_done(progress):,} of {format_count(progress.rows, 'row')}"]
        if progress.failed:
            parts.append(f"{progress.failed:,} failed")
        parts.append(f"{progress.in_flight:,} running")
        if progress.waiting:
            parts.append(f"{progress.waiting:,} waiting for approval")
        parts += [f"{format_thousands(progress.tokens)} tokens", format_cost(progress.cost)]
        if progress.ran and _done(progress) < progress.rows:
            each = (time.monotonic() - self._started) / progress.ran
            parts.append(f"{format_duration(each * (progress.rows - _done(progress)))} left")
        return ", ".join(parts)


def _done(progress: "BatchProgress") -> int:
    return progress.completed + progress.failed


def _print_summary(progress: "BatchProgress", results_path: str, seconds: float) -> None:
    parts = [f"{progress.completed:,} of {format_count(progress.rows, 'row')} completed"]
    parts += [f"{progress.failed:,} failed"] if progress.failed else []
    parts += [f"{progress.ran:,} in this run"] if progress.ran != _done(progress) else []
    parts += [f"{progress.tokens:,} tokens", format_cost(progress.cost), format_duration(seconds)]
    output.echo(", ".join(parts))
    output.echo(output.clean(f"results: {results_path}"))
    for failure in progress.failures:
        task = f" (task {failure.task_id})" if failure.task_id else ""
        reason = f": {failure.error}" if failure.error else ""
        output.remark(output.clean(f"row {failure.row:,} {failure.status}{reason}{task}"))
    if progress.ran and progress.failed > len(progress.failures):
        output.remark(f"{progress.failed - len(progress.failures):,} more failed; the results file has their errors")


def _summary_json(progress: "BatchProgress", results_path: str, running: list[str]) -> dict[str, Any]:
    return {
        "rows": progress.rows,
        "completed": progress.completed,
        "failed": progress.failed,
        "ran": progress.ran,
        "tokens": progress.tokens,
        "cost": progress.cost,
        "results": results_path,
        "running": running,
        "failures": [
            {"row": one.row, "status": one.status, "error": one.error, "task": one.task_id} for one in progress.failures
        ],
    }


def _print_resume(running: list[str]) -> None:
    if running:
        tasks = "1 task is still running" if len(running) == 1 else f"{len(running):,} tasks are still running"
        output.remark(f"{tasks} in the background; stop with: kitbag tasks stop {' '.join(running[:20])}")
    output.remark(output.clean(f"resume with: {shlex.join(['kitbag', *sys.argv[1:]])}"))
