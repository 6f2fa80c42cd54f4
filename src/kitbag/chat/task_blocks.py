"""Tasks as blocks: a row of the live panel, a table, the details and the output of one task.

Used by commands/tasks. Uses views/tasks and tasks/reports.
"""

import threading
from typing import Final

import msgspec

from kitbag.chat.panel_columns import PanelCells, align_rows
from kitbag.chat.ui import PanelRow
from kitbag.tasks.board import Board
from kitbag.tasks.output_file import read_chunk
from kitbag.tasks.reports import build_report, state_directory
from kitbag.tasks.task import Task
from kitbag.text.hidden_characters import collapse_whitespace
from kitbag.text.human_format import format_cost, format_duration
from kitbag.tools.delegation import TaskReport
from kitbag.views.blocks import (
    Block,
    FieldsBlock,
    LinesBlock,
    Span,
    StyledLine,
    TableBlock,
    Tone,
    VerbatimBlock,
    text_block,
)
from kitbag.views.tasks import (
    COSTS_TITLE,
    ReportCache,
    TaskStep,
    compute_task_costs,
    cost_lines,
    describe_activity,
    output_title,
    read_last_steps,
    request_sections,
    task_fields,
    task_seconds,
)

PAGE_SIZE: Final = 8_000
"""Characters of an answer, or bytes of a command's output."""
MAX_ROWS: Final = 200
COLUMNS: Final = "tokens, cost, time, activity"
_HEADERS: Final = ("ID", "AGENT", "STATUS", "TURNS", "TOKENS", "COST", "TIME", "ACTIVITY")
_SHORT_ID: Final = 8
STATUS_TONES: Final[dict[str, Tone]] = {
    "completed": "good",
    "empty": "good",
    "failed": "bad",
    "interrupted": "bad",
    "max-turns": "bad",
    "over-budget": "bad",
    "max-tokens": "bad",
    "max-cost": "bad",
    "cancelled": "dim",
    "queued": "dim",
    "running": "accent",
    "waiting-approval": "warning",
}
STATUS_LABELS: Final = {"waiting-approval": "needs approval"}


class ListedTask(msgspec.Struct, frozen=True, kw_only=True):
    task: Task
    report: TaskReport
    activity: str
    in_this_session: bool
    version: int = 0
    """Changes with its session's records, or with a command's output."""


class TaskList:
    """The tasks of a board, refreshed repeatedly. Thread-safe."""

    def __init__(self, board: Board, session: str, directory: str, max_rows: int = MAX_ROWS) -> None:
        """`directory`: only tasks of this directory or session; empty: all tasks. `session`: empty: none."""
        self.omitted = 0
        """Number of older tasks without a row."""
        self._board = board
        self._session = session
        self._directory = directory
        self._max_rows = max_rows
        self._reports = ReportCache(board)
        self._finished: dict[str, ListedTask] = {}
        """What does not change any more."""
        self._lock = threading.Lock()
        self._listed: tuple[ListedTask, ...] = ()

    def refresh(self) -> tuple[ListedTask, ...]:
        """Tasks of this session first, then unfinished ones, then newest first. Raises StoreError."""
        with self._lock:
            board = self._board
            newest = board.newest(self._directory, self._max_rows)
            ours = board.of_session(self._session) if self._session else []
            found = {task.id: task for task in (*newest, *board.unfinished(), *ours)}
            tasks = [task for task in found.values() if self._belongs(task)]
            tasks.sort(key=lambda task: task.created, reverse=True)
            tasks.sort(key=lambda task: (not self._is_ours(task), task.is_finished))
            self.omitted = max(board.count(self._directory, self._session) - self._max_rows, 0)
            self._listed = tuple(self._list_task(task) for task in tasks[: self._max_rows])
            return self._listed

    def _belongs(self, task: Task) -> bool:
        return not self._directory or task.directory == self._directory or self._is_ours(task)

    def _is_ours(self, task: Task) -> bool:
        return bool(self._session) and task.root == self._session

    def _list_task(self, task: Task) -> ListedTask:
        cached = self._finished.get(task.id)
        if cached is not None and cached.task == task:
            return cached
        report = self._reports.get(task)
        listed = ListedTask(
            task=task,
            report=report,
            activity=describe_activity(self._board, task, report),
            in_this_session=self._is_ours(task),
            version=report.output_size if report.is_command else self._reports.last_seq(task),
        )
        if task.is_finished:
            self._finished[task.id] = listed
        return listed

    def rows(self) -> tuple[PanelRow, ...]:
        """As of the last refresh."""
        return align_rows([_cells(listed) for listed in self._listed], frozenset((3, 4, 5)))


def _cells(listed: ListedTask) -> PanelCells:
    task, report = listed.task, listed.report
    _, tokens, cost, time = _figures(task, report)
    tone: Tone = "plain" if listed.in_this_session else "dim"
    spans = (
        Span(task.id[:_SHORT_ID], "dim"),
        Span(report.name, tone),
        Span(STATUS_LABELS.get(task.status, task.status), STATUS_TONES.get(task.status, "plain")),
        Span(tokens, "dim"),
        Span(cost, "dim"),
        Span(time, "dim"),
        Span(collapse_whitespace(listed.activity) + ("" if listed.in_this_session else " (another session)"), tone),
    )
    return PanelCells(id=task.id, spans=spans)


def _figures(task: Task, report: TaskReport) -> tuple[str, str, str, str]:
    """Turns, tokens, cost, duration."""
    time = format_duration(task_seconds(task, report)) if task.started else ""
    if report.is_command:
        return "", f"{report.output_size:,} bytes", "", time
    return str(report.turns), f"{report.tokens:,}", format_cost(report.cost), time


def task_table(listed: tuple[ListedTask, ...], omitted: int) -> Block:
    if not listed:
        return text_block("no tasks in this directory; list all with /tasks all", "dim")
    rows = tuple(
        (one.task.id, one.report.name, one.task.status, *_figures(one.task, one.report), one.activity) for one in listed
    )
    foot = (
        f"{omitted:,} older tasks; list them with `kitbag tasks list --all`"
        if omitted
        else "show one with /tasks show ID"
    )
    return TableBlock(headers=_HEADERS, rows=rows, foot=foot)


# One task


def task_detail_blocks(board: Board, task: Task) -> list[Block]:
    """The prompt, the status, the last steps and the cost."""
    report = build_report(board, task, 0, 0)
    blocks: list[Block] = [FieldsBlock(tuple(task_fields(board, task, report)))]
    blocks += (VerbatimBlock(text, title) for title, text in request_sections(board.request(task.id)))
    steps = read_last_steps(board.journal, task) if not report.is_command else []
    if steps:
        blocks.append(LinesBlock(((Span("Last steps", "strong"),), *(_step_line(step) for step in steps))))
    costs = compute_task_costs(board, task)
    if costs.children:
        lines = ((Span(line),) for line in cost_lines(costs, "  "))
        blocks.append(LinesBlock(((Span(COSTS_TITLE, "strong"),), *lines)))
    return blocks


def _step_line(step: TaskStep) -> StyledLine:
    if not step.is_done:
        return Span("  … "), Span(step.title, "accent")
    mark = Span("  ✗ ", "bad") if step.is_error else Span("  ✓ ", "good")
    return mark, Span(step.title), Span(f"  {collapse_whitespace(step.summary)}" if step.summary else "", "dim")


class OutputPage(msgspec.Struct, frozen=True, kw_only=True):
    """One page of a task's answer or output."""

    text: str
    next_offset: int
    """Start of the next page; 0 if there is no more output yet."""
    title: str


def output_page(board: Board, task: Task, offset: int) -> OutputPage:
    """`offset`: in characters of an answer, or bytes of a command's output. Pages end at a line break if possible."""
    if task.kind == "command":
        report = build_report(board, task, offset, _page_bytes(board, task, offset))
        text, end, size, unit = report.text.rstrip("\n"), report.next_offset, report.output_size, "bytes"
    else:
        answer = build_report(board, task).text
        text, size, unit = answer[offset : offset + PAGE_SIZE], len(answer), "characters"
        if offset + PAGE_SIZE < size and "\n" in text:
            text = text[: text.rindex("\n") + 1]
        end = min(offset + len(text), size)
    range_shown = f" ({offset:,}-{end:,} of {size:,} {unit})" if offset or end < size else ""
    return OutputPage(text=text, next_offset=end if end < size else 0, title=f"{output_title(task)}{range_shown}")


def _page_bytes(board: Board, task: Task, offset: int) -> int:
    """The number of bytes from `offset` that make a page."""
    piece = read_chunk(state_directory(board.journal), task.id, offset, PAGE_SIZE)
    if piece.next_offset >= piece.size or "\n" not in piece.text:
        return PAGE_SIZE
    return piece.next_offset - offset - len(piece.text[piece.text.rindex("\n") + 1 :].encode())


def page_blocks(page: OutputPage, task: Task) -> list[Block]:
    """Includes the command for the next page."""
    if not page.text:
        rest = "end of output" if task.is_finished else "no more output yet"
        return [text_block(f"{page.title}: {rest}", "dim")]
    more = (
        [text_block(f"next page: /tasks output {task.id[:_SHORT_ID]} {page.next_offset}", "dim")]
        if page.next_offset
        else []
    )
    return [VerbatimBlock(page.text, page.title), *more]
