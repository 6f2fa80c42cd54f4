"""A batch: one background task per row of a file, with results in a file as they come.

Used by `kitbag agents run --each`. A row's task has an ID that follows from the batch and the row, so that a run that
resumes the batch finds the tasks of the earlier one. Only a window of tasks is on the board at a time.
"""

import asyncio
import hashlib
import json
import os
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any, Final

import msgspec

from kitbag.errors import InvalidError, KitbagError, QueueFullError
from kitbag.packing.output_schema import parse_answer
from kitbag.store.journal import Journal
from kitbag.store.private_files import StoreError
from kitbag.tasks.batch_results import KeyHistory, ResultsFile, RowResult
from kitbag.tasks.board import Board
from kitbag.tasks.reports import build_report
from kitbag.tasks.task import Task
from kitbag.tasks.worker_process import ensure_tasks_hosted
from kitbag.text.row_files import Row, check_columns, fill_columns, find_columns, format_value, read_rows
from kitbag.tools.delegation import DelegationRequest, TaskReport

STREAM: Final = "batches"
_POLL_SECONDS: Final = 1.0
_MAX_FAILURES: Final = 5
"""Failures that a summary quotes."""


class BatchTask(msgspec.Struct, frozen=True, kw_only=True):
    """What is done with each row."""

    request: DelegationRequest
    """Its prompt and its packed task may name columns."""
    agent_hash: str
    """Of the agent's file."""

    @property
    def columns(self) -> list[str]:
        return find_columns(f"{self.request.prompt}\n{self.request.pack}")

    def fill(self, row: Row) -> DelegationRequest:
        prompt = fill_columns(self.request.prompt, row)
        # `</` is written so that a value can't end the block.
        values = json.dumps(row.values, ensure_ascii=False).replace("</", "<\\/")
        selection = self.request.pack_selection
        columns = {name: format_value(value) for name, value in row.values.items()}
        return msgspec.structs.replace(
            self.request,
            prompt=f'{prompt}\n\n<row number="{row.number}">\n{values}\n</row>'.strip(),
            description=f"row {row.number:,}: {' '.join(prompt.split())}"[:60],
            pack=fill_columns(self.request.pack, row),
            pack_selection=msgspec.structs.replace(selection, values={**columns, **selection.values}),
        )

    def hash_row(self, row: Row) -> str:
        request = self.request
        parts = [self.agent_hash, request.prompt, request.pack, dict(request.output_schema), row.values]
        text = json.dumps(parts, sort_keys=True)
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


class BatchPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What a run has to do, known before it starts anything."""

    rows: int
    completed: int
    failed: int
    """By earlier runs; they are not run again unless the user asks for it."""
    outdated: int
    """Results of rows that have changed or are gone."""


class BatchProgress(msgspec.Struct, kw_only=True):
    """Mutable: updated as rows finish."""

    rows: int
    completed: int = 0
    failed: int = 0
    tokens: int = 0
    cost: float | None = 0.0
    """Of this run; None: unknown for a row."""
    ran: int = 0
    """Rows that finished in this run."""
    in_flight: int = 0
    waiting: int = 0
    """For an approval."""
    failures: list[RowResult] = []
    """The first ones."""


class Batch:
    def __init__(
        self,
        path: str,
        task: BatchTask,
        results: ResultsFile,
        *,
        retry_failed: bool = False,
    ) -> None:
        """Reads all rows once. Raises what `read_rows` raises, and UsageError for a row without a column that the task
        names."""
        self._path = path
        self._task = task
        self._results = results
        self._retry_failed = retry_failed
        self._batch_id = ""
        self._tasks: dict[str, tuple[Row, str]] = {}
        """Those of the window, with row and key."""
        self._waiting: set[str] = set()
        self._stopping = asyncio.Event()
        self._problem = ""
        """Why tasks have to wait."""
        self._hosted_at = 0.0
        self.plan = self._make_plan()
        self.progress = BatchProgress(
            rows=self.plan.rows, completed=self.plan.completed, failed=0 if retry_failed else self.plan.failed
        )

    def _make_plan(self) -> BatchPlan:
        if self._results.is_same_file(self._path):
            raise InvalidError(f"{self._path} holds the rows", "name another file with --results")
        columns = self._task.columns
        count = completed = failed = 0
        for row, key in self._keyed_rows():
            check_columns(self._path, row, columns)
            count += 1
            known = self._results.history.get(key)
            completed += known is not None and known.is_completed
            failed += known is not None and not known.is_completed
        if not count:
            raise InvalidError(f"{self._path} has no rows", "add rows below the header, or one JSON object per line")
        outdated = len(self._results.history) - completed - failed
        if self._results.history and not completed + failed:
            problem = f"{self._results.path} has results of other rows, another prompt or another agent"
            raise InvalidError(problem, "name another file with --results, or delete it")
        return BatchPlan(rows=count, completed=completed, failed=failed, outdated=outdated)

    def _keyed_rows(self) -> Iterator[tuple[Row, str]]:
        """Equal rows have different keys."""
        seen: dict[str, int] = {}
        for row in read_rows(self._path):
            key = self._task.hash_row(row)
            seen[key] = seen.get(key, 0) + 1
            yield row, key if seen[key] == 1 else f"{key}-{seen[key]}"

    def _rows_to_run(self) -> Iterator[tuple[Row, str, KeyHistory]]:
        for row, key in self._keyed_rows():
            known = self._results.history.get(key) or KeyHistory()
            if not known.attempts or (self._retry_failed and not known.is_completed):
                yield row, key, known

    def stop(self) -> None:
        """Start nothing more and return; tasks on the board go on."""
        self._stopping.set()

    @property
    def is_stopped(self) -> bool:
        return self._stopping.is_set()

    @property
    def running_tasks(self) -> list[str]:
        return list(self._tasks)

    async def run(
        self,
        board: Board,
        kitbag_home: str,
        start: Callable[[DelegationRequest], Awaitable[TaskReport]],
        concurrency: int,
        show: Callable[[BatchProgress, str], None],
    ) -> BatchProgress:
        """`start` puts a task on the board. `show` gets each change, and why tasks have to wait, if they do."""
        self._batch_id = await open_batch(board.journal, self._results)
        rows, after = self._rows_to_run(), board.journal.last_seq()
        following = next(rows, None)
        while not self.is_stopped and (following is not None or self._tasks):
            while following is not None and len(self._tasks) < concurrency and not self.is_stopped:
                try:
                    await self._submit(board, start, *following)
                except QueueFullError as error:  # others use the queue, too: wait until there is room
                    self._problem = error.problem
                    break
                following = next(rows, None)
                self._show(show)
            seen = board.journal.last_seq()
            changed = [task for task in board.changed_since(after) if task.id in self._tasks]
            after = seen
            for task in changed:
                self._note(board, task)
            self._show(show)
            if not any(task.is_finished for task in changed):
                await self._ensure_hosted(board, kitbag_home)
                await self._wait_for_change(board, seen)
        return self.progress

    async def _ensure_hosted(self, board: Board, kitbag_home: str) -> None:
        if time.monotonic() - self._hosted_at >= _POLL_SECONDS:
            self._problem = (await ensure_tasks_hosted(board, kitbag_home)).problem or self._problem
            self._hosted_at = time.monotonic()

    async def _wait_for_change(self, board: Board, seen: int) -> None:
        waits = [
            asyncio.ensure_future(board.journal.wait_async(seen, _POLL_SECONDS)),
            asyncio.ensure_future(self._stopping.wait()),
        ]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
            await asyncio.wait(waits)

    async def _submit(
        self,
        board: Board,
        start: Callable[[DelegationRequest], Awaitable[TaskReport]],
        row: Row,
        key: str,
        known: KeyHistory,
    ) -> None:
        task_id = _task_id(self._batch_id, key, known.attempts)
        if board.get(task_id) is None:
            request = msgspec.structs.replace(self._task.fill(row), task_id=task_id, background=True)
            try:
                await start(request)
            except (StoreError, QueueFullError):
                raise
            except KitbagError as error:  # e.g. its task can't be packed
                problem = f"{error.problem}. {error.fix}".strip()
                self._record(RowResult(row=row.number, key=key, status="failed", error=problem))
                return
        self._tasks[task_id] = (row, key)
        task = board.find(task_id)
        if task.is_finished:  # in an earlier run that did not see it
            self._note(board, task)

    def _note(self, board: Board, task: Task) -> None:
        self._waiting.discard(task.id)
        if task.status == "waiting-approval":
            self._waiting.add(task.id)
        if task.is_finished and task.id in self._tasks:
            row, key = self._tasks.pop(task.id)
            self._record(self._make_result(build_report(board, task), row, key))

    def _make_result(self, report: TaskReport, row: Row, key: str) -> RowResult:
        answer: Any = report.text
        if self._task.request.output_schema and report.status == "completed":
            answer = parse_answer(report.text)
        return RowResult(
            row=row.number,
            key=key,
            status=report.status,
            output=answer,
            tokens=report.tokens,
            cost=report.cost,
            task_id=report.id,
            error=report.error or "; ".join(f"not as required: {one}" for one in report.violations),
        )

    def _record(self, result: RowResult) -> None:
        self._results.append(result)
        progress = self.progress
        progress.ran += 1
        progress.tokens += result.tokens
        progress.cost = None if result.cost is None or progress.cost is None else progress.cost + result.cost
        if result.is_completed:
            progress.completed += 1
            return
        progress.failed += 1
        if len(progress.failures) < _MAX_FAILURES:
            progress.failures.append(msgspec.structs.replace(result, output=None))

    def _show(self, show: Callable[[BatchProgress, str], None]) -> None:
        self.progress.in_flight, self.progress.waiting = len(self._tasks), len(self._waiting)
        show(self.progress, self._problem)


async def open_batch(journal: Journal, results: ResultsFile) -> str:
    """The ID of the batch whose results the file holds; a new file begins a new batch. Recorded before its first task
    is, so that a crash at any time leaves no task behind that the next run does not find."""
    place = {"home": journal.home_queue, "results": os.path.realpath(results.path)}
    if not results.was_created:
        for record in reversed(list(journal.read(STREAM))):
            body: Mapping[str, Any] = record.body
            if {name: body.get(name) for name in place} == place:
                return str(body["batch"])
    batch_id = os.urandom(8).hex()
    await journal.write(STREAM, "started", {**place, "batch": batch_id})
    return batch_id


def _task_id(batch_id: str, key: str, attempt: int) -> str:
    """In the form of other task IDs, and longer: no two of a hundred thousand may be equal."""
    return hashlib.sha256(f"{batch_id}/{key}/{attempt}".encode()).hexdigest()[:16]
